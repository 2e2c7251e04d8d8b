"""Scores of label images: pooled over the labelled sites of all examples, which may differ in size.

All of them take labels in any form that the estimators take: lists or arrays of label arrays, masked where
hidden, or one plain 1-D array. Hidden sites count for nothing.
"""

import numpy as np
from sklearn.metrics._scorer import _BaseScorer
from sklearn.pipeline import Pipeline

from skcrf.data import Labels, check_weights, sorted_classes


def pooled_accuracy(Y_true, Y_pred, *, missing_label=None, sample_weight=None):
    """Compute the fraction of labelled sites, of all examples together, whose label is right.

    Parameters
    ----------
    Y_true : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        Predicted labels.
    missing_label : object, default=None
        The value in `Y_true` that stands for a hidden label; None for none.
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
    counts, _ = _confusion(Y_true, Y_pred, missing_label, sample_weight)
    return float(np.trace(counts) / counts.sum())


def mean_iou(Y_true, Y_pred, *, classes=None, missing_label=None, sample_weight=None):
    """Compute the intersection over union of the true and the predicted sites of a class, mean over classes.

    Parameters
    ----------
    Y_true : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        Predicted labels.
    classes : array-like of shape (n_classes,), default=None
        The classes to average over; None for all that occur, true or predicted, at a labelled site. Classes
        that do not occur have no union, and are left out.
    missing_label : object, default=None
        The value in `Y_true` that stands for a hidden label; None for none.
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
    counts, found = _confusion(Y_true, Y_pred, missing_label, sample_weight)
    both = np.diag(counts)
    either = counts.sum(axis=0) + counts.sum(axis=1) - both
    wanted = either > 0
    if classes is not None:
        wanted &= np.isin(found, sorted_classes([classes], name="classes"))
    if not wanted.any():
        raise ValueError(f"classes holds {list(classes)}, none of which occurs in Y_true or Y_pred.")
    return float(np.mean(both[wanted] / either[wanted]))


def sequence_accuracy_score(Y_true, Y_pred, *, missing_label=None, sample_weight=None):
    """Compute the fraction of examples, such as sequences, that are right at every labelled site.

    Parameters
    ----------
    Y_true : sequence of array-like, or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like, or array-like of shape (n_examples,)
        Predicted labels.
    missing_label : object, default=None
        The value in `Y_true` that stands for a hidden label; None for none. Examples without a label do not
        count.
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
    true, pred, known, _, shapes = _compared(Y_true, Y_pred, missing_label)
    if shapes[0] == ():  # a table: examples of one site
        true, pred, known = (part[0][:, None] for part in (true, pred, known))
    right = [((a == b) | ~k).all() for a, b, k in zip(true, pred, known, strict=True)]
    weight = check_weights(sample_weight, len(right)) * [k.any() for k in known]
    if not weight.sum() > 0:
        raise ValueError("No example counts: all labels in Y_true are hidden, or have weight 0.")
    return float(np.average(right, weights=weight))


def flattened(Y_true, Y_pred, *, missing_label=None):
    """Put the labelled sites of all examples after one another, for the metrics of scikit-learn.

    Parameters
    ----------
    Y_true : sequence of array-like, or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_pred : sequence of array-like, or array-like of shape (n_examples,)
        Predicted labels.
    missing_label : object, default=None
        The value in `Y_true` that stands for a hidden label; None for none.

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
    true, pred, known, classes, _ = _compared(Y_true, Y_pred, missing_label)
    y_true, y_pred = (
        np.concatenate([one[k] for one, k in zip(part, known, strict=True)]) for part in (true, pred)
    )
    return classes[y_true], classes[y_pred]


