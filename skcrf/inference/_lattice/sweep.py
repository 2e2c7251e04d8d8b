"""Sweeps of messages along the lines of a direction, there and back, and their derivatives."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.cross import compute_q, cross_vjp, to_columns, update_effect
from skcrf.inference._lattice.layout import (
    COLUMNS,
    RISING,
    ROWS,
    Weights,
    array_of,
    count_lines,
    messages_of,
    seam_line,
    set_seam,
    slope_of,
    table_at,
    tables_of,
    weights_of,
)
from skcrf.inference._lattice.message import RATIO, Site, send, send_ratio, send_ratio_vjp, send_vjp


class SweepArrays(NamedTuple):
    """Arrays of a sweep, or their adjoints: q, the messages after it, and b before it."""

    q: np.ndarray
    f: np.ndarray
    b: np.ndarray
    b_before: np.ndarray


@kernel
def sweep_lines(q, f, b, tables, rho, mode, slope, width):
    """Send messages along all lines to the end, then back."""
    n_tiles, positions, n_values, lanes = q.shape
    c, scratch = np.empty((n_values, lanes)), np.empty((n_values + 1, lanes))
    for t in range(n_tiles):
        rho_t = Weights(rho.common, rho.by_lane[t * lanes : (t + 1) * lanes])
        for p in range(positions - 1):
            table = table_at(tables, t, p, True)
            if mode is RATIO:
                site = Site(q[t, p, 0], f[t, p, 0], b[t, p, 0])
                send_ratio(table, True, site, rho_t, f[t, p + 1, 0])
            else:
                send(table, True, mode, Site(q[t, p], f[t, p], b[t, p]), rho_t, c, scratch, f[t, p + 1])
            if slope != 0:
                set_seam(f[t, p + 1], t * lanes, seam_line(slope, width, p), 1.0)
        for p in range(positions - 1, 0, -1):
            table = table_at(tables, t, p - 1, False)
            if mode is RATIO:
                site = Site(q[t, p, 0], b[t, p, 0], f[t, p, 0])
                send_ratio(table, False, site, rho_t, b[t, p - 1, 0])
            else:
                send(table, False, mode, Site(q[t, p], b[t, p], f[t, p]), rho_t, c, scratch, b[t, p - 1])
            if slope != 0:
                set_seam(b[t, p - 1], t * lanes, seam_line(slope, width, p - 1), 1.0)


@kernel
def sweep_lines_vjp(arrays, tables, rho, mode, slope, width, d_arrays, d_tables):
    """Undo a sweep, last message first; adds to the adjoints of q, of b before it and of the tables."""
    q, f, b, b_before = arrays
    d_q, d_f, d_b, d_b_before = d_arrays
    n_tiles, positions, n_values, lanes = q.shape
    work = np.empty((3 * n_values + 1, lanes))
    for step in range(2 * n_tiles * (positions - 1)):
        t, i = step // (2 * (positions - 1)), step % (2 * (positions - 1))
        flip = i >= positions - 1
        # First the way back, from its end at position 0, then the way there, from its end.
        source = 2 * (positions - 1) - 1 - i if flip else i + 1
        target = source + 1 if flip else source - 1
        gap = min(source, target)
        table, d_table = table_at(tables, t, gap, flip), table_at(d_tables, t, gap, flip)
        message, d_message = (f[t, target], d_f[t, target]) if flip else (b[t, target], d_b[t, target])
        # The message from the opposite neighbour, and the one from the target.
        behind, ahead = (f[t, source], b_before[t, source]) if flip else (b[t, source], f[t, source])
        d_behind, d_ahead = (
            (d_f[t, source], d_b_before[t, source]) if flip else (d_b[t, source], d_f[t, source])
        )
        rho_t = Weights(rho.common, rho.by_lane[t * lanes : (t + 1) * lanes])
        if slope != 0:
            set_seam(d_message, t * lanes, seam_line(slope, width, gap), 0.0)
        if mode is RATIO:
            site, d_site = (
                Site(q[t, source, 0], behind[0], ahead[0]),
                Site(d_q[t, source, 0], d_behind[0], d_ahead[0]),
            )
            send_ratio_vjp(table, flip, site, rho_t, d_message[0], work, d_site, d_table)
        else:
            back = table_at(tables, t, gap, not flip)
            site, d_site = Site(q[t, source], behind, ahead), Site(d_q[t, source], d_behind, d_ahead)
            send_vjp(table, back, flip, site, rho_t, message, d_message, work, d_site, d_table)


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
            sweep_lines(q_lines, f, b, tables, rho, mode, slope_of(direction), width)
            if effects is not None and direction < RISING:
                update_effect(tiles, direction, state, example, effects)


@kernel
def sweep_vjp(tiles, direction, before, after, active, mode, d_state, adjoint, effects):
    """Undo the sweep of one direction; `d_q` and `d_b_before` must be zeros.

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
            d_b_before = array_of(tiles, adjoint.d_b_before, example, direction)
            tables = tables_of(tiles, tiles.tables[direction], example, direction)
            d_tables = tables_of(tiles, adjoint.d_tables[direction], example, direction)
            rho, width = weights_of(tiles, example, direction), tiles.shapes[example, 1]
            arrays, d_arrays = SweepArrays(q, f, b, b_before), SweepArrays(d_q, d_f, d_b, d_b_before)
            sweep_lines_vjp(arrays, tables, rho, mode, slope_of(direction), width, d_arrays, d_tables)
            d_unary = array_of(tiles, adjoint.d_unary[direction], example, direction)
            _add_adjoints(
                d_q.reshape(-1), d_b_before.reshape(-1), d_unary.reshape(-1), d_f.reshape(-1), d_b.reshape(-1)
            )
            if effects is None:
                d_f, d_b = messages_of(tiles, d_state, example, 1 - direction)
                cross_vjp(d_q, weights_of(tiles, example, 1 - direction), d_f, d_b)
            else:
                by_columns = array_of(tiles, adjoint.d_q_by_columns[direction], example, COLUMNS)
                to_columns(tiles, direction, example, d_q, by_columns)


@vector_kernel
def _add_adjoints(d_q, d_b_before, d_unary, d_f, d_b):
    """Add the adjoint of q to that of theta; of the messages before a sweep, only b entered it."""
    for i in range(len(d_q)):
        d_unary[i] += d_q[i]
        d_f[i] = 0.0
        d_b[i] = d_b_before[i]


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
