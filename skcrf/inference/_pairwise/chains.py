"""Monotonic chains: how a graph falls into them, and the order of messages along them.

Nodes have an order, and each edge leads from the earlier to the later of its ends. At a node, chains that
come from before go on behind it as long as there are edges, so that it lies in `max(n_before, n_after)` of
them.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel


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
    sequence, rank = np.arange(n_nodes), np.empty(n_nodes, np.int64)
    visits, arrival = np.zeros(n_nodes, np.int64), np.empty(n_nodes, np.int64)
    rho, inward = np.ones(len(graph.edges)), np.empty(len(graph.edges), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        first, end = graph.node_ptr[example], graph.node_ptr[example + 1]
        if graph.shapes[example].min() > 1:
            most = _count(graph, sequence[first:end], rank)
            _weigh(graph, sequence[first:end], rank, 1.0 / most, rho, inward)
            continue
        for root in range(graph.node_ptr[example], end):
            if visits[root] > 0:
                continue
            last = first + visit_from(graph, root, visits, arrival, sequence[first:end])
            part, n_messages = sequence[first:last], 0
            for node in part:
                n_messages += graph.incident_ptr[node + 1] - graph.incident_ptr[node]
            if n_messages == 2 * (len(part) - 1):
                _take_tree(part, arrival, inward)
                _count(graph, part, rank)
            else:
                most = _take_order(graph, part, visits, arrival, rank)
                _weigh(graph, part, rank, 1.0 / most, rho, inward)
            first = last
    return _passes(graph, sequence, rank), rho, inward


@kernel
def visit_from(graph, root, visits, arrival, out):
    """Visit what is connected with a node once more, and return how many nodes that are.

    Leaves the nodes in `out`, and for each but the root the message that brought the visit in `arrival`.
    """
    round_ = visits[root] + 1
    out[0], visits[root], n_found, n_done = root, round_, 1, 0
    while n_done < n_found:
        node = out[n_done]
        n_done += 1
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            onward = graph.incident[p] ^ 1
            neighbour = graph.edges[onward >> 1, onward & 1]
            if visits[neighbour] < round_:
                out[n_found], visits[neighbour], arrival[neighbour] = neighbour, round_, onward
                n_found += 1
    return n_found


@kernel
def _take_tree(nodes, arrival, inward):
    """Turn a tree's nodes, so that leaves come first; it starts from its root, which comes last."""
    for p in range(1, len(nodes)):
        message = arrival[nodes[p]]
        inward[message >> 1] = message ^ 1
    nodes[:] = nodes[::-1].copy()


@kernel
def _take_order(graph, nodes, visits, arrival, rank):
    """Put the nodes of a connected part in the order to use; returns the most chains at a node."""
    other, far = np.empty_like(nodes), nodes[-1]
    nodes.sort()
    # From the middle of a graph, all that is around would come later.
    visit_from(graph, far, visits, arrival, other)
    if _count(graph, other, rank) < _count(graph, nodes, rank):
        nodes[:] = other
    return _count(graph, nodes, rank)


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
