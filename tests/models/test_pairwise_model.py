"""Pairwise models: the map from weights to potentials, entry by entry, and its transpose."""

import tracemalloc

import fields
import numpy as np
import pytest
from batching import batch_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skcrf.graph import Potentials, from_edges
from skcrf.models import IndependentModel, PairwiseModel

N_CLASSES, N_FEATURES, N_EDGE_FEATURES = 3, 2, 2

graphs = pytest.mark.parametrize(
    "title", ["single", "chain", "lonely", "lattice_2x3", "lattices", "diagonal_lattices"]
)
precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def draw(graph, rng, dtype=np.float64):
    """Draw a model with a group of edges that the graph lacks, its parameters, and a batch."""
    n_groups = int(graph.table_group.max(initial=0)) + 2
    model = PairwiseModel(N_CLASSES, N_FEATURES, N_EDGE_FEATURES, n_groups)
    params = {name: rng.normal(size=shape) for name, shape in model.shapes.items()}
    X = rng.normal(size=(graph.n_nodes, N_FEATURES)).astype(dtype)
    return model, params, batch_of(graph, X, rng.normal(size=(graph.n_tables, N_EDGE_FEATURES)))


@graphs
@precisions
def test_potentials_are_those_of_the_definition(title, dtype, seed):
    graph = fields.GRAPHS[title]
    model, params, batch = draw(graph, np.random.default_rng(seed), dtype)
    structure, theta = model.potentials(params, batch)
    assert structure is graph
    assert theta.unary.dtype == theta.tables.dtype == np.float64
    assert theta.unary.shape == (graph.n_nodes, N_CLASSES)
    assert theta.tables.shape == (graph.n_tables, N_CLASSES, N_CLASSES)
    for i in range(graph.n_nodes):
        for a in range(N_CLASSES):
            expected = params["intercept"][a] + sum(
                params["coef"][a, f] * float(batch.X[i, f]) for f in range(N_FEATURES)
            )
            assert_allclose(theta.unary[i, a], expected, rtol=1e-12, atol=1e-12)
    for t, group in enumerate(graph.table_group):
        own = params["edge_coef"][group * N_EDGE_FEATURES : (group + 1) * N_EDGE_FEATURES]
        expected = sum(batch.V[t, f] * own[f] for f in range(N_EDGE_FEATURES))
        assert_allclose(theta.tables[t], expected, rtol=1e-12, atol=1e-12)


@graphs
@precisions
def test_pull_back_is_the_transpose_of_potentials(title, dtype, seed):
    """<A w, d> = <w, A^T d> for any w and d, as the map is linear; in float32 if the features are."""
    tol = 1e-10 if dtype == np.float64 else 1e-5
    rng = np.random.default_rng(seed)
    graph = fields.GRAPHS[title]
    model, params, batch = draw(graph, rng, dtype)
    _, theta = model.potentials(params, batch)
    d_theta = Potentials(*(rng.normal(size=part.shape) for part in theta))
    gradient = model.pull_back(params, batch, theta, d_theta)
    for name, part in gradient.items():
        assert part.shape == params[name].shape
        assert part.dtype == np.float64
    w, gradient = model.pack(params), model.pack(gradient)
    forth = sum((part * d_part).sum() for part, d_part in zip(theta, d_theta, strict=True))
    assert_allclose(w @ gradient, forth, rtol=tol, atol=tol)
    # Entry by entry too: an error that cancels in one product does not in many.
    for row, entry in zip(np.eye(w.size), gradient, strict=True):
        _, moved = model.potentials(model.unpack(row), batch)
        expected = sum((part * d_part).sum() for part, d_part in zip(moved, d_theta, strict=True))
        assert_allclose(entry, expected, rtol=tol, atol=tol)


