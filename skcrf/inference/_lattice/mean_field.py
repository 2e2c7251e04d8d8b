"""Mean field on lattices, one colour after the other, in arithmetic of whole lines: see `_board`."""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel, vector_exp, vector_kernel
from skcrf._scratch import full
from skcrf.graph import OFFSETS, Potentials
from skcrf.inference._lattice.board import (
    Board,
    array_of,
    colour_of,
    move,
    move_tables,
    n_sites_of,
    neighbours,
    size_of,
    tables_of,
)
from skcrf.inference._lattice.classify import Kind, at_edges, first_edges, lattice_kinds
from skcrf.inference._lattice.message import add_scaled
from skcrf.inference._pairwise.mean_field import PairwiseMeanField


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


@vector_kernel
def _add_two(t, values, u, more, out):
    for i in range(len(out)):
        out[i] += t * values[i] + u * more[i]


@vector_kernel
def _add_four(t, values, u, more, v, third, w, fourth, out):
    for i in range(len(out)):
        out[i] += (t * values[i] + u * more[i]) + (v * third[i] + w * fourth[i])


@kernel
def _add_mean(t, mu, first, last, out):
    """Add the mean of t(z) under mu(z), several labels at once: `out` is read and written less often."""
    n, z = len(t), 0
    while z + 4 <= n:
        one, two = mu[z, first:last], mu[z + 1, first:last]
        three, four = mu[z + 2, first:last], mu[z + 3, first:last]
        _add_four(t[z], one, t[z + 1], two, t[z + 2], three, t[z + 3], four, out)
        z += 4
    if z + 2 <= n:
        _add_two(t[z], mu[z, first:last], t[z + 1], mu[z + 1, first:last], out)
        z += 2
    if z < n:
        add_scaled(t[z], mu[z, first:last], out)


@kernel
def _add_energies(board, example, tables, mu, line, parity, side, energies):
    """Add the mean of theta with the neighbours of one side to the energies (label, site) of a line."""
    first, last, there, other, shift = neighbours(board, example, line, parity, side)
    if first >= last:
        return
    values = mu[there, other]
    for x in range(len(energies)):
        out = energies[x, first:last]
        if tables.ndim == 2:
            t = tables[x] if side % 2 == 0 else tables[:, x]
            _add_mean(t, values, first + shift, last + shift, out)
        else:
            for z in range(len(energies)):
                if side % 2 == 0:
                    table = tables[line, parity, x, z, first:last]
                else:
                    table = tables[there, other, z, x, first + shift : last + shift]
                _add_product(table, values[z, first + shift : last + shift], out)


@kernel
def _add_energies_vjp(board, example, tables, mu, line, parity, side, d_energies, d_mu, d_tables):
    first, last, there, other, shift = neighbours(board, example, line, parity, side)
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
    _, length, _ = size_of(board, example)
    energies = scratch[2:]
    _copy(unary[line, parity], energies)
    for side in range(2 * len(board.offsets)):
        tables = tables_of(board, board.tables, side // 2, example)
        _add_energies(board, example, tables, mu, line, parity, side, energies)
    _softmax(energies, n_sites_of(length, parity), scratch, mu[line, parity])


@kernel
def ascend(board, state, active):
    """Update all sites of the active examples, colour after colour."""
    for example in range(len(active)):
        if active[example]:
            n_lines, _, turned = size_of(board, example)
            mu, unary = array_of(board, state, example), array_of(board, board.unary, example)
            scratch = np.empty((2 + mu.shape[2], mu.shape[3]))
            for colour in range(len(board.offsets)):
                for line in range(n_lines):
                    for parity in range(2):
                        if colour_of(board, line, parity, turned) == colour:
                            _update(board, example, unary, line, parity, scratch, mu)


@kernel
def _update_vjp(board, example, seen, line, parity, scratch, d_mu, d_known, d_tables):
    """Undo the update of a line and parity, which had `seen` earlier colours updated and later ones not."""
    _, length, turned = size_of(board, example)
    n_sites, new = n_sites_of(length, parity), seen[1][line, parity]
    d_energies = scratch[1:]
    _softmax_vjp(new, n_sites, d_mu[line, parity], scratch[0], d_energies)
    _add(d_energies, n_sites, d_known[line, parity])
    colour = colour_of(board, line, parity, turned)
    for side in range(2 * len(board.offsets)):
        _, _, there, other, _ = neighbours(board, example, line, parity, side)
        mu = seen[1] if colour_of(board, there, other, turned) < colour else seen[0]
        tables = tables_of(board, board.tables, side // 2, example)
        d_inside = tables_of(board, d_tables, side // 2, example)
        _add_energies_vjp(board, example, tables, mu, line, parity, side, d_energies, d_mu, d_inside)


@kernel
def ascend_vjp(board, before, after, active, d_state, d_unary, d_tables):
    """Undo the update; adds to the adjoints of the potentials."""
    for example in range(len(active)):
        if active[example]:
            n_lines, _, turned = size_of(board, example)
            seen = array_of(board, before, example), array_of(board, after, example)
            d_mu, d_known = array_of(board, d_state, example), array_of(board, d_unary, example)
            scratch = np.empty((1 + d_mu.shape[2], d_mu.shape[3]))
            for colour in range(len(board.offsets) - 1, -1, -1):
                for line in range(n_lines):
                    for parity in range(2):
                        if colour_of(board, line, parity, turned) == colour:
                            _update_vjp(board, example, seen, line, parity, scratch, d_mu, d_known, d_tables)


class LatticeMeanField(PairwiseMeanField):
    """Mean field on lattices of one kind, with finite tables."""

    is_plain = False
    _last_read = None, None  # the last state and its marginals

    @classmethod
    def options(cls, plan, theta):
        return lattice_kinds(plan.graph)

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        graph, n_labels, kind = plan.graph, theta.unary.shape[1], Kind.of(options)
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
        move(self.board, theta.unary, self.board.unary, False)
        if self.untied:
            move_tables(self.board, theta.tables, tables, False)

    def pack(self, values):
        state = full((self.row_ptr[-1], 1), 0.0)
        move(self.board, values, state[:, 0], False)
        return state

    def update(self, state, active):
        ascend(self.board, state[:, 0], active)

    def step_vjp(self, adjoint, before, after, active, d_state):
        ascend_vjp(self.board, before[:, 0], after[:, 0], active, d_state[:, 0], *adjoint)

    def marginals(self, state):
        last, mu = self._last_read
        if last is not state:
            mu = np.empty_like(self.theta.unary)  # not scratch: the caller keeps it
            move(self.board, mu, state[:, 0], True)
            self._last_read = state, mu
        return mu

    def new_adjoint(self):
        return full(self.board.unary.shape, 0.0), full(self.board.tables.shape, 0.0)

    def to_potentials(self, adjoint):
        d_unary, d_inside = adjoint
        d_theta = Potentials(np.zeros_like(self.theta.unary), np.zeros_like(self.theta.tables))
        move(self.board, d_theta.unary, d_unary, True)
        if self.untied:
            move_tables(self.board, d_theta.tables, d_inside, True)
        else:
            has = self.table_of >= 0
            np.add.at(d_theta.tables, self.table_of[has], d_inside[has])
        return d_theta
