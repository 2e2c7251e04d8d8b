"""Engines for lattices in single precision: close to double precision, and double where ranges are large."""

import fields
import numpy as np
import pytest
from engines import FAST, engines_of, lattice_options
from numba import config
from numpy.testing import assert_allclose

from skcrf.graph import Potentials, lattice, pack
from skcrf.inference import BP, TRW

LABELS = (2, 3) if config.DISABLE_JIT else (2, 3, 5, 8, 9, 21)
SHAPES = [(1, 5), (3, 4)] if config.DISABLE_JIT else [(3, 4), (20, 35), (5, 1), (33, 50)]


def lattices(connectivity, tied):
    return pack([lattice(*shape, connectivity=connectivity, tied=tied) for shape in SHAPES])


def in_both_precisions(method, graph, theta, **options):
    return [
        method(dtype=dtype, **options).forward(graph, theta, tape=True) for dtype in ("float32", "float64")
    ]


@pytest.mark.parametrize("n_states", LABELS)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("rho", [1.0, 0.5, "spanning_trees"])
def test_single_precision_is_close_to_double(rho, connectivity, tied, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(connectivity, tied)
    theta = fields.normal(graph, n_states, rng, strength=0.3)
    inference = TRW(rho=rho, max_iter=5, dtype="float32")
    assert any(options.is_single for options in lattice_options(inference, graph, theta))
    single, double = in_both_precisions(TRW, graph, theta, rho=rho, max_iter=5)
    assert engines_of(single) == engines_of(double) == {"LatticeEngine"}
    assert single.mu.dtype == single.log_z.dtype == np.float64
    assert_allclose(single.mu, double.mu, rtol=0, atol=1e-5)
    assert_allclose(single.mu.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert_allclose(single.log_z, double.log_z, rtol=1e-5)
    d_mu = rng.normal(size=double.mu.shape)
    gradients = (inference.backward(beliefs, d_mu) for beliefs in (single, double))
    for found, expected in zip(*gradients, strict=True):
        assert found.dtype == np.float64
        assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("method", [BP, TRW])
def test_fixed_points_in_single_precision(method, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(4, True)
    theta = fields.normal(graph, n_states, rng, strength=0.3)
    single, double = in_both_precisions(method, graph, theta, max_iter=200, tol=1e-5)
    assert single.converged.all()
    assert_allclose(single.mu, double.mu, rtol=0, atol=1e-4)


@pytest.mark.parametrize("n_states", [2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 4.0, 8.0, 20.0, 60.0, 300.0, 1e4])
@pytest.mark.parametrize("of", ["nodes", "tables", "both"])
def test_large_potentials_give_no_nan(of, scale, n_states, seed):
    """Ranges too large for single precision are left to double precision, or to the plain engine."""
    rng = np.random.default_rng(seed)
    graph = lattices(4, True)
    theta = fields.normal(graph, n_states, rng)
    factors = scale if of != "tables" else 1.0, scale if of != "nodes" else 1.0
    theta = Potentials(*(factor * part for factor, part in zip(factors, theta, strict=True)))
    single, double = in_both_precisions(TRW, graph, theta, rho=0.5, max_iter=3)
    d_mu = rng.normal(size=single.mu.shape)
    gradients = [TRW(rho=0.5, max_iter=3).backward(beliefs, d_mu) for beliefs in (single, double)]
    assert np.isfinite(single.mu).all() and all(np.isfinite(part).all() for part in gradients[0])
    if engines_of(single) <= FAST:
        assert_allclose(single.mu, double.mu, rtol=0, atol=1e-5)
        for found, expected in zip(*gradients, strict=True):
            assert_allclose(found, expected, rtol=0, atol=1e-4 * max(1e-3, np.abs(expected).max()))


def test_forbidden_labels_in_single_precision(seed):
    rng = np.random.default_rng(seed)
    graph = lattices(4, True)
    for n_states in (2, 3, 5):
        theta = fields.normal(graph, n_states, rng)
        off = (np.arange(n_states) == rng.integers(n_states, size=(graph.n_nodes, 1))) & (
            rng.random((graph.n_nodes, 1)) < 0.5
        )
        theta = theta._replace(unary=np.where(off, -np.inf, theta.unary))
        single, double = in_both_precisions(TRW, graph, theta, rho=0.5, max_iter=3)
        assert engines_of(single) <= FAST
        assert (single.mu[off] == 0).all()
        assert_allclose(single.mu, double.mu, rtol=0, atol=1e-5)


def weak_lattice(shape, seed):
    graph, rng = lattice(*shape), np.random.default_rng(seed)
    tables = 0.3 * rng.normal(size=(graph.n_tables, 3, 3))
    return graph, Potentials(rng.normal(size=(graph.n_nodes, 3)), tables)


def test_resumed_runs_in_single_precision_stop(seed):
    graph, theta = weak_lattice((20, 20), seed)
    method = TRW(max_iter=200, tol=1e-5, dtype="float32")
    cold = method.forward(graph, theta)
    moved = theta._replace(unary=theta.unary * (1 + 1e-6))
    resumed = method.forward(graph, moved, start=method.start_of(cold))
    assert resumed.converged.all()
    assert (resumed.n_iter <= cold.n_iter).all()


def test_runs_do_not_resume_from_messages_of_another_precision(seed):
    graph, theta = weak_lattice((64, 64), seed)  # as many numbers in both precisions
    double, single = (TRW(max_iter=200, tol=1e-5, dtype=dtype) for dtype in ("float64", "float32"))
    start = double.start_of(double.forward(graph, theta))
    cold, other = single.forward(graph, theta), single.forward(graph, theta, start=start)
    np.testing.assert_array_equal(other.n_iter, cold.n_iter)
    np.testing.assert_array_equal(other.mu, cold.mu)
