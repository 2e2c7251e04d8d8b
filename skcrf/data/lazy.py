"""Batches whose examples are loaded for each evaluation."""

import math
from typing import NamedTuple

import numpy as np

from skcrf.data.batches import Reading, field_batch, refuse_labelled
from skcrf.data.containers import Source
from skcrf.data.labels import check_shape, encode_labels, read_labels
from skcrf.models.structures import DirectedStructure


class LazyBatch(NamedTuple):
    """Several examples that are loaded for each evaluation: the recipe of a `Batch`.

    Attributes
    ----------
    X : Source
        Where the examples come from.
    Y : Source or None
        Where their labels come from; None where nothing is known.
    reading : Reading
        How they are read.
    weight : ndarray of shape (n_examples,)
        Weight of each example.
    shapes : list of tuple or None
        Shapes that were seen before, which examples must have again.
    n_labels : float
        Weight of the labelled sites.
    """

    X: Source
    Y: Source | None
    reading: Reading
    weight: np.ndarray
    shapes: list | None = None
    n_labels: float = 0.0

    is_lazy = True
    #: Only the recipe has to be kept.
    nbytes = 0

    @property
    def is_linear(self):
        """Whether the potentials are linear in the weights: not those of a directed model."""
        return not isinstance(self.reading.structure, DirectedStructure)

    @property
    def n_examples(self):
        """Number of examples."""
        return len(self.weight)

    @property
    def n_sites(self):
        """Number of sites of all examples; 0 where it is not known."""
        return sum(math.prod(shape) for shape in self.shapes or [])

    def fetch(self):
        """Load the examples and their labels.

        Returns
        -------
        examples : list of Example
            The examples.
        labels : list of ndarray of shape (n_sites,)
            Their labels, -1 where hidden.
        """
        examples, labels = [], []
        for i in range(self.n_examples):
            example = self.reading.reader(self.X[i], self.X.called(i))
            shape = example.shape
            if self.shapes is not None and shape != self.shapes[i]:
                raise ValueError(
                    f"{self.X.called(i)} has shape {shape}, but it had {self.shapes[i]} when first loaded."
                )
            examples.append(example)
            labels.append(self._labels(i, shape))
            if self.n_labels:
                refuse_labelled(example.outline, labels[-1], self.Y.called(i))
        return examples, labels

    def _labels(self, i, shape):
        if self.Y is None:
            return np.full(math.prod(shape), -1)
        labels, name = self.Y[i], self.Y.called(i)
        check_shape(labels, shape, name, self.X.called(i), self.reading.reader.advice)
        values, hidden = read_labels(labels, self.reading.missing_label, name)
        return encode_labels(values, hidden, self.reading.classes, name).ravel()

    def made(self, loaded):
        """Put together what was loaded.

        Parameters
        ----------
        loaded : tuple
            What `fetch` gave.

        Returns
        -------
        batch : Batch
            The examples.
        """
        return field_batch(*loaded, self.weight, self.reading, self.X.index)


def lazy_batches(X, Y, reading, parts, weight, shapes=None, n_labels=None):
    """Make the recipes of batches.

    Parameters
    ----------
    X : sequence of examples
        Where the examples come from.
    Y : sequence of array-like or None
        Where their labels come from; None where nothing is known.
    reading : Reading
        How examples are read and put together.
    parts : iterable of ndarray
        The examples of each batch.
    weight : ndarray of shape (n_examples,)
        Weight of each example.
    shapes : list of tuple, default=None
        Shapes of the examples, if they were seen before.
    n_labels : ndarray of shape (n_examples,), default=None
        Number of labelled sites of each example, if they were seen before.

    Returns
    -------
    batches : list of LazyBatch
        One for each part.
    """
    if len(X) == 0:
        raise ValueError(f"X is empty: expected at least one {reading.reader.one}.")
    if Y is not None and len(Y) != len(X):
        raise ValueError(f"Y holds {len(Y)} examples, but X holds {len(X)}.")
    return [
        LazyBatch(
            Source(X, "X", chosen),
            None if Y is None else Source(Y, "y" if n_labels is not None else "Y", chosen),
            reading,
            weight[chosen],
            None if shapes is None else [shapes[i] for i in chosen],
            0.0 if n_labels is None else float(weight[chosen] @ n_labels[chosen]),
        )
        for chosen in parts
    ]
