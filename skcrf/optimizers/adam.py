"""Adam."""

from numbers import Integral, Real
from operator import itemgetter

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval

from skcrf.optimizers._mini_batch import StepOptimizer


class Adam(StepOptimizer):
    """Adam: mini-batch gradient steps of adaptive size.

    An iteration is a pass over the training set. Stops when the mean objective of a pass has not improved
    by more than `tol` for `patience` passes. Returns the better weights of those before and after the best
    pass. Also for `partial_fit`.

    Parameters
    ----------
    batch_size : int, default=8
        Number of examples per mini-batch.
    learning_rate : float, default=0.02
        Size of the steps.
    beta1, beta2 : float, default=0.9, 0.99
        Decay rates of the running means of the gradient and of its square.
    patience : int, default=5
        Number of passes without improvement before it stops.

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
        state, first, candidates = self.init_state(w), w, [w]
        best_value, n_idle = np.inf, 0
        nit, settled, message = 0, False, f"reached max_iter={max_iter}"
        while nit < max_iter and not settled:
            before = w
            w, value, state = self.epoch(objective, w, state, rng)
            nit += 1
            n_idle = 0 if value < best_value - tol else n_idle + 1
            if value < best_value:
                best_value, candidates = value, [before, w]
            settled = n_idle >= self.patience
            if callback(w, value):
                message = "stopped by a callback"
                break
        # The mean objective of a pass belongs to none of its weights; those at both ends are evaluated.
        best_value, best_w = min(((objective(one)[0], one) for one in candidates), key=itemgetter(0))
        start_value = objective(first)[0]
        if settled and best_value < start_value:
            message = f"no improvement above tol={tol} in {self.patience} passes"
        elif settled:
            best_value, best_w, settled = start_value, first, False
            message = "no weights were better than the start; learning_rate may be too high"
        return OptimizeResult(x=best_w, fun=best_value, nit=nit, success=settled, message=message)

    def init_state(self, w):
        return np.zeros_like(w), np.zeros_like(w), 0

    def step(self, w, gradient, state):
        mean, square, step = state
        step += 1
        mean = self.beta1 * mean + (1 - self.beta1) * gradient
        square = self.beta2 * square + (1 - self.beta2) * gradient**2
        size = self.learning_rate * np.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)
        return w - size * mean / (np.sqrt(square) + 1e-8), (mean, square, step)
