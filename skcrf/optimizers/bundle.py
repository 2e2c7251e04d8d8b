"""Proximal bundle method."""

from numbers import Integral

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval

from skcrf.optimizers._base import BaseOptimizer, check_convex

# Fractions of the predicted decrease for a serious step, and for one after which the penalty may shrink.
_SERIOUS, _GREAT = 0.1, 0.5
# Largest factor by which the penalty changes at once.
_FACTOR = 10.0
# Number of times the penalty is reduced before a small predicted decrease is accepted as convergence.
_MAX_RELAXATIONS = 4


class Bundle(BaseOptimizer):
    """Proximal bundle method for convex, non-smooth objectives, without a learning rate.

    Each evaluation gives a plane that is nowhere above a convex objective. The next evaluation is at the
    minimum of the maximum of all planes plus a penalty of the squared distance. If the objective decreases
    there by a fraction of the predicted decrease, the point is the new centre; if not, its plane improves the
    prediction. The penalty adapts to the quality of the predictions. An iteration is an evaluation. Stops
    when the predicted decrease is at most `tol`, even with a penalty 10,000 times smaller. Smooth objectives
    need many planes; use `LBFGS` for these.

    An approximate inference may miss a maximum that it finds at other weights, and so return a value below an
    earlier plane; then the plane is used. Objectives that are known not to be convex, such as losses of
    marginals, raise an error, and so do hidden labels. For hidden labels use `CCCP`, which calls this
    optimizer.

    Parameters
    ----------
    memory : int, default=50
        Number of planes that are kept, at least 2; further planes are replaced by their mean.

    See Also
    --------
    CCCP : Minimises differences of convex functions.
    FrankWolfe : For the structured SVM, with a duality gap.

    References
    ----------
    K. C. Kiwiel, "Proximity control in bundle methods for convex nondifferentiable minimization",
    Mathematical Programming 46, 1990.

    Examples
    --------
    >>> from skcrf import ChainCRFClassifier
    >>> from skcrf.optimizers import Bundle
    >>> ChainCRFClassifier(loss="hinge", optimizer=Bundle(memory=100))
    ChainCRFClassifier(loss='hinge', optimizer=Bundle(memory=100))
    """

    _parameter_constraints = {"memory": [Interval(Integral, 2, None, closed="left")]}

    objectives = "convex"
    general = False

    def __init__(self, memory=50):
        self.memory = memory

    def check(self, objective):
        check_convex(self, objective)

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        value, slope = objective(w)
        if np.abs(slope).max() <= tol:
            return OptimizeResult(x=w, fun=value, nit=0, success=True, message="the gradient is zero")
        planes = _Planes(value, slope, self.memory)
        # The first step would take a linear objective to zero, the lower bound of losses.
        penalty = _Penalty(slope @ slope / max(abs(value), tol, np.finfo(np.float64).tiny))
        nit, success, message = 0, False, f"reached max_iter={max_iter}"
        while nit < max_iter:
            step, predicted = planes.minimum(penalty.size)
            for _ in range(_MAX_RELAXATIONS):
                if predicted <= tol:  # perhaps only because of the penalty
                    penalty.relax()
                    step, predicted = planes.minimum(penalty.size)
            if predicted <= tol:
                success, message = True, f"the predicted decrease is at most tol={tol}"
                break
            error = planes.add(step, *objective(w + step))
            decrease = planes.value - planes.maximum(step)
            penalty.adapt(decrease, predicted, error)
            nit += 1
            if decrease >= _SERIOUS * predicted:
                planes.move(step)
                w = w + step
            if callback(w, planes.value):
                message = "stopped by a callback"
                break
        return OptimizeResult(x=w, fun=planes.value, nit=nit, success=success, message=message)


class _Penalty:
    """Penalty of distant steps, half of `size` times their squared length: Kiwiel's Procedure 2.2."""

    def __init__(self, size):
        self.size, self.least = size, 1e-10 * size
        self.turn = 0  # serious steps in a row, or minus the number of other steps in a row

    def relax(self):
        """Reduce the penalty."""
        self.size = max(self.size / _FACTOR, self.least)

    def adapt(self, decrease, predicted, error):
        """Adapt to the decrease of a step, and to the distance of its plane below the centre."""
        fitted = 2.0 * self.size * (1.0 - decrease / predicted)  # of a parabola through the values
        size, before = self.size, self.turn
        if decrease >= _SERIOUS * predicted:
            if decrease >= _GREAT * predicted and before > 0:
                size = fitted
            elif before > 3:
                size = self.size / 2
            size = max(size, self.size / _FACTOR, self.least)
            self.turn = max(before + 1, 1) if size == self.size else 1
        else:
            if (error > predicted and before < -3) or error > _FACTOR * predicted:
                size = fitted
            size = min(max(size, self.size), _FACTOR * self.size)
            self.turn = min(before - 1, -1) if size == self.size else -1
        self.size = size


