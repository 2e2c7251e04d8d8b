"""Message passing on lattices of four or eight neighbours."""

from copy import copy as copy_of
from typing import NamedTuple

import numpy as np

from skcrf._numerics import copy, empty, full
from skcrf.graph import Potentials
from skcrf.inference._lattice.effects import (
    JointEffects,
    effects_vjp,
    update_effects,
)
from skcrf.inference._lattice.layout import (
    COLUMNS,
    FALLING,
    ROWS,
    Options,
    Scratch,
    Tiles,
    dimensions,
    finite_ranges,
    first_edges,
    lattice_options,
    values_at,
    weights_by_line,
)
from skcrf.inference._lattice.message import MAX, PADDING, RATIO, SUM, WORK_SIZE
from skcrf.inference._lattice.readout import (
    beliefs_vjp,
    clear_there,
    copy_messages,
    copy_to_rows,
    expected_tables,
    exponentiate,
    marginals,
    marginals_vjp,
    message_changes,
    pack_tables,
    pack_unary,
    pack_weights,
    subtract_there,
    unpack_tables,
    unpack_unary,
    update_q,
)
from skcrf.inference._lattice.sweep import sweep, sweep_vjp
from skcrf.inference._lattice.vector import LANES
from skcrf.inference._pairwise.engine import MessageEngine

# The range of logarithms whose exponentials are safe products of float64 or float32, with a margin.
_RANGE, _SINGLE_RANGE = 600.0, 75.0
# Bytes of a list of messages whose products fit the cache together with their sums; where those alone are
# large, sums are rather loaded seldom.
_LIST_BYTES, _MOST_LABELS, _LONG_LIST = 8192, 9, 24
# Messages in single precision; more extreme ones are certain.
_SMALLEST, _LARGEST = 1e-37, 1e37


class _Adjoint(NamedTuple):
    """Adjoints of the potentials, and scratch memory that no other thread uses.

    `n_sweeps` counts the sweeps of each example that were undone. The last four are for diagonals, and laid
    out by columns but for the first, which is by lines: the adjoint of q, that of each direction, the sum of
    some of them, and that sum rotated. Lanes without a line stay 0.
    """

    d_unary: tuple
    d_tables: tuple
    scratch: Scratch
    n_sweeps: np.ndarray
    d_q: np.ndarray | None
    d_q_by_columns: tuple
    d_effect: np.ndarray | None
    rotated: np.ndarray | None


