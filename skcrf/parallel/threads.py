"""Running a function over batches: in threads, or on a cluster. The only place that knows joblib.

Batches do not depend on the number of workers. They are started in the order of their sizes, the largest
first, and what the function returns for them is put back in their own order, so that a fit gives the same
bits whoever does the work.
"""

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, wraps
from threading import Lock

from joblib import effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from sklearn import config_context, get_config
from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from skcrf._scratch import reuse_memory

# Seconds between two lines of progress; what takes less is not worth a line.
_SECONDS = 2.0
# Examples that are loaded ahead of those in work. More would cost memory and gain nothing: the one thread
# that loads is either fast enough or never idle.
_AHEAD = 2


@contextmanager
def workers(n_jobs, *, verbose=0, name=""):
    """Open a pool of workers: those of a dask cluster under joblib's dask backend, threads otherwise.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads, as in joblib; a cluster has its own.
    verbose : int, default=0
        From 2 on, tells how far a run over the batches is, if it lasts.
    name : str, default=""
        Who asks, for the lines that are printed.

    Yields
    ------
    run : callable
        ``run(function, batches, among=None, title="")`` gives the list of what the function returns for each
        batch. `among` are all batches that later runs may ask for, which a cluster places once.
    """
    progress = Progress(name, verbose)
    client = _dask_client()
    # One BLAS thread, with any n_jobs: sums then have one order, and cores are not asked for twice.
    with one_blas_thread(), reuse_memory():
        if client is None:
            with Threads(_n_threads(n_jobs), progress) as run:
                yield run
        else:
            from skcrf.parallel.dask_cluster import (
                Cluster,  # needs distributed, which is there if its backend is
            )

            with Cluster(client, get_active_backend()[0].wait_for_workers_timeout, progress) as run:
                yield run


def _dask_client():
    """Find the client of joblib's active backend; None if that is another, or this is a task of dask's."""
    backend, _ = get_active_backend()
    if not _is_dask(backend):
        return None
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return backend.client
    return None  # a task that waits for other tasks could block the cluster: it does the work itself


def _is_dask(backend):
    return type(backend).__name__ == "DaskDistributedBackend"  # by name: its class is there only with dask


def _n_threads(n_jobs):
    backend, configured = get_active_backend()
    if _is_dask(backend):  # it would count the cores of the whole cluster
        n_jobs, configured = n_jobs or 1, None
    with parallel_config(backend="threading", n_jobs=configured):
        return effective_n_jobs(n_jobs)


@contextmanager
def plain_interrupts():
    """Let Ctrl-C be a KeyboardInterrupt wherever it comes.

    numba runs Python code to make arrays of what a kernel returns, and does not look whether that raised: an
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


class _Blas:
    """The limit of BLAS threads of the process, and how many want it now."""

    lock, users, limiter = Lock(), 0, None


@cache
def _libraries():
    return ThreadpoolController()  # looking for libraries takes a while


@contextmanager
def one_blas_thread():
    """Limit BLAS to one thread, until the last of those who want it has left."""
    with _Blas.lock:
        _Blas.users += 1
        if _Blas.users == 1:
            _Blas.limiter = _libraries().limit(limits=1, user_api="blas")
            _Blas.limiter.__enter__()
    try:
        yield
    finally:
        with _Blas.lock:
            _Blas.users -= 1
            if _Blas.users == 0:
                _Blas.limiter.__exit__(None, None, None)


class Progress:
    """Tells how far a run is, every few seconds.

    Parameters
    ----------
    name : str
        Whose run it is.
    verbose : int
        Silent below 2.
    """

    def __init__(self, name, verbose):
        self.name = name
        self.verbose = verbose

    def start(self, title, total):
        """Begin a run over `total` batches."""
        self.title, self.total = title, total
        self.begun = self.told = time.monotonic()

    def tell(self, done):
        """Take note of how many are done."""
        now = time.monotonic()
        if self.verbose >= 2 and now - self.told >= _SECONDS and done < self.total:
            self.told = now
            print(  # noqa: T201
                f"[{self.name}] {self.title}: {done} of {self.total} batches in {now - self.begun:.0f} s",
                flush=True,
            )


def with_this_config(function):
    """Let a function see scikit-learn's configuration of this thread in whichever thread it is called."""
    config = get_config()

    @wraps(function)
    def configured(*args):
        with config_context(**config):
            return function(*args)

    return configured


