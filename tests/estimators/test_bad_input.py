"""Errors for bad input name the argument, the example, the value found and the expected one."""

from pathlib import Path

import numpy as np
import pytest
from messages import says

from skcrf import GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.inference import TRW

X, Y = make_potts(n_images=3, shape=(4, 5), n_classes=2, random_state=0)
X, Y = list(X), list(Y)


def est(**params):
    return GridCRFClassifier(**{"tol": 0.1, "inference": TRW(max_iter=2), **params})


def changed(examples, index, example):
    return [example if i == index else one for i, one in enumerate(examples)]


def with_value(value):
    image = X[1].copy()
    image[2, 3, 0] = value
    return changed(X, 1, image)


NOT_AN_IMAGE = r"image of shape \(height, width\) or \(height, width, n_features\)"

#: Examples and labels that are refused, with the error and its message.
FIT = {
    "1-D image": (changed(X, 1, np.zeros(4)), Y, ValueError, says(r"X\[1\]", NOT_AN_IMAGE, r"\(4,\)")),
    "4-D image": (
        changed(X, 1, np.zeros((2, 2, 2, 2))),
        Y,
        ValueError,
        says(r"X\[1\]", NOT_AN_IMAGE, r"\(2, 2, 2, 2\)"),
    ),
    "1-D image first": (changed(X, 0, np.zeros(4)), Y, ValueError, says(r"X\[0\]", NOT_AN_IMAGE, r"\(4,\)")),
    "text first": (changed(X, 0, "abc"), Y, ValueError, says(r"X\[0\]", "real numbers", "dtype <U3")),
    "masked image": (
        changed(X, 1, np.ma.masked_less(X[1], 0)),
        Y,
        ValueError,
        says(r"X\[1\]", "masked", "hide labels", "features"),
    ),
    "one image": (
        X[0][..., 0],
        Y[0],
        ValueError,
        says(r"y must", r"\(4, 5\)", "X is a table", r"pass \[X\] and \[y\]"),
    ),
    "one image with features": (
        X[0],
        Y[0],
        ValueError,
        says(r"y\[0\]", r"\(5, 2\)", r"X\[0\]", r"got \(5,\)", r"one image is \[image\]"),
    ),
    "5-D array": (np.zeros((2, 2, 2, 2, 2)), Y[:2], ValueError, says(r"X\[0\]", r"\(2, 2, 2, 2\)")),
    "sizes differ": (
        X,
        changed(Y, 2, Y[2][:, :4]),
        ValueError,
        says(r"y\[2\]", r"\(4, 5\)", r"X\[2\]", r"got \(4, 4\)"),
    ),
    "labels one too few": (X, Y[:2], ValueError, says("y ", "2", "X ", "3")),
    "labels a number": (X, 3, TypeError, says("y must be a sequence of arrays of labels", "got int")),
    "no labels": (X, None, ValueError, "requires y to be passed, but the target y is None"),
    "nan": (with_value(np.nan), Y, ValueError, r"X\[1\] contains NaN"),
    "inf": (with_value(np.inf), Y, ValueError, r"X\[1\] contains infinity"),
    "complex": (
        changed(X, 0, X[0] * 1j),
        Y,
        ValueError,
        says(r"X\[0\]", "real numbers", "complex128", "Complex data not supported"),
    ),
    "text": (
        changed(X, 0, np.full((4, 5), "a", dtype=object)),
        Y,
        TypeError,
        says(r"X\[0\]", "array of numbers", "'a'"),
    ),
    "ragged rows": (
        changed(X, 2, [[1.0, 2.0], [3.0]]),
        Y,
        ValueError,
        says(r"X\[2\]", "array of numbers", "inhomogeneous"),
    ),
    "a generator": ((x for x in X), Y, TypeError, says("X must be a sequence of images", "got generator")),
    "a dict": (dict(enumerate(X)), Y, TypeError, says("X must be a sequence of images", "got dict")),
    "paths": ([Path("a.npy"), "b.npy", "c.npy"], Y, TypeError, says(r"X\[0\]", "a.npy", "LazyImages")),
    "empty list": ([], [], ValueError, says("X ", "at least one image", "none")),
    "0 pixels": (
        changed(X, 1, np.zeros((0, 5, 2))),
        Y,
        ValueError,
        says(r"X\[1\]", "at least one pixel and one feature", r"\(0, 5, 2\)"),
    ),
    "0 features": (
        changed(X, 1, np.zeros((4, 5, 0))),
        Y,
        ValueError,
        says(r"X\[1\]", "at least one pixel and one feature", r"\(4, 5, 0\)"),
    ),
    "features differ": (
        changed(X, 2, X[2][..., :1]),
        Y,
        ValueError,
        says(r"X\[2\]", "2 features per pixel", r"in X\[0\]", "got 1"),
    ),
    "all hidden": (
        X,
        [np.ma.masked_all((4, 5), int)] * 3,
        ValueError,
        says("y ", "at least one label", "not hidden"),
    ),
    "nan labels": (X, changed(Y, 1, np.full((4, 5), np.nan)), ValueError, r"y\[1\] contains NaN"),
    "continuous labels": (X, [y + 0.5 for y in Y], ValueError, says("y ", "0.5", "Unknown label type")),
    "labels of None": (
        X,
        changed(Y, 1, np.where(Y[1], None, 1)),
        TypeError,
        says(r"y\[1\]", "label None", "all numbers or all strings", "masked array", "missing_label"),
    ),
    "mixed within one": (
        X,
        changed(Y, 1, [["a", 1, 1, 1, "b"]] * 4),
        TypeError,
        says(r"y\[1\]", "all numbers or all strings", "both"),
    ),
    "ragged labels": (X, changed(Y, 1, [[0, 1], [0]]), ValueError, says(r"y\[1\]", "array of labels")),
    "mixed labels": (
        X,
        changed(Y, 1, np.full((4, 5), "a")),
        TypeError,
        says("y ", "all numbers or all strings", "both"),
    ),
}


