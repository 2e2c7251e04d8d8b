"""Evaluation of batches in threads: order, errors, configuration and progress."""

import os
import threading
import time

import pytest
from joblib import parallel_config
from limits import set_limit
from sklearn import config_context, get_config
from threadpoolctl import threadpool_info

from skcrf import GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.inference import TRW
from skcrf.parallel import workers


class Stub:
    """A batch that has only a size."""

    is_lazy = False

    def __init__(self, n_sites):
        self.n_sites = n_sites

    def build(self, loaded):
        return self


class LazyStub(Stub):
    """A batch that has to be loaded; the class counts the loaded ones that are alive."""

    is_lazy = True
    alive, most = 0, 0
    lock = threading.Lock()

    def fetch(self):
        return Loaded()

    def build(self, loaded):
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
def test_largest_batches_start_first_and_results_are_in_order(n_jobs, kind):
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
def test_taken_results_come_in_order_and_are_not_kept(n_jobs):
    class Result:
        alive, most, lock = 0, 0, threading.Lock()

        def __init__(self, value):
            self.value = value
            with self.lock:
                Result.alive += 1
                Result.most = max(Result.most, Result.alive)

        def __del__(self):
            with self.lock:
                Result.alive -= 1

    def function(batch):
        time.sleep(0.001)
        return Result(batch.n_sites)

    sizes, taken = [1900 + i % 140 for i in range(60)], []  # of about the same size, as packed sentences are
    with workers(n_jobs) as run:
        run(function, [Stub(size) for size in sizes], take=lambda result: taken.append(result.value))
    assert taken == sizes
    assert Result.most < 30


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_few_batches_are_loaded_at_a_time(n_jobs):
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
def test_error_stops_the_run(n_jobs, kind, error):
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


def test_blas_has_one_thread_until_the_last_user_leaves():
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


def test_threads_see_the_configuration_of_scikit_learn():
    with config_context(working_memory=77), workers(2) as run:
        assert run(lambda batch: get_config()["working_memory"], [Stub(1), Stub(2)]) == [77, 77]


def test_number_of_threads_follows_joblib():
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


def test_long_runs_print_progress(monkeypatch, capsys):
    for verbose, every, lines in [(2, 0.0, 6), (2, 60.0, 0), (1, 0.0, 0)]:
        set_limit(monkeypatch, "seconds between prints", every)
        with workers(2, verbose=verbose, name="Model") as run:
            run(lambda batch: None, [Stub(size) for size in SIZES], title="evaluation")
        printed = capsys.readouterr().out.splitlines()
        assert len(printed) == lines
        assert printed[:1] == ["[Model] evaluation: 1 of 7 batches in 0 s"][:lines]


def test_fit_prints_progress(monkeypatch, capsys):
    X, Y = make_potts(n_images=3, shape=(50, 50), random_state=0)
    set_limit(monkeypatch, "seconds between prints", 0.0)
    GridCRFClassifier(inference=TRW(max_iter=1), tol=1e-3, verbose=2).fit(X, Y)
    printed = capsys.readouterr().out
    assert "[GridCRFClassifier] evaluation: 2 of 3 batches in" in printed
    assert "iteration 1: objective" in printed


@pytest.mark.parametrize("depth", [1, 3])
def test_interrupts_that_kernels_turn_into_system_errors(depth):
    """numba raises a SystemError if Ctrl-C comes while it makes arrays from the results of a kernel."""

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
