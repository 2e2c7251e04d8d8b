"""Concave-convex procedure."""

from functools import partial
from numbers import Integral

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf._registry import names_of, resolve
from skcrf.optimizers._base import BaseOptimizer
from skcrf.optimizers._best_so_far import BestSoFar
from skcrf.optimizers.bundle import Bundle
from skcrf.optimizers.lbfgs import LBFGS

# Values of `objectives` of optimizers that minimise convex functions.
_CONVEX = "any", "convex"


class CCCP(BaseOptimizer):
    """Concave-convex procedure for differences of convex functions: P16 Algorithm 4.2.

    An iteration replaces the subtracted function by its tangent, which fixes the beliefs about hidden labels,
    and minimises the remaining convex function by an inner optimizer. If inference is exact and the inner
    optimizer converges, no iteration increases the objective. Stops when an iteration changes the objective
    by at most `tol`, or when neither the best error nor the best objective has improved by more than `tol`
    for `patience` iterations; without convergence, when `inner_iter` iterations found no better weights. With
    `verbose`, the iterations of the inner optimizer are printed, too; `n_iter_` and `loss_curve_` do not
    include them.

    Parameters
    ----------
    inner : str, BaseOptimizer or None, default=None
        The inner optimizer, by name or as an instance. None is L-BFGS if the convex function is smooth, else
        `Bundle`.
    inner_iter : int, default=50
        Maximum number of iterations of the inner optimizer.
    best : {"error", "last"} or None, default=None
        Which weights are kept: those of the lowest training error with the inference of `predict`, including
        the start, or the last. None is "error" if the convex function is not smooth, since an approximate
        inference may then underestimate the objective; else it is the lowest objective.
    patience : int, default=5
        Number of iterations without improvement before it stops.

    See Also
    --------
    Subgradient : Steps along the gradient of the whole objective.

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
        """Number of examples per mini-batch; None if the inner optimizer uses all examples at once."""
        return None if self.inner is None else self._inner_optimizer().batch_size

    def _inner_optimizer(self):
        from skcrf.optimizers import OPTIMIZERS  # not complete while this module is imported

        inner = resolve(OPTIMIZERS, self.inner, name="inner")
        if inner.objectives not in _CONVEX:
            able = names_of(OPTIMIZERS, lambda one: one.objectives in _CONVEX)
            raise ValueError(
                f"inner must be an optimizer for convex objectives, got {self.inner!r}. Use one of {able}."
            )
        return inner

    def check(self, objective):
        objective.split(type(self).__name__)
        if self.inner is not None:
            self._inner_optimizer()

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        convex, concave = objective.split()
        inner = (
            self._inner_optimizer() if self.inner is not None else LBFGS() if convex.is_smooth else Bundle()
        )
        by_error = self.best == "error" or (self.best is None and not convex.is_smooth)
        training_error = objective.training_error if by_error else _unknown_error
        value, nit, done, success = objective(w)[0], 0, False, False
        best, message, advice = (
            BestSoFar(w, value, training_error(w), tol),
            f"reached max_iter={max_iter}",
            None,
        )
        callback(w, value, error=best.error, start=True)
        options = {"max_iter": self.inner_iter, "tol": tol, "rng": rng}
        while nit < max_iter and not done:
            descend = partial(inner.minimize, _Tangent(convex, w, *concave(w)), w, **options)
            found, after, error = _evaluated(descend, objective, training_error, callback)
            # Without enough iterations the same weights are no minimum, and another iteration would repeat
            # this.
            stuck = not found.success and found.nit >= self.inner_iter and np.array_equal(found.x, w)
            # The weights are always updated, since the value of an approximate inference may be too low.
            before, value, w = value, after, found.x
            nit += 1
            best.update(w, value, error)
            if stuck:
                done, message = (
                    True,
                    f"no better weights were found in inner_iter={self.inner_iter} iterations",
                )
                advice = "increase inner_iter of CCCP, or use another init"
            elif abs(before - value) <= tol:
                done, success, message = True, True, f"the last change of the objective is at most tol={tol}"
            elif best.n_idle >= self.patience:
                done, success = True, True
                message = f"no improvement above tol={tol} in {self.patience} iterations"
            if callback(w, value, error=error):
                done, success, message = True, False, "stopped by a callback"
        x, value = (w, value) if self.best == "last" else (best.w, best.value)
        return OptimizeResult(x=x, fun=value, nit=nit, success=success, message=message, advice=advice)


def _unknown_error(w):
    return None


def _evaluated(descend, objective, training_error, callback):
    """Run the inner optimizer; return its result, and the objective and the training error there."""
    latest = None

    def on_iteration(w, value, error=None, start=False):
        # The convex function minus the tangent is an upper bound of the objective if inference is exact, so
        # that its values can be compared with those of the objective.
        nonlocal latest
        latest = w, value
        return False if start else callback(w, value, inner=True)

    try:
        found = descend(callback=on_iteration)
        latest = found.x, found.fun
        return found, objective(found.x)[0], training_error(found.x)
    except KeyboardInterrupt:
        error = None if latest is None else training_error(latest[0])
        if error is not None:  # weights are compared by their errors
            callback(*latest, error=error, start=True)
        raise


class _Tangent:
    """Convex objective minus the tangent of another."""

    not_convex_because = None

    def __init__(self, convex, at, value, slope):
        self.convex = convex
        self.slope = slope
        self.constant = value - slope @ at

    @property
    def batches(self):
        return self.convex.batches

    @property
    def is_smooth(self):
        return self.convex.is_smooth

    def training_error(self, w):
        return None

    def __call__(self, w, *batches):
        value, gradient = self.convex(w, *batches)
        return value - self.constant - self.slope @ w, gradient - self.slope
