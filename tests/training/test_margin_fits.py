"""Fits with max-margin losses and losses of single configurations, and their predictions."""

from copy import copy

import numpy as np
import pytest
from loss_definitions import able
from margin_problems import chains, images, quietly, svm
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skcrf import ChainCRFClassifier, GridCRFClassifier
from skcrf.graph import score
from skcrf.inference import BP, ICM, INFERENCE, TRWS, Gibbs
from skcrf.losses import LOSSES, Hinge, LatentHinge, Unified
from skcrf.optimizers import CCCP, LBFGS, Subgradient


@pytest.mark.parametrize("loss", [name for name, cls in LOSSES.items() if cls.graphs != "lattice"])
@pytest.mark.parametrize("name", INFERENCE)
def test_losses_learn_with_every_inference_that_supports_them(loss, name):
    """Also with MAP solvers, for which the likelihood is the saddle point approximation of K05."""
    X, Y = chains()
    est = ChainCRFClassifier(name, loss, optimizer=Subgradient(), max_iter=15, alpha=1e-3, init="zeros")
    if not able(loss, INFERENCE[name]):
        with pytest.raises(ValueError, match=r"inference must have .* asked for by loss, .* to one of"):
            est.fit(X, Y)
        return
    quietly(est, X, Y)
    assert est.score(X, Y) > 0.75
    assert min(est.train_error_curve_) == pytest.approx(1 - est.score(X, Y))
    for method in ("predict_proba", "predict_log_proba", "predict_edge_proba"):
        assert hasattr(est, method) == ("sum" in INFERENCE[name].tasks)


@pytest.mark.parametrize("gradient", ["backprop", "perturbation"])
@pytest.mark.parametrize("loss", ["univariate_logistic", "likelihood"])
def test_beliefs_from_samples_are_not_differentiated(loss, gradient):
    est = ChainCRFClassifier("gibbs", loss, gradient=gradient)
    with pytest.raises(
        ValueError, match=r"inference must have .*a derivative of (mu|log_z) for .*, got Gibbs"
    ):
        est.fit(*chains())


def test_probabilities_need_marginals():
    est = ChainCRFClassifier("icm", "pseudolikelihood").fit(*chains())
    with pytest.raises(AttributeError) as error:
        est.predict_proba(chains()[0])
    assert "got ICM(). Use one of ['bp', 'bruteforce'" in str(error.value.__cause__ or error.value)
    assert not hasattr(ChainCRFClassifier("icm"), "predict_proba")
    assert not hasattr(est.set_params(inference="bp"), "predict_proba")  # before it is fitted again
    assert_array_equal(est.predict(chains()[0]), est.set_params(decoding="map").predict(chains()[0]))
    with pytest.raises(ValueError, match=r"inference must sum for decoding='mpm', got ICM"):
        est.set_params(decoding="mpm").predict(chains()[0])


@pytest.mark.parametrize("inference", [ICM(max_sweeps=1), BP(max_iter=1, tol=1e-9)])
def test_convergence_warning_names_the_parameters_to_change(inference):
    est = GridCRFClassifier(inference, "pseudolikelihood").fit(*images())
    own = "max_sweeps." if isinstance(inference, ICM) else "max_iter or tol or damping, or set tol=0."
    with pytest.warns(ConvergenceWarning, match=f"did not converge on every example. Increase its {own}"):
        est.predict(images()[0])


def test_class_weights_are_costs():
    """Labels that are expensive to miss are predicted more often."""
    X, Y = chains()
    shares = [
        np.mean(quietly(svm(Subgradient(best="value"), class_weight={0: 1.0, 1: cost}), X, Y).predict(X))
        for cost in (0.1, 1.0, 10.0)
    ]
    assert shares[0] < shares[1] < shares[2]


def test_symmetric_grids_have_symmetric_tables_per_direction():
    est = GridCRFClassifier(BP(max_iter=3), edge_features="contrast", max_iter=5, tol=1e-2)
    apart = quietly(est, *images()).edge_coef_.copy()
    assert np.abs(apart - apart.transpose(0, 2, 1)).max() > 1e-3
    together = quietly(est.set_params(symmetric=True), *images()).edge_coef_
    assert_array_equal(together, together.transpose(0, 2, 1))
    assert np.abs(together[:2] - together[2:]).max() > 1e-3  # directions differ


