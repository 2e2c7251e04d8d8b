"""Engine for lattices of eight neighbours: the results of the plain engine."""

from functools import partial

import fields
import numpy as np
import pytest
from engines import (
    LARGEST_RANGE,
    assert_close_beliefs,
    assert_close_gradients,
    by_both_engines,
    cotangents,
    engines_of,
    lattice_options,
    messages_of_both_engines,
)
from numba import config
from numpy.testing import assert_allclose

from skcrf.graph import Potentials, lattice, pack
from skcrf.inference import BP, TRW, MeanField
from skcrf.inference.trw import spanning_tree_weights

SMALL = [(2, 2), (2, 5), (5, 2), (3, 5), (5, 3)]
#: Sizes around the numbers of lanes of tiles; diagonals pass through several tiles.
LARGE = [] if config.DISABLE_JIT else [(17, 9), (70, 5), (5, 70), (2, 130), (66, 67), (3, 260), (140, 131)]
#: Lattices of one row or column, which have no diagonals.
LINES = [(1, 2), (1, 5), (6, 1)]
LABELS = (2, 3, 5)


def two_values(graph):
    """Make weights that differ between directions."""
    return np.where(graph.edges[:, 1] - graph.edges[:, 0] == 1, 0.9, 0.6)


def by_line(graph, rng):
    """Draw weights that differ between rows, between columns and between the two diagonals."""
    weights = []
    for height, width in graph.shapes:
        rows, columns = rng.uniform(0.3, 1, size=(height, 1)), rng.uniform(0.3, 1, size=(1, width))
        weights += [np.tile(rows, (1, width - 1)).ravel(), np.tile(columns, (height - 1, 1)).ravel()]
        weights += [np.full((height - 1) * (width - 1), value) for value in rng.uniform(0.3, 1, size=2)]
    return np.concatenate(weights)


def _weighted(weights, graph, rng, **parameters):
    return TRW(rho=weights(graph, rng), **parameters)


#: name -> function(graph, rng) that returns weights.
WEIGHTS = {
    "bp": lambda graph, rng: 1.0,
    "half": lambda graph, rng: 0.5,
    "auto": lambda graph, rng: "auto",
    "other": lambda graph, rng: 0.7,
    "by_direction": lambda graph, rng: two_values(graph),
    "by_line": by_line,
}

weighted = pytest.mark.parametrize("weights", list(WEIGHTS.values()), ids=list(WEIGHTS))

#: name -> function(graph, rng, **parameters) that returns an inference.
METHODS = {name: partial(_weighted, weights) for name, weights in WEIGHTS.items()}
METHODS["mean_field"] = lambda graph, rng, **parameters: MeanField(**parameters)

every_method = pytest.mark.parametrize("method", list(METHODS.values()), ids=list(METHODS))
tied_or_not = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def lattices(shapes, tied):
    return pack([lattice(*shape, connectivity=8, tied=tied) for shape in shapes])


draws = pytest.mark.parametrize("draw", [fields.normal, fields.forbidden_unary], ids=["finite", "forbidden"])


