"""Running over batches: order, threads, progress, and nothing done twice."""

import os
import threading
import time

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_array_equal
from sklearn import config_context, get_config
from threadpoolctl import threadpool_info

from skcrf import GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.inference import BP, TRW
from skcrf.optimizers import LBFGS
from skcrf.parallel import threads
from skcrf.training.objective import Objective, workers


class Stub:
    """A batch of which only the size is known."""

    is_lazy = False

    def __init__(self, n_sites):
        self.n_sites = n_sites

    def made(self, loaded):
        return self


class LazyStub(Stub):
    """A batch that has to be loaded; counts the loaded ones that are alive."""

    is_lazy = True
    alive, most = 0, 0
    lock = threading.Lock()

    def fetch(self):
        return Loaded()

    def made(self, loaded):
        self.loaded = loaded
        return self


class Loaded:
    def __init__(self):
        with LazyStub.lock:
            LazyStub.alive += 1
            LazyStub.most = max(LazyStub.most, LazyStub.alive)

    def __del__(self):
        with LazyStub.lock:
            LazyStub.alive -= 1


SIZES = [3, 9, 1, 9, 5, 2, 8]


@pytest.mark.parametrize("kind", [Stub, LazyStub])
@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_largest_first_and_results_in_order(n_jobs, kind):
    started = []

    def function(batch):
        started.append(batch.n_sites)
        time.sleep(0.002 * batch.n_sites)
        batch.loaded = None
        return batch.n_sites

    with workers(n_jobs) as run:
        assert run(function, [kind(size) for size in SIZES]) == SIZES
        assert sorted(started) == sorted(SIZES)
        if n_jobs == 1:
            assert started == sorted(SIZES, reverse=True)
        assert started[0] == 9
        assert run(function, []) == []


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_few_examples_are_loaded_at_a_time(n_jobs):
    def function(batch):
        time.sleep(0.001)
        batch.loaded = None

    for n in (20, 60):
        LazyStub.most = 0
        with workers(n_jobs) as run:
            run(function, [LazyStub(1) for _ in range(n)])
        assert LazyStub.alive == 0
        assert 2 <= LazyStub.most <= 2 * n_jobs + 3


@pytest.mark.parametrize("kind", [Stub, LazyStub])
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_stops_the_others(n_jobs, kind, error):
    started = []

    def function(batch):
        started.append(batch)
        time.sleep(0.005)
        if len(started) >= 3:
            raise error("no more")

    n_threads = threading.active_count()
    with pytest.raises(error), workers(n_jobs) as run:
        run(function, [kind(1) for _ in range(50)])
    assert len(started) < 20
    assert threading.active_count() == n_threads


def test_one_blas_thread_until_the_last_has_left():
    def limits():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    before = limits()
    first, second = workers(1), workers(2)
    with first:
        second.__enter__()
        assert set(limits()) == {1}
    assert set(limits()) == {1}
    second.__exit__(None, None, None)
    assert limits() == before


def test_threads_see_the_configuration():
    with config_context(working_memory=77), workers(2) as run:
        assert run(lambda batch: get_config()["working_memory"], [Stub(1), Stub(2)]) == [77, 77]


def test_number_of_threads():
    def threads(n_jobs):
        with workers(n_jobs) as run:
            return run.n_threads

    assert threads(None) == 1
    assert threads(3) == 3
    assert threads(-1) == os.cpu_count()
    with parallel_config(n_jobs=2):
        assert threads(None) == 2
    with parallel_config(backend="threading", n_jobs=2):
        assert threads(None) == 2
        assert threads(1) == 1
    with pytest.raises(ValueError, match="n_jobs"):
        threads(0)


def test_progress_of_what_lasts(monkeypatch, capsys):
    for verbose, every, lines in [(2, 0.0, 6), (2, 60.0, 0), (1, 0.0, 0)]:
        monkeypatch.setattr(threads, "_SECONDS", every)
        with workers(2, verbose=verbose, name="Model") as run:
            run(lambda batch: None, [Stub(size) for size in SIZES], title="evaluation")
        told = capsys.readouterr().out.splitlines()
        assert len(told) == lines
        assert told[:1] == ["[Model] evaluation: 1 of 7 batches in 0 s"][:lines]


def test_progress_of_a_fit(monkeypatch, capsys):
    X, Y = make_potts(n_images=3, shape=(50, 50), random_state=0)
    monkeypatch.setattr(threads, "_SECONDS", 0.0)
    GridCRFClassifier(inference=TRW(max_iter=1), tol=1e-3, verbose=2).fit(X, Y)
    told = capsys.readouterr().out
    for title in ("independent model", "evaluation"):
        assert f"[GridCRFClassifier] {title}: 2 of 3 batches in" in told
    assert "iteration 1: objective" in told


# Nothing is evaluated twice


@pytest.fixture
def evaluated(monkeypatch):
    """Record what is really evaluated: the model and the bits of its weights."""
    seen = []
    evaluate = Objective._evaluate

    def recorded(self, evaluation, batches, title):
        if batches is self.batches:
            seen.append((evaluation.edges, evaluation.weights.ravel().tobytes()))
        return evaluate(self, evaluation, batches, title)

    monkeypatch.setattr(Objective, "_evaluate", recorded)
    return seen


@pytest.mark.parametrize("inference", [TRW(max_iter=3), TRW(max_iter=500, tol=1e-10)])
def test_a_fit_evaluates_nothing_twice(evaluated, inference):
    X, Y = make_potts(n_images=4, shape=(8, 8), random_state=0)
    est = GridCRFClassifier(inference=inference, tol=1e-3).fit(X, Y)
    assert {edges for edges, _ in evaluated} == {True, False}
    assert len(evaluated) == len(set(evaluated))
    assert est.converged_


