"""Fits that the user interrupts keep the best weights."""

import numpy as np
import pytest
from margin_problems import chains, masked_chains, quietly, svm
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skcrf import ChainCRFClassifier
from skcrf.optimizers import CCCP, OPTIMIZERS, Subgradient


class Interrupter:
    """Callback that interrupts a fit after two iterations."""

    n_iterations = 0

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "iteration":
            self.n_iterations += 1
            if self.n_iterations == 2:
                raise KeyboardInterrupt

    def teardown(self, estimator, context):
        pass


def test_interrupt_keeps_the_start_if_it_is_best():
    start = quietly(svm("bundle", max_iter=2), *chains())
    est = svm(Subgradient(learning_rate=1e3), init=start, tol=0.0).set_callbacks(Interrupter())
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*chains())
    assert_array_equal(est.coef_, start.coef_)


@pytest.mark.parametrize("optimizer", [name for name, cls in OPTIMIZERS.items() if cls.objectives != "any"])
def test_interrupt_keeps_the_best_weights(optimizer):
    est = svm(optimizer, tol=0.0).set_callbacks(Interrupter())
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*chains())
    assert est.n_iter_ == 2 and est.coef_.any() and not est.converged_


@pytest.mark.parametrize("n_iter, n_calls", [(0, 4), (1, 10)])
@pytest.mark.parametrize("inner", [None, "subgradient"])
@pytest.mark.parametrize("loss, by_error", [("likelihood", False), ("latent_hinge", True)])
def test_interrupt_of_an_inner_iteration_keeps_the_best_weights(loss, by_error, inner, n_iter, n_calls):
    """By value, or by training error, which is then computed for the last weights."""
    calls = []

    class Interrupted(CCCP):
        """CCCP that is interrupted after some calls of the callback."""

        def minimize(self, objective, w, *, callback, **options):
            def recorded(w, value, error=None, **kind):
                stop = callback(w, value, error=error, **kind)
                calls.append((np.inf if error is None else error, value, -len(calls), bool(kind), w.copy()))
                if len(calls) == n_calls:
                    raise KeyboardInterrupt
                return stop

            return super().minimize(objective, w, callback=recorded, **options)

    optimizer = Interrupted(inner, inner_iter=5)
    est = ChainCRFClassifier("bruteforce", loss, optimizer=optimizer, tol=0.0, init="zeros")
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*masked_chains())
    assert est.n_iter_ == len(est.loss_curve_) == n_iter and not est.converged_
    assert len(calls) == n_calls + by_error and calls[-1][3] and (calls[-1][0] < np.inf) == by_error
    *_, w = min(calls)
    assert_array_equal(np.r_[est.coef_.ravel(), est.intercept_, est.edge_coef_.ravel()], w)


def test_interrupt_of_a_training_error_keeps_the_result_of_the_inner_optimizer():
    """Its training error is computed again."""

    class Interrupted(CCCP):
        """CCCP that is interrupted while the second training error is computed."""

        def minimize(self, objective, w, **options):
            calls, training_error = [], objective.training_error

            def interrupted(w):
                calls.append(w)
                if len(calls) == 2:
                    raise KeyboardInterrupt
                return training_error(w)

            objective.training_error = interrupted
            return super().minimize(objective, w, **options)

    est = ChainCRFClassifier("exact", "latent_hinge", init="zeros", alpha=0.05, tol=1e-3, max_iter=1)
    whole = quietly(est, *masked_chains()).coef_.copy()
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.set_params(optimizer=Interrupted()).fit(*masked_chains())
    assert est.n_iter_ == 0
    assert_array_equal(est.coef_, whole)
