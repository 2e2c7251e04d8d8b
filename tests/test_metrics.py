"""Metrics against scikit-learn's on flattened labelled sites; scorers in scikit-learn's model selection."""

import pickle

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.callback import CallbackSupportMixin, ScoringMonitor, with_callbacks
from sklearn.metrics import accuracy_score, jaccard_score
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcrf.metrics import (
    SCORERS,
    accuracy_scorer,
    flattened,
    log_loss,
    mean_iou,
    mean_iou_scorer,
    neg_log_loss_scorer,
    pooled_accuracy,
    sequence_accuracy_score,
)

CLASSES = {"ints": np.array([-1, 2, 7]), "strings": np.array(["grass", "sky", "tree"])}


class Threshold(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Classifier whose P(class 1) of a pixel is a power of its value, in place of a random field."""

    def __init__(self, power=1.0, missing_label=None):
        self.power = power
        self.missing_label = missing_label

    @with_callbacks
    def fit(self, X, Y, sample_weight=None):
        context = self._init_callback_context()
        context.call_on_fit_task_begin(estimator=self, X=X, y=Y)
        self.classes_ = np.array([0, 1])
        context.call_on_fit_task_end(
            estimator=self,
            X=X,
            y=Y,
            metadata={"sample_weight": sample_weight},
            reconstruction_attributes={"classes_": self.classes_},
        )
        return self

    def predict_proba(self, X):
        return [np.stack([1 - np.asarray(x) ** self.power, np.asarray(x) ** self.power], axis=-1) for x in X]

    def predict(self, X):
        return [proba.argmax(axis=-1) for proba in self.predict_proba(X)]


def make_case(labels="ints", *, hide=None, seed=0):
    """Make ragged labels, predictions and probabilities, and flatten their labelled sites."""
    rng = np.random.RandomState(seed)
    shapes = [(4, 5), (3, 3), (6, 2), (1, 4)]
    classes = CLASSES[labels]
    true = [rng.choice(classes, size=shape) for shape in shapes]
    pred = [np.where(rng.uniform(size=y.shape) < 0.6, y, rng.choice(classes, size=y.shape)) for y in true]
    proba = [rng.dirichlet(np.ones(3), size=shape) for shape in shapes]
    known = [rng.uniform(size=shape) < (0.7 if hide else 1.1) for shape in shapes]
    weight = rng.uniform(0.5, 2, size=4)
    given = true
    if hide == "mask":
        given = [np.ma.masked_array(y, ~k) for y, k in zip(true, known, strict=True)]
    if hide == "value":
        given = [np.where(k, y, "?" if labels == "strings" else -9) for y, k in zip(true, known, strict=True)]

    def flat(arrays):
        return np.concatenate([a[k] for a, k in zip(arrays, known, strict=True)])

    site_weight = np.repeat(weight, [k.sum() for k in known])
    missing = {"value": "?" if labels == "strings" else -9}.get(hide)
    return given, pred, proba, flat, (true, weight, site_weight, missing, classes)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hide", [None, "mask", "value"])
@pytest.mark.parametrize("labels", list(CLASSES))
def test_metrics_equal_sklearn_on_flattened_sites(labels, hide, weighted):
    given, pred, proba, flat, (true, weight, site_weight, missing, classes) = make_case(labels, hide=hide)
    ours = {"missing_label": missing, "sample_weight": weight if weighted else None}
    theirs = {"sample_weight": site_weight if weighted else None}
    assert_allclose(
        pooled_accuracy(given, pred, **ours), accuracy_score(flat(true), flat(pred), **theirs), rtol=1e-12
    )
    assert_allclose(
        mean_iou(given, pred, **ours),
        jaccard_score(flat(true), flat(pred), average="macro", **theirs),
        rtol=1e-12,
    )
    assert_allclose(
        mean_iou(given, pred, classes=classes[1:], **ours),
        jaccard_score(flat(true), flat(pred), labels=classes[1:], average="macro", **theirs),
        rtol=1e-12,
    )
    assert_allclose(
        log_loss(given, proba, classes=classes, **ours),
        sklearn_log_loss(flat(true), flat(proba), labels=classes, **theirs),
        rtol=1e-12,
    )


def test_metrics_do_not_depend_on_the_container():
    rng = np.random.RandomState(0)
    true, pred = rng.randint(3, size=(2, 4, 5, 6))
    proba = rng.dirichlet(np.ones(3), size=(4, 5, 6))
    objects = np.empty(4, dtype=object)
    objects[:] = list(true)
    for forms in ((true, pred), (list(true), list(pred)), (objects, pred), (true.tolist(), pred.tolist())):
        assert pooled_accuracy(*forms) == np.mean(true == pred)
        assert mean_iou(*forms) == mean_iou(true, pred)
    assert log_loss(true, proba, classes=range(3)) == log_loss(list(true), list(proba), classes=range(3))


@pytest.mark.parametrize("kind", [list, np.array])
def test_one_label_per_example(kind):
    rng = np.random.RandomState(0)
    true, pred, weight = rng.randint(3, size=20), rng.randint(3, size=20), rng.uniform(size=20)
    proba = rng.dirichlet(np.ones(3), size=20)
    y, y_pred = kind(true), kind(pred)
    assert_allclose(
        pooled_accuracy(y, y_pred, sample_weight=weight),
        accuracy_score(true, pred, sample_weight=weight),
        rtol=1e-12,
    )
    assert_allclose(mean_iou(y, y_pred), jaccard_score(true, pred, average="macro"), rtol=1e-12)
    assert_allclose(
        log_loss(y, kind(proba), classes=range(3), sample_weight=weight),
        sklearn_log_loss(true, proba, sample_weight=weight),
        rtol=1e-12,
    )
    masked = np.ma.masked_array(true, true == 2)
    assert_allclose(pooled_accuracy(masked, y_pred), np.mean((true == pred)[true != 2]), rtol=1e-12)


def test_label_sequences_of_different_lengths():
    assert_allclose(
        pooled_accuracy([[0, 1, 1], [1]], [[0, 1, 0], [1]], sample_weight=[1, 3]), 5 / 6, rtol=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_loss_clips_like_sklearn(dtype):
    proba = np.array([[[0, 1], [1, 0], [0.5, 0.5]]], dtype=dtype)
    expected = sklearn_log_loss([0, 0, 1], proba[0], labels=[0, 1])
    assert_allclose(log_loss([[[0, 0, 1]]], [proba], classes=[0, 1]), expected, rtol=1e-6)
    assert_allclose(expected, -np.log(np.finfo(dtype).eps) / 3, rtol=0.1)


def test_mean_iou_ignores_absent_classes():
    true, pred = [[[0, 0, 1]]], [[[0, 1, 1]]]
    assert mean_iou(true, pred, classes=[0, 1, 2]) == mean_iou(true, pred) == 0.5
    # Predictions at hidden sites add no classes.
    assert mean_iou([[[0, -1]]], [[[0, 3]]], missing_label=-1) == 1
    with pytest.raises(
        ValueError, match=r"classes must include one that occurs in Y_true or Y_pred, got \[2, 3\]"
    ):
        mean_iou(true, pred, classes=[2, 3])


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: pooled_accuracy([[[0]]], [[[0]], [[1]]]),
            "Y_pred must have 1 examples, as Y_true has, got 2",
        ),
        (
            lambda: pooled_accuracy([[[0]], [[0, 1]]], [[[0]], [[0]]]),
            r"Y_pred\[1\] must have shape \(1, 2\), as Y_true\[1\] has, got \(1, 1\)",
        ),
        (lambda: pooled_accuracy([], []), "Y_true must have at least one example, got none"),
        (
            lambda: pooled_accuracy([0, [1]], [0, 1]),
            r"Y_true\[1\] must be like Y_true\[0\], a single label, got shape \(1,\)",
        ),
        (
            lambda: pooled_accuracy([[1], 0], [[1], 0]),
            r"Y_true\[1\] must be like Y_true\[0\], an array of shape \(1,\), got shape \(\)",
        ),
        (lambda: pooled_accuracy([[[0], [1, 2]]], [0]), r"Y_true\[0\] must be an array of labels, got list"),
        (
            lambda: pooled_accuracy([[[0]]], [np.ma.masked_all((1, 1), int)]),
            r"Y_pred\[0\] must not be masked where Y_true\[0\] has a label, got 1 masked sites",
        ),
        (
            lambda: pooled_accuracy([[[-1]]], [[[0]]], missing_label=-1),
            "Y_true must have at least one label that is not hidden, got none",
        ),
        (
            lambda: pooled_accuracy([[[0]]], [[[0]]], sample_weight=[1, 2]),
            r"sample_weight must have one weight per example, \(1,\), got shape \(2,\)",
        ),
        (
            lambda: pooled_accuracy([0, 1], [0, 1], sample_weight=[1, -2]),
            r"sample_weight must be finite and at least 0, got -2.0 in sample_weight\[1\]",
        ),
        (
            lambda: pooled_accuracy([0, 1], [0, 1], sample_weight=[0, 0]),
            "Y_true must have a labelled site with sample_weight above 0, got none",
        ),
        (lambda: log_loss([[[0]]], [], classes=[0, 1]), "Y_proba must have 1 examples, as Y_true has, got 0"),
        (
            lambda: log_loss([[[0]]], [[[[1.0]]]], classes=[0, 1]),
            r"Y_proba\[0\] must have shape \(1, 1, 2\), one probability per class, got \(1, 1, 1\)",
        ),
        (
            lambda: log_loss([[[0]]], [[[[1.5, 0]]]], classes=[0, 1]),
            r"Y_proba\[0\] must have probabilities between 0 and 1, got values from 0.0 to 1.5",
        ),
        (
            lambda: log_loss([[[0]]], [[[[0.5, 0.25]]]], classes=[0, 1]),
            r"Y_proba\[0\] must .* sum to 1 over the classes, got sums from 0.75 to 0.75",
        ),
        (
            lambda: log_loss([[[3]]], [[[[1.0, 0]]]], classes=[0, 1]),
            r"Y_true\[0\] must hold labels among the classes \[0, 1\], got 3",
        ),
        (lambda: log_loss([0], [[1.0, 0]], classes=[1, 0]), "classes must be sorted"),
        (
            lambda: log_loss([[[-1]]], [[[[1.0, 0]]]], classes=[0, 1], missing_label=-1),
            "Y_true must have a labelled site",
        ),
        (
            lambda: sequence_accuracy_score([[0]], [[0]], sample_weight=[0]),
            "Y_true must have a labelled example with sample_weight above 0, got none",
        ),
    ],
)
def test_invalid_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_invalid_types_are_refused():
    with pytest.raises(TypeError, match="Y_true must be a sequence of arrays of labels, got int"):
        pooled_accuracy(3, [3])
    with pytest.raises(TypeError, match="Y_true and Y_pred must hold all numbers or all strings, got both"):
        pooled_accuracy([[["a"]]], [[[1]]])


def make_images(n=9, seed=0):
    rng = np.random.RandomState(seed)
    X = [rng.uniform(size=(3 + i % 3, 4)) for i in range(n)]
    Y = [
        np.where(rng.uniform(size=x.shape) < 0.1, -1, rng.uniform(size=x.shape) < x**2).astype(int) for x in X
    ]
    return X, Y, rng.uniform(0.5, 2, size=n)


@pytest.mark.parametrize("name", list(SCORERS))
def test_scorers_negate_losses_and_find_the_estimator(name):
    X, Y, weight = make_images()
    est = Threshold(missing_label=-1).fit(X, Y)
    scorer = pickle.loads(pickle.dumps(SCORERS[name]))
    options = {"missing_label": -1, "sample_weight": weight}
    expected = {
        "accuracy": lambda: pooled_accuracy(Y, est.predict(X), **options),
        "mean_iou": lambda: mean_iou(Y, est.predict(X), **options),
        "neg_log_loss": lambda: -log_loss(Y, est.predict_proba(X), classes=[0, 1], **options),
    }[name]()
    assert scorer(est, X, Y, weight) == scorer(est, X, Y, sample_weight=weight) == expected
    assert scorer(est, X, Y) != expected
    # In a pipeline and a search, missing_label is that of the inner estimator.
    pipeline = make_pipeline(FunctionTransformer(), est)
    assert scorer(pipeline, X, Y, sample_weight=weight) == expected
    search = GridSearchCV(pipeline, {"threshold__power": [1.0]}, scoring=scorer, cv=3).fit(X, Y)
    assert scorer(search, X, Y, sample_weight=weight) == expected


@pytest.mark.parametrize("classes", CLASSES)
def test_flattened_labels_and_sequence_accuracy(classes, seed):
    rng, names = np.random.default_rng(seed), CLASSES[classes]
    true = [rng.choice(names, size=n) for n in (1, 4, 2, 3, 2)]
    pred = [np.where(rng.random(len(y)) < 0.2, names[0], y) for y in true]
    hidden = [rng.random(len(y)) < 0.3 for y in true]
    masked = [np.ma.masked_array(y, h) for y, h in zip(true, hidden, strict=True)]
    weight = rng.uniform(0.5, 2, size=5)
    flat = flattened(masked, pred)
    assert accuracy_score(*flat) == pytest.approx(pooled_accuracy(masked, pred))
    np.testing.assert_array_equal(flat[0], np.concatenate([y[~h] for y, h in zip(true, hidden, strict=True)]))
    right = [(t == p)[~h].all() for t, p, h in zip(true, pred, hidden, strict=True)]
    counted = weight * [not h.all() for h in hidden]
    found = sequence_accuracy_score(masked, pred, sample_weight=weight)
    assert found == pytest.approx(np.sum(right * counted) / counted.sum())
    table = np.concatenate(true), np.concatenate(pred)  # sequences with one label
    assert sequence_accuracy_score(*table) == pytest.approx(accuracy_score(*table))
    nothing = [np.ma.masked_all_like(y) for y in true]
    with pytest.raises(ValueError, match="hidden"):
        sequence_accuracy_score(nothing, pred)


def test_scorer_repr():
    assert repr(accuracy_scorer) == "FieldScorer(pooled_accuracy)"
    assert repr(mean_iou_scorer) == "FieldScorer(mean_iou)"
    assert repr(neg_log_loss_scorer) == (
        "FieldScorer(log_loss, greater_is_better=False, response_method='predict_proba')"
    )


def test_scorers_in_cross_validation_and_search():
    X, Y, weight = make_images()
    est = Threshold(missing_label=-1)
    for scorer in SCORERS.values():
        folds = cross_val_score(est, X, Y, scoring=scorer, cv=3, error_score="raise")
        assert folds.shape == (3,) and np.isfinite(folds).all()
    results = cross_validate(est, X, Y, scoring=SCORERS, cv=3, error_score="raise")
    assert_allclose(results["test_neg_log_loss"], folds, rtol=1e-12)
    search = GridSearchCV(
        est, {"power": [0.5, 2.0]}, scoring=SCORERS, refit="neg_log_loss", cv=3, error_score="raise"
    )
    # sample_weight reaches both fit and the scorers.
    weighted = search.fit(X, Y, sample_weight=weight).cv_results_["mean_test_neg_log_loss"]
    plain = search.fit(X, Y).cv_results_["mean_test_neg_log_loss"]
    assert search.best_params_ == {"power": 2.0}
    assert (weighted != plain).all()


def test_scorers_with_metadata_routing():
    X, Y, weight = make_images()
    with sklearn.config_context(enable_metadata_routing=True):
        est = Threshold(missing_label=-1).set_fit_request(sample_weight=True)
        scorer = pickle.loads(pickle.dumps(accuracy_scorer)).set_score_request(sample_weight=True)
        routed = cross_validate(est, X, Y, scoring=scorer, cv=3, params={"sample_weight": weight})
    plain = cross_val_score(est, X, Y, scoring=accuracy_scorer, cv=3)
    assert (routed["test_score"] != plain).all()


@pytest.mark.parametrize("scoring, keys", [(accuracy_scorer, ["score"]), (SCORERS, list(SCORERS))])
def test_scorers_in_scoring_monitor(scoring, keys):
    X, Y, weight = make_images()
    monitor = ScoringMonitor(scoring=scoring)
    est = Threshold(missing_label=-1).set_callbacks(monitor).fit(X, Y, sample_weight=weight)
    (row,) = monitor.get_logs().data
    assert row[keys[0]] == accuracy_scorer(est, X, Y, sample_weight=weight)
    assert set(keys) <= set(row)
