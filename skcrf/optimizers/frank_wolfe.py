"""Block-coordinate Frank-Wolfe."""

from numbers import Integral

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils._param_validation import Interval

from skcrf.optimizers._base import BaseOptimizer


class FrankWolfe(BaseOptimizer):
    """Block-coordinate Frank-Wolfe for the structured SVM: steps of the best size, and a certificate.

    For loss "hinge", a model that is linear in its weights, and a ridge on all of them, which is
    ``fit_intercept=False``, with a constant among the features where one is needed. An iteration is a pass
    over the training set, in which each block of examples moves towards its most violated labels as far as is
    best for the dual problem. Stops when the duality gap, by which the objective is above its minimum at most
    where inference is exact, is `tol` or less. Starts from zeros, whatever `init` and `warm_start` are. Keeps
    weights for each block.

    Parameters
    ----------
    batch_size : int, default=1
        Number of examples in a block.
    average : bool, default=False
        Whether the mean of all weights so far, later ones counting more, is judged in place of the last.

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
    starts = False

    def __init__(self, batch_size=1, average=False):
        self.batch_size = batch_size
        self.average = average

    def check(self, objective):
        objective.ridge

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        ridge, n_blocks = objective.ridge, len(objective.batches)
        # The dual problem: every block has a mean of the slopes of its pieces, in the shape of weights, and
        # of their constants, what labels cost. The weights are the sum of the first.
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
                curvature = d_w @ (ridge * d_w)
                gain = d_constant - w @ (ridge * d_w)
                size = float(np.clip(gain / curvature, 0.0, 1.0)) if curvature > 0 else float(gain > 0)
                w_of[block] += size * d_w
                constant_of[block] += size * d_constant
                w, constant, step = w + size * d_w, constant + size * d_constant, step + 1
                mean += 2.0 / (step + 1) * (w - mean)
                mean_constant += 2.0 / (step + 1) * (constant - mean_constant)
            nit += 1
            judged, of_judged = (mean.copy(), mean_constant) if self.average else (w, constant)
            value, _ = objective(judged)
            self.gap_ = value - (of_judged - 0.5 * judged @ (ridge * judged))
            success = bool(self.gap_ <= tol)
            message = f"tol={tol} was reached" if success else message
            if value <= best.fun:
                best = OptimizeResult(x=judged, fun=value)
            if callback(judged, value):
                success, message = False, "stopped by a callback"
                break
        if nit:
            message += f", at a duality gap of {self.gap_:.1g}"
        return OptimizeResult(x=best.x, fun=best.fun, nit=nit, success=success, message=message)
