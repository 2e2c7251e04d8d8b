"""Message passing on lattices of four or eight neighbours, in tiles: the engine."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf._scratch import copy, empty, full
from skcrf.graph import Potentials
from skcrf.inference._lattice.borders import (
    enter_tables,
    enter_unary,
    enter_weights,
    leave_tables,
    leave_unary,
    move_messages,
    spread_unary,
)
from skcrf.inference._lattice.classify import (
    Kind,
    at_edges,
    first_edges,
    lattice_kinds,
    ranges,
    weights_by_line,
)
from skcrf.inference._lattice.cross import hear, listen, tell
from skcrf.inference._lattice.layout import (
    Tiles,
    array_of,
    dimensions,
    messages_of,
    n_lines,
    rho_of,
    rho_of_tile,
)
from skcrf.inference._lattice.message import exponentials, joint
from skcrf.inference._lattice.readout import expect_tables
from skcrf.inference._lattice.sweep import hear_all, sweeps, sweeps_vjp
from skcrf.inference._pairwise.readout import EdgeReader

# The range of logarithms that exponentials of doubles can hold after scaling, with room to spare.
_RANGE = 600.0


@kernel
def _marginals(tiles, state, q1, parts, mu):
    """Marginals of the nodes; `q1` and `parts` are scratch."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        q = array_of(tiles, q1, example, 1)
        if parts is not None:
            for layout in (0, 2, 3):
                hear(tiles, layout, state, example, parts)
        listen(tiles, 1, state, example, parts, q)
        f1, b1 = messages_of(tiles, state, example, 1)
        lanes, rho = q.shape[3], rho_of(tiles, example, 1)
        belief = np.empty((height, n_rows * lanes))
        for s in range(q.shape[0]):
            f, b = f1[s].reshape(height, -1), b1[s].reshape(height, -1)
            joint(f, b, rho_of_tile(rho, s, lanes, n_rows), q[s].reshape(height, -1), 0, belief)
            for row in range(height):
                for lane in range(min(lanes, width - s * lanes)):
                    node = tiles.node_ptr[example] + row * width + s * lanes + lane
                    total = 1.0 if n_rows < n_labels else 0.0
                    mu[node, 0] = 1.0
                    for x in range(n_rows):
                        value = belief[row, x * lanes + lane]
                        mu[node, n_labels - n_rows + x] = value
                        total += value
                    for x in range(n_labels):
                        mu[node, x] /= total


