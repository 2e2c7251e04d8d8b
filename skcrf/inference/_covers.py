"""Weights of factors for a bound: how often each is in a set without cycles."""

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
def _joins(graph, factor, parent, mark):
    """Whether the nodes of a factor are in as many trees, and then make them one tree."""
    first, last = graph.scope_ptr[factor], graph.scope_ptr[factor + 1]
    apart = True
    for link in range(first, last):
        root = _root(parent, graph.scope[link])
        apart &= mark[root] != factor
        mark[root] = factor
    for link in range(first, last):
        mark[_root(parent, graph.scope[link])] = -1
    if apart:
        for link in range(first + 1, last):
            parent[_root(parent, graph.scope[link])] = _root(parent, graph.scope[first])
    return apart


@kernel
def covering_weights(graph):
    """Cover the factors of each example with sets that have no cycle, of those first that were used least.

    In a set without cycles no two factors are joined in more than one way, by a node or through others. Then
    the entropy of its field is that of the nodes less the information of the factors, and so is the mean over
    all sets, with each factor's share of them for its weight: 1 where the whole has no cycle.
    """
    rho, used = np.ones(len(graph.edge_table)), np.zeros(len(graph.edge_table), np.int64)
    parent, mark = np.empty(len(graph.node_order), np.int64), np.full(len(graph.node_order), -1)
    for example in range(len(graph.node_ptr) - 1):
        first, last = graph.edge_ptr[example], graph.edge_ptr[example + 1]
        n_sets, least = 0, 0
        while least < _TIMES and last > first:
            for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
                parent[node] = node
            for place in np.argsort(used[first:last], kind="mergesort"):
                if _joins(graph, first + place, parent, mark):
                    used[first + place] += 1
            n_sets, least = n_sets + 1, used[first:last].min()
        for factor in range(first, last):
            rho[factor] = used[factor] / n_sets
    return rho