def log_loss(Y_true, Y_proba, *, classes, missing_label=None, sample_weight=None):
    """Compute minus the log-probability of the true label, mean over the labelled sites of all examples.

    Parameters
    ----------
    Y_true : sequence of array-like of shape (height, width), or array-like of shape (n_examples,)
        True labels, masked where hidden.
    Y_proba : sequence of array-like of shape (height, width, n_classes), or of shape (n_examples, n_classes)
        Probabilities, as `predict_proba` gives them. They are clipped to [eps, 1 - eps], with eps that
        of their dtype.
    classes : array-like of shape (n_classes,)
        The classes the last axis of `Y_proba` stands for, sorted.
    missing_label : object, default=None
        The value in `Y_true` that stands for a hidden label; None for none.
    sample_weight : array-like of shape (n_examples,), default=None
        Weight of every site of an example.

    Returns
    -------
    loss : float
        At least 0; smaller is better.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.metrics import log_loss
    >>> P = np.array([[[0.5, 0.5], [0.25, 0.75]]])
    >>> log_loss([[[0, 1]]], [P], classes=[0, 1])
    0.4904...
    """
    classes = _check_classes(classes)
    shapes = _shapes(Y_true, "Y_true")
    true = Labels(Y_true, shapes, missing_label=missing_label, name="Y_true").encode(classes)
    if len(Y_proba) != len(shapes):
        raise ValueError(f"Y_proba holds {len(Y_proba)} examples, but Y_true holds {len(shapes)}.")
    table = shapes[0] == ()
    probabilities = [
        _check_proba(p, (*y.shape, len(classes)), "Y_proba" if table else f"Y_proba[{i}]")
        for i, (p, y) in enumerate(zip([Y_proba] if table else Y_proba, true, strict=True))
    ]
    known = [y >= 0 for y in true]
    surprise = [_surprise(p[k], y[k]) for p, y, k in zip(probabilities, true, known, strict=True)]
    weights = _site_weights(shapes, known, sample_weight)
    return float(np.average(np.concatenate(surprise), weights=weights))


def _surprise(proba, y):
    eps = np.finfo(proba.dtype).eps
    return -np.log(np.clip(proba[np.arange(len(y)), y], eps, 1 - eps))


def _compared(Y_true, Y_pred, missing_label):
    """Encode true and predicted labels; also tell where they are known, the classes found, and shapes."""
    shapes = _shapes(Y_true, "Y_true")
    pred_shapes = _shapes(Y_pred, "Y_pred")
    if len(pred_shapes) != len(shapes):
        raise ValueError(f"Y_pred holds {len(pred_shapes)} examples, but Y_true holds {len(shapes)}.")
    for i, (pred_shape, shape) in enumerate(zip(pred_shapes, shapes, strict=True)):
        if pred_shape != shape:
            raise ValueError(f"Y_pred[{i}] has shape {pred_shape}, but Y_true[{i}] has shape {shape}.")
    true = Labels(Y_true, shapes, missing_label=missing_label, name="Y_true")
    pred = Labels(Y_pred, shapes, name="Y_pred")
    for i, (hidden, absent) in enumerate(zip(true.hidden, pred.hidden, strict=True)):
        if (absent & ~hidden).any():
            raise ValueError(f"Y_pred[{i}] is masked where Y_true[{i}] has a label.")
    pred.hidden = true.hidden  # what is predicted at hidden sites does not even make a class
    classes = sorted_classes([true.classes(), pred.classes()], name="Y_true and Y_pred")
    known = [~hidden for hidden in true.hidden]
    return true.encode(classes), pred.encode(classes), known, classes, shapes


def _confusion(Y_true, Y_pred, missing_label, sample_weight):
    """Count labelled sites: weight by (true class, predicted class), and the classes found."""
    true, pred, known, classes, shapes = _compared(Y_true, Y_pred, missing_label)
    pairs = np.concatenate([(len(classes) * a + b)[k] for a, b, k in zip(true, pred, known, strict=True)])
    weights = _site_weights(shapes, known, sample_weight)
    counts = np.bincount(pairs, weights=weights, minlength=len(classes) ** 2)
    return counts.reshape(len(classes), len(classes)), classes


