"""Bad input is refused in words that name the argument, the example, what was found and what is expected."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skcrf import GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.gradients import GRADIENTS, Backprop, Implicit, Perturbation
from skcrf.inference import TRW, MeanField
from skcrf.losses import (
    EM,
    LOSSES,
    CliqueSmoothed,
    PatchPseudolikelihood,
    Piecewise,
    SmoothedClassification,
)

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


FIT = {
    "1-D image": (changed(X, 1, np.zeros(4)), Y, ValueError, r"X\[1\] has shape \(4,\), expected an image"),
    "4-D image": (changed(X, 1, np.zeros((2, 2, 2, 2))), Y, ValueError, r"X\[1\] has shape \(2, 2, 2, 2\)"),
    "1-D image first": (
        changed(X, 0, np.zeros(4)),
        Y,
        ValueError,
        r"X\[0\] has shape \(4,\), expected an image",
    ),
    "text first": (changed(X, 0, "abc"), Y, ValueError, r"X\[0\] has dtype"),
    "masked image": (changed(X, 1, np.ma.masked_less(X[1], 0)), Y, ValueError, r"X\[1\] is masked"),
    "one image": (
        X[0][..., 0],
        Y[0],
        ValueError,
        r"y has shape \(4, 5\), but X is a table.*pass \[X\] and \[y\]",
    ),
    "one image with features": (X[0], Y[0], ValueError, r"y\[0\] has shape \(5,\).*one image is \[image\]"),
    "5-D array": (np.zeros((2, 2, 2, 2, 2)), Y[:2], ValueError, r"X\[0\] has shape"),
    "sizes differ": (
        X,
        changed(Y, 2, Y[2][:, :4]),
        ValueError,
        r"y\[2\] has shape \(4, 4\), but X\[2\].*\(4, 5\)",
    ),
    "labels one too few": (X, Y[:2], ValueError, r"y holds 2 examples, but X holds 3"),
    "labels a number": (X, 3, TypeError, r"y must be a sequence of arrays of labels, got int"),
    "no labels": (X, None, ValueError, r"requires y to be passed, but the target y is None"),
    "nan": (with_value(np.nan), Y, ValueError, r"X\[1\] contains NaN"),
    "inf": (with_value(np.inf), Y, ValueError, r"X\[1\] contains infinity"),
    "complex": (
        changed(X, 0, X[0] * 1j),
        Y,
        ValueError,
        r"X\[0\] has dtype complex128, expected real numbers. Complex",
    ),
    "text": (
        changed(X, 0, np.full((4, 5), "a", dtype=object)),
        Y,
        TypeError,
        r"X\[0\] is not an array of numbers",
    ),
    "ragged rows": (changed(X, 2, [[1.0, 2.0], [3.0]]), Y, ValueError, r"X\[2\] is not an array of numbers"),
    "a generator": ((x for x in X), Y, TypeError, r"X must be a sequence of images.* got generator"),
    "a dict": (dict(enumerate(X)), Y, TypeError, r"X must be a sequence of images.* got dict"),
    "paths": ([Path("a.npy"), "b.npy", "c.npy"], Y, TypeError, r"X\[0\] is .*a.npy.*LazyImages"),
    "empty list": ([], [], ValueError, r"X is empty"),
    "0 pixels": (
        changed(X, 1, np.zeros((0, 5, 2))),
        Y,
        ValueError,
        r"X\[1\] has shape \(0, 5, 2\): an image needs at least",
    ),
    "0 features": (
        changed(X, 1, np.zeros((4, 5, 0))),
        Y,
        ValueError,
        r"X\[1\] has shape \(4, 5, 0\): an image needs at least",
    ),
    "features differ": (
        changed(X, 2, X[2][..., :1]),
        Y,
        ValueError,
        r"X\[2\] has 1 features a pixel, but 2 are expected",
    ),
    "all hidden": (X, [np.ma.masked_all((4, 5), int)] * 3, ValueError, r"Every label in y is hidden"),
    "nan labels": (X, changed(Y, 1, np.full((4, 5), np.nan)), ValueError, r"y\[1\] contains NaN"),
    "continuous labels": (X, [y + 0.5 for y in Y], ValueError, r"Unknown label type"),
    "labels of None": (
        X,
        changed(Y, 1, np.where(Y[1], None, 1)),
        TypeError,
        r"y\[1\] holds the label None, expected all numbers or all strings; hide labels by a masked array",
    ),
    "mixed within one": (
        X,
        changed(Y, 1, [["a", 1, 1, 1, "b"]] * 4),
        TypeError,
        r"y\[1\] mixes strings and numbers as labels",
    ),
    "ragged labels": (X, changed(Y, 1, [[0, 1], [0]]), ValueError, r"y\[1\] is not an array of labels"),
    "mixed labels": (X, changed(Y, 1, np.full((4, 5), "a")), TypeError, r"y mixes strings and numbers"),
}


@pytest.mark.parametrize("case", FIT)
def test_fit_refuses(case):
    bad_X, bad_Y, error, message = FIT[case]
    with pytest.raises(error, match=message):
        est().fit(bad_X, bad_Y)


@pytest.mark.parametrize("case", FIT)
def test_a_refused_fit_loses_nothing(case):
    fitted = est().fit(X, Y)
    before, state = fitted.predict_proba(X), set(vars(fitted))
    bad_X, bad_Y, error, _ = FIT[case]
    with pytest.raises(error):
        fitted.fit(bad_X, bad_Y)
    assert set(vars(fitted)) == state
    np.testing.assert_array_equal(fitted.predict_proba(X), before)
    fitted.fit(X, Y)


WEIGHTS = {
    "negative": ([1, -1, 1], r"sample_weight\[1\] is -1.0, expected a finite weight of at least 0"),
    "text": (["a", 1, 1], r"sample_weight is not an array of numbers"),
    "nan": ([1, 1, np.nan], r"sample_weight\[2\] is nan, expected a finite weight"),
    "all zero": ([0, 0, 0], r"No example has both a label in y and a non-zero weight in sample_weight"),
    "too few": ([1, 1], r"sample_weight has shape \(2,\), expected one weight an example: \(3,\)"),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_are_refused(case):
    sample_weight, message = WEIGHTS[case]
    with pytest.raises(ValueError, match=message):
        est().fit(X, Y, sample_weight=sample_weight)


def test_labels_and_weights_that_never_meet():
    hidden = np.ma.masked_all((4, 5), int)
    with pytest.raises(ValueError, match="No example has both a label in y and a non-zero weight"):
        est().fit(X, [Y[0], hidden, hidden], sample_weight=[0, 1, 1])


PARAMETERS = {
    "inference": ["belief", 3, TRW, None],
    "loss": ["perceptron", MeanField()],
    "gradient": ["forward"],
    "optimizer": ["newton"],
    "alpha": [-1.0, "small"],
    "connectivity": [6],
    "edge_features": ["colour", 3],
    "max_iter": [0, 1.5],
    "tol": [-1e-3],
    "class_weight": ["fair"],
    "classes": [3],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in PARAMETERS for value in PARAMETERS[name]]
)
def test_parameters_are_refused(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of GridCRFClassifier"):
        est(**{name: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("inference", "message"),
    [
        (TRW(max_iter=-1), "The 'max_iter' parameter of TRW"),
        (TRW(rho=0.0), "The 'rho' parameter of TRW"),
        (TRW(rho=1.5), "The 'rho' parameter of TRW"),
        (TRW(damping=1.0), "The 'damping' parameter of TRW"),
        (MeanField(tol=-1.0), "The 'tol' parameter of MeanField"),
    ],
)
def test_parameters_of_components_are_refused(inference, message):
    with pytest.raises(ValueError, match=message):
        est(inference=inference).fit(X, Y)


LOSS_PARAMETERS = {
    "step that is flat": (
        SmoothedClassification(alpha=0.0),
        "The 'alpha' parameter of SmoothedClassification",
    ),
    "step that is steep": (CliqueSmoothed(alpha="steep"), "The 'alpha' parameter of CliqueSmoothed"),
    "unknown clamped": (EM(clamped="belief"), "The 'clamped' parameter of EM"),
    "class as clamped": (EM(clamped=MeanField), "The 'clamped' parameter of EM"),
    "strategy as clamped": (EM(clamped=Backprop()), "The 'clamped' parameter of EM"),
    "bad clamped": (EM(clamped=MeanField(tol=-1.0)), "The 'tol' parameter of MeanField"),
    "no patch": (PatchPseudolikelihood(size=0), "The 'size' parameter of PatchPseudolikelihood"),
    "half a patch": (PatchPseudolikelihood(size=1.5), "The 'size' parameter of PatchPseudolikelihood"),
    "unknown pieces": (Piecewise(pieces="edges"), "The 'pieces' parameter of Piecewise"),
}


@pytest.mark.parametrize("case", LOSS_PARAMETERS)
def test_parameters_of_losses_are_refused(case):
    loss, message = LOSS_PARAMETERS[case]
    hidden = [np.ma.masked_array(y, mask=np.indices(y.shape)[0] == 0) for y in Y]
    with pytest.raises(ValueError, match=message):
        est(loss=loss).fit(X, hidden)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (Perturbation(sides=3), "The 'sides' parameter of Perturbation"),
        (Perturbation(sides="two"), "The 'sides' parameter of Perturbation"),
        (Perturbation(multiplier=0.0), "The 'multiplier' parameter of Perturbation"),
        (Perturbation(multiplier=-1), "The 'multiplier' parameter of Perturbation"),
        (Implicit(solver="lu"), "The 'solver' parameter of Implicit"),
        (Implicit(tol=0.0), "The 'tol' parameter of Implicit"),
        (Implicit(max_iter=0), "The 'max_iter' parameter of Implicit"),
        (Backprop(mode="implicit"), "The 'mode' parameter of Backprop"),
    ],
)
def test_parameters_of_gradients_are_refused(gradient, message):
    with pytest.raises(ValueError, match=message):
        est(inference=TRW(tol=1e-4), gradient=gradient).fit(X, Y)


def test_classes_that_lack_a_label():
    with pytest.raises(
        ValueError, match=r"y\[0\] holds the label 1, which is not among the classes \[0, 5\]"
    ):
        est(classes=[0, 5]).fit(X, Y)


@pytest.mark.parametrize(
    ("classes", "error", "message"),
    [
        ([], ValueError, "list of labels"),
        ([[0, 1]], ValueError, "list of labels"),
        ([0, "a"], TypeError, "mixes"),
    ],
)
def test_classes_that_are_none(classes, error, message):
    with pytest.raises(error, match=f"classes.*{message}"):
        est(classes=classes).fit(X, Y)


@pytest.mark.parametrize("class_weight", [{7: 2.0}, {0: -1.0}, {0: np.nan}, {0: 0.0, 1: 0.0}])
def test_class_weight_of_an_unknown_class_or_below_zero(class_weight):
    with pytest.raises(ValueError, match="class_weight"):
        est(class_weight=class_weight).fit(X, Y)


@pytest.mark.parametrize("init", ["likelihood", "clique_smoothed"])
def test_class_weight_and_a_start_that_has_no_sites(init):
    with pytest.raises(ValueError, match=r"class_weight='balanced' needs .*, asked for by init, is not"):
        est(class_weight="balanced", init=init).fit(X, Y)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_strategy_is_no_inference(gradient):
    with pytest.raises(ValueError, match=r"'inference' parameter .* that is not a 'BaseGradient'"):
        est(inference=GRADIENTS[gradient]()).fit(X, Y)
    with pytest.raises(ValueError, match="'inference' parameter"):
        est(inference=GRADIENTS[gradient]().wrap(TRW(tol=1e-3))).fit(X, Y)


@pytest.mark.parametrize("loss", [name for name, cls in LOSSES.items() if not cls.needs])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_losses_that_do_not_infer_take_any_strategy(loss, gradient):
    expected = est(loss=loss).fit(X, Y)
    np.testing.assert_array_equal(est(loss=loss, gradient=gradient).fit(X, Y).coef_, expected.coef_)


def test_a_start_that_infers_needs_a_strategy_that_can():
    with pytest.raises(ValueError, match="Implicit needs"):
        est(loss="pseudolikelihood", init="likelihood", gradient="implicit").fit(X, Y)


def test_numbers_of_numpy_are_numbers():
    one, other = (
        est(inference=TRW(tol=1e-3, max_iter=100), gradient=Perturbation(sides=sides)).fit(X, Y)
        for sides in (2, np.int64(2))
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_the_missing_label_is_no_class():
    with pytest.raises(ValueError, match="classes holds missing_label=-1"):
        est(classes=[-1, 0, 1], missing_label=-1).fit(X, Y)


PREDICT = {
    "other features": (
        [X[0][..., :1]],
        None,
        r"X\[0\] has 1 features a pixel, but 2 are expected, as in fit",
    ),
    "gray": ([X[0][..., 0]], None, r"X\[0\] has 1 features a pixel, but 2 are expected, as in fit"),
    "a table": (np.zeros((3, 4)), None, r"X has 4 features, but GridCRFClassifier is expecting 2 features"),
    "one image": (X[0][..., 0], None, r"X has 5 features, but GridCRFClassifier is expecting 2"),
    "nan": ([np.full((2, 2, 2), np.nan)], None, r"X\[0\] contains NaN"),
    "empty": ([], None, r"X is empty"),
    "unseen label": (
        X,
        changed(Y, 1, np.full((4, 5), 9)),
        r"Y\[1\] holds the label 9, which is not among .*\[0, 1\]",
    ),
    "text label": (X, changed(Y, 1, np.full((4, 5), "a")), r"Y\[1\] holds the label 'a'"),
    "known sizes": (X, changed(Y, 1, Y[1].T), r"Y\[1\] has shape \(5, 4\), but X\[1\]"),
    "known or nan": (X[:1], [np.where(Y[0], np.nan, 0.0)], r"Y\[0\] contains NaN"),
    "known too few": (X, Y[:1], r"Y holds 1 examples, but X holds 3"),
}


@pytest.mark.parametrize("case", PREDICT)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "predict_edge_proba"])
def test_predict_refuses(case, method, fitted=est().fit(X, Y)):  # noqa: B008
    bad_X, bad_Y, message = PREDICT[case]
    with pytest.raises(ValueError, match=message):
        getattr(fitted, method)(bad_X, Y=bad_Y)


def test_labels_that_are_none_are_named(fitted=est().fit(X, Y)):  # noqa: B008
    with pytest.raises(TypeError, match=r"Y\[0\] holds the label None, expected"):
        fitted.predict(X[:1], [np.where(Y[0], None, 0)])
    with pytest.raises(TypeError, match=r"missing_label must be one value, got \[0, 1\]"):
        est(missing_label=[0, 1]).fit(X, Y)


def test_unfitted():
    with pytest.raises(ValueError, match="not fitted yet"):
        est().predict(X)


LATE = {
    "a cycle": (est(inference="tree"), "Tree needs forests, but example 0 has a cycle"),
    "too many configurations": (est(inference="bruteforce"), r"BruteForce would enumerate 4\*\*20"),
    "rho of another graph": (
        est(inference=TRW(rho=[0.5] * 7)),
        "rho has 7 values, but example 0 has 31 edges",
    ),
    "too large patches": (
        est(loss=PatchPseudolikelihood(size=20), classes=[*range(20)]),
        r"got 20 nodes with 20 labels, 20 \* 20\*\*5 = 64000000 steps\. Use a smaller size",
    ),
    "no fixed point": (est(gradient=Backprop(mode="fixed_point")), "TRW with tol=0"),
    "nothing to perturb": (
        est(gradient="perturbation"),
        "must converge for Perturbation, got TRW with tol=0",
    ),
    "nothing implicit": (est(gradient="implicit"), "must converge for Implicit, got TRW with tol=0"),
    "no curvature": (
        est(inference="bruteforce", gradient="implicit"),
        "must have a curvature for Implicit, got BruteForce",
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_what_is_refused_late_loses_nothing_either(case):
    bad, message = LATE[case]
    fitted = est().fit(X, Y)
    before, state = fitted.predict_proba(X), set(vars(fitted))
    three = [y + (np.arange(20).reshape(4, 5) == 0) * 2 for y in Y]
    with pytest.raises(ValueError, match=message):
        fitted.set_params(**bad.get_params(deep=False)).fit(X, three)
    assert set(vars(fitted)) == state
    np.testing.assert_array_equal(fitted.predict_proba(X), before)
    with pytest.raises(ValueError, match=message):
        bad.fit(X, three)
    with pytest.raises(NotFittedError):
        bad.predict(X)


def test_truncated_inference_cannot_be_differentiated_at_a_fixed_point():
    bad = est(gradient=Backprop(mode="fixed_point"))
    with pytest.raises(ValueError, match=r"TRW with tol=0\. Set its tol above 0"):
        bad.fit(X, Y)
    clone(bad).set_params(inference=TRW(max_iter=200, tol=1e-6)).fit(X, Y)
