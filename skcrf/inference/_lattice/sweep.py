"""Sweeps of messages along the lines of a direction, there and back, and their derivatives.

The factor `q` of a site in one direction is exp(theta) times the joint effects of the messages of all other
directions. With four neighbours there is one other direction. With eight, the joint effects are kept in
`JointEffects`. Lanes without a line keep the 1 (adjoints the 0) that they were filled with.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_kernel
from skcrf.inference._lattice.layout import (
    COLUMNS,
    FALLING,
    RISING,
    ROWS,
    Weights,
    array_of,
    messages_of,
    repeat_weights,
    repeated_weights,
    seam_line,
    set_seam,
    slope_of,
    table_between,
    tables_of,
    transpose,
    weights_of,
)
from skcrf.inference._lattice.message import (
    RATIO,
    Site,
    add_outer,
    add_outers,
    add_scaled,
    joint,
    joint_vjp,
    keep,
    send,
    send_ratio,
    send_ratio_vjp,
    send_vjp,
    update_back,
    update_there,
    work_in,
)
from skcrf.inference._lattice.potts import send_potts, send_potts_vjp
from skcrf.inference._lattice.vector import WIDTH, address, load, store, transpose_vectors

# Keeps the rows of a block off the same cache lines.
_PADDING = 8


class JointEffects(NamedTuple):
    """Joint effects of the messages of each direction, on lattices with diagonals; all laid out by columns.

    The first four are in the order of the directions.

    Attributes
    ----------
    rows : ndarray of shape (size,)
        exp(theta) times the effect of the messages along rows.
    columns : ndarray of shape (size,)
        `rows` times the effect of the messages along columns.
    falling, rising : ndarray of shape (size,)
        Effects of the messages along diagonals.
    scratch : ndarray of shape (size,)
        Overwritten.
    ones : ndarray of shape (size,)
        Ones.
    """

    rows: np.ndarray
    columns: np.ndarray
    falling: np.ndarray
    rising: np.ndarray
    scratch: np.ndarray
    ones: np.ndarray


@kernel
def _transpose_block(block, out):
    """Transpose a block of a tile: from (line, labels and lanes) to (lane, label, line)."""
    n_lanes, n_values, n_lines = out.shape
    row = block.shape[1]
    lanes = (row - _PADDING) // n_values
    for first in range(0, len(block), WIDTH):
        for x in range(n_values):
            for lane in range(0, n_lanes - n_lanes % WIDTH, WIDTH):
                at, to = first * row + x * lanes + lane, (lane * n_values + x) * n_lines + first
                transpose_vectors(address(block), at, row, address(out), to, n_values * n_lines)
            for lane in range(n_lanes - n_lanes % WIDTH, n_lanes):
                for i in range(first, first + WIDTH):
                    out[lane, x, i] = block[i, x * lanes + lane]


@kernel
def cross(f, b, rho, unary, q):
    """Compute q = `unary` times the effect of messages f and b of the other of rows and columns."""
    n_tiles, positions, n_values, lanes = f.shape
    n_across, n_lines, _, lanes_across = q.shape
    block = np.empty((lanes_across, n_values * lanes + _PADDING))
    for t in range(n_tiles):
        f_t, b_t = f[t].reshape(positions, -1), b[t].reshape(positions, -1)
        unary_t, rho_t = unary[t].reshape(positions, -1), repeated_weights(rho, t, lanes, n_values)
        for s in range(n_across):
            first = s * lanes_across
            n_rows = min(lanes_across, positions - first)
            block[n_rows:] = 1.0
            joint(f_t, b_t, rho_t, unary_t, first, block[:n_rows])
            _transpose_block(block, q[s, t * lanes : min((t + 1) * lanes, n_lines)])


@kernel
def cross_vjp(d_q, rho, d_f, d_b):
    """Pull the adjoint of q back to the messages of the other of rows and columns; adds to theirs."""
    n_across, n_lines, _, lanes_across = d_q.shape
    block = np.empty(WIDTH * WIDTH)
    for s in range(n_across):
        for i in range(0, min(lanes_across, d_f.shape[1] - s * lanes_across), WIDTH):
            for line in range(0, n_lines - n_lines % WIDTH, WIDTH):
                _cross_block_vjp(d_q, rho.by_lane, s, line, i, d_f, d_b, block)
            for line in range(n_lines - n_lines % WIDTH, n_lines):
                t, lane = line // d_f.shape[3], line % d_f.shape[3]
                for p in range(s * lanes_across + i, min(s * lanes_across + i + WIDTH, d_f.shape[1])):
                    for x in range(d_f.shape[2]):
                        value = rho.by_lane[line] * d_q[s, line, x, p - s * lanes_across]
                        d_f[t, p, x, lane] += value
                        d_b[t, p, x, lane] += value


@vector_kernel
def _cross_block_vjp(d_q, rho, s, line, i, d_f, d_b, block):
    """Do the same for a square block of lines and lanes."""
    _, n_lines, n_values, lanes_across = d_q.shape
    positions, lanes = d_f.shape[1], d_f.shape[3]
    first, weight = s * lanes_across + i, load(address(rho), line)
    for x in range(n_values):
        at = ((s * n_lines + line) * n_values + x) * lanes_across + i
        transpose_vectors(address(d_q), at, n_values * lanes_across, address(block), 0, WIDTH)
        for p in range(min(WIDTH, positions - first)):
            to = ((line // lanes * positions + first + p) * n_values + x) * lanes + line % lanes
            value = weight * load(address(block), p * WIDTH)
            store(load(address(d_f), to) + value, address(d_f), to)
            store(load(address(d_b), to) + value, address(d_b), to)


@vector_kernel
def _copy(values, out):
    for i in range(len(out)):
        out[i] = values[i]


@vector_kernel
def _product(a, b, out):
    for i in range(len(out)):
        out[i] = a[i] * b[i]


@vector_kernel
def _product_of_three(a, b, c, out):
    for i in range(len(out)):
        out[i] = a[i] * b[i] * c[i]


@kernel
def _rotate(source, slope, width, out):
    """Copy from columns to diagonals of a slope; with the opposite slope, back again."""
    _, positions, n_values, lanes = out.shape
    for p in range(positions):
        line, column = 0, (slope * p) % width
        while line < width:
            t, s = line // lanes, column // lanes
            i, j = line - t * lanes, column - s * lanes
            n = min(min(lanes - i, lanes - j), min(width - line, width - column))
            for x in range(n_values):
                _copy(source[s, p, x, j : j + n], out[t, p, x, i : i + n])
            line, column = line + n, column + n
            if column == width:
                column = 0


@kernel
def _joint_effect(f, b, rho, factor, out):
    """Compute the joint effect of all messages of a direction, times a factor."""
    n_tiles, positions, n_values, lanes = f.shape
    for t in range(n_tiles):
        f_t, b_t = f[t].reshape(positions, -1), b[t].reshape(positions, -1)
        factor_t, out_t = factor[t].reshape(positions, -1), out[t].reshape(positions, -1)
        joint(f_t, b_t, repeated_weights(rho, t, lanes, n_values), factor_t, 0, out_t)


@kernel
def update_effect(tiles, direction, state, example, effects):
    """Recompute the joint effect of a direction; `columns` needs an up-to-date `rows`."""
    width = tiles.shapes[example, 1]
    f, b = messages_of(tiles, state, example, direction)
    rho, effect = weights_of(tiles, example, direction), array_of(tiles, effects[direction], example, COLUMNS)
    if direction == ROWS:
        cross(f, b, rho, array_of(tiles, tiles.unary[ROWS], example, ROWS), effect)
    elif direction == COLUMNS:
        _joint_effect(f, b, rho, array_of(tiles, effects.rows, example, COLUMNS), effect)
    else:
        scratch = array_of(tiles, effects.scratch, example, COLUMNS)
        _joint_effect(f, b, rho, array_of(tiles, effects.ones, example, COLUMNS), scratch)
        _rotate(scratch, -slope_of(direction), width, effect)


@kernel
def update_effects(tiles, direction, state, active, effects):
    """Recompute the joint effect of a direction in the active examples."""
    for example in range(len(active)):
        if active[example]:
            update_effect(tiles, direction, state, example, effects)


@kernel
def compute_q(tiles, direction, state, example, effects, q):
    """Compute q of a direction; `effects` is None without diagonals."""
    if effects is None:
        _q_of_four_neighbours(tiles, direction, state, example, q)
    else:
        _q_of_eight_neighbours(tiles, direction, state, example, effects, q)


@inlined_kernel
def _q_of_four_neighbours(tiles, direction, state, example, q):
    other = 1 - direction
    f, b = messages_of(tiles, state, example, other)
    unary = array_of(tiles, tiles.unary[other], example, other)
    cross(f, b, weights_of(tiles, example, other), unary, q)


@kernel
def _q_of_eight_neighbours(tiles, direction, state, example, effects, q):
    scratch = array_of(tiles, effects.scratch, example, COLUMNS)
    falling = array_of(tiles, effects.falling, example, COLUMNS).reshape(-1)
    rising = array_of(tiles, effects.rising, example, COLUMNS).reshape(-1)
    if direction == ROWS:
        unary = array_of(tiles, tiles.unary[COLUMNS], example, COLUMNS)
        _product_of_three(unary.reshape(-1), falling, rising, scratch.reshape(-1))
        f, b = messages_of(tiles, state, example, COLUMNS)
        cross(f, b, weights_of(tiles, example, COLUMNS), scratch, q)
    elif direction == COLUMNS:
        rows = array_of(tiles, effects.rows, example, COLUMNS)
        _product_of_three(rows.reshape(-1), falling, rising, q.reshape(-1))
    else:
        rows_and_columns = array_of(tiles, effects.columns, example, COLUMNS).reshape(-1)
        _product(rows_and_columns, rising if direction == FALLING else falling, scratch.reshape(-1))
        _rotate(scratch, slope_of(direction), tiles.shapes[example, 1], q)


@kernel
def to_columns(tiles, direction, example, d_q, out):
    """Copy the adjoint of q of a direction to columns."""
    if direction == ROWS:
        transpose(d_q, out)
    else:
        _rotate(d_q, -slope_of(direction), tiles.shapes[example, 1], out)


@kernel
def effects_vjp(tiles, direction, active, d_effect, d_state, scratch):
    """Pull the adjoint of a joint effect, by columns, back to the messages of its direction; adds to theirs.

    `scratch` is 0 where lanes have no line, and None without diagonals.
    """
    for example in range(len(active)):
        if active[example]:
            d_f, d_b = messages_of(tiles, d_state, example, direction)
            d_joint, rho = array_of(tiles, d_effect, example, COLUMNS), weights_of(tiles, example, direction)
            if direction == ROWS:
                cross_vjp(d_joint, rho, d_f, d_b)
                continue
            if scratch is not None and direction > COLUMNS:
                rotated = array_of(tiles, scratch, example, COLUMNS)
                _rotate(d_joint, slope_of(direction), tiles.shapes[example, 1], rotated)
                d_joint = rotated
            n_tiles, positions, n_values, lanes = d_f.shape
            for t in range(n_tiles):
                rho_t, d_t = repeated_weights(rho, t, lanes, n_values), d_joint[t].reshape(positions, -1)
                joint_vjp(d_t, rho_t, d_f[t].reshape(positions, -1))
                joint_vjp(d_t, rho_t, d_b[t].reshape(positions, -1))


# Sweeps


class SweepArrays(NamedTuple):
    """Arrays of a sweep: q, the messages after it, and b before it."""

    q: np.ndarray
    f: np.ndarray
    b: np.ndarray
    b_before: np.ndarray


@kernel
def sweep_lines(q, f, b, tables, rho, mode, slope, width, memory):
    """Send messages along all lines to the end, then back; `memory` is of shape (4, numbers per message)."""
    n_tiles, positions, n_values, lanes = q.shape
    size, work = n_values * lanes, work_in(memory)
    there, back = Site(address(q), address(f), address(b)), Site(address(q), address(b), address(f))
    for i in range(2 * n_tiles):
        t, flip = i // 2, i % 2 == 0
        site = there if flip else back
        rho_t = Weights(rho.common, address(rho.by_lane[t]))
        for n in range(positions - 1):
            gap = n if flip else positions - 2 - n
            first, table = (t * positions + gap) * size, table_between(tables, t, gap, not flip)
            at, to = (first, first + size) if flip else (first + size, first)
            if mode is RATIO:
                send_ratio(table, flip, site, at, rho_t, work, to)
            elif tables.ndim == 4:
                send_potts(table, mode, site, at, rho_t, work, to)
            else:
                send(table, flip, mode, site, at, rho_t, work, to)
            if slope != 0:
                messages = f[t, gap + 1] if flip else b[t, gap]
                set_seam(messages, t * lanes, seam_line(slope, width, gap), 1.0)


class _Memory(NamedTuple):
    """Memory for the derivative of a sweep: of one message, of all messages of a line, and of a table."""

    work: np.ndarray
    kept: np.ndarray
    sums: np.ndarray


@kernel
def _memory_for(f, tables, mode):
    _, positions, n_values, lanes = f.shape
    is_shared = tables.ndim == 3
    kept = 0 if is_shared or tables.ndim == 4 or mode is RATIO else positions * n_values * lanes
    n_sums = tables.shape[1] * tables.shape[2] * WIDTH if is_shared else 0
    return _Memory(np.empty((4, n_values * lanes)), np.empty((4, kept)), np.zeros(n_sums))


@kernel
def sweep_lines_vjp(arrays, tables, rho, mode, slope, width, d_arrays, d_tables, memory):
    """Undo a sweep, last message first: sets the adjoint of q, and adds to those of the tables.

    Replaces the adjoints of f and b after the sweep by those before it, which are 0 for f.
    """
    n_tiles, positions, n_values, lanes = arrays.q.shape
    size, n_labels, is_shared = n_values * lanes, tables.shape[2], tables.ndim == 3
    work, kept = work_in(memory.work), work_in(memory.kept)
    # Adjoints of shared tables are sums by lane of a vector until the end.
    d_table = address(memory.sums) if is_shared else address(d_tables)
    there = Site(address(arrays.q), address(arrays.f), address(arrays.b_before))
    back = Site(address(arrays.q), address(arrays.b), address(arrays.f))
    d_site = Site(address(d_arrays.q), address(d_arrays.f), address(d_arrays.b))
    for i in range(2 * n_tiles):
        t, flip = i // 2, i % 2 == 1
        site, d_message = (there, d_site.f) if flip else (back, d_site.b)
        rho_t = Weights(rho.common, address(rho.by_lane[t]))
        if not flip:
            d_arrays.q[t, 0] = 0.0
        for n in range(positions - 1):
            gap = positions - 2 - n if flip else n
            first, table = (t * positions + gap) * size, table_between(tables, t, gap, not flip)
            at, to = (first, first + size) if flip else (first + size, first)
            if slope != 0:
                d_messages = d_arrays.f[t, gap + 1] if flip else d_arrays.b[t, gap]
                set_seam(d_messages, t * lanes, seam_line(slope, width, gap), 0.0)
            if mode is RATIO:
                send_ratio_vjp(table, flip, site, at, rho_t, d_message, to, work, d_table)
            elif tables.ndim == 4:
                send_potts_vjp(table, site, at, rho_t, d_message, to, work, d_table)
            else:
                send_vjp(
                    table, table_between(tables, t, gap, flip), flip, site, at, rho_t, d_message, to, work
                )
                if is_shared:
                    left, right = (work.c, work.d_sum) if flip else (work.d_sum, work.c)
                    add_outer(n_labels, left, right, d_table)
                elif flip:
                    add_outers(n_labels, work, kept, gap * size, d_table, table.start)
                else:
                    keep(work, kept, gap * size)
            if flip:
                update_there(work, rho_t, d_site, at)
            else:
                update_back(work, rho_t, d_site, at)
        if flip:
            d_arrays.f[t] = 0.0
            d_arrays.b[t, positions - 1] = 0.0
    if is_shared:
        for x in range(n_labels):
            for z in range(n_labels):
                at = (x * n_labels + z) * WIDTH
                d_tables[0, x, z] += memory.sums[at : at + WIDTH].sum()


@kernel
def sweep(tiles, direction, state, active, mode, q, effects):
    """Sweep one direction of the active examples, then recompute its joint effect.

    `effects` is None without diagonals: then kernels are compiled without the code for them.
    """
    for example in range(len(active)):
        if active[example]:
            q_lines = array_of(tiles, q, example, direction)
            compute_q(tiles, direction, state, example, effects, q_lines)
            f, b = messages_of(tiles, state, example, direction)
            tables = tables_of(tiles, tiles.tables[direction], example, direction)
            rho, width = weights_of(tiles, example, direction), tiles.shapes[example, 1]
            rho, memory = repeat_weights(rho, f.shape), np.empty((4, f.shape[2] * f.shape[3]))
            sweep_lines(q_lines, f, b, tables, rho, mode, slope_of(direction), width, memory)
            if effects is not None and direction < RISING:
                update_effect(tiles, direction, state, example, effects)


@kernel
def sweep_vjp(tiles, direction, before, after, active, mode, d_state, adjoint, effects):
    """Undo the sweep of one direction.

    Adds to the adjoints of the potentials. Without diagonals, adds the adjoint of q to the messages of the
    other direction too; with them, leaves it in `d_q_by_columns`.
    """
    seen = before if direction == ROWS else after  # other directions were swept before it
    for example in range(len(active)):
        if active[example]:
            q = array_of(tiles, adjoint.q[direction], example, direction)
            compute_q(tiles, direction, seen, example, effects, q)
            f, b = messages_of(tiles, after, example, direction)
            _, b_before = messages_of(tiles, before, example, direction)
            d_f, d_b = messages_of(tiles, d_state, example, direction)
            d_q = array_of(tiles, adjoint.d_q, example, direction)
            tables = tables_of(tiles, tiles.tables[direction], example, direction)
            d_tables = tables_of(tiles, adjoint.d_tables[direction], example, direction)
            rho, width = weights_of(tiles, example, direction), tiles.shapes[example, 1]
            arrays, d_arrays = SweepArrays(q, f, b, b_before), Site(d_q, d_f, d_b)
            rho, memory = repeat_weights(rho, f.shape), _memory_for(f, d_tables, mode)
            sweep_lines_vjp(arrays, tables, rho, mode, slope_of(direction), width, d_arrays, d_tables, memory)
            d_unary = array_of(tiles, adjoint.d_unary[direction], example, direction)
            add_scaled(1.0, d_q.reshape(-1), d_unary.reshape(-1))
            if effects is None:
                d_f, d_b = messages_of(tiles, d_state, example, 1 - direction)
                cross_vjp(d_q, weights_of(tiles, example, 1 - direction), d_f, d_b)
            else:
                by_columns = array_of(tiles, adjoint.d_q_by_columns[direction], example, COLUMNS)
                to_columns(tiles, direction, example, d_q, by_columns)
