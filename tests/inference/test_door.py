"""What every inference must do at its door: odd dtypes, impossible models, no fixed point."""

import fields
import methods
import numpy as np
import pytest
from numba import config
from numpy.testing import assert_allclose, assert_array_equal
from strategies import loss_of

from skcrf._numerics import kernel
from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, chain, from_edges, lattice, pack
from skcrf.inference import BP, INFERENCE, TRW, BruteForce
from skcrf.losses import LOSSES


@pytest.mark.parametrize("name", methods.SCORING)
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_potentials_of_any_numbers(name, dtype):
    graph = chain(3)
    theta = Potentials(np.array([[0, 1], [2, 0], [0, 0]]), np.array([[[1, 0], [0, 2]]]))
    expected = INFERENCE[name]().forward(graph, Potentials(*(part.astype(np.float64) for part in theta)))
    found = INFERENCE[name]().forward(graph, Potentials(*(np.asfortranarray(part, dtype) for part in theta)))
    assert found.mu.dtype == np.float64
    assert_array_equal(found.mu, expected.mu)
    assert_array_equal(found.log_z, expected.log_z)


def test_kernels_compile_where_nothing_can_be_kept():
    space = {}
    exec(compile("def double(x):\n    return 2 * x", "<nowhere>", "exec"), space)
    if config.DISABLE_JIT:
        assert kernel(space["double"])(3) == 6
        return
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR"):
        double = kernel(space["double"])
    assert double(3) == 6


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # by kernels that are not compiled
@pytest.mark.parametrize("name", INFERENCE)
def test_what_has_no_possible_configuration_is_refused(name):
    graph = pack([chain(2), chain(2)])
    theta = Potentials(np.zeros((4, 2)), np.zeros((2, 2, 2)))
    theta.unary[2] = -np.inf
    with pytest.raises(ValueError, match=r"theta must allow .*, got none in example 1"):
        INFERENCE[name]().forward(graph, theta)


def test_enumeration_of_one_state_has_no_limit_of_nodes():
    beliefs = BruteForce().forward(chain(100), Potentials(np.ones((100, 1)), np.zeros((1, 1, 1))))
    assert_allclose(beliefs.log_z, 100.0)


def test_damping_does_not_loosen_the_tolerance(seed):
    graph = lattice(4, 4)
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    exact = TRW(tol=1e-12, max_iter=10_000).forward(graph, theta).mu
    for damping in (0.0, 0.5, 0.9):
        beliefs = TRW(tol=1e-4, max_iter=10_000, damping=damping).forward(graph, theta)
        assert beliefs.converged.all()
        assert_allclose(beliefs.mu, exact, atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_no_fixed_point_no_explosion(loss, gradient):
    # Frustrated and strong: BP runs in circles here, and an adjoint series would grow without end.
    rng = np.random.default_rng(0)
    side, n_fields, max_iter = (3, 4, 50) if config.DISABLE_JIT else (4, 6, 300)
    graph = pack([lattice(side, side, 8, tied=False)] * n_fields)
    coupling = 4 * rng.normal(size=(graph.n_tables, 1, 1))
    theta = Potentials(rng.normal(size=(graph.n_nodes, 2)), coupling * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    wrapped = GRADIENTS[gradient]().wrap(BP(tol=1e-6, max_iter=max_iter))
    value, d_theta, converged = loss_of(loss)(wrapped, graph, theta, rng.integers(2, size=graph.n_nodes))
    assert np.isfinite(value).all()
    assert max(np.abs(part).max() for part in d_theta) < 1e6
    assert converged.all() != bool(LOSSES[loss]().needs | LOSSES[loss]().tasks)


def test_rho_for_each_edge_of_an_example():
    one = from_edges(3, [[0, 1], [1, 2], [0, 2]])
    graph = pack([one, one])
    theta = fields.normal(graph, 2, np.random.default_rng(0))
    rho = [0.5, 0.6, 0.9]
    short = TRW(rho=rho).forward(graph, theta)
    assert_array_equal(short.mu, TRW(rho=rho * 2).forward(graph, theta).mu)
    other = pack([one, chain(3, tied=False)])
    with pytest.raises(ValueError, match="one value per edge, 2 in example 1, got 3 values"):
        TRW(rho=rho).forward(other, fields.normal(other, 2, np.random.default_rng(0)))
