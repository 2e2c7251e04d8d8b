"""Topological order of directed graphs."""

import numpy as np

from skcrf._numerics import kernel


def topological_order(n_nodes, edges, name="edges"):
    """Order nodes so that parents come before children, or refuse a cycle.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    edges : ndarray of shape (n_edges, 2)
        Parent and child of each edge.
    name : str, default="edges"
        What to call them in the message.

    Returns
    -------
    order : ndarray of shape (n_nodes,)
        The nodes, each as early as it can come.
    """
    waits_for = np.bincount(edges[:, 1], minlength=n_nodes)
    by_parent = np.ascontiguousarray(edges[np.argsort(edges[:, 0], kind="stable"), 1])
    ptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=n_nodes))])
    order = np.empty(n_nodes, dtype=np.int64)
    if _visit(by_parent, ptr, waits_for, order) < n_nodes:
        cycle = _cycle(edges, waits_for > 0)
        raise ValueError(
            f"{name} has the cycle {cycle}: expected none, as edges lead from parents to children."
        )
    return order


@kernel
def _visit(children, ptr, waits_for, order):
    """Write nodes down as soon as all their parents are; return how many were."""
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
    """Name a cycle among nodes that wait for parents: each of them has a parent that waits as well."""
    among = edges[waiting[edges].all(axis=1)]
    parent_of = dict(zip(among[::-1, 1].tolist(), among[::-1, 0].tolist(), strict=True))
    path, node = [], int(among[0, 1])
    while node not in path:
        path.append(node)
        node = parent_of[node]
    return " -> ".join(map(str, [node, *path[path.index(node) :][::-1]]))
