"""The concave-convex procedure."""

from functools import partial
from numbers import Integral

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf._registry import resolve
from skcrf.optimizers._base import BaseOptimizer
from skcrf.optimizers._best_so_far import Kept
from skcrf.optimizers.bundle import Bundle
from skcrf.optimizers.lbfgs import LBFGS

# Objectives of optimizers that minimise what is convex.
_CONVEX = "any", "convex"


class CCCP(BaseOptimizer):
    """The concave-convex procedure, for losses that are differences of convex functions: P16 Algorithm 4.2.

    An iteration replaces what is subtracted by its tangent, which hidden labels in their present light are,
    and minimises the rest, which is convex. No iteration makes the objective worse, where inference is exact
    and the inner optimizer does its work. Stops when one changes it by no more than `tol`, or when neither
    the best error nor the best objective has improved by more for `patience` iterations; without convergence
    when `inner_iter` ended before anything better was found. With `verbose`, the iterations of the inner
    optimizer are told too; `n_iter_` and `loss_curve_` do not know of them.

    Parameters
    ----------
    inner : str, BaseOptimizer or None, default=None
        By name or as an instance, what minimises the convex function of each iteration. None is L-BFGS where
        that function is smooth, else `Bundle`.
    inner_iter : int, default=50
        Iterations of it at most.
    best : {"error", "last"} or None, default=None
        Which weights are kept: those of the least training error with the inference of `predict`, the start
        among them, or the last. None is "error" where the convex function has kinks: there an inference that
        is not exact may find too low an objective. Else it is those of the lowest objective.
    patience : int, default=5
        Iterations without improvement before it stops.

    See Also
    --------
    Subgradient : Steps on the whole.

    Examples
    --------
    >>> from skcrf import GraphCRFClassifier
    >>> from skcrf.optimizers import CCCP
    >>> GraphCRFClassifier(inference="bp", loss="marginal_hinge", optimizer=CCCP(inner_iter=20))
    GraphCRFClassifier(inference='bp', loss='marginal_hinge',
                       optimizer=CCCP(inner_iter=20))
    """

    _parameter_constraints = {
        "inner": [BaseOptimizer, str, None],
        "inner_iter": [Interval(Integral, 1, None, closed="left")],
        "best": [StrOptions({"error", "last"}), None],
        "patience": [Interval(Integral, 1, None, closed="left")],
    }

    objectives = "difference"
    general = False

    def __init__(self, inner=None, inner_iter=50, best=None, patience=5):
        self.inner = inner
        self.inner_iter = inner_iter
        self.best = best
        self.patience = patience

    @property
    def batch_size(self):
        """Number of examples in a mini-batch; None for methods that use all."""
        return None if self.inner is None else self._chosen().batch_size

    def _chosen(self):
        from skcrf.optimizers import OPTIMIZERS  # known once all methods are

        inner = resolve(OPTIMIZERS, self.inner, name="inner")
        if inner.objectives not in _CONVEX:
            able = sorted(name for name, method in OPTIMIZERS.items() if method.objectives in _CONVEX)
            raise ValueError(f"inner={self.inner!r} is not for any convex function: take one of {able}.")
        return inner

    def check(self, objective):
        objective.split()
        if self.inner is not None:
            self._chosen()

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        convex, concave = objective.split()
        suited = LBFGS() if convex.is_smooth else Bundle()
        inner = suited if self.inner is None else self._chosen()
        judged = self.best == "error" or (self.best is None and not convex.is_smooth)
        error_of = getattr(objective, "training_error", _unknown) if judged else _unknown
        value, nit, done, success = objective(w)[0], 0, False, False
        kept, message, advice = Kept(w, value, error_of(w), tol), f"reached max_iter={max_iter}", None
        callback(w, value, error=kept.error, start=True)
        how = {"max_iter": self.inner_iter, "tol": tol, "rng": rng}
        while nit < max_iter and not done:
            descend = partial(inner.minimize, _Tangent(convex, w, *concave(w)), w, **how)
            found, after, error = self._judged(descend, objective, error_of, callback)
            # To stay for want of iterations is no sign of a minimum, and another iteration would be the same.
            idle = not found.success and found.nit >= self.inner_iter and np.array_equal(found.x, w)
            # Where inference is not exact it is the inner optimizer that knows best, not the value.
            before, value, w = value, after, found.x
            nit += 1
            kept.offer(w, value, error)
            if idle:
                done, message = True, f"inner_iter={self.inner_iter} ended before anything better was found"
                advice = "raise inner_iter of CCCP, or start elsewhere: init="
            elif abs(before - value) <= tol:
                done, success, message = True, True, f"the last iteration brought no more than tol={tol}"
            elif kept.since >= self.patience:
                done, success = True, True
                message = f"no improvement above tol={tol} in {self.patience} iterations"
            if callback(w, value, error=error):
                done, success, message = True, False, "stopped by a callback"
        x, value = (w, value) if self.best == "last" else (kept.w, kept.value)
        return OptimizeResult(x=x, fun=value, nit=nit, success=success, message=message, advice=advice)

    def _judged(self, descend, objective, error_of, callback):
        """Minimise the convex function of an iteration; tell what was found, its objective and its error."""
        latest = None

        def inside(w, value, error=None, start=False):
            # No tangent is above what it touches: the objective is not above this value, where inference is
            # exact, so that weights which are better here are better.
            nonlocal latest
            latest = w, value
            return False if start else callback(w, value, inner=True)

        try:
            found = descend(callback=inside)
            latest = found.x, found.fun
            return found, objective(found.x)[0], error_of(found.x)
        except KeyboardInterrupt:
            error = None if latest is None else error_of(latest[0])
            if error is not None:  # where weights are judged by errors, so is what it found
                callback(*latest, error=error, start=True)
            raise


def _unknown(w):
    return None


class _Tangent:
    """A convex objective minus the tangent of another."""

    def __init__(self, convex, at, value, slope):
        self.convex = convex
        self.slope = slope
        self.constant = value - slope @ at

    @property
    def batches(self):
        return self.convex.batches

    def __call__(self, w, *batches):
        value, gradient = self.convex(w, *batches)
        return value - self.constant - self.slope @ w, gradient - self.slope
