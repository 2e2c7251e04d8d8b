"""Mixed-product messages on lattices of four or eight neighbours, where some nodes are maximised.

A message between maximised nodes is a maximum. All others are sums; those from a maximised node to one that
is summed out run over its best states only.
"""

import numpy as np

from skcrf._numerics import copy, full, kernel, vector_kernel
from skcrf.inference._lattice.effects import update_effect, update_effects
from skcrf.inference._lattice.engine import LatticeEngine
from skcrf.inference._lattice.layout import (
    FALLING,
    RISING,
    ROWS,
    Weights,
    array_of,
    dimensions,
    messages_of,
    seam_line,
    set_seam,
    slope_of,
    table_at,
    tables_of,
    weights_of,
)
from skcrf.inference._lattice.message import Site, cavities
from skcrf.inference._lattice.readout import compute_q, message_changes
from skcrf.inference._pairwise.readout import choose_states
from skcrf.inference._pairwise.schedule import breadth_first, edge_links


class MixedLatticeEngine(LatticeEngine):
    """Mixed-product messages on lattices; ``plan.maximise`` is an array."""

    takes_potts = False

    def __init__(self, plan, theta, options):
        super().__init__(plan._replace(maximise=True, dtype=np.float64), theta, options)
        self.chosen = plan.maximise
        self.maximised = tuple(full(size // theta.unary.shape[1], 0.0) for size in self.tiles.start[-1])
        for direction in self.directions:
            _pack_flags(self.tiles, direction, self.chosen, self.maximised[direction])

    def step(self, state, active):
        before = copy(state) if self.measure else None
        flat = state[:, 0]
        for direction in self.directions[FALLING:]:
            update_effects(self.tiles, direction, flat, active, self.effects, self.scratch)
        for direction in self.directions:
            flags, q = self.maximised[direction], self.q[direction]
            _sweep(self.tiles, direction, flat, active, flags, q, self.effects, self.scratch)
        return message_changes(self.tiles, before[:, 0], flat, active) if self.measure else None

    def decode(self, state):
        """Choose the states of the maximised nodes, -1 at the others."""
        order, _ = breadth_first(edge_links(self.graph))
        return choose_states(self.graph, self.theta, self.weighted_messages(state), order[self.chosen[order]])


@kernel
def _flags_of(tiles, flat, example, direction):
    """View an array of one number per site of an example: (tile, position, lane)."""
    height, width = tiles.shapes[example]
    n_tiles, positions, _, lanes = dimensions(height, width, direction, tiles.n_values, tiles.lanes)
    start = tiles.start[example, direction] // tiles.n_values
    return flat[start : start + n_tiles * positions * lanes].reshape((n_tiles, positions, lanes))


@kernel
def _pack_flags(tiles, direction, flags, out):
    """Copy one flag per node to the lines of a direction."""
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        inside = _flags_of(tiles, out, example, direction)
        lanes = inside.shape[2]
        for row in range(height):
            for column in range(width):
                line, p = row, column
                if direction != ROWS:
                    line, p = (column - slope_of(direction) * row) % width, row
                node = tiles.node_ptr[example] + row * width + column
                inside[line // lanes, p, line % lanes] = flags[node]


@vector_kernel
def _mixed_cavities(site, rho, is_source, is_target, best, out):
    """Compute the cavities of sites at one position, of the best states only where these are summed."""
    cavities(site, rho, out)
    n_labels, lanes = out.shape
    for lane in range(lanes):
        best[lane] = 0.0
    for x in range(n_labels):
        for lane in range(lanes):
            best[lane] = max(best[lane], out[x, lane] * site.b[x, lane])
    for lane in range(lanes):
        best[lane] = best[lane] if is_source[lane] > is_target[lane] else 0.0
    for x in range(n_labels):
        for lane in range(lanes):
            out[x, lane] = out[x, lane] if out[x, lane] * site.b[x, lane] >= best[lane] else 0.0


@vector_kernel
def _eliminate(table, source, both, total, largest, out):
    """Compute the messages of one target state, maxima where `both` ends are maximised."""
    lanes = source.shape[1]
    for lane in range(lanes):
        total[lane] = 0.0
        largest[lane] = 0.0
    for z in range(len(source)):
        if table.ndim == 1:
            entry = table[z]
            for lane in range(lanes):
                value = entry * source[z, lane]
                total[lane] += value
                largest[lane] = max(largest[lane], value)
        else:
            for lane in range(lanes):
                value = table[z, lane] * source[z, lane]
                total[lane] += value
                largest[lane] = max(largest[lane], value)
    for lane in range(lanes):
        out[lane] = largest[lane] if both[lane] > 0 else total[lane]


@vector_kernel
def _normalise(total, out):
    for lane in range(len(total)):
        total[lane] = 0.0
    for x in range(len(out)):
        for lane in range(len(total)):
            total[lane] += out[x, lane]
    for lane in range(len(total)):
        total[lane] = 1.0 / total[lane]
    for x in range(len(out)):
        for lane in range(len(total)):
            out[x, lane] *= total[lane]


@vector_kernel
def _multiply(one, other, out):
    for lane in range(len(out)):
        out[lane] = one[lane] * other[lane]


@kernel
def _sweep_lines(q, f, b, tables, rho, flags, slope, width):
    """Send messages along all lines to the end, then back."""
    n_tiles, positions, n_labels, lanes = q.shape
    source, rows = np.empty((n_labels, lanes)), np.empty((4, lanes))
    both = rows[0]
    for i in range(2 * n_tiles):
        t, to_end = i // 2, i % 2 == 0
        sent, own = (f, b) if to_end else (b, f)
        rho_t = Weights(rho.common, rho.by_lane[t * lanes : (t + 1) * lanes])
        for n in range(positions - 1):
            gap = n if to_end else positions - 2 - n
            at, to = (gap, gap + 1) if to_end else (gap + 1, gap)
            table, out = table_at(tables, t, gap, to_end), sent[t, to]
            _multiply(flags[t, at], flags[t, to], both)
            site = Site(q[t, at], sent[t, at], own[t, at])
            _mixed_cavities(site, rho_t, flags[t, at], flags[t, to], rows[1], source)
            for x in range(n_labels):
                # The tables of single edges are not transposed: the first of their labels is that of `gap`.
                entries = table[:, x] if to_end and tables.ndim > 3 else table[x]
                _eliminate(entries, source, both, rows[2], rows[3], out[x])
            _normalise(rows[1], out)
            if slope != 0:
                set_seam(out, t * lanes, seam_line(slope, width, gap), 1.0)


@kernel
def _sweep(tiles, direction, state, active, maximised, q, effects, scratch):
    """Sweep one direction of the active examples, then recompute its joint effect."""
    for example in range(len(active)):
        if active[example]:
            q_lines = array_of(tiles, q, example, direction)
            compute_q(tiles, direction, state, example, effects, q_lines, scratch)
            f, b = messages_of(tiles, state, example, direction)
            tables = tables_of(tiles, tiles.tables[direction], example, direction)
            flags = _flags_of(tiles, maximised, example, direction)
            rho, width = weights_of(tiles, example, direction), tiles.shapes[example, 1]
            _sweep_lines(q_lines, f, b, tables, rho, flags, slope_of(direction), width)
            if effects is not None and direction < RISING:
                update_effect(tiles, direction, state, example, effects, scratch)
