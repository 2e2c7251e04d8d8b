"""Weights of factors for a bound: how often each is in a set without cycles."""

from functools import lru_cache

import numpy as np

from skcrf._numerics import kernel

# Each factor is in so many of the sets at least. More are closer to an even share.
_TIMES = 3


@kernel
def _root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@kernel
def _joins(scope_ptr, scope, factor, parent, mark):
    """Whether the nodes of a factor are in as many trees, and then make them one tree."""
    first, last = scope_ptr[factor], scope_ptr[factor + 1]
    apart = True
    for link in range(first, last):
        root = _root(parent, scope[link])
        apart &= mark[root] != factor
        mark[root] = factor
    for link in range(first, last):
        mark[_root(parent, scope[link])] = -1
    if apart:
        for link in range(first + 1, last):
            parent[_root(parent, scope[link])] = _root(parent, scope[first])
    return apart


def covering_weights(graph):
    """Cover the factors of each example with sets that have no cycle, of those first that were used least.

    In a set without cycles no two factors are joined in more than one way, by a node or through others. Then
    the entropy of its field is that of the nodes less the information of the factors, and so is the mean over
    all sets, with each factor's share of them for its weight: 1 where the whole has no cycle.

    Parameters
    ----------
    graph : FactorGraph
        The batch.

    Returns
    -------
    rho : ndarray of shape (n_edges,)
        The weights.
    """
    structure = graph.scope_ptr, graph.scope, graph.node_ptr, graph.edge_ptr
    return _known_weights(*(array.tobytes() for array in structure))


@lru_cache(maxsize=8)
def _known_weights(*structure):
    return _covering_weights(*(np.frombuffer(array, dtype=np.int64).copy() for array in structure))


@kernel
def _covering_weights(scope_ptr, scope, node_ptr, edge_ptr):
    rho, used = np.ones(edge_ptr[-1]), np.zeros(edge_ptr[-1], np.int64)
    parent, mark = np.empty(node_ptr[-1], np.int64), np.full(node_ptr[-1], -1)
    for example in range(len(node_ptr) - 1):
        first, last = edge_ptr[example], edge_ptr[example + 1]
        n_sets, least = 0, 0
        while least < _TIMES and last > first:
            for node in range(node_ptr[example], node_ptr[example + 1]):
                parent[node] = node
            for place in np.argsort(used[first:last], kind="mergesort"):
                if _joins(scope_ptr, scope, first + place, parent, mark):
                    used[first + place] += 1
            n_sets, least = n_sets + 1, used[first:last].min()
        for factor in range(first, last):
            rho[factor] = used[factor] / n_sets
    return rho
