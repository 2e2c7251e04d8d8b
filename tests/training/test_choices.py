"""What is chosen where the user does not say, and inferences that are exchanged after the fit."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

from skcrf import ChainCRFClassifier, GridCRFClassifier, GridDAGMClassifier
from skcrf.gradients import Backprop
from skcrf.inference import INFERENCE, TRW, Gibbs
from skcrf.losses import LOSSES, Unified
from skcrf.optimizers import OPTIMIZERS, Adam, Subgradient
from skcrf.training.learning import suited


@pytest.fixture(scope="module")
def images():
    """Halves of one label each, with noise."""
    rng = np.random.default_rng(0)
    Y = np.array([np.roll(np.repeat([0, 1], [3, 4]), i)[None].repeat(6, axis=0) for i in range(4)])
    return Y + 0.5 * rng.normal(size=Y.shape), Y


def quietly(est, X, Y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return est.fit(X, Y)


# ------------------------------------------------------------------------------------------------ optimizers


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_names_its_optimizer(name, images):
    """Losses with kinks have another one than L-BFGS, and the fit is better than where it starts."""
    loss = LOSSES[name]()
    optimizer = suited(loss, TRW())
    assert (optimizer == "lbfgs") == loss.is_smooth
    est = quietly(GridCRFClassifier(loss=name, max_iter=10, tol=1e-3), *images)
    assert type(est.optimizer_) is OPTIMIZERS[optimizer]
    assert est.optimizer == "auto"
    assert est.score(*images) > 0.8
    assert np.abs(est.edge_coef_).max() > 1e-3


@pytest.mark.parametrize(
    "eps, optimizer", [((0.0, 1.0), "cccp"), ((1.0, 0.0), "cccp"), ((0.5, 0.5), "lbfgs")]
)
def test_temperatures_choose(eps, optimizer):
    assert suited(Unified(*eps), TRW()) == optimizer


@pytest.mark.parametrize("inference", [name for name, one in INFERENCE.items() if "sum" not in one.tasks])
def test_map_solvers_ask_for_steps(inference, images):
    """The best score minus that of the labels is least where all weights are zero."""
    est = quietly(GridCRFClassifier(inference, "likelihood", max_iter=10), *images)
    assert type(est.optimizer_) is OPTIMIZERS["subgradient"]
    assert len(est.train_error_curve_) == est.n_iter_
    without = quietly(GridCRFClassifier(inference, "pseudolikelihood", max_iter=10), *images)
    assert type(without.optimizer_) is OPTIMIZERS["lbfgs"]  # it calls no inference


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.graphs == "any"])
def test_directed_models_have_optimizers_of_their_own(name, images):
    """Their potentials are not linear in the weights, so that no method of convex functions is for them."""
    X, Y = images
    est = quietly(GridDAGMClassifier("bp", name, max_iter=10, tol=1e-3), X[:2, :3, :4], Y[:2, :3, :4])
    assert type(est.optimizer_) is OPTIMIZERS["lbfgs" if est.loss_.is_smooth else "subgradient"]
    assert np.isfinite(est.loss_curve_).all() and max(est.loss_curve_) < 20
    for optimizer in ("bundle", "cccp", "frank_wolfe"):
        if not est.loss_.is_smooth:
            with pytest.raises(ValueError, match=r"optimizer.?'auto'|take one of .*or another optimizer"):
                clone(est).set_params(optimizer=optimizer, alpha=0.1, fit_intercept=False).fit(X, Y)


def test_directed_likelihoods_are_smooth_with_any_inference(images):
    """Where all labels are known it is not called."""
    fits = [GridDAGMClassifier(inference).fit(*images) for inference in ("bp", "max_product")]
    assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert type(fits[1].optimizer_) is OPTIMIZERS["lbfgs"]


@pytest.mark.parametrize("inference", ["graph_cut", "trw"])
def test_the_bundle_method_refuses_what_is_not_convex(inference, images):
    X, Y = images
    hidden = [np.ma.masked_array(y, np.arange(42).reshape(6, 7) % 3 == 0) for y in Y]
    est = GridCRFClassifier(inference, "latent_hinge", optimizer="bundle", max_iter=5)
    with pytest.raises(ValueError, match=r"LatentHinge is not convex if labels are hidden\. Use .*'auto'"):
        est.fit(X, hidden)
    quietly(est, X, Y)
    for name, loss in LOSSES.items():
        if not loss.is_convex and not loss.needs | loss.tasks:
            with pytest.raises(ValueError, match=rf"because {loss.__name__} is not convex\. Use optimizer"):
                est.set_params(loss=name).fit(X, Y)


def test_best_scores_have_kinks(images):
    """CCCP knows that of a MAP solver, and keeps weights by training error."""
    est = quietly(GridCRFClassifier("graph_cut", "likelihood", optimizer="cccp", max_iter=3), *images)
    assert len(est.train_error_curve_) == est.n_iter_
    with pytest.warns(ConvergenceWarning, match="loss of kinks"):
        GridCRFClassifier("graph_cut", "likelihood", optimizer="lbfgs", max_iter=2).fit(*images)


def test_passes_over_more_examples_know_means(images):
    """partial_fit keeps the mean of the weights where that is asked for, and goes on from the last ones."""
    fitted = {}
    for average in (False, True):
        est = GridCRFClassifier(optimizer=Subgradient(average=average, batch_size=2), random_state=0)
        fitted[average] = np.array([est.partial_fit(*images).coef_.copy() for _ in range(3)])
    assert_array_equal(fitted[True][0] != fitted[False][0], True)
    est = GridCRFClassifier(optimizer=Subgradient(batch_size=None), random_state=0)
    steps = np.array([est.partial_fit(*images).coef_.copy() for _ in range(3)])
    mean = GridCRFClassifier(optimizer=Subgradient(average=True), random_state=0)
    found = [mean.partial_fit(*images).coef_.copy() for _ in range(3)]
    assert_allclose(found[2], (steps[0] + 2 * steps[1] + 3 * steps[2]) / 6, rtol=1e-9)


def test_searches_over_losses_need_no_optimizer(images):
    search = GridSearchCV(
        GridCRFClassifier(max_iter=5), {"loss": ["hinge", "marginal_hinge", "univariate_logistic"]}, cv=2
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fit that fails warns
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(*images)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_parameters_of_what_is_chosen():
    est = GridCRFClassifier()
    assert type(est.set_params(optimizer__memory=5).optimizer) is OPTIMIZERS["lbfgs"]
    assert est.optimizer.memory == 5
    est = GridCRFClassifier().set_params(loss="hinge", optimizer__memory=7)
    assert type(est.optimizer) is OPTIMIZERS["bundle"]
    assert est.optimizer.memory == 7
    est = GridCRFClassifier().set_params(optimizer__inner_iter=5, loss__eps_y=0.0, loss="unified")
    assert type(est.optimizer) is OPTIMIZERS["cccp"] and est.optimizer.inner_iter == 5
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as info:
        _ = clone(GridCRFClassifier()).partial_fit
    assert "got 'auto'" in str(info.value.__cause__)
    assert hasattr(GridCRFClassifier(optimizer=Adam()), "partial_fit")


# ------------------------------------------------------------------------------------------------- inference


@pytest.mark.parametrize("inference", [name for name in INFERENCE if name not in ("tree", "bruteforce")])
def test_other_inferences_with_the_same_weights(inference, images):
    X, Y = images
    est = quietly(GridCRFClassifier(TRW(max_iter=5), symmetric="potts", max_iter=5), X, Y)
    before = est.predict_proba(X)
    other = est.with_inference(inference)
    assert other is not est
    assert type(other.inference_) is INFERENCE[inference]
    assert other.coef_ is est.coef_
    assert other.get_params(deep=False)["inference"] == inference
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert other.score(X, Y) > 0.8
        assert hasattr(other, "predict_proba") == ("sum" in INFERENCE[inference].tasks)
        if hasattr(other, "predict_proba"):
            assert np.abs(other.predict_proba(X) - before).max() > 1e-6
            (graph, theta), *_ = est.potentials(X[:1])
            mu = INFERENCE[inference]().forward(graph, theta).mu
            assert_allclose(other.predict_proba(X[:1])[0].reshape(mu.shape), mu, atol=1e-12)
    assert_array_equal(est.predict_proba(X), before)  # itself it stays as it was
    assert_array_equal(pickle.loads(pickle.dumps(other)).coef_, est.coef_)


def test_a_fit_after_the_exchange_is_by_the_other(images):
    est = quietly(GridCRFClassifier(TRW(max_iter=5), max_iter=5), *images)
    other = quietly(est.with_inference("mean_field"), *images)
    assert_array_equal(other.coef_, quietly(GridCRFClassifier("mean_field", max_iter=5), *images).coef_)
    assert np.abs(other.coef_ - est.coef_).max() > 1e-6


def test_what_is_set_later_is_set_in_one(images):
    est = GridCRFClassifier(TRW(max_iter=5), Unified(), optimizer=Adam(batch_size=2), random_state=0)
    est.partial_fit(*images)
    twin, other = pickle.loads(pickle.dumps(est)), est.with_inference("bp")
    other.set_params(loss__eps_y=0.5, optimizer__batch_size=1)
    other.partial_fit(*images)
    assert est.loss.eps_y == 1.0 and est.optimizer.batch_size == 2
    assert_array_equal(est.partial_fit(*images).coef_, twin.partial_fit(*images).coef_)


def test_passes_by_another_optimizer_start_afresh(images):
    est = GridCRFClassifier(optimizer=Subgradient(batch_size=2), random_state=0).partial_fit(*images)
    for optimizer in (Adam(batch_size=2), Subgradient(batch_size=2)):
        afresh = pickle.loads(pickle.dumps(est)).set_params(optimizer=optimizer)
        del afresh._pass
        est.set_params(optimizer=optimizer).partial_fit(*images)
        assert_array_equal(est.coef_, afresh.partial_fit(*images).coef_)


def test_what_cannot_be_exchanged(images):
    X, Y = images
    est = GridCRFClassifier(TRW(max_iter=5), max_iter=5)
    with pytest.raises(NotFittedError):
        est.with_inference("bp")
    quietly(est, X, Y)
    for wrong in ("nonsense", Backprop(), 3):
        with pytest.raises(ValueError, match="'inference' parameter"):
            est.with_inference(wrong)
    with pytest.raises(ValueError, match=r"decoding='mpm' needs an inference that can sum.*GraphCut"):
        est.set_params(decoding="mpm").with_inference("graph_cut")
    mesh = quietly(GridDAGMClassifier(max_iter=5), X, Y)
    with pytest.raises(ValueError, match="GraphCut"):
        mesh.with_inference("graph_cut")


def test_samples_of_a_chain():
    """Exact marginals and those of samples, with standard errors, from one fit."""
    rng = np.random.default_rng(0)
    Y = [np.repeat(rng.integers(2, size=5), 2) for _ in range(8)]
    X = [y[:, None] + rng.normal(size=(10, 1)) for y in Y]
    est = ChainCRFClassifier(alpha=0.1).fit(X, Y)
    sampled = est.with_inference(Gibbs(n_samples=2000, random_state=0)).predict_proba(X)
    assert_allclose(np.stack(sampled), np.stack(est.predict_proba(X)), atol=0.08)
