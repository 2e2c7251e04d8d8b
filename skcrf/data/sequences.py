"""Sequences: their reader and their chains."""

from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from numbers import Real

import numpy as np

from skcrf.data.examples import has_axes
from skcrf.data.readers import BaseReader, Example, Topology, as_rows
from skcrf.graph import chain

# Types of feature values that are valid whatever the value.
_ALWAYS_VALID = {str, bool, int}


class SequenceReader(BaseReader):
    """Reader of arrays, sparse matrices, or lists of dictionaries of features.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that an item must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    vectorizer : DictVectorizer, default=None
        Fitted vectorizer of dictionaries; None for arrays.
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
        check_named(example, self.vectorizer is not None, name, self.as_in)
        if self.vectorizer is not None:
            example = self.vectorizer.transform(as_dictionaries(example, name))
        rows = as_rows(example, name, self.n_features, self.as_in)
        return Example(rows, rows.shape[:1], rows.shape[:1])

    def like(self, example, name):
        known = self.n_features is not None
        return self if known else SequenceReader(example.X.shape[1], f"in {name}", self.vectorizer)

    def is_example(self, item):
        return has_axes(item) or has_names(item)


class ChainTopology(Topology):
    """Chains whose edges share one table."""

    def graph(self, outline):
        return chain(*outline)


def _is_named(item):
    """Return whether an item of a sequence names its features: a dictionary, or a list of names."""
    names = isinstance(item, (list, tuple, set)) and all(isinstance(name, str) for name in item)
    return isinstance(item, Mapping) or names


def has_names(example):
    """Return whether a sequence is a list or object array of items that name their features."""
    if isinstance(example, np.ndarray):
        # Check all items: a table of objects may hold a dictionary by mistake.
        return (
            example.dtype == object
            and example.ndim == 1
            and example.size > 0
            and all(map(_is_named, example))
        )
    return isinstance(example, (list, tuple)) and len(example) > 0 and _is_named(example[0])


def check_named(example, expected, name, as_in):
    """Raise an error if a sequence names its features and others do not, or the other way round."""
    named = has_names(example)
    if named != expected:
        unnamed = "an empty sequence" if _is_empty(example) else "an array"
        found, wanted = ("dictionaries", "an array") if named else (unnamed, "a list of dictionaries")
        raise TypeError(f"{name} must be {wanted}, as {as_in}, got {found}.")


def _is_empty(example):
    return getattr(example, "size", None) == 0 or (isinstance(example, (list, tuple)) and not example)


def as_dictionaries(sequence, name):
    """Return one dictionary of features per item; names in a list have the value 1."""
    items = []
    for i, item in enumerate(sequence):
        if not _is_named(item):
            raise TypeError(f"{name}[{i}] must be a dictionary of features, got {item!r}.")
        item = item if isinstance(item, Mapping) else dict.fromkeys(item, 1.0)
        if not (_ALWAYS_VALID.issuperset(map(type, item.values())) and {str}.issuperset(map(type, item))):
            where = f"{name}[{i}]"
            item = {feature: _check_value(value, feature, where) for feature, value in item.items()}
        items.append(item)
    return items


def _check_value(value, feature, name):
    """Return the value of a feature, or raise an error if it has no meaning as one."""
    if not isinstance(feature, str):
        raise TypeError(f"{name} must have strings as names of features, got {feature!r}.")
    if isinstance(value, str) or (type(value) is float and isfinite(value)):  # the usual case
        return value
    if isinstance(value, (np.bool_, np.ndarray)):
        return _check_value(value.tolist(), feature, name)
    if isinstance(value, (Real, Decimal)):
        if not isfinite(value):
            raise ValueError(
                f"{name}[{feature!r}] must be finite, got {value}. Leave out features that are unknown."
            )
        return value
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(one, str) for one in value):
        return value
    hint = ""
    if isinstance(value, Mapping):
        hint = f" Use names such as '{feature}:{next(iter(value), '')}' for its parts."
    found = "a dictionary" if isinstance(value, Mapping) else f"{value!r}"
    raise TypeError(
        f"{name}[{feature!r}] must be a number, a bool, a string or a list of strings, got {found}.{hint}"
    )
