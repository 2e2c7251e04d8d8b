"""Pointwise losses: functions of probabilities and labels.

Each takes rows of probabilities p (n, m) and the label of each row, target (n,), and returns the value of
each row and its derivative with respect to p. A row is the marginal of a node, or of a pair of nodes.
"""

import numpy as np
from scipy.special import expit

# Smaller probabilities are treated as equal, so that neither their reciprocals nor sums of these overflow.
_SMALLEST = 1e-300


def logistic(p, target):
    """Compute ``-log p(target)``."""
    rows = np.arange(len(p))
    mass = np.maximum(p[rows, target], _SMALLEST)
    d_p = np.zeros_like(p)
    d_p[rows, target] = -1.0 / mass
    return -np.log(mass), d_p


def quadratic(p, target):
    """Compute ``sum_x (p(x) - [x == target])^2``, which is at most 2."""
    error = p.copy()
    error[np.arange(len(p)), target] -= 1.0
    return (error * error).sum(axis=1), 2.0 * error


def smoothed_error(p, target, alpha):
    """Compute ``1 / (1 + exp(-alpha (max of the others - p(target))))``."""
    rows = np.arange(len(p))
    others = p.copy()
    others[rows, target] = -np.inf  # with a single state the value is 0
    best = np.argmax(others, axis=1)
    value = expit(alpha * (others[rows, best] - p[rows, target]))
    slope = alpha * value * (1.0 - value)
    d_p = np.zeros_like(p)
    d_p[rows, best] = slope
    d_p[rows, target] -= slope
    return value, d_p
