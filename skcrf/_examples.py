"""The border between what users hold and arrays: containers, images, labels, weights.

Everything here refuses bad input with the name of the argument and the index of the example.
"""

from numbers import Real

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets


def is_table(X):
    """Tell whether X is a plain table, whose rows are fields of one site each.

    Parameters
    ----------
    X : object
        What the user passed.

    Returns
    -------
    table : bool
        False for sequences of images; True for all else, so that scikit-learn's own validation
        explains what is wrong with it.
    """
    if hasattr(X, "iloc") and X.ndim == 1:  # a pandas Series, of images perhaps
        return is_table(X.to_numpy())
    if sparse.issparse(X) or hasattr(X, "__dataframe__") or hasattr(X, "iloc"):
        return True
    if isinstance(X, np.ndarray):
        if X.dtype == object and X.ndim == 1:
            return all(_ndim(example) < 2 for example in X)
        return X.ndim < 3
    if hasattr(X, "__array__"):
        return is_table(np.asarray(X))
    if hasattr(X, "__getitem__") and hasattr(X, "__len__") and not isinstance(X, (str, bytes, dict)):
        return len(X) > 0 and all(_ndim(example) < 2 for example in X)
    return True


def _ndim(example):
    try:
        return np.ndim(example)
    except ValueError:  # a ragged nested list
        return 0


def like_container(X, results):
    """Put one result an example into the kind of container that X is.

    Parameters
    ----------
    X : sequence
        The examples: a list, an object array or an ndarray.
    results : list of ndarray
        One an example.

    Returns
    -------
    results : list, object ndarray, or ndarray
        A list for a list, an object array for an object array, one ndarray for one ndarray.
    """
    if isinstance(X, np.ndarray) or (not isinstance(X, (list, tuple)) and hasattr(X, "__array__")):
        if np.asarray(X).dtype != object:
            return np.stack(results)
        out = np.empty(len(results), dtype=object)
        for i, result in enumerate(results):
            out[i] = result
        return out
    return list(results)


def as_images(X, *, name="X", n_features=None):
    """Validate images.

    Parameters
    ----------
    X : sequence of array-like of shape (height, width) or (height, width, n_features)
        The images.
    name : str, default="X"
        What to call them in messages.
    n_features : int, default=None
        Number of features that every image must have; None for that of the first.

    Returns
    -------
    images : list of ndarray of shape (height, width, n_features)
        float32 or float64, C-ordered; views of what came in where that is possible.
    """
    if len(X) == 0:
        raise ValueError(f"{name} is empty: expected at least one image.")
    images = []
    for i, example in enumerate(X):
        image = _as_image(example, f"{name}[{i}]")
        if n_features is None:
            n_features = image.shape[2]
        elif image.shape[2] != n_features:
            raise ValueError(
                f"{name}[{i}] has {image.shape[2]} features a pixel, but {n_features} are expected"
                + (f", as in {name}[0]." if images else ", as in fit.")
            )
        images.append(image)
    return images


