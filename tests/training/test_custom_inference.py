"""A user's inference without derivatives: fitted by perturbation, refused by back-propagation."""

import numpy as np
import pytest
from messages import says
from numpy.testing import assert_allclose
from scipy.special import softmax

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.gradients import Backprop, Perturbation
from skcrf.inference import BaseInference, Beliefs, MeanField
from skcrf.losses import UnivariateLogistic
from skcrf.training import check_inference


class PlainMeanField(BaseInference):
    """Mean field by damped parallel updates in plain NumPy."""

    differentiates = frozenset()

    def __init__(self, max_iter=500, tol=1e-6):
        self.max_iter = max_iter
        self.tol = tol

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        first, second = graph.edges.T
        tables = theta.tables[graph.edge_table]
        mu = softmax(theta.unary, axis=1)
        n_iter, change = np.zeros(graph.n_examples, dtype=int), np.full(graph.n_examples, np.inf)
        while (change > self.tol).any() and n_iter.max(initial=0) < self.max_iter:
            field = theta.unary.copy()
            np.add.at(field, first, np.einsum("eab,eb->ea", tables, mu[second]))
            np.add.at(field, second, np.einsum("eab,ea->eb", tables, mu[first]))
            active = change > self.tol
            step = 0.5 * (softmax(field, axis=1) - mu) * active[graph.node_example, None]
            mu, n_iter = mu + step, n_iter + active
            change = np.zeros(graph.n_examples)
            np.maximum.at(change, graph.node_example, np.abs(step).max(axis=1))
        edge_mu = mu[first][:, :, None] * mu[second][:, None, :] if edges else None
        converged = (change <= self.tol) | (self.tol == 0)
        return Beliefs(mu, edge_mu, np.zeros(graph.n_examples), n_iter, converged, state=None)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        raise AssertionError("must not be called")


class Sampler(BaseInference):
    """Marginals from samples, without derivatives."""

    def __init__(self, random_state=0):
        self.random_state = random_state

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        raise AssertionError("must not be called")


@pytest.fixture(scope="module")
def images():
    return make_binary_denoising(n_images=4, shape=(8, 8), noise=5.0, random_state=0)


def test_perturbation_fits_an_inference_without_derivatives(images):
    est = GridCRFClassifier(PlainMeanField(), gradient="perturbation", alpha=0.1).fit(*images)
    expected = GridCRFClassifier(MeanField(max_iter=500, tol=1e-6), alpha=0.1).fit(*images)
    assert est.converged_
    assert np.abs(est.edge_coef_).max() > 1e-2
    assert_allclose(est.coef_, expected.coef_, atol=1e-3)
    assert_allclose(est.edge_coef_, expected.edge_coef_, atol=1e-3)
    assert_allclose(est.predict_proba(images[0]), expected.predict_proba(images[0]), atol=1e-3)


def test_backprop_refuses_inferences_without_derivatives(images):
    message = says(
        "UnivariateLogistic", "derivative of mu", "PlainMeanField", "Backprop", "gradient", "'perturbation'"
    )
    est = GridCRFClassifier(PlainMeanField(), gradient="backprop")
    with pytest.raises(ValueError, match=message):
        est.fit(*images)
    assert not hasattr(est, "coef_")
    with pytest.raises(ValueError, match=message):
        check_inference([("loss", UnivariateLogistic())], PlainMeanField(), Backprop())
    check_inference([("loss", UnivariateLogistic())], PlainMeanField(), Perturbation())


def test_losses_without_inference_accept_any_inference_and_gradient(images):
    fits = [
        GridCRFClassifier(inference, "pseudolikelihood", tol=1e-3).fit(*images)
        for inference in (PlainMeanField(), MeanField())
    ]
    assert_allclose(fits[0].coef_, fits[1].coef_, rtol=0)
    assert fits[0].predict_proba(images[0]).shape == (4, 8, 8, 2)


def test_claims_follow_from_the_methods_and_parameters_of_an_inference():
    assert Sampler.differentiates == frozenset()
    assert Sampler().is_random and not PlainMeanField().is_random
    assert Perturbation().differentiable(Sampler()) == frozenset()
    with pytest.raises(ValueError, match=says("must have a derivative", "Sampler", "'trw'")):
        Sampler().backward(None)
