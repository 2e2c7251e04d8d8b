"""Where fits start, and what they see of the training set."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.inference import BP, TRW
from skcrf.losses import LOSSES
from skcrf.optimizers import LBFGS, SCHEDULES, Adam, BaseSchedule, Doubling
from skcrf.preprocessing import PixelWise
from skcrf.training.learning import STARTS
from skcrf.training.objective import Objective

# Larger than a batch of packed images, so that every image is a batch of its own.
SHAPE = (46, 46)


@pytest.fixture(scope="module")
def images():
    return make_binary_denoising(n_images=5, shape=SHAPE, noise=1.5, random_state=0)


@pytest.fixture
def seen(monkeypatch):
    """All weights at which an objective is evaluated: (loss, number of batches, weights)."""
    found, evaluate = [], Objective.__call__

    def recorded(self, w, batches=None):
        found.append((type(self.loss).__name__, len(self.batches), w.copy()))
        return evaluate(self, w, batches)

    monkeypatch.setattr(Objective, "__call__", recorded)
    return found


def quick(**parameters):
    return GridCRFClassifier(**{"inference": TRW(max_iter=3), "max_iter": 50, "tol": 1e-2, **parameters})


# Where they start


def test_starts_are_the_losses_and_two_more():
    assert set(STARTS) == {"independent", "zeros", *LOSSES}
    assert {loss.starts_from for loss in LOSSES.values()} <= set(STARTS)


def test_zeros(images, seen):
    X, Y = images
    quick(init="zeros").fit(X[:2], Y[:2])
    assert not seen[0][2].any()


def test_the_independent_model_is_the_default(images):
    X, Y = images
    expected = quick(init="independent").fit(X[:2], Y[:2])
    assert_array_equal(quick().fit(X[:2], Y[:2]).edge_coef_, expected.edge_coef_)


def test_another_loss_comes_first(images, seen):
    X, Y = images
    first = quick(loss="likelihood").fit(X[:2], Y[:2])
    seen.clear()
    quick(init="likelihood").fit(X[:2], Y[:2])
    losses = [loss for loss, _, _ in seen]
    change = losses.index("UnivariateLogistic")
    assert set(losses[:change]) == {"Likelihood"} and set(losses[change:]) == {"UnivariateLogistic"}
    assert_allclose(seen[change][2][-8:], first.edge_coef_.ravel(), rtol=1e-12)


def test_a_loss_says_where_it_starts(images, seen, monkeypatch):
    X, Y = images
    monkeypatch.setattr(LOSSES["univariate_logistic"], "starts_from", "clique_logistic")
    quick().fit(X[:1], Y[:1])
    assert seen[0][0] == "CliqueLogistic"


def test_a_fitted_estimator(images, seen):
    X, Y = images
    first = quick().fit(X[:2], Y[:2])
    seen.clear()
    second = quick(init=first).fit(X[:2], Y[:2])
    assert_array_equal(seen[0][2][-8:], first.edge_coef_.ravel())
    assert second.n_iter_ < first.n_iter_
    without = quick(init=first, fit_intercept=False).fit(X[:2], Y[:2])
    assert not without.intercept_.any()


def test_a_frozen_estimator_survives_a_search(images):
    X, Y = images
    first = quick().fit(X[:2], Y[:2])
    model = quick(init=FrozenEstimator(first), max_iter=5, tol=1.0)
    assert clone(model).init.coef_ is first.coef_
    search = GridSearchCV(model, {"alpha": [1e-3, 1e-2]}, cv=2, error_score="raise").fit(X[:4], Y[:4])
    assert search.best_score_ > 0.5


def test_warm_start_comes_before_init(images, seen):
    X, Y = images
    est = quick(warm_start=True, init="zeros").fit(X[:2], Y[:2])
    before = est.coef_.copy()
    seen.clear()
    est.fit(X[:2], Y[:2])
    assert_array_equal(seen[0][2][: before.size], before.ravel())


def test_estimators_that_do_not_fit(images):
    X, Y = images
    with pytest.raises(ValueError, match=r"init=GridCRFClassifier\(\) is not fitted.*FrozenEstimator"):
        quick(init=quick()).fit(X[:2], Y[:2])
    other = quick().fit(X[:2], [y + 1 for y in Y[:2]])
    with pytest.raises(ValueError, match=r"init=GridCRFClassifier has classes .* but the model has"):
        quick(init=other).fit(X[:2], Y[:2])
    other = quick(connectivity=8, inference=BP(max_iter=0)).fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match=r"init=GridCRFClassifier has weights of shapes .* needs"):
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
def test_estimators_of_another_kind(images, other):
    X, Y = (part[:2, :8, :8] for part in images)
    name = type(other).__name__
    with pytest.raises(ValueError, match=rf"init={name}\(\) is not fitted"):
        quick(init=other).fit(X, Y)
    flat = isinstance(other, LogisticRegression)
    fitted = clone(other).fit(X.reshape(-1, 1), Y.ravel()) if flat else clone(other).fit(X, Y)
    with pytest.raises(ValueError, match=rf"init must be a fitted .* but {name} has no .*best_estimator_"):
        quick(init=fitted).fit(X, Y)


@pytest.mark.parametrize("init", ["auto", "zeros", "independent", "likelihood", "an estimator"])
def test_the_first_pass_starts_from_init_too(images, seen, init):
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
    seen.clear()
    est = quick(optimizer="adam", init=likely if init == "an estimator" else init).partial_fit(X, Y)
    start = next(w for loss, _, w in seen if loss == "UnivariateLogistic")
    coef, _, edge_coef = est._weights().unravel(start)
    assert_allclose(coef, np.broadcast_to(expected[0], coef.shape), rtol=1e-6, atol=1e-6)
    assert_allclose(edge_coef, np.broadcast_to(expected[1], edge_coef.shape), rtol=1e-6, atol=1e-6)
    seen.clear()
    before = est._weights().ravel()
    est.partial_fit(X, Y)
    assert_array_equal(seen[0][2], before)  # only the first pass has a start


@pytest.mark.parametrize("init", ["independent", "likelihood"])
def test_an_interrupted_start_keeps_its_best_weights(images, init, monkeypatch, capsys):
    X, Y = (part[:2] for part in images)
    n_left, evaluate = [5], Objective._evaluate

    def interrupted(self, evaluation, *args):
        named = evaluation.edges == (init == "likelihood")
        n_left[0] -= named
        if named and n_left[0] < 0:
            raise KeyboardInterrupt
        return evaluate(self, evaluation, *args)

    monkeypatch.setattr(Objective, "_evaluate", interrupted)
    est = quick(init=init, verbose=1, tol=1e-8)
    with pytest.warns(ConvergenceWarning, match="interrupted: the best weights so far are kept"):
        est.fit(X, Y)
    told = capsys.readouterr().out
    assert "[GridCRFClassifier] start from the model without edges, iteration 1: objective" in told
    assert ("start from Likelihood, iteration 1" in told) == (init == "likelihood")
    assert est.coef_.any() and est.edge_coef_.any() == (init == "likelihood")
    assert est.loss_curve_ == [] and est.n_iter_ == 0 and not est.converged_
    assert est.score(X, Y) > 0.5


@pytest.mark.parametrize("optimizer, memory", [(LBFGS(memory=3), 3), (Adam(), LBFGS().memory)])
def test_the_start_takes_the_optimizer_if_it_can(images, optimizer, memory, monkeypatch):
    found, minimize = [], LBFGS.minimize

    def noted(self, *args, **options):
        found.append(self.memory)
        return minimize(self, *args, **options)

    monkeypatch.setattr(LBFGS, "minimize", noted)
    quick(optimizer=optimizer, max_iter=20, tol=1.0).fit(*(part[:2] for part in images))
    assert set(found) == {memory}


# What they see


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("n_examples", [1, 2, 31, 32, 33, 1000])
def test_every_schedule_ends_with_everything(name, n_examples):
    schedule = SCHEDULES[name]()
    assert isinstance(schedule, BaseSchedule)
    stages = schedule.stages(n_examples, 10)
    assert stages[0][1] == 10 and stages[-1][0] == n_examples
    assert all(n_iter >= 1 for _, n_iter in stages)
    assert [n for n, _ in stages] == sorted({n for n, _ in stages})


def test_doubling_is_that_of_the_paper():
    stages = Doubling().stages(572, 1000)
    assert stages == [(32, 1000), (64, 500), (128, 250), (256, 125), (512, 62), (572, 31)]


def test_doubling_sees_few_images_first(images, seen):
    X, Y = images
    at_once = quick(tol=1e-4).fit(X, Y)
    seen.clear()
    est = quick(schedule=Doubling(first=1), tol=1e-4, max_iter=400, random_state=0).fit(X, Y)
    sizes = [n for _, n, _ in seen]
    assert list(dict.fromkeys(sizes)) == [1, 2, 4, 5]
    assert sizes.count(5) < sizes.count(1)
    assert est.n_iter_ == len(est.loss_curve_)
    assert_allclose(est.edge_coef_, at_once.edge_coef_, atol=1e-2)


def test_doubling_draws_images_by_its_seed(images):
    X, Y = images
    fits = []
    for seed, n_jobs in ((0, 1), (0, 2), (1, 1)):
        est = quick(random_state=seed, n_jobs=n_jobs).set_params(schedule="doubling", schedule__first=1)
        fits.append(est.fit(X, Y).coef_)
    assert_array_equal(fits[0], fits[1])
    assert (fits[0] != fits[2]).any()


def test_doubling_of_mini_batches(images):
    X, Y = images
    est = quick(optimizer="adam", schedule=Doubling(first=2), max_iter=4, tol=1.0, random_state=0)
    with pytest.warns(match="Adam did not converge"):
        est.fit(X, Y)
    assert est.n_iter_ == 4 + 2 + 1


def test_bad_schedules(images):
    X, Y = images
    with pytest.raises(ValueError, match="'schedule' parameter"):
        quick(schedule="tripling").fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match="'first' parameter"):
        quick(schedule=Doubling(first=0)).fit(X[:2], Y[:2])
