"""Subgradient steps."""

from numbers import Integral, Real

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf.optimizers._best_so_far import Kept
from skcrf.optimizers._mini_batch import StepOptimizer


class Subgradient(StepOptimizer):
    """Steps along the gradient, fixed or shorter and shorter, which keep the best weights: K05 section 7.2.

    For losses with kinks, and for gradients that are approximate. Such steps of
    a fixed size end in a limit cycle, of which `loss_curve_` and `train_error_curve_` show the turns. The
    weights that are kept are the best of the way, by the training error with the inference of `predict`.
    An iteration is a pass over the training set. Stops when neither the best error nor the best objective has
    improved by more than `tol` for `patience` iterations, or when no entry of the gradient is larger.

    Parameters
    ----------
    learning_rate : float, default=1.0
        Size of the first step. Which is right differs by a factor of ten and more from loss to loss: if
        `train_error_curve_` hardly falls, it may be too short or too long. `Bundle` needs none.
    decay : float, default=0.5
        Step number t has the size ``learning_rate / t ** decay``; 0 for a fixed size.
    average : bool, default=False
        Whether the mean of all weights so far, later ones counting more, is judged and kept in place of the
        last.
    best : {"error", "value", "last"}, default="error"
        Which weights are kept: those of the least training error, of the lowest objective, or the last. For
        the error, which does not know class weights, every iteration has a prediction. Where errors are not
        known, "error" means "value".
    batch_size : int or None, default=None
        Number of examples in a mini-batch; None for all, one step an iteration. With mini-batches the
        objective of an iteration is the mean on the way.
    patience : int, default=20
        Iterations without improvement before it stops.

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
        error_of = getattr(objective, "training_error", None) if self.best == "error" else None
        value, gradient = objective(w)
        kept = Kept(w, value, None if error_of is None else error_of(w), tol)
        callback(w, value, error=kept.error, start=True)
        if np.abs(gradient).max() <= tol:
            return OptimizeResult(x=w, fun=value, nit=0, success=True, message="the gradient is zero")
        state, nit, success = self.start(w), 0, False
        message = f"reached max_iter={max_iter}"
        while nit < max_iter and not success:
            w, value, state = self.epoch(objective, w, state, rng)
            nit += 1
            judged = self.judged(w, state)
            if self.batch_size is None:
                value, gradient = objective(judged)
                success = bool(np.abs(gradient).max() <= tol)
            error = None if error_of is None else error_of(judged)
            kept.offer(judged, value, error)
            if success:
                message = f"no entry of the gradient is above tol={tol}"
            elif kept.since >= self.patience:
                success, message = True, f"no improvement above tol={tol} in {self.patience} iterations"
            if callback(judged, value, error=error):
                success, message = False, "stopped by a callback"
                break
        if success and kept.nit == 0 and self.best != "last":
            success, message = False, "nothing was better than the start: is learning_rate too high?"
        x, value = (judged, value) if self.best == "last" else (kept.w, kept.value)
        return OptimizeResult(x=x, fun=value, nit=nit, success=success, message=message)

    def judged(self, w, state):
        return state[1] if self.average else w

    def start(self, w):
        return 0, np.zeros_like(w)

    def step(self, w, gradient, state):
        step, mean = state[0] + 1, state[1]
        w = w - self.learning_rate / step**self.decay * gradient
        return w, (step, mean + 2.0 / (step + 1) * (w - mean))
