"""Maximum flow through a field of two options a node, by two search trees that are kept and mended.

The algorithm of Boykov and Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms", 2004.
Flow passes along the edges of a graph: ``residual[m]`` is what can still pass along an edge in the direction
of its message m. ``terminal[i]`` is what can still come to node i from the source, or, where it is below 0,
minus what can still go from it to the sink.

Capacities are real numbers. A flow that fills an edge leaves exactly 0 of it, so that nothing has to be
scaled or rounded to whole numbers: what is lost are the last digits of sums.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel

#: The trees: that of the source reaches a node, or neither does, or that of the sink.
REACHED = _SOURCE = 1
_FREE, _SINK = 0, 2
# A node's parent is told by the message that it sends to the node; or it is a terminal, or missing.
_TERMINAL, _ORPHAN = -1, -2


class Search(NamedTuple):
    """Two search trees: from the source, and to the sink.

    Attributes
    ----------
    tree, parent : ndarray of shape (n_nodes,)
        The tree of each node, and its parent in it.
    seen, depth : ndarray of shape (n_nodes,)
        When a node was last known to hang on its terminal, and how far it was from it.
    queue, waits : ndarray of shape (n_nodes,)
        Nodes from which a tree may grow, in a ring, and whether a node is one of them.
    orphans : ndarray of shape (n_nodes,)
        Nodes that lost their parent.
    counts : ndarray of shape (4,)
        Where the ring starts, how many wait in it, how many orphans there are, and the time.
    """

    tree: np.ndarray
    parent: np.ndarray
    seen: np.ndarray
    depth: np.ndarray
    queue: np.ndarray
    waits: np.ndarray
    orphans: np.ndarray
    counts: np.ndarray


_START, _WAITING, _ORPHANS, _CLOCK = 0, 1, 2, 3


def new_search(n_nodes):
    """Make room for the search in any example of a batch.

    Parameters
    ----------
    n_nodes : int
        Nodes of the batch.

    Returns
    -------
    search : Search
        Arrays.
    """
    numbers = np.zeros((5, n_nodes), dtype=np.int64)
    tree, waits = np.zeros(n_nodes, dtype=np.int8), np.zeros(n_nodes, dtype=bool)
    return Search(tree, *numbers[:4], waits, numbers[4], np.zeros(4, dtype=np.int64))


@kernel
def fill(graph, first, end, terminal, residual, search):
    """Send as much as can pass in one example, of which nodes from `first` to `end` are.

    Then ``search.tree`` is `REACHED` at the nodes that the source still reaches: they are on its side of a
    cut that costs least. Changes `terminal` and `residual`.
    """
    search.counts[:] = 0
    _fill_short_ways(graph, first, end, terminal, residual)
    for node in range(first, end):
        search.seen[node], search.waits[node] = 0, False
        if terminal[node] != 0.0:
            search.tree[node] = _SOURCE if terminal[node] > 0.0 else _SINK
            search.parent[node], search.depth[node] = _TERMINAL, 1
            _wait(search, node, first, end)
        else:
            search.tree[node], search.parent[node] = _FREE, _ORPHAN
    while search.counts[_WAITING] > 0:
        node = search.queue[first + search.counts[_START]]
        bridge = _grow(graph, node, first, end, residual, search) if search.tree[node] != _FREE else -1
        if bridge < 0:
            search.counts[_START] = (search.counts[_START] + 1) % (end - first)
            search.counts[_WAITING] -= 1
            search.waits[node] = False
        else:
            search.counts[_CLOCK] += 1
            _augment(graph, first, bridge, terminal, residual, search)
            _adopt(graph, first, end, residual, search)


@kernel
def _fill_short_ways(graph, first, end, terminal, residual):
    """Send what passes from the source over one edge to the sink: most of all ways, and without a search."""
    for node in range(first, end):
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            onward = graph.incident[p] ^ 1
            other = graph.edges[onward >> 1, onward & 1]
            if terminal[node] > 0.0 > terminal[other]:
                flow = min(terminal[node], -terminal[other], residual[onward])
                terminal[node] -= flow
                terminal[other] += flow
                residual[onward] -= flow
                residual[onward ^ 1] += flow


@inlined_kernel
def _wait(search, node, first, end):
    """Let a tree grow from a node, when it is its turn."""
    if not search.waits[node]:
        at = (search.counts[_START] + search.counts[_WAITING]) % (end - first)
        search.queue[first + at], search.waits[node] = node, True
        search.counts[_WAITING] += 1


@inlined_kernel
def _leave(search, node, first):
    """Take the parent from a node."""
    search.parent[node], search.orphans[first + search.counts[_ORPHANS]] = _ORPHAN, node
    search.counts[_ORPHANS] += 1


@inlined_kernel
def _sender(edges, message):
    return edges[message >> 1, 1 - (message & 1)]


@inlined_kernel
def _grow(graph, node, first, end, residual, search):
    """Add what a node reaches to its tree; returns the message from tree to tree if they meet, else -1."""
    edges, incident, tree, parent, seen, depth = (
        graph.edges,
        graph.incident,
        search.tree,
        search.parent,
        search.seen,
        search.depth,
    )
    own = tree[node]
    for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
        inward = incident[p]
        onward = inward ^ 1
        along = onward if own == _SOURCE else inward  # the way of the flow
        if residual[along] <= 0.0:
            continue
        other = _sender(edges, inward)
        if tree[other] == _FREE:
            tree[other], parent[other] = own, onward
            seen[other], depth[other] = seen[node], depth[node] + 1
            _wait(search, other, first, end)
        elif tree[other] != own:
            return along
        elif seen[other] <= seen[node] and depth[other] > depth[node] + 1:
            parent[other] = onward  # a shorter way to the terminal
            seen[other], depth[other] = seen[node], depth[node] + 1
    return -1


@inlined_kernel
def _augment(graph, first, bridge, terminal, residual, search):
    """Send what can pass from the source over a bridge to the sink; lists nodes that lose their parent."""
    edges, parent = graph.edges, search.parent
    flow = residual[bridge]
    for side in range(2):
        node = edges[bridge >> 1, (bridge & 1) ^ side ^ 1]
        while parent[node] != _TERMINAL:
            flow = min(flow, residual[parent[node] ^ side])
            node = _sender(edges, parent[node])
        flow = min(flow, abs(terminal[node]))
    residual[bridge] -= flow
    residual[bridge ^ 1] += flow
    for side in range(2):
        node = edges[bridge >> 1, (bridge & 1) ^ side ^ 1]
        while parent[node] != _TERMINAL:
            along = parent[node] ^ side
            onward = _sender(edges, parent[node])
            residual[along] -= flow
            residual[along ^ 1] += flow
            if residual[along] <= 0.0:
                _leave(search, node, first)
            node = onward
        terminal[node] -= flow if side == 0 else -flow
        if terminal[node] == 0.0:
            _leave(search, node, first)


@inlined_kernel
def _adopt(graph, first, end, residual, search):
    """Find orphans a new parent in their tree, or set them free."""
    edges, incident, tree, parent = graph.edges, graph.incident, search.tree, search.parent
    seen, depth, clock = search.seen, search.depth, search.counts[_CLOCK]
    while search.counts[_ORPHANS] > 0:
        search.counts[_ORPHANS] -= 1
        node = search.orphans[first + search.counts[_ORPHANS]]
        side, best, least = tree[node] - _SOURCE, -1, 1 << 62
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            inward = incident[p]
            other = _sender(edges, inward)
            if residual[inward ^ side] > 0.0 and tree[other] == tree[node]:
                distance = _distance(edges, other, clock, parent, seen, depth)
                if 0 < distance < least:
                    best, least = inward, distance
        if best >= 0:
            parent[node], seen[node], depth[node] = best, clock, least + 1
            continue
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            inward = incident[p]
            other = _sender(edges, inward)
            if tree[other] == tree[node]:
                if residual[inward ^ side] > 0.0:
                    _wait(search, other, first, end)
                if parent[other] == inward ^ 1:
                    _leave(search, other, first)
        tree[node] = _FREE


@inlined_kernel
def _distance(edges, node, clock, parent, seen, depth):
    """How far a node is from its terminal, which is noted all the way; -1 if it hangs on an orphan."""
    steps, at = 0, node
    while seen[at] != clock and parent[at] >= 0:
        at = _sender(edges, parent[at])
        steps += 1
    distance = -1
    if seen[at] == clock:
        distance = steps + depth[at]
    elif parent[at] == _TERMINAL:
        seen[at], depth[at] = clock, 1
        distance = steps + 1
    if distance > 0:
        steps, at = distance, node
        while seen[at] != clock:
            seen[at], depth[at] = clock, steps
            at = _sender(edges, parent[at])
            steps -= 1
    return distance
