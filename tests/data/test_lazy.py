"""Fits and predictions with examples that are loaded on access: results, number of loads, errors."""

import threading
from collections import deque

import numpy as np
import pytest
from lazy_sequences import ArrayOnDisk, LazyList
from limits import set_limit
from messages import says
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

from skcrf import GridCRFClassifier
from skcrf.datasets import LazyImages, make_potts
from skcrf.inference import TRW
from skcrf.metrics import SCORERS, pooled_accuracy
from skcrf.preprocessing import PixelWise

# A few iterations are enough to see whether the results are the same.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quick(**params):
    return GridCRFClassifier(**{"inference": TRW(max_iter=2), "max_iter": 3, "tol": 0.02, **params})


def potts(n_images, shape=(12, 10), **options):
    return map(list, make_potts(n_images=n_images, shape=shape, n_sweeps=5, random_state=0, **options))


@pytest.fixture(scope="module")
def images():
    """Draw images of several sizes: small ones are packed together, large ones are batches."""
    X, Y = potts(6)
    big, labels = potts(2, shape=(48, 50))
    X, Y = [X[0], big[0], *X[1:], big[1]], [Y[0], labels[0], *Y[1:], labels[1]]
    X[2], Y[2] = X[2][:5], Y[2][:5]
    return X, Y


def lazy(examples):
    """Load examples from a list."""
    return LazyImages(range(len(examples)), examples.__getitem__)


def assert_same(one, other):
    for name in ("coef_", "intercept_", "edge_coef_", "loss_curve_", "classes_"):
        assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_fit_from_files(images, tmp_path):
    X, Y = images
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        np.save(tmp_path / f"x{i}.npy", x)
        np.save(tmp_path / f"y{i}.npy", y)
    files = [LazyImages(sorted(tmp_path.glob(f"{name}*.npy")), np.load) for name in "xy"]
    assert_same(quick().fit(*files), quick().fit(X, Y))


# Results


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"edge_features": "contrast", "class_weight": "balanced"},
        {"edge_features": StandardScaler(), "connectivity": 8},
        {"edge_features": KBinsDiscretizer(3, quantile_method="linear")},
        {"optimizer": "adam", "random_state": 0, "missing_label": 2, "max_iter": 2},
        {"loss": "likelihood", "fit_intercept": False},
    ],
    ids=str,
)
def test_lazy_fits_have_the_bits_of_fits_in_memory(images, params, n_jobs):
    X, Y = images
    weight = np.linspace(0.5, 1.7, len(X))
    weight[3] = 0.0
    memory = quick(**params).fit(X, Y, sample_weight=weight)
    streamed = quick(**params, n_jobs=n_jobs).fit(lazy(X), lazy(Y), sample_weight=weight)
    assert_same(streamed, memory)


