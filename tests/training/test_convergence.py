"""Convergence warnings and `converged_`."""

import re
import warnings

import numpy as np
import pytest
from messages import says
from sklearn.exceptions import ConvergenceWarning
from small_images import flat, quick, ragged_images

from skcrf import ChainCRFClassifier, GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.inference import BP, TRW, Exact
from skcrf.losses import EM
from skcrf.optimizers import LBFGS, Adam


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


def test_fit_that_does_not_converge_warns_once(images):
    X, Y = images
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est = quick(max_iter=2, tol=1e-8).fit(X, Y)
    assert [w.category for w in caught] == [ConvergenceWarning]
    assert not est.converged_
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est = quick(inference=BP(max_iter=1, tol=1e-9)).fit(X, Y)
    assert [w.category for w in caught] == [ConvergenceWarning]
    message = str(caught[0].message)
    assert re.search(says("BP did not converge", "max_iter", "tol", "damping", "tol=0"), message)
    assert not est.converged_
    with pytest.warns(ConvergenceWarning, match="BP"):
        assert np.isfinite(flat(est.predict_proba(X))).all()


def test_converged_inference_reaches_the_objective_of_many_iterations(images):
    X, Y = images
    est = quick(inference=TRW(max_iter=500, tol=1e-9), tol=1e-4, max_iter=200).fit(X, Y)
    assert est.converged_
    truncated = quick(inference=TRW(max_iter=60), tol=1e-4, max_iter=200).fit(X, Y)
    np.testing.assert_allclose(est.loss_curve_[-1], truncated.loss_curve_[-1], rtol=1e-5)


def test_converged_means_that_inference_converged_on_all_examples():
    # BP cannot converge on the image, but on the single pixels, whichever comes last.
    rng = np.random.RandomState(0)
    X = [rng.normal(size=(8, 8, 1)), *rng.normal(size=(5, 1, 1, 1))]
    Y = [rng.randint(2, size=x.shape[:2]) for x in X]
    for seed in range(3):
        est = quick(
            inference=BP(max_iter=1, tol=1e-12), optimizer=Adam(batch_size=1), max_iter=3, random_state=seed
        )
        with pytest.warns(ConvergenceWarning):
            est.fit(X, Y)
        assert not est.converged_


class ConvergesForZeros(Exact):
    """Exact inference that reports to have converged only if all potentials of nodes are equal."""

    def forward(self, graph, theta, *args, **options):
        beliefs = super().forward(graph, theta, *args, **options)
        equal = np.ptp(np.where(np.isfinite(theta.unary), theta.unary, 0.0)) == 0
        return beliefs._replace(converged=np.full(graph.n_examples, equal))


class ZerosLast(LBFGS):
    """L-BFGS that evaluates the objective at zeros in the end."""

    def minimize(self, objective, w, **options):
        result = super().minimize(objective, w, **options)
        objective(np.zeros_like(w))
        return result


@pytest.mark.parametrize("loss", ["univariate_logistic", EM(ConvergesForZeros()), "pseudolikelihood"])
def test_inferences_without_a_tolerance_are_evaluated_at_the_fitted_weights(loss):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 1)) for _ in range(6)]
    Y = [np.ma.masked_array(np.arange(5) % 2, np.arange(5) == i % 3) for i in range(6)]
    inference = Exact() if isinstance(loss, EM) else ConvergesForZeros()
    est = ChainCRFClassifier(inference, loss, optimizer=ZerosLast(), init="zeros", tol=1e-2)
    if loss == "pseudolikelihood":
        assert est.fit(X, Y).converged_
        return
    with pytest.warns(ConvergenceWarning, match="ConvergesForZeros did not converge"):
        est.fit(X, Y)
    assert not est.converged_


def test_bad_scaling_is_not_taken_for_convergence():
    X, Y = make_binary_denoising(n_images=4, shape=(12, 14), noise=1.5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="scale the features"):
        est = GridCRFClassifier(optimizer=LBFGS(precondition=False)).fit(1e8 * X, Y)
    assert not est.converged_
    assert GridCRFClassifier().fit(1e8 * X, Y).converged_
