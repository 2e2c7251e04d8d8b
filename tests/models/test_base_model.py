"""Models: parameters in one vector, projection, penalty, and gradients that transpose the potentials."""

import inspect
import pickle

import numpy as np
import pytest
from batching import batch_of
from derivatives import check_weight_gradient
from numpy.testing import assert_allclose, assert_array_equal

from skcrf import models
from skcrf.graph import Potentials, from_edges, lattice, mesh, pack, sum_by_example
from skcrf.models import BaseModel, DirectedModel, IndependentModel, PairwiseModel

N_CLASSES, N_FEATURES, N_EDGE_FEATURES, N_GROUPS = 3, 2, 2, 2
SIZES = (N_CLASSES, N_FEATURES, N_EDGE_FEATURES, N_GROUPS)
MODELS = {
    "pairwise": PairwiseModel(*SIZES),
    "symmetric": PairwiseModel(*SIZES, symmetric=True),
    "potts": PairwiseModel(*SIZES, symmetric="potts"),
    "without intercept": PairwiseModel(*SIZES, fit_intercept=False),
    "independent": IndependentModel(*SIZES),
    "directed": DirectedModel(*SIZES),
    "directed given labels": DirectedModel(*SIZES).given_labels(),
    "directed without intercept": DirectedModel(*SIZES, fit_intercept=False),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def draw(model, rng):
    """Draw a weight vector."""
    return rng.normal(size=len(model.pack(model.zeros())))


def draw_batch(model, rng, dtype=np.float64):
    """Draw a batch of three fields with weights of their own, in which half of the labels are hidden."""
    fields = [lattice(2, 3), lattice(1, 1), lattice(3, 2)]
    if isinstance(model, DirectedModel):  # parents before and after their children
        fields = [from_edges(4, [[3, 0], [2, 0], [3, 1]]), mesh(2, 2, ["left", "above"]), from_edges(1, [])]
    graph = pack(fields)
    y = rng.integers(N_CLASSES, size=graph.n_nodes)
    return batch_of(
        graph,
        rng.normal(size=(graph.n_nodes, N_FEATURES)).astype(dtype),
        rng.normal(size=(graph.n_tables, N_EDGE_FEATURES)),
        np.where(rng.random(graph.n_nodes) < 0.5, -1, y),
        rng.uniform(0.5, 2.0, size=graph.n_examples),
    )


def draw_like(theta, rng):
    return Potentials(*(rng.normal(size=part.shape) for part in theta))


def weighted_product(batch, structure, theta, d_theta):
    """Sum the products of potentials and their derivatives, examples weighted by their weights."""
    examples = structure.node_example, structure.examples_of["entry"]
    total = np.zeros(batch.n_examples)
    for part, d_part, example in zip(theta, d_theta, examples, strict=True):
        sums = (part * d_part).sum(axis=tuple(range(1, part.ndim)))
        total += sum_by_example(sums, example, structure)
    return batch.weight @ total


def test_every_model_is_tested():
    concrete = {
        model
        for model in vars(models).values()
        if inspect.isclass(model) and issubclass(model, BaseModel) and not inspect.isabstract(model)
    }
    assert {type(model) for model in MODELS.values()} == concrete


@every_model
def test_unpack_inverts_pack(model, seed):
    w = draw(model, np.random.default_rng(seed))
    params = model.unpack(w)
    assert {name: part.shape for name, part in params.items()} == dict(model.shapes)
    assert all(np.shares_memory(part, w) for part in params.values())
    assert_array_equal(model.pack(params), w)
    assert not np.shares_memory(model.pack(params), w)
    assert_array_equal(np.concatenate([params[name].ravel() for name in model.shapes]), w)


@every_model
def test_zeros_have_the_shapes_of_the_parameters(model):
    zeros = model.zeros()
    assert {name: part.shape for name, part in zeros.items()} == dict(model.shapes)
    assert not model.pack(zeros).any()


@every_model
def test_projection_is_an_orthogonal_projection(model, seed):
    rng = np.random.default_rng(seed)
    v, w = draw(model, rng), draw(model, rng)
    before = w.copy()
    projected = model.project_vector(w)
    assert_array_equal(w, before)
    assert_array_equal(model.pack(model.project(model.unpack(w))), projected)
    assert_allclose(model.project_vector(projected), projected, rtol=1e-12, atol=1e-14)
    assert_allclose(model.project_vector(v) @ w, v @ projected, rtol=1e-12)


def test_projection_sets_the_intercept_to_zero_without_one(seed):
    for title, model in MODELS.items():
        intercept = model.project(model.unpack(draw(model, np.random.default_rng(seed))))["intercept"]
        assert intercept.any() == ("without intercept" not in title), title


@every_model
def test_penalised_weights_are_all_but_free_intercepts(model, seed):
    w = draw(model, np.random.default_rng(seed))
    before, penalised = w.copy(), model.unpack(model.penalised(w))
    assert_array_equal(w, before)
    for name, part in model.unpack(w).items():
        assert model.is_penalised(name) == (name != "intercept" or not model.fit_intercept)
        assert_array_equal(penalised[name], part if model.is_penalised(name) else 0.0)


@every_model
def test_pickled_models_give_the_same_potentials(model, seed):
    rng = np.random.default_rng(seed)
    params, batch = model.unpack(draw(model, rng)), draw_batch(model, rng)
    again = pickle.loads(pickle.dumps(model))
    assert type(again) is type(model) and vars(again) == vars(model)
    found, expected = again.potentials(params, batch)[1], model.potentials(params, batch)[1]
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other)


