"""The border between what users hold and arrays: containers, numbers of examples, weights.

Everything here refuses bad input with the name of the argument and the index of the example.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import wraps
from os import PathLike

import numpy as np
from scipy import sparse

from skcrf.graph import ExampleError


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
