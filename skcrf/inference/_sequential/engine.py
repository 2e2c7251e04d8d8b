"""Sequential tree-reweighted messages on lattices of four or eight neighbours."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import copy, full
from skcrf.graph import Potentials, score, sum_by_example
from skcrf.inference._lattice.layout import (
    Options,
    finite_ranges,
    first_edges,
    lattice_options,
    values_at,
)
from skcrf.inference._lattice.readout import exponentiate
from skcrf.inference._lattice.vector import LANES
from skcrf.inference._pairwise.engine import ROUNDING, MessageEngine, magnitudes
from skcrf.inference._pairwise.readout import read_tables
from skcrf.inference._sequential.layout import (
    Strips,
    copy_messages,
    copy_nodes,
    copy_nodes_below,
    pack_tables,
    shape_of,
    unpack_tables,
)
from skcrf.inference._sequential.message import MAX, RATIO, SUM
from skcrf.inference._sequential.readout import (
    choose_states,
    marginals,
    marginals_vjp,
    message_changes,
    read_bound,
    score_of,
)
from skcrf.inference._sequential.sweep import sweep, sweep_vjp

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
    allowed = shift = None

    @classmethod
    def options(cls, plan, theta):
        graph, n_labels = plan.graph, theta.unary.shape[1]
        supported, options = lattice_options(graph)
        height, width = graph.shapes.T
        supported &= (height > 1) & (width > 1 + options.has_diagonals)
        if n_labels < 2 or not supported.any():
            return np.zeros(graph.n_examples, dtype=np.int64)
        ranges, forbids_label, forbids_pair = _ranges(graph, theta, options.has_diagonals)
        options = options._replace(forbids_label=forbids_label & (n_labels == 2))
        fits = plan.maximise | (ranges <= _RANGE)  # where it maximises, potentials are scaled
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
        # Maxima do not depend on the scale of potentials, but rounding errors do.
        ranges, _, _ = _ranges(graph, theta, options.has_diagonals)
        self.scale = np.clip(_RANGE / np.maximum(ranges, 1 / _LARGEST), 0.0, _LARGEST)
        if not plan.maximise:
            self.scale[:] = 1.0
        self.weights = 1.0 / (n_directions * self.scale)
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
        copy_nodes(strips, theta.unary * self.scale[graph.node_example, None], strips.unary, False)
        exponentiate(strips.unary)
        self.strips, self.row_ptr = strips, 2 * n_directions * start
        if plan.maximise:
            # With four neighbours, the other way is the order of a breadth-first search too.
            self.ways = (True,) if n_directions == 2 else (True, False)
            self.best, self.value = None, np.full(graph.n_examples, -np.inf)
            self.bound = np.full(graph.n_examples, np.inf)
            self.rounding = ROUNDING * magnitudes(graph, theta)
            self._update_best(self.initial_state())

    def _shared_tables(self, n_directions):
        """Compute exp(theta / rho) of the table of each example and direction."""
        for direction in range(n_directions):
            tables = self.theta.tables[self.table_of[:, direction]] / self.weights[:, None, None]
            yield np.exp(tables - tables.max(axis=(1, 2), keepdims=True))

    def initial_state(self):
        return full((self.row_ptr[-1], 1), 1.0)

    def step(self, state, active):
        before = copy(state) if self.measure else None
        memory = np.empty((5, self.strips.n_values * LANES))
        sweep(self.strips, state[:, 0], active, self.mode, memory)
        changes = np.zeros(len(active))
        if self.measure:
            changes = message_changes(self.strips, before[:, 0], state[:, 0], active)
        if self.mode is not MAX:
            return changes
        self._update_best(state)
        changes = -np.expm1(np.log1p(-np.minimum(changes, 1 - 1e-16)) / self.scale)
        # An optimal configuration cannot be improved, even if messages still change.
        is_optimal = self.bound - self.value <= self.rounding
        return np.where(is_optimal, 0.0, changes)

    def decode(self, state):
        # The score that beliefs report is summed in another order, which may put it above the bound.
        self.bound = np.maximum(self.bound, score(self.graph, self.theta, self.best))
        return self.best

    def _update_best(self, state):
        """Decode configurations; keep the best per example, and the lowest bound."""
        for way in self.ways:
            x = choose_states(self.strips, state[:, 0], self.initial_state()[:, 0], way)
            value = score_of(self.strips, self.theta, self.graph.edge_table, x)
            is_better = (value > self.value)[self.graph.node_example]
            self.best = x if self.best is None else np.where(is_better, x, self.best)
            self.value = np.maximum(value, self.value)
        # Rounding may put the bound below the score.
        self.bound = np.maximum(np.minimum(self.log_z(state), self.bound), self.value)

    def log_z(self, state):
        """Compute the bound of the log-partition function, or of the best score."""
        bound = read_bound(self.strips, state[:, 0], self.mode, self._allowed())
        return bound / self.scale + self._shift()

    def _shift(self):
        """Sum the constants per example that potentials in strips lack."""
        if self.shift is None:
            graph, theta = self.graph, self.theta
            first = theta.unary[:, 0] if self.mode is RATIO else theta.unary.max(axis=1)
            tables = theta.tables.max(axis=(1, 2))[graph.edge_table]
            shift = sum_by_example(first, graph.node_example, graph)
            self.shift = shift + sum_by_example(tables, graph.edge_example, graph)
        return self.shift

    def _allowed(self):
        """Make an array of 0 for forbidden labels and 1 for others, in strips."""
        if self.allowed is None:
            allowed = full(self.strips.unary.shape, 1.0)
            if self.mode is not RATIO:
                np.sign(self.strips.unary, out=allowed)
                copy_nodes_below(self.strips, allowed)
            self.allowed = allowed
        return self.allowed

    def step_vjp(self, adjoint, record, active, d_state):
        before, after = record
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


def _ranges(graph, theta, has_diagonals):
    """Compute the range of the products of each example, and whether it forbids labels or pairs.

    A message has at most the range of its table divided by rho, and a product of all messages to a node that
    of twice as many tables as there are directions.
    """
    nodes, forbids_label = finite_ranges(theta.unary, graph.node_ptr)
    tables, forbids_pair = finite_ranges(theta.tables.reshape(len(theta.tables), -1), graph.table_ptr)
    return 2 * nodes + np.where(has_diagonals, 32, 14) * tables, forbids_label, forbids_pair
