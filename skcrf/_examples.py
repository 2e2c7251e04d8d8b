"""The border between what users hold and arrays: containers, images, weights.

Everything here refuses bad input with the name of the argument and the index of the example.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import wraps
from os import PathLike

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite


def is_lazy(X):
    """Tell whether X is a sequence that makes or loads an example when asked for it.

    Parameters
    ----------
    X : object
        What the user passed.

    Returns
    -------
    lazy : bool
        True for what has a length and items, and is no list, tuple, table, text or dictionary, and no array
        of NumPy. Arrays of other kinds, such as those on disk, are lazy where they hold images.
    """
    if isinstance(X, (list, tuple, str, bytes, dict, np.ndarray)) or sparse.issparse(X):
        return False
    if isinstance(X, Sequence):
        return True
    if any(hasattr(X, name) for name in ("__dataframe__", "iloc")):
        return False
    if hasattr(X, "__array__") and not (_is_foreign_array(X) and X.ndim > 2):
        return False
    return hasattr(X, "__len__") and hasattr(X, "__getitem__")


def _is_foreign_array(X):
    """Tell whether X is an array of another kind than NumPy's, which may be on disk: it tells its axes."""
    return hasattr(X, "__array__") and hasattr(X, "ndim") and not isinstance(X, np.ndarray)


class ExampleError(ValueError):
    """Something is wrong with one example of a batch.

    Parameters
    ----------
    problem : str
        What is wrong; "{example}" stands for the example.
    example : int
        Its number in the batch.
    """

    def __init__(self, problem, example):
        super().__init__(problem, example)
        self.problem, self.example = problem, int(example)

    def __str__(self):
        return self.problem.replace("{example}", f"example {self.example}")


class ImpossibleError(ExampleError):
    """No configuration of an example is possible."""


@contextmanager
def known_as(numbers):
    """Let problems with an example of a batch name it by the number that the user knows.

    Parameters
    ----------
    numbers : sequence of int or None
        The numbers of the examples of the batch; None where they are those in the batch.

    Yields
    ------
    nothing : None
        An `ExampleError` inside is translated.
    """
    try:
        yield
    except ExampleError as error:
        number = error.example if numbers is None else numbers[error.example]
        raise type(error)(error.problem, number) from error


def by_their_numbers(call):
    """Let what is done with a batch blame an example by the number that the user knows.

    Parameters
    ----------
    call : callable
        A method that takes a batch.

    Returns
    -------
    call : callable
        The same, with problems as `known_as` tells them.
    """

    @wraps(call)
    def translated(self, batch):
        with known_as(batch.numbers):
            return call(self, batch)

    return translated


class Source:
    """Some examples of a sequence, which are asked for one at a time and not kept.

    Parameters
    ----------
    sequence : sequence
        The examples.
    name : str
        What to call them in messages.
    index : ndarray of shape (n_examples,), default=None
        Which of them; None for all.
    """

    def __init__(self, sequence, name, index=None):
        index = np.arange(len(sequence)) if index is None else np.asarray(index)
        self.name, self.index, self.places = name, index, index
        if isinstance(sequence, Source):
            sequence, self.index, self.places = (
                sequence.sequence,
                sequence.index[index],
                sequence.places[index],
            )
        self.sequence = sequence
        # What is sent elsewhere must not hold more than the chosen examples, where that can be had.
        sequence = sequence.to_numpy() if hasattr(sequence, "iloc") else sequence
        if isinstance(sequence, (list, tuple, np.ndarray)):
            self.sequence, self.places = [sequence[i] for i in self.places], np.arange(len(index))
        elif hasattr(sequence, "shape") and not _is_foreign_array(sequence):  # whose parts may be in memory
            with suppress(Exception):  # some take one number only, and are kept whole
                self.sequence, self.places = sequence[self.places], np.arange(len(index))

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        place = int(self.places[i])
        try:
            return self.sequence[place]
        except Exception as error:
            raise RuntimeError(f"{self.called(i)} could not be loaded: {_told(error)}") from error

    def called(self, i):
        """Name an example in messages."""
        return f"{self.name}[{self.index[i]}]"


def _told(error):
    return f"{type(error).__name__}: {error}"


