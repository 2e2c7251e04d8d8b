"""Sequential tree-reweighted messages on lattices of four or eight neighbours."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import copy, full
from skcrf.graph import Potentials
from skcrf.inference._lattice.engine import (
    Options,
    finite_ranges,
    first_edges,
    lattice_options,
    values_at,
)
from skcrf.inference._lattice.message import exponentiate
from skcrf.inference._lattice.sequential_message import MAX, RATIO, SUM
from skcrf.inference._lattice.sequential_readout import marginals, marginals_vjp, message_changes
from skcrf.inference._lattice.sequential_sweep import sweep, sweep_vjp
from skcrf.inference._lattice.strips import (
    Strips,
    copy_messages,
    copy_nodes,
    pack_tables,
    shape_of,
    unpack_tables,
)
from skcrf.inference._lattice.vector import LANES
from skcrf.inference._pairwise.engine import MessageEngine
from skcrf.inference._pairwise.readout import read_tables

# The range of logarithms whose exponentials are safe products of doubles, with a margin.
_RANGE = 600.0
# Messages in single precision; more extreme ones are certain.
_SMALLEST, _LARGEST = 1e-37, 1e37


class _Adjoint(NamedTuple):
    """Adjoints of the potentials in strips."""

    d_unary: np.ndarray
    d_tables: tuple


class SequentialLatticeEngine(MessageEngine):
    """Messages along monotonic chains of lattices, which are at least two rows and columns wide.

    With eight neighbours, three columns: then four chains pass through a node.

    Parameters
    ----------
    plan : Plan
        Settings.
    theta : Potentials
        Potentials.
    options : int
        Number of the `Options` of all these lattices.
    """

    is_plain = False

    @classmethod
    def options(cls, plan, theta):
        # A message has at most the range of its table divided by rho, a product of all messages to a node
        # that of twice as many tables as there are directions.
        graph, n_labels = plan.graph, theta.unary.shape[1]
        supported, options = lattice_options(graph)
        height, width = graph.shapes.T
        supported &= (height > 1) & (width > 1 + options.has_diagonals)
        if n_labels < 2 or plan.maximise or not supported.any():
            return np.zeros(graph.n_examples, dtype=np.int64)
        node_range, forbids_label = finite_ranges(theta.unary, graph.node_ptr)
        table_range, forbids_pair = finite_ranges(
            theta.tables.reshape(len(theta.tables), -1), graph.table_ptr
        )
        fits = 2 * node_range + np.where(options.has_diagonals, 32, 14) * table_range <= _RANGE
        options = options._replace(forbids_label=forbids_label & (n_labels == 2))
        return np.where(supported & fits & ~forbids_pair, options.encode(), 0)

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        graph, n_labels, options = plan.graph, theta.unary.shape[1], Options.decode(options)
        n_directions = 4 if options.has_diagonals else 2
        is_ratio = n_labels == 2 and not options.forbids_label and not plan.maximise
        self.mode = RATIO if is_ratio else MAX if plan.maximise else SUM
        n_values = 1 if is_ratio else n_labels
        sizes = [shape_of(n_directions, *shape, n_values).size for shape in graph.shapes.tolist()]
        start = np.concatenate([[0], np.cumsum(sizes)])
        self.weights = np.full(graph.n_examples, 1.0 / n_directions)
        self.table_of = values_at(first_edges(graph, n_directions), graph.edge_table, -1)
        if options.own_tables:
            shape = start[-1] // n_values * n_labels**2
            tables = tuple(full(shape, 0.0) for _ in range(n_directions))
        else:
            tables = tuple(self._shared_tables(n_directions))
        strips = Strips(
            n_labels=n_labels,
            n_values=n_values,
            n_directions=n_directions,
            shapes=graph.shapes,
            node_ptr=graph.node_ptr,
            edge_ptr=graph.edge_ptr,
            start=start,
            unary=full(start[-1], 0.0),
            tables=tables,
        )
        if options.own_tables:
            # Without tied edges, tables are numbered like edges.
            for direction in range(n_directions):
                pack_tables(strips, direction, theta.tables, self.weights, tables[direction])
                exponentiate(tables[direction])
        copy_nodes(strips, theta.unary, strips.unary, False)
        exponentiate(strips.unary)
        self.strips, self.row_ptr = strips, 2 * n_directions * start

    def _shared_tables(self, n_directions):
        """Compute exp(theta / rho) of the table of each example and direction."""
        for direction in range(n_directions):
            tables = self.theta.tables[self.table_of[:, direction]] * n_directions
            yield np.exp(tables - tables.max(axis=(1, 2), keepdims=True))

    def initial_state(self):
        return full((self.row_ptr[-1], 1), 1.0)

    def step(self, state, active):
        before = copy(state) if self.measure else None
        memory = np.empty((5, self.strips.n_values * LANES))
        sweep(self.strips, state[:, 0], active, self.mode, memory)
        return message_changes(self.strips, before[:, 0], state[:, 0], active) if self.measure else None

    def step_vjp(self, adjoint, before, after, active, d_state):
        states = before[:, 0], after[:, 0]
        sweep_vjp(self.strips, *states, active, self.mode, d_state[:, 0], *adjoint)

    def compressed(self, state):
        return np.clip(state, _SMALLEST, _LARGEST).astype(np.float32)

    def messages(self, state):
        messages = np.ones((2 * self.graph.n_edges, self.strips.n_labels))
        copy_messages(self.strips, messages, state[:, 0], True)
        return np.log(messages, out=messages)

    def messages_vjp(self, d_messages):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        copy_messages(self.strips, d_messages, d_state[:, 0], False)
        return d_state

    def marginals(self, state):
        mu = np.empty_like(self.theta.unary)
        marginals(self.strips, state[:, 0], mu)
        return mu

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        marginals_vjp(self.strips, mu, d_mu, d_state[:, 0], adjoint.d_unary)
        return d_state

    def new_adjoint(self):
        d_tables = tuple(full(tables.shape, 0.0) for tables in self.strips.tables)
        return _Adjoint(full(self.strips.unary.shape, 0.0), d_tables)

    def to_potentials(self, adjoint):
        d_unary, d_tables = full(self.theta.unary.shape, 0.0), full(self.theta.tables.shape, 0.0)
        copy_nodes(self.strips, d_unary, adjoint.d_unary, True)
        for direction, (d_table, table) in enumerate(zip(adjoint.d_tables, self.strips.tables, strict=True)):
            if self.mode is not RATIO:  # so far, they are not those of logarithms
                np.multiply(d_table, table, out=d_table)
            if d_table.ndim == 3:
                d_tables[self.table_of[:, direction]] += d_table * self.strips.n_directions
            else:
                unpack_tables(self.strips, direction, d_table, self.weights, d_tables)
        return Potentials(d_unary, d_tables)

    def expected_tables(self, state):
        return read_tables(self.graph, self.theta, self.rho, self.messages(state))