@every_model
def test_potentials_are_on_the_structure_of_the_model(model, seed):
    rng = np.random.default_rng(seed)
    params, batch = model.unpack(draw(model, rng)), draw_batch(model, rng)
    structure, theta = model.potentials(params, batch)
    assert structure is model.structure(batch)
    assert structure.layout == model.layout
    assert structure.n_examples == batch.n_examples
    assert theta.unary.dtype == theta.tables.dtype == np.float64
    assert theta.unary.shape == (batch.n_sites, N_CLASSES)
    assert len(theta.tables) == structure.sizes["entry" if model.layout == "factor" else "table"]


@every_model
def test_independent_models_have_the_same_parameters_and_no_edges(model, seed):
    rng = np.random.default_rng(seed)
    params, batch, independent = model.unpack(draw(model, rng)), draw_batch(model, rng), model.independent()
    assert dict(independent.shapes) == dict(model.shapes)
    assert independent.is_linear and independent.layout == "pairwise"
    structure, theta = independent.potentials(params, batch)
    assert structure.n_edges == 0 and len(theta.tables) == 0
    assert_allclose(theta.unary, batch.X @ params["coef"].T + params["intercept"], rtol=1e-12)


@every_model
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pull_back_is_the_derivative_of_potentials(model, dtype, seed):
    rng = np.random.default_rng(seed)
    w, batch = draw(model, rng), draw_batch(model, rng, dtype)
    structure, theta = model.potentials(model.unpack(w), batch)
    d_theta = draw_like(theta, rng)

    def value(w):
        return weighted_product(batch, *model.potentials(model.unpack(w), batch), d_theta)

    assert structure.n_examples == 3
    given = Potentials(*(part.copy() for part in d_theta))  # may be overwritten
    gradient = model.pull_back(model.unpack(w), batch, theta, given)
    assert {name: part.shape for name, part in gradient.items()} == dict(model.shapes)
    rounding = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {}  # sums of float32
    check_weight_gradient(model.pack(gradient), value, w, **rounding)


@pytest.mark.parametrize("title", [title for title, model in MODELS.items() if model.is_linear])
def test_linear_models_are_linear(title, seed):
    rng = np.random.default_rng(seed)
    model = MODELS[title]
    v, w, batch = draw(model, rng), draw(model, rng), draw_batch(model, rng)
    thetas = [model.potentials(model.unpack(one), batch)[1] for one in (v, w, 2.0 * v - 0.5 * w)]
    for first, second, both in zip(*thetas, strict=True):
        assert_allclose(2.0 * first - 0.5 * second, both, rtol=1e-10, atol=1e-12)


def test_directed_models_are_not_linear(seed):
    rng = np.random.default_rng(seed)
    model = MODELS["directed"]
    assert not model.is_linear
    w, batch = draw(model, rng), draw_batch(model, rng)
    once, twice = (model.potentials(model.unpack(scale * w), batch)[1].tables for scale in (1.0, 2.0))
    assert np.abs(twice - 2.0 * once).max() > 1e-3
