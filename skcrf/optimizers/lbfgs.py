"""L-BFGS."""

from numbers import Integral

import numpy as np
from scipy.optimize import OptimizeResult
from scipy.optimize import minimize as scipy_minimize
from sklearn.utils._param_validation import Interval

from skcrf.optimizers._base import BaseOptimizer

# Status codes of SciPy after a bad search direction: no progress (0), or a failed line search (2).
_BAD_DIRECTION = (0, 2)


class LBFGS(BaseOptimizer):
    """L-BFGS, restarted after a bad search direction (D13 section 8.4).

    Stops when no entry of the gradient is larger than `tol`, or when a restart brings no progress.

    Parameters
    ----------
    memory : int, default=10
        Number of corrections that approximate the Hessian.
    max_restarts : int, default=5
        Maximum number of restarts.
    precondition : bool, default=True
        Whether a fit scales the weights by the second moments of their features, so that the objective has
        about the same curvature in all directions. Far fewer iterations are then needed if features are
        correlated or of different scales; `tol` bounds the gradient with respect to the scaled weights.

    Examples
    --------
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.optimizers import LBFGS
    >>> GridCRFClassifier(optimizer=LBFGS(memory=20))
    GridCRFClassifier(optimizer=LBFGS(memory=20))
    """

    _parameter_constraints = {
        "memory": [Interval(Integral, 1, None, closed="left")],
        "max_restarts": [Interval(Integral, 0, None, closed="left")],
        "precondition": ["boolean"],
    }

    def __init__(self, memory=10, max_restarts=5, precondition=True):
        self.memory = memory
        self.max_restarts = max_restarts
        self.precondition = precondition

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        def on_iteration(intermediate_result):
            if callback(intermediate_result.x, float(intermediate_result.fun)):
                raise StopIteration

        nit, fun, ftol = 0, np.inf, 64 * np.finfo(np.float64).eps
        options = {"maxcor": self.memory, "gtol": tol, "ftol": ftol, "maxls": 50}
        for _ in range(self.max_restarts + 1):
            result = scipy_minimize(
                objective,
                w,
                jac=True,
                method="L-BFGS-B",
                callback=on_iteration,
                options={**options, "maxiter": max_iter - nit},
            )
            nit += result.nit
            w = result.x
            flat = np.abs(result.jac).max() <= tol
            # After a bad direction the line search fails, or the steps are too small. If a restart makes
            # no progress, another one will not either.
            stuck = result.nit == 0 or fun - result.fun <= ftol * max(1.0, abs(result.fun))
            if flat or stuck or nit >= max_iter or result.status not in _BAD_DIRECTION:
                break
            fun = result.fun
        # At the minimum, up to rounding, no step lowers the value. If the gradient is not small, there are
        # other reasons: features of very different scales, or a gradient that is only approximate.
        largest = np.abs(result.jac).max()
        floor = 10 * np.sqrt(np.finfo(np.float64).eps) * max(1.0, abs(result.fun))
        success, message = bool(flat or (stuck and largest <= floor)), result.message
        if stuck and not success:
            message = f"no step lowers the objective, though its gradient is {largest:.1g}"
        return OptimizeResult(x=w, fun=result.fun, nit=nit, success=success, message=message)
