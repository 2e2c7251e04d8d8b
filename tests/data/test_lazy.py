"""Examples that are loaded when asked for: the same bits, little memory, loading behind computing."""

import gc
import pickle
import threading
import time
import weakref
from collections import deque

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

from skcrf import GridCRFClassifier
from skcrf.datasets import LazyImages, make_potts
from skcrf.estimators import grid
from skcrf.inference import TRW
from skcrf.metrics import SCORERS, pooled_accuracy
from skcrf.parallel import threads
from skcrf.preprocessing import PixelWise
from skcrf.training.objective import Evaluation

# A few steps are enough to see whether the bits are the same.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quick(**params):
    return GridCRFClassifier(**{"inference": TRW(max_iter=2), "max_iter": 3, "tol": 0.02, **params})


def potts(n_images, shape=(12, 10), **options):
    return map(list, make_potts(n_images=n_images, shape=shape, n_sweeps=5, random_state=0, **options))


@pytest.fixture(scope="module")
def images():
    """Draw images of several sizes: some are packed together, some are batches of their own."""
    X, Y = potts(6)
    big, labels = potts(2, shape=(48, 50))
    X, Y = [X[0], big[0], *X[1:], big[1]], [Y[0], labels[0], *Y[1:], labels[1]]
    X[2], Y[2] = X[2][:5], Y[2][:5]
    return X, Y


class Rows:
    """The least that a lazy sequence has; counts how often each example was asked for."""

    def __init__(self, examples):
        self.examples = examples
        self.asked = np.zeros(len(examples), dtype=int)

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        if not isinstance(i, int):
            raise TypeError(f"only ints, got {i!r}")
        self.asked[i] += 1
        return self.examples[i].copy()


class OnDisk(Rows):
    """An array of another kind, as of h5py or zarr: reading it whole is what must not happen."""

    def __init__(self, array):
        super().__init__(array)
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype
        self.whole = 0

    def __array__(self, dtype=None, copy=None):
        self.whole += 1
        return np.array(self.examples, dtype=dtype)


def lazy(examples):
    """Let examples be loaded from a folder that is a list."""
    return LazyImages(range(len(examples)), examples.__getitem__)


def assert_same(one, other):
    for name in ("coef_", "intercept_", "edge_coef_", "loss_curve_", "classes_"):
        assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# LazyImages


def test_indexing_stays_lazy():
    loaded = []

    def loader(path):
        loaded.append(path)
        return np.full((2, 2), int(path))

    images = LazyImages([str(i) for i in range(6)], loader)
    for key, paths in [
        (slice(1, 4), "123"),
        (slice(None, None, -2), "531"),
        (np.array([4, 0]), "40"),
        ([5, -1], "55"),
        (np.array([True, False, False, True, False, False]), "03"),
        ([False] * 5 + [True], "5"),
        ([], ""),
        ((np.array([1, 2]), Ellipsis), "12"),
    ]:
        part = images[key]
        assert isinstance(part, LazyImages)
        assert part.paths == list(paths)
        assert part.shape == (len(part),) == (len(paths),)
    assert not loaded
    assert images[np.int64(2)].max() == 2
    assert images[-1].max() == 5
    assert [image.max() for image in images[:3]] == [0, 1, 2]
    assert loaded == ["2", "5", "0", "1", "2"]
    with pytest.raises(IndexError):
        images[6]
    with pytest.raises(IndexError):
        images[[6]]
    with pytest.raises(IndexError, match="one axis"):
        images[0, 1]


def test_repr_pickle_and_refusals():
    images = LazyImages([f"image{i}.png" for i in range(9)], np.load)
    assert repr(images) == "LazyImages(9 images by load: image0.png, image1.png, image2.png, ..., image8.png)"
    assert repr(images[:4]).endswith("image2.png, image3.png)")
    assert repr(images[:0]) == "LazyImages(0 images by load: )"
    copied = pickle.loads(pickle.dumps(images))
    assert copied.paths == images.paths
    assert copied.loader is np.load
    with pytest.raises(TypeError, match="paths must be a sequence"):
        LazyImages("image.png", np.load)
    with pytest.raises(TypeError, match="loader must be a function"):
        LazyImages(["image.png"], "load")