def test_a_fresh_start_evaluates_nothing_twice(evaluated, monkeypatch):
    X, Y = make_potts(n_images=4, shape=(8, 8), random_state=0)
    est = GridCRFClassifier(inference=TRW(max_iter=3))
    batches, shape = est._prepare(X, Y, None, reset=True)
    with workers(None) as run:
        objective = est._objective(batches, shape, run)
        asked = []

        def misled(w):  # from the fourth point on the gradient points the wrong way, until a fresh start
            asked.append(w.tobytes())
            value, gradient = objective(w)
            return value, -gradient if 4 <= len(asked) < 40 else gradient

        options = {"max_iter": 60, "tol": 1e-3, "callback": lambda w, value, **known: False, "rng": None}
        LBFGS().minimize(misled, shape.ravel(), **options)
    assert len(asked) > len(set(asked))  # it does ask again
    assert len(evaluated) == len(set(evaluated)) == len(set(asked))


def test_a_repeated_answer_is_not_shared():
    X, Y = make_potts(n_images=2, shape=(5, 5), random_state=0)
    est = GridCRFClassifier(inference=BP(max_iter=1, tol=1e-9))
    batches, shape = est._prepare(X, Y, None, reset=True)
    with workers(None) as run:
        objective = est._objective(batches, shape, run)
        w = np.linspace(-1, 2, shape.ravel().size)
        value, gradient = objective(w)
        assert not objective.converged
        kept = gradient.copy()
        gradient[:] = np.nan
        objective.independent(w)
        assert objective.converged
        again, gradient = objective(w)
        assert not objective.converged  # as it was at these weights
    assert again == value
    assert_array_equal(gradient, kept)


def test_an_interrupted_evaluation_is_not_remembered():
    X, Y = make_potts(n_images=2, shape=(5, 5), random_state=0)
    est = GridCRFClassifier(inference=TRW(max_iter=1))
    batches, shape = est._prepare(X, Y, None, reset=True)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with workers(None) as run:
        objective = est._objective(batches, shape, interrupted)
        with pytest.raises(KeyboardInterrupt):
            objective(shape.ravel())
        objective.run = run
        assert np.isfinite(objective(shape.ravel())[0])


def test_memory_of_evaluations_is_bounded(monkeypatch):
    monkeypatch.setattr("skcrf.training.objective._BYTES", 0)
    X, Y = make_potts(n_images=2, shape=(5, 5), random_state=0)
    est = GridCRFClassifier(inference=TRW(max_iter=1))
    batches, shape = est._prepare(X, Y, None, reset=True)
    with workers(None) as run:
        objective = est._objective(batches, shape, run)
        for step in range(5):
            objective(shape.ravel() + step)
    assert len(objective._known) == 2


# Features


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge_features", ["bias", "contrast"])
@pytest.mark.parametrize("container", [list, np.array, tuple])
def test_features_are_never_copied(dtype, edge_features, container):
    X, Y = make_potts(n_images=3, shape=(50, 50), random_state=0)
    X = container([np.ascontiguousarray(x, dtype=dtype) for x in X])
    est = GridCRFClassifier(edge_features=edge_features)
    batches, _ = est._prepare(X, Y, [1.0, 2.0, 1.0], reset=True)
    assert len(batches) == 3
    for batch, x in zip(batches, X, strict=True):
        assert batch.X.dtype == dtype
        assert np.shares_memory(batch.X, x)
        assert np.shares_memory(batch.without_edges().X, x)
    assert batches[0].graph is batches[2].graph


def test_a_table_is_never_copied():
    X = np.random.default_rng(0).normal(size=(5000, 2))
    batches, _ = GridCRFClassifier()._prepare(X, np.arange(5000) % 2, None, reset=True)
    assert len(batches) > 1
    assert all(np.shares_memory(batch.X, X) for batch in batches)


def test_weights_of_examples_scale_their_gradients():
    X, Y = make_potts(n_images=4, shape=(6, 5), random_state=0)
    big, labels = make_potts(n_images=1, shape=(50, 50), random_state=1)
    X, Y = [*X, *big], [*Y, *labels]
    options = {"inference": TRW(max_iter=2), "tol": 1e-4}
    weighted = GridCRFClassifier(**options).fit(X, Y, sample_weight=[1, 3, 1, 2, 2])
    repeated = [0, 1, 1, 1, 2, 3, 3, 4, 4]
    plain = GridCRFClassifier(**options).fit([X[i] for i in repeated], [Y[i] for i in repeated])
    np.testing.assert_allclose(weighted.coef_, plain.coef_, rtol=1e-3)
    np.testing.assert_allclose(weighted.loss_curve_[-1], plain.loss_curve_[-1], rtol=1e-6)


@pytest.mark.parametrize("depth", [1, 3])
def test_interrupts_that_kernels_make_something_else_of(depth):
    """numba gives a SystemError where Ctrl-C comes while it makes arrays of what a kernel returns."""

    def raised(error, depth):
        try:
            raise error
        except BaseException as cause:
            if depth == 0:
                raise
            try:
                raise SystemError("returned a result with an exception set") from cause
            except SystemError as problem:
                return raised(problem, depth - 1)

    with workers(1) as run:
        with pytest.raises(KeyboardInterrupt):
            run(lambda batch: raised(KeyboardInterrupt(), depth), [Stub(1)])
        with pytest.raises(SystemError):
            run(lambda batch: raised(ValueError(), depth), [Stub(1)])