def test_potentials_can_be_used_with_any_inference():
    """For scores, their bounds, standard errors, and marginals given some labels."""
    X, Y = images()
    est = GridCRFClassifier("graph_cut", "pseudolikelihood", symmetric=True).fit(X, Y)
    fields, labels = est.potentials(list(X)), est.predict(X)
    assert len(fields) == len(X)
    gibbs = Gibbs(n_samples=50)
    for (graph, theta), x in zip(fields, labels, strict=True):
        beliefs = est.inference_.forward(graph, theta)
        assert_allclose(beliefs.log_z, score(graph, theta, x.ravel()), rtol=1e-12)
        assert_array_equal(beliefs.bound, beliefs.log_z)
        assert TRWS().forward(graph, theta, tau=0.0).bound >= beliefs.log_z
        assert (gibbs.standard_errors(gibbs.forward(graph, theta)) < 0.2).all()
    given = np.ma.masked_array(Y[0], np.arange(72).reshape(8, 9) % 2)
    (graph, theta), *_ = est.set_params(inference="bp").fit(X, Y).potentials(X[:1], [given])
    assert_array_equal(BP().forward(graph, theta).mu.reshape(8, 9, 2), est.predict_proba(X[:1], [given])[0])


def test_contrastive_divergence_with_many_sweeps_is_close_to_the_likelihood():
    """In the mean over examples, which draw different samples."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(2000, 1))
    y = (rng.rand(2000) < 1 / (1 + np.exp(1.5 - X[:, 0]))).astype(int)
    steps = Subgradient(learning_rate=2.0, average=True, best="last", patience=10**6)
    loss = LOSSES["contrastive_divergence"](n_sweeps=5)
    est = quietly(ChainCRFClassifier(loss=loss, optimizer=steps, alpha=0.0, max_iter=200), X, y)
    right = ChainCRFClassifier(alpha=0.0).fit(X, y)
    assert_allclose(est.coef_[1] - est.coef_[0], right.coef_[1] - right.coef_[0], atol=0.3)
    assert_allclose(np.ptp(est.intercept_), np.ptp(right.intercept_), atol=0.3)
    X, Y = chains()[0], [np.zeros(6, dtype=int)] * 8
    whole = ChainCRFClassifier(loss="contrastive_divergence", classes=[0, 1], alpha=0.0, max_iter=2)
    twice = [quietly(copy(whole).set_params(n_jobs=n), X, Y).coef_ for n in (1, 2)]
    assert_array_equal(*twice)


def test_convergence_warning_suggests_an_optimizer_for_non_smooth_losses():
    with pytest.warns(
        ConvergenceWarning, match=r"LBFGS did not .*Use optimizer='auto', as the loss is not smooth"
    ):
        svm("lbfgs", max_iter=2).fit(*chains())


def test_invalid_fits_raise_an_error_before_the_start_is_fitted(monkeypatch):
    monkeypatch.setattr(LBFGS, "minimize", lambda *given, **options: pytest.fail("a start was fitted"))
    for optimizer, parameters, problem in (
        ("frank_wolfe", {"fit_intercept": True}, "fit_intercept False for FrankWolfe"),
        ("cccp", {"loss": "pseudolikelihood"}, "must be a difference"),
        (CCCP(inner="frank_wolfe"), {}, "inner must be an optimizer for convex"),
    ):
        with pytest.raises(ValueError, match=problem):
            svm(optimizer, **parameters).fit(*chains())
    X, Y = chains()
    hidden = [*Y[:3], np.ma.masked_array(Y[3], np.arange(6) < 2), *Y[4:]]
    with pytest.raises(ValueError, match=r"for Hinge, got 2 hidden of 6 labels in example 3"):
        svm("bundle").fit(X, hidden)
    for cost, problem in (
        (np.ones((3, 3)), r"cost must be .* of shape \(2, 2\), .* got shape \(3, 3\)"),
        ([[0, -1], [1, 0]], "cost must be at least 0"),
        (np.ones((2, 2)), "and 0 on the diagonal"),
        (np.ones(2), r"\(2, 2\), with one row per correct label .* got shape \(2,\)"),
        ([[0, 1e308], [1, 0]], r"cost must be at most 1e\+12, got an entry of 1e\+308"),
        (1e200, r"cost must be at most 1e\+12, got an entry of 1e\+200"),
        ([[0, "a"], [1, 0]], "cost must be a number or an array"),
    ):
        for loss in (Hinge(cost), LatentHinge(cost), Unified(0.3, 0.3, cost)):
            with pytest.raises(ValueError, match=problem):
                svm("subgradient", loss=loss, init="independent").fit(X, Y)
    long = [np.tile(x, (3, 1)) for x in X], [np.ma.concatenate([y] * 3) for y in hidden]
    mllr = svm("subgradient", loss=Unified.mllr(), inference="tree", init="independent")
    with pytest.raises(ValueError, match=r"eps_y=1.0 and eps_h=0.0 .* 12 labels of 3 states in example 3"):
        mllr.set_params(classes=[0, 1, 2]).fit(*long)
