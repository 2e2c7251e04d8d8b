"""Potentials into tiles, messages and marginals out of them: of nodes, and of edges that share a table.

The marginal of the pair at positions p and p + 1 of a line is the table times both cavities, normalised; each
cavity leaves out the message from the other site.
"""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel, vector_exp, vector_kernel
from skcrf.inference._lattice.effects import q_of_eight_neighbours, update_effect
from skcrf.inference._lattice.layout import (
    COLUMNS,
    FALLING,
    RISING,
    ROWS,
    Weights,
    array_of,
    count_lines,
    edge_at,
    messages_of,
    repeat_weights,
    seam_line,
    set_seam,
    slope_of,
    table_at,
    tables_of,
    transpose,
    weights_of,
)
from skcrf.inference._lattice.message import (
    Joint,
    Site,
    add_weighted,
    cavities,
    cross,
    cross_vjp,
    joint_effect,
    work_in,
)
from skcrf.inference._lattice.potts import add_pairs, expect_pairs
from skcrf.inference._lattice.vector import (
    WIDTH,
    load,
    number,
    shifted,
    store,
    wide_address,
    width_of,
    zeros_like,
)

# Potentials


@kernel
def pack_unary(tiles, unary, by_columns):
    """Copy the unary potentials of all nodes to columns, with a maximum of 0; ratios are differences."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        inside = array_of(tiles, by_columns, example, COLUMNS)
        n_tiles, _, _, lanes = inside.shape
        for row in range(height):
            for t in range(n_tiles):
                for lane in range(min(lanes, width - t * lanes)):
                    node = tiles.node_ptr[example] + row * width + t * lanes + lane
                    top = unary[node, 0]
                    for x in range(1, n_values):
                        top = max(top, unary[node, x])
                    for x in range(n_values):
                        inside[t, row, x, lane] = unary[node, n_labels - n_values + x] - top


@vector_kernel
def exponentiate(values):
    """Replace each number of a flat array of float64 by its exponential."""
    for i in range(len(values)):
        values[i] = vector_exp(values[i])


@kernel
def copy_to_rows(tiles, by_columns, by_rows):
    """Copy one number per label and site from columns to rows."""
    for example in range(len(tiles.shapes)):
        transpose(array_of(tiles, by_columns, example, COLUMNS), array_of(tiles, by_rows, example, ROWS))


@kernel
def unpack_unary(tiles, d_inside, d_unary):
    """Add the adjoints in all directions to those of the nodes."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        width = tiles.shapes[example, 1]
        for direction in range(len(d_inside)):
            inside = array_of(tiles, d_inside[direction], example, direction)
            n_tiles, positions, _, lanes = inside.shape
            lines = count_lines(tiles, example, direction)
            for t in range(n_tiles):
                for p in range(positions):
                    shift = slope_of(direction) * p % width
                    for lane in range(min(lanes, lines - t * lanes)):
                        row, column = (t * lanes + lane, p) if direction == ROWS else (p, t * lanes + lane)
                        column += shift if column + shift < width else shift - width
                        node = tiles.node_ptr[example] + row * width + column
                        for x in range(n_values):
                            value = inside[t, p, x, lane]
                            d_unary[node, n_labels - n_values + x] += value
                            if n_values < n_labels:
                                d_unary[node, 0] -= value


@kernel
def pack_weights(tiles, direction, rho, out):
    """Copy the weights of the rows or columns that have edges."""
    for example in range(len(tiles.shapes)):
        start = tiles.lane_start[example, direction]
        if tiles.shapes[example, 1 - direction] > 1:
            for line in range(count_lines(tiles, example, direction)):
                out[start + line] = rho[edge_at(tiles, example, direction, line, 0)]


