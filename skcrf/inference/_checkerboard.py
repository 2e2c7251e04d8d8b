"""Mean field on lattices of four neighbours, one colour of the checkerboard after the other.

No two sites of a colour are neighbours, so that all of them are updated at once. Arrays are (colour, row,
label, site): the sites of a colour in a row lie side by side, and each step is arithmetic of whole rows.
Site i of colour s in row r is column 2 i + offset, where the offset is (r + s) mod 2; above and below it is
site i of the other colour, left of it site i - 1 + offset and right of it site i + offset.
"""

from typing import NamedTuple

import numpy as np

from skcrf._memory import full
from skcrf._numerics import kernel, reduction_kernel, vector_exp, vector_kernel
from skcrf.graph import Potentials
from skcrf.inference._kinds import Kind, at_edges, first_edges, lattice_kinds
from skcrf.inference._lanes import add_scaled


class Board(NamedTuple):
    """A batch of lattices and its potentials, as the kernels want them.

    Attributes
    ----------
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    n_labels : ndarray of shape (1,)
        Number of labels.
    node_ptr, start : ndarray of shape (n_examples + 1,)
        Where the nodes, and the arrays, of each example start.
    unary : ndarray of shape (size,)
        theta of the nodes, flat.
    tables : tuple of two ndarrays
        theta of the edges to the right and down: shape (n_examples, n_labels, n_labels) for one table an
        example; flat arrays (colour, row, label, label, site) of the edge's first end if each has its own.
    """

    shapes: np.ndarray
    n_labels: np.ndarray
    node_ptr: np.ndarray
    start: np.ndarray
    unary: np.ndarray
    tables: tuple