class _Planes:
    """Planes below a convex function: slopes, and linearisation errors, the distances below the centre.

    The value at the centre is the maximum of the planes there, since evaluations may be too low.
    """

    def __init__(self, value, slope, memory):
        self.value, self.memory = value, memory
        self.slopes, self.errors, self.multipliers = slope[None], np.zeros(1), np.ones(1)
        self.products = self.slopes @ self.slopes.T

    def minimum(self, penalty):
        """Find the step to the minimum of all planes plus the penalty, and the decrease that it predicts."""
        self.multipliers = simplex_minimum(self.products / penalty, self.errors, self.multipliers)
        step = -(self.multipliers @ self.slopes) / penalty
        return step, penalty * (step @ step) + self.multipliers @ self.errors

    def maximum(self, step):
        """Compute the maximum of all planes, a step from the centre."""
        return self.value + np.max(self.slopes @ step - self.errors)

    def move(self, step):
        """Move the centre."""
        value = self.maximum(step)
        self.errors += value - self.value - self.slopes @ step
        self.value = value

    def add(self, step, value, slope):
        """Add the plane of an evaluation a step from the centre; return its linearisation error."""
        if len(self.errors) >= self.memory:
            self._merge()
        error = self.value - value + slope @ step
        self.slopes = np.vstack([self.slopes, slope])
        self.errors = np.append(self.errors, error)
        self.multipliers = np.append(self.multipliers, 0.0)
        self.products = np.pad(self.products, (0, 1))
        self.products[-1] = self.products[:, -1] = self.slopes @ slope
        if error < 0:
            self.value, self.errors = self.value - error, self.errors - error
        return error

    def _merge(self):
        """Replace the two planes with the smallest multipliers by their mean."""
        least, others = np.split(np.argsort(self.multipliers), [2])
        weights = self.multipliers[least] if self.multipliers[least].any() else np.ones(2)
        mean, error = (
            np.average(part[least], axis=0, weights=weights) for part in (self.slopes, self.errors)
        )
        self.slopes = np.vstack([self.slopes[others], mean])
        self.errors = np.append(self.errors[others], error)
        self.multipliers = np.append(self.multipliers[others], self.multipliers[least].sum())
        self.products = self.slopes @ self.slopes.T


def simplex_minimum(products, linear, start, *, max_iter=500, tol=1e-3):
    """Minimise ``x @ products @ x / 2 + linear @ x`` over the simplex by an active-set method.

    The minimum over each face, in which some entries are zero, is the solution of a linear system. Methods
    that exchange two entries at a time do not converge if slopes differ much in size.

    Parameters
    ----------
    products : ndarray of shape (n, n)
        Positive semidefinite matrix.
    linear : ndarray of shape (n,)
        Linear part.
    start : ndarray of shape (n,)
        Initial value of x, at least 0; it is scaled to the sum 1.
    max_iter : int, default=500
        Maximal number of faces.
    tol : float, default=1e-3
        Stops when the value is above the minimum by at most this fraction of
        ``x @ products @ x + linear @ x``.

    Returns
    -------
    x : ndarray of shape (n,)
        Entries at least 0 with the sum 1.
    """
    x = start / start.sum()
    face = x > 0
    for _ in range(max_iter):
        target = _minimum_of_face(products, linear, face)
        beyond = np.flatnonzero(face & (target <= 0))
        if len(beyond):  # stop where the first entry becomes zero
            lengths = x[beyond] / np.maximum(x[beyond] - target[beyond], np.finfo(np.float64).tiny)
            x = np.maximum(x + lengths.min() * (target - x), 0.0)
            x[beyond[lengths.argmin()]], face[beyond[lengths.argmin()]] = 0.0, False
            x /= x.sum()
            continue
        x = target / target.sum()
        slope = products @ x + linear
        best = np.argmin(slope)
        if face[best] or x @ slope - slope[best] <= tol * (x @ slope):
            break
        face[best] = True
    return x


def _minimum_of_face(products, linear, face):
    """Minimise over vectors with the sum 1 that are zero outside of a face; entries may be negative."""
    n, within = face.sum(), products[np.ix_(face, face)]
    apart = linear[face] - linear[face].min()  # a constant does not change the minimum, but costs digits
    size = max(within.diagonal().max(), apart.max()) or 1.0
    system = np.ones((n + 1, n + 1))
    # If planes are linearly dependent the minimum is not unique; a small curvature makes it so.
    system[:n, :n] = within / size + 1e-12 * np.eye(n)
    system[n, n] = 0.0
    target = np.zeros(len(linear))
    target[face] = np.linalg.solve(system, np.append(-apart / size, 1.0))[:n]
    return target
