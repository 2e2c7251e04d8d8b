"""Compatibility of losses, inferences, gradients, optimizers and decodings, and the choices of "auto"."""

import re
import warnings

import numpy as np
import pytest
from messages import says
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skcrf import GridCRFClassifier, GridDAGMClassifier
from skcrf.gradients import Backprop, Implicit
from skcrf.inference import BP, INFERENCE, TRW, Exact, GraphCut, MeanField
from skcrf.losses import EM, LOSSES, Unified
from skcrf.optimizers import OPTIMIZERS
from skcrf.training import (
    check_class_weight,
    check_inference,
    check_layout,
    choose_decoding,
    default_optimizer,
    is_smooth,
    missing_marginals,
)
from skcrf.training.compatibility import DECODING_TASKS, default_decoding


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


#: Optimizers that "auto" chooses; "lbfgs" for other losses.
EXPECTED_OPTIMIZERS = {
    "contrastive_divergence": "subgradient",
    "hinge": "bundle",
    "latent_hinge": "cccp",
    "marginal_hinge": "cccp",
    "maximum_marginal": "subgradient",
}


@pytest.mark.parametrize("name", LOSSES)
def test_auto_chooses_an_optimizer_that_suits_the_loss(name, images):
    """L-BFGS for smooth losses only; and the fit is better than its start."""
    loss = LOSSES[name]()
    chosen = default_optimizer(loss, TRW(), is_linear=True)
    assert (chosen == "lbfgs") == loss.is_smooth
    assert chosen == EXPECTED_OPTIMIZERS.get(name, "lbfgs")
    est = quietly(GridCRFClassifier(loss=name, max_iter=10, tol=1e-3), *images)
    assert type(est.optimizer_) is OPTIMIZERS[chosen]
    assert est.optimizer == "auto"
    assert est.score(*images) > 0.8
    assert np.abs(est.edge_coef_).max() > 1e-3


@pytest.mark.parametrize(
    "eps, optimizer", [((0.0, 1.0), "cccp"), ((1.0, 0.0), "cccp"), ((0.5, 0.5), "lbfgs")]
)
def test_optimizer_of_the_unified_loss_depends_on_its_temperatures(eps, optimizer):
    assert default_optimizer(Unified(*eps), Exact(), is_linear=True) == optimizer


@pytest.mark.parametrize("inference", [name for name, one in INFERENCE.items() if "sum" not in one.tasks])
def test_likelihoods_of_map_solvers_are_minimised_by_subgradients(inference, images):
    """The best score minus the score of the labels is smallest if all weights are zero."""
    est = quietly(GridCRFClassifier(inference, "likelihood", max_iter=10), *images)
    assert type(est.optimizer_) is OPTIMIZERS["subgradient"]
    assert len(est.train_error_curve_) == est.n_iter_
    without = quietly(GridCRFClassifier(inference, "pseudolikelihood", max_iter=10), *images)
    assert type(without.optimizer_) is OPTIMIZERS["lbfgs"]  # it calls no inference


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.graphs == "any"])
def test_directed_models_need_no_convex_objective(name, images):
    """Their potentials are not linear in the weights, so that their objectives need not be convex."""
    X, Y = images
    est = quietly(GridDAGMClassifier("bp", name, max_iter=10, tol=1e-3), X[:2, :3, :4], Y[:2, :3, :4])
    assert type(est.optimizer_) is OPTIMIZERS["lbfgs" if est.loss_.is_smooth else "subgradient"]
    assert np.isfinite(est.loss_curve_).all() and max(est.loss_curve_) < 20
    for optimizer in ("bundle", "cccp", "frank_wolfe"):
        if not est.loss_.is_smooth:
            with pytest.raises(ValueError, match=says("optimizer", "auto|another optimizer")):
                clone(est).set_params(optimizer=optimizer, alpha=0.1, fit_intercept=False).fit(X, Y)


def test_directed_likelihoods_are_smooth_with_any_inference(images):
    """Inference is not called if all labels are known."""
    fits = [GridDAGMClassifier(inference).fit(*images) for inference in ("bp", "max_product")]
    assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert type(fits[1].optimizer_) is OPTIMIZERS["lbfgs"]


@pytest.mark.parametrize("inference", ["graph_cut", "trw"])
def test_bundle_refuses_objectives_that_are_not_convex(inference, images):
    X, Y = images
    hidden = [np.ma.masked_array(y, np.arange(42).reshape(6, 7) % 3 == 0) for y in Y]
    est = GridCRFClassifier(inference, "latent_hinge", optimizer="bundle", max_iter=5)
    with pytest.raises(ValueError, match=says("convex", "LatentHinge", "labels are hidden", "auto")):
        est.fit(X, hidden)
    quietly(est, X, Y)
    for name, loss in LOSSES.items():
        if not loss.is_convex and not (loss.needs or loss.tasks):
            with pytest.raises(ValueError, match=says("convex", loss.__name__, "auto")):
                est.set_params(loss=name).fit(X, Y)


def test_map_solvers_make_objectives_non_smooth(images):
    """CCCP then keeps the weights of the lowest training error, and L-BFGS warns."""
    est = quietly(GridCRFClassifier("graph_cut", "likelihood", optimizer="cccp", max_iter=3), *images)
    assert len(est.train_error_curve_) == est.n_iter_
    with pytest.warns(
        ConvergenceWarning, match=says("LBFGS did not converge", "optimizer='auto'", "not smooth")
    ):
        GridCRFClassifier("graph_cut", "likelihood", optimizer="lbfgs", max_iter=2).fit(*images)


