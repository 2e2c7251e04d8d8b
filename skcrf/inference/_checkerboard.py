"""Mean field on lattices, one colour after the other.

No two sites of a colour are neighbours, so that all of them are updated at once. With four neighbours there
are the two colours of a checkerboard, with eight a colour for each parity of the row and the column. Arrays
are (line, parity, label, site): site i of a parity is position 2 i + parity of its line, so that all sites of
a colour in a line lie side by side, and each step is arithmetic of whole lines. Lines are rows or columns,
whichever are longer.
"""

from typing import NamedTuple

import numpy as np

from skcrf._memory import full
from skcrf._numerics import kernel, reduction_kernel, vector_exp, vector_kernel
from skcrf.graph import OFFSETS, Potentials
from skcrf.inference._kinds import Kind, at_edges, first_edges, lattice_kinds
from skcrf.inference._lanes import add_scaled


class Board(NamedTuple):
    """A batch of lattices and its potentials, as the kernels want them.

    Attributes
    ----------
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    offsets : ndarray of shape (n_directions, 2)
        How far down and right the second end of an edge is from the first.
    n_labels : ndarray of shape (1,)
        Number of labels.
    node_ptr, start : ndarray of shape (n_examples + 1,)
        Where the nodes, and the arrays, of each example start.
    first_edge : ndarray of shape (n_examples, n_directions)
        Where the edges of each direction start.
    unary : ndarray of shape (size,)
        theta of the nodes, flat.
    tables : ndarray
        theta of the edges: shape (n_directions, n_examples, n_labels, n_labels) for one table a direction;
        flat arrays (line, parity, label, label, site) of the edge's first end, one a direction, if each edge
        has its own.
    """

    shapes: np.ndarray
    offsets: np.ndarray
    n_labels: np.ndarray
    node_ptr: np.ndarray
    start: np.ndarray
    first_edge: np.ndarray
    unary: np.ndarray
    tables: np.ndarray


@kernel
def _size(board, example):
    """Number of lines, their length, and whether lines are columns."""
    height, width = board.shapes[example]
    return min(height, width), max(height, width), height > width


