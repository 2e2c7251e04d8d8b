"""Labels: validation, hidden labels, classes, and encoding as class indices."""

from numbers import Number

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from skcrf.data.examples import Source
from skcrf.parallel import prefetched


class Labels:
    """Validated labels of examples.

    Parameters
    ----------
    Y : sequence of array-like, or Source
        One array of labels per example, masked where hidden; or one 1-D array with a label per example.
    shapes : list of tuple
        Shape that the labels of each example must have, () for tables.
    missing_label : object, default=None
        Value of a hidden label; None for none.
    name : str, default="Y"
        Name of the labels in messages.
    advice : str, default=""
        Advice for labels of a wrong shape.
    keep : bool, default=True
        Whether to keep labels in memory. If not, they are loaded here to be validated and counted, and again
        whenever they are needed.

    Attributes
    ----------
    is_lazy : bool
        Whether the labels are loaded on access.
    values : list of ndarray
        Labels of each example; empty if lazy.
    hidden : list of ndarray of bool
        True where a label is hidden; empty if lazy.
    index : sequence of int
        Positions of the examples in the user's Y, for messages.
    """

    def __init__(self, Y, shapes, *, missing_label=None, name="Y", advice="", keep=True):
        self.name, self.missing_label, self.advice = name, missing_label, advice
        if Y is None:
            raise ValueError(
                f"This estimator requires y to be passed, but the target y is None ({name}=None)."
            )
        is_table = bool(shapes) and shapes[0] == ()
        self.is_lazy = not (keep or is_table)
        if is_table:
            Y, shapes = [_as_table_labels(Y, name)], [(len(shapes),)]
        elif not hasattr(Y, "__len__") or isinstance(Y, (str, bytes)):
            raise TypeError(f"{name} must be a sequence of arrays of labels, got {type(Y).__name__}.")
        if len(Y) != len(shapes):
            raise ValueError(f"{name} must hold {len(shapes)} examples, as X does, got {len(Y)}.")
        self.index = Y.index if isinstance(Y, Source) else range(len(Y))
        self.values, self.hidden, self._counts = [], [], []
        self.source = Source(Y, name) if self.is_lazy else None
        loaded = prefetched(self.source.__getitem__, range(len(Y))) if self.is_lazy else Y
        for i, labels, shape in zip(self.index, loaded, shapes, strict=True):
            check_shape(labels, shape, f"{name}[{i}]", f"X[{i}]", advice)
            values, hidden = read_labels(labels, missing_label, name if is_table else f"{name}[{i}]")
            if self.is_lazy:
                self._counts.append(_count(values, hidden, f"{name}[{i}]"))
            else:
                self.values.append(values)
                self.hidden.append(hidden)

    def _label_counts(self):
        """Return the labels of each example and how often each occurs."""
        if not self._counts:
            examples = zip(self.values, self.hidden, self.index, strict=True)
            self._counts = [_count(*example, f"{self.name}[{i}]") for *example, i in examples]
        return self._counts

    def classes(self):
        """Return the sorted union of all labels that are not hidden."""
        found = [labels for labels, _ in self._label_counts() if len(labels)]
        if not found:
            raise ValueError(f"{self.name} must have at least one label that is not hidden, got none.")
        return sorted_classes(found, name=self.name)

    def counts(self, classes):
        """Count the labels of each example: an array of shape (n_examples, n_classes)."""
        counts = np.zeros((len(self._label_counts()), len(classes)), dtype=np.int64)
        for row, i, (labels, numbers) in zip(counts, self.index, self._label_counts(), strict=True):
            hidden = np.zeros(len(labels), dtype=bool)
            row[encode_labels(labels, hidden, classes, f"{self.name}[{i}]")] = numbers
        return counts

    def encode(self, classes):
        """Return the labels as class indices, -1 where hidden: a sequence with one array per example."""
        if self.is_lazy:
            return LazyClassIndices(self.source, classes, self.missing_label, self.advice)
        examples = zip(self.values, self.hidden, self.index, strict=True)
        return [encode_labels(*example, classes, f"{self.name}[{i}]") for *example, i in examples]


class LazyClassIndices:
    """Class indices of labels that are loaded on access."""

    def __init__(self, source, classes, missing_label, advice):
        self.source, self.classes = source, classes
        self.missing_label, self.advice = missing_label, advice

    def __len__(self):
        return len(self.source)

    def select(self, index):
        """Return the labels of some examples."""
        return LazyClassIndices(
            Source(self.source, self.source.name, index), self.classes, self.missing_label, self.advice
        )

    def read(self, i, shape, example):
        """Load and encode the labels of an example of a shape; `example` names it in messages."""
        labels, name = self.source[i], self.source.name_of(i)
        check_shape(labels, shape, name, example, self.advice)
        values, hidden = read_labels(labels, self.missing_label, name)
        return encode_labels(values, hidden, self.classes, name)


def check_shape(labels, shape, name, example, advice=""):
    """Raise an error if labels do not have the shape that the example needs."""
    found = _as_array(labels, name).shape
    if found != tuple(shape):
        expected = f"{name} must have shape {tuple(shape)}, as {example} needs"
        raise ValueError(f"{expected}, got {found}{': ' * bool(advice)}{advice}")


