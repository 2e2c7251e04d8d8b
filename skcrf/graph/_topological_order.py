"""Topological order of directed graphs."""

import numpy as np

from skcrf._numerics import kernel


def topological_order(n_nodes, edges, name="edges"):
    """Order nodes so that parents come before children; raise ValueError if there is a cycle.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    edges : ndarray of shape (n_edges, 2)
        Parent and child of each edge.
    name : str, default="edges"
        Name of the edges in the message.

    Returns
    -------
    order : ndarray of shape (n_nodes,)
        The nodes, each as early as possible.
    """
    n_parents_left = np.bincount(edges[:, 1], minlength=n_nodes)
    by_parent = np.ascontiguousarray(edges[np.argsort(edges[:, 0], kind="stable"), 1])
    ptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=n_nodes))])
    order = np.empty(n_nodes, dtype=np.int64)
    if _visit(by_parent, ptr, n_parents_left, order) < n_nodes:
        cycle = _cycle(edges, n_parents_left > 0)
        raise ValueError(
            f"{name} must have no cycle, as edges lead from parents to children, got the cycle {cycle}."
        )
    return order


@kernel
def _visit(children, ptr, n_parents_left, order):
    """Write each node to `order` as soon as all its parents are there; return the number of nodes written."""
    written = 0
    for node in range(len(order)):
        if n_parents_left[node] == 0:
            order[written] = node
            written += 1
    read = 0
    while read < written:
        for child in children[ptr[order[read]] : ptr[order[read] + 1]]:
            n_parents_left[child] -= 1
            if n_parents_left[child] == 0:
                order[written] = child
                written += 1
        read += 1
    return written


def _cycle(edges, waiting):
    """Describe a cycle among nodes each of which waits for a parent that waits as well."""
    among = edges[waiting[edges].all(axis=1)]
    parent_of = dict(zip(among[::-1, 1].tolist(), among[::-1, 0].tolist(), strict=True))
    path, node = [], int(among[0, 1])
    while node not in path:
        path.append(node)
        node = parent_of[node]
    return " -> ".join(map(str, [node, *path[path.index(node) :][::-1]]))
