"""Sequential messages on lattices: the engine in strips gives the results of the one along the edges."""

from operator import attrgetter

import fields
import numpy as np
import pytest
from engines import (
    PLAIN,
    assert_close_beliefs,
    assert_close_gradients,
    assert_same_bits,
    by_both_engines,
    cotangents,
    engines_of,
)
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials, chain, clamp, lattice, pack, score
from skcrf.inference import TRWS

SMALL = config.DISABLE_JIT
#: Strips have 8 or 16 rows: less than one, one or several, with and without a rest.
SHAPES = [(2, 3), (3, 4)] if SMALL else [(2, 3), (5, 7), (16, 4), (33, 6), (40, 3)]


def batch_of(graphs, n_states, rng, strength=1.0):
    """Draw potentials of several graphs; return the graphs, their potentials, and both as a batch."""
    parts = [fields.normal(graph, n_states, rng, strength=strength) for graph in graphs]
    return parts, pack(graphs), Potentials(*map(np.concatenate, zip(*parts, strict=True)))


def is_sequential(beliefs):
    return engines_of(beliefs) == {"SequentialLatticeEngine"}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("n_states", [2, 3] if SMALL else [2, 3, 5, 8])
def test_both_engines_agree_on_marginals_bounds_and_gradients(n_states, connectivity, tied, seed):
    rng = np.random.default_rng(seed)
    for shape in SHAPES:
        graph = lattice(*shape, connectivity=connectivity, tied=tied)
        theta = fields.normal(graph, n_states, rng)
        for tol, max_iter in ((0.0, 0), (0.0, 3), (1e-6, 20)):
            inference = TRWS(max_iter=max_iter, tol=tol)
            fast, plain = by_both_engines(inference, graph, theta, tape=True)
            assert is_sequential(fast)
            assert_close_beliefs(fast, plain)
            for name, given in cotangents(plain, rng).items():
                gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
                assert_close_gradients(*gradients, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("n_states", [2, 4])
def test_both_engines_agree_on_derivatives_at_fixed_points(n_states, seed):
    rng = np.random.default_rng(seed)
    for connectivity in (4, 8):
        graph = lattice(3, 4, connectivity=connectivity)
        theta = fields.normal(graph, n_states, rng, strength=0.5)
        inference = TRWS(max_iter=2000, tol=1e-11)
        fast, plain = by_both_engines(inference, graph, theta)
        for name, given in cotangents(plain, rng).items():
            gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
            assert_close_gradients(*gradients, atol=1e-8, err_msg=name)
        statistics = (inference.statistics(graph, beliefs) for beliefs in (fast, plain))
        assert_close_gradients(*statistics, atol=1e-9)


@pytest.mark.parametrize("n_states", [2, 3])
def test_both_engines_agree_if_labels_are_forbidden(n_states, seed):
    rng = np.random.default_rng(seed)
    for connectivity in (4, 8):
        graph = lattice(*SHAPES[-1], connectivity=connectivity)
        theta = fields.normal(graph, n_states, rng)
        y = np.where(rng.random(graph.n_nodes) < 0.4, rng.integers(n_states, size=graph.n_nodes), -1)
        inference = TRWS(max_iter=4)
        for max_iter in (0, 4):
            inference = TRWS(max_iter=max_iter)
            fast, plain = by_both_engines(inference, graph, clamp(theta, y), tape=True)
            assert is_sequential(fast)
            assert_close_beliefs(fast, plain)
            for name, given in cotangents(plain, rng).items():
                gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
                assert_close_gradients(*gradients, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("n_states", [2, 3])
def test_bound_never_increases_on_random_lattices(n_states, seed):
    rng = np.random.default_rng(seed)
    for connectivity in (4, 8):
        for strength in (0.3, 1.0, 3.0):
            for tied in (True, False):
                graph = lattice(3, 5, connectivity=connectivity, tied=tied)
                theta = fields.normal(graph, n_states, rng, strength=strength)
                found = [TRWS(max_iter=n).forward(graph, theta) for n in range(10)]
                assert all(map(is_sequential, found))
                bounds = np.array([beliefs.log_z.item() for beliefs in found])
                assert (np.diff(bounds) <= 1e-12 * np.abs(bounds[1:])).all()


@pytest.mark.parametrize("tol", [0.0, 1e-4])
def test_results_do_not_depend_on_the_batch(tol, seed):
    """Neither on the other sizes in it, nor on when the others stop."""
    rng = np.random.default_rng(seed)
    for n_states in (2, 3):
        for connectivity in (4, 8):
            graphs = [lattice(*shape, connectivity=connectivity) for shape in SHAPES] + [chain(4)]
            parts, batch, theta = batch_of(graphs, n_states, rng, strength=0.7)
            inference = TRWS(max_iter=30, tol=tol)
            whole = inference.forward(batch, theta, tape=True)
            alone = [inference.forward(*pair, tape=True) for pair in zip(graphs, parts, strict=True)]
            for field in map(attrgetter, ("mu", "log_z", "n_iter", "converged")):
                assert_array_equal(field(whole), np.concatenate([field(beliefs) for beliefs in alone]))
            d_mu = rng.normal(size=whole.mu.shape)
            ends = np.cumsum([graph.n_nodes for graph in graphs])[:-1]
            gradients = [inference.backward(*pair) for pair in zip(alone, np.split(d_mu, ends), strict=True)]
            joined = Potentials(*map(np.concatenate, zip(*gradients, strict=True)))
            assert_same_bits(inference.backward(whole, d_mu), joined)


def test_extreme_potentials_and_narrow_lattices_use_the_other_engine(seed):
    rng = np.random.default_rng(seed)
    inference = TRWS(max_iter=2)
    for graph in (lattice(1, 5), lattice(4, 1), lattice(4, 2, connectivity=8)):
        assert engines_of(inference.forward(graph, fields.normal(graph, 3, rng))) <= PLAIN
    graph = lattice(3, 4)
    for theta in (fields.normal(graph, 3, rng, strength=1e4), fields.forbidden(graph, 3, rng)):
        assert engines_of(inference.forward(graph, theta)) <= PLAIN
    for scale in (1.0, 10.0, 30.0):
        theta = Potentials(
            scale * rng.normal(size=(12, 3)), 0.1 * scale * rng.normal(size=(graph.n_tables, 3, 3))
        )
        fast, plain = by_both_engines(inference, graph, theta)
        assert is_sequential(fast)
        assert_allclose(fast.mu, plain.mu, rtol=0, atol=1e-9)
        assert_allclose(fast.log_z, plain.log_z, rtol=1e-9)


def test_long_tapes_give_the_same_derivatives(seed):
    """A short tape repeats iterations."""
    rng, graph = np.random.default_rng(seed), lattice(4, 5)
    theta, inference = fields.normal(graph, 3, rng), TRWS(max_iter=9)
    d_mu = rng.normal(size=theta.unary.shape)
    gradients = [inference.backward(inference.forward(graph, theta, tape=tape), d_mu) for tape in (True, 1.0)]
    assert_same_bits(*gradients)


# Maximisation


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n_states", [2, 3])
def test_both_engines_find_the_same_bounds_and_configurations(n_states, tied, seed):
    """With eight neighbours the engines decode in different orders, so that only bounds are equal."""
    rng = np.random.default_rng(seed)
    for connectivity in (4, 8):
        for strength in (1e-6, 1.0, 1e3):
            graph = lattice(*SHAPES[1], connectivity=connectivity, tied=tied)
            theta = fields.normal(graph, n_states, rng, strength=strength)
            y = np.where(rng.random(graph.n_nodes) < 0.2, rng.integers(n_states, size=graph.n_nodes), -1)
            for potentials in (theta, clamp(theta, y)):
                for max_iter in (0, 1, 5):
                    inference = TRWS(max_iter=max_iter)
                    fast, plain = by_both_engines(inference, graph, potentials, tau=0.0)
                    assert is_sequential(fast)
                    assert_allclose(fast.bound, plain.bound, rtol=1e-12)
                    x = fast.mu.argmax(axis=1)
                    assert_allclose(fast.log_z, score(graph, potentials, x), rtol=1e-12)
                    if connectivity == 4:
                        assert_allclose(fast.log_z, plain.log_z, rtol=1e-12)


def test_bound_of_maxima_never_increases_and_is_above_the_best_configuration(seed):
    rng = np.random.default_rng(seed)
    for connectivity in (4, 8):
        for n_states in (2, 4):
            graph = lattice(5, 6, connectivity=connectivity)
            theta = fields.normal(graph, n_states, rng)
            found = [TRWS(max_iter=n).forward(graph, theta, tau=0.0) for n in range(8)]
            assert all(map(is_sequential, found))
            bounds, values = (
                np.array([field(beliefs).item() for beliefs in found])
                for field in map(attrgetter, ("bound", "log_z"))
            )
            assert (np.diff(bounds) <= 0).all()
            assert (np.diff(values) >= 0).all()
            assert (bounds >= values).all()


def test_tolerance_of_maximisation_is_that_of_the_potentials_as_given(seed):
    """Inside, potentials are scaled; both engines stop after the same iteration."""
    rng = np.random.default_rng(seed)
    graph = lattice(4, 5)
    for strength in (0.1, 1.0, 10.0):
        theta = fields.normal(graph, 3, rng, strength=strength)
        for tol in (1e-2, 1e-6):
            fast, plain = by_both_engines(TRWS(max_iter=50, tol=tol), graph, theta, tau=0.0)
            assert_array_equal(fast.n_iter, plain.n_iter)
            assert_array_equal(fast.converged, plain.converged)
