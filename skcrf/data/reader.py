"""The interface of readers: from what users pass to validated examples."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from skcrf.data.containers import has_axes


class Example(NamedTuple):
    """One validated example.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_sites, n_features)
        Features of the sites.
    shape : tuple
        Shape of its labels.
    outline : hashable
        Everything its graph depends on: the shape, or an object of its own.
    """

    X: np.ndarray
    shape: tuple
    outline: object


class BaseReader(ABC):
    """Base class of readers, which validate examples one at a time.

    A reader never changes, and is sent to the process that loads the examples.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that a site must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    """

    #: Names of one example and of several, for messages.
    one, many = "example", "examples"
    #: Description of valid examples and labels, for messages.
    advice = ""

    def __init__(self, n_features=None, as_in="in fit"):
        self.n_features = n_features
        self.as_in = as_in

    @abstractmethod
    def __call__(self, example, name):
        """Validate one example and return it as `Example`; `name` is used in messages."""

    def like(self, example, name):
        """Return the reader of the examples that follow `example`, which must agree with it."""
        return self if self.n_features is not None else type(self)(example.X.shape[1], f"in {name}")

    def is_example(self, item):
        """Return whether an item of a list is an example, not a row of a table."""
        return has_axes(item)

    def hidden_variables(self, outline):
        """Return a boolean per site that marks hidden variables, or None if there are none."""
        return None

    def check_table(self, X):
        """Raise an error if X is a list of neither examples nor rows of a table."""
        if not (
            isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1)
        ):
            return  # scikit-learn explains the problem
        shape = None
        for i, item in enumerate(X):
            if _has_words(item):
                raise TypeError(f"X[{i}] is {_shorten(item)}, but {self.advice}")
            try:
                found = np.shape(item)
            except ValueError as error:
                raise ValueError(f"X[{i}] is not an array of numbers, but {self.advice}") from error
            if shape is not None and found != shape:
                raise ValueError(f"X[{i}] has shape {found}, but X[0] has shape {shape}: {self.advice}")
            shape = found


def _has_words(item):
    """Whether an item holds strings or named features where numbers are expected."""
    inside = item if isinstance(item, (list, tuple, set)) else [item]
    return any(isinstance(one, (str, bytes, Mapping)) for one in inside)


def _shorten(item, width=60):
    text = repr(item)
    return text if len(text) <= width else f"{text[:width]}..."
