"""Judges: how bad a distribution is where one outcome is right.

Each takes rows of probabilities p (n, m) and the right outcome of each row, target (n,), and gives the value
of each row and its derivative with respect to p. They know nothing of fields: a row may be the marginal of a
site or that of all pairs of labels of an edge.
"""

from numbers import Real

import numpy as np
from scipy.special import expit
from sklearn.utils._param_validation import Interval

# Probabilities below this are not told apart: the reciprocal, and a sum of it over many sites, must not
# overflow. A site whose label has less than that teaches nothing.
_SMALLEST = 1e-300


def logistic(p, target):
    """Compute ``-log p(target)``: the cost of a code for what is right."""
    rows = np.arange(len(p))
    mass = np.maximum(p[rows, target], _SMALLEST)
    d_p = np.zeros_like(p)
    d_p[rows, target] = -1.0 / mass
    return -np.log(mass), d_p


def quadratic(p, target):
    """Compute ``sum_x (p(x) - [x == target])^2``: never above 2, so that no row counts for very much."""
    error = p.copy()
    error[np.arange(len(p)), target] -= 1.0
    return (error * error).sum(axis=1), 2.0 * error


class Smoothed:
    """The judge that has a parameter, as a part of a loss: the smoothed classification error."""

    _parameter_constraints = {"alpha": [Interval(Real, 0, None, closed="neither")]}

    starts_from = "univariate_logistic"  # as in D10 section 4: it is flat where labels are far from decided

    def __init__(self, alpha=15.0):
        self.alpha = alpha

    def _judge(self, p, target):
        """Compute ``S(max of the others - p(target))``: near 1 where the largest is wrong, else near 0."""
        rows = np.arange(len(p))
        others = p.copy()
        others[rows, target] = -np.inf  # where nothing is left, the step is far below
        best = np.argmax(others, axis=1)
        value = expit(self.alpha * (others[rows, best] - p[rows, target]))
        slope = self.alpha * value * (1.0 - value)
        d_p = np.zeros_like(p)
        d_p[rows, best] = slope
        d_p[rows, target] -= slope
        return value, d_p