def has_axes(item, least=2):
    """Tell whether an item of a sequence has rows and columns, as images have.

    Parameters
    ----------
    item : object
        The item.
    least : int, default=2
        How many axes it must have.

    Returns
    -------
    has_axes : bool
        Whether it has at least so many axes.
    """
    try:
        return np.ndim(item) >= least
    except ValueError:  # a ragged nested list
        return False


def is_table(X, is_example=has_axes, many="images"):
    """Tell whether X is a plain table, whose rows are fields of one site each.

    Parameters
    ----------
    X : object
        What the user passed.
    is_example : callable, default=has_axes
        Tells whether an item of a list is an example, and not a row of a table.
    many : str, default="images"
        What examples are called in messages.

    Returns
    -------
    table : bool
        False for sequences of examples; True for all else, so that scikit-learn's own validation
        explains what is wrong with it. What cannot be either is refused.
    """
    if is_lazy(X):
        return False
    if hasattr(X, "iloc") and X.ndim == 1:  # a pandas Series, of images perhaps
        return is_table(X.to_numpy(), is_example, many)
    if sparse.issparse(X) or hasattr(X, "__dataframe__") or hasattr(X, "iloc"):
        return True
    if isinstance(X, np.ndarray):
        if X.dtype == object and X.ndim in (1, 2):
            return not any(is_example(item) for item in X)
        return X.ndim < 3
    if hasattr(X, "__array__"):
        if _is_foreign_array(X) and X.ndim > 1:
            return X.ndim < 3
        return is_table(np.asarray(X), is_example, many)
    if isinstance(X, (list, tuple)):
        if X and all(isinstance(path, (str, PathLike)) for path in X):
            raise TypeError(
                f"X[0] is {X[0]!r}, but X must be a sequence of {many}. "
                "To load images, use skcrf.datasets.LazyImages(paths, loader)."
            )
        return len(X) > 0 and not any(is_example(item) for item in X)
    if isinstance(X, (Iterator, Mapping, Set)):
        raise TypeError(f"X must be a sequence of {many}, such as a list, got {type(X).__name__}.")
    return True


def any_lazy(X, Y, is_example=has_axes):
    """Tell whether examples or their labels are loaded when asked for; the labels of a table never are.

    Parameters
    ----------
    X : object
        Examples.
    Y : object
        Their labels, or None.
    is_example : callable, default=has_axes
        As for `is_table`.

    Returns
    -------
    lazy : bool
        Whether one of them is.
    """
    return is_lazy(X) or (is_lazy(Y) and not is_table(X, is_example))


def like_container(X, results):
    """Put one result an example into the kind of container that X is.

    Parameters
    ----------
    X : sequence
        The examples: a list, an object array or an ndarray.
    results : list of ndarray
        One an example.

    Returns
    -------
    results : list, object ndarray, or ndarray
        A list for a list or what is lazy, an object array for an object array, one ndarray for one ndarray,
        which sparse results have to be made dense for.
    """
    if isinstance(X, np.ndarray) or (hasattr(X, "__array__") and not is_lazy(X)):
        if np.asarray(X).dtype != object:
            return np.stack([result.toarray() if sparse.issparse(result) else result for result in results])
        out = np.empty(len(results), dtype=object)
        for i, result in enumerate(results):
            out[i] = result
        return out
    return list(results)


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


def check_weights(sample_weight, n_examples):
    """Validate the weights of examples.

    Parameters
    ----------
    sample_weight : array-like of shape (n_examples,), float or None
        Weights; None for 1, a number for all.
    n_examples : int
        Number of examples.

    Returns
    -------
    weight : ndarray of shape (n_examples,)
        Finite, none negative.
    """
    try:
        weight = np.asarray(1.0 if sample_weight is None else sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight is not an array of numbers: {error}") from error
    weight = np.full(n_examples, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (n_examples,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, expected one weight an example: ({n_examples},)."
        )
    good = np.isfinite(weight) & (weight >= 0)
    if not good.all():
        i = int(np.argmin(good))
        raise ValueError(f"sample_weight[{i}] is {weight[i]}, expected a finite weight of at least 0.")
    return weight
