"""Labels of fields: validated, with what is hidden, as indices of classes."""

from numbers import Number

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from skcrf.data.containers import Source
from skcrf.parallel import prefetched


class Labels:
    """The labels of examples, with what is hidden.

    Parameters
    ----------
    Y : sequence of array-like
        One array of labels an example, masked where hidden; or one 1-D array, a label an example.
    shapes : list of tuple
        The shape that the labels of each example must have, () for tables.
    missing_label : object, default=None
        The value that stands for a hidden label; None for none.
    name : str, default="Y"
        What to call them in messages.
    advice : str, default=""
        What to say of labels of a wrong shape.

    Attributes
    ----------
    values : list of ndarray
        The labels of each example.
    hidden : list of ndarray of bool
        True where there is no label.
    """

    def __init__(self, Y, shapes, *, missing_label=None, name="Y", advice=""):
        self.name = name
        if Y is None:
            raise ValueError(
                f"This estimator requires y to be passed, but the target y is None ({name}=None)."
            )
        is_table = bool(shapes) and shapes[0] == ()
        if is_table:
            examples = [_as_table_labels(Y, name)]
            shapes = [(len(shapes),)]
        else:
            if not hasattr(Y, "__len__") or isinstance(Y, (str, bytes)):
                raise TypeError(f"{name} must be a sequence of arrays of labels, got {type(Y).__name__}.")
            examples = Y
        if len(examples) != len(shapes):
            raise ValueError(f"{name} holds {len(examples)} examples, but X holds {len(shapes)}.")
        self.values, self.hidden = [], []
        for i, (labels, shape) in enumerate(zip(examples, shapes, strict=True)):
            called = name if is_table else f"{name}[{i}]"
            check_shape(labels, shape, f"{name}[{i}]", f"X[{i}]", advice)
            values, hidden = read_labels(labels, missing_label, called)
            self.values.append(values)
            self.hidden.append(hidden)

    def classes(self):
        """Find the sorted union of the labels.

        Returns
        -------
        classes : ndarray of shape (n_classes,)
            All labels that are not hidden.
        """
        examples = zip(self.values, self.hidden, strict=True)
        found = [_count(*example, f"{self.name}[{i}]")[0] for i, example in enumerate(examples)]
        return _union(found, self.name)

    def encode(self, classes):
        """Turn labels into indices of classes.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Sorted labels.

        Returns
        -------
        y : list of ndarray of int64
            Indices into `classes`, -1 where hidden.
        """
        examples = zip(self.values, self.hidden, strict=True)
        return [encode_labels(*example, classes, f"{self.name}[{i}]") for i, example in enumerate(examples)]


class LazyLabels:
    """The labels of examples that are loaded when asked for: seen once to be checked and counted.

    Parameters
    ----------
    Y : sequence of array-like
        One array of labels an example, masked where hidden.
    shapes : list of tuple
        The shape that the labels of each example must have.
    missing_label : object, default=None
        The value that stands for a hidden label; None for none.
    name : str, default="Y"
        What to call them in messages.
    advice : str, default=""
        What to say of labels of a wrong shape.
    """

    def __init__(self, Y, shapes, *, missing_label=None, name="Y", advice=""):
        self.name = name
        if len(Y) != len(shapes):
            raise ValueError(f"{name} holds {len(Y)} examples, but X holds {len(shapes)}.")
        source, self.found = Source(Y, name), []
        for i, labels in enumerate(prefetched(source.__getitem__, range(len(source)))):
            check_shape(labels, shapes[i], f"{name}[{i}]", f"X[{i}]", advice)
            values, hidden = read_labels(labels, missing_label, f"{name}[{i}]")
            self.found.append(_count(values, hidden, f"{name}[{i}]"))

    def classes(self):
        """Find the sorted union of the labels.

        Returns
        -------
        classes : ndarray of shape (n_classes,)
            All labels that are not hidden.
        """
        return _union([labels for labels, _ in self.found], self.name)

    def counts(self, classes):
        """Count the labels of each example.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Sorted labels.

        Returns
        -------
        counts : ndarray of shape (n_examples, n_classes)
            How many sites have each label.
        """
        counts = np.zeros((len(self.found), len(classes)), dtype=np.int64)
        for i, (labels, numbers) in enumerate(self.found):
            hidden = np.zeros(len(labels), dtype=bool)
            counts[i, encode_labels(labels, hidden, classes, f"{self.name}[{i}]")] = numbers
        return counts


def check_shape(labels, shape, name, example, advice=""):
    """Refuse labels that do not have the shape that the example needs.

    Parameters
    ----------
    labels : array-like
        Labels of one example.
    shape : tuple
        The shape they must have.
    name, example : str
        What to call labels and example in the message.
    advice : str, default=""
        What to say of them.
    """
    found = _as_array(labels, name).shape
    if found != tuple(shape):
        needed = f"{example} needs labels of shape {tuple(shape)}"
        raise ValueError(f"{name} has shape {found}, but {needed}{': ' * bool(advice)}{advice}")


