"""Metrics and scorers that pool the labelled sites of all examples.

All metrics accept labels in the forms that the estimators accept: lists or arrays of label arrays, masked
where hidden, or one 1-D array with one label per example. Hidden sites are ignored.
"""

import numpy as np
from sklearn.metrics import accuracy_score, jaccard_score
from sklearn.metrics._scorer import _BaseScorer
from sklearn.pipeline import Pipeline

from skcrf.data import ImageReader, Labels, check_weights, read_examples, sorted_classes

__all__ = [
    "SCORERS",
    "FieldScorer",
    "accuracy_scorer",
    "flattened",
    "log_loss",
    "mean_iou",
    "mean_iou_scorer",
    "neg_log_loss_scorer",
    "pooled_accuracy",
    "sequence_accuracy_score",
]


def pooled_accuracy(Y_true, Y_pred, *, missing_label=None, sample_weight=None):
    """Compute the accuracy over the labelled sites of all examples.

    Parameters
    ----------
    Y_true : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        Predicted labels.
    missing_label : object, default=None
        Value in `Y_true` that marks a hidden label; None if there is no such value.
    sample_weight : array-like of shape (n_examples,), default=None
        Weight of every site of an example.

    Returns
    -------
    accuracy : float
        Between 0 and 1.

    Examples
    --------
    >>> from skcrf.metrics import pooled_accuracy
    >>> Y_true, Y_pred = [[[0, 1], [1, 1]], [[0, -1]]], [[[0, 1], [1, 0]], [[0, 1]]]
    >>> pooled_accuracy(Y_true, Y_pred, missing_label=-1)
    0.8
    """
    y_true, y_pred, weights, _ = _labelled_sites(Y_true, Y_pred, missing_label, sample_weight)
    return accuracy_score(y_true, y_pred, sample_weight=weights)


def mean_iou(Y_true, Y_pred, *, classes=None, missing_label=None, sample_weight=None):
    """Compute the mean over classes of the intersection over union of true and predicted sites.

    Parameters
    ----------
    Y_true : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        Predicted labels.
    classes : array-like of shape (n_classes,), default=None
        Classes to average over; None for all classes. Classes that are neither true nor predicted at any
        labelled site are left out.
    missing_label : object, default=None
        Value in `Y_true` that marks a hidden label; None if there is no such value.
    sample_weight : array-like of shape (n_examples,), default=None
        Weight of every site of an example.

    Returns
    -------
    iou : float
        Between 0 and 1.

    Examples
    --------
    >>> from skcrf.metrics import mean_iou
    >>> mean_iou([[[0, 0], [1, 1]]], [[[0, 0], [0, 1]]])
    0.5833333333333333
    """
    y_true, y_pred, weights, found = _labelled_sites(Y_true, Y_pred, missing_label, sample_weight)
    chosen = np.bincount(y_true, weights, len(found)) + np.bincount(y_pred, weights, len(found)) > 0
    if classes is not None:
        chosen &= np.isin(found, sorted_classes([classes], name="classes"))
    if not chosen.any():
        raise ValueError(f"classes must include one that occurs in Y_true or Y_pred, got {list(classes)}.")
    labels = np.flatnonzero(chosen)
    return jaccard_score(y_true, y_pred, labels=labels, average="macro", sample_weight=weights)


def sequence_accuracy_score(Y_true, Y_pred, *, missing_label=None, sample_weight=None):
    """Compute the fraction of examples, such as sequences, whose labelled sites are all correct.

    Parameters
    ----------
    Y_true : sequence of array-like, or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like, or array-like of shape (n_examples,)
        Predicted labels.
    missing_label : object, default=None
        Value in `Y_true` that marks a hidden label; None if there is no such value. Examples without labels
        are ignored.
    sample_weight : array-like of shape (n_examples,), default=None
        Weight of each example.

    Returns
    -------
    accuracy : float
        Between 0 and 1.

    Examples
    --------
    >>> from skcrf.metrics import sequence_accuracy_score
    >>> sequence_accuracy_score([["a", "b"], ["b", "b", "a"]], [["a", "b"], ["b", "a", "a"]])
    0.5
    """
    true, pred, known, _, shapes = _encode_both(Y_true, Y_pred, missing_label)
    if shapes[0] == ():  # every row of a table is an example with one site
        true, pred, known = (part[0][:, None] for part in (true, pred, known))
    correct = [((a == b) | ~k).all() for a, b, k in zip(true, pred, known, strict=True)]
    weight = check_weights(sample_weight, len(correct)) * [k.any() for k in known]
    if not weight.sum() > 0:
        raise ValueError("Y_true must have a labelled example with sample_weight above 0, got none.")
    return float(np.average(correct, weights=weight))


