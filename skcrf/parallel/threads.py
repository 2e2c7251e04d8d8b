"""Evaluation of batches in this process: in the calling thread, or in several threads.

Kernels release the interpreter lock. The largest batches are started first, so that threads finish together.
"""

import math
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager

from skcrf.parallel.prefetch import AHEAD, prefetched, with_this_config


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
        """Evaluate a function on batches, see `skcrf.parallel.workers`."""
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
        """Evaluate a function on batches, see `skcrf.parallel.workers`."""
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