@kernel
def _array(board, flat, example):
    n_lines, length, _ = _size(board, example)
    shape = (n_lines, 2, board.n_labels[0], (length + 1) // 2)
    return flat[board.start[example] : board.start[example + 1]].reshape(shape)


@kernel
def _tables(board, tables, direction, example):
    if tables.ndim == 4:
        return tables[direction, example]
    n_lines, length, _ = _size(board, example)
    n = board.n_labels[0]
    inside = tables[direction, board.start[example] * n : board.start[example + 1] * n]
    return inside.reshape((n_lines, 2, n, n, (length + 1) // 2))


@kernel
def _colour(board, line, parity, turned):
    if len(board.offsets) == 2:
        return (line + parity) % 2
    return 2 * parity + line % 2 if turned else 2 * (line % 2) + parity


@kernel
def _move(board, nodes, flat, leaving):
    """Copy numbers of nodes and labels to the board, or from it."""
    for example in range(len(board.shapes)):
        width = board.shapes[example, 1]
        n_lines, length, turned = _size(board, example)
        inside = _array(board, flat, example)
        for line in range(n_lines):
            for position in range(length):
                row, column = (position, line) if turned else (line, position)
                values = nodes[board.node_ptr[example] + row * width + column]
                parity, i = position % 2, position // 2
                for x in range(len(values)):
                    if leaving:
                        values[x] = inside[line, parity, x, i]
                    else:
                        inside[line, parity, x, i] = values[x]


@kernel
def _move_tables(board, edges, flat, leaving):
    """Copy the edges' own tables to the board, or from it."""
    for example in range(len(board.shapes)):
        height, width = board.shapes[example]
        turned = _size(board, example)[2]
        for direction in range(len(board.offsets)):
            down, right = board.offsets[direction]
            inside = _tables(board, flat, direction, example)
            edge = board.first_edge[example, direction]
            for row in range(height - down):
                for column in range(max(0, -right), width - max(0, right)):
                    line, position = (column, row) if turned else (row, column)
                    table = edges[edge]
                    _copy_table(table, inside[line, position % 2, :, :, position // 2], leaving)
                    edge += 1


@kernel
def _copy_table(table, inside, leaving):
    for x in range(len(table)):
        for z in range(len(table)):
            if leaving:
                table[x, z] = inside[x, z]
            else:
                inside[x, z] = table[x, z]


@vector_kernel
def _add_product(t, values, out):
    for i in range(len(out)):
        out[i] += t[i] * values[i]


@reduction_kernel
def _dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@kernel
def _n_sites(length, parity):
    return (length + 1 - parity) // 2


@kernel
def _neighbour(board, example, line, parity, side):
    """Where the neighbours of a line's sites are: the second ends of their edges, and the first ends.

    Returns which sites have one, `first` and `last`, its line and parity, and how far its number is from
    theirs.
    """
    n_lines, length, turned = _size(board, example)
    down, right = board.offsets[side // 2]
    across, along = (right, down) if turned else (down, right)
    if side % 2 == 1:
        across, along = -across, -along
    first = 1 if parity + along < 0 else 0
    last = (length + 1 - parity - max(0, along)) // 2
    if not 0 <= line + across < n_lines:
        last = first
    return first, last, line + across, (parity + along) % 2, (parity + along) // 2


@kernel
def _add_energies(board, example, tables, mu, line, parity, side, energies):
    """Add the mean of theta with the neighbours of one side to the energies (label, site) of a line."""
    first, last, there, other, shift = _neighbour(board, example, line, parity, side)
    if first >= last:
        return
    for x in range(len(energies)):
        out = energies[x, first:last]
        for z in range(len(energies)):
            values = mu[there, other, z, first + shift : last + shift]
            i, j = (x, z) if side % 2 == 0 else (z, x)
            if tables.ndim == 2:
                add_scaled(tables[i, j], values, out)
            elif side % 2 == 0:
                _add_product(tables[line, parity, i, j, first:last], values, out)
            else:
                _add_product(tables[there, other, i, j, first + shift : last + shift], values, out)


@kernel
def _add_energies_vjp(board, example, tables, mu, line, parity, side, d_energies, d_mu, d_tables):
    first, last, there, other, shift = _neighbour(board, example, line, parity, side)
    if first >= last:
        return
    for x in range(len(d_energies)):
        d_out = d_energies[x, first:last]
        for z in range(len(d_energies)):
            values = mu[there, other, z, first + shift : last + shift]
            d_values = d_mu[there, other, z, first + shift : last + shift]
            i, j = (x, z) if side % 2 == 0 else (z, x)
            if tables.ndim == 2:
                add_scaled(tables[i, j], d_out, d_values)
                d_tables[i, j] += _dot(d_out, values)
            elif side % 2 == 0:
                _add_product(tables[line, parity, i, j, first:last], d_out, d_values)
                _add_product(d_out, values, d_tables[line, parity, i, j, first:last])
            else:
                _add_product(tables[there, other, i, j, first + shift : last + shift], d_out, d_values)
                _add_product(d_out, values, d_tables[there, other, i, j, first + shift : last + shift])


@vector_kernel
def _softmax(energies, n_sites, scratch, out):
    """Normalised exponentials of the first sites."""
    n = len(energies)
    top, total = scratch[0], scratch[1]
    for i in range(n_sites):
        top[i] = energies[0, i]
        total[i] = 0.0
    for x in range(1, n):
        for i in range(n_sites):
            top[i] = max(top[i], energies[x, i])
    for x in range(n):
        for i in range(n_sites):
            value = vector_exp(energies[x, i] - top[i])
            out[x, i] = value
            total[i] += value
    for i in range(n_sites):
        total[i] = 1.0 / total[i]
    for x in range(n):
        for i in range(n_sites):
            out[x, i] *= total[i]


@vector_kernel
def _softmax_vjp(mu, n_sites, d_mu, mean, d_energies):
    """The adjoint of energies; that of mu becomes 0, as what was there before went into nothing."""
    for i in range(len(mean)):
        mean[i] = 0.0
    for x in range(len(mu)):
        for i in range(n_sites):
            mean[i] += mu[x, i] * d_mu[x, i]
    for x in range(len(mu)):
        for i in range(n_sites):
            d_energies[x, i] = mu[x, i] * (d_mu[x, i] - mean[i])
            d_mu[x, i] = 0.0


@vector_kernel
def _copy(values, out):
    for x in range(len(out)):
        for i in range(out.shape[1]):
            out[x, i] = values[x, i]


@vector_kernel
def _add(values, n_sites, out):
    for x in range(len(out)):
        for i in range(n_sites):
            out[x, i] += values[x, i]


@kernel
def _update(board, example, unary, line, parity, scratch, mu):
    """Update the sites of a line and parity: theta and what the neighbours expect, normalised."""
    _, length, _ = _size(board, example)
    energies = scratch[2:]
    _copy(unary[line, parity], energies)
    for side in range(2 * len(board.offsets)):
        tables = _tables(board, board.tables, side // 2, example)
        _add_energies(board, example, tables, mu, line, parity, side, energies)
    _softmax(energies, _n_sites(length, parity), scratch, mu[line, parity])


@kernel
def ascend(board, state, active):
    """Update all sites of the active examples, colour after colour."""
    for example in range(len(active)):
        if active[example]:
            n_lines, _, turned = _size(board, example)
            mu, unary = _array(board, state, example), _array(board, board.unary, example)
            scratch = np.empty((2 + mu.shape[2], mu.shape[3]))
            for colour in range(len(board.offsets)):
                for line in range(n_lines):
                    for parity in range(2):
                        if _colour(board, line, parity, turned) == colour:
                            _update(board, example, unary, line, parity, scratch, mu)


@kernel
def _update_vjp(board, example, seen, line, parity, scratch, d_mu, d_known, d_tables):
    """Undo the update of a line and parity, which had `seen` earlier colours updated and later ones not."""
    _, length, turned = _size(board, example)
    n_sites, new = _n_sites(length, parity), seen[1][line, parity]
    d_energies = scratch[1:]
    _softmax_vjp(new, n_sites, d_mu[line, parity], scratch[0], d_energies)
    _add(d_energies, n_sites, d_known[line, parity])
    colour = _colour(board, line, parity, turned)
    for side in range(2 * len(board.offsets)):
        _, _, there, other, _ = _neighbour(board, example, line, parity, side)
        mu = seen[1] if _colour(board, there, other, turned) < colour else seen[0]
        tables = _tables(board, board.tables, side // 2, example)
        d_inside = _tables(board, d_tables, side // 2, example)
        _add_energies_vjp(board, example, tables, mu, line, parity, side, d_energies, d_mu, d_inside)


@kernel
def ascend_vjp(board, before, after, active, d_state, d_unary, d_tables):
    """Undo the update; adds to the adjoints of the potentials."""
    for example in range(len(active)):
        if active[example]:
            n_lines, _, turned = _size(board, example)
            seen = _array(board, before, example), _array(board, after, example)
            d_mu, d_known = _array(board, d_state, example), _array(board, d_unary, example)
            scratch = np.empty((1 + d_mu.shape[2], d_mu.shape[3]))
            for colour in range(len(board.offsets) - 1, -1, -1):
                for line in range(n_lines):
                    for parity in range(2):
                        if _colour(board, line, parity, turned) == colour:
                            _update_vjp(board, example, seen, line, parity, scratch, d_mu, d_known, d_tables)


class CheckerboardEngine:
    """Mean field on lattices.

    Parameters
    ----------
    graph : Graph
        Structure of the batch, lattices of one kind.
    theta : Potentials
        Potentials, finite tables.
    """

    def __init__(self, graph, theta):
        n_labels = theta.unary.shape[1]
        self.graph, self.theta = graph, theta
        kind = Kind.of(lattice_kinds(graph)[0])
        self.untied = kind.untied
        offsets = np.array(OFFSETS[8 if kind.diagonals else 4])
        n_lines, length = np.sort(graph.shapes, axis=1).T
        self.row_ptr = np.concatenate([[0], np.cumsum(2 * n_lines * ((length + 1) // 2) * n_labels)])
        first_edge = first_edges(graph, len(offsets))
        if self.untied:
            tables = full((len(offsets), self.row_ptr[-1] * n_labels), 0.0)
        else:
            self.table_of = at_edges(graph.edge_table, first_edge, -1).T
            tables = theta.tables[self.table_of]
        self.board = Board(
            shapes=graph.shapes,
            offsets=offsets,
            n_labels=np.array([n_labels]),
            node_ptr=graph.node_ptr,
            start=self.row_ptr,
            first_edge=first_edge,
            unary=full(self.row_ptr[-1], 0.0),
            tables=tables,
        )
        _move(self.board, theta.unary, self.board.unary, False)
        if self.untied:
            _move_tables(self.board, theta.tables, tables, False)

    def start(self, mu):
        state = full((self.row_ptr[-1], 1), 0.0)
        _move(self.board, mu, state[:, 0], False)
        return state

    def step(self, state, active):
        ascend(self.board, state[:, 0], active)

    def step_vjp(self, adjoint, before, after, active, d_state):
        ascend_vjp(self.board, before[:, 0], after[:, 0], active, d_state[:, 0], *adjoint)

    def marginals(self, state):
        mu = np.empty_like(self.theta.unary)  # goes to whoever asked
        _move(self.board, mu, state[:, 0], True)
        return mu

    def new_adjoint(self):
        return full(self.board.unary.shape, 0.0), full(self.board.tables.shape, 0.0)

    def leave(self, adjoint):
        d_unary, d_inside = adjoint
        d_theta = Potentials(np.zeros_like(self.theta.unary), np.zeros_like(self.theta.tables))
        _move(self.board, d_theta.unary, d_unary, True)
        if self.untied:
            _move_tables(self.board, d_theta.tables, d_inside, True)
        else:
            has = self.table_of >= 0
            np.add.at(d_theta.tables, self.table_of[has], d_inside[has])
        return d_theta