def flattened(Y_true, Y_pred, *, missing_label=None):
    """Concatenate the labelled sites of all examples, for the metrics of scikit-learn.

    Parameters
    ----------
    Y_true : sequence of array-like, or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like, or array-like of shape (n_examples,)
        Predicted labels.
    missing_label : object, default=None
        Value in `Y_true` that marks a hidden label; None if there is no such value.

    Returns
    -------
    y_true, y_pred : ndarray of shape (n_labelled_sites,)
        True and predicted labels.

    Examples
    --------
    >>> from sklearn.metrics import f1_score
    >>> from skcrf.metrics import flattened
    >>> Y_true, Y_pred = [["a", "b"], ["b", "b", "a"]], [["a", "b"], ["b", "a", "a"]]
    >>> round(f1_score(*flattened(Y_true, Y_pred), average="weighted"), 2)
    0.8
    """
    true, pred, known, classes, _ = _encode_both(Y_true, Y_pred, missing_label)
    return classes[_concatenate(true, known)], classes[_concatenate(pred, known)]


def log_loss(Y_true, Y_proba, *, classes, missing_label=None, sample_weight=None):
    """Compute the mean negative log-probability of the true label over the labelled sites of all examples.

    Parameters
    ----------
    Y_true : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_proba : sequence of array-like of shape (height, width, n_classes), or of shape (n_examples, n_classes)
        Probabilities as returned by `predict_proba`. They are clipped to [eps, 1 - eps], where eps is the
        machine precision of their dtype.
    classes : array-like of shape (n_classes,)
        Sorted classes of the last axis of `Y_proba`.
    missing_label : object, default=None
        Value in `Y_true` that marks a hidden label; None if there is no such value.
    sample_weight : array-like of shape (n_examples,), default=None
        Weight of every site of an example.

    Returns
    -------
    loss : float
        Non-negative; smaller is better.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.metrics import log_loss
    >>> P = np.array([[[0.5, 0.5], [0.25, 0.75]]])
    >>> log_loss([[[0, 1]]], [P], classes=[0, 1])
    0.4904...
    """
    classes = check_sorted_classes(classes)
    shapes = _label_shapes(Y_true, "Y_true")
    true = check_labels(Y_true, shapes, classes, missing_label=missing_label, name="Y_true")
    if len(Y_proba) != len(shapes):
        raise ValueError(f"Y_proba must have {len(shapes)} examples, as Y_true has, got {len(Y_proba)}.")
    is_table = shapes[0] == ()
    known, losses = [y >= 0 for y in true], []
    for i, (proba, y, k) in enumerate(zip([Y_proba] if is_table else Y_proba, true, known, strict=True)):
        proba = check_proba(proba, (*y.shape, len(classes)), "Y_proba" if is_table else f"Y_proba[{i}]")
        losses.append(_negative_log_proba(proba[k], y[k]))
    weights = _site_weights(shapes, known, sample_weight)
    return float(np.average(np.concatenate(losses), weights=weights))


def _negative_log_proba(proba, y):
    # Not by scikit-learn's log_loss, which refuses a single class, warns of sums that are 1 only to single
    # precision, and encodes every site as one-hot.
    eps = np.finfo(proba.dtype).eps
    return -np.log(np.clip(proba[np.arange(len(y)), y], eps, 1 - eps))


