"""Evaluation of batches on the workers of a dask cluster.

Batches are sent to the workers once and stay there. Each run sends the function, with the weights that it
holds, and gets the results back. `dask_recovery` handles lost workers.
"""

import asyncio
from contextlib import suppress
from queue import Empty, Queue

from sklearn import config_context, get_config

from skcrf._numerics import reuse_memory
from skcrf.parallel.dask_recovery import (
    LOST_WORKER_ERRORS,
    LostWorkerCounter,
    result_or_loss,
    wait_for_workers,
)
from skcrf.parallel.threads import InOrder, OneThread, Progress, one_blas_thread

# Approximate number of bytes in one message.
_MESSAGE_BYTES = 2**26
# Seconds between two checks which workers are alive.
_CHECK_SECONDS = 1.0


class Parcel:
    """Batches that are sent in one message, in which a graph that they share is sent once.

    Parameters
    ----------
    batches : list of Batch or BatchLoader
        The batches.
    """

    def __init__(self, batches):
        self.batches = batches

    def __sizeof__(self):  # dask counts the memory of its workers
        return 1000 + sum(batch.nbytes for batch in self.batches)


class Placement:
    """Batches that are evaluated by one thread of a worker.

    Parameters
    ----------
    batches : list of Batch or BatchLoader
        The batches.
    """

    def __init__(self, batches):
        self.batches = batches
        self.worker = None
        self.parcels = []  # futures of the batches on the worker

    @property
    def n_sites(self):
        """Number of sites of the batches; a batch of unknown size counts as one."""
        return sum(max(1, batch.n_sites) for batch in self.batches)

    def is_on(self, workers):
        """Return whether the batches are on one of these workers."""
        return self.worker in workers and all(parcel.status == "finished" for parcel in self.parcels)

    def pack(self):
        """Pack the batches, in order, into parcels of a good size."""
        groups, size = [[]], 0
        for batch in self.batches:
            if groups[-1] and size + batch.nbytes > _MESSAGE_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(batch)
            size += batch.nbytes
        return [Parcel(batches) for batches in groups]


def evaluate(function, positions, config, *parcels):
    """Evaluate a function on some batches of the parcels, on the worker that holds them."""
    batches = [batch for parcel in parcels for batch in parcel.batches]
    with config_context(**config), one_blas_thread(), reuse_memory():
        return OneThread(Progress("", 0))(function, [batches[i] for i in positions])


class DaskCluster:
    """Evaluation of batches on the workers of a dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Connection to the cluster.
    timeout : float
        Seconds to wait for a worker if there is none.
    progress : Progress
        Prints the progress of a run.
    """

    def __init__(self, client, timeout, progress):
        self.client = client
        self.timeout = timeout
        self.progress = progress
        self.placements = []
        self.places = {}  # id of a batch -> its placement and its position there
        self.tasks = {}  # future -> placement

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._cancel(future for placement in self.placements for future in placement.parcels)

    def __call__(self, function, batches, among=None, title="", take=None):
        """Evaluate a function, which can be pickled, on batches, see `skcrf.parallel.workers`."""
        self._assign([batch for batch in (among or batches) if id(batch) not in self.places])
        positions = {}  # placement -> index of the batch in the run -> position in the placement
        for i, batch in enumerate(batches):
            placement, position = self.places[id(batch)]
            positions.setdefault(placement, {})[i] = position
        self.progress.start(title, len(batches))
        self.queue, lost = Queue(), LostWorkerCounter()
        results, n_done, alive = [], 0, self._alive()
        in_order = InOrder(take or results.append)
        try:
            for placement in positions:
                self._submit(placement, function, [*positions[placement].values()], alive, lost)
            while self.tasks:
                for placement, found, error in self._finished():
                    if error is None:
                        for i, result in zip(positions[placement], found, strict=True):
                            in_order.put(i, result)
                        n_done += len(found)
                        self.progress.update(n_done)
                    else:
                        placement.worker = None
                        lost.add(placement, error)
                        self._submit(placement, function, [*positions[placement].values()], alive, lost)
        finally:  # nothing continues after an error or an interrupt
            self._cancel(self.tasks)
            self.tasks.clear()
        return results

    def _assign(self, batches):
        """Distribute batches over placements, the largest first, each to the placement with fewest sites."""
        if not batches:
            return
        n_placements = min(len(batches), sum(self._alive().values()))
        assigned, load = [[] for _ in range(n_placements)], [0] * n_placements
        for batch in sorted(batches, key=lambda batch: -batch.n_sites):
            least = load.index(min(load))
            assigned[least].append(batch)
            load[least] += max(1, batch.n_sites)
        for own in assigned:
            placement = Placement(own)
            self.placements.append(placement)
            self.places |= {id(batch): (placement, position) for position, batch in enumerate(own)}

    def _submit(self, placement, function, positions, alive, lost):
        """Start the evaluation of a placement, after sending its batches if they are on no worker."""
        while not placement.is_on(alive):
            try:
                self._send(placement)
                alive = {placement.worker}
            except LOST_WORKER_ERRORS as error:
                lost.add(placement, error)
        task = self.client.submit(
            evaluate,
            function,
            positions,
            get_config(),
            *placement.parcels,
            workers=[placement.worker],
            pure=False,  # a repeated run is evaluated again
        )
        self.tasks[task] = placement
        task.add_done_callback(self.queue.put)

    def _send(self, placement):
        """Send batches to the worker with the fewest sites per thread."""
        n_threads = self._alive()
        placement.worker, placement.parcels = None, []
        load = dict.fromkeys(n_threads, 0)
        for other in self.placements:
            if other.worker in load:
                load[other.worker] += other.n_sites
        worker = min(load, key=lambda worker: load[worker] / n_threads[worker])
        for parcel in placement.pack():
            options = {"workers": [worker], "hash": False, "timeout": self.timeout}
            placement.parcels.append(self.client.scatter(parcel, **options))
        placement.worker = worker

    def _finished(self):
        """Wait for tasks; return placement, results and None of each, or the error that lost its worker."""
        try:
            ready = [self.queue.get(timeout=_CHECK_SECONDS)]
        except Empty:
            alive = self._alive()
            lost = [task for task, placement in self.tasks.items() if placement.worker not in alive]
            self._cancel(lost)
            return [(self.tasks.pop(task), None, OSError("the worker is gone")) for task in lost]
        while not self.queue.empty():
            ready.append(self.queue.get())
        ready = {task: self.tasks.pop(task) for task in ready if task in self.tasks}  # others were cancelled
        try:
            found = self.client.gather([*ready])  # one round trip for all of them
        except (Exception, asyncio.CancelledError):
            return [(placement, *result_or_loss(task)) for task, placement in ready.items()]
        return [(placement, results, None) for placement, results in zip(ready.values(), found, strict=True)]

    def _alive(self):
        """Return the number of threads of each worker that is alive."""
        return wait_for_workers(self.client, self.timeout)

    def _cancel(self, futures):
        futures = list(futures)
        if futures:
            with suppress(*LOST_WORKER_ERRORS, RuntimeError):  # a closed client has nothing to cancel
                self.client.cancel(futures)
