"""Marginals of lattices: of nodes, and of edges summed over those that share a table.

The marginal of the pair at positions p and p + 1 of a line is the table times both cavities, normalised; each
cavity leaves out the message from the other site.
"""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel, vector_kernel
from skcrf.inference._lattice.layout import (
    COLUMNS,
    FALLING,
    RISING,
    ROWS,
    Weights,
    array_of,
    count_lines,
    messages_of,
    repeated_weights,
    seam_line,
    set_seam,
    slope_of,
    table_at,
    tables_of,
    weights_of,
)
from skcrf.inference._lattice.message import Site, cavities, joint
from skcrf.inference._lattice.potts import add_pairs, expect_pairs
from skcrf.inference._lattice.sweep import compute_q, update_effect


@kernel
def marginals(tiles, state, q_by_columns, effects, mu):
    """Compute the node marginals; overwrites `q_by_columns` and `effects`."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        q = array_of(tiles, q_by_columns, example, COLUMNS)
        if effects is not None:
            for direction in (ROWS, FALLING, RISING):
                update_effect(tiles, direction, state, example, effects)
        compute_q(tiles, COLUMNS, state, example, effects, q)
        f, b = messages_of(tiles, state, example, COLUMNS)
        lanes, rho = q.shape[3], weights_of(tiles, example, COLUMNS)
        belief = np.empty((height, n_values * lanes))
        for s in range(q.shape[0]):
            f_s, b_s = f[s].reshape(height, -1), b[s].reshape(height, -1)
            rho_s = repeated_weights(rho, s, lanes, n_values)
            joint(f_s, b_s, rho_s, q[s].reshape(height, -1), 0, belief)
            for row in range(height):
                for lane in range(min(lanes, width - s * lanes)):
                    node = tiles.node_ptr[example] + row * width + s * lanes + lane
                    total = 1.0 if n_values < n_labels else 0.0
                    mu[node, 0] = 1.0
                    for x in range(n_values):
                        value = belief[row, x * lanes + lane]
                        mu[node, n_labels - n_values + x] = value
                        total += value
                    for x in range(n_labels):
                        mu[node, x] /= total


@kernel
def marginals_vjp(tiles, mu, d_mu, d_by_columns):
    """Pull the adjoint of the node marginals back to the logarithms of unnormalised ones, by columns."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        d_belief = array_of(tiles, d_by_columns, example, COLUMNS)
        lanes = d_belief.shape[3]
        for node in range(height * width):
            row, column, at = node // width, node % width, tiles.node_ptr[example] + node
            mean = 0.0
            for x in range(n_labels):
                mean += mu[at, x] * d_mu[at, x]
            for x in range(n_values):
                i = n_labels - n_values + x
                d_belief[column // lanes, row, x, column % lanes] = mu[at, i] * (d_mu[at, i] - mean)


@vector_kernel
def _scaled_cavities(site, rho, top, out):
    """Compute the cavities of all labels with a maximum of 1 per lane, so that products do not vanish."""
    n_labels, lanes = out.shape
    if len(site.q) < n_labels:  # a ratio does not store the first label
        for lane in range(lanes):
            out[0, lane] = 1.0
    cavities(site, rho, out[n_labels - len(site.q) :])
    for lane in range(lanes):
        top[lane] = 0.0
    for x in range(n_labels):
        for lane in range(lanes):
            top[lane] = max(top[lane], out[x, lane])
    for x in range(n_labels):
        for lane in range(lanes):
            out[x, lane] /= top[lane]


# Each pair is divided by the sum of its lane, so that the probability of a certain pair is exactly 1.


@vector_kernel
def _sums_by_lane(table, first, second, total):
    n_labels, lanes = first.shape
    for lane in range(lanes):
        total[lane] = 0.0
    for x in range(n_labels):
        for z in range(n_labels):
            if table.ndim == 2:
                t = table[x, z]
                for lane in range(lanes):
                    total[lane] += t * first[x, lane] * second[z, lane]
            else:
                for lane in range(lanes):
                    total[lane] += table[x, z, lane] * first[x, lane] * second[z, lane]


@reduction_kernel
def _sum_over_lanes(t, first, second, total):
    over_lanes = 0.0
    for lane in range(len(first)):
        over_lanes += t * first[lane] * second[lane] / total[lane]
    return over_lanes


@vector_kernel
def _add_by_lane(table, first, second, total, out):
    for x in range(len(first)):
        for z in range(len(second)):
            for lane in range(first.shape[1]):
                out[x, z, lane] += table[x, z, lane] * first[x, lane] * second[z, lane] / total[lane]


@kernel
def _expect_tables(q, f, b, tables, rho, n_labels, lines, slope, width, out):
    n_tiles, positions, _, lanes = q.shape
    first, second, work = np.empty((n_labels, lanes)), np.empty((n_labels, lanes)), np.empty(lanes)
    pairs = np.empty((4, lanes))
    for t in range(n_tiles):
        rho_t = Weights(rho.common, rho.by_lane[t * lanes : (t + 1) * lanes])
        for p in range(positions - 1):
            table, sums = table_at(tables, t, p, False), table_at(out, t, p, False)
            _scaled_cavities(Site(q[t, p], f[t, p], b[t, p]), rho_t, work, first)
            _scaled_cavities(Site(q[t, p + 1], b[t, p + 1], f[t, p + 1]), rho_t, work, second)
            if tables.ndim == 4:
                expect_pairs(table, first, second, pairs)
                if slope != 0:
                    set_seam(pairs, t * lanes, seam_line(slope, width, p), 0.0)
                add_pairs(pairs, sums)
                continue
            _sums_by_lane(table, first, second, work)
            if slope != 0:  # there is no edge at a seam
                set_seam(first, t * lanes, seam_line(slope, width, p), 0.0)
            if tables.ndim == 3:  # one table for all edges
                n = min(lanes, lines - t * lanes)
                for x in range(n_labels):
                    for z in range(n_labels):
                        sums[x, z] += _sum_over_lanes(table[x, z], first[x, :n], second[z, :n], work[:n])
            else:
                _add_by_lane(table, first, second, work, sums)


@kernel
def expected_tables(tiles, direction, state, q, effects, out):
    """Add the marginals of the edges along the lines of a direction to the tables of these edges.

    `effects` must be up to date in all directions, or None without diagonals.
    """
    for example in range(len(tiles.shapes)):
        q_lines = array_of(tiles, q, example, direction)
        compute_q(tiles, direction, state, example, effects, q_lines)
        f, b = messages_of(tiles, state, example, direction)
        tables = tables_of(tiles, tiles.tables[direction], example, direction)
        sums = tables_of(tiles, out, example, direction)
        rho, lines = weights_of(tiles, example, direction), count_lines(tiles, example, direction)
        slope, width = slope_of(direction), tiles.shapes[example, 1]
        _expect_tables(q_lines, f, b, tables, rho, tiles.n_labels, lines, slope, width, sums)


@kernel
def message_changes(tiles, before, after, active):
    """Compute the largest relative change of a message, scaled to a maximum of 1, per active example."""
    changes = np.zeros(len(active))
    for example in range(len(active)):
        if active[example]:
            for direction in range(tiles.rho.shape[1]):
                f_old, b_old = messages_of(tiles, before, example, direction)
                f, b = messages_of(tiles, after, example, direction)
                lines = count_lines(tiles, example, direction)
                changes[example] = max(changes[example], _change(f_old, f, lines), _change(b_old, b, lines))
    return changes


@kernel
def _change(old, new, lines):
    largest = 0.0
    n_tiles, positions, n_values, lanes = old.shape
    for t in range(n_tiles):
        for p in range(positions):
            for lane in range(min(lanes, lines - t * lanes)):  # lanes without a line change too
                top_old, top_new = 1.0, 1.0
                if n_values > 1:
                    top_old, top_new = 0.0, 0.0
                for x in range(n_values):
                    top_old = max(top_old, old[t, p, x, lane])
                    top_new = max(top_new, new[t, p, x, lane])
                if n_values == 1:  # the first label, which a ratio does not store
                    largest = max(largest, abs(top_old - top_new) / max(top_old, top_new))
                for x in range(n_values):
                    a, b = old[t, p, x, lane] * top_new, new[t, p, x, lane] * top_old
                    if a != b:
                        largest = max(largest, abs(a - b) / max(a, b))
    return largest
