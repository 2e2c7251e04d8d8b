"""Mean field on lattices, one colour after the other, in vector arithmetic on whole lines."""

import numpy as np

from skcrf._numerics import full, kernel, reduction_kernel, vector_exp, vector_kernel
from skcrf.graph import OFFSETS, Potentials
from skcrf.inference._lattice.engine import Options, first_edges, lattice_options, values_at
from skcrf.inference._lattice.mean_field_layout import (
    SECOND_END,
    Board,
    array_of,
    colour_of,
    copy_nodes,
    copy_tables,
    count_sites,
    line_sizes,
    neighbours,
    tables_of,
)
from skcrf.inference._lattice.message import add_scaled
from skcrf.inference._mean_field import MeanFieldEngine
from skcrf.inference._pairwise.mean_field import objective, objective_vjp, outer_vjp


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
def _add_two(t0, mu0, t1, mu1, out):
    for i in range(len(out)):
        out[i] += t0 * mu0[i] + t1 * mu1[i]


@vector_kernel
def _add_four(t0, mu0, t1, mu1, t2, mu2, t3, mu3, out):
    for i in range(len(out)):
        out[i] += (t0 * mu0[i] + t1 * mu1[i]) + (t2 * mu2[i] + t3 * mu3[i])


@kernel
def _add_mean(t, mu, first, last, out):
    """Add the mean of t(z) under mu(z), several labels at once to read and write `out` less often."""
    n, z = len(t), 0
    while z + 4 <= n:
        mu0, mu1 = mu[z, first:last], mu[z + 1, first:last]
        mu2, mu3 = mu[z + 2, first:last], mu[z + 3, first:last]
        _add_four(t[z], mu0, t[z + 1], mu1, t[z + 2], mu2, t[z + 3], mu3, out)
        z += 4
    if z + 2 <= n:
        _add_two(t[z], mu[z, first:last], t[z + 1], mu[z + 1, first:last], out)
        z += 2
    if z < n:
        add_scaled(t[z], mu[z, first:last], out)


@kernel
def _add_energies(board, example, tables, mu, line, parity, side, energies):
    """Add the expected tables with the neighbours at one side to the energies (label, site) of a line."""
    first, last, other_line, other_parity, shift = neighbours(board, example, line, parity, side)
    if first >= last:
        return
    values = mu[other_line, other_parity]
    for x in range(len(energies)):
        out = energies[x, first:last]
        if tables.ndim == 2:
            t = tables[x] if side % 2 == SECOND_END else tables[:, x]
            _add_mean(t, values, first + shift, last + shift, out)
        else:
            for z in range(len(energies)):
                if side % 2 == SECOND_END:
                    table = tables[line, parity, x, z, first:last]
                else:
                    table = tables[other_line, other_parity, z, x, first + shift : last + shift]
                _add_product(table, values[z, first + shift : last + shift], out)


@kernel
def _add_energies_vjp(board, example, tables, mu, line, parity, side, d_energies, d_mu, d_tables):
    """Pull the adjoint of energies back to the marginals and tables of one side."""
    first, last, other_line, other_parity, shift = neighbours(board, example, line, parity, side)
    if first >= last:
        return
    other_mu, d_other_mu = mu[other_line, other_parity], d_mu[other_line, other_parity]
    start, stop = first + shift, last + shift
    for x in range(len(d_energies)):
        d_out = d_energies[x, first:last]
        for z in range(len(d_energies)):
            values, d_values = other_mu[z, start:stop], d_other_mu[z, start:stop]
            i, j = (x, z) if side % 2 == SECOND_END else (z, x)
            if tables.ndim == 2:
                add_scaled(tables[i, j], d_out, d_values)
                d_tables[i, j] += _dot(d_out, values)
            elif side % 2 == SECOND_END:
                _add_product(tables[line, parity, i, j, first:last], d_out, d_values)
                _add_product(d_out, values, d_tables[line, parity, i, j, first:last])
            else:
                _add_product(tables[other_line, other_parity, i, j, start:stop], d_out, d_values)
                _add_product(d_out, values, d_tables[other_line, other_parity, i, j, start:stop])


