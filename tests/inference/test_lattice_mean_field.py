"""Mean field on lattices: two labels as one number, and potentials of any range."""

import fields
import numpy as np
import pytest
from engines import (
    LARGEST_MEAN_FIELD_RANGE,
    assert_close_beliefs,
    assert_close_gradients,
    by_both_engines,
    cotangents,
    mean_field_options,
)
from numba import config

from skcrf.graph import Potentials, lattice, pack
from skcrf.inference import MeanField

SHAPES = [(1, 4), (3, 2), (4, 5)] if config.DISABLE_JIT else [(1, 4), (3, 2), (4, 5), (16, 15), (3, 40)]

connectivities = pytest.mark.parametrize("connectivity", [4, 8])
tied_or_not = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
labels = pytest.mark.parametrize("n_states", [2, 3])


def lattices(connectivity, tied):
    return pack([lattice(*shape, connectivity=connectivity, tied=tied) for shape in SHAPES])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@labels
@tied_or_not
@connectivities
def test_marginals_are_continuous_where_maxima_are_subtracted(connectivity, tied, n_states, share, seed):
    """`share` of the range is that of nodes."""
    rng = np.random.default_rng(seed)
    graph = lattice(3, 5, connectivity=connectivity, tied=tied)
    theta = fields.normal(graph, n_states, rng)
    unary = theta.unary / np.ptp(theta.unary, axis=1).max()
    tables = theta.tables / (connectivity * np.ptp(theta.tables, axis=(1, 2)).max())
    inference = MeanField(max_iter=3)
    sides, options = [], []
    for factor in (1 - 1e-12, 1 + 1e-12):
        scale = factor * LARGEST_MEAN_FIELD_RANGE
        moved = Potentials(scale * share * unary, scale * (1 - share) * tables)
        options.append(mean_field_options(graph, moved)[0])
        sides.append(inference.forward(graph, moved, edges=True, tape=True))
    assert options[0] != options[1]
    assert_close_beliefs(*sides, atol=1e-8, rtol=1e-10)
    for title, given in cotangents(sides[0], rng).items():
        gradients = (inference.backward(beliefs, *given) for beliefs in sides)
        assert_close_gradients(*gradients, atol=1e-8, err_msg=title)


@pytest.mark.parametrize("size", [30.0, 1e4])
@labels
@tied_or_not
@connectivities
def test_large_potentials_give_the_marginals_of_the_plain_engine(connectivity, tied, n_states, size, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(connectivity, tied)
    theta = fields.normal(graph, n_states, rng)
    theta = Potentials(size * theta.unary, theta.tables)
    fast, plain = by_both_engines(MeanField(max_iter=3), graph, theta, tape=True)
    assert_close_beliefs(fast, plain)
    likely = plain.mu > 1e-200
    np.testing.assert_allclose(fast.mu[likely], plain.mu[likely], rtol=1e-9)  # small ones have all digits
    for title, given in cotangents(fast, rng).items():
        gradients = (MeanField(max_iter=3).backward(beliefs, *given) for beliefs in (fast, plain))
        assert_close_gradients(*gradients, err_msg=title)


@labels
@tied_or_not
@connectivities
def test_forbidden_labels_have_probability_zero(connectivity, tied, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(connectivity, tied)
    theta = fields.forbidden_unary(graph, n_states, rng)
    for max_iter in (0, 3):
        mu = MeanField(max_iter=max_iter).forward(graph, theta).mu
        assert (mu[np.isneginf(theta.unary)] == 0).all()
        np.testing.assert_allclose(mu.sum(axis=1), 1, rtol=0, atol=1e-12)


@labels
@tied_or_not
@connectivities
def test_bits_do_not_depend_on_the_batch(connectivity, tied, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(connectivity, tied)
    theta = fields.normal(graph, n_states, rng)
    theta.unary[graph.node_example == 1] *= 1e4
    theta.unary[0, 0] = -np.inf
    inference = MeanField(max_iter=4)
    whole = inference.forward(graph, theta, edges=True, tape=True)
    alone = [inference.forward(*one, edges=True, tape=True) for one in fields.split(graph, theta)]
    for field in ("mu", "edge_mu", "log_z"):
        parts = [getattr(one, field) for one in alone]
        np.testing.assert_array_equal(getattr(whole, field), np.concatenate(parts))
    d_mu = rng.normal(size=whole.mu.shape)
    parts = np.split(d_mu, graph.node_ptr[1:-1])
    gradients = [inference.backward(one, part) for one, part in zip(alone, parts, strict=True)]
    for found, expected in zip(inference.backward(whole, d_mu), zip(*gradients, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.concatenate(expected))
