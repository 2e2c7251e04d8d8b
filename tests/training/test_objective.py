"""The objective: its gradient within tied weights, the penalty, remembered evaluations, convexity."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from batching import batches_of, lattice_model, objective_of, run_in_order
from derivatives import check_weight_gradient
from lazy_sequences import LazyList
from limits import set_limit
from messages import says
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.preprocessing import FunctionTransformer

from skcrf import GridCRFClassifier
from skcrf.data import (
    ChainTopology,
    DAGReader,
    Differences,
    GraphReader,
    GraphTopology,
    LatticeTopology,
    SequenceReader,
)
from skcrf.datasets import make_potts
from skcrf.inference import BP, TRW, Exact, GraphCut, MaxProduct
from skcrf.losses import LOSSES, Hinge, LatentHinge, Likelihood, Pseudolikelihood, Unified
from skcrf.models import TIES, DirectedModel, PairwiseModel
from skcrf.optimizers import LBFGS
from skcrf.parallel import workers
from skcrf.training import Evaluation

OPTIONS = {"max_iter": 60, "tol": 1e-3, "callback": lambda w, value, **known: False, "rng": None}


def potts_images(n_images=3, shape=(5, 6), n_classes=3, **options):
    return make_potts(n_images=n_images, shape=shape, n_classes=n_classes, random_state=0, **options)


def image_objective(n_images=2, shape=(5, 5), model_options=None, **options):
    batches = batches_of(*potts_images(n_images, shape))
    return objective_of(batches, lattice_model(batches, 3, **(model_options or {})), **options)


def zeros(objective):
    return objective.model.pack(objective.model.zeros())


def draw(objective, rng):
    return objective.model.project_vector(rng.normal(size=len(zeros(objective))))


# The gradient


@pytest.mark.parametrize("symmetric", TIES, ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gradient_agrees_with_differences_along_tied_weights(symmetric, fit_intercept, seed):
    """The gradient is the projection of the derivative onto the weights that the ties allow."""
    X, Y = potts_images()
    differences = Differences(FunctionTransformer()).fit_edges([], 2)
    topology = LatticeTopology(4, differences, 3)
    batches = batches_of(X, Y, topology=topology, sample_weight=[1.0, 0.5, 2.0])
    ties = {"symmetric": symmetric, "fit_intercept": fit_intercept, "used": np.array([True, False])}
    model = lattice_model(batches, 3, topology, **ties)
    objective = objective_of(batches, model, alpha=0.1)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        w, step = draw(objective, rng), draw(objective, rng)
        gradient = objective(w)[1]
        difference = (objective(w + 1e-5 * step)[0] - objective(w - 1e-5 * step)[0]) / 2e-5
        assert_allclose(gradient @ step, difference, rtol=1e-6)
        assert_allclose(model.project_vector(gradient), gradient, atol=1e-15)


def triangle_with_tail(rng, n_edge_features):
    edges = np.array([[0, 1], [1, 2], [2, 0], [3, 2]])
    features = [rng.normal(size=(4, n_edge_features))] if n_edge_features else []
    return rng.normal(size=(4, 3)), edges, *features


@pytest.mark.parametrize("n_edge_features", [0, 2])
def test_gradient_agrees_with_differences_in_the_free_symmetric_weights(n_edge_features, seed):
    rng = np.random.default_rng(seed)
    X = [triangle_with_tail(rng, n_edge_features), (rng.normal(size=(2, 3)), [])]
    Y = [np.array([0, 2, 2, 1]), np.array([1, 0])]
    topology = GraphTopology(n_edge_features)
    batches = batches_of(X, Y, GraphReader(), topology)
    model = PairwiseModel(3, 3, topology.n_edge_features, symmetric=True)
    objective = objective_of(batches, model, alpha=0.05)
    upper = np.triu_indices(3)

    def full(free):
        """Return weights whose tables are symmetric, from those that are free."""
        w = zeros(objective)
        params = model.unpack(w)
        n = params["coef"].size + 3
        w[:n] = free[:n]
        for table, half in zip(params["edge_coef"], free[n:].reshape(-1, 6), strict=True):
            table[upper] = half
            table.T[upper] = half
        return w

    free = rng.normal(size=9 + 3 + 6 * max(1, n_edge_features))
    gradient = model.unpack(objective(full(free))[1])
    assert_array_equal(gradient["edge_coef"], gradient["edge_coef"].transpose(0, 2, 1))
    # A weight above the diagonal stands in two places.
    of_tables = [np.where(upper[0] == upper[1], 1, 2) * table[upper] for table in gradient["edge_coef"]]
    found = np.concatenate([gradient["coef"].ravel(), gradient["intercept"], *of_tables])
    check_weight_gradient(found, lambda free: objective(full(free))[0], free)


@pytest.mark.parametrize("conditions", [False, True])
def test_gradient_of_directed_models_agrees_with_differences(conditions, seed):
    """With the likelihood, which conditions on labels, and with a loss of the marginals, which does not."""
    rng = np.random.default_rng(seed)
    X = [(rng.normal(size=(4, 3)), np.array([[0, 1], [0, 2], [1, 2], [3, 2]]))]
    Y = [np.ma.masked_array([0, 2, 1, 1], [False, conditions, False, False])]
    batches = batches_of(X, Y, DAGReader(), GraphTopology(0))
    loss = Likelihood() if conditions else LOSSES["univariate_logistic"]()
    objective = objective_of(batches, DirectedModel(3, 3), loss=loss, inference=BP(max_iter=5))
    w = draw(objective, rng)
    check_weight_gradient(objective(w)[1], lambda w: objective(w)[0], w)


def test_saturated_sites_have_a_gradient():
    X, y = np.array([[-600.0], [600.0]]), np.array([1, 0])
    batches = batches_of(X, y)
    objective = objective_of(batches, lattice_model(batches, 2), alpha=0.0)
    params = objective.model.zeros() | {"coef": np.array([[-0.5], [0.5]])}
    value, gradient = objective(objective.model.pack(params))
    assert_allclose(value, 600.0)
    assert_allclose(objective.model.unpack(gradient)["coef"].ravel(), [-600.0, 600.0])


# Value, penalty and parts


def test_value_is_the_mean_loss_per_labelled_site_plus_the_penalty(seed):
    X, Y = potts_images()
    hidden = [np.ma.masked_array(y, np.arange(30).reshape(5, 6) % 4 == i) for i, y in enumerate(Y)]
    weight = np.array([1.0, 2.5, 0.5])
    batches = batches_of(X, hidden, sample_weight=weight)
    objective = objective_of(batches, lattice_model(batches, 3), alpha=0.3)
    w = draw(objective, np.random.default_rng(seed))
    losses, n_labels = 0.0, 0.0
    for x, y, own in zip(X, hidden, weight, strict=True):
        (batch,) = batches_of([x], [y], classes=range(3))
        structure, theta = objective.model.potentials(objective.model.unpack(w), batch)
        value, _, _ = objective.loss(objective.inference, structure, theta, batch.y)
        losses += own * value.sum()
        n_labels += own * y.count()
    params = objective.model.unpack(w)
    penalty = 0.15 * ((params["coef"] ** 2).sum() + (params["edge_coef"] ** 2).sum())
    assert_allclose(objective(w)[0], losses / n_labels + penalty, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_ridge_is_alpha_for_penalised_weights(alpha):
    objective = image_objective(alpha=alpha)
    ridge = objective.model.unpack(objective.ridge)
    assert_array_equal(ridge["coef"], alpha)
    assert_array_equal(ridge["edge_coef"], alpha)
    assert_array_equal(ridge["intercept"], 0.0)


def test_shares_of_batches_add_up_to_the_mean_loss(seed):
    X, Y = potts_images(3, (50, 50), n_sweeps=5)
    batches = batches_of(X, Y)
    assert len(batches) == 3
    objective = objective_of(batches, lattice_model(batches, 3), alpha=0.0)
    w = draw(objective, np.random.default_rng(seed))
    shares = [objective.share(w, [batch]) for batch in batches]
    value, gradient = objective(w)
    assert_allclose(sum(share for share, _ in shares), value, rtol=1e-12)
    assert_allclose(sum(share for _, share in shares), gradient, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    "loss", [name for name, loss in LOSSES.items() if loss().difference is not None and name != "em"]
)
def test_split_objectives_differ_by_the_objective(loss, seed):
    rng = np.random.default_rng(seed)
    Y = [np.arange(n) % 3 for n in (4, 3, 1)]
    if LOSSES[loss]().takes_hidden_labels:
        Y = [np.ma.masked_array(y, np.arange(len(y)) % 4 == 3) for y in Y]
    batches = batches_of([rng.normal(size=(len(y), 2)) for y in Y], Y, SequenceReader(), ChainTopology())
    objective = objective_of(batches, PairwiseModel(3, 2), loss=LOSSES[loss](), inference=Exact(), alpha=0.1)
    convex, concave = objective.split()
    w = draw(objective, rng)
    value, gradient = objective(w)
    assert_allclose(convex(w)[0] - concave(w)[0], value, rtol=1e-10)
    assert_allclose(convex(w)[1] - concave(w)[1], gradient, rtol=1e-8, atol=1e-10)
    assert not concave.ridge.any() and convex.ridge.any()


def test_split_is_refused_without_a_difference():
    with pytest.raises(
        ValueError, match=says("difference", "for CCCP", "Pseudolikelihood", "'latent_hinge'", "optimizer")
    ):
        image_objective(loss=Pseudolikelihood()).split("CCCP")
    batches = batches_of([(np.zeros((2, 1)), [[0, 1]])], [[0, 1]], DAGReader(), GraphTopology(0))
    objective = objective_of(batches, DirectedModel(2, 1), loss=LatentHinge(), inference=BP(max_iter=3))
    with pytest.raises(ValueError, match=says("difference", "not linear", "optimizer='auto'")):
        objective.split()


def test_reason_why_an_objective_need_not_be_convex():
    assert image_objective(loss=Pseudolikelihood()).not_convex_because is None
    assert "UnivariateLogistic" in image_objective().not_convex_because
    X, Y = potts_images(2)
    hidden = batches_of(X, [np.ma.masked_array(y, y == 0) for y in Y])
    objective = objective_of(hidden, lattice_model(hidden, 3), loss=LatentHinge())
    assert "hidden" in objective.not_convex_because and "LatentHinge" in objective.not_convex_because
    Y = [np.ma.masked_array(y, y == 0) for y in Y]
    lazy = batches_of(LazyList(list(X)), LazyList(Y))
    assert lazy[0].is_lazy and "hidden" in objective.replace(batches=lazy).not_convex_because
    known = batches_of(LazyList(list(X)), LazyList([y.data for y in Y]))
    assert objective.replace(batches=known).not_convex_because is None
    batches = batches_of([(np.zeros((2, 1)), [[0, 1]])], [[0, 1]], DAGReader(), GraphTopology(0))
    objective = objective_of(batches, DirectedModel(2, 1), loss=Hinge(), inference=BP(max_iter=3))
    assert "linear" in objective.not_convex_because


@pytest.mark.parametrize(
    "loss, inference, smooth",
    [
        ("univariate_logistic", TRW(), True),
        ("hinge", TRW(), False),
        ("likelihood", GraphCut(), False),
        ("pseudolikelihood", GraphCut(), True),
        ("unified", TRW(), True),
    ],
)
def test_objectives_are_smooth_unless_loss_or_inference_maximises(loss, inference, smooth):
    objective = image_objective(loss=LOSSES[loss](), inference=inference)
    assert objective.is_smooth == smooth


def test_objectives_of_directed_models_are_smooth_with_map_solvers():
    batches = batches_of([(np.zeros((2, 1)), [[0, 1]])], [[0, 1]], DAGReader(), GraphTopology(0))
    options = {"loss": Likelihood(), "inference": MaxProduct()}
    assert objective_of(batches, DirectedModel(2, 1), **options).is_smooth
    assert not objective_of(batches, PairwiseModel(2, 1), **options).is_smooth


def test_unified_loss_at_temperature_zero_is_not_smooth():
    assert not image_objective(loss=Unified(0.0, 1.0)).is_smooth


def test_training_error_is_the_weighted_fraction_of_wrong_labels(seed):
    X, Y = potts_images(2)
    hidden = [np.ma.masked_array(y, np.arange(30).reshape(5, 6) % 3 == 0) for y in Y]
    batches = batches_of(X, hidden, sample_weight=[1.0, 3.0])

    def count_errors(model, w):
        def count(batch):
            wrong = (batch.y >= 0) & (batch.y != 0)
            return float(batch.weight @ np.bincount(batch.graph.node_example, wrong))

        return count

    objective = objective_of(batches, lattice_model(batches, 3), count_errors=count_errors)
    wrong = [((y != 0) & ~y.mask).filled(False).sum() for y in hidden]
    known = [y.count() for y in hidden]
    expected = (wrong[0] + 3 * wrong[1]) / (known[0] + 3 * known[1])
    assert_allclose(objective.training_error(zeros(objective)), expected, rtol=1e-12)


def test_replaced_attributes_make_another_objective(seed):
    batches = batches_of(*potts_images(3, (50, 50), n_sweeps=5))
    objective = objective_of(batches, lattice_model(batches, 3), alpha=0.1)
    w = draw(objective, np.random.default_rng(seed))
    value = objective(w)[0]
    other = objective.replace(loss=Pseudolikelihood())
    assert other(w)[0] != value and objective(w)[0] == value
    some = objective.replace(batches=batches[:1])
    assert_array_equal(some(w)[1], objective_of(batches[:1], objective.model, alpha=0.1)(w)[1])
    assert_array_equal(objective(w, batches[:1])[1], some(w)[1])
    assert objective.replace(alpha=0.0)(w)[0] < value


# Sparse features


def sparse_objective(n_features, rng, run=run_in_order):
    """Draw an objective of many batches, each with entries in few of the columns."""
    X = [
        sparse.random_array((60, n_features), density=5 / n_features, format="csr", rng=rng)
        for _ in range(400)
    ]
    Y = [rng.integers(4, size=60) for _ in X]
    batches = batches_of(X, Y, SequenceReader(), ChainTopology())
    assert len(batches) > 10
    return objective_of(batches, PairwiseModel(4, n_features), loss=Pseudolikelihood(), run=run)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_gradient_of_sparse_features_is_the_sum_of_dense_gradients_bit_by_bit(n_jobs, seed):
    rng = np.random.default_rng(seed)
    objective = sparse_objective(300, rng)
    w = rng.normal(size=len(zeros(objective)))
    gradient, model = 0, objective.model
    for batch in objective.batches:
        params = model.unpack(w)
        graph, theta = model.potentials(params, batch)
        _, d_theta, _ = objective.loss(objective.inference, graph, theta, batch.y, None)
        coef = (batch.X.T @ d_theta.unary).T
        dense = model.pull_back(params, batch, theta, d_theta) | {"coef": coef}
        gradient = gradient + model.pack(dense)
    expected = gradient / sum(batch.n_labels for batch in objective.batches)
    expected = model.project_vector(expected + objective.alpha * model.penalised(w))
    with workers(n_jobs) as run:
        assert_array_equal(objective.replace(run=run)(w)[1], expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_memory_of_sparse_gradients_does_not_grow_with_the_number_of_batches(n_jobs):
    rng = np.random.default_rng(0)
    objective = sparse_objective(30_000, rng)
    w = rng.normal(size=len(zeros(objective)))
    with workers(n_jobs) as run:
        objective = objective.replace(run=run)
        objective(w)  # compiles, and finds the columns of each batch
        tracemalloc.start()
        objective(2 * w)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 6 * w.nbytes  # the sum, its projection and the penalty


# Remembered evaluations


@pytest.fixture
def evaluated(monkeypatch):
    """Count the evaluations of a batch by the bits of the weights."""
    counts, evaluate = Counter(), Evaluation.__call__

    def counted(self, batch):
        counts[type(self.model).__name__, self.w.tobytes()] += 1
        return evaluate(self, batch)

    monkeypatch.setattr(Evaluation, "__call__", counted)
    return counts


@pytest.mark.parametrize("inference", [TRW(max_iter=3), TRW(max_iter=500, tol=1e-10)])
def test_fits_evaluate_no_weights_twice(evaluated, inference):
    X, Y = potts_images(4, (8, 8))  # one batch
    est = GridCRFClassifier(inference=inference, tol=1e-3).fit(X, Y)
    assert {model for model, _ in evaluated} == {"PairwiseModel", "IndependentModel"}
    assert set(evaluated.values()) == {1}
    assert est.converged_


def test_restarts_of_lbfgs_evaluate_no_weights_twice(evaluated):
    objective = image_objective(4, (8, 8))
    points = []

    def misled(w):  # from the fourth point on the gradient points the wrong way, until LBFGS restarts
        points.append(w.tobytes())
        value, gradient = objective(w)
        return value, -gradient if 4 <= len(points) < 40 else gradient

    LBFGS().minimize(misled, zeros(objective), **OPTIONS)
    assert len(points) > len(set(points))  # some weights are evaluated again
    assert set(evaluated.values()) == {1} and len(evaluated) == len(set(points))


def test_remembered_gradients_are_not_shared():
    objective = image_objective(inference=BP(max_iter=1, tol=1e-9))
    w = np.linspace(-1, 2, len(zeros(objective)))
    value, gradient = objective(w)
    assert not objective.converged
    expected = gradient.copy()
    gradient[:] = np.nan
    objective(zeros(objective))
    assert objective.converged
    again, gradient = objective(w)
    assert not objective.converged  # as it was at these weights
    assert again == value
    assert_array_equal(gradient, expected)


def test_interrupted_evaluations_are_not_remembered():
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    objective = image_objective(inference=TRW(max_iter=1), run=interrupted)
    with pytest.raises(KeyboardInterrupt):
        objective(zeros(objective))
    objective.run = run_in_order
    assert np.isfinite(objective(zeros(objective))[0])


def test_number_of_remembered_evaluations_is_bounded(evaluated):
    """A line search takes fewer than 64 evaluations."""
    objective = image_objective(inference=TRW(max_iter=1))
    points = [zeros(objective) + step for step in range(65)]
    for w in points:
        objective(w)
    assert sum(evaluated.values()) == 65
    objective(points[-1])
    objective(points[1])
    assert sum(evaluated.values()) == 65
    objective(points[0])
    assert sum(evaluated.values()) == 66


def test_at_least_two_evaluations_are_remembered_whatever_their_size(evaluated, monkeypatch):
    set_limit(monkeypatch, "bytes of remembered evaluations", 0)
    objective = image_objective(inference=TRW(max_iter=1))
    points = [zeros(objective) + step for step in range(5)]
    for w in [*points, points[4], points[3]]:
        objective(w)
    assert sum(evaluated.values()) == 5
    objective(points[2])
    assert sum(evaluated.values()) == 6