@pytest.mark.parametrize("lazy_X", [False, True])
@pytest.mark.parametrize("container", [list, tuple, lambda many: np.array([*many, None], dtype=object)[:-1]])
def test_examples_and_labels_may_be_lazy_or_not(images, lazy_X, container):
    X, Y = images
    memory = quick().fit(X, Y)
    mixed = (LazyList(X), container(Y)) if lazy_X else (container(X), LazyList(Y))
    est = quick().fit(*mixed)
    assert_same(est, memory)
    assert est.score(*mixed) == pytest.approx(memory.score(X, Y), rel=1e-12)
    for one, other in zip(est.predict_proba(mixed[0]), memory.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_arrays_on_disk_are_read_image_by_image():
    X, Y = map(np.array, potts(5, shape=(48, 50)))
    expected = quick().fit(X, Y)
    for y in (Y, ArrayOnDisk(Y)):
        disk = ArrayOnDisk(X)
        est = quick(n_jobs=2).fit(disk, y)
        assert_same(est, expected)
        assert est.score(disk, y) == expected.score(X, Y)
        found = est.predict(disk)
        assert isinstance(found, list)
        assert_array_equal(found, expected.predict(X))
        assert disk.read_whole == 0 and (disk.loaded > 2).all()
    labels = ArrayOnDisk(Y)
    assert_same(quick().fit(X, labels), expected)
    assert labels.read_whole == 0


def test_tables_on_disk_are_tables():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.array([0, 1, 1] * 10)
    disk = ArrayOnDisk(X)
    est = quick().fit(disk, ArrayOnDisk(y))
    assert_same(est, quick().fit(X, y))
    assert not disk.loaded.any()
    assert_array_equal(est.predict(ArrayOnDisk(X)), est.predict(X))


def test_lazy_predictions_are_those_in_memory(images):
    X, Y = images
    est = quick(edge_features="contrast").fit(X, Y)
    streamed = LazyList(X)
    for method in ("predict", "predict_proba", "predict_log_proba", "predict_edge_proba"):
        streamed.loaded[:] = 0
        found = getattr(est, method)(streamed)
        assert isinstance(found, list)
        assert (streamed.loaded == 1).all()
        for one, other in zip(found, getattr(est, method)(X), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10) if one.dtype.kind == "f" else None
            assert one.shape == other.shape
    assert isinstance(est.predict(lazy(X)), list)
    known = [np.ma.masked_where(np.indices(y.shape)[1] > 3, y) for y in Y]
    for one, y in zip(est.predict(lazy(X), lazy(known)), Y, strict=True):
        assert_array_equal(one[:, :4], y[:, :4])
    weight = np.arange(1.0, len(X) + 1)
    for labels in (Y, lazy(Y), known):
        assert est.score(streamed, labels, sample_weight=weight) == pytest.approx(
            pooled_accuracy(list(labels), est.predict(X), sample_weight=weight), rel=1e-12
        )
    assert 0 < SCORERS["mean_iou"](est, lazy(X), lazy(Y)) < 1


def test_lazy_partial_fits_have_the_bits_of_fits_in_memory(images):
    X, Y = images
    memory, streamed = (quick(optimizer="adam", random_state=0) for _ in range(2))
    for _ in range(3):
        memory.partial_fit(X, Y, classes=[0, 1, 2])
        streamed.partial_fit(lazy(X), lazy(Y), classes=[0, 1, 2])
    assert_same(streamed, memory)


def test_edge_transformers_are_fitted_to_a_spread_of_the_images(images, monkeypatch):
    X, Y = images
    set_limit(monkeypatch, "numbers to fit edge features", sum(x.size for x in X))
    scaler = StandardScaler()
    memory = quick(edge_features=scaler).fit(X, Y)
    assert_same(quick(edge_features=scaler).fit(lazy(X), lazy(Y)), memory)
    n_seen = memory.edge_transformer_.n_samples_seen_
    monkeypatch.undo()
    assert n_seen < quick(edge_features=scaler).fit(X, Y).edge_transformer_.n_samples_seen_


def test_lazy_searches_and_pipelines_agree_with_those_in_memory(images):
    X, Y = images
    search = GridSearchCV(quick(classes=[0, 1, 2]), {"alpha": [1e-3, 1.0]}, cv=2, error_score="raise")
    memory = GridSearchCV(quick(classes=[0, 1, 2]), {"alpha": [1e-3, 1.0]}, cv=2).fit(X, Y)
    search.fit(lazy(X), lazy(Y))
    assert_array_equal(search.best_estimator_.coef_, memory.best_estimator_.coef_)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], memory.cv_results_["mean_test_score"])
    pipe = make_pipeline(PixelWise(StandardScaler()), quick())
    assert_array_equal(pipe.fit(lazy(X), lazy(Y))[-1].coef_, pipe.fit(X, Y)[-1].coef_)
    scores = cross_val_score(quick(classes=[0, 1, 2]), lazy(X), lazy(Y), cv=KFold(3))
    assert np.isfinite(scores).all()


def test_every_evaluation_loads_every_image_once(images):
    X, Y = map(LazyList, images)
    quick().fit(X, Y)
    assert (X.loaded == X.loaded[0]).all()
    assert (Y.loaded == X.loaded).all()
    assert X.loaded[0] > 3


# Errors


class Changing(LazyList):
    """Changes one example after it was loaded a number of times."""

    def __init__(self, examples, index, after, change):
        super().__init__(examples)
        self.index, self.after, self.change = index, after, change

    def __getitem__(self, i):
        example = super().__getitem__(i)
        if i == self.index and self.loaded[i] > self.after:
            return self.change(example)
        return example


def fail(example):
    raise OSError("the disk is gone")