def read_labels(labels, missing_label, name):
    """Return the labels of one example and a boolean array that is True where they are hidden."""
    labels = _as_array(labels, name)
    values, hidden = np.ma.getdata(labels), np.ma.getmaskarray(labels)
    if missing_label is not None:
        hidden = hidden | _equals(values, missing_label)
    if values.dtype == object:
        _check_types(values[~hidden], name)
    if values.dtype.kind == "f" and not hidden.all():
        # masked and missing entries may be nan
        assert_all_finite(values[~hidden], input_name=name)
    return values, hidden


def _as_array(labels, name):
    """Return an array of labels, masked if they are; of objects where NumPy would turn numbers to strings."""
    if np.ma.isMaskedArray(labels):
        return labels
    try:
        values = np.asarray(labels)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of labels: {error}") from error
    if values.dtype.kind == "U" and not hasattr(labels, "dtype"):
        objects = np.array(labels, dtype=object)
        return values if all(isinstance(label, str) for label in objects.flat) else objects
    return values


def _check_types(labels, name):
    """Raise an error unless objects are all strings or all numbers."""
    for label in labels:
        if not isinstance(label, (str, bytes, Number, np.bool_)) or _is_nan(label):
            raise TypeError(
                f"{name} must hold all numbers or all strings, got the label {label!r}. Hide labels by a "
                "masked array, or by a number or string given as missing_label."
            )
    _check_not_mixed(labels, name)


def _check_not_mixed(labels, name):
    if len({isinstance(label, str) for label in labels}) > 1:
        raise TypeError(f"{name} must hold all numbers or all strings, got both.")


def encode_labels(values, hidden, classes, name):
    """Return the labels of one example as indices into `classes`, -1 where hidden."""
    all_known = not hidden.any()
    known = values.ravel() if all_known else values[~hidden]
    if known.dtype == object:
        known = np.array(known.tolist(), dtype=None if len(known) else classes.dtype)
    try:
        index = np.minimum(np.searchsorted(classes, known), len(classes) - 1)
        unseen = known[classes[index] != known]
    except TypeError:  # strings against numbers
        index, unseen = None, known
    if len(unseen):
        raise ValueError(
            f"{name} must hold labels among the classes {classes.tolist()}, got {unseen[:1].tolist()[0]!r}."
        )
    if all_known:
        return index.reshape(values.shape)
    y = np.full(values.shape, -1, dtype=np.int64)
    y[~hidden] = index
    return y


def _count(values, hidden, name):
    try:
        return np.unique(values[~hidden], return_counts=True)
    except TypeError as error:
        raise TypeError(
            f"{name} must hold all numbers or all strings, got labels that cannot be sorted ({error}). "
            "Mask hidden labels, or give their value as missing_label."
        ) from error


def sorted_classes(found, *, name):
    """Merge lists of labels into one sorted array of classes; `name` is the argument they came from."""
    labels = [label for part in found for label in (part.tolist() if hasattr(part, "tolist") else part)]
    _check_not_mixed(labels, name)
    classes = np.unique(np.array(labels))
    try:
        check_classification_targets(np.tile(classes, 3))  # many labels that occur once look continuous
    except ValueError as error:
        some = ", ".join(map(repr, classes[:3].tolist()))
        raise ValueError(f"{name} must hold class labels, got labels such as {some}. {error}") from error
    return classes


def check_classes(classes, missing_label):
    """Validate the classes that a user lists, and return them sorted."""
    if np.ndim(classes) != 1 or len(classes) == 0:
        raise ValueError(f"classes must be a list of labels, got {classes!r}.")
    classes = sorted_classes([classes], name="classes")
    if missing_label is not None and missing_label in classes.tolist():
        raise ValueError(f"classes must not hold missing_label={missing_label!r}, which marks hidden labels.")
    return classes


def _as_table_labels(Y, name):
    labels = _as_array(Y, name)
    if labels.ndim > 1 and labels.shape[1:] != (1,):
        raise ValueError(
            f"y must have one label per row, as X is a table, got shape {labels.shape}. "
            "If X is one example, pass [X] and [y]; if each row is an example with one feature per site, "
            "add an axis of features: x[:, None]."
        )
    values = column_or_1d(np.ma.getdata(labels), warn=True)
    hidden = np.ma.getmaskarray(labels).ravel()
    return np.ma.masked_array(values, hidden) if hidden.any() else values


def _equals(values, missing_label):
    if np.ndim(missing_label) > 0:
        raise TypeError(f"missing_label must be one value, got {missing_label!r}.")
    if values.dtype == object:  # element by element: pandas.NA == x is neither true nor false
        same = [_is_same(label, missing_label) for label in values.flat]
        return np.array(same, dtype=bool).reshape(values.shape)
    if _is_nan(missing_label):
        return np.broadcast_to(values != values, values.shape)
    return np.broadcast_to(values == missing_label, values.shape)


def _is_same(label, missing_label):
    return _is_true(label == missing_label) or (_is_nan(label) and _is_nan(missing_label))


def _is_nan(value):
    return not _is_true(value == value)  # nan differs from itself, and so does pandas.NA


def _is_true(comparison):
    return isinstance(comparison, (bool, np.bool_)) and bool(comparison)
