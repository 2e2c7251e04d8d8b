"""Subgradient method."""

from numbers import Integral, Real

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf.optimizers._best_so_far import BestSoFar
from skcrf.optimizers._mini_batch import StepOptimizer


class Subgradient(StepOptimizer):
    """Subgradient method with fixed or decreasing steps, which keeps the best weights: K05 section 7.2.

    For non-smooth losses and for approximate gradients. Steps of a fixed size end in a limit cycle, which
    `loss_curve_` and `train_error_curve_` show; the best weights of all iterations are kept, by default those
    with the lowest training error with the inference of `predict`. An iteration is a pass over the training
    set. Stops when neither the best error nor the best objective has improved by more than `tol` for
    `patience` iterations, or when no entry of the gradient is larger than `tol`.

    Parameters
    ----------
    learning_rate : float, default=1.0
        Size of the first step. The best value differs by a factor of ten and more between losses: if
        `train_error_curve_` hardly decreases, it may be too small or too large. `Bundle` needs none.
    decay : float, default=0.5
        Step number t has the size ``learning_rate / t ** decay``; 0 for a fixed size.
    average : bool, default=False
        Whether to use the mean of the weights of all steps, with larger weight on later ones, in place of the
        last weights.
    best : {"error", "value", "last"}, default="error"
        Which weights are kept: those of the lowest training error, of the lowest objective, or the last. The
        error takes one prediction per iteration, and ignores class weights. If errors are not known,
        "error" means "value".
    batch_size : int or None, default=None
        Number of examples per mini-batch; None for all, with one step per iteration. With mini-batches the
        objective of an iteration is the mean over its steps.
    patience : int, default=20
        Number of iterations without improvement before it stops.

    See Also
    --------
    Bundle : For convex objectives, without a learning rate.
    FrankWolfe : For the structured SVM, with a certificate.

    Examples
    --------
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.optimizers import Subgradient
    >>> GridCRFClassifier(inference="bp", loss="hinge", optimizer=Subgradient(learning_rate=0.5))
    GridCRFClassifier(inference='bp', loss='hinge',
                      optimizer=Subgradient(learning_rate=0.5))
    """

    _parameter_constraints = {
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "decay": [Interval(Real, 0, 1, closed="both")],
        "average": ["boolean"],
        "best": [StrOptions({"error", "value", "last"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "patience": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self, learning_rate=1.0, decay=0.5, average=False, best="error", batch_size=None, patience=20
    ):
        self.learning_rate = learning_rate
        self.decay = decay
        self.average = average
        self.best = best
        self.batch_size = batch_size
        self.patience = patience

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        def training_error(w):
            return objective.training_error(w) if self.best == "error" else None

        value, gradient = objective(w)
        best = BestSoFar(w, value, training_error(w), tol)
        callback(w, value, error=best.error, start=True)
        if np.abs(gradient).max() <= tol:
            return OptimizeResult(x=w, fun=value, nit=0, success=True, message="the gradient is zero")
        state, nit, success = self.init_state(w), 0, False
        message = f"reached max_iter={max_iter}"
        while nit < max_iter and not success:
            w, value, state = self.epoch(objective, w, state, rng)
            nit += 1
            candidate = self.averaged(w, state)
            if self.batch_size is None:
                value, gradient = objective(candidate)
                success = bool(np.abs(gradient).max() <= tol)
            error = training_error(candidate)
            best.update(candidate, value, error)
            if success:
                message = f"no entry of the gradient is above tol={tol}"
            elif best.n_idle >= self.patience:
                success, message = True, f"no improvement above tol={tol} in {self.patience} iterations"
            if callback(candidate, value, error=error):
                success, message = False, "stopped by a callback"
                break
        if success and best.nit == 0 and self.best != "last":
            success = False
            message = "no weights were better than the start; learning_rate may be too high"
        x, value = (candidate, value) if self.best == "last" else (best.w, best.value)
        return OptimizeResult(x=x, fun=value, nit=nit, success=success, message=message)

    def averaged(self, w, state):
        return state[1] if self.average else w

    def init_state(self, w):
        return 0, np.zeros_like(w)

    def step(self, w, gradient, state):
        step, mean = state[0] + 1, state[1]
        w = w - self.learning_rate / step**self.decay * gradient
        return w, (step, mean + 2.0 / (step + 1) * (w - mean))
