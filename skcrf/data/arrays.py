"""Validation of the arrays of one example; errors name the example."""

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite


def as_images(X, *, name="X", n_features=None):
    """Validate images; return a list of arrays of shape (height, width, n_features)."""
    if len(X) == 0:
        raise ValueError(f"{name} must hold at least one image, got none.")
    images, as_in = [], "in fit"
    for i, example in enumerate(X):
        images.append(as_image(example, f"{name}[{i}]", n_features, as_in))
        if n_features is None:
            n_features, as_in = images[0].shape[2], f"in {name}[0]"
    return images


def as_image(example, name, n_features=None, as_in="in fit"):
    """Validate one image.

    Parameters
    ----------
    example : array-like of shape (height, width) or (height, width, n_features)
        The image.
    name : str
        Its name in messages.
    n_features : int, default=None
        Number of features that it must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from.

    Returns
    -------
    image : ndarray of shape (height, width, n_features)
        float32 where that is exact, else float64; C-ordered; a view of `example` where possible.
    """
    image = as_numbers(example, name)
    if image.ndim not in (2, 3):
        raise ValueError(
            f"{name} must be an image of shape (height, width) or (height, width, n_features), "
            f"got shape {image.shape}."
        )
    if image.size == 0:
        raise ValueError(f"{name} must have at least one pixel and one feature, got shape {image.shape}.")
    image = np.ascontiguousarray(image.reshape(*image.shape[:2], -1), dtype=_float_type(image.dtype))
    assert_all_finite(image, input_name=name)
    if n_features is not None and image.shape[2] != n_features:
        raise ValueError(
            f"{name} must have {n_features} features per pixel, as {as_in}, got {image.shape[2]}."
        )
    return image


def _float_type(dtype):
    # Half the memory where float32 holds every value: integers of up to 16 bits, as in most images.
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


def as_numbers(example, name):
    """Return an array of real numbers of any shape, or raise an error that names it."""
    if np.ma.is_masked(example):
        raise ValueError(f"{name} must not be masked: masks hide labels, features must all be present.")
    try:
        array = np.asarray(example)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    if array.dtype.kind in "buif":
        return array
    if array.dtype.kind != "O":
        hint = " Complex data not supported." if array.dtype.kind == "c" else ""
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}.{hint}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}") from error


def as_rows(features, name, n_features=None, as_in="in fit"):
    """Validate the features of the sites of one example.

    Parameters
    ----------
    features : array-like or sparse matrix of shape (n_sites, n_features)
        The features.
    name : str
        Their name in messages.
    n_features : int, default=None
        Number of features that they must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from.

    Returns
    -------
    rows : ndarray or CSR matrix of shape (n_sites, n_features)
        float32 where that is exact, else float64; `features` itself where possible.
    """
    rows = _as_sparse(features, name) if sparse.issparse(features) else as_numbers(features, name)
    if rows.ndim != 2:
        advice = {
            1: " One feature per site is x[:, None].",
            3: " Use PixelWise and the grid classifiers for images.",
        }
        raise ValueError(
            f"{name} must have one row per site, (n_sites, n_features), got shape {rows.shape}."
            f"{advice.get(rows.ndim, '')}"
        )
    if 0 in rows.shape:
        raise ValueError(f"{name} must have at least one site and one feature, got shape {rows.shape}.")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"{name} must have {n_features} features per site, as {as_in}, got {rows.shape[1]}.")
    if not sparse.issparse(rows):
        rows = np.ascontiguousarray(rows, dtype=_float_type(rows.dtype))
    assert_all_finite(rows.data if sparse.issparse(rows) else rows, input_name=name)
    return rows


def _as_sparse(features, name):
    if features.dtype.kind not in "buif":
        raise ValueError(f"{name} must hold real numbers, got dtype {features.dtype}.")
    return features.tocsr().astype(_float_type(features.dtype), copy=False)
