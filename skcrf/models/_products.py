"""Products of features with weights, and with derivatives.

Features of a narrow type, such as float32 or bytes, are never copied as a whole to float64: that would need
much memory, and half of the time of an evaluation with many features.
"""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel

# Rows of narrow features that are multiplied at a time: few enough for the cache, and for sums in float32. A
# constant, so that results do not depend on n_jobs.
_ROWS = 2048


def multiply(features, coef, out):
    """Compute ``out = features @ coef.T`` in float64.

    The sums of narrow features are in float64 too, since line searches would see errors of float32.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        Features of any type.
    coef : ndarray of shape (n_outputs, n_features)
        Weights.
    out : ndarray of shape (n_rows, n_outputs)
        Result.
    """
    if features.dtype == np.float64:
        np.matmul(features, np.ascontiguousarray(coef.T), out=out)
    elif features.dtype == np.float32 and len(coef) <= features.shape[1]:
        _multiply_single(np.ascontiguousarray(features), np.ascontiguousarray(coef), out)
    else:
        for rows, block in _blocks(features, np.float64):
            np.matmul(block, np.ascontiguousarray(coef.T), out=out[rows])


def transposed_product(a, b):
    """Compute ``a.T @ b``, such as the derivative of weights from features and the derivative of `multiply`.

    Where one of both is narrow, blocks of rows are multiplied in float32, and added in float64.
    """
    if a.dtype == b.dtype == np.float64:
        return a.T @ b
    product = np.zeros((a.shape[1], b.shape[1]))
    for (_, rows_of_a), (_, rows_of_b) in zip(_blocks(a, np.float32), _blocks(b, np.float32), strict=True):
        product += rows_of_a.T @ rows_of_b
    return product


def _blocks(features, dtype):
    """Yield slices of rows, and the features there converted to a type."""
    converted = np.empty((min(_ROWS, len(features)), features.shape[1]), dtype)
    for start in range(0, len(features), _ROWS):
        rows = slice(start, min(start + _ROWS, len(features)))
        block = features[rows]
        if features.dtype != dtype:
            np.copyto(converted[: len(block)], block, casting="same_kind")
            block = converted[: len(block)]
        yield rows, block


@kernel
def _multiply_single(features, coef, out):
    for i in range(len(features)):
        for x in range(len(coef)):
            out[i, x] = _dot(features[i], coef[x])


@reduction_kernel
def _dot(row, coef):
    total = 0.0
    for f in range(len(coef)):
        total += row[f] * coef[f]  # in float64, as coef is
    return total