@vector_kernel
def _softmax(energies, n_sites, scratch, out):
    """Compute normalised exponentials of the first sites."""
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
    """Pull the adjoint of mu back to energies; it becomes 0, since mu before the update is not used."""
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
    """Maximise the objective in the marginals of a line and parity."""
    _, length, _ = line_sizes(board, example)
    energies = scratch[2:]
    _copy(unary[line, parity], energies)
    for side in range(2 * len(board.offsets)):
        tables = tables_of(board, board.tables, side // 2, example)
        _add_energies(board, example, tables, mu, line, parity, side, energies)
    _softmax(energies, count_sites(length, parity), scratch, mu[line, parity])


@kernel
def _ascend(board, state, active):
    """Update all sites of the active examples, colour after colour."""
    for example in range(len(active)):
        if active[example]:
            n_lines, _, turned = line_sizes(board, example)
            mu, unary = array_of(board, state, example), array_of(board, board.unary, example)
            scratch = np.empty((2 + mu.shape[2], mu.shape[3]))
            for colour in range(len(board.offsets)):
                for line in range(n_lines):
                    for parity in range(2):
                        if colour_of(board, line, parity, turned) == colour:
                            _update(board, example, unary, line, parity, scratch, mu)


@kernel
def _update_vjp(board, example, before, after, line, parity, scratch, d_mu, d_unary, d_tables):
    """Undo the update of a line and parity, which used updated marginals of earlier colours only."""
    _, length, turned = line_sizes(board, example)
    n_sites, new = count_sites(length, parity), after[line, parity]
    d_energies = scratch[1:]
    _softmax_vjp(new, n_sites, d_mu[line, parity], scratch[0], d_energies)
    _add(d_energies, n_sites, d_unary[line, parity])
    colour = colour_of(board, line, parity, turned)
    for side in range(2 * len(board.offsets)):
        _, _, other_line, other_parity, _ = neighbours(board, example, line, parity, side)
        mu = after if colour_of(board, other_line, other_parity, turned) < colour else before
        tables = tables_of(board, board.tables, side // 2, example)
        d_inside = tables_of(board, d_tables, side // 2, example)
        _add_energies_vjp(board, example, tables, mu, line, parity, side, d_energies, d_mu, d_inside)


@kernel
def _ascend_vjp(board, before, after, active, d_state, d_unary, d_tables):
    """Undo an iteration; adds to the adjoints of the potentials."""
    for example in range(len(active)):
        if active[example]:
            n_lines, _, turned = line_sizes(board, example)
            old, new = array_of(board, before, example), array_of(board, after, example)
            d_mu, d_theta = array_of(board, d_state, example), array_of(board, d_unary, example)
            scratch = np.empty((1 + d_mu.shape[2], d_mu.shape[3]))
            for colour in range(len(board.offsets) - 1, -1, -1):
                for line in range(n_lines):
                    for parity in range(2):
                        if colour_of(board, line, parity, turned) == colour:
                            _update_vjp(
                                board, example, old, new, line, parity, scratch, d_mu, d_theta, d_tables
                            )


class LatticeMeanField(MeanFieldEngine):
    """Mean field on lattices of four or eight neighbours, with finite tables."""

    is_plain = False
    _last_read = None, None  # the last state and its marginals

    @classmethod
    def options(cls, plan, theta):
        supported, options = lattice_options(plan.graph)
        return np.where(supported, options.encode(), 0)

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        graph, n_labels, options = plan.graph, theta.unary.shape[1], Options.decode(options)
        self.own_tables = options.own_tables
        offsets = np.array(OFFSETS[8 if options.has_diagonals else 4])
        n_lines, length = np.sort(graph.shapes, axis=1).T
        self.row_ptr = np.concatenate([[0], np.cumsum(2 * n_lines * ((length + 1) // 2) * n_labels)])
        first_edge = first_edges(graph, len(offsets))
        if self.own_tables:
            tables = full((len(offsets), self.row_ptr[-1] * n_labels), 0.0)
        else:
            self.table_of = values_at(first_edge, graph.edge_table, -1).T
            tables = theta.tables[self.table_of]
        self.board = Board(
            n_labels=n_labels,
            shapes=graph.shapes,
            offsets=offsets,
            node_ptr=graph.node_ptr,
            start=self.row_ptr,
            first_edge=first_edge,
            unary=full(self.row_ptr[-1], 0.0),
            tables=tables,
        )
        copy_nodes(self.board, theta.unary, self.board.unary, False)
        if self.own_tables:
            copy_tables(self.board, theta.tables, tables, False)

    def pack(self, values):
        state = full((self.row_ptr[-1], 1), 0.0)
        copy_nodes(self.board, values, state[:, 0], False)
        return state

    def update(self, state, active):
        _ascend(self.board, state[:, 0], active)

    def step_vjp(self, adjoint, before, after, active, d_state):
        _ascend_vjp(self.board, before[:, 0], after[:, 0], active, d_state[:, 0], *adjoint)

    def marginals(self, state):
        last, mu = self._last_read
        if last is not state:
            mu = np.empty_like(self.theta.unary)  # no scratch memory: the caller keeps it
            copy_nodes(self.board, mu, state[:, 0], True)
            self._last_read = state, mu
        return mu

    def objective(self, mu):
        return objective(self.graph, self.theta, mu)

    def objective_vjp(self, mu, d_log_z, through, d_mu, d_theta):
        objective_vjp(self.graph, self.theta, mu, d_log_z, through, d_mu, d_theta)

    def edge_marginals_vjp(self, mu, d_edge_mu, d_mu):
        outer_vjp(self.graph, mu, d_edge_mu, d_mu)

    def new_adjoint(self):
        return full(self.board.unary.shape, 0.0), full(self.board.tables.shape, 0.0)

    def to_potentials(self, adjoint):
        d_unary, d_inside = adjoint
        d_theta = Potentials(np.zeros_like(self.theta.unary), np.zeros_like(self.theta.tables))
        copy_nodes(self.board, d_theta.unary, d_unary, True)
        if self.own_tables:
            copy_tables(self.board, d_theta.tables, d_inside, True)
        else:
            has = self.table_of >= 0
            np.add.at(d_theta.tables, self.table_of[has], d_inside[has])
        return d_theta
