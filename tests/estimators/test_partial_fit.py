"""partial_fit: mini-batches, changed parameters, errors."""

import pickle
import re

import numpy as np
import pytest
from messages import says
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from small_images import quick, ragged_images

from skcrf import GridCRFClassifier
from skcrf.inference import BP
from skcrf.optimizers import Adam, Subgradient
from skcrf.training import Evaluation


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


def test_many_passes_approach_the_fit(images):
    X, Y = images
    est = quick(optimizer=Adam(batch_size=2, learning_rate=0.05), random_state=0)
    for _ in range(60):
        est.partial_fit(X[:3], Y[:3], classes=[0, 1, 2])
        est.partial_fit(X[3:], Y[3:])
    assert est.n_iter_ == 120
    whole = quick(tol=1e-4, max_iter=200).fit(X, Y)
    assert est.score(X, Y) == pytest.approx(whole.score(X, Y), abs=0.05)
    with pytest.raises(ValueError, match=says(r"y\[0\]", r"classes \[0, 1, 2\]", "got 7")):
        est.partial_fit([X[0]], [np.full((6, 7), 7)])


def test_partial_fit_uses_the_current_parameters(images):
    X, Y = images
    est = quick(inference="mean_field", tol=1.0).fit(X, Y)
    est.set_params(optimizer="adam", inference="bp").partial_fit(X, Y)
    assert isinstance(est.inference_, BP)
    assert isinstance(est.optimizer_, Adam)
    with pytest.raises(
        ValueError, match=says(r"classes must be \[0, 1, 2\]", "earlier call", r"got \[0, 1\]")
    ):
        est.partial_fit(X, Y, classes=[0, 1])


def test_partial_fit_without_labels_changes_nothing(images):
    X, Y = images
    est = quick(optimizer="adam").partial_fit(X, Y)
    before = est.coef_
    est.partial_fit(X[:1], [np.ma.masked_all(Y[0].shape, int)])
    assert est.coef_ is before


def test_partial_fit_needs_a_mini_batch_optimizer(images):
    for optimizer in ("auto", "lbfgs"):
        est = quick(optimizer=optimizer)
        assert not hasattr(est, "partial_fit")
        with pytest.raises(AttributeError, match="partial_fit") as info:
            est.partial_fit(*images)
        assert re.search(says("optimizer", "'adam'", f"got '{optimizer}'"), str(info.value.__cause__))
    assert hasattr(quick(optimizer=Adam()), "partial_fit")


def test_mini_batches_mix_examples_sorted_by_class(monkeypatch):
    X, y = load_iris(return_X_y=True)
    batches, evaluate = [], Evaluation.__call__

    def recorded(self, batch):
        batches.append(batch)
        return evaluate(self, batch)

    monkeypatch.setattr(Evaluation, "__call__", recorded)
    GridCRFClassifier(optimizer=Adam(batch_size=10), random_state=0).partial_fit(X, y)
    assert max(batch.n_examples for batch in batches) == 10
    assert sum(batch.n_examples for batch in batches) == len(X)
    assert np.mean([len(np.unique(batch.y)) for batch in batches]) > 2.5


def test_average_weights_are_the_mean_of_all_steps(images):
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


def test_another_optimizer_starts_afresh_from_the_fitted_weights(images):
    est = GridCRFClassifier(optimizer=Subgradient(batch_size=2), random_state=0).partial_fit(*images)
    for optimizer in (Adam(batch_size=2), Subgradient(batch_size=2)):
        fresh = GridCRFClassifier(optimizer=optimizer, init=pickle.loads(pickle.dumps(est)), random_state=0)
        est.set_params(optimizer=optimizer).partial_fit(*images)
        assert_array_equal(est.coef_, fresh.partial_fit(*images).coef_)
