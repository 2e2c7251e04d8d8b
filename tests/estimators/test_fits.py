"""Fits: every inference with every loss, number of jobs, optimizers, warm starts."""

import warnings

import methods
import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from small_images import flat, quick, ragged_images

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising, make_potts
from skcrf.inference import BP, TRW
from skcrf.losses import LOSSES
from skcrf.optimizers import OPTIMIZERS


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


@pytest.mark.parametrize("name", methods.LEARNING)
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if LOSSES[loss]().is_smooth])
def test_every_inference_learns_with_every_loss(name, loss):
    # Images of one row are chains, which all methods support.
    X, Y = make_potts(n_images=8, shape=(1, 6), n_classes=2, coupling=1.0, signal=0.5, random_state=1)
    est = quick(inference=name, loss=loss, tol=1e-3, max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, Y)
    assert est.loss_curve_[-1] <= est.loss_curve_[0]
    assert est.score(X, Y) > 0.6


@pytest.mark.filterwarnings("ignore:LBFGS did not converge")  # a dozen iterations are enough to see it
def test_truncated_learning_halves_the_error_of_independent_sites():
    X, Y = make_binary_denoising(n_images=52, shape=(64, 64), noise=1.25, random_state=0)
    train, test = slice(0, 32), slice(32, 52)
    independent = GridCRFClassifier(inference=BP(max_iter=0)).fit(X[train], Y[train])
    est = GridCRFClassifier(inference=TRW(max_iter=10), max_iter=12, n_jobs=2).fit(X[train], Y[train])
    error, baseline = 1 - est.score(X[test], Y[test]), 1 - independent.score(X[test], Y[test])
    assert baseline > 0.4
    assert error < 0.5 * baseline


def test_n_jobs_does_not_change_a_bit(images):
    X, _ = images
    big = make_potts(n_images=3, shape=(50, 50), random_state=0)
    for data in (images, big):
        one = quick(n_jobs=1, edge_features="contrast", max_iter=4, tol=0.1).fit(*data)
        two = quick(n_jobs=2, edge_features="contrast", max_iter=4, tol=0.1).fit(*data)
        np.testing.assert_array_equal(one.coef_, two.coef_)
        np.testing.assert_array_equal(one.edge_coef_, two.edge_coef_)
        np.testing.assert_array_equal(one.loss_curve_, two.loss_curve_)
        np.testing.assert_array_equal(flat(one.predict_proba(X)), flat(two.predict_proba(X)))


def test_joblib_backends_do_not_change_a_bit(images):
    X, Y = images
    with parallel_config(backend="loky", n_jobs=2):
        est = quick().fit(X, Y)
    np.testing.assert_array_equal(est.coef_, quick().fit(X, Y).coef_)


#: A loss for optimizers of any objective, and of convex objectives.
SUITABLE = {"any": "univariate_logistic", "convex": "pseudolikelihood"}


OPTIMIZERS_AND_LOSSES = [
    (name, SUITABLE[cls.objectives]) for name, cls in OPTIMIZERS.items() if cls.objectives in SUITABLE
]


@pytest.mark.parametrize("optimizer, loss", OPTIMIZERS_AND_LOSSES)
def test_optimizers_reach_the_same_minimum(images, optimizer, loss):
    X, Y = images
    est = GridCRFClassifier(
        TRW(max_iter=2), loss, optimizer=optimizer, alpha=0.1, max_iter=300, random_state=0
    )
    reference = clone(est).set_params(optimizer="lbfgs", tol=1e-8).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, Y)
        again = clone(est).fit(X, Y)
    assert min(est.loss_curve_) == pytest.approx(reference.loss_curve_[-1], rel=0.02)
    assert again.coef_.tolist() == est.coef_.tolist()  # same seed, same fit


def test_warm_start_needs_fewer_iterations(images):
    X, Y = images
    est = quick(warm_start=True, tol=1e-3, max_iter=100).fit(X, Y)
    n_iter, coef = est.n_iter_, est.coef_
    est.fit(X, Y)
    assert est.n_iter_ < n_iter
    np.testing.assert_allclose(est.coef_, coef, atol=1e-2)
    est.fit([x[..., :1] for x in X], Y)  # other shapes: a fresh start
    assert est.coef_.shape == (3, 1)


def test_warm_start_starts_afresh_if_the_model_changed(images):
    X, Y = images
    est = quick(warm_start=True).fit(X, Y)
    other = est.set_params(fit_intercept=False).fit(X, Y)
    assert not other.intercept_.any()
    renamed = [y + 10 for y in Y]
    fresh = quick(fit_intercept=False).fit(X, renamed)
    np.testing.assert_array_equal(est.fit(X, renamed).coef_, fresh.coef_)