def _labelled_sites(Y_true, Y_pred, missing_label, sample_weight):
    """Return true labels, predicted labels and weights of the labelled sites, and the classes."""
    true, pred, known, classes, shapes = _encode_both(Y_true, Y_pred, missing_label)
    # scikit-learn sorts the labels, which is faster for small integers.
    dtype = np.min_scalar_type(len(classes))
    y_true, y_pred = (_concatenate(labels, known).astype(dtype) for labels in (true, pred))
    return y_true, y_pred, _site_weights(shapes, known, sample_weight), classes


def _concatenate(arrays, known):
    return np.concatenate([array[k] for array, k in zip(arrays, known, strict=True)])


def _encode_both(Y_true, Y_pred, missing_label):
    """Encode true and predicted labels; also return masks of labelled sites, classes and shapes."""
    shapes = _label_shapes(Y_true, "Y_true")
    pred_shapes = _label_shapes(Y_pred, "Y_pred")
    if len(pred_shapes) != len(shapes):
        raise ValueError(f"Y_pred must have {len(shapes)} examples, as Y_true has, got {len(pred_shapes)}.")
    for i, (pred_shape, shape) in enumerate(zip(pred_shapes, shapes, strict=True)):
        if pred_shape != shape:
            raise ValueError(f"Y_pred[{i}] must have shape {shape}, as Y_true[{i}] has, got {pred_shape}.")
    true = Labels(Y_true, shapes, missing_label=missing_label, name="Y_true")
    pred = Labels(Y_pred, shapes, name="Y_pred")
    for i, (hidden, masked) in enumerate(zip(true.hidden, pred.hidden, strict=True)):
        n_masked = np.count_nonzero(masked & ~hidden)
        if n_masked:
            raise ValueError(
                f"Y_pred[{i}] must not be masked where Y_true[{i}] has a label, got {n_masked} masked sites."
            )
    pred.hidden = true.hidden  # predictions at hidden sites must not add classes
    classes = sorted_classes([true.classes(), pred.classes()], name="Y_true and Y_pred")
    known = [~hidden for hidden in true.hidden]
    return true.encode(classes), pred.encode(classes), known, classes, shapes


def _label_shapes(Y, name):
    """Return the shape of the labels of each example, () for each label of a 1-D array."""
    if not hasattr(Y, "__len__") or isinstance(Y, (str, bytes)):
        raise TypeError(f"{name} must be a sequence of arrays of labels, got {type(Y).__name__}.")
    if len(Y) == 0:
        raise ValueError(f"{name} must have at least one example, got none.")
    shapes = []
    for i, labels in enumerate(Y):
        try:
            shapes.append(np.shape(labels))
        except ValueError as error:
            found = type(labels).__name__
            raise ValueError(f"{name}[{i}] must be an array of labels, got {found}: {error}") from error
    if () in shapes and any(shapes):
        i = next(i for i, shape in enumerate(shapes) if (shape == ()) != (shapes[0] == ()))
        expected = "a single label" if shapes[0] == () else f"an array of shape {shapes[0]}"
        raise ValueError(f"{name}[{i}] must be like {name}[0], {expected}, got shape {shapes[i]}.")
    return shapes


def _site_weights(shapes, known, sample_weight):
    """Repeat the weight of each example for each of its labelled sites."""
    weight = check_weights(sample_weight, len(shapes))
    n_known = known[0].astype(np.int64) if shapes[0] == () else [np.count_nonzero(k) for k in known]
    weights = np.repeat(weight, n_known)
    if not weights.sum() > 0:
        raise ValueError("Y_true must have a labelled site with sample_weight above 0, got none.")
    return weights


def check_sorted_classes(classes):
    """Check that classes are sorted and distinct, and return them as an array."""
    classes = np.asarray(classes)
    if not np.array_equal(classes, np.unique(classes)):
        raise ValueError(f"classes must be sorted and distinct, got {list(classes)}.")
    return classes


def check_labels(Y, shapes, classes, *, missing_label=None, name="Y"):
    """Check labels of given shapes, and return the indices of their classes, -1 where hidden."""
    return Labels(Y, shapes, missing_label=missing_label, name=name).encode(classes)


