"""Callbacks, interrupts and printed progress."""

import numpy as np
import pytest
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small_images import quick, ragged_images

from skcrf.metrics import SCORERS
from skcrf.optimizers import OPTIMIZERS
from skcrf.preprocessing import PixelWise


@pytest.fixture(scope="module")
def images():
    """Draw ragged images with three classes and two features."""
    return ragged_images()


#: A loss for optimizers of any objective, and of convex objectives.
SUITABLE = {"any": "univariate_logistic", "convex": "pseudolikelihood"}


OPTIMIZERS_AND_LOSSES = [
    (name, SUITABLE[cls.objectives]) for name, cls in OPTIMIZERS.items() if cls.objectives in SUITABLE
]


class Recorder:
    """Records tasks, and stops or interrupts the fit after a number of iterations."""

    def __init__(self, stop_after=None, interrupt_after=None):
        self.stop_after = stop_after
        self.interrupt_after = interrupt_after
        self.tasks, self.scores, self.torn_down = [], [], 0

    def setup(self, estimator, context):
        self.max_subtasks = context.max_subtasks

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.tasks.append(context.task_name)
        if context.task_name == "iteration":
            self.scores.append(fitted_estimator.score(X, y))
            if len(self.scores) == self.interrupt_after:
                raise KeyboardInterrupt
        return len(self.scores) == self.stop_after

    def teardown(self, estimator, context):
        self.torn_down += 1


def test_every_iteration_is_a_task(images):
    X, Y = images
    recorder = Recorder()
    est = quick().set_callbacks(recorder).fit(X, Y)
    assert recorder.tasks == ["iteration"] * est.n_iter_ + ["fit"]
    assert recorder.max_subtasks == est.max_iter
    assert recorder.scores[-1] == est.score(X, Y)
    assert recorder.torn_down == 1


def test_a_callback_can_stop_the_fit(images):
    X, Y = images
    recorder = Recorder(stop_after=2)
    est = quick(tol=1e-8).set_callbacks(recorder).fit(X, Y)  # without a warning
    assert est.n_iter_ == 2
    assert not est.converged_


@pytest.mark.parametrize("optimizer, loss", OPTIMIZERS_AND_LOSSES)
def test_an_interrupted_fit_keeps_the_best_weights(images, optimizer, loss):
    X, Y = images
    recorder = Recorder(interrupt_after=3)
    est = quick(tol=1e-8, optimizer=optimizer, loss=loss, random_state=0).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(X, Y)
    assert est.n_iter_ == 3
    assert recorder.torn_down == 1
    assert est.score(X, Y) == recorder.scores[int(np.argmin(est.train_error_curve_ or est.loss_curve_))]


def test_callbacks_of_scikit_learn_see_every_iteration(images, capsys):
    X, Y = images
    monitor = ScoringMonitor(scoring=SCORERS["mean_iou"])
    pipe = make_pipeline(PixelWise(StandardScaler()), quick().set_callbacks(monitor))
    pipe.set_callbacks(ProgressBar()).fit(X, Y)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(rows) == pipe[-1].n_iter_
    assert "GridCRFClassifier" in capsys.readouterr().out


def test_verbose_prints_a_line_per_iteration(images, capsys):
    X, Y = images
    est = quick(verbose=1).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    starts = [line for line in lines if "] start from " in line]
    assert "] start from the model without edges, iteration 1: " in starts[0]
    assert any("] start from scale and coupling, iteration " in line for line in starts)
    assert lines[: len(starts)] == starts and len(starts) > 0
    assert len(lines) == len(starts) + est.n_iter_
    assert lines[len(starts)].startswith("[GridCRFClassifier] iteration 1: objective ")
