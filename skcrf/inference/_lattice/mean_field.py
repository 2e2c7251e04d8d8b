"""Mean field on lattices, one colour after the other."""

import numpy as np

from skcrf._numerics import empty, full
from skcrf.graph import OFFSETS, Potentials
from skcrf.inference._lattice.layout import (
    Options,
    finite_ranges,
    first_edges,
    lattice_options,
    values_at,
)
from skcrf.inference._lattice.mean_field_binary import (
    couplings,
    decode,
    differences,
    differences_vjp,
    encode,
    move_constants,
)
from skcrf.inference._lattice.mean_field_checkerboard import ascend_checkerboard, ascend_checkerboard_vjp
from skcrf.inference._lattice.mean_field_layout import (
    ALL_LABELS,
    BINARY,
    PADDING,
    Board,
    array_starts,
    copy_nodes,
    copy_tables,
    subtract_maxima,
)
from skcrf.inference._lattice.mean_field_update import ascend, ascend_vjp, changes
from skcrf.inference._mean_field import MeanFieldEngine, uniform
from skcrf.inference._pairwise.mean_field import objective, objective_vjp, outer_vjp

# The range of energies whose exponentials are normal numbers, with a margin.
_RANGE = 600.0


class LatticeMeanField(MeanFieldEngine):
    """Mean field on lattices of four or eight neighbours, with finite tables."""

    is_plain = False
    _last_read = None, None  # the last state and its marginals

    @classmethod
    def options(cls, plan, theta):
        supported, options = lattice_options(plan.graph)
        if theta.unary.shape[1] < 2 or not supported.any():
            return np.zeros(len(supported), dtype=np.int64)
        node_range = finite_ranges(theta.unary, plan.graph.node_ptr)[0]
        rows = theta.tables.reshape(len(theta.tables), -1)
        table_range = finite_ranges(rows, plan.graph.table_ptr)[0]
        is_narrow = node_range + (4 + 4 * options.has_diagonals) * table_range <= _RANGE
        return np.where(supported, 2 * options.encode() + is_narrow, 0)

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        graph, n_labels, is_narrow = plan.graph, theta.unary.shape[1], bool(options % 2)
        options = Options.decode(options // 2)
        self.own_tables = options.own_tables
        self.kind = BINARY if n_labels == 2 and is_narrow else ALL_LABELS
        n_values = 1 if self.kind is BINARY else n_labels
        self.is_checkerboard = self.kind is BINARY and not options.own_tables and not options.has_diagonals
        self.row_ptr = array_starts(graph.shapes, n_values)
        offsets = np.array(OFFSETS[8 if options.has_diagonals else 4])
        first_edge = first_edges(graph, len(offsets))
        self.table_of = values_at(first_edge, graph.edge_table, -1)
        unary, tables = self._reduced()
        self.board = Board(
            kind=self.kind,
            is_narrow=is_narrow,
            n_values=n_values,
            shapes=graph.shapes,
            offsets=offsets,
            node_ptr=graph.node_ptr,
            start=self.row_ptr,
            first_edge=first_edge,
            unary=full(self.row_ptr[-1] + PADDING, 0.0),
            tables=self._new_tables(tables, len(offsets) * n_values),
        )
        copy_nodes(self.board, unary, self.board.unary, False)
        if self.own_tables:
            copy_tables(self.board, tables, self.board.tables, False)

    def _reduced(self):
        """Compute potentials by node and table, of which energies have a maximum of at most 0."""
        unary, tables = self.theta
        if self.kind is not BINARY:
            reduced = empty(unary.shape)
            subtract_maxima(unary, reduced)
            return reduced, tables - tables.max(axis=(1, 2), keepdims=True)
        reduced = empty((len(unary), 1))
        differences(unary, reduced)
        move_constants(self.graph, tables, reduced)
        return reduced, couplings(tables)

    def _new_tables(self, tables, factor):
        """Copy tables that edges share, or make zeros for those by edge."""
        if self.own_tables:
            return full(2 * PADDING + factor * (self.row_ptr[-1] - PADDING), 0.0)
        shared = tables[self.table_of]
        return np.stack([shared, shared.swapaxes(-1, -2)], axis=2)

    def initial_state(self):
        mu = empty(self.theta.unary.shape)
        uniform(self.theta.unary, mu)
        if self.kind is not BINARY:
            return self._packed(mu)
        values = empty((len(mu), 1))
        encode(mu, values)
        return self._packed(values)

    def pack(self, values):
        if self.kind is not BINARY:
            return self._packed(values)
        reduced = empty((len(values), 1))
        differences(values, reduced)
        return self._packed(reduced)

    def _packed(self, values):
        state = full((self.row_ptr[-1] + PADDING, 1), 0.0)
        copy_nodes(self.board, values, state[:, 0], False)
        return state

    def update(self, state, active):
        update = ascend_checkerboard if self.is_checkerboard else ascend
        update(self.board, state[:, 0], active)

    def changes(self, before, state):
        return changes(self.board, before[:, 0], state[:, 0])

    def step_vjp(self, adjoint, record, active, d_state):
        before, after = record
        update_vjp = ascend_checkerboard_vjp if self.is_checkerboard else ascend_vjp
        update_vjp(self.board, before[:, 0], after[:, 0], active, d_state[:, 0], *adjoint)

    def marginals(self, state):
        last, mu = self._last_read
        if last is not state:
            mu = np.empty_like(self.theta.unary)  # no scratch memory: the caller keeps it
            if self.kind is BINARY:
                values = empty((len(mu), 1))
                copy_nodes(self.board, values, state[:, 0], True)
                decode(values, mu)
            else:
                copy_nodes(self.board, mu, state[:, 0], True)
            self._last_read = state, mu
        return mu

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        return self.pack(d_mu)

    def objective(self, mu):
        return objective(self.graph, self.theta, mu)

    def objective_vjp(self, mu, d_log_z, through, d_mu, d_theta):
        objective_vjp(self.graph, self.theta, mu, d_log_z, through, d_mu, d_theta)

    def edge_marginals_vjp(self, mu, d_edge_mu, d_mu):
        outer_vjp(self.graph, mu, d_edge_mu, d_mu)

    def new_adjoint(self):
        """Make adjoints of the potentials, and scratch memory for those of energies."""
        shapes = self.board.unary.shape, self.board.tables.shape, self.board.unary.shape
        return tuple(full(shape, 0.0) for shape in shapes)

    def to_potentials(self, adjoint):
        unary, tables = self.theta
        is_binary, d_tables = self.kind is BINARY, np.zeros_like(tables)
        d_unary = np.zeros_like(unary) if is_binary else np.empty_like(unary)
        nodes = empty((len(unary), 1)) if is_binary else d_unary
        entries = full((len(tables), 1, 1), 0.0) if is_binary else d_tables
        copy_nodes(self.board, nodes, adjoint[0], True)
        if self.own_tables:
            copy_tables(self.board, entries, adjoint[1], True)
        else:
            has = self.table_of >= 0
            np.add.at(entries, self.table_of[has], adjoint[1][has][:, 0])
        if is_binary:
            differences_vjp(self.graph, nodes, entries, d_unary, d_tables)
        return Potentials(d_unary, d_tables)
