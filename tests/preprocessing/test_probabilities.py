"""ProbabilityFeatures and DownscaledClassifier: results, labels, errors, pipelines and searches."""

import pickle
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from lazy_sequences import LazyList
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from small_images import quick

from skcrf.preprocessing import (
    Contrast,
    DownscaledClassifier,
    FeatureStack,
    FilterBank,
    ProbabilityFeatures,
)


@pytest.fixture(autouse=True)
def few_iterations():
    """Compare fits of a few iterations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@parametrize_with_checks(
    [ProbabilityFeatures(GaussianNB(), cv=2), DownscaledClassifier(LogisticRegression())]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


def colour_images(dtype=np.float64, shapes=((9, 8), (5, 7), (1, 1), (6, 6), (7, 1), (8, 9))):
    """Draw ragged colour images with string labels by their brightest channel."""
    rng = np.random.default_rng(0)
    X = [rng.random((*shape, 3)).astype(dtype) for shape in shapes]
    return X, [np.array(["blue", "green", "red"])[x.argmax(axis=2)] for x in X]


# Probabilities


def test_training_images_are_predicted_by_classifiers_of_other_images():
    X, Y = colour_images()
    est = ProbabilityFeatures(GaussianNB(), cv=KFold(3), n_samples=None, method="predict_proba")
    out = est.fit_transform(X, Y)
    for train, test in KFold(3).split(X):
        rows = np.concatenate([X[i].reshape(-1, 3) for i in train])
        nb = GaussianNB().fit(rows, np.concatenate([Y[i].ravel() for i in train]))
        for i in test:
            assert_allclose(out[i].reshape(-1, 3), nb.predict_proba(X[i].reshape(-1, 3)), rtol=1e-12)
    rows = np.concatenate([x.reshape(-1, 3) for x in X])
    nb = GaussianNB().fit(rows, np.concatenate([y.ravel() for y in Y]))
    (again, *_) = est.transform(X)
    assert_allclose(again.reshape(-1, 3), nb.predict_proba(X[0].reshape(-1, 3)), rtol=1e-12)
    assert list(est.get_feature_names_out()) == ["proba(blue)", "proba(green)", "proba(red)"]
    logs = clone(est).set_params(method="predict_log_proba", min_proba=0.01).fit_transform(X, Y)
    assert_allclose(logs[0], np.log(np.maximum(out[0], 0.01)), rtol=1e-12)


def test_containers_types_and_laziness():
    X, Y = colour_images(np.float32)
    est = ProbabilityFeatures(GaussianNB(), cv=2, random_state=0)
    out = est.fit_transform(X, Y)
    assert isinstance(out, list) and {x.dtype for x in out} == {np.dtype(np.float32)}
    assert [x.shape for x in out] == [x.shape for x in X]
    for one, other in zip(est.fit_transform(LazyList(X), LazyList(Y)), out, strict=True):
        assert_array_equal(one, other)
    objects = np.empty(len(X), dtype=object)
    objects[:] = X
    assert est.fit_transform(objects, Y).dtype == object
    equal = np.stack([X[0], X[0][::-1]])
    assert est.fit_transform(equal, [Y[0], Y[0][::-1]]).shape == (2, 9, 8, 3)
    table = X[0].reshape(-1, 3)
    assert est.fit_transform(table, Y[0].ravel()).shape == (72, 3)
    assert_array_equal(pickle.loads(pickle.dumps(est)).transform(table), est.transform(table))


def test_hidden_labels_and_pixels_that_are_not_drawn_are_left_out():
    X, Y = colour_images()
    hidden = [np.ma.masked_where(x[:, :, 0] > 0.5, y) for x, y in zip(X, Y, strict=True)]
    missing = [np.where(x[:, :, 0] > 0.5, "?", y) for x, y in zip(X, Y, strict=True)]
    a = ProbabilityFeatures(GaussianNB(), cv=2, n_samples=None).fit(X, hidden)
    b = ProbabilityFeatures(GaussianNB(), cv=2, n_samples=None, missing_label="?").fit(X, missing)
    kept = np.concatenate([x[x[:, :, 0] <= 0.5] for x in X])
    assert a.classifier_.class_count_.sum() == b.classifier_.class_count_.sum() == len(kept)
    assert_allclose(a.classifier_.theta_, b.classifier_.theta_, rtol=1e-15)
    drawn = ProbabilityFeatures(GaussianNB(), cv=2, n_samples=5, random_state=0).fit(X, Y)
    assert drawn.classifier_.class_count_.sum() == 5 * 5 + 1


def test_results_depend_on_the_seed_but_not_on_the_number_of_jobs():
    X, Y = colour_images()
    forest = RandomForestClassifier(5)
    options = {"cv": 2, "n_samples": 20}
    with parallel_config(backend="threading"):
        first, second, other = (
            ProbabilityFeatures(forest, random_state=seed, n_jobs=n, **options).fit_transform(X, Y)
            for seed, n in [(0, None), (0, 2), (1, None)]
        )
    for one, two in zip(first, second, strict=True):
        assert_array_equal(one, two)
    assert not np.array_equal(first[0], other[0])


def test_splits_may_be_an_iterator():
    rng = np.random.default_rng(0)
    X = list(rng.normal(size=(4, 3, 5, 2)))
    Y = [np.arange(15).reshape(3, 5) % 2 for _ in X]
    results = [
        ProbabilityFeatures(GaussianNB(), cv=cv, random_state=0).fit_transform(X, Y)
        for cv in (KFold(2), KFold(2).split(X))
    ]
    assert_array_equal(*results)


def test_missing_labels_of_both_classifiers_must_agree():
    X, Y = [np.zeros((4, 4, 1))], [np.array([[0, 0, -1, 1]] * 4)]
    est = DownscaledClassifier(quick(missing_label=-1))
    with pytest.raises(ValueError, match="missing_label must be that of the classifier, -1, got None"):
        est.fit(X, Y)
    assert est.set_params(missing_label=-1).fit(X, Y).classes_.tolist() == [0, 1]


def test_classes_that_a_fold_lacks_have_the_least_probability():
    X, Y = colour_images()
    Y = [np.where(y == "red", "blue", y) if i < 3 else y for i, y in enumerate(Y)]
    est = ProbabilityFeatures(GaussianNB(), cv=KFold(2), n_samples=None, min_proba=1e-4)
    out = est.fit_transform(X, Y)
    assert (out[5][:, :, 2] == np.log(1e-4)).all() and (out[0][:, :, 2] > np.log(1e-4)).any()
    est.set_params(classes=["blue", "green", "pink", "red"])
    assert est.fit_transform(X, Y)[0].shape == (9, 8, 4)


@pytest.mark.parametrize(
    "params, error, message",
    [
        ({"classifier": LinearSVC()}, TypeError, "classifier must be a classifier with predict_proba"),
        ({"classifier": GaussianNB}, TypeError, "classifier must be a classifier with predict_proba"),
        ({"cv": 7}, ValueError, "cv must be at most the number of images, n_samples=6, got 7"),
        ({"cv": [([0, 1, 2], [3])]}, ValueError, "cv must hold out each of 6 images once"),
        ({"n_samples": 0}, ValueError, "n_samples == 0, must be >= 1"),
        ({"method": "decision_function"}, ValueError, "method must be one of"),
        ({"min_proba": 0.0}, ValueError, "min_proba == 0.0, must be > 0"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused(params, error, message):
    X, Y = colour_images()
    with pytest.raises(error, match=message):
        ProbabilityFeatures(**{"classifier": GaussianNB(), **params}).fit_transform(X, Y)


def test_bad_labels_and_images_are_named():
    X, Y = colour_images()
    est = ProbabilityFeatures(GaussianNB(), cv=2)
    with pytest.raises(ValueError, match=r"y\[1\] must have shape \(5, 7\), as X\[1\] needs"):
        est.fit(X, [Y[0], Y[1].T, *Y[2:]])
    with pytest.raises(ValueError, match=r"X\[3\] must have 3 features per pixel, as in X\[0\], got 2"):
        est.fit([*X[:3], X[3][:, :, :2], *X[4:]], Y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        est.fit(X, None)


def test_ten_lines_stack_a_classifier_under_a_field():
    X, Y = colour_images()
    forest = make_pipeline(FilterBank([1.0]), ProbabilityFeatures(RandomForestClassifier(5), random_state=0))
    stack = FeatureStack([("colour", "passthrough"), ("forest", forest)])
    crf = quick(edge_features=Contrast(slice(3)), unary_channels=slice(3, None), max_iter=5)
    pipe = make_pipeline(stack, crf)
    grid = {"featurestack__forest__probabilityfeatures__classifier__max_depth": [1, 3]}
    search = GridSearchCV(pipe, grid, cv=KFold(2), error_score="raise")
    with pytest.raises(ValueError, match="cv must be at most the number of images, n_samples=3"):
        search.fit(X, Y)
    search.set_params(estimator__featurestack__forest__probabilityfeatures__cv=2).fit(X, Y)
    assert (search.best_estimator_[-1].coef_[:, :3] == 0).all()
    assert search.best_estimator_[-1].coef_.shape == (3, 6)


# Reduced size


def test_features_are_averaged_and_labels_are_the_most_frequent():
    X, Y = colour_images(np.float32)
    est = DownscaledClassifier(Recorder(), factor=3).fit(X, Y, sample_weight=np.arange(6.0))
    seen, labels = est.estimator_.X_, est.estimator_.y_
    assert [x.shape for x in seen] == [(3, 3, 3), (2, 3, 3), (1, 1, 3), (2, 2, 3), (3, 1, 3), (3, 3, 3)]
    assert seen[0].dtype == np.float32
    assert_allclose(seen[0][0, 2], X[0][:3, 6:].mean(axis=(0, 1)), rtol=1e-6)
    values, counts = np.unique(Y[0][:3, :3], return_counts=True)
    assert labels[0][0, 0] == values[counts.argmax()]
    assert_array_equal(est.estimator_.weight_, np.arange(6.0))
    hidden = [np.ma.masked_where((np.indices(y.shape) < 3).all(axis=0), y) for y in Y]
    hidden[0][1, 1] = "red"
    masked = clone(est).fit(X, hidden).estimator_.y_
    assert masked[0][0, 0] == "red" and masked[1][0, 0] is np.ma.masked and not masked[1].mask[1, 1]


class Recorder(LogisticRegression):
    """Classifier that keeps what it is fitted to and predicts the mean feature."""

    def fit(self, X, y, sample_weight=None):
        self.X_, self.y_, self.weight_, self.classes_ = X, y, sample_weight, np.array(["blue", "red"])
        return self

    def predict_proba(self, X):
        return [np.stack([x[:, :, 0], 1 - x[:, :, 0]], axis=2) for x in X]


def test_marginals_are_interpolated_to_full_size():
    ramp = np.tile(np.linspace(0, 1, 12)[:, None], (1, 5))
    est = DownscaledClassifier(Recorder(), factor=3).fit([ramp], [np.full((12, 5), "red")])
    (P,) = est.predict_proba([ramp])
    assert P.shape == (12, 5, 2)
    assert_allclose(P[1:11, :, 0], ramp[1:11], atol=1e-12)  # between the centres of the outer blocks
    assert_allclose(P.sum(axis=2), 1.0, rtol=1e-15)
    assert_array_equal(est.predict([ramp])[0], np.where(ramp < 0.5, "red", "blue"))
    assert_allclose(est.predict_log_proba([ramp])[0], np.log(P))
    assert est.score([ramp], est.predict([ramp])) == 1.0
    assert est.score([ramp], [np.ma.masked_array(np.full((12, 5), "red"), ramp < 0.5)]) == 0.0
    assert est.predict(np.stack([ramp, ramp])).shape == (2, 12, 5)


def test_factor_one_changes_nothing_and_graph_cuts_give_blocks():
    X, Y = colour_images()
    plain = quick(max_iter=3).fit(X, Y)
    same = DownscaledClassifier(quick(max_iter=3), factor=1).fit(X, Y)
    for one, other in zip(same.predict_proba(X), plain.predict_proba(X), strict=True):
        assert_allclose(one, other, rtol=1e-12)
    assert same.score(X, Y) == plain.score(X, Y)
    cut = DownscaledClassifier(quick(max_iter=1, inference="graph_cut", loss="pseudolikelihood"), factor=2)
    labels = cut.fit(X, Y).predict(LazyList(X))
    assert [y.shape for y in labels] == [y.shape for y in Y]
    assert not hasattr(cut, "predict_proba") and labels[0][2, 2] == labels[0][3, 3]


def test_reduced_size_in_a_search_and_bad_input(capsys):
    X, Y = colour_images()
    pipe = make_pipeline(FilterBank([1.0]), DownscaledClassifier(quick(max_iter=2)))
    search = GridSearchCV(
        pipe,
        {"downscaledclassifier__factor": [1, 2], "downscaledclassifier__estimator__alpha": [1e-3]},
        cv=2,
    ).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    pipe.set_callbacks(ProgressBar()).fit(X, Y)
    shown = capsys.readouterr().out
    assert "DownscaledClassifier" in shown
    with pytest.raises(ValueError, match="factor == 0, must be >= 1"):
        DownscaledClassifier(quick(), factor=0).fit(X, Y)
    with pytest.raises(ValueError, match=r"y\[0\] must have shape \(9, 8\), as X\[0\] needs"):
        DownscaledClassifier(quick()).fit(X, [Y[0].T, *Y[1:]])
    with pytest.raises(ValueError, match=r"X\[1\] must have 3 features per pixel, as in X\[0\], got 1"):
        DownscaledClassifier(quick()).fit([X[0], X[1][:, :, :1]], Y[:2])
