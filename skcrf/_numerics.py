"""How kernels are compiled, and tiny ones that several rooms need."""

import warnings

import numpy as np
from numba import njit


def kernel(function, inline="never"):
    """Compile a function when it is first called, and keep what was compiled for the next process.

    Parameters
    ----------
    function : callable
        A module-level function of arrays and NamedTuples of arrays.
    inline : {"never", "always"}, default="never"
        Whether it becomes part of the kernels that call it.

    Returns
    -------
    dispatcher : callable
        The compiled function.
    """
    try:
        return njit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        warnings.warn(
            "Compiled kernels cannot be kept, so that every process compiles them anew: "
            "let the environment variable NUMBA_CACHE_DIR name a folder that can be written to.",
            stacklevel=1,  # the same place for all kernels, so that it is told once
        )
        return njit(nogil=True, inline=inline)(function)


def inlined_kernel(function):
    """Compile a function as a part of the kernels that call it: calls with many arrays are slow.

    Parameters
    ----------
    function : callable
        As for `kernel`.

    Returns
    -------
    dispatcher : callable
        The compiled function.
    """
    return kernel(function, inline="always")


@kernel
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


@kernel
def max_abs_by_part(values, ptr):
    """Largest absolute value in the rows ``ptr[p]`` to ``ptr[p + 1]`` of each part."""
    largest = np.zeros(len(ptr) - 1)
    for part in range(len(ptr) - 1):
        for row in range(ptr[part], ptr[part + 1]):
            for x in range(values.shape[1]):
                largest[part] = max(largest[part], abs(values[row, x]))
    return largest
