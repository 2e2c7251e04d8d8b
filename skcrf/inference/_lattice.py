"""Message passing on lattices of four neighbours, in tiles: who can be done so, and the engine."""

import numpy as np

from skcrf._memory import copy, empty, full
from skcrf._numerics import kernel
from skcrf.graph import Potentials
from skcrf.inference._borders import (
    enter_tables,
    enter_unary,
    leave_tables,
    leave_unary,
    move_messages,
    swap,
)
from skcrf.inference._lanes import add_scaled, exponentials, joint
from skcrf.inference._pairs import expect_tables
from skcrf.inference._tiles import (
    Tiles,
    array_of,
    cross,
    cross_vjp,
    dimensions,
    messages_of,
    sweeps,
    sweeps_vjp,
)

# The range of logarithms that exponentials of doubles can hold after scaling, with room to spare.
_RANGE = 600.0


@kernel
def _ranges(rows, ptr):
    """Largest difference between the finite numbers of a row of each part, and whether any is not finite."""
    ranges, forbidden = np.zeros(len(ptr) - 1), np.zeros(len(ptr) - 1, dtype=np.bool_)
    for part in range(len(ranges)):
        for i in range(ptr[part], ptr[part + 1]):
            low, high = np.inf, -np.inf
            for x in range(rows.shape[1]):
                if rows[i, x] > -np.inf:
                    low, high = min(low, rows[i, x]), max(high, rows[i, x])
                else:
                    forbidden[part] = True
            ranges[part] = max(ranges[part], high - low)
    return ranges, forbidden


@kernel
def _marginals(tiles, state, q1, mu):
    """Marginals of the nodes; `q1` is scratch."""
    n_labels, n_rows = tiles.sizes
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        f0, b0 = messages_of(tiles, state, example, 0)
        f1, b1 = messages_of(tiles, state, example, 1)
        q = array_of(tiles, q1, example, 1)
        cross(f0, b0, tiles.rho[example, 0], array_of(tiles, tiles.unary[0], example, 0), q)
        lanes = q.shape[3]
        belief = np.empty((height, n_rows * lanes))
        for s in range(q.shape[0]):
            f, b = f1[s].reshape(height, -1), b1[s].reshape(height, -1)
            joint(f, b, tiles.rho[example, 1], q[s].reshape(height, -1), 0, belief)
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
def _marginals_vjp(tiles, mu, d_mu, d_state, d_unary1):
    """Adjoints of messages and of theta in layout 1; adds to both."""
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
        d_f0, d_b0 = messages_of(tiles, d_state, example, 0)
        d_f1, d_b1 = messages_of(tiles, d_state, example, 1)
        cross_vjp(d_q, tiles.rho[example, 0], d_f0, d_b0)
        add_scaled(tiles.rho[example, 1], d_q.reshape(-1), d_f1.reshape(-1))
        add_scaled(tiles.rho[example, 1], d_q.reshape(-1), d_b1.reshape(-1))


@kernel
def _changes(tiles, before, after, active):
    """Largest change of a message, scaled to a maximum of 1, in each active example."""
    changes = np.zeros(len(active))
    for example in range(len(active)):
        if active[example]:
            for layout in range(2):
                f_old, b_old = messages_of(tiles, before, example, layout)
                f, b = messages_of(tiles, after, example, layout)
                n_lines = tiles.shapes[example, layout]
                changes[example] = max(
                    changes[example], _change(f_old, f, n_lines), _change(b_old, b, n_lines)
                )
    return changes


@kernel
def _change(old, new, n_lines):
    largest = 0.0
    n_tiles, positions, n_rows, lanes = old.shape
    for t in range(n_tiles):
        for p in range(positions):
            # Lanes without a line change too, and nobody waits for them.
            for lane in range(min(lanes, n_lines - t * lanes)):
                top_old, top_new = 1.0, 1.0
                if n_rows > 1:
                    top_old, top_new = 0.0, 0.0
                for x in range(n_rows):
                    top_old = max(top_old, old[t, p, x, lane])
                    top_new = max(top_new, new[t, p, x, lane])
                if n_rows == 1:  # the first label, of which there is no number
                    largest = max(largest, abs(1.0 / top_old - 1.0 / top_new))
                for x in range(n_rows):
                    change = abs(old[t, p, x, lane] / top_old - new[t, p, x, lane] / top_new)
                    largest = max(largest, change)
    return largest


