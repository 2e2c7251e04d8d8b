"""The cache of graphs: examples of one size share their graph."""

from collections import OrderedDict
from functools import wraps
from threading import Lock
from weakref import WeakValueDictionary

# Nodes of the largest graph that is kept without users, and of all such graphs together. A pixel takes about
# 130 bytes. The arrays of a tiny graph cost as much as `_OVERHEAD` nodes.
_LARGEST, _TOTAL, _OVERHEAD = 2**17, 2**19, 2**5


class _Cache:
    """The graphs used last, and the arrays of all graphs in use; a tuple cannot be referred to weakly."""

    lock = Lock()  # for `recent` and `n_nodes`
    recent = OrderedDict()  # arguments -> graph
    n_nodes = 0
    arrays = WeakValueDictionary()  # (arguments, field) -> array


def shared(graph_type):
    """Make a decorator: calls with equal arguments return graphs that share their arrays."""

    def decorator(make):
        @wraps(make)
        def made(*arguments):
            key = (make.__name__, *arguments)
            with _Cache.lock:
                if key in _Cache.recent:
                    _Cache.recent.move_to_end(key)
                    return _Cache.recent[key]
            arrays = [_Cache.arrays.get((key, field)) for field in graph_type._fields]
            if any(array is None for array in arrays):
                arrays = make(*arguments)
                _Cache.arrays.update(zip(((key, field) for field in graph_type._fields), arrays, strict=True))
            return _keep(key, graph_type(*arrays))

        return made

    return decorator


def _keep(key, graph):
    """Keep a graph that is not large for later calls, in place of those that were used least recently."""
    if graph.n_nodes <= _LARGEST:
        with _Cache.lock:
            if key not in _Cache.recent:
                _Cache.n_nodes += graph.n_nodes + _OVERHEAD
            _Cache.recent[key] = graph
            while _Cache.n_nodes > _TOTAL:
                _, dropped = _Cache.recent.popitem(last=False)
                _Cache.n_nodes -= dropped.n_nodes + _OVERHEAD
    return graph
