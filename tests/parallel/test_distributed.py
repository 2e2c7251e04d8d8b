"""Fits on a dask cluster of two worker processes: the same bits, few bytes sent, and lost workers."""

import logging
import os
import pickle
import signal
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from batching import batches_of, lattice_model
from joblib import parallel_config
from limits import set_limit
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

from skcrf import GridCRFClassifier
from skcrf.data import Contrast, LatticeTopology
from skcrf.datasets import LazyImages, make_potts
from skcrf.gradients import Backprop
from skcrf.inference import TRW
from skcrf.losses import UnivariateLogistic
from skcrf.optimizers import Adam
from skcrf.parallel import threads, workers
from skcrf.preprocessing import (
    ContrastThresholds,
    PixelWise,
    ProbabilityFeatures,
    SobelThresholds,
    make_edge_union,
    make_feature_stack,
)
from skcrf.training import Evaluation, Objective

distributed = pytest.importorskip("distributed")

from distributed.comm.tcp import TCP  # noqa: E402

from skcrf.parallel import dask_cluster  # noqa: E402

# A few steps are enough to see whether the bits are the same.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N_IMAGES, SHAPE, N_FEATURES = 6, (46, 48), 20


@contextmanager
def _two_workers():
    """Start two worker processes, without dask's log of those that are killed."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    options["silence_logs"] = logging.CRITICAL
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client():
    """Cluster that the tests share."""
    with _two_workers() as client:
        yield client


@pytest.fixture
def on_dask(client):
    """Run a test on both workers; on two new ones if a killed worker is not restarted."""
    with ExitStack() as stack:
        try:
            client.wait_for_workers(2, timeout=20)
        except TimeoutError:
            client = stack.enter_context(_two_workers())
            client.wait_for_workers(2, timeout=60)
        stack.enter_context(parallel_config(backend="dask"))
        yield client


@pytest.fixture(scope="module")
def images():
    X, Y = make_potts(n_images=N_IMAGES, shape=SHAPE, n_features=N_FEATURES, n_sweeps=3, random_state=0)
    return list(X), [y[:, : 48 - i] for i, y in enumerate(Y)]


@pytest.fixture(scope="module")
def data(images):
    """Images of different widths, some of them small enough to be packed together."""
    X, Y = images
    X = [x[:, : y.shape[1]] for x, y in zip(X, Y, strict=True)]
    return [*X, *(x[:9] for x in X)], [*Y, *(y[:9] for y in Y)]


def quick(**params):
    return GridCRFClassifier(**{"inference": TRW(max_iter=2), "max_iter": 3, "tol": 1e-3, **params})


def locally(est, *args, **kwargs):
    with parallel_config(backend="threading"):
        return clone(est).fit(*args, **kwargs)


def assert_same(one, other):
    for name in ("coef_", "intercept_", "edge_coef_", "loss_curve_"):
        assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize(
    "params",
    [
        {"n_jobs": 2},
        {"edge_features": "contrast", "class_weight": "balanced"},
        {"edge_features": make_edge_union(ContrastThresholds(2), SobelThresholds(2)), "unary_channels": [0]},
        {"optimizer": "adam", "random_state": 0, "max_iter": 2},
    ],
    ids=str,
)
def test_results_have_the_bits_of_a_local_fit(on_dask, data, params):
    X, Y = data
    est = quick(**params).fit(X, Y, sample_weight=np.linspace(0.5, 1.5, len(X)))
    assert_same(est, locally(est, X, Y, sample_weight=np.linspace(0.5, 1.5, len(X))))
    P = est.predict_proba(X)
    with parallel_config(backend="threading"):
        for one, other in zip(P, est.predict_proba(X), strict=True):
            assert_array_equal(one, other)
    assert isinstance(P, list)


def test_batches_are_evaluated_on_the_workers(on_dask, data, monkeypatch):
    def here(self, batch):
        raise AssertionError("evaluated by the client")

    monkeypatch.setattr(Evaluation, "__call__", here)
    est = quick(max_iter=1).fit(*data)
    assert np.abs(est.edge_coef_).sum() > 0


def test_tables_give_the_bits_of_a_local_fit(on_dask):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5000, 3)), rng.integers(3, size=5000)
    est = quick().fit(X, y)
    assert_same(est, locally(est, X, y))
    assert est.predict_proba(X).shape == (5000, 3)
    adam = quick(optimizer=Adam(batch_size=500), random_state=0)
    coef = clone(adam).partial_fit(X, y).coef_
    with parallel_config(backend="threading"):
        assert_array_equal(clone(adam).partial_fit(X, y).coef_, coef)


# Data that is sent


@pytest.fixture
def written(monkeypatch):
    """Count the bytes that this process, with client and scheduler, writes to any connection."""
    total = [0]
    write = TCP.write

    async def counted(self, *args, **kwargs):
        n_bytes = await write(self, *args, **kwargs)
        total[0] += n_bytes
        return n_bytes

    monkeypatch.setattr(TCP, "write", counted)
    return total


def test_data_is_sent_once(on_dask, data, written, monkeypatch):
    X, Y = data
    size = sum(x.nbytes for x in X)
    traffic = []

    def measured(call):
        def measured_call(self, *args, **options):
            before = written[0]
            result = call(self, *args, **options)
            if written[0] > before:  # the objective remembers its last values
                traffic.append(written[0] - before)
            return result

        return measured_call

    for name in ("__call__", "moments"):
        monkeypatch.setattr(Objective, name, measured(getattr(Objective, name)))
    est = quick().fit(X, Y)
    weights = est.coef_.nbytes + est.edge_coef_.nbytes + est.intercept_.nbytes
    print(f"data {size} bytes, weights {weights} bytes, written {traffic[0]} first, then {traffic[1:]}")
    assert len(traffic) > 8
    assert 2 * size < traffic[0] < 2.5 * size  # to the scheduler, from there to the workers; labels too
    assert max(traffic[1:]) < 48_000 < size / 50
    moved = on_dask.run(lambda dask_worker: dask_worker.state.transfer_incoming_count_total)
    assert set(moved.values()) == {0}  # nor from worker to worker


def test_workers_keep_nothing_after_a_fit(on_dask, data):
    quick(max_iter=1).fit(*data)

    def n_items(dask_worker):
        return len(dask_worker.data)

    deadline = time.monotonic() + 10
    while any(on_dask.run(n_items).values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(on_dask.run(n_items).values()) == {0}


def draw(path):
    """Make an image of features from its number."""
    return np.random.default_rng(path).normal(size=(*SHAPE, N_FEATURES))


def draw_any(path):
    """Make an image from a path."""
    return np.full((30, 30), float(len(path)))


def draw_labels(path):
    """Make the labels of an image from its number."""
    return (draw(path)[..., :3] + [0.1, 0.0, -0.1]).argmax(axis=-1)


def test_lazy_images_are_loaded_on_the_workers(on_dask, written):
    X, Y = LazyImages(range(8), draw), LazyImages(range(8), draw_labels)
    before = written[0]
    est = quick().fit(X, Y)
    assert written[0] - before < 2 * X[0].nbytes  # less than two of eight images, for the whole fit
    memory = locally(est, list(X), list(Y))
    assert_same(est, memory)
    for one, other in zip(est.predict(X), memory.predict(list(X)), strict=True):
        assert_array_equal(one, other)
    assert est.score(X, Y) == pytest.approx(memory.score(list(X), list(Y)), rel=1e-12)


def explode(path):
    if path == 5:
        raise OSError("no such image")
    return draw(path)


def test_errors_of_workers_are_raised_by_the_client(on_dask, monkeypatch):
    est = quick(max_iter=1).fit(LazyImages(range(2), draw), LazyImages(range(2), draw_labels))
    with pytest.raises(RuntimeError, match=r"X\[5\] could not be loaded: OSError: no such image"):
        est.predict(LazyImages(range(8), explode))


def test_pickles_of_batches_are_small(data):
    X, Y = data
    contrast = LatticeTopology(4, Contrast(), 2)
    batches = batches_of(X, Y, topology=contrast)
    batches[0].n_labels, batches[0].groups  # are not sent: each process can compute them
    sent = pickle.dumps(batches[0])
    assert len(sent) < batches[0].X.nbytes + batches[0].y.nbytes + 4000  # graphs are not sent either
    again = pickle.loads(sent)
    assert not {"n_labels", "groups"} & set(vars(again))
    for one, other in zip(again.graph, batches[0].graph, strict=True):
        assert_array_equal(one, other)
    for name in ("X", "V", "y", "weight"):
        assert_array_equal(getattr(again, name), getattr(batches[0], name))
    model = lattice_model(batches, 3, contrast)
    w = model.pack(model.zeros())
    evaluation = Evaluation(model, w, UnivariateLogistic(), Backprop().wrap(TRW()))
    assert len(pickle.dumps(evaluation)) < w.nbytes + 4000
    paths = [f"a-rather-long-name-of-an-image-{i}.png" for i in range(200)]
    labels = [np.arange(900).reshape(30, 30) % 2] * 200
    lazy = batches_of(LazyImages(paths, draw_any), labels)
    assert sum(len(pickle.dumps(batch)) for batch in lazy) < 3000 * len(lazy) + 8 * 900 * 200


def test_workers_use_one_blas_thread(on_dask, data):
    class Asking:
        def __call__(self, batch):
            return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    X, Y = data
    batches = batches_of(X, Y)
    with workers(None) as run:
        assert isinstance(run, dask_cluster.DaskCluster)
        assert {number for found in run(Asking(), batches) for number in found} == {1}


# Lost workers


class Killer:
    """Callback that kills a worker after some iterations."""

    def __init__(self, client, after):
        self.client, self.after = client, after
        self.iterations = 0

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.iterations += 1
        if self.iterations == self.after:
            self.pid = next(iter(self.client.run(os.getpid).values()))
            os.kill(self.pid, signal.SIGKILL)

    def teardown(self, estimator, context):
        pass


@pytest.mark.parametrize("kind", ["memory", "lazy"])
def test_fit_survives_a_killed_worker(on_dask, data, kind):
    X, Y = data if kind == "memory" else (LazyImages(range(6), draw), LazyImages(range(6), draw_labels))
    killer = Killer(on_dask, after=2)
    est = quick(max_iter=5, tol=1e-6).set_callbacks(killer).fit(X, Y)
    assert killer.iterations > 2
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(killer.pid, 0)
            time.sleep(0.1)
    assert_same(est, locally(quick(max_iter=5, tol=1e-6), list(X), list(Y)))


class Deadly:
    """Function that kills its process a number of times when it gets a certain batch."""

    def __init__(self, n_sites, folder, times):
        self.n_sites, self.folder, self.times = n_sites, folder, times

    def __call__(self, batch):
        if batch.n_sites == self.n_sites and len(os.listdir(self.folder)) < self.times:
            open(os.path.join(self.folder, str(os.getpid())), "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch.n_sites


@pytest.mark.parametrize("times", [1, 99])
def test_batch_that_kills_workers_is_given_up(on_dask, data, tmp_path, times):
    X, Y = data
    batches = batches_of(X, Y)
    sizes = [batch.n_sites for batch in batches]
    deadly = Deadly(sizes[1], str(tmp_path), times)
    with parallel_config(backend="dask", wait_for_workers_timeout=30), workers(None) as run:
        if times == 1:
            assert run(deadly, batches) == sizes
        else:
            with pytest.raises(RuntimeError, match="4 workers in a row were lost with the same"):
                run(deadly, batches)
            assert not run.tasks
    assert len(os.listdir(tmp_path)) == min(times, 4)


def test_cluster_without_workers_is_refused(data):
    options = {"n_workers": 0, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster:
        with distributed.Client(cluster, set_as_default=False) as client:
            with (
                dask_cluster.DaskCluster(client, 0.2, threads.Progress("", 0)) as run,
                pytest.raises(RuntimeError, match="no worker"),
            ):
                run(len, batches_of(*data))


class Interrupter(Killer):
    """Callback that interrupts the fit as Ctrl-C does."""

    def on_fit_task_end(self, estimator, context):
        self.iterations += 1
        if self.iterations == self.after:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)  # the signal arrives here


def test_interrupted_fit_keeps_the_best_weights(on_dask, data, request):
    # Where the tests themselves run in the background, the shell may have turned the signal off.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    est = quick(max_iter=5, tol=1e-6).set_callbacks(Interrupter(on_dask, after=2))
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        est.fit(*data)
    assert est.n_iter_ == 2
    assert_same(quick().fit(*data), locally(quick(), *data))  # and the cluster goes on


# scikit-learn


def test_pipelines_and_searches_run_on_the_workers(on_dask, data):
    X, Y = data
    pipe = make_pipeline(PixelWise(StandardScaler()), quick(max_iter=2))
    assert_same(pipe.fit(X, Y)[-1], locally(pipe, X, Y)[-1])
    stack = make_feature_stack("passthrough", ProbabilityFeatures(GaussianNB(), cv=2, random_state=0))
    pipe = make_pipeline(stack, quick(max_iter=2))
    assert_same(pipe.fit(X, Y)[-1], locally(pipe, X, Y)[-1])
    # The search runs its candidates on the workers, and each of them fits where it is.
    search = GridSearchCV(
        quick(max_iter=1, n_jobs=2), {"alpha": [1e-3, 1.0]}, cv=KFold(2), error_score="raise", refit=False
    )
    found = search.fit(X[:4], Y[:4]).cv_results_["mean_test_score"]
    with parallel_config(backend="threading"):
        assert_array_equal(found, clone(search).fit(X[:4], Y[:4]).cv_results_["mean_test_score"])


def test_fit_prints_progress(on_dask, data, monkeypatch, capsys):
    set_limit(monkeypatch, "seconds between prints", 0.0)
    quick(max_iter=1, verbose=2).fit(*data)
    assert "[GridCRFClassifier] evaluation: " in capsys.readouterr().out
