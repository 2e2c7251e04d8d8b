"""Examples that are asked for one at a time."""

from contextlib import suppress

import numpy as np

from skcrf.data.containers import is_foreign_array, is_lazy


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
