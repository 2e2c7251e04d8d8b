"""Starts of fits: zeros, the model without edges, another loss, a fitted estimator, the last fit."""

import warnings
from typing import NamedTuple

import numpy as np
import pytest
from messages import says
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import OptimizeResult
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_images import flat, ragged_images

from skcrf import GraphCRFClassifier, GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.inference import BP, TRW
from skcrf.losses import LOSSES
from skcrf.models import IndependentModel, PairwiseModel
from skcrf.optimizers import LBFGS, Adam, BaseOptimizer, Bundle
from skcrf.preprocessing import PixelWise
from skcrf.training import STARTS, Evaluation, Monitor, Objective

# Larger than a batch of small images, so that every image is a batch of its own.
SHAPE = (46, 46)


@pytest.fixture(scope="module")
def images():
    return make_binary_denoising(n_images=5, shape=SHAPE, noise=1.5, random_state=0)


class Evaluated(NamedTuple):
    """A weight vector at which an objective was evaluated."""

    loss: str
    has_edges: bool
    n_batches: int
    w: np.ndarray


@pytest.fixture
def evaluated(monkeypatch):
    """Record all weight vectors at which an objective is evaluated."""
    found, evaluate = [], Objective.__call__

    def recorded(self, w, batches=None):
        has_edges = not isinstance(self.model, IndependentModel)
        weights = np.array(self.change.to_weights(w))
        found.append(Evaluated(type(self.loss).__name__, has_edges, len(self.batches), weights))
        return evaluate(self, w, batches)

    monkeypatch.setattr(Objective, "__call__", recorded)
    return found


def quick(**parameters):
    return GridCRFClassifier(**{"inference": TRW(max_iter=3), "max_iter": 50, "tol": 1e-2, **parameters})


def test_starts_are_named_ones_and_the_losses():
    assert set(STARTS) == {"independent", "coupled", "random", "zeros", *LOSSES}
    assert {loss().starts_from for loss in LOSSES.values()} <= set(STARTS)


def test_init_zeros_starts_from_zeros(images, evaluated):
    X, Y = images
    quick(init="zeros").fit(X[:2], Y[:2])
    assert not evaluated[0].w.any()


def test_a_coupled_start_is_the_default(images):
    X, Y = images
    expected = quick(init="coupled").fit(X[:2], Y[:2])
    assert_array_equal(quick().fit(X[:2], Y[:2]).edge_coef_, expected.edge_coef_)


def test_coupled_start_scales_the_model_without_edges_and_adds_one_coupling(images, evaluated):
    X, Y = images
    model = PairwiseModel(2, 1, 1, 2)
    first_weights = {}
    for init in ("independent", "coupled"):
        evaluated.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            quick(init=init, max_iter=1).fit(X[:2], Y[:2])
        with_edges = [one for one in evaluated if one.has_edges]
        first_weights[init] = [model.unpack(one.w) for one in with_edges]
    independent = first_weights["independent"][0]
    *_, scaled = (w for w in first_weights["coupled"] if np.ptp(w["edge_coef"][:, 0, 1]) == 0)
    scale = scaled["coef"][0, 0] / independent["coef"][0, 0]
    assert 0 < scale != 1
    assert_allclose(scaled["coef"], scale * independent["coef"], rtol=1e-9)
    assert_allclose(scaled["intercept"], scale * independent["intercept"], rtol=1e-9, atol=1e-12)
    assert scaled["edge_coef"][0, 0, 0] > 0
    coupling = scaled["edge_coef"][0, 0, 0] * np.tile(2 * np.eye(2) - 1, (2, 1, 1))
    assert_allclose(scaled["edge_coef"], coupling, atol=1e-12)


