"""Schedules: numbers of examples and iterations of the stages of a fit."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcrf import GridCRFClassifier
from skcrf.datasets import make_binary_denoising
from skcrf.inference import TRW
from skcrf.models import IndependentModel
from skcrf.optimizers import SCHEDULES, BaseSchedule, Doubling
from skcrf.training import Objective

# Larger than a batch of small images, so that every image is a batch of its own.
SHAPE = (46, 46)


@pytest.fixture(scope="module")
def images():
    return make_binary_denoising(n_images=5, shape=SHAPE, noise=1.5, random_state=0)


class Evaluated(NamedTuple):
    """A weight vector at which an objective was evaluated."""

    loss: str
    has_edges: bool
    n_batches: int
    w: np.ndarray


@pytest.fixture
def evaluated(monkeypatch):
    """Record all weight vectors at which an objective is evaluated."""
    found, evaluate = [], Objective.__call__

    def recorded(self, w, batches=None):
        has_edges = not isinstance(self.model, IndependentModel)
        found.append(Evaluated(type(self.loss).__name__, has_edges, len(self.batches), w.copy()))
        return evaluate(self, w, batches)

    monkeypatch.setattr(Objective, "__call__", recorded)
    return found


def quick(**parameters):
    return GridCRFClassifier(**{"inference": TRW(max_iter=3), "max_iter": 50, "tol": 1e-2, **parameters})


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("n_examples", [1, 2, 31, 32, 33, 1000])
def test_last_stage_has_all_examples(name, n_examples):
    schedule = SCHEDULES[name]()
    assert isinstance(schedule, BaseSchedule)
    stages = schedule.stages(n_examples, 10)
    assert stages[0][1] == 10 and stages[-1][0] == n_examples
    assert all(n_iter >= 1 for _, n_iter in stages)
    assert [n for n, _ in stages] == sorted({n for n, _ in stages})


def test_doubling_has_the_stages_of_the_paper():
    stages = Doubling().stages(572, 1000)
    assert stages == [(32, 1000), (64, 500), (128, 250), (256, 125), (512, 62), (572, 31)]


def test_doubling_starts_with_few_images(images, evaluated):
    X, Y = images
    at_once = quick(tol=2e-5, max_iter=1000).fit(X, Y)
    evaluated.clear()
    est = quick(schedule=Doubling(first=1), tol=2e-5, max_iter=1000, random_state=0).fit(X, Y)
    sizes = [one.n_batches for one in evaluated if one.has_edges]
    assert list(dict.fromkeys(sizes)) == [5, 1, 2, 4]  # the start is that of all images
    assert list(dict.fromkeys(sizes[::-1])) == [5, 4, 2, 1]
    assert est.n_iter_ == len(est.loss_curve_)
    assert_allclose(est.edge_coef_, at_once.edge_coef_, atol=1e-2)


def test_random_state_chooses_the_images_of_early_stages(images):
    X, Y = images
    fits = []
    for seed, n_jobs in ((0, 1), (0, 2), (1, 1)):
        est = quick(random_state=seed, n_jobs=n_jobs, max_iter=200)
        est.set_params(schedule="doubling", schedule__first=1)
        fits.append(est.fit(X, Y).coef_)
    assert_array_equal(fits[0], fits[1])
    assert (fits[0] != fits[2]).any()


def test_doubling_works_with_mini_batches(images):
    X, Y = images
    est = quick(optimizer="adam", schedule=Doubling(first=2), max_iter=4, tol=1.0, random_state=0)
    with pytest.warns(match="Adam did not converge"):
        est.fit(X, Y)
    assert est.n_iter_ == 4 + 2 + 1


def test_unknown_schedules_are_refused(images):
    X, Y = images
    with pytest.raises(ValueError, match="'schedule' parameter"):
        quick(schedule="tripling").fit(X[:2], Y[:2])
    with pytest.raises(ValueError, match="'first' parameter"):
        quick(schedule=Doubling(first=0)).fit(X[:2], Y[:2])
