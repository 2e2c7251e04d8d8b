"""Sequences that make an example on access."""

import numpy as np


class LazyList:
    """The least that a lazy sequence has; counts how often each example was loaded."""

    def __init__(self, examples):
        self.examples = examples
        self.loaded = np.zeros(len(examples), dtype=int)

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        if not isinstance(i, int):
            raise TypeError(f"only ints, got {i!r}")
        self.loaded[i] += 1
        example = self.examples[i]
        return example.copy() if isinstance(example, np.ndarray) else example


class ArrayOnDisk(LazyList):
    """An array of another library, such as h5py or zarr; counts how often it was read as a whole."""

    def __init__(self, array):
        super().__init__(array)
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype
        self.read_whole = 0

    def __array__(self, dtype=None, copy=None):
        self.read_whole += 1
        return np.array(self.examples, dtype=dtype)