OTHER_SHAPE = says(r"X\[4\]", r"\(12, 10\)", r"got \(11, 10\)", "first loaded")


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    "after, change, error, message",
    [
        (0, fail, RuntimeError, r"X\[4\] could not be loaded: OSError: the disk is gone"),
        (2, fail, RuntimeError, r"X\[4\] could not be loaded: OSError: the disk is gone"),
        (2, lambda x: x[1:], ValueError, OTHER_SHAPE),
        (2, lambda x: x[..., :1], ValueError, says(r"X\[4\]", "2 features per pixel", "got 1")),
        (2, lambda x: x * np.nan, ValueError, r"X\[4\] contains NaN"),
        (0, lambda x: x[..., :1], ValueError, says(r"X\[4\]", "2 features per pixel", r"in X\[0\]", "got 1")),
        (0, lambda x: x * np.nan, ValueError, r"X\[4\] contains NaN"),
        (
            0,
            lambda x: x[0, 0],
            ValueError,
            says(r"X\[4\]", "image", r"\(height, width\)", r"got shape \(2,\)"),
        ),
    ],
)
def test_errors_name_the_image(images, after, change, error, message, n_jobs):
    X, Y = images
    est = quick(n_jobs=n_jobs)
    n_threads = threading.active_count()
    with pytest.raises(error, match=message):
        est.fit(Changing(X, 4, after, change), Y)
    assert not hasattr(est, "coef_")
    assert threading.active_count() == n_threads


OTHER_LABELS = says(r"y\[4\]", r"\(12, 10\)", r"X\[4\]", r"got \(11, 10\)")


@pytest.mark.parametrize(
    "after, change, error, message",
    [
        (0, fail, RuntimeError, r"y\[4\] could not be loaded: OSError"),
        (2, fail, RuntimeError, r"y\[4\] could not be loaded: OSError"),
        (0, lambda y: y[1:], ValueError, OTHER_LABELS),
        (2, lambda y: y[1:], ValueError, OTHER_LABELS),
        (2, lambda y: y + 7, ValueError, says(r"y\[4\]", r"classes \[0, 1, 2\]", "got [789]")),
        (0, lambda y: y.astype(str), TypeError, says("y ", "all numbers or all strings", "both")),
    ],
)
def test_errors_name_the_labels(images, after, change, error, message):
    X, Y = images
    with pytest.raises(error, match=message):
        quick().fit(lazy(X), Changing(Y, 4, after, change))


@pytest.fixture(scope="module")
def fitted(images):
    return quick().fit(*images)


def hide_all(Y):
    return [np.ma.masked_all(y.shape, int) for y in Y]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda est, X, Y: est.fit(LazyList([]), []), says("X ", "at least one image", "none")),
        (lambda est, X, Y: est.predict(LazyList([])), says("X ", "at least one image", "none")),
        (lambda est, X, Y: est.fit(LazyList(X), LazyList(Y[:3])), says("y ", "3", "X ", "8")),
        (lambda est, X, Y: est.fit(LazyList(X), Y[:3]), says("y ", "3", "X ", "8")),
        (lambda est, X, Y: est.predict(LazyList(X), LazyList(Y[:3])), says("Y ", "3", "X ", "8")),
        (lambda est, X, Y: est.score(LazyList(X), LazyList(Y[:3])), says("y ", "3", "X ", "8")),
        (
            lambda est, X, Y: est.predict(LazyList([x[..., :1] for x in X])),
            says(r"X\[\d\]", "2 features per pixel", "in fit", "got 1"),
        ),
        (
            lambda est, X, Y: est.fit(LazyList(X), LazyList(hide_all(Y))),
            says("y ", "at least one label", "not hidden"),
        ),
        (
            lambda est, X, Y: est.score(LazyList(X), LazyList(hide_all(Y))),
            says("y ", "sample_weight", "labelled", "above 0"),
        ),
    ],
)
def test_refused_calls_leave_the_estimator_unchanged(images, fitted, call, message):
    before = vars(fitted).copy()
    with pytest.raises(ValueError, match=message):
        call(fitted, *images)
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[name] is value for name, value in before.items())


# Kinds of sequences


def test_labels_of_a_table_are_read_at_once():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), [0, 1, 1] * 10
    est = quick().fit(X, y)
    assert_same(quick().fit(X, deque(y)), est)
    assert est.score(X, deque(y)) == est.score(X, y)
    assert_array_equal(est.predict(X, deque(y)), y)


def test_sequences_with_a_shape_may_take_single_indices_only():
    X, Y = make_potts(n_images=3, shape=(6, 6), random_state=0)

    class Stack:
        shape, ndim = X.shape, X.ndim

        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[range(len(X))[i]]

    found, expected = (GridCRFClassifier(max_iter=2, tol=10.0).fit(data, Y) for data in (Stack(), X))
    assert_array_equal(found.coef_, expected.coef_)
