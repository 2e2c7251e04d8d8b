"""How what users hold becomes examples, one at a time: the same is done where they are loaded late."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from skcrf.data.arrays import as_image
from skcrf.data.containers import has_axes


class Example(NamedTuple):
    """One validated example.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_sites, n_features)
        Features of the sites.
    shape : tuple
        The shape of its labels.
    outline : hashable
        All that its graph depends on: the shape, or an object that is made for this example alone.
    """

    X: np.ndarray
    shape: tuple
    outline: object


class BaseReader(ABC):
    """Reads examples, and refuses those that do not go together.

    It is sent to where examples are loaded, and never changes.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that a site must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    """

    #: What examples are called in messages, one and many.
    one, many = "example", "examples"
    #: What is said of labels that have a wrong shape.
    advice = ""

    def __init__(self, n_features=None, as_in="in fit"):
        self.n_features = n_features
        self.as_in = as_in

    @abstractmethod
    def __call__(self, example, name):
        """Validate one example.

        Parameters
        ----------
        example : object
            What the user passed.
        name : str
            What to call it in messages.

        Returns
        -------
        example : Example
            The same, as arrays.
        """

    def like(self, example, name):
        """Make the reader of the examples that follow one.

        Parameters
        ----------
        example : Example
            The one.
        name : str
            What to call it in messages.

        Returns
        -------
        reader : BaseReader
            What refuses examples that differ from it in what they all must have in common.
        """
        return self if self.n_features is not None else type(self)(example.X.shape[1], f"in {name}")

    def is_example(self, item):
        """Tell whether an item of a list is an example, and not a row of a table.

        Parameters
        ----------
        item : object
            The item.

        Returns
        -------
        is_example : bool
            Whether it is.
        """
        return has_axes(item)

    def check_table(self, X):
        """Refuse a list of what is neither examples nor rows of a table.

        Parameters
        ----------
        X : object
            What has no examples in it.
        """
        if not (
            isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1)
        ):
            return  # scikit-learn explains what is wrong with it
        shape = None
        for i, item in enumerate(X):
            if _has_words(item):
                raise TypeError(f"X[{i}] is {_shortened(item)}, but {self.advice}")
            try:
                found = np.shape(item)
            except ValueError as error:
                raise ValueError(f"X[{i}] is not an array of numbers, but {self.advice}") from error
            if shape is not None and found != shape:
                raise ValueError(f"X[{i}] has shape {found}, but X[0] has shape {shape}: {self.advice}")
            shape = found


def _has_words(item):
    """Tell whether something is words or names features, where a row of numbers could stand."""
    inside = item if isinstance(item, (list, tuple, set)) else [item]
    return any(isinstance(one, (str, bytes, Mapping)) for one in inside)


def _shortened(item, width=60):
    text = repr(item)
    return text if len(text) <= width else f"{text[:width]}..."


class Images(BaseReader):
    """Reads images of shape (height, width) or (height, width, n_features).

    Parameters
    ----------
    n_features : int, default=None
        Number of features that a pixel must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    """

    one, many = "image", "images"
    advice = "images are (height, width, n_features), labels (height, width), one image is [image]."

    def __call__(self, example, name):
        """Validate one image, as `BaseReader` says."""
        image = as_image(example, name, self.n_features, self.as_in)
        shape = image.shape[:2]
        return Example(image.reshape(-1, image.shape[2]), shape, shape)
