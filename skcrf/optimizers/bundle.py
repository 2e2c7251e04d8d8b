"""The proximal bundle method."""

from numbers import Integral

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval

from skcrf.optimizers._base import BaseOptimizer

# What share of the decrease that was predicted is a success, and what share a great one.
_SERIOUS, _GREAT = 0.1, 0.5
# By how much the penalty of far steps changes at most.
_FACTOR = 10.0
# How often it is made smaller before a promise of nothing is believed.
_DOUBTS = 4


class Bundle(BaseOptimizer):
    """The proximal bundle method: minimises what has kinks, without a learning rate.

    For convex objectives, which are nowhere below the planes that evaluations give. The next one is at the
    minimum of the highest plane plus a penalty of far steps. Where the objective is lower there by some of
    what the planes promised, it is the new centre; else its plane tells why not. The penalty adapts to how
    well they do. An iteration is an evaluation. Stops when the planes promise no more than `tol`, even with a
    penalty that is 10,000 times smaller. Of smooth objectives that takes many planes: L-BFGS is for these.

    A maximum that inference failed to find is one that it may find at other weights: of a value that is below
    a plane, the plane is believed. So what is known not to be convex is refused: losses of marginals, and
    hidden labels, which are seen unless examples are loaded when asked for. For the latter take `CCCP`, of
    which this is the inner optimizer.

    Parameters
    ----------
    memory : int, default=50
        Number of planes that are kept, at least 2; those beyond are replaced by their mean.

    See Also
    --------
    CCCP : Makes convex functions of what is none.
    FrankWolfe : For the structured SVM, with a certificate.

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
        objective.not_convex_because

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        value, slope = objective(w)
        if np.abs(slope).max() <= tol:
            return OptimizeResult(x=w, fun=value, nit=0, success=True, message="the gradient is zero")
        planes = _Planes(value, slope, self.memory)
        # The first step would bring an objective that is linear to zero, below which losses do not go.
        penalty = _Penalty(slope @ slope / max(abs(value), tol, np.finfo(np.float64).tiny))
        nit, success, message = 0, False, f"reached max_iter={max_iter}"
        while nit < max_iter:
            step, promised = planes.lowest(penalty.size)
            for _ in range(_DOUBTS):
                if promised <= tol:  # because of the penalty?
                    penalty.relax()
                    step, promised = planes.lowest(penalty.size)
            if promised <= tol:
                success, message = True, f"no step promises more than tol={tol}"
                break
            error = planes.add(step, *objective(w + step))
            gained = planes.value - planes.highest(step)
            penalty.adapt(gained, promised, error)
            nit += 1
            if gained >= _SERIOUS * promised:
                planes.move(step)
                w = w + step
            if callback(w, planes.value):
                message = "stopped by a callback"
                break
        return OptimizeResult(x=w, fun=planes.value, nit=nit, success=success, message=message)


class _Penalty:
    """The penalty of far steps, half of `size` times their squared length: Kiwiel's Procedure 2.2."""

    def __init__(self, size):
        self.size, self.least = size, 1e-10 * size
        self.turn = 0  # successes in a row, or failures if below 0

    def relax(self):
        """Make it smaller, where it may be what hides that the minimum is far."""
        self.size = max(self.size / _FACTOR, self.least)

    def adapt(self, gained, promised, error):
        """Change it by what a step gained, and how far the plane found there is below the centre."""
        fitted = 2.0 * self.size * (1.0 - gained / promised)  # of a parabola through what was found
        size, before = self.size, self.turn
        if gained >= _SERIOUS * promised:
            if gained >= _GREAT * promised and before > 0:
                size = fitted
            elif before > 3:
                size = self.size / 2
            size = max(size, self.size / _FACTOR, self.least)
            self.turn = max(before + 1, 1) if size == self.size else 1
        else:
            if (error > promised and before < -3) or error > _FACTOR * promised:
                size = fitted
            size = min(max(size, self.size), _FACTOR * self.size)
            self.turn = min(before - 1, -1) if size == self.size else -1
        self.size = size


