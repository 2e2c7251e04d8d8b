"""Predictions: marginals of sites and edges, also conditional on known labels."""

import numpy as np
import pytest
from sklearn.base import clone
from small_images import flat, quick, ragged_images

from skcrf.inference import BruteForce, Tree


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


def test_edge_marginals_agree_with_site_marginals(images):
    X, Y = images
    est = quick(inference=BruteForce()).fit([X[3], X[4]], [Y[3], Y[4]])
    trees = quick(inference=Tree()).fit([X[4]], [Y[4]])
    np.testing.assert_allclose(
        trees.predict_proba([X[4]])[0],
        clone(trees).set_params(inference="bp").fit([X[4]], [Y[4]]).predict_proba([X[4]])[0],
    )
    P = est.predict_edge_proba([X[3]])[0]
    node = est.predict_proba([X[3]])[0]
    np.testing.assert_allclose(P[:, :-1, 0].sum(axis=-1), node[:, :-1], atol=1e-12)
    np.testing.assert_allclose(P[:-1, :, 1].sum(axis=-2), node[1:], atol=1e-12)
    assert np.isnan(P[:, -1, 0]).all()
    assert np.isnan(P[-1, :, 1]).all()


def test_marginals_are_conditional_on_known_labels(images):
    X, Y = images
    est = quick(alpha=0.3, inference=BruteForce(), classes=[0, 1, 2]).fit(X[3:5], Y[3:5])
    given = np.ma.masked_array(Y[3], mask=True)
    given[1, 1] = Y[3][1, 1]
    free, clamped = est.predict_proba(X[3:4])[0], est.predict_proba(X[3:4], Y=[given])[0]
    assert clamped[1, 1, Y[3][1, 1]] == pytest.approx(1.0, abs=1e-12)
    pair = est.predict_edge_proba(X[3:4])[0][1, 0, 0][:, Y[3][1, 1]]  # (1, 0) and its right neighbour
    np.testing.assert_allclose(clamped[1, 0], pair / pair.sum(), atol=1e-12)
    assert np.abs(free - clamped).max() > 1e-3
    known = est.predict(X[3:5], Y=Y[3:5])
    assert all((a == b).all() for a, b in zip(known, Y[3:5], strict=True))


def test_log_probabilities_are_logarithms_of_probabilities(images):
    X, Y = images
    est = quick().fit(X, Y)
    np.testing.assert_allclose(np.exp(est.predict_log_proba(X)[2]), est.predict_proba(X)[2])


def test_parameters_set_after_a_fit_do_not_change_predictions(images):
    X, Y = images
    est = quick().fit(X, Y)
    before = est.predict_proba(X)
    est.set_params(connectivity=8, inference="mean_field", edge_features="contrast")
    np.testing.assert_array_equal(flat(est.predict_proba(X)), flat(before))


def test_predictions_do_not_depend_on_other_examples(images):
    X, Y = images
    est = quick().fit(X, Y)
    together = est.predict_proba(X)
    for i in range(len(X)):
        np.testing.assert_allclose(est.predict_proba([X[i]])[0], together[i], rtol=1e-12)
