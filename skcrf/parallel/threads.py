"""Evaluation of batches in threads of this process, and the choice between them and a dask cluster.

Kernels release the interpreter lock, and BLAS is limited to one thread. The largest batches are started
first, so that threads finish together. Only this module uses joblib.
"""

import math
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Lock

from joblib import effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController  # a requirement of scikit-learn

from skcrf._numerics import reuse_memory
from skcrf.parallel.prefetch import AHEAD, prefetched, with_this_config

# Seconds between two lines of progress; shorter runs print nothing.
_SECONDS = 2.0


class InOrder:
    """Passes results on in the order of the batches, each as soon as those before it are there.

    Parameters
    ----------
    take : callable
        Called with each result.
    """

    def __init__(self, take):
        self.take = take
        self.waiting = {}
        self.n_taken = 0

    def put(self, i, result):
        """Take in the result of batch i."""
        self.waiting[i] = result
        while self.n_taken in self.waiting:
            self.take(self.waiting.pop(self.n_taken))
            self.n_taken += 1


@contextmanager
def workers(n_jobs, *, verbose=0, name=""):
    """Open the workers that joblib's configuration asks for: a dask cluster, or threads of this process.

    Batches do not depend on the number of workers, and results are returned in the order of the batches, so
    that a fit gives the same bits with all workers.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads, as in joblib; ignored with a cluster.
    verbose : int, default=0
        From 2 on, long runs print their progress.
    name : str, default=""
        Name of the estimator, for the lines that are printed.

    Yields
    ------
    run : callable
        ``run(function, batches, among=None, title="", take=None)`` returns the list of ``function(batch)``
        in the order of the batches. With `take`, it passes each result to this function, in that order, and
        keeps none. `among` are all batches of later runs, which a cluster places on its workers at once. A
        batch has the attributes `n_sites`, `nbytes`, `is_lazy` and, if it is lazy, `name`. Lazy batches are
        loaded by ``batch.build(batch.fetch())``; other batches return themselves from `build`.
    """
    progress = Progress(name, verbose)
    client = _dask_client()
    # One BLAS thread with any n_jobs: sums then have one order, and threads do not compete for the cores.
    with one_blas_thread(), reuse_memory():
        if client is None:
            n_threads = _n_threads(n_jobs)
            with OneThread(progress) if n_threads == 1 else ThreadPool(n_threads, progress) as run:
                yield run
        else:
            from skcrf.parallel.dask_cluster import DaskCluster  # imports distributed, an extra

            timeout = get_active_backend()[0].wait_for_workers_timeout
            with DaskCluster(client, timeout, progress) as run:
                yield run


def _dask_client():
    """Return the client of joblib's dask backend; None with another backend and in a task of dask."""
    backend, _ = get_active_backend()
    if not _is_dask(backend):
        return None
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return backend.client
    return None  # a task that waits for other tasks could block the cluster


def _is_dask(backend):
    return type(backend).__name__ == "DaskDistributedBackend"  # the class exists only if dask is installed


def _n_threads(n_jobs):
    backend, configured = get_active_backend()
    if _is_dask(backend):  # it would count the cores of the whole cluster
        n_jobs, configured = n_jobs or 1, None
    with parallel_config(backend="threading", n_jobs=configured):
        return effective_n_jobs(n_jobs)


# Threads


class OneThread:
    """Evaluation of batches in the calling thread; another thread loads lazy batches.

    Parameters
    ----------
    progress : Progress
        Prints the progress of a run.
    """

    n_threads = 1

    def __init__(self, progress):
        self.progress = progress

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __call__(self, function, batches, among=None, title="", take=None):
        """Evaluate a function on batches, see `workers`."""
        order = _largest_first(batches)
        sources = (batches[i] for i in order)
        is_lazy = any(batch.is_lazy for batch in batches)
        results = []
        in_order = InOrder(take or results.append)
        self.progress.start(title, len(batches))
        # The loader must not be a local variable: an error has to end it, but its traceback keeps this frame.
        with plain_interrupts():
            for n_done, (i, loaded) in enumerate(
                zip(order, prefetched(_fetch, sources) if is_lazy else sources, strict=True), 1
            ):
                in_order.put(i, function(batches[i].build(loaded)))
                self.progress.update(n_done)
        return results


