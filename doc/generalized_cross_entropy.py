"""The example of the page on adding a loss."""

from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf.losses import UnivariateLoss


class GeneralizedCrossEntropy(UnivariateLoss):
    """``(1 - p ** q) / q`` of the marginal p of each label: bounded, and so robust to wrong labels."""

    _parameter_constraints = {"q": [Interval(Real, 0, 1, closed="right")]}

    def __init__(self, q=0.7):
        self.q = q

    def pointwise(self, p, target):
        rows = np.arange(len(p))
        mass = np.maximum(p[rows, target], 1e-300)
        d_p = np.zeros_like(p)
        d_p[rows, target] = -(mass ** (self.q - 1))
        return (1 - mass**self.q) / self.q, d_p
