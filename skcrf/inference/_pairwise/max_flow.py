"""Maximum flow on a pairwise graph.

The algorithm of Boykov and Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms", 2004,
which reuses two search trees. ``residual[m]`` is the residual capacity of an edge in the direction of its
message m. ``terminal[i]`` is that from the source to node i or, if it is negative, minus that from node i to
the sink.

Capacities are real numbers. A flow that saturates an edge leaves a residual capacity of exactly 0, so
capacities need not be scaled or rounded to integers.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel

#: The search tree of a node: that of the source or of the sink, or none.
_FREE, SOURCE, _SINK = range(3)
# A parent is stored as the message from it to the node. It may also be a terminal, or missing.
_TERMINAL, _ORPHAN = -1, -2


class Search(NamedTuple):
    """The search trees from the source and to the sink.

    Attributes
    ----------
    tree, parent : ndarray of shape (n_nodes,)
        The tree of each node, and its parent.
    seen, depth : ndarray of shape (n_nodes,)
        The last time at which a node was known to be connected to its terminal, and its distance from it.
    queue, is_queued : ndarray of shape (n_nodes,)
        Ring buffer of the nodes from which a tree may grow, and whether a node is in it.
    orphans : ndarray of shape (n_nodes,)
        Stack of the nodes that lost their parent.
    counts : ndarray of shape (4,)
        Columns _QUEUE_START, _QUEUE_LENGTH, _N_ORPHANS and _CLOCK.
    """

    tree: np.ndarray
    parent: np.ndarray
    seen: np.ndarray
    depth: np.ndarray
    queue: np.ndarray
    is_queued: np.ndarray
    orphans: np.ndarray
    counts: np.ndarray


_QUEUE_START, _QUEUE_LENGTH, _N_ORPHANS, _CLOCK = range(4)


def new_search(n_nodes):
    """Allocate a `Search` for the examples of a batch."""
    numbers = np.zeros((5, n_nodes), dtype=np.int64)
    tree, is_queued = np.zeros(n_nodes, dtype=np.int8), np.zeros(n_nodes, dtype=bool)
    return Search(tree, *numbers[:4], is_queued, numbers[4], np.zeros(4, dtype=np.int64))


@kernel
def max_flow(graph, first, end, terminal, residual, search):
    """Compute the maximum flow in one example, with the nodes from `first` to `end`.

    Then ``search.tree`` is `SOURCE` at the nodes on the source's side of a minimum cut. Changes `terminal`
    and `residual`.
    """
    search.counts[:] = 0
    _fill_short_paths(graph, first, end, terminal, residual)
    for node in range(first, end):
        search.seen[node], search.is_queued[node] = 0, False
        if terminal[node] != 0.0:
            search.tree[node] = SOURCE if terminal[node] > 0.0 else _SINK
            search.parent[node], search.depth[node] = _TERMINAL, 1
            _enqueue(search, node, first, end)
        else:
            search.tree[node], search.parent[node] = _FREE, _ORPHAN
    while search.counts[_QUEUE_LENGTH] > 0:
        node = search.queue[first + search.counts[_QUEUE_START]]
        bridge = _grow(graph, node, first, end, residual, search) if search.tree[node] != _FREE else -1
        if bridge < 0:
            search.counts[_QUEUE_START] = (search.counts[_QUEUE_START] + 1) % (end - first)
            search.counts[_QUEUE_LENGTH] -= 1
            search.is_queued[node] = False
        else:
            search.counts[_CLOCK] += 1
            _augment(graph, first, bridge, terminal, residual, search)
            _adopt(graph, first, end, residual, search)


@kernel
def _fill_short_paths(graph, first, end, terminal, residual):
    """Send flow along paths of one edge, which are the most frequent ones, without a search."""
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
def _enqueue(search, node, first, end):
    """Append a node to the queue."""
    if not search.is_queued[node]:
        at = (search.counts[_QUEUE_START] + search.counts[_QUEUE_LENGTH]) % (end - first)
        search.queue[first + at], search.is_queued[node] = node, True
        search.counts[_QUEUE_LENGTH] += 1


@inlined_kernel
def _remove_parent(search, node, first):
    """Remove the parent of a node."""
    search.parent[node], search.orphans[first + search.counts[_N_ORPHANS]] = _ORPHAN, node
    search.counts[_N_ORPHANS] += 1


@inlined_kernel
def _sender(edges, message):
    return edges[message >> 1, 1 - (message & 1)]


@inlined_kernel
def _grow(graph, node, first, end, residual, search):
    """Grow a tree from a node; returns the message from tree to tree if they meet, else -1."""
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
        along = onward if own == SOURCE else inward  # the direction of the flow
        if residual[along] <= 0.0:
            continue
        other = _sender(edges, inward)
        if tree[other] == _FREE:
            tree[other], parent[other] = own, onward
            seen[other], depth[other] = seen[node], depth[node] + 1
            _enqueue(search, other, first, end)
        elif tree[other] != own:
            return along
        elif seen[other] <= seen[node] and depth[other] > depth[node] + 1:
            parent[other] = onward  # a shorter path to the terminal
            seen[other], depth[other] = seen[node], depth[node] + 1
    return -1


@inlined_kernel
def _augment(graph, first, bridge, terminal, residual, search):
    """Send flow from the source over a bridge to the sink; lists the nodes that lose their parent."""
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
                _remove_parent(search, node, first)
            node = onward
        terminal[node] -= flow if side == 0 else -flow
        if terminal[node] == 0.0:
            _remove_parent(search, node, first)


@inlined_kernel
def _adopt(graph, first, end, residual, search):
    """Find a new parent for each orphan in its tree, or remove it from the tree."""
    edges, incident, tree, parent = graph.edges, graph.incident, search.tree, search.parent
    seen, depth, clock = search.seen, search.depth, search.counts[_CLOCK]
    while search.counts[_N_ORPHANS] > 0:
        search.counts[_N_ORPHANS] -= 1
        node = search.orphans[first + search.counts[_N_ORPHANS]]
        side, best, least = tree[node] - SOURCE, -1, 1 << 62
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
                    _enqueue(search, other, first, end)
                if parent[other] == inward ^ 1:
                    _remove_parent(search, other, first)
        tree[node] = _FREE


@inlined_kernel
def _distance(edges, node, clock, parent, seen, depth):
    """Compute the distance of a node from its terminal, and store it along the path; -1 below an orphan."""
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