class ThreadPool:
    """Evaluation of batches in several threads; one more loads lazy batches.

    Parameters
    ----------
    n_threads : int
        Number of threads that compute.
    progress : Progress
        Prints the progress of a run.
    """

    def __init__(self, n_threads, progress):
        self.n_threads = n_threads
        self.progress = progress
        self.pool = ThreadPoolExecutor(n_threads, "skcrf")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.shutdown()

    def __call__(self, function, batches, among=None, title="", take=None):
        """Evaluate a function on batches, see `workers`."""
        if len(batches) == 1:
            return OneThread(self.progress)(function, batches, title=title, take=take)
        results = []
        in_order = InOrder(take or results.append)
        self.progress.start(title, len(batches))
        for n_done, (i, result) in enumerate(self._finished(function, batches), 1):
            in_order.put(i, result)
            self.progress.update(n_done)
        return results

    def _finished(self, function, batches):
        """Yield index and result of each batch as soon as it is finished."""
        loader = ThreadPoolExecutor(1, "skcrf-load") if any(batch.is_lazy for batch in batches) else None
        evaluate, fetch = with_this_config(_evaluate), with_this_config(_fetch)
        waiting, tasks = iter(_largest_first(batches)), {}
        try:
            while True:
                # Few tasks at a time: the pool looks at all of them whenever one is finished.
                while len(tasks) < self.n_threads + AHEAD and (i := next(waiting, None)) is not None:
                    loading = None if loader is None else loader.submit(fetch, batches[i])
                    tasks[self.pool.submit(evaluate, function, batches[i], loading)] = i
                if not tasks:
                    return
                for task in wait(tasks, return_when=FIRST_COMPLETED).done:
                    yield tasks.pop(task), task.result()
        finally:
            for task in tasks:
                task.cancel()
            if loader is not None:
                loader.shutdown(cancel_futures=True)
            wait(tasks)


def _largest_first(batches):
    """Sort batches by size, those of about the same size (to 19 %) in their order, as results are taken."""
    return sorted(range(len(batches)), key=lambda i: -math.ceil(4 * math.log2(max(1, batches[i].n_sites))))


def _fetch(batch):
    return batch.fetch() if batch.is_lazy else batch


def _evaluate(function, batch, loading):
    return function(batch.build(batch if loading is None else loading.result()))


# BLAS, interrupts and progress


class _Limit:
    """The limit of BLAS to one thread in this process, and the number of its users."""

    lock, users, limiter = Lock(), 0, None


@cache
def _libraries():
    return ThreadpoolController()  # finding the libraries takes a while


@contextmanager
def one_blas_thread():
    """Limit BLAS to one thread until the last concurrent user leaves."""
    with _Limit.lock:
        _Limit.users += 1
        if _Limit.users == 1:
            _Limit.limiter = _libraries().limit(limits=1, user_api="blas")
            _Limit.limiter.__enter__()
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.users -= 1
            if _Limit.users == 0:
                _Limit.limiter.__exit__(None, None, None)


@contextmanager
def plain_interrupts():
    """Raise KeyboardInterrupt also where numba turns it into a SystemError.

    numba runs Python code to make arrays from the results of a kernel without looking for exceptions: an
    interrupt at this time ends as a SystemError.
    """
    try:
        yield
    except SystemError as error:
        cause = error
        while isinstance(cause, SystemError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None
        raise


class Progress:
    """Printed lines about the progress of a run.

    Parameters
    ----------
    name : str
        Name of the estimator.
    verbose : int
        Nothing is printed below 2.
    """

    def __init__(self, name, verbose):
        self.name = name
        self.verbose = verbose

    def start(self, title, n_batches):
        """Start a run over `n_batches` batches."""
        self.title, self.n_batches = title, n_batches
        self.start_time = self.print_time = time.monotonic()

    def update(self, n_done):
        """Print a line if the last one is old enough and the run goes on."""
        now = time.monotonic()
        if self.verbose >= 2 and now - self.print_time >= _SECONDS and n_done < self.n_batches:
            self.print_time = now
            seconds = now - self.start_time
            print(  # noqa: T201
                f"[{self.name}] {self.title}: {n_done} of {self.n_batches} batches in {seconds:.0f} s",
                flush=True,
            )