def _as_image(example, name):
    if np.ma.is_masked(example):
        raise ValueError(f"{name} is masked: a mask hides labels, features must all be there.")
    try:
        image = np.asarray(example)
    except ValueError as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from error
    if image.dtype.kind not in "buif":
        if image.dtype.kind != "O":
            hint = " Complex data not supported." if image.dtype.kind == "c" else ""
            raise ValueError(f"{name} has dtype {image.dtype}, expected real numbers.{hint}")
        try:
            image = image.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is not an array of numbers: {error}") from error
    if image.ndim not in (2, 3):
        raise ValueError(
            f"{name} has shape {image.shape}, expected an image of shape "
            "(height, width) or (height, width, n_features)."
        )
    if image.size == 0:
        raise ValueError(
            f"{name} has shape {image.shape}: an image needs at least one pixel and one feature."
        )
    dtype = image.dtype if image.dtype in (np.float32, np.float64) else np.float64
    image = np.ascontiguousarray(image.reshape(*image.shape[:2], -1), dtype=dtype)
    assert_all_finite(image, input_name=name)
    return image


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

    Attributes
    ----------
    values : list of ndarray
        The labels of each example.
    hidden : list of ndarray of bool
        True where there is no label.
    """

    def __init__(self, Y, shapes, *, missing_label=None, name="Y"):
        self.name = name
        if Y is None:
            raise ValueError(
                f"This estimator requires y to be passed, but the target y is None ({name}=None)."
            )
        if shapes and shapes[0] == ():
            examples = [_as_table_labels(Y)]
            shapes = [(len(shapes),)]
        else:
            if not hasattr(Y, "__len__") or isinstance(Y, (str, bytes)):
                raise TypeError(f"{name} must be a sequence of label images, got {type(Y).__name__}.")
            examples = Y
        if len(examples) != len(shapes):
            raise ValueError(f"{name} holds {len(examples)} examples, but X holds {len(shapes)}.")
        self.values, self.hidden = [], []
        for i, (labels, shape) in enumerate(zip(examples, shapes, strict=True)):
            values = np.ma.getdata(labels) if np.ma.isMaskedArray(labels) else np.asarray(labels)
            if values.shape != tuple(shape):
                raise ValueError(
                    f"{name}[{i}] has shape {values.shape}, but X[{i}] needs labels of shape {tuple(shape)}: "
                    "images are (height, width, n_features), labels (height, width), one image is [image]."
                )
            hidden = np.broadcast_to(np.ma.getmaskarray(labels), values.shape)
            if missing_label is not None:
                hidden = hidden | _equals(values, missing_label)
            if values.dtype.kind == "f" and not hidden.all():
                # masked and missing entries may well be nan
                assert_all_finite(values[~hidden], input_name=name if len(examples) == 1 else f"{name}[{i}]")
            self.values.append(values)
            self.hidden.append(hidden)

    def classes(self):
        """Find the sorted union of the labels.

        Returns
        -------
        classes : ndarray of shape (n_classes,)
            All labels that are not hidden.
        """
        found = []
        for i, (values, hidden) in enumerate(zip(self.values, self.hidden, strict=True)):
            try:
                labels = np.unique(values[~hidden])
            except TypeError as error:
                raise TypeError(
                    f"{self.name}[{i}] holds labels that cannot be sorted ({error}), expected all numbers or "
                    "all strings; mask hidden ones, or name their value by missing_label."
                ) from error
            if len(labels):
                found.append(labels)
        if not found:
            raise ValueError(f"Every label in {self.name} is hidden: at least one is needed.")
        return sorted_classes(found, name=self.name)

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
        encoded = []
        for i, (values, hidden) in enumerate(zip(self.values, self.hidden, strict=True)):
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
                    f"{self.name}[{i}] holds the label {unseen[:1].tolist()[0]!r}, "
                    f"which is not among the classes {classes.tolist()}."
                )
            y[~hidden] = index
            encoded.append(y)
        return encoded

    def encode_all(self, classes):
        """Turn labels into indices of classes, all examples in one array.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Sorted labels.

        Returns
        -------
        y : ndarray of shape (n_sites,)
            Indices into `classes` of all sites of all examples, -1 where hidden.
        """
        return np.concatenate([y.ravel() for y in self.encode(classes)])


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
    if len({isinstance(label, str) for label in labels}) > 1:
        raise TypeError(f"{name} mixes strings and numbers as labels.")
    classes = np.unique(np.array(labels))
    check_classification_targets(classes)
    return classes


def check_weights(sample_weight, n_examples):
    """Validate the weights of examples.

    Parameters
    ----------
    sample_weight : array-like of shape (n_examples,), float or None
        Weights; None for 1, a number for all.
    n_examples : int
        Number of examples.

    Returns
    -------
    weight : ndarray of shape (n_examples,)
        Finite, none negative.
    """
    try:
        weight = np.asarray(1.0 if sample_weight is None else sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight is not an array of numbers: {error}") from error
    weight = np.full(n_examples, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (n_examples,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, expected one weight an example: ({n_examples},)."
        )
    good = np.isfinite(weight) & (weight >= 0)
    if not good.all():
        i = int(np.argmin(good))
        raise ValueError(f"sample_weight[{i}] is {weight[i]}, expected a finite weight of at least 0.")
    return weight


def _as_table_labels(Y):
    labels = Y if np.ma.isMaskedArray(Y) else np.asarray(Y)
    if labels.ndim > 1 and labels.shape[1:] != (1,):
        raise ValueError(
            f"y has shape {labels.shape}, but X is a table, whose rows have one label each. "
            "If X is one image, pass [X] and [y]."
        )
    values = column_or_1d(np.ma.getdata(labels), warn=True)
    hidden = np.ma.getmaskarray(labels).ravel()
    return np.ma.masked_array(values, hidden) if hidden.any() else values


def _equals(values, missing_label):
    if isinstance(missing_label, Real) and np.isnan(missing_label):
        return np.broadcast_to(
            values != values, values.shape
        )  # nan is the one value that differs from itself
    return np.broadcast_to(values == missing_label, values.shape)
