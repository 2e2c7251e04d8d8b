"""Evaluation of a function on batches: threads, dask clusters, prefetching."""

from skcrf.parallel.prefetch import prefetched
from skcrf.parallel.threads import plain_interrupts, workers

__all__ = ["plain_interrupts", "prefetched", "workers"]