@pytest.mark.parametrize("n_features", [2, 40])  # fewer and more than classes
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, bool])
def test_narrow_features_give_the_potentials_and_gradients_of_float64(dtype, n_features, seed):
    """They are multiplied in blocks, which must cover all rows once; the gradient is good to 1e-5."""
    rng = np.random.default_rng(seed)
    n_nodes = 2 * 2048 + 5
    graph = from_edges(n_nodes, np.arange(2 * (n_nodes // 2)).reshape(-1, 2))
    X, V = (
        np.where(rng.random((n, n_features)) < 0.5, 10 * rng.normal(size=(n, n_features)), 0).astype(
            np.float32 if dtype is np.uint8 else dtype
        )
        for n in (n_nodes, graph.n_tables)
    )
    X, V = (abs(part).astype(dtype) for part in (X, V))
    model = PairwiseModel(N_CLASSES, n_features, n_features)
    params = {name: rng.normal(size=shape) for name, shape in model.shapes.items()}
    narrow, wide = batch_of(graph, X, V), batch_of(graph, X.astype(np.float64), V.astype(np.float64))
    _, theta = model.potentials(params, narrow)
    _, expected = model.potentials(params, wide)
    for part, expected_part in zip(theta, expected, strict=True):
        assert_allclose(part, expected_part, rtol=1e-12, atol=1e-11)
    d_theta = Potentials(*(rng.normal(size=part.shape) for part in theta))
    one, other = (model.pack(model.pull_back(params, batch, theta, d_theta)) for batch in (narrow, wide))
    assert np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(other)
    assert_allclose(one, other, rtol=1e-5, atol=1e-5 * abs(other).max())


def test_narrow_features_are_never_copied_whole():
    rng = np.random.default_rng(0)
    graph = from_edges(40_000, [])
    X = rng.normal(size=(graph.n_nodes, 60)).astype(np.float32)
    model, batch = PairwiseModel(2, 60), batch_of(graph, X, np.zeros((0, 1)))
    params = model.zeros()
    theta = model.potentials(params, batch)[1]
    model.pull_back(params, batch, theta, theta)  # compiles
    tracemalloc.start()
    theta = model.potentials(params, batch)[1]
    model.pull_back(params, batch, theta, theta)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 0.3 * X.nbytes


def test_sparse_features_give_the_potentials_and_gradients_of_dense_ones(seed):
    rng = np.random.default_rng(seed)
    graph = fields.GRAPHS["lattices"]
    model, params, dense = draw(graph, rng)
    dense.X[rng.random(dense.X.shape) < 0.5] = 0.0
    compressed = batch_of(graph, sparse.csr_array(dense.X), dense.V)
    _, theta = model.potentials(params, dense)
    _, found = model.potentials(params, compressed)
    assert_allclose(found.unary, theta.unary, rtol=1e-12, atol=1e-12)
    assert_array_equal(found.tables, theta.tables)
    gradients = [model.pull_back(params, either, theta, theta) for either in (dense, compressed)]
    one, other = (model.pack(gradient) for gradient in gradients)
    assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    total = np.ones_like(one)
    model.add_gradient(total, gradients[1])
    assert_array_equal(total, 1 + other)


def test_order_of_parameters_in_the_weight_vector(seed):
    model = PairwiseModel(N_CLASSES, N_FEATURES, N_EDGE_FEATURES)
    w = np.random.default_rng(seed).normal(size=len(model.pack(model.zeros())))
    params = model.unpack(w)
    assert [(name, part.shape) for name, part in params.items()] == [
        ("coef", (3, 2)),
        ("intercept", (3,)),
        ("edge_coef", (2, 3, 3)),
    ]
    assert params["coef"][1, 0] == w[2]


@graphs
def test_independent_model_is_the_pairwise_model_without_edges(title, seed):
    rng = np.random.default_rng(seed)
    model, params, batch = draw(fields.GRAPHS[title], rng)
    independent = model.independent()
    assert type(independent) is IndependentModel
    structure, theta = independent.potentials(params, batch)
    assert structure.n_edges == 0 and structure.n_examples == batch.n_examples
    assert_array_equal(theta.unary, model.potentials(params, batch)[1].unary)
    gradient = independent.pull_back(params, batch, theta, Potentials(*(part.copy() for part in theta)))
    assert not gradient["edge_coef"].any()
    assert_allclose(gradient["coef"], theta.unary.T @ batch.X, rtol=1e-10, atol=1e-12)