@draws
@pytest.mark.parametrize("n_states", LABELS)
@tied_or_not
@every_method
def test_truncated_inference_equals_that_of_the_plain_engine(method, tied, n_states, draw, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(SMALL[:4] if config.DISABLE_JIT else SMALL + LARGE[:3] + LINES, tied)
    inference = method(graph, rng, max_iter=3)
    fast, plain = by_both_engines(inference, graph, draw(graph, n_states, rng), tape=True)
    assert_close_beliefs(fast, plain)
    for title, given in cotangents(fast, rng).items():
        gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
        assert_close_gradients(*gradients, err_msg=title)


@pytest.mark.skipif(config.DISABLE_JIT, reason="too large for plain Python")
@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("method", [BP, TRW, MeanField])
def test_sizes_around_the_size_of_a_tile(method, n_states, shape, seed):
    rng = np.random.default_rng(seed)
    for tied in (True, False):
        graph = lattices([shape], tied)
        inference = method(max_iter=3)
        fast, plain = by_both_engines(inference, graph, fields.normal(graph, n_states, rng), tape=True)
        assert_close_beliefs(fast, plain)
        d_mu = rng.normal(size=fast.mu.shape)
        assert_close_gradients(*(inference.backward(beliefs, d_mu) for beliefs in (fast, plain)))


@draws
@pytest.mark.parametrize("n_states", LABELS)
@pytest.mark.parametrize("maximise", [False, True], ids=["sum", "max"])
@tied_or_not
@weighted
def test_messages_equal_those_of_the_plain_engine(weights, tied, maximise, n_states, draw, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(SMALL + LARGE[:3], tied)
    theta = draw(graph, n_states, rng)
    sent = messages_of_both_engines(TRW(rho=weights(graph, rng)), graph, theta, maximise=maximise)
    assert_allclose(*sent, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_states", [2, 3])
@tied_or_not
@every_method
def test_fixed_point_equals_that_of_the_plain_engine(method, tied, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(SMALL[:4], tied)
    theta = fields.forbidden_unary(graph, n_states, rng, strength=0.2)
    state = rng.bit_generator.state  # to draw the same weights again
    assert_close_beliefs(*by_both_engines(method(graph, rng, max_iter=50, tol=1e-6), graph, theta))
    rng.bit_generator.state = state
    inference = method(graph, rng, max_iter=1000, tol=1e-13)
    fast, plain = by_both_engines(inference, graph, theta)
    assert fast.converged.all()
    for title, given in cotangents(fast, rng).items():
        gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
        assert_close_gradients(*gradients, err_msg=title)


@pytest.mark.parametrize("method", [BP, TRW])
def test_lines_and_single_pixels_use_no_diagonals(method, seed):
    rng = np.random.default_rng(seed)
    for shape in LINES:
        one, other = (lattice(*shape, connectivity=connectivity) for connectivity in (4, 8))
        theta = fields.normal(one, 3, rng)
        (options,), (expected,) = (lattice_options(method(), graph, theta) for graph in (other, one))
        assert options == expected
        assert not options.has_diagonals
    pixel = lattice(1, 1, connectivity=8)
    assert engines_of(method().forward(pixel, fields.normal(pixel, 3, rng))) == {"EdgelessEngine"}


def test_edges_with_different_weights_use_the_plain_engine(seed):
    rng = np.random.default_rng(seed)
    graph = lattice(4, 5, connectivity=8)
    theta = fields.normal(graph, 2, rng)
    for edge in range(graph.n_edges):
        rho = np.full(graph.n_edges, 0.5)
        rho[edge] = 0.6
        assert lattice_options(TRW(rho=rho), graph, theta) == [None]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@tied_or_not
@pytest.mark.parametrize("rho", [1.0, 0.5, 0.3])
def test_results_are_continuous_at_the_largest_range(rho, tied, share, sign, seed):
    """Nodes and edges prefer equal or opposite states, so that products are as large as possible."""
    rng = np.random.default_rng(seed)
    graph = lattice(3, 3 if config.DISABLE_JIT else 5, connectivity=8, tied=tied)
    inference = TRW(rho=rho, max_iter=3)
    for n_states in (2, 3):
        x = np.arange(n_states) / (n_states - 1)
        tables = np.stack([np.add.outer(x, 0 * x), np.add.outer(0 * x, x)])[
            rng.integers(2, size=graph.n_tables)
        ]
        unary = np.tile(LARGEST_RANGE * share * x, (graph.n_nodes, 1))
        tables = sign * LARGEST_RANGE * (1 - share) / (5 / rho + 4) * tables
        sides = []
        for factor, engine in ((1 - 1e-13, "LatticeEngine"), (1 + 1e-13, "PairwiseEngine")):
            theta = Potentials(factor * unary, factor * tables)
            beliefs = inference.forward(graph, theta, edges=True, tape=True)
            assert engines_of(beliefs) == {engine}
            sides.append(beliefs)
        assert_close_beliefs(*sides, atol=1e-9, rtol=1e-10)
        for title, given in cotangents(sides[0], rng).items():
            gradients = (inference.backward(beliefs, *given) for beliefs in sides)
            assert_close_gradients(*gradients, atol=1e-9, err_msg=title)


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("method", [BP, partial(TRW, rho=0.5), TRW])
def test_batch_equals_its_examples_bit_for_bit(method, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = pack(
        [
            lattice(*shape, connectivity=connectivity, tied=tied)
            for shape in ((3, 4), (1, 4), (5, 2))
            for connectivity in (4, 8)
            for tied in (True, False)
        ]
    )
    theta = fields.normal(graph, n_states, rng)
    theta.unary[1, 0] = -np.inf
    inference = method(max_iter=3)
    whole = inference.forward(graph, theta, edges=True, tape=True)
    alone = [inference.forward(*one, edges=True, tape=True) for one in fields.split(graph, theta)]
    for field in ("mu", "edge_mu", "log_z"):
        assert (getattr(whole, field) == np.concatenate([getattr(one, field) for one in alone])).all()
    d_mu = rng.normal(size=whole.mu.shape)
    parts = np.split(d_mu, graph.node_ptr[1:-1])
    gradients = [inference.backward(one, part) for one, part in zip(alone, parts, strict=True)]
    for found, expected in zip(inference.backward(whole, d_mu), zip(*gradients, strict=True), strict=True):
        assert (found == np.concatenate(expected)).all()


@pytest.mark.parametrize("shape", [(2, 2), (5, 5), (6, 6), (5, 20), (40, 30)], ids=str)
def test_edge_weights_at_every_pixel_sum_to_at_least_one(shape):
    """Every pixel has an edge of each spanning tree. Equal weights are too small at corners."""
    graph = lattice(*shape, connectivity=8)
    rho = spanning_tree_weights(graph)
    assert_allclose(rho.sum(), graph.n_nodes - 1, rtol=1e-12)
    assert np.bincount(graph.edges.ravel(), np.repeat(rho, 2)).min() >= 1 - 1e-12
    equal = np.full(graph.n_edges, (graph.n_nodes - 1) / graph.n_edges)
    reached = np.bincount(graph.edges.ravel(), np.repeat(equal, 2)).min() >= 1 - 1e-12
    assert reached == (max(shape) <= 5)