@pytest.mark.parametrize("case", FIT)
def test_fit_refuses_bad_examples_and_labels(case):
    bad_X, bad_Y, error, message = FIT[case]
    with pytest.raises(error, match=message):
        est().fit(bad_X, bad_Y)


@pytest.mark.parametrize("case", FIT)
def test_refused_fit_leaves_estimator_unchanged(case):
    fitted = est().fit(X, Y)
    before, state = fitted.predict_proba(X), set(vars(fitted))
    bad_X, bad_Y, error, _ = FIT[case]
    with pytest.raises(error):
        fitted.fit(bad_X, bad_Y)
    assert set(vars(fitted)) == state
    np.testing.assert_array_equal(fitted.predict_proba(X), before)
    fitted.fit(X, Y)


WEIGHTS = {
    "negative": ([1, -1, 1], says(r"sample_weight\[1\]", "-1.0", "finite", "at least 0")),
    "text": (["a", 1, 1], says("sample_weight", "array of numbers", "'a'")),
    "nan": ([1, 1, np.nan], says(r"sample_weight\[2\]", "nan", "finite", "at least 0")),
    "all zero": ([0, 0, 0], says("y ", "sample_weight", "label", "weight")),
    "too few": ([1, 1], says("sample_weight", r"\(2,\)", "one weight per example", r"\(3,\)")),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_fit_refuses_bad_sample_weights(case):
    sample_weight, message = WEIGHTS[case]
    with pytest.raises(ValueError, match=message):
        est().fit(X, Y, sample_weight=sample_weight)


def test_fit_needs_an_example_with_a_label_and_a_weight():
    hidden = np.ma.masked_all((4, 5), int)
    with pytest.raises(ValueError, match=says("y ", "sample_weight", "label", "weight")):
        est().fit(X, [Y[0], hidden, hidden], sample_weight=[0, 1, 1])


def test_classes_must_hold_every_label():
    with pytest.raises(ValueError, match=says(r"y\[0\]", r"classes \[0, 5\]", "got 1")):
        est(classes=[0, 5]).fit(X, Y)


@pytest.mark.parametrize(
    ("classes", "error", "message"),
    [
        ([], ValueError, "list of labels"),
        ([[0, 1]], ValueError, "list of labels"),
        ([0, "a"], TypeError, "numbers or all strings"),
    ],
)
def test_classes_must_be_a_list_of_labels(classes, error, message):
    with pytest.raises(error, match=f"classes.*{message}"):
        est(classes=classes).fit(X, Y)


def test_classes_must_not_hold_the_missing_label():
    with pytest.raises(ValueError, match=says("classes", "missing_label=-1", "hidden labels")):
        est(classes=[-1, 0, 1], missing_label=-1).fit(X, Y)


OTHER_FEATURES = says(r"X\[0\]", "2 features per pixel", "in fit", "got 1")

#: Examples and known labels that predictions refuse, with the message.
PREDICT = {
    "other features": ([X[0][..., :1]], None, OTHER_FEATURES),
    "gray": ([X[0][..., 0]], None, OTHER_FEATURES),
    "a table": (np.zeros((3, 4)), None, r"X has 4 features, but GridCRFClassifier is expecting 2 features"),
    "one image": (X[0][..., 0], None, r"X has 5 features, but GridCRFClassifier is expecting 2"),
    "nan": ([np.full((2, 2, 2), np.nan)], None, r"X\[0\] contains NaN"),
    "empty": ([], None, says("X ", "at least one image", "none")),
    "unseen label": (
        X,
        changed(Y, 1, np.full((4, 5), 9)),
        says(r"Y\[1\]", r"classes \[0, 1\]", "got 9"),
    ),
    "text label": (X, changed(Y, 1, np.full((4, 5), "a")), says(r"Y\[1\]", r"classes \[0, 1\]", "got 'a'")),
    "known sizes": (X, changed(Y, 1, Y[1].T), says(r"Y\[1\]", r"\(4, 5\)", r"X\[1\]", r"got \(5, 4\)")),
    "known or nan": (X[:1], [np.where(Y[0], np.nan, 0.0)], r"Y\[0\] contains NaN"),
    "known too few": (X, Y[:1], says("Y ", "1", "X ", "3")),
}


@pytest.mark.parametrize("case", PREDICT)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "predict_edge_proba"])
def test_predictions_refuse_bad_examples_and_labels(case, method, fitted=est().fit(X, Y)):  # noqa: B008
    bad_X, bad_Y, message = PREDICT[case]
    with pytest.raises(ValueError, match=message):
        getattr(fitted, method)(bad_X, Y=bad_Y)


def test_errors_name_labels_that_are_none(fitted=est().fit(X, Y)):  # noqa: B008
    with pytest.raises(TypeError, match=says(r"Y\[0\]", "label None", "all numbers or all strings")):
        fitted.predict(X[:1], [np.where(Y[0], None, 0)])
    with pytest.raises(TypeError, match=r"missing_label must be one value, got \[0, 1\]"):
        est(missing_label=[0, 1]).fit(X, Y)


def test_predict_needs_a_fit():
    with pytest.raises(ValueError, match="not fitted yet"):
        est().predict(X)
