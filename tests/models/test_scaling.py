"""Variables in which curvatures are even: linear maps, their transposes, ties, and the condition reached."""

import fields
import numpy as np
import pytest
from batching import batch_of
from numpy.testing import assert_allclose
from scipy import sparse

from skcrf.gradients import Backprop
from skcrf.graph import lattice
from skcrf.inference import TRW
from skcrf.losses import UnivariateLogistic
from skcrf.models import BaseModel, ChangeOfVariables, Combinations, DirectedModel, PairwiseModel


def draw(rng, *, n_features=3, graph=None, cls=PairwiseModel, to=np.asarray, **options):
    """Draw a model, and a batch of features of very different scales that are correlated."""
    graph = fields.GRAPHS["lattices"] if graph is None else graph
    n_groups = int(graph.table_group.max(initial=0)) + 1
    mixing = rng.normal(size=(n_features, n_features)) + np.eye(n_features)
    X = rng.normal(size=(graph.n_nodes, n_features)) @ mixing * 10.0 ** (np.arange(n_features) % 3 - 1)
    V = np.column_stack([np.ones(graph.n_tables), rng.uniform(size=graph.n_tables)])
    return cls(3, n_features, 2, n_groups, **options), batch_of(graph, to(X), V)


def change_for(model, *batches, alpha=1e-3):
    """Return the change of variables for some batches."""
    total = model.moments(model.zeros(), batches[0])
    for batch in batches[1:]:
        found = model.moments(model.zeros(), batch)
        total = {name: total[name].plus(found[name]) for name in total}
    return model.change_of_variables(total, alpha)


CASES = {
    "dense": {},
    "without intercept": {"fit_intercept": False},
    "unused features": {"used": np.array([True, False, True])},
    "symmetric": {"symmetric": True},
    "potts": {"symmetric": "potts"},
    "sparse": {"to": sparse.csr_array},
    "single precision": {"to": lambda X: X.astype(np.float32)},
    "many features": {"n_features": 600, "to": np.tanh},
    "directed": {"cls": DirectedModel, "graph": fields.GRAPHS["chain"]},
}