@kernel
def pack_tables(tiles, shared, tables, direction, out):
    """Copy theta / rho by lane, with a maximum of 0.

    `shared` is the table of all edges along the lines of an example, or -1 if each edge has its own.
    """
    for example in range(len(tiles.shapes)):
        inside = tables_of(tiles, out, example, direction)
        rho = weights_of(tiles, example, direction).by_lane
        _, n_gaps, rows, columns, lanes = inside.shape
        for line in range(count_lines(tiles, example, direction)):
            for p in range(n_gaps):
                at = shared[example] if shared[example] >= 0 else edge_at(tiles, example, direction, line, p)
                if at < 0:
                    continue
                top = tables[at].max()
                for x in range(rows):
                    for z in range(columns):
                        value = (tables[at, x, z] - top) / rho[line]
                        inside[line // lanes, p, x, z, line % lanes] = value


@kernel
def unpack_tables(tiles, shared, d_inside, direction, d_tables):
    """Add the adjoints by lane, divided by rho, to those of the tables; `shared` as for `pack_tables`."""
    for example in range(len(tiles.shapes)):
        inside = tables_of(tiles, d_inside, example, direction)
        rho = weights_of(tiles, example, direction).by_lane
        _, n_gaps, rows, columns, lanes = inside.shape
        for line in range(count_lines(tiles, example, direction)):
            for p in range(n_gaps):
                at = shared[example] if shared[example] >= 0 else edge_at(tiles, example, direction, line, p)
                if at < 0:
                    continue
                for x in range(rows):
                    for z in range(columns):
                        value = inside[line // lanes, p, x, z, line % lanes]
                        d_tables[at, x, z] += value / rho[line]


@kernel
def copy_messages(tiles, rows, state, to_rows):
    """Copy messages, or their adjoints, between a state and rows numbered as in `Graph`."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        for direction in range(tiles.rho.shape[1]):
            f, b = messages_of(tiles, state, example, direction)
            lanes = f.shape[3]
            for line in range(count_lines(tiles, example, direction)):
                t, lane = line // lanes, line % lanes
                for p in range(f.shape[1] - 1):
                    edge = edge_at(tiles, example, direction, line, p)
                    if edge < 0:
                        continue
                    for x in range(n_values):
                        at = n_labels - n_values + x
                        if to_rows:
                            rows[2 * edge + 1, at] = f[t, p + 1, x, lane]
                            rows[2 * edge, at] = b[t, p, x, lane]
                        else:
                            f[t, p + 1, x, lane] = rows[2 * edge + 1, at]
                            b[t, p, x, lane] = rows[2 * edge, at]


@kernel
def subtract_there(tiles, d_state):
    """Replace the adjoints of messages b by their differences to those of f at the same site."""
    for example in range(len(tiles.shapes)):
        for direction in range(tiles.rho.shape[1]):
            f, b = messages_of(tiles, d_state, example, direction)
            b -= f


@kernel
def clear_there(tiles, direction, active, d_state):
    """Set the adjoints of messages f along the lines of a direction to zero."""
    for example in range(len(active)):
        if active[example]:
            messages_of(tiles, d_state, example, direction)[0][:] = 0.0


# Marginals


@kernel
def compute_q(tiles, direction, state, example, effects, q, scratch):
    """Compute q of a direction; `effects` is None without diagonals."""
    if effects is None:
        other = 1 - direction
        f, b = messages_of(tiles, state, example, other)
        rho = repeat_weights(weights_of(tiles, example, other), f.shape)
        cross(f, b, rho, array_of(tiles, tiles.unary[other], example, other), q, scratch)
    else:
        q_of_eight_neighbours(tiles, direction, state, example, effects, q, scratch)


@kernel
def update_q(tiles, direction, state, active, q, scratch):
    """Recompute q of rows or columns of the active examples, without diagonals."""
    for example in range(len(active)):
        if active[example]:
            compute_q(tiles, direction, state, example, None, array_of(tiles, q, example, direction), scratch)


@vector_kernel
def _normalise(values, first, lanes, size, total):
    """Divide numbers by their sums over labels, which include `first`; leaves the sums in `total`."""
    for lane in range(0, lanes, width_of(values)):
        sums = zeros_like(load(values, lane)) + first
        for i in range(lane, size, lanes):
            sums = sums + load(values, i)
        store(sums, total, lane)
        for i in range(lane, size, lanes):
            store(load(values, i) / sums, values, i)


@kernel
def marginals(tiles, state, q_by_columns, effects, scratch, mu):
    """Compute the node marginals; overwrites `q_by_columns` and `effects`."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        q = array_of(tiles, q_by_columns, example, COLUMNS)
        if effects is not None:
            for direction in (ROWS, FALLING, RISING):
                update_effect(tiles, direction, state, example, effects, scratch)
        compute_q(tiles, COLUMNS, state, example, effects, q, scratch)
        f, b = messages_of(tiles, state, example, COLUMNS)
        lanes, size = q.shape[3], q.shape[2] * q.shape[3]
        rho = repeat_weights(weights_of(tiles, example, COLUMNS), f.shape)
        work = work_in(wide_address(scratch.work), size)
        f, b, q, belief = wide_address(f), wide_address(b), wide_address(q), work.sums
        for s in range(len(rho.by_lane)):
            rho_s = Weights(rho.common, wide_address(rho.by_lane[s]))
            for row in range(height):
                at = (s * height + row) * size
                joint_effect(f, b, at, rho_s, work, Joint(shifted(q, at), belief))
                _normalise(belief, 1.0 if n_values < n_labels else 0.0, lanes, size, work.total)
                first = tiles.node_ptr[example] + row * width + s * lanes
                for lane in range(min(lanes, width - s * lanes)):
                    if n_values < n_labels:
                        mu[first + lane, 0] = 1.0 / np.float64(number(work.total, lane))
                    for x in range(n_values):
                        value = np.float64(number(belief, x * lanes + lane))
                        mu[first + lane, n_labels - n_values + x] = value
                if width_of(belief) > WIDTH:  # sums of float32 are 1 to single precision only
                    _divide_by_sums(mu[first : first + min(lanes, width - s * lanes)])


@kernel
def _divide_by_sums(rows):
    """Divide each row by its sum."""
    for i in range(len(rows)):
        total = 0.0
        for x in range(rows.shape[1]):
            total += rows[i, x]
        for x in range(rows.shape[1]):
            rows[i, x] /= total


@kernel
def marginals_vjp(tiles, mu, d_mu, d_by_columns):
    """Pull the adjoint of the node marginals back to the logarithms of unnormalised ones, by columns."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        d_belief = array_of(tiles, d_by_columns, example, COLUMNS)
        n_tiles, _, _, lanes = d_belief.shape
        for row in range(height):
            for t in range(n_tiles):
                first = tiles.node_ptr[example] + row * width + t * lanes
                for lane in range(min(lanes, width - t * lanes)):
                    mean, at = 0.0, first + lane
                    for x in range(n_labels):
                        mean += mu[at, x] * d_mu[at, x]
                    for x in range(n_values):
                        i = n_labels - n_values + x
                        d_belief[t, row, x, lane] = mu[at, i] * (d_mu[at, i] - mean)


@kernel
def beliefs_vjp(tiles, d_by_columns, d_state, scratch):
    """Add the adjoint of unnormalised marginals, by columns, to those of messages, without diagonals."""
    for example in range(len(tiles.shapes)):
        d_belief = array_of(tiles, d_by_columns, example, COLUMNS)
        d_f, _ = messages_of(tiles, d_state, example, ROWS)
        cross_vjp(d_belief, weights_of(tiles, example, ROWS), d_f, scratch)
        d_f, _ = messages_of(tiles, d_state, example, COLUMNS)
        rho = repeat_weights(weights_of(tiles, example, COLUMNS), d_f.shape).by_lane
        for t in range(len(d_f)):
            for p in range(d_f.shape[1]):
                given = wide_address(d_belief[t, p]), wide_address(rho[t]), rho.shape[1]
                add_weighted(*given, wide_address(d_f[t, p]))


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
def expected_tables(tiles, direction, state, q, effects, scratch, out):
    """Add the marginals of the edges along the lines of a direction to the tables of these edges.

    `effects` must be up to date in all directions, or None without diagonals.
    """
    for example in range(len(tiles.shapes)):
        q_lines = array_of(tiles, q, example, direction)
        compute_q(tiles, direction, state, example, effects, q_lines, scratch)
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
