"""From what a user passes as one example to an array of real numbers, or a refusal that names it."""

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite


def as_images(X, *, name="X", n_features=None):
    """Validate images.

    Parameters
    ----------
    X : sequence of array-like of shape (height, width) or (height, width, n_features)
        The images.
    name : str, default="X"
        What to call them in messages.
    n_features : int, default=None
        Number of features that every image must have; None for that of the first.

    Returns
    -------
    images : list of ndarray of shape (height, width, n_features)
        float32 where that is exact, else float64; C-ordered; views of what came in where that is possible.
    """
    if len(X) == 0:
        raise ValueError(f"{name} is empty: expected at least one image.")
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
        What to call it in messages.
    n_features : int, default=None
        Number of features that it must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from.

    Returns
    -------
    image : ndarray of shape (height, width, n_features)
        float32 where that is exact, else float64; C-ordered; a view of what came in where that is possible.
    """
    image = _as_image(example, name)
    if n_features is not None and image.shape[2] != n_features:
        raise ValueError(
            f"{name} has {image.shape[2]} features a pixel, but {n_features} are expected, as {as_in}."
        )
    return image


def _as_image(example, name):
    image = as_numbers(example, name)
    if image.ndim not in (2, 3):
        raise ValueError(
            f"{name} has shape {image.shape}, expected an image of shape "
            "(height, width) or (height, width, n_features)."
        )
    if image.size == 0:
        raise ValueError(
            f"{name} has shape {image.shape}: an image needs at least one pixel and one feature."
        )
    image = np.ascontiguousarray(image.reshape(*image.shape[:2], -1), dtype=_float_of(image.dtype))
    assert_all_finite(image, input_name=name)
    return image


def _float_of(dtype):
    # Half the memory where single precision holds every value: integers of up to 16 bits, as in most images.
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


def as_numbers(example, name):
    """Make an array of real numbers, and refuse what is none.

    Parameters
    ----------
    example : array-like
        The numbers.
    name : str
        What to call them in messages.

    Returns
    -------
    array : ndarray
        Of any shape and numeric dtype; what came in where that is possible.
    """
    if np.ma.is_masked(example):
        raise ValueError(f"{name} is masked: a mask hides labels, features must all be there.")
    try:
        array = np.asarray(example)
    except ValueError as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from error
    if array.dtype.kind in "buif":
        return array
    if array.dtype.kind != "O":
        hint = " Complex data not supported." if array.dtype.kind == "c" else ""
        raise ValueError(f"{name} has dtype {array.dtype}, expected real numbers.{hint}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is not an array of numbers: {error}") from error


def as_rows(features, name, n_features=None, as_in="in fit"):
    """Validate the features of the sites of one example.

    Parameters
    ----------
    features : array-like or sparse matrix of shape (n_sites, n_features)
        The features.
    name : str
        What to call them in messages.
    n_features : int, default=None
        Number of features that they must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from.

    Returns
    -------
    rows : ndarray or CSR matrix of shape (n_sites, n_features)
        float32 where that is exact, else float64; what came in where that is possible.
    """
    rows = _as_sparse(features, name) if sparse.issparse(features) else as_numbers(features, name)
    if rows.ndim != 2:
        advice = {
            1: " One feature a site is x[:, None].",
            3: " Images are for PixelWise and the classifiers of grids.",
        }
        raise ValueError(
            f"{name} has shape {rows.shape}, expected one row a site: (n_sites, n_features)."
            f"{advice.get(rows.ndim, '')}"
        )
    if 0 in rows.shape:
        raise ValueError(f"{name} has shape {rows.shape}: it needs at least one site and one feature.")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(
            f"{name} has {rows.shape[1]} features a site, but {n_features} are expected, as {as_in}."
        )
    if not sparse.issparse(rows):
        rows = np.ascontiguousarray(rows, dtype=_float_of(rows.dtype))
    assert_all_finite(rows.data if sparse.issparse(rows) else rows, input_name=name)
    return rows


def _as_sparse(features, name):
    if features.dtype.kind not in "buif":
        raise ValueError(f"{name} has dtype {features.dtype}, expected real numbers.")
    return features.tocsr().astype(_float_of(features.dtype), copy=False)
