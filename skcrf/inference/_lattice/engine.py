"""Message passing on lattices of four or eight neighbours."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import copy, empty, full, kernel
from skcrf.graph import Potentials
from skcrf.inference._lattice.layout import (
    COLUMNS,
    FALLING,
    ROWS,
    Tiles,
    copy_messages,
    copy_to_rows,
    dimensions,
    pack_tables,
    pack_unary,
    pack_weights,
    unpack_tables,
    unpack_unary,
)
from skcrf.inference._lattice.message import MAX, RATIO, SUM, exponentiate
from skcrf.inference._lattice.readout import expected_tables, marginals, marginals_vjp, message_changes
from skcrf.inference._lattice.sweep import (
    JointEffects,
    effects_vjp,
    sweep,
    sweep_vjp,
    update_effects,
)
from skcrf.inference._pairwise.engine import MessageEngine

# The range of logarithms whose exponentials are safe products of doubles, with a margin.
_RANGE = 600.0
# Messages in single precision; more extreme ones are certain.
_SMALLEST, _LARGEST = 1e-37, 1e37


class Options(NamedTuple):
    """Options of the lattice engines; examples with equal options run together.

    Attributes
    ----------
    own_tables : bool or ndarray of shape (n_examples,)
        Whether each edge has its own table, instead of one per direction.
    has_diagonals : bool or ndarray of shape (n_examples,)
        Whether nodes have eight neighbours instead of four.
    forbids_label : bool or ndarray of shape (n_examples,)
        Whether there are two labels and one of them is forbidden somewhere, so that messages are no ratios.
    weighs_lines : bool or ndarray of shape (n_examples,)
        Whether the lines of a direction differ in their edge weights.
    """

    own_tables: bool | np.ndarray
    has_diagonals: bool | np.ndarray
    forbids_label: bool | np.ndarray = False
    weighs_lines: bool | np.ndarray = False

    def encode(self):
        """Number the options, from 1 on."""
        return 1 + sum(np.asarray(flag, dtype=np.int64) << bit for bit, flag in enumerate(self))

    @classmethod
    def decode(cls, number):
        """Restore options from their number."""
        return cls(*(bool((number - 1) >> bit & 1) for bit in range(len(cls._fields))))


class _Adjoint(NamedTuple):
    """Adjoints of the potentials, and scratch memory that no other thread uses.

    The last three are for diagonals, and laid out by columns: the adjoint of q of each direction, the sum of
    some of them, and that sum rotated. Lanes without a line stay 0.
    """

    d_unary: tuple
    d_tables: tuple
    q: tuple
    effects: JointEffects | None
    d_q: np.ndarray
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

    is_plain = False

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
        fits = node_range + (5 / rho + 4 * options.has_diagonals) * table_range <= _RANGE  # False for nan
        options = options._replace(forbids_label=forbids_label & (n_labels == 2), weighs_lines=weighs_lines)
        return np.where(supported & alike & fits & ~forbids_pair, options.encode(), 0)

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        graph, n_labels, options = plan.graph, theta.unary.shape[1], Options.decode(options)
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
                pack_tables(tiles, self.shared[direction], theta.tables, direction, flat)
                exponentiate(flat)
        pack_unary(tiles, theta.unary, tiles.unary[COLUMNS])
        exponentiate(tiles.unary[COLUMNS])
        copy_to_rows(tiles, tiles.unary[COLUMNS], tiles.unary[ROWS])
        self.tiles, self.row_ptr = tiles, 2 * tiles.start.sum(axis=1)
        self.q, self.effects = self._new_scratch()

    def _new_tiles(self, n_values, rho, own_tables):
        """Make tiles; all but tables that edges share still has to be filled in."""
        graph, n_labels, n_directions = self.graph, self.theta.unary.shape[1], len(self.directions)
        shapes = [[dimensions(*shape, d, n_values) for d in self.directions] for shape in graph.shapes]
        n_tiles, positions, _, lanes = np.moveaxis(np.array(shapes).reshape(-1, n_directions, 4), 2, 0)
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
            shapes=graph.shapes,
            node_ptr=graph.node_ptr,
            edge_ptr=graph.edge_ptr,
            start=start,
            lane_start=lane_start,
            table_start=table_start,
            rho=rho,
            lane_rho=tuple(np.repeat(rho[:, d], np.diff(lane_start[:, d])) for d in self.directions),
            unary=(full(start[-1, ROWS], 1.0), full(start[-1, COLUMNS], 0.0)),
            tables=tuple(
                full((table_start[-1, d], 1)[: 1 + self.is_potts], 0.0)
                if self.tables_by_lane
                else self._shared_tables(d, rho[:, d])
                for d in self.directions
            ),
            table_shape=table_shape,
        )

    def _new_scratch(self):
        """Make arrays for q of each direction, and for joint effects; lanes without a line stay 1."""
        rows, columns = self.tiles.start[-1, : COLUMNS + 1]
        has_diagonals = len(self.directions) > 2
        effects = JointEffects(*(full(columns, 1.0) for _ in JointEffects._fields)) if has_diagonals else None
        by_columns = full(columns, 1.0)  # shared by all directions of this shape
        return (full(rows, 1.0), *(by_columns for _ in self.directions[1:])), effects

    def _shared_tables(self, direction, rho):
        """Compute exp(theta / rho) of the table of each example, and its transpose."""
        tables = self.theta.tables[self.table_of[:, direction]]
        tables = np.exp((tables - tables.max(axis=(1, 2), keepdims=True)) / rho[:, None, None])
        return np.ascontiguousarray(np.stack([tables, tables.transpose(0, 2, 1)], axis=1))

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
        return full((self.row_ptr[-1], 1), 1.0)

    def step(self, state, active):
        before = copy(state) if self.measure else None
        flat = state[:, 0]
        for direction in self.directions[FALLING:]:
            update_effects(self.tiles, direction, flat, active, self.effects)
        for direction in self.directions:
            sweep(self.tiles, direction, flat, active, self.mode, self.q[direction], self.effects)
        return message_changes(self.tiles, before[:, 0], flat, active) if self.measure else None

    def step_vjp(self, adjoint, before, after, active, d_state):
        before, after, d_state = before[:, 0], after[:, 0], d_state[:, 0]
        effects, d_effect = adjoint.effects, adjoint.d_effect
        if effects is not None:
            d_effect.fill(0.0)
            for direction in (ROWS, COLUMNS, FALLING):
                update_effects(self.tiles, direction, after, active, effects)
        for direction in reversed(self.directions):
            sweep_vjp(self.tiles, direction, before, after, active, self.mode, d_state, adjoint, effects)
            if direction > COLUMNS:
                update_effects(self.tiles, direction, before, active, effects)
            if effects is not None and direction > ROWS:
                d_effect += adjoint.d_q_by_columns[direction]
                effects_vjp(self.tiles, direction - 1, active, d_effect, d_state, adjoint.rotated)
        if effects is not None:  # the sweeps of earlier directions saw messages of the iteration before
            d_effect.fill(0.0)
            for direction in self.directions[1:]:
                d_effect += adjoint.d_q_by_columns[direction - 1]
                effects_vjp(self.tiles, direction, active, d_effect, d_state, adjoint.rotated)

    def compressed(self, state):
        return np.clip(state, _SMALLEST, _LARGEST).astype(np.float32)

    def messages(self, state):
        messages = np.ones((2 * self.tiles.edge_ptr[-1], self.tiles.n_labels))
        copy_messages(self.tiles, messages, state[:, 0], True)
        with np.errstate(divide="ignore"):
            return np.log(messages, out=messages)

    def messages_vjp(self, d_messages):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        copy_messages(self.tiles, d_messages, d_state[:, 0], False)
        return d_state

    def marginals(self, state):
        mu = np.empty_like(self.theta.unary)  # no scratch memory: the caller keeps it
        marginals(self.tiles, state[:, 0], self.q[COLUMNS], self.effects, mu)
        return mu

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        marginals_vjp(self.tiles, mu, d_mu, adjoint.d_unary[COLUMNS])
        every = np.ones(self.graph.n_examples, dtype=bool)
        for direction in self.directions:
            effects_vjp(
                self.tiles, direction, every, adjoint.d_unary[COLUMNS], d_state[:, 0], adjoint.rotated
            )
        return d_state

    def new_adjoint(self):
        sizes = self.tiles.start[-1]
        has_diagonals = len(self.directions) > 2
        return _Adjoint(
            tuple(full(size, 0.0) for size in sizes),
            tuple(full(part.shape, 0.0) for part in self.tiles.tables),
            *self._new_scratch(),
            empty(sizes.max()),
            tuple(full(sizes[COLUMNS], 0.0) if has_diagonals else None for _ in self.directions),
            full(sizes[COLUMNS], 0.0) if has_diagonals else None,
            full(sizes[COLUMNS], 0.0) if has_diagonals else None,
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
        q, effects = self._new_scratch()  # its own, so that threads may ask about the same beliefs
        every = np.ones(self.graph.n_examples, dtype=bool)
        if effects is not None:
            for direction in self.directions:
                update_effects(self.tiles, direction, state[:, 0], every, effects)
        for direction in self.directions:
            expected_tables(self.tiles, direction, state[:, 0], q[direction], effects, inside[direction])
        # Marginals are not divided by the weights.
        ones = tuple(np.ones_like(rho) for rho in self.tiles.lane_rho)
        unweighted = self.tiles._replace(rho=np.ones_like(self.tiles.rho), lane_rho=ones)
        return self._unpack_tables(unweighted, inside)


# Which examples are lattices that the engines support. These functions run in every evaluation. The kernels
# take single arrays and fill arrays of their caller, since both make them compile faster.


def lattice_options(graph):
    """Find the lattices with edges, and the options that follow from their structure.

    Tables must be one per direction, or one per edge. Returns whether each example is such a lattice, and
    Options of arrays.
    """
    height, width = graph.shapes.T
    n_edges, straight = np.diff(graph.edge_ptr), height * (width - 1) + width * (height - 1)
    has_diagonals = n_edges > straight
    is_lattice = (
        (height > 0) & (n_edges > 0) & (n_edges == straight + has_diagonals * 2 * (height - 1) * (width - 1))
    )
    tied, own_tables = is_lattice.copy(), is_lattice & (np.diff(graph.table_ptr) == n_edges)
    _compare_tables(graph.edge_ptr, _ends(graph, 4), graph.table_ptr, graph.edge_table, tied, own_tables)
    return is_lattice & (tied | own_tables), Options(~tied, has_diagonals)


def _ends(graph, n_directions):
    """Find where the edges of each direction end: (n_examples, n_directions)."""
    height, width = graph.shapes.T
    sizes = [height * (width - 1), width * (height - 1), *2 * [(height - 1) * (width - 1)]][:n_directions]
    ends = graph.edge_ptr[:-1, None] + np.cumsum(np.stack(sizes, axis=1), axis=1)
    return np.minimum(ends, graph.edge_ptr[1:, None])  # not all lattices have diagonals


def first_edges(graph, n_directions):
    """Find the first edge of each example and direction, -1 if none: (n_examples, n_directions)."""
    ends = _ends(graph, n_directions)
    starts = np.concatenate([graph.edge_ptr[:-1, None], ends[:, :-1]], axis=1)
    return np.where(ends > starts, starts, -1)


def values_at(edges, values, default):
    """Look up the values of edges; `default` for edge -1."""
    return np.where(edges >= 0, values[edges], default)


def weights_by_line(graph, rho, is_lattice):
    """Summarise the edge weights of each lattice.

    Returns whether rows and columns have one weight each and so does each diagonal direction, whether rows or
    columns differ, and the smallest weight.
    """
    alike, differ, smallest = is_lattice.copy(), np.zeros_like(is_lattice), np.ones(len(is_lattice))
    _compare_weights(graph.edge_ptr, _ends(graph, 4), graph.shapes, rho, alike, differ, smallest)
    return alike, differ, smallest


@kernel
def _compare_tables(edge_ptr, ends, table_ptr, edge_table, tied, own):
    """Clear `tied` where edges of a direction differ in their table, `own` where tables are not by edge."""
    for example in range(len(own)):
        start, n_other, n_foreign = edge_ptr[example], 0, 0
        if tied[example] or own[example]:
            for end in ends[example]:
                tables = edge_table[start:end]
                shift = start + table_ptr[example] - edge_ptr[example]
                for i in range(len(tables)):
                    n_other += tables[i] != tables[0]
                    n_foreign += tables[i] != i + shift
                start = end
        tied[example] &= n_other == 0
        own[example] &= n_foreign == 0


@kernel
def _compare_weights(edge_ptr, ends, shapes, rho, alike, differ, smallest):
    """Compute `weights_by_line` of the examples in `alike`."""
    for example in range(len(alike)):
        start, width, n_other = edge_ptr[example], shapes[example, 1], 0
        for direction in range(ends.shape[1] if alike[example] else 0):
            # In memory, a line along a row is consecutive, and one along a column has one edge per row.
            size = width if direction == COLUMNS else width - 1
            first = rho[start : min(start + size, ends[example, direction])]
            while start < ends[example, direction]:
                weights = rho[start : start + size]
                if direction == COLUMNS:
                    for i in range(len(weights)):
                        n_other += weights[i] != first[i]
                else:
                    line = weights if direction == ROWS else first
                    for i in range(len(weights)):
                        n_other += weights[i] != line[0]
                if direction == ROWS:
                    differ[example] |= weights[0] != first[0]
                    smallest[example] = min(smallest[example], weights[0])
                start += size
            for i in range(len(first)):
                if direction == COLUMNS:
                    differ[example] |= first[i] != first[0]
                smallest[example] = min(smallest[example], first[i])
        alike[example] &= n_other == 0


def finite_ranges(rows, ptr):
    """Find the largest range of finite numbers in a row of each part, and whether any is not finite."""
    ranges, forbidden = np.zeros(len(ptr) - 1), np.zeros(len(ptr) - 1, dtype=bool)
    _finite_ranges(rows, ptr, ranges, forbidden)
    return ranges, forbidden


@kernel
def _finite_ranges(rows, ptr, ranges, forbidden):
    """Compute `finite_ranges`."""
    for part in range(len(ranges)):
        for i in range(ptr[part], ptr[part + 1]):
            low, high = np.inf, -np.inf
            for x in range(rows.shape[1]):
                value = rows[i, x]
                if value > -np.inf:
                    low, high = min(low, value), max(high, value)
                else:
                    forbidden[part] = True
            ranges[part] = max(ranges[part], high - low)
