"""Forests in a pairwise graph: the order in which a visit reaches nodes, and that of messages."""

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._pairwise.chains import visit_from


@kernel
def breadth_first(graph):
    """Visit the nodes of each example breadth first.

    Returns the nodes in order, the message that brought the visit to each node (-1 at a root), and
    for each example an edge that closes a cycle, -1 if it is a forest.
    """
    n_nodes, n_visited = len(graph.node_order), 0
    order, arrival, visits = np.empty(n_nodes, np.int64), np.full(n_nodes, -1), np.zeros(n_nodes, np.int64)
    for root in range(n_nodes):
        if visits[root] == 0:
            n_visited += visit_from(graph, root, visits, arrival, order[n_visited:])
    closing = np.full(len(graph.node_ptr) - 1, -1)
    for example in range(len(closing)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            if arrival[graph.edges[edge, 0]] >> 1 != edge and arrival[graph.edges[edge, 1]] >> 1 != edge:
                closing[example] = edge
    return order, arrival, closing


@kernel
def two_passes(graph, order, arrival):
    """Compute the schedule of forests that `breadth_first` visited: from leaves to roots, then back."""
    schedule = np.empty(len(graph.schedule), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        up = down = graph.edge_ptr[example] + graph.edge_ptr[example + 1]  # the middle of its messages
        for p in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            message = arrival[order[p]]
            if message >= 0:
                up -= 1
                schedule[up], schedule[down] = message ^ 1, message
                down += 1
    return schedule
