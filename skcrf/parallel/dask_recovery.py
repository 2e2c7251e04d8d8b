"""Recovery from lost dask workers: how a loss is noticed, and when to give up.

The client keeps all batches, so that `dask_cluster.DaskCluster` can send those of a lost worker to another
one and evaluate them again. A run ends with an error if the same batches lose one worker after the other.
"""

import asyncio
import concurrent.futures
import time

# Errors of the client when a worker goes away; broken connections are OSErrors.
LOST_WORKER_ERRORS = (OSError, TimeoutError, asyncio.CancelledError, concurrent.futures.CancelledError)
# Workers that may be lost with the same batches in one run.
_MAX_LOST_WORKERS = 3


class LostWorkerCounter:
    """Number of workers that were lost with each placement of batches during one run."""

    def __init__(self):
        self.counts = {}

    def add(self, placement, error):
        """Count a lost worker; raise RuntimeError if its batches have lost too many."""
        n_lost = self.counts[placement] = self.counts.get(placement, 0) + 1
        if n_lost > _MAX_LOST_WORKERS:
            names = [f", {batch.name}" for batch in placement.batches if batch.is_lazy]
            raise RuntimeError(
                f"{n_lost} workers in a row were lost with the same {len(placement.batches)} batches of "
                f"{placement.n_sites} sites{''.join(names[:3])}. Give the workers more memory."
            ) from error


def result_or_loss(task):
    """Return the result of a task and None, or None and the error by which its worker was lost.

    Errors of the evaluated function are raised.
    """
    if task.status == "error" and type(task.exception()).__name__ != "KilledWorker":
        task.result()
    try:
        return task.result(), None
    except (Exception, asyncio.CancelledError) as error:
        return None, error


def wait_for_workers(client, timeout):
    """Return the number of threads of each worker, by address; wait if there is no worker."""
    deadline = time.monotonic() + timeout
    while not (n_threads := client.nthreads()):
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"The dask cluster must have a worker, got no worker within {timeout} s. Start workers, or "
                "wait longer with joblib.parallel_config(backend='dask', wait_for_workers_timeout=...)."
            )
        time.sleep(0.1)
    return n_threads
