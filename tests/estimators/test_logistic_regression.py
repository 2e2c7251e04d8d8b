"""Fields of one site are multinomial logistic regression."""

import re

import numpy as np
import pytest
from loss_definitions import OF_ONE_CONFIGURATION
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from skcrf import GridCRFClassifier
from skcrf.gradients import Backprop
from skcrf.graph import Potentials, isolated
from skcrf.inference import BP
from skcrf.losses import LOSSES


def cost_of_a_site(loss, probability):
    """Return the loss of one site whose label has a probability."""
    theta = Potentials(np.log([[probability, 1 - probability]]), np.zeros((0, 2, 2)))
    return LOSSES[loss]()(Backprop().wrap(BP()), isolated(1), theta, np.array([0]))[0][0]


#: Losses that are the negative log-probability of the label if a field has one site.
LOG_LOSSES = [loss for loss in LOSSES if np.isclose(cost_of_a_site(loss, 0.2), -np.log(0.2))]


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in OF_ONE_CONFIGURATION])
def test_loss_of_one_site_is_its_negative_log_probability(loss):
    """Unless the loss is quadratic, smoothed, or has a margin."""
    other = re.search("quadratic|smoothed", loss) or "cost" in LOSSES[loss]().get_params()
    assert (loss in LOG_LOSSES) == (not other)
    assert 0 <= cost_of_a_site(loss, 0.9) < cost_of_a_site(loss, 0.2)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5}])
@pytest.mark.parametrize("loss", LOG_LOSSES)
def test_one_site_fields_are_logistic_regression(fit_intercept, weighted, class_weight, loss, seed):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)[20:]
    y = y[20:]
    rng = np.random.RandomState(seed)
    sample_weight = rng.uniform(0.2, 2.0, size=len(y)) if weighted else np.ones(len(y))
    alpha = 0.01
    est = GridCRFClassifier(
        loss=loss,
        alpha=alpha,
        tol=1e-9,
        max_iter=1000,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
    ).fit(X, y, sample_weight=sample_weight)
    peer = LogisticRegression(
        C=1 / (alpha * sample_weight.sum()),
        tol=1e-9,
        max_iter=10_000,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
    ).fit(X, y, sample_weight=sample_weight)
    np.testing.assert_allclose(est.coef_, peer.coef_, atol=1e-5)
    np.testing.assert_allclose(est.predict_proba(X), peer.predict_proba(X), atol=1e-5)
    assert not est.edge_coef_.any()


def test_two_classes_are_binary_logistic_regression():
    # Both classes have coefficients with a penalty, each half of the difference.
    X, y = load_iris(return_X_y=True)
    X, y = X[:100], y[:100]
    est = GridCRFClassifier(alpha=0.02, tol=1e-10, max_iter=1000).fit(X, y)
    peer = LogisticRegression(C=2 / (0.02 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(est.coef_[1] - est.coef_[0], peer.coef_[0], atol=1e-5)


def test_images_of_one_pixel_are_the_rows_of_a_table():
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    params = {"max_iter": 60, "tol": 1e-2}
    table = GridCRFClassifier(**params).fit(X, y)
    pixels = GridCRFClassifier(**params).fit(list(X[:, None, None]), list(y[:, None, None]))
    np.testing.assert_allclose(pixels.coef_, table.coef_, rtol=1e-8)
