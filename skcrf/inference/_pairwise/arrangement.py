"""Order of the nodes of large graphs in memory: that in which they send.

Sweeps on a large graph would otherwise wait for memory. Only the numbers of nodes change: edges, tables and
messages keep theirs, so that results are the same to the last bit.
"""

import numpy as np

from skcrf._numerics import GraphCache, kernel
from skcrf.inference._pairwise.updates import node_levels, sorted_by

# Number of messages of an example that do not stay in the cache.
_LARGE = 2**13


class Arrangement:
    """A graph with its nodes in another order, for potentials and marginals of nodes in this order.

    Parameters
    ----------
    graph : Graph
        The graph.

    Attributes
    ----------
    graph : Graph
        The graph in the new order, or the very graph if the order does not change.
    """

    def __init__(self, graph):
        self.graph, self._nodes = graph, None
        if np.diff(graph.edge_ptr).max(initial=0) > _LARGE // 2:
            arrays = _arrays.get(graph)
            if arrays is None:
                arrays = _arrays.put(graph, _arrange(graph, _LARGE))
            self._nodes, edges, incident_ptr, incident = arrays
            self.graph = graph._replace(edges=edges, incident_ptr=incident_ptr, incident=incident)

    def arranged(self, values):
        """Put values of nodes in the new order."""
        return values if self._nodes is None else values[self._nodes]

    def original(self, values):
        """Put values of nodes that are in the new order in that of the graph."""
        if self._nodes is None:
            return values
        out = np.empty_like(values)
        out[self._nodes] = values
        return out


_arrays = GraphCache()


@kernel
def _arrange(graph, large):
    """List the nodes in the order in which they send, and the edges and incident messages in this order."""
    n_nodes, level = len(graph.node_order), node_levels(graph)
    example, number = np.empty(n_nodes, np.int64), np.empty(n_nodes, np.int64)
    for e in range(len(graph.node_ptr) - 1):
        is_small = 2 * (graph.edge_ptr[e + 1] - graph.edge_ptr[e]) <= large
        for node in range(graph.node_ptr[e], graph.node_ptr[e + 1]):
            example[node], level[node] = e, 0 if is_small else max(level[node], 0)
    nodes = sorted_by(example, sorted_by(level, np.arange(n_nodes)))
    edges, incident = np.empty_like(graph.edges), np.empty_like(graph.incident)
    incident_ptr = np.zeros_like(graph.incident_ptr)
    for n in range(n_nodes):
        node, begin = nodes[n], incident_ptr[n]
        number[node], degree = n, graph.incident_ptr[node + 1] - graph.incident_ptr[node]
        for p in range(degree):
            incident[begin + p] = graph.incident[graph.incident_ptr[node] + p]
        incident_ptr[n + 1] = begin + degree
    for edge in range(len(edges)):
        for side in range(2):
            edges[edge, side] = number[graph.edges[edge, side]]
    return nodes, edges, incident_ptr, incident