def prefetched(load, items, ahead=_AHEAD):
    """Load items one after the other in a background thread, a few ahead of what is asked for.

    Parameters
    ----------
    load : callable
        What to call with each item.
    items : iterable
        The items.
    ahead : int
        How many to load ahead.

    Yields
    ------
    loaded : object
        What `load` returned, in order.
    """
    load = with_this_config(load)
    loader = ThreadPoolExecutor(1, thread_name_prefix="skcrf-load")
    waiting = deque()
    try:
        for item in items:
            waiting.append(loader.submit(load, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        loader.shutdown(cancel_futures=True)


class Threads:
    """Runs a function over batches in threads; with one, in the thread that asks.

    Parameters
    ----------
    n_threads : int
        Number of threads that compute. One more loads, if there is something to load.
    progress : Progress
        Is told how far a run is.
    """

    # Kernels release the interpreter, and batches stay where they are.

    def __init__(self, n_threads, progress):
        self.n_threads = n_threads
        self.progress = progress
        self.pool = ThreadPoolExecutor(n_threads, "skcrf") if n_threads > 1 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pool is not None:
            self.pool.shutdown()

    def __call__(self, function, batches, among=None, title=""):
        """Run the function over batches.

        Parameters
        ----------
        function : callable
            What to call with each loaded batch.
        batches : list of Batch or LazyBatch
            The batches.
        among : list of Batch or LazyBatch, default=None
            Ignored: threads need not send batches anywhere.
        title : str, default=""
            What the run is for.

        Returns
        -------
        results : list
            What the function returned, in the order of the batches.
        """
        order = sorted(range(len(batches)), key=lambda i: -batches[i].n_sites)
        results = dict.fromkeys(range(len(batches)))
        self.progress.start(title, len(batches))
        lazy = any(batch.is_lazy for batch in batches)
        run = self._one_by_one if self.pool is None or len(batches) == 1 else self._in_threads
        for done, (i, result) in enumerate(run(function, batches, order, lazy), 1):
            results[i] = result
            self.progress.tell(done)
        return list(results.values())

    def _one_by_one(self, function, batches, order, lazy):
        ahead = (batches[i] for i in order)
        for i, loaded in zip(order, prefetched(_fetch, ahead) if lazy else ahead, strict=True):
            with plain_interrupts():  # only this thread is interrupted; other threads never are
                result = function(batches[i].build(loaded))
            yield i, result

    def _in_threads(self, function, batches, order, lazy):
        loader = ThreadPoolExecutor(1, "skcrf-load") if lazy else None
        most = self.n_threads + _AHEAD  # not all at once: each is looked at whenever one is done
        work, fetch = with_this_config(_work), with_this_config(_fetch)
        left, jobs = iter(order), {}
        try:
            while True:
                while len(jobs) < most and (i := next(left, None)) is not None:
                    loading = loader.submit(fetch, batches[i]) if lazy else None
                    jobs[self.pool.submit(work, function, batches[i], loading)] = i
                if not jobs:
                    return
                for job in wait(jobs, return_when=FIRST_COMPLETED).done:
                    yield jobs.pop(job), job.result()
        finally:
            for job in jobs:
                job.cancel()
            if lazy:
                loader.shutdown(cancel_futures=True)
            wait(jobs)


def _fetch(batch):
    return batch.fetch()


def _work(function, batch, loading):
    return function(batch.build(batch if loading is None else loading.result()))