def check_images(X):
    """Check images, and return them as arrays of shape (height, width, n_features)."""
    examples = read_examples(X, ImageReader())
    images = (examples[i] for i in range(len(examples)))
    return [image.X.reshape(*image.shape, -1) for image in images]


def check_proba(proba, shape, name):
    """Check the probabilities (..., n_classes) of one example, and return them as an array of floats."""
    proba = np.asarray(proba)
    if proba.dtype not in (np.float32, np.float64):
        proba = proba.astype(np.float64)
    if proba.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, one probability per class, got {proba.shape}.")
    if not ((proba >= 0) & (proba <= 1 + 1e-6)).all():
        raise ValueError(
            f"{name} must have probabilities between 0 and 1, got values from {proba.min()} to {proba.max()}."
        )
    total = proba.sum(axis=-1)
    if not np.allclose(total, 1.0, atol=1e-3):
        raise ValueError(
            f"{name} must have probabilities that sum to 1 over the classes, "
            f"got sums from {total.min()} to {total.max()}."
        )
    return proba


class FieldScorer(_BaseScorer):
    """Scorer of random fields, for ``scoring=`` of searches, cross-validation and callbacks.

    scikit-learn's `make_scorer` does not accept lists of images. This scorer reads `missing_label` and
    `classes_` from the estimator, or from the last step of a pipeline or the best estimator of a search.

    Parameters
    ----------
    score_func : callable
        A metric of this module, or a function ``score_func(Y_true, Y_pred, *, missing_label,
        sample_weight)``, also with ``classes`` if `response_method` is "predict_proba".
    greater_is_better : bool, default=True
        Whether `score_func` is a score. If False, it is a loss and its sign is flipped.
    response_method : {"predict", "predict_proba"}, default="predict"
        The method of the estimator whose result is passed to `score_func`.

    Examples
    --------
    >>> from skcrf.metrics import SCORERS
    >>> SCORERS["neg_log_loss"]
    FieldScorer(log_loss, greater_is_better=False, response_method='predict_proba')
    """

    def __init__(self, score_func, greater_is_better=True, response_method="predict"):
        super().__init__(score_func, 1 if greater_is_better else -1, {}, response_method)

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score an estimator.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator.
        X : sequence of array-like
            Examples.
        y : sequence of array-like
            Labels of the examples.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of every site of an example.

        Returns
        -------
        score : float
            Greater is better.
        """
        return self._score(None, estimator, X, y, sample_weight=sample_weight)

    def _score(self, method_caller, estimator, X, y_true, sample_weight=None):
        # `method_caller` would select one column of binary probabilities, as of a table.
        field = final_estimator(estimator)
        options = {"missing_label": getattr(field, "missing_label", None), "sample_weight": sample_weight}
        if self._response_method == "predict_proba":
            options["classes"] = field.classes_
        response = getattr(estimator, self._response_method)(X)
        return self._sign * self._score_func(y_true, response, **options)

    def __repr__(self):
        options = "" if self._sign > 0 else ", greater_is_better=False"
        if self._response_method != "predict":
            options += f", response_method={self._response_method!r}"
        return f"FieldScorer({self._score_func.__name__}{options})"


def final_estimator(estimator):
    """Return the last step of a pipeline, the best estimator of a search, or the estimator itself."""
    if isinstance(estimator, Pipeline):
        return final_estimator(estimator[-1])
    if hasattr(estimator, "best_estimator_"):
        return final_estimator(estimator.best_estimator_)
    return estimator


#: Scorer by `pooled_accuracy`.
accuracy_scorer = FieldScorer(pooled_accuracy)
#: Scorer by `mean_iou`.
mean_iou_scorer = FieldScorer(mean_iou)
#: Scorer by the negative `log_loss`.
neg_log_loss_scorer = FieldScorer(log_loss, greater_is_better=False, response_method="predict_proba")

#: All scorers by name.
SCORERS = {"accuracy": accuracy_scorer, "mean_iou": mean_iou_scorer, "neg_log_loss": neg_log_loss_scorer}
