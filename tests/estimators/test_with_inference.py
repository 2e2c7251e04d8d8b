"""with_inference: predictions of the same weights by another inference."""

import pickle
import warnings

import numpy as np
import pytest
from messages import says
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from skcrf import ChainCRFClassifier, GridCRFClassifier, GridDAGMClassifier
from skcrf.gradients import Backprop
from skcrf.inference import INFERENCE, TRW, Gibbs
from skcrf.losses import Unified
from skcrf.optimizers import Adam


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


@pytest.mark.parametrize("inference", [name for name in INFERENCE if name not in ("tree", "bruteforce")])
def test_every_inference_predicts_with_the_same_weights(inference, images):
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
    assert_array_equal(est.predict_proba(X), before)  # the estimator itself is unchanged
    assert_array_equal(pickle.loads(pickle.dumps(other)).coef_, est.coef_)


def test_fit_of_the_copy_uses_the_other_inference(images):
    est = quietly(GridCRFClassifier(TRW(max_iter=5), max_iter=5), *images)
    other = quietly(est.with_inference("mean_field"), *images)
    assert_array_equal(other.coef_, quietly(GridCRFClassifier("mean_field", max_iter=5), *images).coef_)
    assert np.abs(other.coef_ - est.coef_).max() > 1e-6


def test_parameters_of_the_copy_are_its_own(images):
    est = GridCRFClassifier(TRW(max_iter=5), Unified(), optimizer=Adam(batch_size=2), random_state=0)
    est.partial_fit(*images)
    twin, other = pickle.loads(pickle.dumps(est)), est.with_inference("bp")
    other.set_params(loss__eps_y=0.5, optimizer__batch_size=1)
    other.partial_fit(*images)
    assert est.loss.eps_y == 1.0 and est.optimizer.batch_size == 2
    assert_array_equal(est.partial_fit(*images).coef_, twin.partial_fit(*images).coef_)


def test_unsuitable_inferences_are_refused(images):
    X, Y = images
    est = GridCRFClassifier(TRW(max_iter=5), max_iter=5)
    with pytest.raises(NotFittedError):
        est.with_inference("bp")
    quietly(est, X, Y)
    for wrong in ("nonsense", Backprop(), 3):
        with pytest.raises(ValueError, match="'inference' parameter"):
            est.with_inference(wrong)
    with pytest.raises(ValueError, match=says("decoding='mpm'", "sum", "GraphCut", "'auto'")):
        est.set_params(decoding="mpm").with_inference("graph_cut")
    mesh = quietly(GridDAGMClassifier(max_iter=5), X, Y)
    with pytest.raises(ValueError, match="GraphCut"):
        mesh.with_inference("graph_cut")


def test_gibbs_samples_of_a_chain_have_the_exact_marginals():
    rng = np.random.default_rng(0)
    Y = [np.repeat(rng.integers(2, size=5), 2) for _ in range(8)]
    X = [y[:, None] + rng.normal(size=(10, 1)) for y in Y]
    est = ChainCRFClassifier(alpha=0.1).fit(X, Y)
    sampled = est.with_inference(Gibbs(n_samples=2000, random_state=0)).predict_proba(X)
    assert_allclose(np.stack(sampled), np.stack(est.predict_proba(X)), atol=0.08)