def _shapes(Y, name):
    """Shapes of the labels of each example: all () for plain 1-D labels."""
    if not hasattr(Y, "__len__") or isinstance(Y, (str, bytes)):
        raise TypeError(f"{name} must be a sequence of arrays of labels, got {type(Y).__name__}.")
    if len(Y) == 0:
        raise ValueError(f"{name} is empty: expected at least one example.")
    shapes = []
    for i, labels in enumerate(Y):
        try:
            shapes.append(np.shape(labels))
        except ValueError as error:
            raise ValueError(f"{name}[{i}] is not an array of labels: {error}") from error
    if () in shapes and any(shapes):
        i = next(i for i, shape in enumerate(shapes) if (shape == ()) != (shapes[0] == ()))
        raise ValueError(f"{name}[{i}] has shape {shapes[i]}, but {name}[0] has shape {shapes[0]}.")
    return shapes


def _site_weights(shapes, known, sample_weight):
    """Repeat the weight of each example for each of its known sites, in order."""
    weight = check_weights(sample_weight, len(shapes))
    n_known = known[0].astype(np.int64) if shapes[0] == () else [np.count_nonzero(k) for k in known]
    weights = np.repeat(weight, n_known)
    if not weights.sum() > 0:
        raise ValueError("No site counts: every label in Y_true is hidden, or has weight 0 by sample_weight.")
    return weights


def _check_classes(classes):
    classes = np.asarray(classes)
    if not np.array_equal(classes, np.unique(classes)):
        raise ValueError(f"classes must be sorted and distinct, got {list(classes)}.")
    return classes


def _check_proba(proba, shape, name):
    proba = np.asarray(proba)
    if proba.dtype not in (np.float32, np.float64):
        proba = proba.astype(np.float64)
    if proba.shape != shape:
        raise ValueError(f"{name} has shape {proba.shape}, expected {shape}: one probability a class.")
    if not ((proba >= 0) & (proba <= 1 + 1e-6)).all():
        raise ValueError(f"{name} holds values that are not probabilities, between 0 and 1.")
    if not np.allclose(proba.sum(axis=-1), 1.0, atol=1e-3):
        raise ValueError(f"{name} holds probabilities of the classes that do not sum to 1.")
    return proba


class FieldScorer(_BaseScorer):
    """A scorer of estimators of fields, for ``scoring=`` of searches, cross-validation and callbacks.

    scikit-learn's own `make_scorer` cannot take lists of images. This one reads `missing_label` and
    `classes_` off the estimator that it scores, also when that is the last step of a pipeline or the best
    of a search.

    Parameters
    ----------
    score_func : callable
        A function of this module, or one of the same signature: ``score_func(Y_true, Y_pred, *,
        missing_label, sample_weight)``; also ``classes`` where it takes probabilities.
    greater_is_better : bool, default=True
        Whether `score_func` is a score, rather than a loss, whose sign is changed.
    response_method : {"predict", "predict_proba"}, default="predict"
        The method of the estimator that `score_func` wants the result of.

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
            Their labels.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of every site of an example.

        Returns
        -------
        score : float
            Greater is better.
        """
        return self._score(None, estimator, X, y, sample_weight=sample_weight)

    def _score(self, method_caller, estimator, X, y_true, sample_weight=None):
        # `method_caller` would pick a column of binary probabilities, as if they were a table.
        field = _field_estimator(estimator)
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


def _field_estimator(estimator):
    """Look through pipelines and searches for the estimator that knows the labels."""
    if isinstance(estimator, Pipeline):
        return _field_estimator(estimator[-1])
    if hasattr(estimator, "best_estimator_"):
        return _field_estimator(estimator.best_estimator_)
    return estimator


#: Scores by `pooled_accuracy`.
accuracy_scorer = FieldScorer(pooled_accuracy)
#: Scores by `mean_iou`.
mean_iou_scorer = FieldScorer(mean_iou)
#: Scores by minus `log_loss`.
neg_log_loss_scorer = FieldScorer(log_loss, greater_is_better=False, response_method="predict_proba")

#: All scorers, by name.
SCORERS = {"accuracy": accuracy_scorer, "mean_iou": mean_iou_scorer, "neg_log_loss": neg_log_loss_scorer}