@pytest.mark.parametrize("case", CASES)
def test_maps_are_inverse_and_transposed(case, seed):
    rng = np.random.default_rng(seed)
    model, batch = draw(rng, **CASES[case])
    change = change_for(model, batch)
    v, gradient = rng.normal(size=(2, model.pack(model.zeros()).size))
    w = change.to_weights(v)
    assert_allclose(change.to_variables(w), v, rtol=1e-8, atol=1e-8)
    assert_allclose(w @ gradient, v @ change.pull_back(gradient), rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_weights_that_the_model_allows_stay_allowed(case, seed):
    rng = np.random.default_rng(seed)
    model, batch = draw(rng, **CASES[case])
    change = change_for(model, batch)
    v = model.project_vector(rng.normal(size=model.pack(model.zeros()).size))
    for allowed in (change.to_weights(v), change.to_variables(v), change.pull_back(v)):
        assert_allclose(model.project_vector(allowed), allowed, rtol=1e-12, atol=1e-12)


def test_curvature_of_independent_sites_becomes_even(seed):
    rng = np.random.default_rng(seed)
    model, batch = draw(rng, graph=lattice(40, 40))
    model, loss, y = model.independent(), UnivariateLogistic(), rng.integers(0, 3, 1600)
    inference = Backprop().wrap(TRW(max_iter=0))
    change = change_for(model, batch)

    def gradient(v, to_weights, pull_back):
        structure, theta = model.potentials(model.unpack(to_weights(v)), batch)
        _, d_theta, _ = loss(inference, structure, theta, y, None)
        return pull_back(model.pack(model.pull_back(model.zeros(), batch, theta, d_theta))) / len(y)

    def condition(change):
        n, step = model.pack(model.zeros()).size, 1e-4
        maps = change.to_weights, change.pull_back
        hessian = [(gradient(e, *maps) - gradient(-e, *maps)) / (2 * step) for e in step * np.eye(n)]
        values = np.linalg.eigvalsh(np.array(hessian))
        values = values[values > 1e-9 * values.max()]  # adding the same to all classes changes nothing
        return values.max() / values.min()

    assert condition(change) < 2.0 < 100.0 < condition(ChangeOfVariables())


def test_moments_are_sums_weighted_by_the_variances_of_labels(seed):
    rng = np.random.default_rng(seed)
    model, batch = draw(rng)
    params = model.zeros() | {"coef": rng.normal(size=(3, 3)) / np.abs(batch.X).max(axis=0)}
    found = model.moments(params, batch)
    unary = batch.X @ params["coef"].T
    p = np.exp(unary) / np.exp(unary).sum(axis=1, keepdims=True)
    v = (p * (1 - p)).mean(axis=1) + 0.01
    X = np.column_stack([batch.X, np.ones(len(batch.X))])
    assert_allclose(found["site"].sums, X.sum(axis=0), rtol=1e-10)
    assert_allclose(found["site"].squares, v @ X**2, rtol=1e-10)
    assert_allclose(found["site"].products, (X.T * v) @ X, rtol=1e-10)
    first, second = batch.graph.edges.T
    pairs = p[first, :, None] * p[second, None, :]
    v = (pairs * (1 - pairs)).mean(axis=(1, 2)) + 0.03 / 9
    assert_allclose(found["edge"].products, v.mean() * batch.V.T @ batch.V, rtol=1e-10)
    twice = found["site"].plus(found["site"])
    assert twice.n_rows == 2 * len(X)
    assert_allclose(twice.products, 2 * found["site"].products, rtol=1e-15)


def test_features_that_are_zero_or_equal_have_finite_scales(seed):
    rng = np.random.default_rng(seed)

    def spoil(X):
        X[:, 1] = 0.0
        X[:, 2] = X[:, 0]
        return X

    for to in (spoil, lambda X: sparse.csr_array(spoil(X))):
        model, batch = draw(rng, to=to)
        change = change_for(model, batch, alpha=0.0)
        w = change.to_weights(rng.normal(size=model.pack(model.zeros()).size))
        assert np.isfinite(w).all()


def test_features_without_finite_squares_are_not_scaled():
    model, batch = draw(np.random.default_rng(0), to=lambda X: 1e160 * X)
    with np.errstate(over="ignore", invalid="ignore"):
        change = change_for(model, batch)
    v = np.ones(model.pack(model.zeros()).size)
    assert_allclose(model.unpack(change.to_weights(v))["coef"], 1.0)


def test_models_change_nothing_by_default():
    class Plain(BaseModel):
        shapes = {"coef": (2,)}
        structure = potentials = pull_back = None

    change = Plain().change_of_variables(Plain().moments({}, None), 1.0)
    w = np.array([1.0, 2.0])
    assert all(np.array_equal(f(w), w) for f in (change.to_weights, change.to_variables, change.pull_back))
    assert Plain().coupling({}) is None


def test_coupling_prefers_equal_neighbours(seed):
    rng = np.random.default_rng(seed)
    model, batch = draw(rng)
    params = model.coupling(model.moments(model.zeros(), batch))
    _, theta = model.potentials(params, batch)
    assert not theta.unary.any()
    assert_allclose(theta.tables.mean(axis=0), np.eye(3) - 1 / 3, atol=1e-12)


def test_combinations_find_the_variables_of_weights(seed):
    rng = np.random.default_rng(seed)
    change = Combinations(rng.normal(size=(2, 7)))
    v, gradient = rng.normal(size=2), rng.normal(size=7)
    assert_allclose(change.to_variables(change.to_weights(v)), v, rtol=1e-10)
    assert_allclose(change.to_weights(v) @ gradient, v @ change.pull_back(gradient), rtol=1e-10)
