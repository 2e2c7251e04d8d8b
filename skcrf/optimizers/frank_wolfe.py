"""Block-coordinate Frank-Wolfe method."""

from numbers import Integral

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval

from skcrf.optimizers._base import BaseOptimizer, check_convex


class FrankWolfe(BaseOptimizer):
    """Block-coordinate Frank-Wolfe method for the structured SVM, without a learning rate.

    For ``loss="hinge"``, a model that is linear in its weights, and a penalty on all weights, which takes
    ``fit_intercept=False``; a constant feature can replace the intercept. An iteration is a pass over the
    training set, in which each block of examples takes the optimal step of the dual problem towards its most
    violating labels. Stops when the duality gap is at most `tol`. If inference is exact, the gap is an upper
    bound of the distance to the minimum. Starts from zeros, whatever `init` and `warm_start` are. Stores one
    weight vector per block.

    Parameters
    ----------
    batch_size : int, default=1
        Number of examples per block.
    average : bool, default=False
        Whether to use the mean of the weights of all steps, with larger weight on later ones, in place of the
        last weights.

    Attributes
    ----------
    gap_ : float
        Duality gap of the last iteration.

    See Also
    --------
    Subgradient : For any loss.

    References
    ----------
    S. Lacoste-Julien, M. Jaggi, M. Schmidt and P. Pletscher, "Block-Coordinate Frank-Wolfe Optimization for
    Structural SVMs", ICML 2013.

    Examples
    --------
    >>> from skcrf import ChainCRFClassifier
    >>> from skcrf.optimizers import FrankWolfe
    >>> ChainCRFClassifier(loss="hinge", fit_intercept=False, optimizer=FrankWolfe(average=True))
    ChainCRFClassifier(fit_intercept=False, loss='hinge',
                       optimizer=FrankWolfe(average=True))
    """

    _parameter_constraints = {
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "average": ["boolean"],
    }

    objectives = "svm"
    general = False
    uses_init = False

    def __init__(self, batch_size=1, average=False):
        self.batch_size = batch_size
        self.average = average

    def check(self, objective):
        check_convex(self, objective)
        if objective.is_smooth:
            raise ValueError(
                "optimizer must suit the loss: FrankWolfe needs a structured SVM, got a smooth objective. "
                "Use loss='hinge' or optimizer='auto'."
            )
        n_free = np.count_nonzero(objective.ridge <= 0)
        if n_free:
            raise ValueError(
                "alpha must be above 0 and fit_intercept False for FrankWolfe, which needs a penalty on "
                f"every weight, got none on {n_free} of {len(objective.ridge)} weights. Replace the "
                "intercept by a constant feature, or use optimizer='auto'."
            )

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        ridge, n_blocks = objective.ridge, len(objective.batches)
        # Dual variables: each block has a convex combination of its linear functions, with a slope, scaled to
        # weights, and a constant, the cost of labels. The weights are the sum of the scaled slopes.
        w_of, constant_of = np.zeros((n_blocks, len(w))), np.zeros(n_blocks)
        w, constant, step = np.zeros_like(w), 0.0, 0
        mean, mean_constant = w.copy(), 0.0
        best = OptimizeResult(x=w, fun=objective(w)[0])
        nit, success, message = 0, False, f"reached max_iter={max_iter}"
        while nit < max_iter and not success:
            for block in rng.permutation(n_blocks):
                value, gradient = objective.share(w, [objective.batches[block]])
                d_w = -gradient / ridge - w_of[block]
                d_constant = value - w @ gradient - constant_of[block]
                size = _step_size(d_w @ (ridge * d_w), d_constant - w @ (ridge * d_w))
                w_of[block] += size * d_w
                constant_of[block] += size * d_constant
                w, constant, step = w + size * d_w, constant + size * d_constant, step + 1
                mean += 2.0 / (step + 1) * (w - mean)
                mean_constant += 2.0 / (step + 1) * (constant - mean_constant)
            nit += 1
            candidate, of_candidate = (mean.copy(), mean_constant) if self.average else (w, constant)
            value, _ = objective(candidate)
            self.gap_ = value - (of_candidate - 0.5 * candidate @ (ridge * candidate))
            success = bool(self.gap_ <= tol)
            message = f"tol={tol} was reached" if success else message
            if value <= best.fun:
                best = OptimizeResult(x=candidate, fun=value)
            if callback(candidate, value):
                success, message = False, "stopped by a callback"
                break
        if nit:
            message += f", at a duality gap of {self.gap_:.1g}"
        return OptimizeResult(x=best.x, fun=best.fun, nit=nit, success=success, message=message)


def _step_size(curvature, slope):
    """Maximise the dual objective, ``slope * size - curvature / 2 * size ** 2``, over sizes from 0 to 1."""
    return float(np.clip(slope / curvature, 0.0, 1.0)) if curvature > 0 else float(slope > 0)
