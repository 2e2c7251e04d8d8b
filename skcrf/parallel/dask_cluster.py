"""Running a function over batches on the workers of a dask cluster.

Batches are placed on the workers once and stay there; each run sends the function, with the weights that it
holds, and gets its results back. The client keeps the batches, or the recipes of lazy ones, so that what is
lost with a worker is placed again on another.
"""

import asyncio
import concurrent.futures
import time
from contextlib import suppress
from queue import Empty, Queue

from sklearn import config_context, get_config

from skcrf._scratch import reuse_memory
from skcrf.parallel.threads import Progress, Threads, one_blas_thread

# Size of what is sent in one message, about.
_PIECE_BYTES = 2**26
# How often a share may be lost in one run before it is taken to be deadly.
_LOSSES = 3
# Seconds between two looks at which workers are still there.
_LOOK = 1.0
# What the client raises when a worker goes away; broken connections are among the first.
_LOST = (OSError, TimeoutError, asyncio.CancelledError, concurrent.futures.CancelledError)


class Piece:
    """Some batches, as they are sent to a worker. Graphs that they share are sent once.

    Parameters
    ----------
    batches : list of Batch or LazyBatch
        The batches.
    """

    def __init__(self, batches):
        self.batches = batches

    def __sizeof__(self):  # for dask's accounts of memory
        return 1000 + sum(batch.nbytes for batch in self.batches)


class Share:
    """What one thread of a worker looks after.

    Parameters
    ----------
    batches : list of Batch or LazyBatch
        Its part of the batches.
    """

    def __init__(self, batches):
        self.batches = batches
        self.worker = None
        self.pieces = []

    @property
    def n_sites(self):
        """Number of sites of its batches; at least 1, as where it is not known."""
        return sum(max(1, batch.n_sites) for batch in self.batches)

    def cut(self):
        """Cut the batches, in order, into pieces that are good to send."""
        pieces, size = [[]], 0
        for batch in self.batches:
            if pieces[-1] and size + batch.nbytes > _PIECE_BYTES:
                pieces.append([])
                size = 0
            pieces[-1].append(batch)
            size += batch.nbytes
        return [Piece(batches) for batches in pieces]


def evaluate(function, picked, config, *pieces):
    """Run a function over batches that are on this worker.

    Parameters
    ----------
    function : callable
        What to call with each loaded batch.
    picked : list of int
        Which batches of the pieces.
    config : dict
        scikit-learn's configuration of the client.
    *pieces : Piece
        The batches.

    Returns
    -------
    results : list
        What the function returned.
    """
    batches = [batch for piece in pieces for batch in piece.batches]
    with config_context(**config), one_blas_thread(), reuse_memory(), Threads(1, Progress("", 0)) as run:
        return run(function, [batches[i] for i in picked])