def test_coupled_start_has_a_lower_objective_than_the_model_without_edges(images):
    X, Y = images
    values = []
    for init in ("independent", "coupled"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            values.append(quick(init=init, max_iter=1).fit(X[:2], Y[:2]).loss_curve_[0])
    assert values[1] < values[0]


@pytest.mark.parametrize("loss", ["hinge", "pseudolikelihood"])
def test_coupled_start_suits_every_loss(images, loss):
    X, Y = images
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est = quick(init="coupled", loss=loss, inference="trw_s", max_iter=3).fit(X[:2], Y[:2])
    assert np.isfinite(est.edge_coef_).all()


def test_random_start_depends_on_the_random_state_only(images):
    X, Y = images
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [quick(init="random", max_iter=1, random_state=s).fit(X[:1], Y[:1]).coef_ for s in (0, 0, 1)]
    assert_array_equal(fits[0], fits[1])
    assert (fits[0] != fits[2]).all()


def test_random_starts_differ_without_a_random_state(images):
    X, Y = images
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [quick(init="random", max_iter=1).fit(X[:1], Y[:1]).coef_ for _ in range(2)]
    assert (fits[0] != fits[1]).all()


def test_hidden_states_differ_after_a_random_start():
    """Two labels that are always equal are joined by a hidden node; only random starts use its states."""
    X = [(np.zeros((3, 1)), [[0, 2], [1, 2]], np.array([False, False, True]))] * 6
    Y = [np.ma.masked_array([label, label, 0], [False, False, True]) for label in (0, 1, 0, 1, 0, 1)]
    options = {"inference": "exact", "loss": "likelihood", "alpha": 1e-4, "random_state": 0}
    assert GraphCRFClassifier(**options, init="independent").fit(X, Y).n_iter_ == 0  # log(2) per label
    assert GraphCRFClassifier(**options, init="random").fit(X, Y).loss_curve_[-1] < 0.55 * np.log(2)


def test_independent_start_is_logistic_regression(evaluated):
    X, Y = ragged_images()
    params = {"inference": TRW(max_iter=3), "tol": 1e-3, "max_iter": 200}
    GridCRFClassifier(init="independent", **params).fit(X, Y)
    start = PairwiseModel(3, 2, 1, 2).unpack(next(one.w for one in evaluated if one.has_edges))
    table = GridCRFClassifier(**params).fit(np.concatenate([x.reshape(-1, 2) for x in X]), flat(Y))
    assert_allclose(start["coef"], table.coef_, rtol=1e-6)
    assert_allclose(start["intercept"], table.intercept_, rtol=1e-6, atol=1e-9)
    assert not start["edge_coef"].any()


def test_init_may_name_a_loss_to_minimise_first(images, evaluated):
    X, Y = images
    first = quick(loss="likelihood").fit(X[:2], Y[:2])
    evaluated.clear()
    quick(init="likelihood").fit(X[:2], Y[:2])
    with_edges = [one for one in evaluated if one.has_edges]
    losses = [one.loss for one in with_edges]
    change = losses.index("UnivariateLogistic")
    assert set(losses[:change]) == {"Likelihood"} and set(losses[change:]) == {"UnivariateLogistic"}
    assert_allclose(with_edges[change].w[-8:], first.edge_coef_.ravel(), rtol=1e-12)


def test_losses_may_have_a_start_of_their_own(images, evaluated, monkeypatch):
    X, Y = images
    monkeypatch.setattr(LOSSES["univariate_logistic"], "starts_from", "clique_logistic")
    quick().fit(X[:1], Y[:1])
    assert next(one.loss for one in evaluated if one.has_edges) == "CliqueLogistic"


def test_init_may_be_a_fitted_estimator(images, evaluated):
    X, Y = images
    first = quick().fit(X[:2], Y[:2])
    evaluated.clear()
    second = quick(init=first).fit(X[:2], Y[:2])
    assert_allclose(evaluated[0].w[-8:], first.edge_coef_.ravel(), rtol=1e-9)
    assert second.n_iter_ < first.n_iter_
    without = quick(init=first, fit_intercept=False).fit(X[:2], Y[:2])
    assert not without.intercept_.any()


def test_init_may_be_a_frozen_estimator_in_a_search(images):
    X, Y = images
    first = quick().fit(X[:2], Y[:2])
    model = quick(init=FrozenEstimator(first), max_iter=5, tol=1.0)
    assert clone(model).init.coef_ is first.coef_
    search = GridSearchCV(model, {"alpha": [1e-3, 1e-2]}, cv=2, error_score="raise").fit(X[:4], Y[:4])
    assert search.best_score_ > 0.5


def test_warm_start_has_precedence_over_init(images, evaluated):
    X, Y = images
    est = quick(warm_start=True, init="zeros").fit(X[:2], Y[:2])
    before = est.coef_.copy()
    evaluated.clear()
    est.fit(X[:2], Y[:2])
    assert_allclose(evaluated[0].w[: before.size], before.ravel(), rtol=1e-9)


def test_init_must_fit_the_model(images):
    X, Y = images
    with pytest.raises(
        ValueError, match=says("init", "fitted", "GridCRFClassifier", "Fit it first", "FrozenEstimator")
    ):
        quick(init=quick()).fit(X[:2], Y[:2])
    other = quick().fit(X[:2], [y + 1 for y in Y[:2]])
    with pytest.raises(ValueError, match=says("init", r"\[0, 1\]", "GridCRFClassifier", r"\[1, 2\]")):
        quick(init=other).fit(X[:2], Y[:2])
    other = quick(connectivity=8, inference=BP(max_iter=0)).fit(X[:2], Y[:2])
    message = says(
        "init", r"\(2, 2, 2\)", r"\(4, 2, 2\)", "GridCRFClassifier", "connectivity", "edge_features"
    )
    with pytest.raises(ValueError, match=message):
        quick(init=other).fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match="'init' parameter"):
        quick(init="perceptron").fit(X[:2], Y[:2])