class LatticeEngine(MessageEngine):
    """Messages on lattices of four or eight neighbours, undamped and with one weight per line.

    Parameters
    ----------
    plan : Plan
        Settings.
    theta : Potentials
        Potentials.
    options : int
        Number of the `Options` of all these lattices.
    """

    is_plain, takes_potts = False, True

    @classmethod
    def options(cls, plan, theta):
        # The range of a message is at most that of its table divided by rho, and that of a message raised to
        # rho at most that of its table. So `fits` bounds the range of products if no pair is forbidden.
        graph, n_labels = plan.graph, theta.unary.shape[1]
        supported, options = lattice_options(graph)
        if plan.damping > 0 or n_labels < 2 or not supported.any():
            return np.zeros(graph.n_examples, dtype=np.int64)
        alike, weighs_lines, rho = weights_by_line(graph, plan.rho, supported)
        node_range, forbids_label = finite_ranges(theta.unary, graph.node_ptr)
        table_size = int(np.prod(theta.tables.shape[1:]))
        table_range, forbids_pair = finite_ranges(
            theta.tables.reshape(len(theta.tables), table_size), graph.table_ptr
        )
        # Four more neighbours are four more messages, raised to rho.
        logs = node_range + (5 / rho + 4 * options.has_diagonals) * table_range
        fits = logs <= _RANGE  # False for nan
        options = options._replace(
            forbids_label=forbids_label & (n_labels == 2),
            weighs_lines=weighs_lines,
            is_single=_fits_single(node_range, table_range, rho, options.has_diagonals, n_labels)
            & (plan.dtype is np.float32),
        )
        return np.where(supported & alike & fits & ~forbids_pair, options.encode(), 0)

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        graph, n_labels, options = plan.graph, theta.unary.shape[1], Options.decode(options)
        self.dtype = plan.dtype if options.is_single else np.float64
        self.directions = range(4 if options.has_diagonals else 2)
        self.is_potts = theta.tables.shape[1:] != (n_labels, n_labels)
        is_ratio = n_labels == 2 and not (options.forbids_label or plan.maximise or self.is_potts)
        self.mode = RATIO if is_ratio else MAX if plan.maximise else SUM
        first = first_edges(graph, len(self.directions))
        self.table_of = values_at(first, graph.edge_table, -1)
        self.shared = np.full_like(self.table_of.T, -1) if options.own_tables else self.table_of.T.copy()
        self.tables_by_lane = options.own_tables or options.weighs_lines or self.is_potts
        n_values = 1 if is_ratio else n_labels
        tiles = self._new_tiles(n_values, values_at(first, plan.rho, 1.0), options.own_tables)
        if options.weighs_lines:
            tiles.rho[:, [ROWS, COLUMNS]] = np.nan
            for direction in (ROWS, COLUMNS):
                pack_weights(tiles, direction, plan.rho, tiles.lane_rho[direction])
        if self.tables_by_lane:
            for direction in self.directions:
                flat = tiles.tables[direction].reshape(-1)
                logs = self._logs(flat)
                pack_tables(tiles, self.shared[direction], theta.tables, direction, logs)
                self._exponentiate(logs, flat)
        logs = self._logs(tiles.unary[COLUMNS])
        pack_unary(tiles, theta.unary, logs)
        self._exponentiate(logs, tiles.unary[COLUMNS])
        copy_to_rows(tiles, tiles.unary[COLUMNS], tiles.unary[ROWS])
        self.tiles, self.row_ptr = tiles, 2 * tiles.start.sum(axis=1)
        self.q, self.effects = self._new_effects()
        self.scratch = self._new_scratch()
        self._state_of_q = None  # the state to which q of ROWS belongs
        self._no_record = empty(0, self.dtype)

    def _logs(self, out):
        """Make an array of zeros for logarithms, in double precision even if their exponentials are not."""
        return out if self.dtype == np.float64 else full(out.shape, 0.0)

    def _exponentiate(self, logs, out):
        exponentiate(logs)
        if logs is not out:
            np.copyto(out, logs)

    def _full(self, shape, value):
        return full(shape, value, self.dtype)

    def _new_tiles(self, n_values, rho, own_tables):
        """Make tiles; all but tables that edges share still has to be filled in."""
        graph, n_labels, n_directions = self.graph, self.theta.unary.shape[1], len(self.directions)
        n_lanes = LANES * 8 // np.dtype(self.dtype).itemsize
        shapes = [dimensions(*shape, d, n_values, n_lanes) for shape in graph.shapes for d in self.directions]
        n_tiles, positions, _, lanes = np.moveaxis(np.array(shapes).reshape(-1, n_directions, 4), 2, 0)
        # Of a message in numbers, and of a line in positions.
        self._longest = int(n_values * lanes.max(initial=0)), int(positions.max(initial=0))
        gaps = positions - 1 if own_tables else np.minimum(positions - 1, 1)
        table_shape = self.theta.tables.shape[1:]
        start, lane_start, table_start = (
            np.concatenate([np.zeros((1, n_directions), np.int64), np.cumsum(sizes, axis=0)])
            for sizes in (
                n_tiles * positions * n_values * lanes,
                n_tiles * lanes,
                n_tiles * gaps * lanes * table_shape[0] * table_shape[1],
            )
        )
        return Tiles(
            n_labels=n_labels,
            n_values=n_values,
            lanes=n_lanes,
            shapes=graph.shapes,
            node_ptr=graph.node_ptr,
            edge_ptr=graph.edge_ptr,
            start=start,
            lane_start=lane_start,
            table_start=table_start,
            rho=rho,
            lane_rho=tuple(
                np.repeat(rho[:, d], np.diff(lane_start[:, d])).astype(self.dtype) for d in self.directions
            ),
            unary=(self._full(start[-1, ROWS], 1.0), self._full(start[-1, COLUMNS], 0.0)),
            tables=tuple(
                self._full((table_start[-1, d], 1)[: 1 + self.is_potts], 0.0)
                if self.tables_by_lane
                else self._shared_tables(d, rho[:, d])
                for d in self.directions
            ),
            table_shape=table_shape,
        )

    def _new_effects(self):
        """Make arrays for q of each direction, and for joint effects; lanes without a line stay 1."""
        rows, columns = self.tiles.start[-1, : COLUMNS + 1]
        effects, has_diagonals = None, len(self.directions) > 2
        if has_diagonals:
            effects = JointEffects(*(self._full(columns, 1.0) for _ in JointEffects._fields))
        by_columns = self._full(columns, 1.0)  # shared by all directions of this shape
        return (self._full(rows, 1.0), *(by_columns for _ in self.directions[1:])), effects

    def _new_scratch(self, *, for_adjoint=False):
        """Make scratch memory for a sweep or for its derivative."""
        tiles, vector = self.tiles, self.tiles.lanes // 2
        message, positions = self._longest
        length = 0
        if for_adjoint and self.mode is not RATIO:
            length = _LONG_LIST if tiles.n_labels > _MOST_LABELS else max(1, _LIST_BYTES // (8 * message))
            length = positions if self.tables_by_lane else length
        sizes = Scratch(
            work=WORK_SIZE * message,
            block=vector * (message + PADDING + vector),
            tile=positions * message if for_adjoint else 0,
            lists=length * message,
            sums=tiles.n_labels**2 * vector if for_adjoint else 0,
        )
        return Scratch(*(self._full(size, 0.0) for size in sizes))

    def _shared_tables(self, direction, rho):
        """Compute exp(theta / rho) of the table of each example, and its transpose."""
        tables = self.theta.tables[self.table_of[:, direction]]
        tables = np.exp((tables - tables.max(axis=(1, 2), keepdims=True)) / rho[:, None, None])
        return np.stack([tables, tables.transpose(0, 2, 1)], axis=1).astype(self.dtype, order="C")

    def _unpack_tables(self, tiles, inside):
        """Add tables in tiles up to the tables of the graph, each divided by the weight of its edges."""
        tables = full(self.theta.tables.shape, 0.0)
        for direction, d_inside in zip(self.directions, inside, strict=True):
            if self.tables_by_lane:
                unpack_tables(tiles, self.shared[direction], d_inside.reshape(-1), direction, tables)
            else:
                d_tables = d_inside[:, 0] + d_inside[:, 1].transpose(0, 2, 1)
                has = self.table_of[:, direction] >= 0
                rho = tiles.rho[has, direction, None, None]
                tables[self.table_of[has, direction]] += d_tables[has] / rho
        return tables

    def initial_state(self):
        return self._full((self.row_ptr[-1], 1), 1.0)

    def step(self, state, active):
        return self._sweep_all(state, active, self._no_record)

    def recorded_step(self, state, active):
        record = empty(state.shape, state.dtype)
        return state, self._sweep_all(state, active, record[:, 0]), record

    def record_at(self, state):
        # Kernels write to q and to scratch memory, and several threads may differentiate the same beliefs.
        other = copy_of(self)
        other.q, other.effects = self._new_effects()
        other.scratch, other._state_of_q, other.measure = self._new_scratch(), None, False
        return other.recorded_step(copy(state), np.ones(self.graph.n_examples, dtype=bool))[2]

    def _sweep_all(self, state, active, record):
        """Sweep all directions of the active examples; returns their changes if `tol` is above 0."""
        before = copy(state)[:, 0] if self.measure else state[:, 0]
        flat = state[:, 0]
        if self.effects is None and self._state_of_q is not state:
            update_q(self.tiles, ROWS, flat, active, self.q[ROWS], self.scratch)
        for direction in self.directions[FALLING:]:
            update_effects(self.tiles, direction, flat, active, self.effects, self.scratch)
        for direction in self.directions:
            settings = self.mode, self.q, self.effects, self.scratch
            sweep(self.tiles, direction, before, flat, active, *settings, record)
        self._state_of_q = state
        return message_changes(self.tiles, before, flat, active) if self.measure else None

    def step_vjp(self, adjoint, record, active, d_state):
        record, d_state, d_effect = record[:, 0], d_state[:, 0], adjoint.d_effect
        if d_effect is not None:
            d_effect.fill(0.0)
        for direction in reversed(self.directions):
            sweep_vjp(self.tiles, direction, record, active, self.mode, d_state, adjoint, adjoint.d_q)
            if d_effect is not None and direction > ROWS:
                d_effect += adjoint.d_q_by_columns[direction]
                given = d_effect, d_state, adjoint.rotated, adjoint.scratch
                effects_vjp(self.tiles, direction - 1, active, *given)
        if d_effect is not None:  # the sweeps of earlier directions saw messages of the iteration before
            d_effect.fill(0.0)
            for direction in self.directions[1:]:
                d_effect += adjoint.d_q_by_columns[direction - 1]
                given = d_effect, d_state, adjoint.rotated, adjoint.scratch
                effects_vjp(self.tiles, direction, active, *given)
        elif self.measure:  # these adjoints were used up, and must not count where adjoints converge
            clear_there(self.tiles, ROWS, active, d_state)

    def compressed(self, state):
        return np.clip(state, _SMALLEST, _LARGEST).astype(np.float32)

    def messages(self, state):
        messages = np.ones((2 * self.tiles.edge_ptr[-1], self.tiles.n_labels))
        copy_messages(self.tiles, messages, state[:, 0], True)
        with np.errstate(divide="ignore"):
            return np.log(messages, out=messages)

    def messages_vjp(self, d_messages):
        d_state = self._full((self.row_ptr[-1], 1), 0.0)
        copy_messages(self.tiles, d_messages, d_state[:, 0], False)
        subtract_there(self.tiles, d_state[:, 0])
        return d_state

    def marginals(self, state):
        mu = np.empty_like(self.theta.unary)  # no scratch memory: the caller keeps it
        marginals(self.tiles, state[:, 0], self.q[COLUMNS], self.effects, self.scratch, mu)
        return mu

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state = self._full((self.row_ptr[-1], 1), 0.0)
        marginals_vjp(self.tiles, mu, d_mu, adjoint.d_unary[COLUMNS])
        if adjoint.d_effect is None:
            beliefs_vjp(self.tiles, adjoint.d_unary[COLUMNS], d_state[:, 0], adjoint.scratch)
            return d_state
        every = np.ones(self.graph.n_examples, dtype=bool)
        for direction in self.directions:
            given = adjoint.d_unary[COLUMNS], d_state[:, 0], adjoint.rotated, adjoint.scratch
            effects_vjp(self.tiles, direction, every, *given)
        return d_state

    def new_adjoint(self):
        sizes = self.tiles.start[-1]
        has_diagonals = len(self.directions) > 2
        by_columns = [self._full(sizes[COLUMNS], 0.0) if has_diagonals else None for _ in range(6)]
        return _Adjoint(
            tuple(self._full(size, 0.0) for size in sizes),
            tuple(
                full(part.shape, 0.0, self.dtype if self.tables_by_lane else np.float64)
                for part in self.tiles.tables
            ),
            self._new_scratch(for_adjoint=True),
            np.zeros(self.graph.n_examples, dtype=np.int64),
            empty(sizes.max(), self.dtype) if has_diagonals else None,
            tuple(by_columns[: len(self.directions)]),
            *by_columns[4:],
        )

    def to_potentials(self, adjoint):
        d_unary = full(self.theta.unary.shape, 0.0)
        unpack_unary(self.tiles, adjoint.d_unary, d_unary)
        if self.mode is not RATIO:  # so far, they are not those of logarithms
            for d_tables, tables in zip(adjoint.d_tables, self.tiles.tables, strict=True):
                np.multiply(d_tables, tables, out=d_tables)
        return Potentials(d_unary, self._unpack_tables(self.tiles, adjoint.d_tables))

    def expected_tables(self, state):
        inside = tuple(full(part.shape, 0.0) for part in self.tiles.tables)
        q, effects = self._new_effects()  # its own, so that threads may ask about the same beliefs
        scratch = self._new_scratch()
        every = np.ones(self.graph.n_examples, dtype=bool)
        if effects is not None:
            for direction in self.directions:
                update_effects(self.tiles, direction, state[:, 0], every, effects, scratch)
        for direction in self.directions:
            given = q[direction], effects, scratch, inside[direction]
            expected_tables(self.tiles, direction, state[:, 0], *given)
        # Marginals are not divided by the weights.
        ones = tuple(np.ones_like(rho) for rho in self.tiles.lane_rho)
        unweighted = self.tiles._replace(rho=np.ones_like(self.tiles.rho), lane_rho=ones)
        return self._unpack_tables(unweighted, inside)


def _fits_single(node_range, table_range, rho, has_diagonals, n_labels):
    """Return which examples can have messages of float32.

    Labels that are far below the best one at their node may vanish: only messages, their products with tables
    and the inverses of both have to be in range. Ratios have no best label and must not vanish.
    """
    logs = (3 + 2 / rho + 4 * has_diagonals) * table_range + (node_range if n_labels == 2 else 0.0)
    return logs <= _SINGLE_RANGE
