"""Likelihoods of patches of a graph, exact by variable elimination.

The nodes of a patch are eliminated one after another. The log-sums over the nodes before are a table over the
states of the last few nodes, the window, which reaches back to every node that has an edge to a later one.
With `m` nodes in the window and `k` states, a patch of `n` nodes takes ``n * k ** (m + 1)`` steps in place of
the ``k ** n`` of enumeration.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.graph import ExampleError

_MAX_STEPS = 2**22
# Edges from a node of a lattice to the nodes before it, at most.
_N_BACK = 4
# Columns of `_Workspace.back`.
_TABLE, _DISTANCE, _SIDE = range(3)


@kernel
def condition_edges(graph, theta, y, patch_of, field):
    """Compute the unary potentials of each node given the labels of the other patches.

    Edges to hidden nodes of other patches are left out.
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
def condition_edges_vjp(graph, y, patch_of, d_field, d_theta):
    """Add the derivative with respect to the field to that with respect to theta."""
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
    """Nodes of each patch, in the order of elimination.

    Attributes
    ----------
    ptr : ndarray of shape (n_patches + 1,)
        First node of each patch in `nodes`.
    nodes : ndarray of shape (n_nodes,)
        Nodes, patch by patch.
    patch_of, position : ndarray of shape (n_nodes,)
        Patch of each node, and its position in the patch.
    """

    ptr: np.ndarray
    nodes: np.ndarray
    patch_of: np.ndarray
    position: np.ndarray


