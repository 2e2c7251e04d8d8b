"""Adam."""

from numbers import Integral, Real
from operator import itemgetter

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval

from skcrf.optimizers._mini_batch import StepOptimizer


class Adam(StepOptimizer):
    """Mini-batch gradient steps of adaptive size; also serves `partial_fit`.

    An iteration is a pass over the training set. Stops when the mean objective of a pass has not improved
    by more than `tol` for `patience` passes, and returns the best weights of those before and after the best
    pass.

    Parameters
    ----------
    batch_size : int, default=8
        Number of examples in a mini-batch.
    learning_rate : float, default=0.02
        Size of the steps.
    beta1, beta2 : float, default=0.9, 0.99
        How slowly the running mean and square of the gradient forget.
    patience : int, default=5
        Passes without improvement before it stops.

    Examples
    --------
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.optimizers import Adam
    >>> GridCRFClassifier(optimizer=Adam(batch_size=4))
    GridCRFClassifier(optimizer=Adam(batch_size=4))
    """

    _parameter_constraints = {
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "beta1": [Interval(Real, 0, 1, closed="left")],
        "beta2": [Interval(Real, 0, 1, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, batch_size=8, learning_rate=0.02, beta1=0.9, beta2=0.99, patience=5):
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.beta1 = beta1
        self.beta2 = beta2
        self.patience = patience

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        state, first, around = self.start(w), w, [w]
        best_value, since = np.inf, 0
        nit, settled, message = 0, False, f"reached max_iter={max_iter}"
        while nit < max_iter and not settled:
            before = w
            w, value, state = self.epoch(objective, w, state, rng)
            nit += 1
            since = 0 if value < best_value - tol else since + 1
            if value < best_value:
                best_value, around = value, [before, w]
            settled = since >= self.patience
            if callback(w, value):
                message = "stopped by a callback"
                break
        # The value of a pass is that of weights on its way: what they are worth at its ends is to be seen.
        best_value, best_w = min(((objective(end)[0], end) for end in around), key=itemgetter(0))
        start_value = objective(first)[0]
        if settled and best_value < start_value:
            message = f"no improvement above tol={tol} in {self.patience} passes"
        elif settled:
            best_value, best_w, settled = start_value, first, False
            message = "nothing was better than the start: is learning_rate too high?"
        return OptimizeResult(x=best_w, fun=best_value, nit=nit, success=settled, message=message)

    def start(self, w):
        return np.zeros_like(w), np.zeros_like(w), 0

    def step(self, w, gradient, state):
        mean, square, step = state
        step += 1
        mean = self.beta1 * mean + (1 - self.beta1) * gradient
        square = self.beta2 * square + (1 - self.beta2) * gradient**2
        size = self.learning_rate * np.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)
        return w - size * mean / (np.sqrt(square) + 1e-8), (mean, square, step)
