"""Patches of a graph: what their labels say given those around, exact by elimination.

The nodes of a patch are taken up one after another. What is known of those that came before is a table over
the states of the last few, the window: as many as a later node has edges to. With `m` of them and `k` states
a patch of `n` nodes takes ``n * k ** (m + 1)`` steps in place of the ``k ** n`` of enumeration.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.graph import ExampleError

# Steps that a patch may take.
_MOST_STEPS = 2**22
# Edges from a node of a lattice to those that came before it.
_BACK = 4


@kernel
def condition(graph, theta, y, patch_of, field):
    """Cut the edges between patches: what a labelled end says goes to the unary potentials of the other.

    A hidden end says nothing.
    """
    field[:] = theta.unary
    for edge in range(len(graph.edges)):
        i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
        if patch_of[i] != patch_of[j]:
            for x in range(field.shape[1]):
                if y[j] >= 0:
                    field[i, x] += theta.tables[table, x, y[j]]
                if y[i] >= 0:
                    field[j, x] += theta.tables[table, y[i], x]


@kernel
def condition_vjp(graph, y, patch_of, d_field, d_theta):
    """Pull the derivative with respect to the field back to theta."""
    d_theta.unary[:] += d_field
    for edge in range(len(graph.edges)):
        i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
        if patch_of[i] != patch_of[j]:
            for x in range(d_field.shape[1]):
                if y[j] >= 0:
                    d_theta.tables[table, x, y[j]] += d_field[i, x]
                if y[i] >= 0:
                    d_theta.tables[table, y[i], x] += d_field[j, x]


class Patches(NamedTuple):
    """The nodes of each patch, in the order in which they are taken up.

    Attributes
    ----------
    ptr : ndarray of shape (n_patches + 1,)
        Where the nodes of each patch start.
    nodes : ndarray of shape (n_nodes,)
        The nodes, patch by patch.
    patch_of, place : ndarray of shape (n_nodes,)
        The patch of each node, and its place there.
    """

    ptr: np.ndarray
    nodes: np.ndarray
    patch_of: np.ndarray
    place: np.ndarray


def tile(graph, size):
    """Cut lattices into patches.

    Parameters
    ----------
    graph : Graph
        Lattices, and graphs without edges; any graph if `size` is 1.
    size : int
        Side of the patches; those at the right and lower border may be smaller.

    Returns
    -------
    patches : Patches
        The patches.
    window : int
        How far an edge inside a patch reaches back, at most.
    """
    n_nodes, n_edges = np.diff(graph.node_ptr), np.diff(graph.edge_ptr)
    shapeless = graph.shapes[:, 0] == 0
    refused = shapeless & (n_edges > 0) & (size > 1)
    if refused.any():
        raise ExampleError(
            f"size={size} cuts lattices into patches, but {{example}} is a graph of another kind: "
            "take size=1, which is the pseudolikelihood.",
            np.argmax(refused),
        )
    column = np.stack([n_nodes, np.ones_like(n_nodes)], axis=1)
    shapes = np.where(shapeless[:, None], column, graph.shapes)
    ptr = np.zeros((-(-shapes // size)).prod(axis=1).sum() + 1, dtype=np.int64)
    patches = Patches(ptr, *(np.empty(graph.n_nodes, dtype=np.int64) for _ in range(3)))
    _tile(graph.node_ptr, shapes, size, patches)
    height, width = shapes.T
    sides = np.minimum(shapes, size)
    diagonal = n_edges > height * (width - 1) + width * (height - 1)
    # The way back to the neighbour before the line, or to that on the diagonal before it.
    reach = np.where((n_edges > 0) & (sides.prod(axis=1) > 1), sides.min(axis=1) + diagonal, 0)
    return patches, int(reach.max())


@kernel
def _tile(node_ptr, shapes, size, patches):
    """Fill in the patches, whose nodes are taken up line by line along their short side."""
    number, n = 0, 0
    for example in range(len(shapes)):
        height, width = shapes[example]
        for top in range(0, height, size):
            for left in range(0, width, size):
                rows, columns = min(size, height - top), min(size, width - left)
                for t in range(rows * columns):
                    row, column = t // columns, t % columns
                    if columns > rows:
                        row, column = t % rows, t // rows
                    node = node_ptr[example] + (top + row) * width + left + column
                    patches.nodes[n + t], patches.patch_of[node], patches.place[node] = node, number, t
                number, n = number + 1, n + rows * columns
                patches.ptr[number] = n


class _Work(NamedTuple):
    """The patch in work.

    Attributes
    ----------
    field, d_field : ndarray of shape (n_nodes_of_a_patch, n_states)
        Unary potentials, and the derivative with respect to them.
    back : ndarray of shape (n_nodes_of_a_patch, 4, 3)
        The edges to nodes that came before: the table, how far back, and on which side of the edge this node
        is, -1 for no edge.
    log_sums : ndarray of shape (n_nodes_of_a_patch + 1, n_states ** window)
        The table over the window before each node.
    joint, mass : ndarray of shape (n_states ** (window + 1),)
        The table over the window and the next node, as logarithms and as probabilities.
    """

    field: np.ndarray
    d_field: np.ndarray
    back: np.ndarray
    log_sums: np.ndarray
    joint: np.ndarray
    mass: np.ndarray


def patch_pieces(graph, field, tables, y, patches, window, value, d_field, d_tables):
    """Add up minus the log-likelihoods of all patches, and their derivatives.

    Parameters
    ----------
    graph : Graph
        Structure of the batch.
    field, tables : ndarray of shape (n_nodes, n_states) and (n_tables, n_states, n_states)
        Potentials; the edges between patches are left out.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where hidden: these are summed out.
    patches : Patches
        The patches.
    window : int
        How far an edge inside a patch reaches back, at most.
    value : ndarray of shape (n_examples,)
        What is added to.
    d_field, d_tables : ndarray
        Derivatives, which are added to.
    """
    n_states, largest = field.shape[1], int(np.diff(patches.ptr).max())
    steps = largest * n_states ** (window + 1)
    if steps > _MOST_STEPS:
        raise ValueError(
            f"A patch of {largest} nodes with {n_states} labels takes {largest} * {n_states}**{window + 1} = "
            f"{steps} steps, more than {_MOST_STEPS}: take a smaller size."
        )
    work = _Work(
        field=np.empty((largest, n_states)),
        d_field=np.empty((largest, n_states)),
        back=np.empty((largest, _BACK, 3), dtype=np.int64),
        log_sums=np.empty((largest + 1, n_states**window)),
        joint=np.empty(n_states ** (window + 1)),
        mass=np.empty(n_states ** (window + 1)),
    )
    _all_patches(graph, field, tables, y, patches, work, value, d_field, d_tables)


@kernel
def _all_patches(graph, field, tables, y, patches, work, value, d_field, d_tables):
    example = 0
    for number in range(len(patches.ptr) - 1):
        nodes = patches.nodes[patches.ptr[number] : patches.ptr[number + 1]]
        while nodes[0] >= graph.node_ptr[example + 1]:
            example += 1
        if (y[nodes] >= 0).any():
            work.field[: len(nodes)], work.d_field[:] = field[nodes], 0.0
            window = _edges_inside(graph, patches, nodes, work.back)
            value[example] += _one_patch(tables, y[nodes], window, work, d_tables)
            for t in range(len(nodes)):
                d_field[nodes[t]] += work.d_field[t]


@kernel
def _edges_inside(graph, patches, nodes, back):
    """Find the edges of each node of a patch to those before it; return the window."""
    window = 0
    for t in range(len(nodes)):
        n_back = 0
        back[t] = -1
        for p in range(graph.incident_ptr[nodes[t]], graph.incident_ptr[nodes[t] + 1]):
            edge, side = graph.incident[p] >> 1, graph.incident[p] & 1
            other = graph.edges[edge, 1 - side]
            far = t - patches.place[other]
            if patches.patch_of[other] == patches.patch_of[nodes[t]] and far > 0:
                back[t, n_back, 0], back[t, n_back, 1] = graph.edge_table[edge], far
                back[t, n_back, 2] = side
                n_back, window = n_back + 1, max(window, far)
    return window


@kernel
def _one_patch(tables, y, window, work, d_tables):
    """log_z of the free patch minus log_z with the labels clamped, inf if they are impossible."""
    free = _eliminate(tables, len(y), window, work)
    if free > -np.inf:
        _eliminate_vjp(tables, len(y), window, free, 1.0, work, d_tables)
    for t in range(len(y)):
        for x in range(work.field.shape[1]):
            if y[t] >= 0 and x != y[t]:
                work.field[t, x] = -np.inf
    clamped = _eliminate(tables, len(y), window, work)
    if clamped == -np.inf:
        return np.inf
    _eliminate_vjp(tables, len(y), window, clamped, -1.0, work, d_tables)
    return free - clamped


@kernel
def _eliminate(tables, n, window, work):
    """log_z of a patch; leaves the tables that `_eliminate_vjp` needs."""
    n_states = tables.shape[1]
    n_old, n_most = 1, n_states**window
    work.log_sums[0, 0] = 0.0
    for t in range(n):
        n_new = min(n_old * n_states, n_most)
        _extend(tables, t, n_old, work)
        _forget(work.joint, n_old * n_states, n_new, work.log_sums[t + 1])
        n_old = n_new
    _forget(work.log_sums[n], n_old, 1, work.joint)
    return work.joint[0]


@kernel
def _extend(tables, t, n_old, work):
    """Fill `joint`: what was known before a node, and what the node adds; its state is the lowest digit."""
    n_states = tables.shape[1]
    for s in range(n_old):
        for x in range(n_states):
            work.joint[s * n_states + x] = work.log_sums[t, s] + work.field[t, x]
    for b in range(_BACK):
        table, far, side = work.back[t, b]
        if side >= 0:
            stride = n_states ** (far - 1)
            for s in range(n_old):
                z = s // stride % n_states
                for x in range(n_states):
                    work.joint[s * n_states + x] += tables[table, x, z] if side == 0 else tables[table, z, x]


@kernel
def _forget(joint, n_joint, n_new, out):
    """Sum over the highest digits of a table of logarithms, so that `n_new` numbers are left."""
    for i in range(n_new):
        top = -np.inf
        for j in range(i, n_joint, n_new):
            top = max(top, joint[j])
        out[i] = top
        if top > -np.inf and n_joint > n_new:
            total = 0.0
            for j in range(i, n_joint, n_new):
                total += np.exp(joint[j] - top)
            out[i] = top + np.log(total)


@kernel
def _eliminate_vjp(tables, n, window, log_z, scale, work, d_tables):
    """Add `scale` times the marginals of a patch to the derivatives."""
    n_states = tables.shape[1]
    n_most = n_states**window
    for s in range(n_states ** min(n, window)):
        work.mass[s] = scale * np.exp(work.log_sums[n, s] - log_z)
    for t in range(n - 1, -1, -1):
        n_old = n_states ** min(t, window)
        n_new = min(n_old * n_states, n_most)
        _extend(tables, t, n_old, work)
        _recall(work.joint, n_old * n_states, n_new, work.log_sums[t + 1], work.mass)
        for s in range(n_old):
            work.mass[s] = 0.0
            for x in range(n_states):
                work.mass[s] += work.joint[s * n_states + x]
                work.d_field[t, x] += work.joint[s * n_states + x]
        for b in range(_BACK):
            table, far, side = work.back[t, b]
            if side >= 0:
                stride = n_states ** (far - 1)
                for s in range(n_old):
                    z = s // stride % n_states
                    for x in range(n_states):
                        first, second = (x, z) if side == 0 else (z, x)
                        d_tables[table, first, second] += work.joint[s * n_states + x]


@kernel
def _recall(joint, n_joint, n_new, log_sums, mass):
    """Undo `_forget`: `joint` becomes the mass of each of its entries, whose sums are given."""
    for first in range(0, n_joint, n_new):
        for i in range(n_new):
            share = np.exp(joint[first + i] - log_sums[i]) if joint[first + i] > -np.inf else 0.0
            joint[first + i] = mass[i] * share
