"""How kernels are compiled, and tiny ones that several rooms need."""

import warnings

import numpy as np
from numba import njit

# What vector arithmetic needs: fused multiply-add, and division as NumPy does it, since a check for zero that
# could raise keeps a loop from being vectorised. Infinities and nan keep their meaning.
_VECTOR = {"fastmath": {"contract", "arcp", "nsz"}, "error_model": "numpy"}
# Sums in any order: the compiler's choice, the same in every run.
_REDUCTION = {"fastmath": {"contract", "arcp", "nsz", "reassoc"}, "error_model": "numpy"}


def kernel(function, **options):
    """Compile a function when it is first called, and keep what was compiled for the next process.

    Parameters
    ----------
    function : callable
        A module-level function of arrays and NamedTuples of arrays.
    **options : dict
        More options of `numba.njit`.

    Returns
    -------
    dispatcher : callable
        The compiled function.
    """
    try:
        return njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        warnings.warn(
            "Compiled kernels cannot be kept, so that every process compiles them anew: "
            "let the environment variable NUMBA_CACHE_DIR name a folder that can be written to.",
            stacklevel=1,  # the same place for all kernels, so that it is told once
        )
        return njit(nogil=True, **options)(function)


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


def vector_kernel(function):
    """Compile a function whose innermost loops are over contiguous numbers, to be vectorised.

    Such loops stand in small functions of their own. Then it is checked call by call that arrays do not
    overlap, and what is read and what is written may be parts of one array.

    Parameters
    ----------
    function : callable
        As for `kernel`.

    Returns
    -------
    dispatcher : callable
        The compiled function.
    """
    return kernel(function, **_VECTOR)


def reduction_kernel(function):
    """Compile a function like `vector_kernel` does, whose innermost loops are sums.

    Parameters
    ----------
    function : callable
        As for `kernel`.

    Returns
    -------
    dispatcher : callable
        The compiled function.
    """
    return kernel(function, **_REDUCTION)


def kernel_array(values):
    """Give numbers the one dtype, memory order and kind that kernels are compiled for.

    Parameters
    ----------
    values : array-like
        Any numbers.

    Returns
    -------
    values : ndarray
        float64, C-ordered and writable, since each other kind would be a compilation of its own; the same
        array where it already is.
    """
    return np.require(values, np.float64, ["C", "W", "E"])


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
def softmax(values):
    """Replace values by their softmax, or zeros if all are -inf, and return their log-sum-exp."""
    top = values.max()
    if top == -np.inf:
        values[:] = 0.0
        return top
    total = 0.0
    for x in range(len(values)):
        values[x] = np.exp(values[x] - top)
        total += values[x]
    values /= total
    return top + np.log(total)


@kernel
def max_abs_by_part(values, ptr):
    """Largest absolute value in the rows ``ptr[p]`` to ``ptr[p + 1]`` of each part."""
    largest = np.zeros(len(ptr) - 1)
    for part in range(len(ptr) - 1):
        for row in range(ptr[part], ptr[part + 1]):
            for x in range(values.shape[1]):
                largest[part] = max(largest[part], abs(values[row, x]))
    return largest


# Adding this number to a small one rounds it to an integer, which is then found in the lowest bits.
_ROUND = 1.5 * 2.0**52
_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_LN_2_HIGH, _LN_2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # their sum is ln 2
_MANTISSA, _ONE_BITS, _TWO_52_BITS = 2**52 - 1, 1023 << 52, 1075 << 52


@inlined_kernel
def vector_exp(x):
    """exp(x) for x of at most 700, by arithmetic that is vectorised; 0 below -700."""
    rounded = max(x, -700.0) * _LOG2_E + _ROUND
    n = rounded - _ROUND
    r = (max(x, -700.0) - n * _LN_2_HIGH) - n * _LN_2_LOW  # |r| <= ln 2 / 2
    p = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
    p = 1.0 / 3628800.0 + r * (1.0 / 39916800.0 + r * p)
    p = 1.0 / 40320.0 + r * (1.0 / 362880.0 + r * p)
    p = 1.0 / 720.0 + r * (1.0 / 5040.0 + r * p)
    p = 1.0 / 24.0 + r * (1.0 / 120.0 + r * p)
    p = 0.5 + r * (1.0 / 6.0 + r * p)
    p = 1.0 + r * (1.0 + r * p)
    power_of_two = np.int64((np.float64(rounded).view(np.int64) + 1023) << 52).view(np.float64)
    return 0.0 if x <= -700.0 else p * power_of_two  # so that nan stays what it is


@inlined_kernel
def vector_log(x):
    """log(x) for positive x that is not denormal, by arithmetic that is vectorised."""
    bits = np.float64(x).view(np.int64)
    # x = 2^e m with m in [1, 2); then e + 1 and m / 2 where m is above sqrt 2.
    m = np.int64((bits & _MANTISSA) | _ONE_BITS).view(np.float64)
    e = np.int64((bits >> 52) | _TWO_52_BITS).view(np.float64) - (2.0**52 + 1023.0)
    large = m > 1.4142135623730951
    m = 0.5 * m if large else m
    e = e + 1.0 if large else e
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    p = 1.0 / 19.0 + s2 * (1.0 / 21.0)
    p = 1.0 / 15.0 + s2 * (1.0 / 17.0 + s2 * p)
    p = 1.0 / 11.0 + s2 * (1.0 / 13.0 + s2 * p)
    p = 1.0 / 7.0 + s2 * (1.0 / 9.0 + s2 * p)
    p = 1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 * p)
    return e * _LN_2 + 2.0 * (s + s * s2 * p)