@pytest.mark.parametrize(
    "other",
    [
        make_pipeline(PixelWise(StandardScaler()), quick(init="zeros", max_iter=5, tol=1.0)),
        GridSearchCV(quick(init="zeros", max_iter=5, tol=1.0), {"alpha": [1e-3]}, cv=2),
        LogisticRegression(),
    ],
    ids=lambda other: type(other).__name__,
)
def test_init_must_be_an_estimator_of_fields(images, other):
    X, Y = (part[:2, :8, :8] for part in images)
    name = type(other).__name__
    with pytest.raises(ValueError, match=says("init", "fitted", name)):
        quick(init=other).fit(X, Y)
    flat = isinstance(other, LogisticRegression)
    fitted = clone(other).fit(X.reshape(-1, 1), Y.ravel()) if flat else clone(other).fit(X, Y)
    with pytest.raises(
        ValueError,
        match=says(
            "init",
            "fitted",
            "GridCRFClassifier",
            name,
            "(coef|edge_coef|classes)_",
            "best_estimator_",
            "last step",
        ),
    ):
        quick(init=fitted).fit(X, Y)


@pytest.mark.parametrize("init", ["auto", "zeros", "independent", "likelihood", "an estimator"])
def test_partial_fit_starts_from_init(images, evaluated, init):
    X, Y = (part[:2] for part in images)
    likely = quick(loss="likelihood").fit(X, Y)
    expected = {
        "auto": (0, 0),
        "zeros": (0, 0),
        "independent": (quick(inference=BP(max_iter=0), init="zeros").fit(X, Y).coef_, 0),
        "likelihood": (likely.coef_, likely.edge_coef_),
        "an estimator": (likely.coef_, likely.edge_coef_),
    }[init]
    assert likely.edge_coef_.any()
    evaluated.clear()
    est = quick(optimizer="adam", init=likely if init == "an estimator" else init).partial_fit(X, Y)
    model = PairwiseModel(2, 1, 1, 2)
    start = model.unpack(
        next(one.w for one in evaluated if one.has_edges and one.loss == "UnivariateLogistic")
    )
    for name, value in zip(("coef", "edge_coef"), expected, strict=True):
        assert_allclose(start[name], np.broadcast_to(value, start[name].shape), rtol=1e-6, atol=1e-6)
    evaluated.clear()
    before = model.pack({"coef": est.coef_, "intercept": est.intercept_, "edge_coef": est.edge_coef_})
    est.partial_fit(X, Y)
    assert_array_equal(evaluated[0].w, before)  # only the first pass has a start