class _Planes:
    """Planes below a convex function: slopes, and how far each is below the value at the centre.

    That value is where the highest plane is: an evaluation that is not exact may have found less.
    """

    def __init__(self, value, slope, memory):
        self.value, self.memory = value, memory
        self.slopes, self.errors, self.shares = slope[None], np.zeros(1), np.ones(1)
        self.products = self.slopes @ self.slopes.T

    def lowest(self, penalty):
        """Find the step to the minimum of the highest plane plus the penalty, and what it promises to gain.

        The mean of planes that the dual problem asks for is near the one before.
        """
        self.shares = simplex_minimum(self.products / penalty, self.errors, self.shares)
        step = -(self.shares @ self.slopes) / penalty
        return step, penalty * (step @ step) + self.shares @ self.errors

    def highest(self, step):
        """Tell where the highest plane is, a step from the centre."""
        return self.value + np.max(self.slopes @ step - self.errors)

    def move(self, step):
        """Move the centre."""
        value = self.highest(step)
        self.errors += value - self.value - self.slopes @ step
        self.value = value

    def add(self, step, value, slope):
        """Add the plane that was found a step from the centre; tell how far it is below the value there."""
        if len(self.errors) >= self.memory:
            self._merge()
        error = self.value - value + slope @ step
        self.slopes = np.vstack([self.slopes, slope])
        self.errors = np.append(self.errors, error)
        self.shares = np.append(self.shares, 0.0)
        self.products = np.pad(self.products, (0, 1))
        self.products[-1] = self.products[:, -1] = self.slopes @ slope
        if error < 0:
            self.value, self.errors = self.value - error, self.errors - error
        return error

    def _merge(self):
        """Replace the two planes that count least by their mean."""
        least, kept = np.split(np.argsort(self.shares), [2])
        weights = self.shares[least] if self.shares[least].any() else np.ones(2)
        mean, error = (
            np.average(part[least], axis=0, weights=weights) for part in (self.slopes, self.errors)
        )
        self.slopes = np.vstack([self.slopes[kept], mean])
        self.errors = np.append(self.errors[kept], error)
        self.shares = np.append(self.shares[kept], self.shares[least].sum())
        self.products = self.slopes @ self.slopes.T


def simplex_minimum(products, linear, start, *, max_iter=500, tol=1e-3):
    """Minimise ``x @ products @ x / 2 + linear @ x`` over shares that sum to 1, from face to face.

    Each face, where some shares are zero, has its minimum by a linear system. Steps that exchange two shares
    would never end where slopes are of very different sizes.

    Parameters
    ----------
    products : ndarray of shape (n, n)
        Positive semidefinite.
    linear : ndarray of shape (n,)
        Linear part.
    start : ndarray of shape (n,)
        Shares to start from.
    max_iter : int, default=500
        Faces at most.
    tol : float, default=1e-3
        Stops when the value is above the minimum by no more than this share of what the shares promise,
        ``x @ products @ x + linear @ x``.

    Returns
    -------
    x : ndarray of shape (n,)
        Shares.
    """
    x = start / start.sum()
    face = x > 0
    for _ in range(max_iter):
        target = _minimum_of_face(products, linear, face)
        beyond = np.flatnonzero(face & (target <= 0))
        if len(beyond):  # go as far as the first share that vanishes
            ways = x[beyond] / np.maximum(x[beyond] - target[beyond], np.finfo(np.float64).tiny)
            x = np.maximum(x + ways.min() * (target - x), 0.0)
            x[beyond[ways.argmin()]], face[beyond[ways.argmin()]] = 0.0, False
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
    """Minimise over shares that sum to 1, of which only those of a face are not zero, or may be below."""
    n, within = face.sum(), products[np.ix_(face, face)]
    apart = linear[face] - linear[face].min()  # what all have in common moves no share, but loses digits
    size = max(within.diagonal().max(), apart.max()) or 1.0
    system = np.ones((n + 1, n + 1))
    # Of planes that depend on one another a minimum may be anywhere: some curvature makes it one, far away.
    system[:n, :n] = within / size + 1e-12 * np.eye(n)
    system[n, n] = 0.0
    target = np.zeros(len(linear))
    target[face] = np.linalg.solve(system, np.append(-apart / size, 1.0))[:n]
    return target
