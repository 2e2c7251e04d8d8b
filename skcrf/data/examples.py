"""Sequences of examples: containers, lazy sources, and validated examples."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from os import PathLike

import numpy as np
from scipy import sparse

from skcrf.graph import ExampleError
from skcrf.parallel import prefetched


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


class Source:
    """Some examples of a sequence, with the index by which the user knows them.

    Lists, tuples and arrays are cut to the chosen examples, so that a pickle holds no others. Other sequences
    are kept whole, and an example is loaded on access and not stored.

    Parameters
    ----------
    sequence : sequence
        The examples.
    name : str
        Name of the sequence in messages.
    index : array-like of shape (n_examples,), default=None
        Positions of the chosen examples; None for all.
    """

    def __init__(self, sequence, name, index=None):
        index = np.arange(len(sequence)) if index is None else np.asarray(index)
        self.name, self.index, self.places = name, index, index
        self.is_lazy = is_lazy(sequence)
        if isinstance(sequence, Source):
            self.is_lazy = sequence.is_lazy
            self.index, self.places = sequence.index[index], sequence.places[index]
            sequence = sequence.sequence
        self.sequence = sequence
        sequence = sequence.to_numpy() if hasattr(sequence, "iloc") else sequence
        if isinstance(sequence, (list, tuple, np.ndarray)):
            self.sequence, self.places = [sequence[i] for i in self.places], np.arange(len(index))
        elif hasattr(sequence, "shape") and not is_foreign_array(sequence):  # may be in memory
            with suppress(Exception):  # some accept a single integer only, and are kept whole
                self.sequence, self.places = sequence[self.places], np.arange(len(index))

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        place = int(self.places[i])
        try:
            return self.sequence[place]
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise RuntimeError(f"{self.name_of(i)} could not be loaded: {problem}") from error

    def name_of(self, i):
        """Return the name of an example in messages, such as "X[3]"."""
        return f"{self.name}[{self.index[i]}]"


class Examples:
    """Validated examples.

    Parameters
    ----------
    items : list of Example, ndarray or Source
        The examples; the rows of a table as one array; the source of examples that are read on access.
    reader : BaseReader
        Reader of examples that agree with these.
    shapes : list of tuple or None
        Shape of the labels of each example, () for the rows of a table; None if not known before loading.
    index : ndarray of shape (n_examples,), default=None
        Positions of the examples in the user's X; None for all in order.
    """

    def __init__(self, items, reader, shapes, index=None):
        self.items, self.reader, self.shapes = items, reader, shapes
        self.index = np.arange(len(items)) if index is None else index

    @property
    def is_table(self):
        """Whether the examples are the rows of a table."""
        return self.shapes is not None and self.shapes[0] == ()

    @property
    def is_lazy(self):
        """Whether the examples are read on access."""
        return isinstance(self.items, Source)

    @property
    def sizes(self):
        """ndarray of shape (n_examples,): number of sites of each example; 1 where it is not known."""
        if self.shapes is None:
            return np.ones(len(self), dtype=np.int64)
        return np.array([math.prod(shape) for shape in self.shapes])

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        if not self.is_lazy:
            return self.items[i]
        example = self.reader(self.items[i], self.name_of(i))
        if self.shapes is not None and example.shape != self.shapes[i]:
            raise ValueError(
                f"{self.name_of(i)} must have shape {self.shapes[i]}, as when first loaded, "
                f"got {example.shape}."
            )
        return example

    def name_of(self, i):
        """Return the name of an example in messages, such as "X[3]"."""
        return f"X[{self.index[i]}]"

    def select(self, chosen):
        """Return some of the examples."""
        items = Source(self.items, "X", chosen) if self.is_lazy else [self.items[i] for i in chosen]
        index = items.index if self.is_lazy else self.index[chosen]
        return Examples(items, self.reader, self.shapes and [self.shapes[i] for i in chosen], index)


def read_examples(X, reader, *, agree=True):
    """Read examples one after the other.

    Parameters
    ----------
    X : sequence of examples
        Examples of the user; if lazy, they are loaded ahead and not kept.
    reader : BaseReader
        Reader of the first example.
    agree : bool, default=True
        Whether each example must agree with those before it, beyond what `reader` already asks for.

    Returns
    -------
    examples : Examples
        The examples.
    """
    if len(X) == 0:
        raise ValueError(f"X must hold at least one {reader.one}, got none.")
    source = Source(X, "X") if is_lazy(X) else None
    loaded = X if source is None else prefetched(source.__getitem__, range(len(X)))
    items, shapes = [], []
    for i, item in enumerate(loaded):
        name = f"X[{i}]" if source is None else source.name_of(i)
        example = reader(item, name)
        reader = reader.like(example, name) if agree else reader
        shapes.append(example.shape)
        if source is None:
            items.append(example)
    return Examples(items if source is None else source, reader, shapes)


@contextmanager
def user_index(index):
    """Re-raise an ExampleError with the index of the example in the user's X."""
    try:
        yield
    except ExampleError as error:
        raise type(error)(error.problem, index[error.example]) from error


def check_weights(sample_weight, n_examples):
    """Validate `sample_weight`: return one finite weight of at least 0 per example."""
    try:
        weight = np.asarray(1.0 if sample_weight is None else sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must be an array of numbers: {error}") from error
    weight = np.full(n_examples, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (n_examples,):
        raise ValueError(
            f"sample_weight must have one weight per example, ({n_examples},), got shape {weight.shape}."
        )
    good = np.isfinite(weight) & (weight >= 0)
    if not good.all():
        i = int(np.argmin(good))
        raise ValueError(
            f"sample_weight must be finite and at least 0, got {weight[i]} in sample_weight[{i}]."
        )
    return weight