class LatticeEngine:
    """Messages on lattices of four neighbours, undamped and with one weight a direction.

    Parameters
    ----------
    plan : Plan
        How to pass messages.
    theta : Potentials
        Potentials.
    maximise : bool
        Whether messages maximise instead of summing.
    kind : int
        What `kinds` says of all these lattices.
    """

    @staticmethod
    def kinds(plan, theta):
        """Tell how each example can be done in tiles: 0 for not at all, 1 if tables are shared, 2 if not.

        3 and 4 are the same for two labels that are not a ratio, since one of them is forbidden somewhere.
        A message's range is at most that of its table divided by rho. So the range of any product is bounded
        by what stands here, unless a pair is forbidden.
        """
        graph = plan.graph
        kinds = lattice_kinds(graph)
        if plan.damping > 0 or theta.unary.shape[1] < 2 or not kinds.any():
            return np.zeros_like(kinds)
        kinds[~one_value_a_direction(graph, plan.rho)] = 0
        rho = at_edges(plan.rho, first_edges(graph), 1.0).min(axis=1)
        of_nodes, forbidden = _ranges(theta.unary, graph.node_ptr)
        of_tables, impossible = _ranges(theta.tables.reshape(len(theta.tables), -1), graph.table_ptr)
        fits = of_nodes + 5 * of_tables / rho <= _RANGE  # False where it is nan
        kinds[impossible | ~fits] = 0
        if theta.unary.shape[1] == 2:
            kinds[(kinds > 0) & forbidden] += 2
        return kinds

    def __init__(self, plan, theta, maximise, kind):
        graph, n_labels = plan.graph, theta.unary.shape[1]
        self.theta, self.edge_ptr, self.measure = theta, graph.edge_ptr, plan.tol > 0
        n_rows = 1 if n_labels == 2 and kind < 3 and not maximise else n_labels
        self.maximise = None if n_rows < n_labels else maximise
        sizes = np.array([n_labels, n_rows])
        shapes = [[dimensions(*shape, layout, n_rows) for layout in (0, 1)] for shape in graph.shapes]
        shapes = np.array(shapes).reshape(-1, 2, 4)
        start = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(shapes.prod(axis=2), axis=0)])
        self.first_edges = first_edges(graph)
        rho = at_edges(plan.rho, self.first_edges, 1.0)
        self.untied = kind % 2 == 0
        gaps = shapes[:, :, 0] * (shapes[:, :, 1] - 1) * shapes[:, :, 3] * n_labels**2
        table_start = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(gaps, axis=0)])
        unary = full(start[-1, 0], 1.0), full(start[-1, 1], 0.0)
        tiles = Tiles(graph.shapes, sizes, graph.node_ptr, start, table_start, rho, unary, unary)
        self.tiles = tiles._replace(tables=self._enter_tables(tiles, graph, theta.tables))
        enter_unary(self.tiles, theta.unary, unary[1])
        exponentials(unary[1])
        swap(self.tiles, unary[1], unary[0])
        self.scratch = self._scratch()
        self.row_ptr = 2 * start.sum(axis=1)

    def _scratch(self):
        # Lanes without a line stay 1 in it for ever, so that nothing there is impossible.
        return tuple(full(size, 1.0) for size in self.tiles.start[-1])

    def _enter_tables(self, tiles, graph, tables):
        if self.untied:
            inside = tuple(full(size, 0.0) for size in tiles.table_start[-1])
            for layout in (0, 1):
                enter_tables(tiles, self.edge_ptr, tables, layout, inside[layout])
                exponentials(inside[layout])
            return inside
        self.table_of = at_edges(graph.edge_table, self.first_edges, -1)
        inside = []
        for layout in (0, 1):
            chosen = tables[self.table_of[:, layout]]
            chosen = np.exp(
                (chosen - chosen.max(axis=(1, 2), keepdims=True)) / tiles.rho[:, layout, None, None]
            )
            inside.append(np.ascontiguousarray(np.stack([chosen, chosen.transpose(0, 2, 1)], axis=1)))
        return tuple(inside)

    def start(self):
        return full((self.row_ptr[-1], 1), 1.0)

    def step(self, state, active):
        before = copy(state) if self.measure else None
        for layout in (0, 1):  # right and left, then down and up
            sweeps(self.tiles, layout, state[:, 0], active, self.maximise, self.scratch[layout])
        return _changes(self.tiles, before[:, 0], state[:, 0], active) if self.measure else None

    def step_vjp(self, adjoint, before, after, active, d_state):
        d_unary, d_tables, scratch, (d_q, d_b_before) = adjoint
        # Columns were swept last, and had seen what the rows had just said.
        for layout, seen in ((1, after), (0, before)):
            d_q.fill(0.0)
            d_b_before.fill(0.0)
            sweeps_vjp(
                self.tiles,
                layout,
                seen[:, 0],
                before[:, 0],
                after[:, 0],
                active,
                self.maximise,
                d_state[:, 0],
                d_unary[layout],
                d_tables[layout],
                scratch[layout],
                d_q,
                d_b_before,
            )

    def kept(self, state):
        # Beyond these a message is as good as certain, and single precision ends.
        return np.clip(state, 1e-37, 1e37).astype(np.float32)

    def messages(self, state):
        messages = np.ones((2 * self.edge_ptr[-1], self.tiles.sizes[0]))
        move_messages(self.tiles, self.edge_ptr, messages, state[:, 0], True)
        with np.errstate(divide="ignore"):
            return np.log(messages, out=messages)

    def enter(self, d_messages):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        move_messages(self.tiles, self.edge_ptr, d_messages, d_state[:, 0], False)
        return d_state

    def marginals(self, state):
        mu = np.empty_like(self.theta.unary)  # goes to whoever asked
        _marginals(self.tiles, state[:, 0], self.scratch[1], mu)
        return mu

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state = full((self.row_ptr[-1], 1), 0.0)
        d_unary, *_ = adjoint
        _marginals_vjp(self.tiles, mu, d_mu, d_state[:, 0], d_unary[1])
        return d_state

    def new_adjoint(self):
        d_unary = tuple(full(part.shape, 0.0) for part in self.tiles.unary)
        d_tables = tuple(full(part.shape, 0.0) for part in self.tiles.tables)
        size = max(len(part) for part in d_unary)
        # Scratch of its own, so that threads may differentiate the same beliefs.
        return d_unary, d_tables, self._scratch(), (empty(size), empty(size))

    def leave(self, adjoint):
        (d_unary0, d_unary1), d_inside, *_ = adjoint
        d_unary = full(self.theta.unary.shape, 0.0)
        leave_unary(self.tiles, d_unary0, d_unary1, d_unary)
        return Potentials(d_unary, self._leave_tables(d_inside))

    def _leave_tables(self, d_inside):
        tables = full(self.theta.tables.shape, 0.0)
        for layout in (0, 1):
            if self.untied:
                leave_tables(self.tiles, self.edge_ptr, d_inside[layout], layout, tables)
            else:
                d_tables = d_inside[layout][:, 0] + d_inside[layout][:, 1].transpose(0, 2, 1)
                has = self.table_of[:, layout] >= 0
                tables[self.table_of[has, layout]] += d_tables[has] / self.tiles.rho[has, layout, None, None]
        return tables

    def expected_tables(self, state):
        inside = tuple(full(part.shape, 0.0) for part in self.tiles.tables)
        scratch = self._scratch()  # its own, so that threads may ask about the same beliefs
        for layout in (0, 1):
            expect_tables(self.tiles, layout, state[:, 0], scratch[layout], inside[layout])
        return self._leave_tables(inside)


