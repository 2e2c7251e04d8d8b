"""Prefetching: items are loaded in a background thread while others are in use."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

from sklearn import config_context, get_config

# Items that are loaded ahead of those in use. More would cost memory and gain nothing: the one thread that
# loads is either fast enough or never idle.
AHEAD = 2


def prefetched(load, items, ahead=AHEAD):
    """Load items in order in a background thread, a few ahead of those that were asked for.

    Parameters
    ----------
    load : callable
        Called with each item.
    items : iterable
        The items.
    ahead : int
        Number of items to load ahead.

    Yields
    ------
    loaded : object
        The results of `load`, in order.
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


def with_this_config(function):
    """Call a function in any thread with the configuration of scikit-learn of this thread."""
    config = get_config()

    @wraps(function)
    def configured(*args):
        with config_context(**config):
            return function(*args)

    return configured