@kernel
def _marginals_vjp(tiles, mu, d_mu, d_unary1):
    """The adjoint of the logarithm of what marginals are made of, in layout 1."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        d_q = array_of(tiles, d_unary1, example, 1)
        lanes = d_q.shape[3]
        for node in range(height * width):
            row, column, at = node // width, node % width, tiles.node_ptr[example] + node
            mean = 0.0
            for x in range(n_labels):
                mean += mu[at, x] * d_mu[at, x]
            for x in range(n_rows):
                i = n_labels - n_rows + x
                d_q[column // lanes, row, x, column % lanes] = mu[at, i] * (d_mu[at, i] - mean)


@kernel
def _changes(tiles, before, after, active):
    """Largest change of a message, relative to itself and scaled to a maximum of 1, by active example."""
    changes = np.zeros(len(active))
    for example in range(len(active)):
        if active[example]:
            for layout in range(tiles.rho.shape[1]):
                f_old, b_old = messages_of(tiles, before, example, layout)
                f, b = messages_of(tiles, after, example, layout)
                lines = n_lines(tiles, example, layout)
                changes[example] = max(changes[example], _change(f_old, f, lines), _change(b_old, b, lines))
    return changes


@kernel
def _change(old, new, lines):
    largest = 0.0
    n_tiles, positions, n_rows, lanes = old.shape
    for t in range(n_tiles):
        for p in range(positions):
            # Lanes without a line change too, and nobody waits for them.
            for lane in range(min(lanes, lines - t * lanes)):
                top_old, top_new = 1.0, 1.0
                if n_rows > 1:
                    top_old, top_new = 0.0, 0.0
                for x in range(n_rows):
                    top_old = max(top_old, old[t, p, x, lane])
                    top_new = max(top_new, new[t, p, x, lane])
                if n_rows == 1:  # the first label, of which there is no number
                    largest = max(largest, abs(top_old - top_new) / max(top_old, top_new))
                for x in range(n_rows):
                    a, b = old[t, p, x, lane] * top_new, new[t, p, x, lane] * top_old
                    if a != b:
                        largest = max(largest, abs(a - b) / max(a, b))
    return largest


class _Adjoint(NamedTuple):
    """The adjoint of the potentials, and memory that no other thread uses which differentiates these beliefs.

    The last three are for diagonals: the adjoint of q of each layout in layout 1, their sum, and that moved.
    Where lanes have no line, they stay 0.
    """

    d_unary: tuple
    d_tables: tuple
    scratch: tuple
    parts: tuple | None
    d_q: np.ndarray
    d_b_before: np.ndarray
    d_parts: tuple
    told: np.ndarray | None
    moved: np.ndarray | None


class LatticeEngine(EdgeReader):
    """Messages on lattices of four or eight neighbours, undamped and with one weight a line.

    Parameters
    ----------
    plan : Plan
        How to pass messages.
    theta : Potentials
        Potentials.
    options : int
        The number of the `Kind` of all these lattices.
    """

    is_plain = False

    @classmethod
    def options(cls, plan, theta):
        """Tell how each example can be done in tiles: the number of its `Kind`, or 0 for not at all.

        A message's range is at most that of its table divided by rho, and that of a message raised to rho at
        most that of its table. So the range of any product is bounded by what stands here, unless a pair is
        forbidden.
        """
        graph = plan.graph
        kinds = lattice_kinds(graph)
        if plan.damping > 0 or theta.unary.shape[1] < 2 or not kinds.any():
            return np.zeros_like(kinds)
        alike, by_line, rho = weights_by_line(graph, plan.rho, kinds)
        of_nodes, forbidden = ranges(theta.unary, graph.node_ptr)
        of_tables, impossible = ranges(theta.tables.reshape(len(theta.tables), -1), graph.table_ptr)
        diagonals = Kind.numbers(False, True) <= kinds
        # Four neighbours more are four more messages, raised to rho.
        fits = of_nodes + (5 / rho + 4 * diagonals) * of_tables <= _RANGE  # False where it is nan
        kinds[impossible | ~fits | ~alike] = 0
        two = theta.unary.shape[1] == 2
        kinds[kinds > 0] += (Kind.numbers(0, 0, forbidden & two, by_line) - 1)[kinds > 0]
        return kinds

    def __init__(self, plan, theta, options):
        super().__init__(plan, theta, options)
        graph, n_labels, kind, maximise = plan.graph, theta.unary.shape[1], Kind.of(options), plan.maximise
        self.layouts = range(4 if kind.diagonals else 2)
        n_rows = 1 if n_labels == 2 and not kind.forbidden and not maximise else n_labels
        self.maximise = None if n_rows < n_labels else maximise
        shapes = [[dimensions(*shape, layout, n_rows) for layout in self.layouts] for shape in graph.shapes]
        n_tiles, positions, _, lanes = np.moveaxis(np.array(shapes).reshape(-1, len(self.layouts), 4), 2, 0)
        gaps = positions - 1 if kind.untied else np.minimum(positions - 1, 1)
        start, lane_start, table_start = (
            np.concatenate([np.zeros((1, len(self.layouts)), np.int64), np.cumsum(sizes, axis=0)])
            for sizes in (
                n_tiles * positions * n_rows * lanes,
                n_tiles * lanes,
                n_tiles * gaps * lanes * n_labels**2,
            )
        )
        first = first_edges(graph, len(self.layouts))
        rho = at_edges(plan.rho, first, 1.0)
        unary = full(start[-1, 0], 1.0), full(start[-1, 1], 0.0)
        weights = tuple(np.repeat(rho[:, d], np.diff(lane_start[:, d])) for d in self.layouts)
        tiles = Tiles(
            graph.shapes, np.array([n_labels, n_rows]), graph.node_ptr, graph.edge_ptr, start, lane_start,
            table_start, rho, weights, unary, unary,
        )  # fmt: skip
        if kind.by_line:
            rho[:, :2] = np.nan
            for layout in (0, 1):
                enter_weights(tiles, layout, plan.rho, weights[layout])
        self.by_lane = kind.untied or kind.by_line
        self.table_of = at_edges(graph.edge_table, first, -1)
        self.shared = np.full_like(self.table_of.T, -1) if kind.untied else self.table_of.T.copy()
        self.tiles = tiles._replace(tables=self._enter_tables(tiles, theta.tables))
        enter_unary(self.tiles, theta.unary, unary[1])
        exponentials(unary[1])
        spread_unary(self.tiles, unary[1], unary[0])
        self.scratch, self.parts = self._scratch()
        self.row_ptr = 2 * start.sum(axis=1)

    def _scratch(self):
        # Lanes without a line stay 1 in it for ever, so that nothing there is impossible.
        rows, columns = self.tiles.start[-1, :2]
        parts = tuple(full(columns, 1.0) for _ in range(6)) if len(self.layouts) > 2 else None
        upright = full(columns, 1.0)
        return (full(rows, 1.0), *(upright for _ in self.layouts[1:])), parts

    def _enter_tables(self, tiles, tables):
        inside = []
        for layout in self.layouts:
            if self.by_lane:
                inside.append(full(tiles.table_start[-1, layout], 0.0))
                enter_tables(tiles, self.shared[layout], tables, layout, inside[layout])
                exponentials(inside[layout])
            else:
                chosen = tables[self.table_of[:, layout]]
                chosen = np.exp(
                    (chosen - chosen.max(axis=(1, 2), keepdims=True)) / tiles.rho[:, layout, None, None]
                )
                inside.append(np.ascontiguousarray(np.stack([chosen, chosen.transpose(0, 2, 1)], axis=1)))
        return tuple(inside)

    def initial_state(self):
        return full((self.row_ptr[-1], 1), 1.0)

    def step(self, state, active):
        before = copy(state) if self.measure else None
        flat = state[:, 0]
        for layout in self.layouts[2:]:
            hear_all(self.tiles, layout, flat, active, self.parts)
        for layout in self.layouts:  # right and left, down and up, then the diagonals
            sweeps(self.tiles, layout, flat, active, self.maximise, self.scratch[layout], self.parts)
        return _changes(self.tiles, before[:, 0], flat, active) if self.measure else None

    def step_vjp(self, adjoint, before, after, active, d_state):
        before, after, d_state = before[:, 0], after[:, 0], d_state[:, 0]
        parts, d_parts, told = adjoint.parts, adjoint.d_parts, adjoint.told
        if parts is not None:
            told.fill(0.0)
            for layout in (0, 1, 2):
                hear_all(self.tiles, layout, after, active, parts)
        for layout in reversed(self.layouts):
            adjoint.d_q.fill(0.0)
            adjoint.d_b_before.fill(0.0)
            sweeps_vjp(self.tiles, layout, before, after, active, self.maximise, d_state, adjoint, parts)
            if layout > 1:
                hear_all(self.tiles, layout, before, active, parts)
            if parts is not None and layout > 0:
                told += d_parts[layout]
                tell(self.tiles, layout - 1, active, told, d_state, adjoint.moved)
        if parts is not None:  # and what those behind it had said an iteration ago
            told.fill(0.0)
            for layout in self.layouts[1:]:
                told += d_parts[layout - 1]
                tell(self.tiles, layout, active, told, d_state, adjoint.moved)

    def compressed(self, state):
        # Beyond these a message is as good as certain, and single precision ends.
        return np.clip(state, 1e-37, 1e37).astype(np.float32)

    def messages(self, state):
        messages = np.ones((2 * self.tiles.edge_ptr[-1], self.tiles.sizes[0]))
        move_messages(self.tiles, messages, state[:, 0], True)
        with np.errstate(divide="ignore"):
            return np.log(messages, out=messages)

    def enter(self, d_messages):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        move_messages(self.tiles, d_messages, d_state[:, 0], False)
        return d_state

    def marginals(self, state):
        mu = np.empty_like(self.theta.unary)  # goes to whoever asked
        _marginals(self.tiles, state[:, 0], self.scratch[1], self.parts, mu)
        return mu

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        _marginals_vjp(self.tiles, mu, d_mu, adjoint.d_unary[1])
        every = np.ones(len(self.row_ptr) - 1, dtype=bool)
        for layout in self.layouts:
            tell(self.tiles, layout, every, adjoint.d_unary[1], d_state[:, 0], adjoint.moved)
        return d_state

    def new_adjoint(self):
        sizes = self.tiles.start[-1]
        diagonals = len(self.layouts) > 2
        return _Adjoint(
            tuple(full(size, 0.0) for size in sizes),
            tuple(full(part.shape, 0.0) for part in self.tiles.tables),
            *self._scratch(),
            empty(sizes.max()),
            empty(sizes.max()),
            tuple(full(sizes[1], 0.0) if diagonals else None for _ in self.layouts),
            full(sizes[1], 0.0) if diagonals else None,
            full(sizes[1], 0.0) if diagonals else None,
        )

    def to_potentials(self, adjoint):
        d_unary = full(self.theta.unary.shape, 0.0)
        leave_unary(self.tiles, adjoint.d_unary, d_unary)
        return Potentials(d_unary, self._leave_tables(self.tiles, adjoint.d_tables))

    def _leave_tables(self, tiles, inside):
        """Bring tables from the tiles to the graph's, each divided by the weight of its edges."""
        tables = full(self.theta.tables.shape, 0.0)
        for layout, d_inside in zip(self.layouts, inside, strict=True):
            if self.by_lane:
                leave_tables(tiles, self.shared[layout], d_inside, layout, tables)
            else:
                d_tables = d_inside[:, 0] + d_inside[:, 1].transpose(0, 2, 1)
                has = self.table_of[:, layout] >= 0
                tables[self.table_of[has, layout]] += d_tables[has] / tiles.rho[has, layout, None, None]
        return tables

    def expected_tables(self, state):
        inside = tuple(full(part.shape, 0.0) for part in self.tiles.tables)
        scratch, parts = self._scratch()  # its own, so that threads may ask about the same beliefs
        every = np.ones(len(self.row_ptr) - 1, dtype=bool)
        if parts is not None:
            for layout in self.layouts:
                hear_all(self.tiles, layout, state[:, 0], every, parts)
        for layout in self.layouts:
            expect_tables(self.tiles, layout, state[:, 0], scratch[layout], parts, inside[layout])
        even = tuple(np.ones_like(weights) for weights in self.tiles.weights)
        return self._leave_tables(self.tiles._replace(rho=np.ones_like(self.tiles.rho), weights=even), inside)
