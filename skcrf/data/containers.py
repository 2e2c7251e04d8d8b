"""Containers of examples: lists, arrays, tables, and sequences that load an example on access."""

from collections.abc import Iterator, Mapping, Sequence, Set
from os import PathLike

import numpy as np
from scipy import sparse


def is_lazy(X):
    """Return whether X is a sequence that makes or loads an example on access.

    True for objects with a length and items that are no list, tuple, table, text, dictionary or NumPy array.
    Arrays of other kinds, such as those on disk, are lazy if they hold images.
    """
    if isinstance(X, (list, tuple, str, bytes, dict, np.ndarray)) or sparse.issparse(X):
        return False
    if isinstance(X, Sequence):
        return True
    if any(hasattr(X, name) for name in ("__dataframe__", "iloc")):
        return False
    if hasattr(X, "__array__") and not (is_foreign_array(X) and X.ndim > 2):
        return False
    return hasattr(X, "__len__") and hasattr(X, "__getitem__")


def is_foreign_array(X):
    """Return whether X is an array of another library, which may be on disk."""
    return hasattr(X, "__array__") and hasattr(X, "ndim") and not isinstance(X, np.ndarray)


def has_axes(item, least=2):
    """Return whether an item has at least `least` axes, as images have."""
    try:
        return np.ndim(item) >= least
    except ValueError:  # a ragged nested list
        return False


def is_table(X, is_example=has_axes, many="images"):
    """Return whether X is a plain table, whose rows are fields of one site each.

    Parameters
    ----------
    X : object
        Value passed by the user.
    is_example : callable, default=has_axes
        Returns whether an item of a list is an example, not a row of a table.
    many : str, default="images"
        Name of several examples, for messages.

    Returns
    -------
    table : bool
        False for sequences of examples; True for anything else, so that scikit-learn's own validation
        explains the problem. Iterators, mappings, sets and lists of paths raise a TypeError.
    """
    if is_lazy(X):
        return False
    if hasattr(X, "iloc") and X.ndim == 1:  # a pandas Series, perhaps of images
        return is_table(X.to_numpy(), is_example, many)
    if sparse.issparse(X) or hasattr(X, "__dataframe__") or hasattr(X, "iloc"):
        return True
    if isinstance(X, np.ndarray):
        if X.dtype == object and X.ndim in (1, 2):
            return not any(is_example(item) for item in X)
        return X.ndim < 3
    if hasattr(X, "__array__"):
        if is_foreign_array(X) and X.ndim > 1:
            return X.ndim < 3
        return is_table(np.asarray(X), is_example, many)
    if isinstance(X, (list, tuple)):
        if X and all(isinstance(path, (str, PathLike)) for path in X):
            raise TypeError(
                f"X must be a sequence of {many}, got the path {X[0]!r} in X[0]. "
                "Use skcrf.datasets.LazyImages(paths, loader) to load images."
            )
        return len(X) > 0 and not any(is_example(item) for item in X)
    if isinstance(X, (Iterator, Mapping, Set)):
        raise TypeError(f"X must be a sequence of {many}, such as a list, got {type(X).__name__}.")
    return True


def any_lazy(X, Y, is_example=has_axes):
    """Return whether examples or labels are loaded on access; the labels of a table never are."""
    return is_lazy(X) or (is_lazy(Y) and not is_table(X, is_example))


def like_container(X, results):
    """Put one result per example into the kind of container that X is.

    Parameters
    ----------
    X : sequence
        The examples: a list, an object array or an ndarray.
    results : list of ndarray
        One per example.

    Returns
    -------
    results : list, object ndarray or ndarray
        A list for a list or a lazy sequence, an object array for an object array, one ndarray for an ndarray
        (sparse results become dense).
    """
    if isinstance(X, np.ndarray) or (hasattr(X, "__array__") and not is_lazy(X)):
        if np.asarray(X).dtype != object:
            return np.stack([result.toarray() if sparse.issparse(result) else result for result in results])
        out = np.empty(len(results), dtype=object)
        for i, result in enumerate(results):
            out[i] = result
        return out
    return list(results)
