"""Tiny compiled helpers that several rooms need."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def log_normalise(values):
    """Subtract the log of the sum of exponentials, in place; at least one value must be finite."""
    top = values.max()
    total = 0.0
    for x in range(len(values)):
        values[x] -= top  # first of all, so that large values lose no digits
        total += np.exp(values[x])
    log_total = np.log(total)
    for x in range(len(values)):
        values[x] -= log_total


@njit(cache=True, nogil=True)
def max_abs_by_part(values, ptr):
    """Largest absolute value in the rows ``ptr[p]`` to ``ptr[p + 1]`` of each part."""
    largest = np.zeros(len(ptr) - 1)
    for part in range(len(ptr) - 1):
        for row in range(ptr[part], ptr[part + 1]):
            for x in range(values.shape[1]):
                largest[part] = max(largest[part], abs(values[row, x]))
    return largest