def read_labels(labels, missing_label, name):
    """Find what is hidden in the labels of one example.

    Parameters
    ----------
    labels : array-like
        Labels, masked where hidden.
    missing_label : object
        The value that stands for a hidden label; None for none.
    name : str
        What to call them in messages.

    Returns
    -------
    values : ndarray
        Labels.
    hidden : ndarray of bool
        True where there is none.
    """
    labels = _as_array(labels, name)
    values, hidden = np.ma.getdata(labels), np.ma.getmaskarray(labels)
    if missing_label is not None:
        hidden = hidden | _equals(values, missing_label)
    if values.dtype == object:
        _check_kinds(values[~hidden], name)
    if values.dtype.kind == "f" and not hidden.all():
        # masked and missing entries may well be nan
        assert_all_finite(values[~hidden], input_name=name)
    return values, hidden


def _as_array(labels, name):
    """Make an array of labels, masked if they are; of objects where NumPy would make strings of numbers."""
    if np.ma.isMaskedArray(labels):
        return labels
    try:
        values = np.asarray(labels)
    except ValueError as error:
        raise ValueError(f"{name} is not an array of labels: {error}") from error
    if values.dtype.kind == "U" and not hasattr(labels, "dtype"):
        objects = np.array(labels, dtype=object)
        return values if all(isinstance(label, str) for label in objects.flat) else objects
    return values


def _check_kinds(labels, name):
    """Refuse objects that are not all strings or all numbers."""
    for label in labels:
        if not isinstance(label, (str, bytes, Number, np.bool_)) or _is_nan(label):
            raise TypeError(
                f"{name} holds the label {label!r}, expected all numbers or all strings; hide labels by a "
                "masked array, or by a number or string that missing_label names."
            )
    _refuse_mixed(labels, name)


def _refuse_mixed(labels, name):
    if len({isinstance(label, str) for label in labels}) > 1:
        raise TypeError(f"{name} mixes strings and numbers as labels.")


def encode_labels(values, hidden, classes, name):
    """Turn the labels of one example into indices of classes.

    Parameters
    ----------
    values : ndarray
        Labels.
    hidden : ndarray of bool
        True where there is none.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    name : str
        What to call them in messages.

    Returns
    -------
    y : ndarray of int64
        Indices into `classes`, -1 where hidden; of the shape of `values`.
    """
    y = np.full(values.shape, -1, dtype=np.int64)
    known = values[~hidden]
    if known.dtype == object:
        known = np.array(known.tolist(), dtype=None if len(known) else classes.dtype)
    try:
        index = np.searchsorted(classes, known).clip(max=len(classes) - 1)
        unseen = known[classes[index] != known]
    except TypeError:  # strings against numbers
        index, unseen = None, known
    if len(unseen):
        raise ValueError(
            f"{name} holds the label {unseen[:1].tolist()[0]!r}, "
            f"which is not among the classes {classes.tolist()}."
        )
    y[~hidden] = index
    return y


def _count(values, hidden, name):
    try:
        return np.unique(values[~hidden], return_counts=True)
    except TypeError as error:
        raise TypeError(
            f"{name} holds labels that cannot be sorted ({error}), expected all numbers or "
            "all strings; mask hidden ones, or name their value by missing_label."
        ) from error


def _union(found, name):
    found = [labels for labels in found if len(labels)]
    if not found:
        raise ValueError(f"Every label in {name} is hidden: at least one is needed.")
    return sorted_classes(found, name=name)


def sorted_classes(found, *, name):
    """Merge labels into one sorted array of classes.

    Parameters
    ----------
    found : list of array-like
        Labels.
    name : str
        The argument they came from.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
        Sorted union.
    """
    labels = [label for part in found for label in (part.tolist() if hasattr(part, "tolist") else part)]
    _refuse_mixed(labels, name)
    classes = np.unique(np.array(labels))
    try:
        check_classification_targets(np.tile(classes, 3))  # many that come once would look continuous
    except ValueError as error:
        some = ", ".join(map(repr, classes[:3].tolist()))
        raise ValueError(f"{name} has labels such as {some}. {error}") from error
    return classes


def _as_table_labels(Y, name):
    labels = _as_array(Y, name)
    if labels.ndim > 1 and labels.shape[1:] != (1,):
        raise ValueError(
            f"y has shape {labels.shape}, but X is a table, whose rows have one label each. "
            "If X is one example, pass [X] and [y]; if each row is an example of one feature a site, "
            "give it an axis of features: x[:, None]."
        )
    values = column_or_1d(np.ma.getdata(labels), warn=True)
    hidden = np.ma.getmaskarray(labels).ravel()
    return np.ma.masked_array(values, hidden) if hidden.any() else values


def _equals(values, missing_label):
    if np.ndim(missing_label) > 0:
        raise TypeError(f"missing_label must be one value, got {missing_label!r}.")
    if values.dtype == object:  # one by one: whether NA of pandas equals something is neither true nor false
        same = [_is_same(label, missing_label) for label in values.flat]
        return np.array(same, dtype=bool).reshape(values.shape)
    if _is_nan(missing_label):
        return np.broadcast_to(values != values, values.shape)
    return np.broadcast_to(values == missing_label, values.shape)


def _is_same(label, missing_label):
    return _holds(label == missing_label) or (_is_nan(label) and _is_nan(missing_label))


def _is_nan(value):
    return not _holds(value == value)  # nan differs from itself, and so does NA of pandas


def _holds(comparison):
    return isinstance(comparison, (bool, np.bool_)) and bool(comparison)
