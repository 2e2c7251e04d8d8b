"""Validated examples, in memory or read again on access."""

import math
from contextlib import contextmanager

import numpy as np

from skcrf.data.containers import is_lazy
from skcrf.data.source import Source
from skcrf.graph import ExampleError
from skcrf.parallel import prefetched


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