class Cluster:
    """Runs a function over batches on the workers of a dask cluster.

    Parameters
    ----------
    client : distributed.Client
        The connection to the cluster.
    patience : float
        Seconds to wait for a worker when there is none.
    progress : Progress
        Is told how far a run is.
    """

    def __init__(self, client, patience, progress):
        self.client = client
        self.patience = patience
        self.progress = progress
        self.shares = []
        self.places = {}  # of each batch, by its id: share and number there
        self.tasks = {}  # future -> share

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._drop(future for share in self.shares for future in share.pieces)

    def __call__(self, function, batches, among=None, title=""):
        """Run the function over batches.

        Parameters
        ----------
        function : callable
            What to call with each loaded batch; can be pickled.
        batches : list of Batch or LazyBatch
            The batches.
        among : list of Batch or LazyBatch, default=None
            All batches that later runs may ask for, which are placed together.
        title : str, default=""
            What the run is for.

        Returns
        -------
        results : list
            What the function returned, in the order of the batches.
        """
        self._place([batch for batch in (among or batches) if id(batch) not in self.places])
        wanted = {}
        for i, batch in enumerate(batches):
            share, number = self.places[id(batch)]
            wanted.setdefault(share, {})[i] = number
        self.progress.start(title, len(batches))
        self.queue = Queue()
        losses, results = dict.fromkeys(wanted, 0), dict.fromkeys(range(len(batches)))
        done, alive = 0, self._alive()
        try:
            for share, numbers in wanted.items():
                losses[share] = self._submit(share, function, [*numbers.values()], alive, losses[share])
            while self.tasks:
                for share, found, error in self._finished():
                    if error is None:
                        results.update(zip(wanted[share], found, strict=True))
                        done += len(found)
                        self.progress.tell(done)
                    else:
                        share.worker = None
                        losses[share] = self._count(share, losses[share], error)
                        numbers = [*wanted[share].values()]
                        losses[share] = self._submit(share, function, numbers, alive, losses[share])
        finally:  # nothing goes on after an error or an interrupt
            self._drop(self.tasks)
            self.tasks.clear()
        return list(results.values())

    def _place(self, batches):
        """Share batches out, the largest first, each to the share that has the least."""
        if not batches:
            return
        n_shares = min(len(batches), sum(self._alive().values()))
        parts, load = [[] for _ in range(n_shares)], [0] * n_shares
        for batch in sorted(batches, key=lambda batch: -batch.n_sites):
            least = load.index(min(load))
            parts[least].append(batch)
            load[least] += max(1, batch.n_sites)
        for part in parts:
            share = Share(part)
            self.shares.append(share)
            self.places |= {id(batch): (share, number) for number, batch in enumerate(part)}

    def _submit(self, share, function, numbers, alive, losses):
        """Start the work of a share, which is sent to a worker before if it is nowhere; return its losses."""
        while share.worker not in alive or any(piece.status != "finished" for piece in share.pieces):
            try:
                self._send(share)
                alive = {share.worker}
            except _LOST as error:
                losses = self._count(share, losses, error)
        task = self.client.submit(
            evaluate,
            function,
            numbers,
            get_config(),
            *share.pieces,
            workers=[share.worker],
            pure=False,  # asked again, it is done again
        )
        self.tasks[task] = share
        task.add_done_callback(self.queue.put)
        return losses

    def _send(self, share):
        """Place a share on the worker that has the least to do."""
        threads = self._alive()
        share.worker, share.pieces = None, []
        load = dict.fromkeys(threads, 0)
        for other in self.shares:
            if other.worker in load:
                load[other.worker] += other.n_sites
        worker = min(load, key=lambda worker: load[worker] / threads[worker])
        for piece in share.cut():
            options = {"workers": [worker], "hash": False, "timeout": self.patience}
            share.pieces.append(self.client.scatter(piece, **options))
        share.worker = worker

    def _finished(self):
        """Wait for shares that are done; a list of share, results, and what happened if it was lost."""
        try:
            ready = [self.queue.get(timeout=_LOOK)]
        except Empty:
            alive = self._alive()
            gone = [task for task, share in self.tasks.items() if share.worker not in alive]
            self._drop(gone)
            return [(self.tasks.pop(task), None, OSError("the worker is gone")) for task in gone]
        while not self.queue.empty():
            ready.append(self.queue.get())
        ready = {task: self.tasks.pop(task) for task in ready if task in self.tasks}  # others were dropped
        try:
            found = self.client.gather([*ready])  # one round trip for all of them
        except (Exception, asyncio.CancelledError):
            return [(share, *_result(task)) for task, share in ready.items()]
        return [(share, one, None) for share, one in zip(ready.values(), found, strict=True)]

    def _alive(self):
        """Ask which workers there are, with their numbers of threads; wait a while if there is none."""
        deadline = time.monotonic() + self.patience
        while not (threads := self.client.nthreads()):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"The dask cluster has no worker after {self.patience} s: start some, or wait longer by "
                    "joblib.parallel_config(backend='dask', wait_for_workers_timeout=...)."
                )
            time.sleep(0.1)
        return threads

    def _count(self, share, losses, error):
        """Count another loss of a share, and refuse to go on when it kills one worker after the other."""
        if losses == _LOSSES:
            names = [batch.name for batch in share.batches if batch.is_lazy]
            raise RuntimeError(
                f"{losses + 1} workers in a row were lost with the same {len(share.batches)} batches of "
                f"{share.n_sites} sites{', ' * bool(names) + ', '.join(names[:3])}: is their memory enough?"
            ) from error
        return losses + 1

    def _drop(self, futures):
        futures = list(futures)
        if futures:
            with suppress(*_LOST, RuntimeError):  # where the client is closed, there is nothing to drop
                self.client.cancel(futures)


def _result(task):
    """Give the results of a task and None, or None and why it was lost; raise what the function raised."""
    if task.status == "error" and type(task.exception()).__name__ != "KilledWorker":
        task.result()
    try:
        return task.result(), None
    except (Exception, asyncio.CancelledError) as error:
        return None, error
