"""The map from weights to potentials, entry by entry, and its transpose."""

import numpy as np
import pytest
import zoo
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials
from skcrf.models.features import Batch, differences, potentials, pull_back
from skcrf.models.weights import Weights, zero_weights

N_CLASSES, N_FEATURES, N_EDGE_FEATURES = 3, 2, 2

graphs = pytest.mark.parametrize(
    "title", ["single", "chain", "lonely", "lattice_2x3", "lattices", "diagonal_lattices"]
)


def draw(graph, rng, dtype=np.float64):
    """Draw weights and a batch; the weights know of all groups, also of those that a graph lacks."""
    n_groups = int(graph.table_group.max(initial=0)) + 2
    weights = zero_weights(N_CLASSES, N_FEATURES, n_groups * N_EDGE_FEATURES)
    weights = weights.unravel(rng.normal(size=weights.ravel().size))
    batch = Batch(
        graph=graph,
        X=rng.normal(size=(graph.n_nodes, N_FEATURES)).astype(dtype),
        V=rng.normal(size=(graph.n_tables, N_EDGE_FEATURES)),
        y=np.full(graph.n_nodes, -1),
        weight=np.ones(graph.n_examples),
        site_weight=None,
    )
    return weights, batch


@graphs
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_potentials_entry_by_entry(title, dtype, seed):
    graph = zoo.GRAPHS[title]
    weights, batch = draw(graph, np.random.default_rng(seed), dtype)
    theta = potentials(weights, batch)
    assert theta.unary.dtype == theta.tables.dtype == np.float64
    assert theta.unary.shape == (graph.n_nodes, N_CLASSES)
    assert theta.tables.shape == (graph.n_tables, N_CLASSES, N_CLASSES)
    for i in range(graph.n_nodes):
        for a in range(N_CLASSES):
            expected = weights.intercept[a] + sum(
                weights.coef[a, f] * float(batch.X[i, f]) for f in range(N_FEATURES)
            )
            assert_allclose(theta.unary[i, a], expected, rtol=1e-12, atol=1e-12)
    for t, group in enumerate(graph.table_group):
        own = weights.edge_coef[group * N_EDGE_FEATURES : (group + 1) * N_EDGE_FEATURES]
        expected = sum(batch.V[t, f] * own[f] for f in range(N_EDGE_FEATURES))
        assert_allclose(theta.tables[t], expected, rtol=1e-12, atol=1e-12)


@graphs
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pull_back_is_the_transpose(title, dtype, seed):
    """<A w, d> = <w, A^T d> for any w and d, as the map is linear."""
    rng = np.random.default_rng(seed)
    graph = zoo.GRAPHS[title]
    weights, batch = draw(graph, rng, dtype)
    theta = potentials(weights, batch)
    d_theta = Potentials(*(rng.normal(size=part.shape) for part in theta))
    gradient = pull_back(d_theta, batch, weights)
    for part, expected in zip(gradient, weights, strict=True):
        assert part.shape == expected.shape
        assert part.dtype == np.float64
    forth = sum((part * d_part).sum() for part, d_part in zip(theta, d_theta, strict=True))
    assert_allclose(weights.ravel() @ gradient.ravel(), forth, rtol=1e-10, atol=1e-10)
    # entry by entry too: an error that cancels in one product does not in many
    unit = np.eye(weights.ravel().size)
    for row, entry in zip(unit, gradient.ravel(), strict=True):
        moved = potentials(weights.unravel(row), batch)
        expected = sum((part * d_part).sum() for part, d_part in zip(moved, d_theta, strict=True))
        assert_allclose(entry, expected, rtol=1e-10, atol=1e-10)


def test_many_rows_of_single_precision(seed):
    """Widening happens in pieces, which must cover all rows once."""
    rng = np.random.default_rng(seed)
    n_nodes = 2 * 2048 + 5
    X = rng.normal(size=(n_nodes, N_FEATURES)).astype(np.float32)
    graph = zoo.from_edges(n_nodes, [])
    weights = zero_weights(N_CLASSES, N_FEATURES, N_EDGE_FEATURES)
    weights = weights.unravel(rng.normal(size=weights.ravel().size))
    V = np.zeros((0, N_EDGE_FEATURES))
    batch = Batch(graph, X, V, np.full(n_nodes, -1), np.ones(1), None)
    wide = batch._replace(X=X.astype(np.float64))
    theta = potentials(weights, batch)
    assert_allclose(theta.unary, potentials(weights, wide).unary, rtol=1e-12, atol=1e-12)
    one, other = (pull_back(theta, either, weights) for either in (batch, wide))
    assert_allclose(one.ravel(), other.ravel(), rtol=1e-10, atol=1e-10)


def test_ravel_and_unravel(seed):
    weights = zero_weights(N_CLASSES, N_FEATURES, N_EDGE_FEATURES)
    w = np.random.default_rng(seed).normal(size=weights.ravel().size)
    assert not weights.ravel().any()
    cut = weights.unravel(w)
    assert isinstance(cut, Weights)
    assert [part.shape for part in cut] == [(3, 2), (3,), (2, 3, 3)]
    assert_array_equal(cut.ravel(), w)
    assert cut.coef[1, 0] == w[2]


def test_differences_across_edges():
    graph = zoo.SINGLES["star_tied"]  # edges (3, 0), (3, 1), (3, 2)
    X = np.array([[0.0, 1.0], [2.0, 1.0], [-4.0, 0.0], [1.0, 5.0]])
    assert_array_equal(differences(graph, X), [[1, 4], [1, 4], [5, 5]])
