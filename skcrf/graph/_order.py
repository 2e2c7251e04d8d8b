"""Topological order of directed graphs."""

import numpy as np

from skcrf._numerics import kernel


def topological_order(n_nodes, edges, name="edges"):
    """Sort nodes topologically, parents before children.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    edges : ndarray of shape (n_edges, 2)
        Parent and child of each edge.
    name : str, default="edges"
        Name of the edges in the error message.

    Returns
    -------
    order : ndarray of shape (n_nodes,)
        Nodes in topological order.

    Raises
    ------
    ValueError
        If the graph has a cycle.
    """
    waits_for = np.bincount(edges[:, 1], minlength=n_nodes)
    by_parent = np.ascontiguousarray(edges[np.argsort(edges[:, 0], kind="stable"), 1])
    ptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=n_nodes))])
    order = np.empty(n_nodes, dtype=np.int64)
    if _visit(by_parent, ptr, waits_for, order) < n_nodes:
        cycle = _cycle(edges, waits_for > 0)
        raise ValueError(
            f"{name} must be acyclic, with edges from parents to children, got the cycle {cycle}."
        )
    return order


@kernel
def _visit(children, ptr, waits_for, order):
    """Write nodes to `order` after their parents; return the number of nodes written."""
    written = 0
    for node in range(len(order)):
        if waits_for[node] == 0:
            order[written] = node
            written += 1
    read = 0
    while read < written:
        for child in children[ptr[order[read]] : ptr[order[read] + 1]]:
            waits_for[child] -= 1
            if waits_for[child] == 0:
                order[written] = child
                written += 1
        read += 1
    return written


def _cycle(edges, waiting):
    """Return a cycle among the waiting nodes, each of which has a waiting parent, as text."""
    among = edges[waiting[edges].all(axis=1)]
    parent_of = dict(zip(among[::-1, 1].tolist(), among[::-1, 0].tolist(), strict=True))
    path, node = [], int(among[0, 1])
    while node not in path:
        path.append(node)
        node = parent_of[node]
    return " -> ".join(map(str, [node, *path[path.index(node) :][::-1]]))