def lattice_kinds(graph):
    """Tell the kind of each example: 1 for a lattice of four neighbours whose directions have one table each.

    2 where each edge has its own table, 0 for everything else.
    """
    height, width = graph.shapes.T
    n_edges = np.diff(graph.edge_ptr)
    is_lattice = (n_edges > 0) & (n_edges == height * (width - 1) + width * (height - 1))
    tied, untied = one_value_a_direction(graph, graph.edge_table), _one_table_an_edge(graph)
    return is_lattice * np.where(tied, 1, 2 * untied)


def first_edges(graph):
    """The first edge of each example and direction, -1 where there is none: (n_examples, 2)."""
    height, width = graph.shapes.T
    start = graph.edge_ptr[:-1]
    first = np.stack([start, start + height * (width - 1)], axis=1)
    exists = (np.stack([width, height], axis=1) > 1) & (np.diff(graph.edge_ptr) > 0)[:, None]
    return np.where(exists, first, -1)


def at_edges(values, edges, otherwise):
    """Values at some edges, and something else at -1."""
    return np.where(edges >= 0, values[edges], otherwise)


@kernel
def one_value_a_direction(graph, values):
    """Whether all edges of a direction have one value, for each example that is a lattice."""
    alike = np.ones(len(graph.shapes), dtype=np.bool_)
    for example in range(len(alike)):
        height, width = graph.shapes[example]
        first, last = graph.edge_ptr[example], graph.edge_ptr[example + 1]
        vertical = first + height * (width - 1)
        for edge in range(first, last):
            alike[example] &= values[edge] == values[first if edge < vertical else vertical]
    return alike


@kernel
def _one_table_an_edge(graph):
    """Whether the tables of an example are those of its edges, in their order."""
    own = np.diff(graph.table_ptr) == np.diff(graph.edge_ptr)
    for example in range(len(own)):
        shift = graph.table_ptr[example] - graph.edge_ptr[example]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            own[example] &= graph.edge_table[edge] == edge + shift
    return own
