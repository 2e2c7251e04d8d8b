"""Monotonic chains: how a graph falls into them, and the order of messages along them.

Nodes have an order, and each edge leads from the earlier to the later of its ends. At a node, chains that
come from before go on behind it as long as there are edges, so that it lies in `max(n_before, n_after)` of
them.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._pairwise import breadth_first


class Chains(NamedTuple):
    """How messages pass along monotonic chains.

    Attributes
    ----------
    schedule : ndarray of shape (2 * n_edges,)
        Messages: in order each node sends to all later neighbours, then in reverse order to all earlier ones.
    rho : ndarray of shape (n_edges,)
        The weight of a chain, one for all in a connected part: 1 by the most chains at a node.
    inward : ndarray of shape (n_edges,)
        The message of each edge that goes to the end from which a chain starts.
    """

    schedule: np.ndarray
    rho: np.ndarray
    inward: np.ndarray


def monotonic_chains(graph):
    """Divide a graph into monotonic chains.

    The order is that of the numbers of the nodes, on a lattice by rows; or breadth first from a node far out,
    on graphs that are no lattice, where that makes fewer chains meet. A connected part without cycles is one
    tree of weight 1.

    Parameters
    ----------
    graph : Graph
        The batch.

    Returns
    -------
    chains : Chains
        The chains.
    """
    return Chains(*_chains(graph))


@kernel
def _chains(graph):
    n_nodes = len(graph.node_order)
    sequence, arrival, _ = breadth_first(graph)
    rank, marks = np.empty(n_nodes, np.int64), np.zeros(n_nodes, np.bool_)
    rho, inward = np.ones(len(graph.edges)), np.empty(len(graph.edges), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        first, end = graph.node_ptr[example], graph.node_ptr[example + 1]
        while first < end:
            last, n_messages = first, 0
            while last < end and (last == first or arrival[sequence[last]] >= 0):
                node = sequence[last]
                n_messages += graph.incident_ptr[node + 1] - graph.incident_ptr[node]
                last += 1
            if n_messages == 2 * (last - first - 1):
                _take_tree(sequence[first:last], arrival, inward)
                _count(graph, sequence[first:last], rank)
            else:
                is_lattice = graph.shapes[example, 0] > 0
                most = _take_order(graph, sequence[first:last], is_lattice, marks, rank)
                _weigh(graph, sequence[first:last], rank, 1.0 / most, rho, inward)
            first = last
        _by_level(graph, sequence[graph.node_ptr[example] : end], rank)
    return _passes(graph, sequence, rank), rho, inward


@kernel
def _take_tree(nodes, arrival, inward):
    """Turn a tree's nodes, so that leaves come first; it starts from its root, which comes last."""
    for p in range(1, len(nodes)):
        message = arrival[nodes[p]]
        inward[message >> 1] = message ^ 1
    nodes[:] = nodes[::-1].copy()


@kernel
def _take_order(graph, nodes, is_lattice, marks, rank):
    """Put the nodes of a connected part in the order to use; returns the most chains at a node."""
    far = nodes[-1]
    nodes.sort()
    most = _count(graph, nodes, rank)
    if is_lattice:
        return most
    # From the middle of a graph, all that is around would come later.
    other = _breadth_first_from(graph, far, len(nodes), marks)
    if _count(graph, other, rank) < most:
        nodes[:] = other
    return _count(graph, nodes, rank)


@kernel
def _breadth_first_from(graph, start, n_nodes, marks):
    order, last = np.empty(n_nodes, np.int64), 1
    order[0], marks[start] = start, True
    for first in range(n_nodes):
        node = order[first]
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            neighbour = graph.edges[message >> 1, 1 - (message & 1)]
            if not marks[neighbour]:
                order[last], marks[neighbour] = neighbour, True
                last += 1
    return order


@kernel
def _count(graph, nodes, rank):
    """Rank nodes by their order; returns the most chains at one of them."""
    for p in range(len(nodes)):
        rank[nodes[p]] = p
    most = 1
    for node in nodes:
        n_before = 0
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            n_before += rank[graph.edges[message >> 1, 1 - (message & 1)]] < rank[node]
        n_after = graph.incident_ptr[node + 1] - graph.incident_ptr[node] - n_before
        most = max(most, n_before, n_after)
    return most


@kernel
def _weigh(graph, nodes, rank, weight, rho, inward):
    """Weigh the edges of a connected part; chains start from their earliest nodes."""
    for node in nodes:
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            rho[message >> 1] = weight
            if rank[graph.edges[message >> 1, 1 - (message & 1)]] > rank[node]:
                inward[message >> 1] = message


@kernel
def _by_level(graph, nodes, rank):
    """Sort nodes by the most edges that lead up to them from before.

    That is another order that makes the same chains. In it, neighbours in the sequence seldom wait for each
    other, and their messages can be sent at once.
    """
    level, most = np.zeros(len(nodes), np.int64), 0
    base = nodes.min() if len(nodes) else 0
    for node in nodes:
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            neighbour = graph.edges[message >> 1, 1 - (message & 1)]
            if rank[neighbour] < rank[node]:
                level[node - base] = max(level[node - base], level[neighbour - base] + 1)
        most = max(most, level[node - base])
    start = np.zeros(most + 2, np.int64)
    for node in nodes:
        start[level[node - base] + 1] += 1
    start = np.cumsum(start)
    for node in nodes.copy():
        nodes[start[level[node - base]]] = node
        start[level[node - base]] += 1


@kernel
def _passes(graph, sequence, rank):
    """List the messages to later neighbours in order of the nodes, then those to earlier ones in reverse."""
    schedule = np.empty(len(graph.schedule), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        first, last = graph.node_ptr[example], graph.node_ptr[example + 1]
        forward = 2 * graph.edge_ptr[example]
        backward = 2 * graph.edge_ptr[example + 1]
        for p in range(first, last):
            node = sequence[p]
            # Filled from both ends: the last to send to earlier ones is the first of the sequence.
            for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                message = graph.incident[q] ^ 1
                if rank[graph.edges[message >> 1, message & 1]] > rank[node]:
                    schedule[forward] = message
                    forward += 1
                else:
                    backward -= 1
                    schedule[backward] = message
    return schedule