def test_searches_over_losses_need_no_optimizer(images):
    search = GridSearchCV(
        GridCRFClassifier(max_iter=5), {"loss": ["hinge", "marginal_hinge", "univariate_logistic"]}, cv=2
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also the warning of a failed fit
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(*images)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_nested_parameters_of_the_optimizer_that_auto_chooses():
    est = GridCRFClassifier()
    assert type(est.set_params(optimizer__memory=5).optimizer) is OPTIMIZERS["lbfgs"]
    assert est.optimizer.memory == 5
    est = GridCRFClassifier().set_params(loss="hinge", optimizer__memory=7)
    assert type(est.optimizer) is OPTIMIZERS["bundle"]
    assert est.optimizer.memory == 7
    est = GridCRFClassifier().set_params(optimizer__inner_iter=5, loss__eps_y=0.0, loss="unified")
    assert type(est.optimizer) is OPTIMIZERS["cccp"] and est.optimizer.inner_iter == 5


# Decodings


@pytest.mark.parametrize("name", LOSSES)
def test_auto_chooses_a_decoding_that_suits_the_loss(name):
    loss = LOSSES[name]()
    expected = {"hinge": "map", "latent_hinge": "map", "marginal_hinge": "marginal_map"}
    assert default_decoding(loss, Exact()) == expected.get(name, "mpm")
    for inference in INFERENCE.values():
        assert DECODING_TASKS[default_decoding(loss, inference())] in inference.tasks


@pytest.mark.parametrize("decoding", DECODING_TASKS)
@pytest.mark.parametrize("inference", INFERENCE)
def test_decodings_need_an_inference_with_their_task(decoding, inference):
    loss, inference = LOSSES["likelihood"](), INFERENCE[inference]()
    if DECODING_TASKS[decoding] in inference.tasks:
        assert choose_decoding(decoding, loss, inference) == decoding
    else:
        message = says(f"decoding='{decoding}'", type(inference).__name__, "'exact'", "decoding='auto'")
        with pytest.raises(ValueError, match=message):
            choose_decoding(decoding, loss, inference)


def test_inferences_without_marginals_are_named_with_alternatives():
    for name, inference in INFERENCE.items():
        message = missing_marginals(inference, name)
        if "sum" in inference.tasks:
            assert message is None
        else:
            assert re.search(says("marginals", f"'{name}'", "'trw'", "'exact'"), message)


# Inferences and class weights


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_refused_with_inferences_that_lack_a_task_or_a_derivative(name):
    loss, gradient = LOSSES[name](), Backprop()
    for inference in INFERENCE.values():
        method = inference()
        if loss.tasks <= method.tasks and loss.needs <= method.differentiates:
            check_inference([("loss", loss)], method, gradient)
        else:
            message = says(type(loss).__name__, "init", inference.__name__, "Backprop", "'exact'")
            with pytest.raises(ValueError, match=message):
                check_inference([("init", loss)], method, gradient)


@pytest.mark.parametrize("name", LOSSES)
def test_class_weights_are_refused_with_losses_that_have_no_weights_of_sites(name):
    loss = LOSSES[name]()
    if loss.site_weighted:
        check_class_weight([("loss", loss)], "balanced")
    else:
        message = says("class_weight='balanced'", type(loss).__name__, "init", "'univariate_logistic'")
        with pytest.raises(ValueError, match=message):
            check_class_weight([("init", loss)], "balanced")


@pytest.mark.parametrize("name", LOSSES)
def test_losses_with_map_solvers_are_smooth_only_if_they_do_not_infer(name):
    loss = LOSSES[name]()
    assert is_smooth(loss, Exact(), is_linear=True) == loss.is_smooth
    infers = bool(loss.needs or loss.tasks)
    assert is_smooth(loss, GraphCut(), is_linear=True) == (loss.is_smooth and not infers)
    assert is_smooth(loss, GraphCut(), is_linear=False) == loss.is_smooth


# The second inference of a loss


def test_second_inferences_are_checked_before_the_fit(images):
    X, Y = images
    est = GridCRFClassifier(loss=EM(clamped="gibbs"))
    with pytest.raises(
        ValueError, match=says("second inference", r"EM\(clamped='gibbs'\)", "Gibbs", "log_z")
    ):
        est.fit(X, Y)
    assert not hasattr(est, "coef_")
    with pytest.raises(ValueError, match=says("clamped", "EM", "MeanField", "tol=0")):
        check_inference([("loss", EM("mean_field"))], TRW(max_iter=200, tol=1e-6), Implicit())
    check_inference([("loss", EM())], TRW(max_iter=200, tol=1e-6), Implicit())
    with pytest.raises(ValueError, match=says("'pairwise'", "Tree", "'factor'")):
        GridDAGMClassifier("bp", EM("tree")).fit(X, Y)
    check_layout([("loss", EM("tree"))], BP(), "pairwise")


def test_second_inferences_that_maximise_make_losses_non_smooth():
    assert is_smooth(EM(), TRW(), is_linear=True)
    assert not is_smooth(EM("icm"), TRW(), is_linear=True)
    assert is_smooth(EM("icm"), TRW(), is_linear=False)
    assert default_optimizer(EM("icm"), TRW(), is_linear=True) == "subgradient"


def test_warnings_name_both_inferences_of_a_loss(images):
    X, Y = images
    hidden = np.ma.masked_array(Y, np.arange(Y.size).reshape(Y.shape) % 3 == 0)
    second = MeanField(max_iter=1, tol=1e-15)
    est = GridCRFClassifier(TRW(max_iter=2), EM(second), max_iter=50, tol=0.1)
    with pytest.warns(ConvergenceWarning, match=says("TRW or MeanField did not converge", "their max_iter")):
        est.fit(X, hidden)
    assert not est.converged_