def test_scikit_learn_cuts_without_loading():
    def loader(path):
        raise AssertionError("loaded")

    X, Y = LazyImages(range(10), loader), LazyImages(range(10), loader)
    parts = train_test_split(X, Y, test_size=3, random_state=0)
    assert all(isinstance(part, LazyImages) for part in parts)
    assert [len(part) for part in parts] == [7, 3, 7, 3]
    assert parts[0].paths == parts[2].paths
    assert len(list(KFold(5).split(X, Y))) == 5


def test_from_files(images, tmp_path):
    X, Y = images
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        np.save(tmp_path / f"x{i}.npy", x)
        np.save(tmp_path / f"y{i}.npy", y)
    files = [LazyImages(sorted(tmp_path.glob(f"{name}*.npy")), np.load) for name in "xy"]
    assert_same(quick().fit(*files), quick().fit(X, Y))


# The same bits


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
def test_the_same_bits(images, params, n_jobs):
    X, Y = images
    weight = np.linspace(0.5, 1.7, len(X))
    weight[3] = 0.0
    memory = quick(**params).fit(X, Y, sample_weight=weight)
    streamed = quick(**params, n_jobs=n_jobs).fit(lazy(X), lazy(Y), sample_weight=weight)
    assert_same(streamed, memory)


@pytest.mark.parametrize("lazy_X", [False, True])
@pytest.mark.parametrize("container", [list, tuple, lambda many: np.array([*many, None], dtype=object)[:-1]])
def test_any_mixture(images, lazy_X, container):
    X, Y = images
    memory = quick().fit(X, Y)
    mixed = (Rows(X), container(Y)) if lazy_X else (container(X), Rows(Y))
    est = quick().fit(*mixed)
    assert_same(est, memory)
    assert est.score(*mixed) == pytest.approx(memory.score(X, Y), rel=1e-12)
    for one, other in zip(est.predict_proba(mixed[0]), memory.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_arrays_on_disk_are_read_image_by_image():
    X, Y = map(np.array, potts(5, shape=(48, 50)))
    expected = quick().fit(X, Y)
    for y in (Y, OnDisk(Y)):
        disk = OnDisk(X)
        est = quick(n_jobs=2).fit(disk, y)
        assert_same(est, expected)
        assert est.score(disk, y) == expected.score(X, Y)
        found = est.predict(disk)
        assert isinstance(found, list)
        assert_array_equal(found, expected.predict(X))
        assert disk.whole == 0 and (disk.asked > 2).all()
    labels = OnDisk(Y)
    assert_same(quick().fit(X, labels), expected)
    assert labels.whole == 0


def test_tables_on_disk_are_tables():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.array([0, 1, 1] * 10)
    disk = OnDisk(X)
    est = quick().fit(disk, OnDisk(y))
    assert_same(est, quick().fit(X, y))
    assert not disk.asked.any()
    assert_array_equal(est.predict(OnDisk(X)), est.predict(X))


def test_predictions(images):
    X, Y = images
    est = quick(edge_features="contrast").fit(X, Y)
    streamed = Rows(X)
    for method in ("predict", "predict_proba", "predict_log_proba", "predict_edge_proba"):
        streamed.asked[:] = 0
        found = getattr(est, method)(streamed)
        assert isinstance(found, list)
        assert (streamed.asked == 1).all()
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


def test_partial_fit(images):
    X, Y = images
    memory, streamed = (quick(optimizer="adam", random_state=0) for _ in range(2))
    for _ in range(3):
        memory.partial_fit(X, Y, classes=[0, 1, 2])
        streamed.partial_fit(lazy(X), lazy(Y), classes=[0, 1, 2])
    assert_same(streamed, memory)


def test_a_transformer_sees_a_spread_of_the_images(images, monkeypatch):
    X, Y = images
    monkeypatch.setattr(grid, "_NUMBERS_SEEN", 4 * sum(x.size for x in X) // 4)
    scaler = StandardScaler()
    memory = quick(edge_features=scaler).fit(X, Y)
    assert_same(quick(edge_features=scaler).fit(lazy(X), lazy(Y)), memory)
    everything = memory.edge_transformer_.n_samples_seen_
    monkeypatch.undo()
    assert everything < quick(edge_features=scaler).fit(X, Y).edge_transformer_.n_samples_seen_


def test_searches_and_pipelines(images):
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


def test_a_search_counts_labels_without_loading_them_all():
    _, X = counted(24)
    most, Y = counted(24, dtype=int)
    GridSearchCV(quick(), {"alpha": [1e-3]}, cv=2, error_score="raise").fit(X, Y)
    assert most() <= 8


# Memory and time


def counted(n_images, shape=(8, 8), dtype=float):
    """Make images that know how many of them are alive: how to ask for the most so far, and the images."""
    alive, most, lock = set(), [0], threading.Lock()

    def loader(i):
        image = np.random.default_rng(i).integers(2, size=shape).astype(dtype)
        key = object()
        with lock:
            alive.add(key)
            most[0] = max(most[0], len(alive))
        weakref.finalize(image, alive.discard, key)
        return image

    return lambda: most[0], LazyImages(range(n_images), loader)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_few_images_are_alive(n_jobs, optimizer):
    bound = 2 * n_jobs + 5
    for n_images in (10, 40):
        most_x, X = counted(n_images, shape=(50, 50))
        most_y, Y = counted(n_images, shape=(50, 50), dtype=int)
        est = quick(n_jobs=n_jobs, optimizer=optimizer, max_iter=1).fit(X, Y)
        est.score(X, Y)
        gc.collect()
        assert 1 <= most_x() <= bound
        assert 1 <= most_y() <= bound


def test_every_evaluation_loads_anew(images):
    X, Y = map(Rows, images)
    quick().fit(X, Y)
    assert (X.asked == X.asked[0]).all()
    assert (Y.asked == X.asked).all()
    assert X.asked[0] > 3


def test_loading_hides_behind_computing(monkeypatch):
    """Both take a while: together as long as the slower one, not as long as both."""
    X, Y = potts(8, shape=(46, 46))
    asked = []

    def loader(i):
        time.sleep(0.02)
        asked.append(i)
        return X[i]

    def computing(self, batch, evaluate=Evaluation.__call__):
        time.sleep(0.02)  # releases the interpreter, as kernels do
        return evaluate(self, batch)

    quick(max_iter=1).fit(X, Y)  # compiles
    monkeypatch.setattr(Evaluation, "__call__", computing)

    def seconds(ahead):
        monkeypatch.setattr(threads.prefetched, "__defaults__", (ahead,))
        start = time.perf_counter()
        quick(max_iter=1, tol=0.1).fit(LazyImages(range(len(X)), loader), Y)
        return time.perf_counter() - start

    for _ in range(5):  # others may use the machine
        hidden, bare = seconds(2), seconds(0)
        if hidden < 0.75 * bare:
            break
    print(f"prefetching {hidden:.2f} s, without {bare:.2f} s")
    assert hidden < 0.75 * bare
    assert len(asked) >= 6 * len(X)


# What goes wrong


class Moody(Rows):
    """Gives another answer from some time on."""

    def __init__(self, examples, index, after, answer):
        super().__init__(examples)
        self.index, self.after, self.answer = index, after, answer

    def __getitem__(self, i):
        example = super().__getitem__(i)
        if i == self.index and self.asked[i] > self.after:
            return self.answer(example)
        return example


def fail(example):
    raise OSError("the disk is gone")


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    "after, answer, error, message",
    [
        (0, fail, RuntimeError, r"X\[4\] could not be loaded: OSError: the disk is gone"),
        (2, fail, RuntimeError, r"X\[4\] could not be loaded: OSError: the disk is gone"),
        (2, lambda x: x[1:], ValueError, r"X\[4\] has shape \(11, 10\), but it had \(12, 10\) when first"),
        (2, lambda x: x[..., :1], ValueError, r"X\[4\] has 1 features a pixel, but 2 are expected"),
        (2, lambda x: x * np.nan, ValueError, r"X\[4\] contains NaN"),
        (
            0,
            lambda x: x[..., :1],
            ValueError,
            r"X\[4\] has 1 features a pixel, but 2 are expected, as in X\[0",
        ),
        (0, lambda x: x * np.nan, ValueError, r"X\[4\] contains NaN"),
        (0, lambda x: x[0, 0], ValueError, r"X\[4\] has shape \(2,\), expected an image"),
    ],
)
def test_errors_name_the_image(images, after, answer, error, message, n_jobs):
    X, Y = images
    est = quick(n_jobs=n_jobs)
    n_threads = threading.active_count()
    with pytest.raises(error, match=message):
        est.fit(Moody(X, 4, after, answer), Y)
    assert not hasattr(est, "coef_")
    assert threading.active_count() == n_threads


@pytest.mark.parametrize(
    "after, answer, error, message",
    [
        (0, fail, RuntimeError, r"y\[4\] could not be loaded: OSError"),
        (2, fail, RuntimeError, r"y\[4\] could not be loaded: OSError"),
        (0, lambda y: y[1:], ValueError, r"y\[4\] has shape \(11, 10\), but X\[4\] needs labels of shape"),
        (2, lambda y: y[1:], ValueError, r"y\[4\] has shape \(11, 10\), but X\[4\] needs labels of shape"),
        (2, lambda y: y + 7, ValueError, r"y\[4\] holds the label .*, which is not among the classes"),
        (0, lambda y: y.astype(str), TypeError, r"y mixes strings and numbers"),
    ],
)
def test_errors_name_the_labels(images, after, answer, error, message):
    X, Y = images
    with pytest.raises(error, match=message):
        quick().fit(lazy(X), Moody(Y, 4, after, answer))


def test_a_loader_that_runs_out_is_no_end(images):
    X, _ = images

    def load(i):
        return [X[0], X[1]][i]

    paths = LazyImages(range(4), load)
    with pytest.raises(RuntimeError, match="the loader failed on 2: IndexError"):
        list(paths)
    with pytest.raises(TypeError, match="paths must be a sequence"):
        LazyImages({1, 2}, load)


def test_what_is_refused(images):
    X, Y = images
    est = quick().fit(X, Y)
    for call, message in [
        (lambda: est.fit(Rows([]), []), "X is empty"),
        (lambda: est.predict(Rows([])), "X is empty"),
        (lambda: est.fit(Rows(X), Rows(Y[:3])), "y holds 3 examples, but X holds 8"),
        (lambda: est.fit(Rows(X), Y[:3]), "y holds 3 examples, but X holds 8"),
        (lambda: est.predict(Rows(X), Rows(Y[:3])), "Y holds 3 examples, but X holds 8"),
        (lambda: est.score(Rows(X), Rows(Y[:3])), "y holds 3 examples, but X holds 8"),
        (lambda: est.predict(Rows([x[..., :1] for x in X])), r"X\[\d\] has 1 features a pixel.*as in fit"),
        (lambda: est.fit(Rows(X), Rows([np.ma.masked_all(y.shape, int) for y in Y])), "is hidden"),
        (
            lambda: est.score(Rows(X), Rows([np.ma.masked_all(y.shape, int) for y in Y])),
            "No site counts",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert_same(est, quick().fit(X, Y))


def test_labels_of_a_table_are_read_at_once():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), [0, 1, 1] * 10
    est = quick().fit(X, y)
    assert_same(quick().fit(X, deque(y)), est)
    assert est.score(X, deque(y)) == est.score(X, y)
    assert_array_equal(est.predict(X, deque(y)), y)


def test_a_sequence_that_tells_its_shape_and_takes_one_number():
    X, Y = make_potts(n_images=3, shape=(6, 6), random_state=0)

    class Stack:
        shape, ndim = X.shape, X.ndim

        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[range(len(X))[i]]

    found, expected = (GridCRFClassifier(max_iter=2, tol=10.0).fit(data, Y) for data in (Stack(), X))
    assert_array_equal(found.coef_, expected.coef_)