def tile(graph, size):
    """Cut lattices into patches of `size` x `size` nodes; return the patches and the size of the window.

    Patches at the right and lower border may be smaller.
    """
    n_nodes, n_edges = np.diff(graph.node_ptr), np.diff(graph.edge_ptr)
    shapeless = graph.shapes[:, 0] == 0
    refused = shapeless & (n_edges > 0) & (size > 1)
    if refused.any():
        raise ExampleError(
            f"graph must be a lattice for size={size}, got another graph in {{example}}. Use size=1, which "
            "is the pseudolikelihood.",
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
    # The distance to the neighbour in the line before, or to its diagonal neighbour.
    reach = np.where((n_edges > 0) & (sides.prod(axis=1) > 1), sides.min(axis=1) + diagonal, 0)
    return patches, int(reach.max())


@kernel
def _tile(node_ptr, shapes, size, patches):
    """Fill in the patches, whose nodes are ordered line by line along the short side."""
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
                    patches.nodes[n + t], patches.patch_of[node], patches.position[node] = node, number, t
                number, n = number + 1, n + rows * columns
                patches.ptr[number] = n


class _Workspace(NamedTuple):
    """Arrays for the current patch.

    Attributes
    ----------
    field, d_field : ndarray of shape (n_nodes_of_a_patch, n_states)
        Unary potentials, and the derivative with respect to them.
    back : ndarray of shape (n_nodes_of_a_patch, 4, 3)
        Edges to earlier nodes: the table, the distance to that node, and the side of the edge on which the
        later node is; -1 for no edge.
    log_sums : ndarray of shape (n_nodes_of_a_patch + 1, n_states ** window)
        Table over the window before each node.
    joint, mass : ndarray of shape (n_states ** (window + 1),)
        Table over the window and the next node, as logarithms and as probabilities.
    """

    field: np.ndarray
    d_field: np.ndarray
    back: np.ndarray
    log_sums: np.ndarray
    joint: np.ndarray
    mass: np.ndarray


def patch_pieces(graph, field, tables, y, patches, window, value, d_field, d_tables):
    """Add minus the log-likelihoods of all patches to `value`, and their derivatives to the others.

    Edges between patches are left out; hidden labels are summed out.
    """
    n_states, largest = field.shape[1], int(np.diff(patches.ptr).max())
    steps = largest * n_states ** (window + 1)
    if steps > _MAX_STEPS:
        raise ValueError(
            f"size must be such that a patch takes at most {_MAX_STEPS} steps, got {largest} nodes with "
            f"{n_states} labels, {largest} * {n_states}**{window + 1} = {steps} steps. Use a smaller size."
        )
    work = _Workspace(
        field=np.empty((largest, n_states)),
        d_field=np.empty((largest, n_states)),
        back=np.empty((largest, _N_BACK, 3), dtype=np.int64),
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
    """Find the edges of each node of a patch to earlier nodes; return the size of the window."""
    window = 0
    for t in range(len(nodes)):
        n_back = 0
        back[t] = -1
        for p in range(graph.incident_ptr[nodes[t]], graph.incident_ptr[nodes[t] + 1]):
            edge, side = graph.incident[p] >> 1, graph.incident[p] & 1
            other = graph.edges[edge, 1 - side]
            distance = t - patches.position[other]
            if patches.patch_of[other] == patches.patch_of[nodes[t]] and distance > 0:
                back[t, n_back, _TABLE], back[t, n_back, _SIDE] = graph.edge_table[edge], side
                back[t, n_back, _DISTANCE] = distance
                n_back, window = n_back + 1, max(window, distance)
    return window


@kernel
def _one_patch(tables, y, window, work, d_tables):
    """Compute log_z of the free patch minus log_z with the labels clamped, inf if these are impossible."""
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
    """Compute log_z of a patch; leaves the tables that `_eliminate_vjp` needs."""
    n_states = tables.shape[1]
    n_old, n_max = 1, n_states**window
    work.log_sums[0, 0] = 0.0
    for t in range(n):
        n_new = min(n_old * n_states, n_max)
        _extend(tables, t, n_old, work)
        _sum_out(work.joint, n_old * n_states, n_new, work.log_sums[t + 1])
        n_old = n_new
    _sum_out(work.log_sums[n], n_old, 1, work.joint)
    return work.joint[0]


@kernel
def _extend(tables, t, n_old, work):
    """Fill `joint`, the table over the window and the next node, whose state is the lowest digit."""
    n_states = tables.shape[1]
    for s in range(n_old):
        for x in range(n_states):
            work.joint[s * n_states + x] = work.log_sums[t, s] + work.field[t, x]
    for b in range(_N_BACK):
        table, distance, side = work.back[t, b]
        if side >= 0:
            stride = n_states ** (distance - 1)
            for s in range(n_old):
                z = s // stride % n_states
                for x in range(n_states):
                    work.joint[s * n_states + x] += tables[table, x, z] if side == 0 else tables[table, z, x]


@kernel
def _sum_out(joint, n_joint, n_new, out):
    """Sum over the highest digits of a table of logarithms, which leaves `n_new` entries."""
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
    n_max = n_states**window
    for s in range(n_states ** min(n, window)):
        work.mass[s] = scale * np.exp(work.log_sums[n, s] - log_z)
    for t in range(n - 1, -1, -1):
        n_old = n_states ** min(t, window)
        n_new = min(n_old * n_states, n_max)
        _extend(tables, t, n_old, work)
        _sum_out_vjp(work.joint, n_old * n_states, n_new, work.log_sums[t + 1], work.mass)
        for s in range(n_old):
            work.mass[s] = 0.0
            for x in range(n_states):
                work.mass[s] += work.joint[s * n_states + x]
                work.d_field[t, x] += work.joint[s * n_states + x]
        for b in range(_N_BACK):
            table, distance, side = work.back[t, b]
            if side >= 0:
                stride = n_states ** (distance - 1)
                for s in range(n_old):
                    z = s // stride % n_states
                    for x in range(n_states):
                        first, second = (x, z) if side == 0 else (z, x)
                        d_tables[table, first, second] += work.joint[s * n_states + x]


@kernel
def _sum_out_vjp(joint, n_joint, n_new, log_sums, mass):
    """Replace `joint` by the mass of each entry, given the mass of the sums."""
    for first in range(0, n_joint, n_new):
        for i in range(n_new):
            share = np.exp(joint[first + i] - log_sums[i]) if joint[first + i] > -np.inf else 0.0
            joint[first + i] = mass[i] * share
