"""Running a function over batches: threads, dask clusters, prefetching."""

from skcrf.parallel.threads import plain_interrupts, prefetched, workers

__all__ = ["plain_interrupts", "prefetched", "workers"]
