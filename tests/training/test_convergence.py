"""Convergence warnings and `converged_`."""

import re
import warnings

import numpy as np
import pytest
from messages import says
from sklearn.exceptions import ConvergenceWarning
from small_images import flat, quick, ragged_images

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.inference import BP, TRW
from skcrf.optimizers import Adam


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


def test_bad_scaling_is_not_taken_for_convergence():
    X, Y = make_binary_denoising(n_images=4, shape=(12, 14), noise=1.5, random_state=0)
    with pytest.warns(ConvergenceWarning, match="scale the features"):
        est = GridCRFClassifier().fit(1e8 * X, Y)
    assert not est.converged_