@kernel
def _array(board, flat, example):
    height, width = board.shapes[example]
    shape = (2, height, board.n_labels[0], (width + 1) // 2)
    return flat[board.start[example] : board.start[example + 1]].reshape(shape)


@kernel
def _tables(board, tables, example):
    if tables.ndim == 3:
        return tables[example]
    height, width = board.shapes[example]
    n = board.n_labels[0]
    return tables[board.start[example] * n : board.start[example + 1] * n].reshape(
        (2, height, n, n, (width + 1) // 2)
    )


@kernel
def _move(board, nodes, flat, leaving):
    """Copy numbers of nodes and labels to the board, or from it."""
    for example in range(len(board.shapes)):
        height, width = board.shapes[example]
        inside = _array(board, flat, example)
        for row in range(height):
            for column in range(width):
                values = nodes[board.node_ptr[example] + row * width + column]
                colour, i = (row + column) % 2, column // 2
                for x in range(len(values)):
                    if leaving:
                        values[x] = inside[colour, row, x, i]
                    else:
                        inside[colour, row, x, i] = values[x]


@kernel
def _edge_at(board, edge_ptr, example, direction, row, column):
    height, width = board.shapes[example]
    if direction == 0:
        return edge_ptr[example] + row * (width - 1) + column
    return edge_ptr[example] + height * (width - 1) + row * width + column


@kernel
def _move_tables(board, edge_ptr, edges, flat, direction, leaving):
    """Copy the edges' own tables to the board, or from it."""
    for example in range(len(board.shapes)):
        height, width = board.shapes[example]
        inside = _tables(board, flat, example)
        for row in range(height - direction):
            for column in range(width - 1 + direction):
                table = edges[_edge_at(board, edge_ptr, example, direction, row, column)]
                colour = (row + column) % 2
                for x in range(len(table)):
                    for z in range(len(table)):
                        if leaving:
                            table[x, z] = inside[colour, row, x, z, column // 2]
                        else:
                            inside[colour, row, x, z, column // 2] = table[x, z]


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
def _neighbour(height, width, colour, row, side):
    """Where the neighbours of a row's sites are: right, left, down, up.

    Returns which sites have one, `first` and `last`, the row it is in, and how far its number is from theirs.
    """
    offset = (row + colour) % 2
    n_sites = (width - offset + 1) // 2
    if side == 0:
        return 0, (width - 1 - offset + 1) // 2, row, offset
    if side == 1:
        return 1 - offset, n_sites, row, offset - 1
    if side == 2:
        return 0, n_sites if row + 1 < height else 0, row + 1, 0
    return 0, n_sites if row > 0 else 0, row - 1, 0


@kernel
def _add_energies(tables, mu, width, colour, row, side, energies):
    """Add the mean of theta with the neighbours of one side to the energies (label, site) of a row."""
    height = mu.shape[1]
    first, last, other_row, shift = _neighbour(height, width, colour, row, side)
    if first >= last:
        return
    for x in range(len(energies)):
        out = energies[x, first:last]
        for z in range(len(energies)):
            values = mu[1 - colour, other_row, z, first + shift : last + shift]
            i, j = (x, z) if side % 2 == 0 else (z, x)
            if tables.ndim == 2:
                add_scaled(tables[i, j], values, out)
            elif side % 2 == 0:
                _add_product(tables[colour, row, i, j, first:last], values, out)
            else:
                table = tables[1 - colour, other_row, i, j, first + shift : last + shift]
                _add_product(table, values, out)


@kernel
def _add_energies_vjp(tables, mu, width, colour, row, side, d_energies, d_mu, d_tables):
    height = mu.shape[1]
    first, last, other_row, shift = _neighbour(height, width, colour, row, side)
    if first >= last:
        return
    for x in range(len(d_energies)):
        d_out = d_energies[x, first:last]
        for z in range(len(d_energies)):
            values = mu[1 - colour, other_row, z, first + shift : last + shift]
            d_values = d_mu[1 - colour, other_row, z, first + shift : last + shift]
            i, j = (x, z) if side % 2 == 0 else (z, x)
            if tables.ndim == 2:
                add_scaled(tables[i, j], d_out, d_values)
                d_tables[i, j] += _dot(d_out, values)
            elif side % 2 == 0:
                _add_product(tables[colour, row, i, j, first:last], d_out, d_values)
                _add_product(d_out, values, d_tables[colour, row, i, j, first:last])
            else:
                there = 1 - colour
                _add_product(tables[there, other_row, i, j, first + shift : last + shift], d_out, d_values)
                _add_product(d_out, values, d_tables[there, other_row, i, j, first + shift : last + shift])


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
def ascend(board, colour, state, active):
    """Update all sites of a colour in the active examples."""
    for example in range(len(active)):
        if active[example]:
            width = board.shapes[example, 1]
            mu, unary = _array(board, state, example), _array(board, board.unary, example)
            right, down = _tables(board, board.tables[0], example), _tables(board, board.tables[1], example)
            energies, scratch = np.empty(mu.shape[2:]), np.empty((2, mu.shape[3]))
            for row in range(mu.shape[1]):
                _copy(unary[colour, row], energies)
                for side in range(4):
                    tables = right if side < 2 else down
                    _add_energies(tables, mu, width, colour, row, side, energies)
                n_sites = (width - (row + colour) % 2 + 1) // 2
                _softmax(energies, n_sites, scratch, mu[colour, row])


@kernel
def ascend_vjp(board, colour, seen, after, active, d_state, d_unary, d_tables):
    """Undo the update of a colour, which had `seen` the other; adds to the adjoints of the potentials."""
    for example in range(len(active)):
        if active[example]:
            width = board.shapes[example, 1]
            mu, d_mu = _array(board, seen, example), _array(board, d_state, example)
            new, d_known = _array(board, after, example), _array(board, d_unary, example)
            d_energies, mean = np.empty(mu.shape[2:]), np.empty(mu.shape[3])
            for row in range(mu.shape[1]):
                n_sites = (width - (row + colour) % 2 + 1) // 2
                _softmax_vjp(new[colour, row], n_sites, d_mu[colour, row], mean, d_energies)
                _add(d_energies, n_sites, d_known[colour, row])
                for side in range(4):
                    tables = _tables(board, board.tables[side // 2], example)
                    d_inside = _tables(board, d_tables[side // 2], example)
                    _add_energies_vjp(tables, mu, width, colour, row, side, d_energies, d_mu, d_inside)


class CheckerboardEngine:
    """Mean field on lattices of four neighbours.

    Parameters
    ----------
    graph : Graph
        Structure of the batch.
    theta : Potentials
        Potentials, finite tables.
    """

    def __init__(self, graph, theta):
        n_labels = theta.unary.shape[1]
        self.graph, self.theta = graph, theta
        self.untied = Kind.of(lattice_kinds(graph)[0]).untied
        height, width = graph.shapes.T
        self.row_ptr = np.concatenate([[0], np.cumsum(2 * height * ((width + 1) // 2) * n_labels)])
        unary = full(self.row_ptr[-1], 0.0)
        board = Board(graph.shapes, np.array([n_labels]), graph.node_ptr, self.row_ptr, unary, (unary, unary))
        _move(board, theta.unary, unary, False)
        if self.untied:
            tables = full(len(unary) * n_labels, 0.0), full(len(unary) * n_labels, 0.0)
            for direction in (0, 1):
                _move_tables(board, graph.edge_ptr, theta.tables, tables[direction], direction, False)
        else:
            self.table_of = at_edges(graph.edge_table, first_edges(graph), -1)
            tables = tuple(np.ascontiguousarray(theta.tables[self.table_of[:, d]]) for d in (0, 1))
        self.board = board._replace(tables=tables)

    def start(self, mu):
        state = full((self.row_ptr[-1], 1), 0.0)
        _move(self.board, mu, state[:, 0], False)
        return state

    def step(self, state, active):
        for colour in (0, 1):
            ascend(self.board, colour, state[:, 0], active)

    def step_vjp(self, adjoint, before, after, active, d_state):
        for colour, seen in ((1, after), (0, before)):
            ascend_vjp(self.board, colour, seen[:, 0], after[:, 0], active, d_state[:, 0], *adjoint)

    def marginals(self, state):
        mu = np.empty_like(self.theta.unary)  # goes to whoever asked
        _move(self.board, mu, state[:, 0], True)
        return mu

    def new_adjoint(self):
        tables = (full(part.shape, 0.0) for part in self.board.tables)
        return full(self.board.unary.shape, 0.0), tuple(tables)

    def leave(self, adjoint):
        d_unary, d_inside = adjoint
        d_theta = Potentials(np.zeros_like(self.theta.unary), np.zeros_like(self.theta.tables))
        _move(self.board, d_theta.unary, d_unary, True)
        for direction in (0, 1):
            if self.untied:
                _move_tables(
                    self.board, self.graph.edge_ptr, d_theta.tables, d_inside[direction], direction, True
                )
            else:
                has = self.table_of[:, direction] >= 0
                d_theta.tables[self.table_of[has, direction]] += d_inside[direction][has]
        return d_theta
