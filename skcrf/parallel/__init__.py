"""Evaluation of a function on batches: threads, dask clusters, prefetching."""

from skcrf.parallel.prefetch import prefetched
from skcrf.parallel.threads import workers

__all__ = ["prefetched", "workers"]
