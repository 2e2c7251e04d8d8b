"""The concave-convex procedure."""

from numbers import Integral

from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval

from skcrf._registry import resolve
from skcrf.optimizers._base import BaseOptimizer
from skcrf.optimizers.bundle import Bundle
from skcrf.optimizers.lbfgs import LBFGS



class CCCP(BaseOptimizer):
    """The concave-convex procedure, for losses that are differences of convex functions: P16 Algorithm 4.2.

    An iteration replaces what is subtracted by its tangent, which hidden labels in their present light are,
    and minimises the rest, which is convex. No iteration makes the objective worse, where inference is exact
    and the inner optimizer does its work. Stops when one brings no more than `tol`.

    Parameters
    ----------
    inner : str, BaseOptimizer or None, default=None
        By name or as an instance, what minimises the convex function of each iteration. None is L-BFGS where
        that function is smooth, else `Bundle`.
    inner_iter : int, default=50
        Iterations of it at most.

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
    }

    objectives = "difference"
    general = False

    def __init__(self, inner=None, inner_iter=50):
        self.inner = inner
        self.inner_iter = inner_iter

    @property
    def batch_size(self):
        """Number of examples in a mini-batch; None for methods that use all."""
        return None if self.inner is None else self._chosen().batch_size

    def _chosen(self):
        from skcrf.optimizers import OPTIMIZERS  # known once all methods are

        return resolve(OPTIMIZERS, self.inner, name="inner")

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        convex, concave = objective.split()
        suited = LBFGS() if convex.smooth else Bundle()
        inner = suited if self.inner is None else self._chosen()
        value, nit, success = objective(w)[0], 0, False
        message = f"reached max_iter={max_iter}"
        while nit < max_iter and not success:
            surrogate = _Tangent(convex, w, *concave(w))
            found = inner.minimize(surrogate, w, max_iter=self.inner_iter, tol=tol, callback=_never, rng=rng)
            before, (new_value, _) = value, objective(found.x)
            nit += 1
            success = bool(before - new_value <= tol)
            if new_value <= before:
                w, value = found.x, new_value
            if callback(w, value):
                success, message = False, "stopped by a callback"
                break
        if success:
            message = f"the last iteration brought no more than tol={tol}"
        return OptimizeResult(x=w, fun=value, nit=nit, success=success, message=message)


def _never(w, value, error=None):
    return False


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