@pytest.mark.parametrize("init", ["independent", "likelihood"])
def test_interrupted_starts_keep_the_best_weights(images, init, monkeypatch, capsys):
    X, Y = (part[:2] for part in images)
    n_left, evaluate = [(5 if init == "independent" else 20) * len(X)], Evaluation.__call__

    def interrupted(self, batch):
        has_edges = not isinstance(self.model, IndependentModel)
        n_left[0] -= has_edges == (init == "likelihood")
        if n_left[0] < 0:
            raise KeyboardInterrupt
        return evaluate(self, batch)

    monkeypatch.setattr(Evaluation, "__call__", interrupted)
    est = quick(init=init, verbose=1, tol=1e-8)
    with pytest.warns(ConvergenceWarning, match=says("interrupted", "best weights so far are kept")):
        est.fit(X, Y)
    printed = capsys.readouterr().out
    assert "[GridCRFClassifier] start from the model without edges, iteration 1: objective" in printed
    assert ("start from Likelihood, iteration 1" in printed) == (init == "likelihood")
    assert est.coef_.any() and est.edge_coef_.any() == (init == "likelihood")
    assert est.loss_curve_ == [] and est.n_iter_ == 0 and not est.converged_
    assert est.score(X, Y) > 0.5


@pytest.mark.parametrize("optimizer, memory", [(LBFGS(memory=3), 3), (Adam(), LBFGS().memory)])
def test_starts_are_fitted_by_the_optimizer_if_it_minimises_any_function(
    images, optimizer, memory, monkeypatch
):
    found, minimize = [], LBFGS.minimize

    def recorded(self, *args, **options):
        found.append(self.memory)
        return minimize(self, *args, **options)

    monkeypatch.setattr(LBFGS, "minimize", recorded)
    quick(optimizer=optimizer, max_iter=20, tol=1.0).fit(*(part[:2] for part in images))
    assert set(found) == {memory}


def test_monitor_without_callbacks_records_iterations_and_never_stops():
    model = PairwiseModel(2, 1)
    monitor, w = Monitor(quick(), model), model.pack(model.zeros())
    assert [monitor(w, 2.0), monitor(w + 1.0, 1.0, 0.5)] == [False, False]
    assert (monitor.loss_curve, monitor.error_curve) == ([2.0, 1.0], [0.5])
    assert_array_equal(monitor.best_w, w + 1.0)


@pytest.mark.parametrize("optimizer", ["auto", LBFGS(), Adam()], ids=str)
def test_starts_of_non_smooth_losses_are_fitted_by_an_optimizer_for_them(images, optimizer, monkeypatch):
    """And the start of that loss, the model without edges, by one for smooth losses."""
    found = []
    for cls in (LBFGS, Bundle):
        monkeypatch.setattr(cls, "minimize", recorded(cls.minimize, found))
    X, Y = (part[:2, :8, :8] for part in images)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        quick(optimizer=optimizer, init="hinge", max_iter=5, tol=1.0).fit(X, Y)
    assert found[:2] == [
        ("LBFGS", "UnivariateLogistic"),
        ("Bundle", "Hinge"),
    ]


def recorded(minimize, found):
    def recording(self, objective, *args, **options):
        found.append((type(self).__name__, type(objective.loss).__name__))
        return minimize(self, objective, *args, **options)

    return recording


class RandomSteps(BaseOptimizer):
    """Steps along the gradient of random sizes, whose first ones are recorded, and so are checks."""

    def __init__(self, log=None):
        self.log = log

    def check(self, objective):
        self.log.append("check")

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        sizes = rng.uniform(size=2)
        self.log.append(sizes[0])
        for size in sizes:
            w = w - size * objective(w)[1]
            callback(w, objective(w)[0])
        return OptimizeResult(x=w, fun=objective(w)[0], nit=2, success=False, message="took two steps")


@pytest.mark.parametrize("random_state", [lambda: 3, lambda: np.random.RandomState(3)], ids=["int", "state"])
def test_starts_are_checked_and_draw_no_random_numbers_of_the_fit(images, random_state, capsys):
    X, Y = (part[:2, :8, :8] for part in images)
    logs = []
    for init in ("zeros", "independent"):
        log = _Shared()
        with pytest.warns(ConvergenceWarning, match="took two steps"):
            quick(optimizer=RandomSteps(log), init=init, random_state=random_state(), verbose=1).fit(X, Y)
        logs.append(log)
    first = np.random.RandomState(3).uniform()
    assert logs == [["check", first], ["check", "check", first, first]]
    printed = capsys.readouterr().out
    assert "start from the model without edges did not converge (took two steps)" in printed


class _Shared(list):
    """A list that is shared by copies of its owner."""

    def __deepcopy__(self, memo):
        return self
