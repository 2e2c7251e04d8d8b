"""Choice between threads and a dask cluster; the only module that uses joblib."""

from contextlib import contextmanager

from joblib import effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend

from skcrf._scratch import reuse_memory
from skcrf.parallel.blas import one_blas_thread
from skcrf.parallel.progress import Progress
from skcrf.parallel.threads import OneThread, ThreadPool


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
