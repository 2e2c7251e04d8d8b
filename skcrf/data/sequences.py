"""Reading sequences."""

from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from numbers import Real

import numpy as np

from skcrf.data.arrays import as_rows
from skcrf.data.containers import has_axes
from skcrf.data.readers import BaseReader, Example

# Types of values of features that need no look at the value.
_PLAIN = {str, bool, int}


def _is_named(item):
    """Tell whether an item of a sequence names its features: a dictionary, or a list of names."""
    names = isinstance(item, (list, tuple, set)) and all(isinstance(name, str) for name in item)
    return isinstance(item, Mapping) or names


class Sequences(BaseReader):
    """Reads sequences: arrays, sparse matrices, or lists of dictionaries of features.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that an item must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    vectorizer : DictVectorizer, default=None
        Fitted, for dictionaries; None for arrays.
    """

    one, many = "sequence", "sequences"
    advice = (
        "sequences are (length, n_features) or lists of dictionaries of features, labels (length,), "
        "one sequence is [sequence]."
    )

    def __init__(self, n_features=None, as_in="in fit", vectorizer=None):
        super().__init__(n_features, as_in)
        self.vectorizer = vectorizer

    def __call__(self, example, name):
        """Validate one sequence, as `BaseReader` says."""
        check_named(example, self.vectorizer is not None, name, self.as_in)
        if self.vectorizer is not None:
            example = self.vectorizer.transform(checked_names(example, name))
        rows = as_rows(example, name, self.n_features, self.as_in)
        return Example(rows, rows.shape[:1], rows.shape[:1])

    def like(self, example, name):
        known = self.n_features is not None
        return self if known else Sequences(example.X.shape[1], f"in {name}", self.vectorizer)

    def is_example(self, item):
        return has_axes(item) or has_names(item)


def has_names(example):
    """Tell whether a sequence is a list, or an array of objects, of items that name their features.

    Parameters
    ----------
    example : object
        What the user passed.

    Returns
    -------
    has_names : bool
        Whether it is.
    """
    if isinstance(example, np.ndarray):
        # All of them: a table of objects may hold a dictionary by mistake.
        return (
            example.dtype == object
            and example.ndim == 1
            and example.size > 0
            and all(map(_is_named, example))
        )
    return isinstance(example, (list, tuple)) and len(example) > 0 and _is_named(example[0])


def check_named(example, expected, name, as_in):
    """Refuse a sequence that names its features where others do not, or the other way round.

    Parameters
    ----------
    example : object
        What the user passed.
    expected : bool
        Whether features have names.
    name : str
        What to call the sequence in messages.
    as_in : str
        Where that is known from.
    """
    named = has_names(example)
    if named != expected:
        what = "is empty" if _is_empty(example) else "is an array"
        found, wanted = ("names its features", "arrays") if named else (what, "dictionaries")
        raise TypeError(f"{name} {found}, but {wanted} are expected, as {as_in}.")


def _is_empty(example):
    return getattr(example, "size", None) == 0 or (isinstance(example, (list, tuple)) and not example)


def checked_names(sequence, name):
    """Make dictionaries of a sequence whose items name their features.

    Parameters
    ----------
    sequence : list of dict or of list of str
        The items; the names in a list have the value 1.
    name : str
        What to call the sequence in messages.

    Returns
    -------
    items : list of dict
        Features of each item: numbers, bools, strings or lists of strings by name.
    """
    items = []
    for i, item in enumerate(sequence):
        if not _is_named(item):
            raise TypeError(f"{name}[{i}] is {item!r}, expected a dictionary of features.")
        item = item if isinstance(item, Mapping) else dict.fromkeys(item, 1.0)
        if not (_PLAIN.issuperset(map(type, item.values())) and {str}.issuperset(map(type, item))):
            called = f"{name}[{i}]"
            item = {feature: _checked(value, feature, called) for feature, value in item.items()}
        items.append(item)
    return items


def _checked(value, feature, name):
    """Refuse a value of a feature that has no meaning as one."""
    if not isinstance(feature, str):
        raise TypeError(f"{name} has the feature {feature!r}, expected names of features to be strings.")
    if isinstance(value, str) or (type(value) is float and isfinite(value)):  # most are
        return value
    if isinstance(value, (np.bool_, np.ndarray)):
        return _checked(value.tolist(), feature, name)
    if isinstance(value, (Real, Decimal)):
        if not isfinite(value):
            raise ValueError(
                f"{name}[{feature!r}] is {value}, expected a finite number: leave out what is unknown."
            )
        return value
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(one, str) for one in value):
        return value
    hint = "."
    if isinstance(value, Mapping):
        hint = f": give its parts names of their own, such as '{feature}:{next(iter(value), '')}'."
    found = "a dictionary" if isinstance(value, Mapping) else f"{value!r}"
    raise TypeError(
        f"{name}[{feature!r}] is {found}, expected a number, a bool, a string or a list of strings{hint}"
    )
