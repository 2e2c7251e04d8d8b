"""Sweeps over the lines of a layout, there and back, and their derivatives."""

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.cross import cross_vjp, gather, hear, listen
from skcrf.inference._lattice.layout import (
    array_of,
    cut,
    messages_of,
    rho_of,
    seam,
    slope,
    table_at,
    tables_of,
)
from skcrf.inference._lattice.message import send, send_ratio, send_ratio_vjp, send_vjp


@kernel
def _sweep(q, f, b, tables, rho, maximise, slope, width):
    """Cross all lines to the end, then back. Where messages are ratios, `maximise` is None."""
    n_tiles, positions, n_rows, lanes = q.shape
    c, scratch = np.empty((n_rows, lanes)), np.empty((n_rows + 1, lanes))
    for t in range(n_tiles):
        rho_t = rho[0], rho[1][t * lanes : (t + 1) * lanes]
        for p in range(positions - 1):
            table = table_at(tables, t, p, True)
            if maximise is None:
                send_ratio(table, True, q[t, p, 0], f[t, p, 0], b[t, p, 0], rho_t, f[t, p + 1, 0])
            else:
                send(table, True, maximise, q[t, p], f[t, p], b[t, p], rho_t, c, scratch, f[t, p + 1])
            if slope != 0:
                cut(f[t, p + 1], t * lanes, seam(slope, width, p), 1.0)
        for p in range(positions - 1, 0, -1):
            table = table_at(tables, t, p - 1, False)
            if maximise is None:
                send_ratio(table, False, q[t, p, 0], b[t, p, 0], f[t, p, 0], rho_t, b[t, p - 1, 0])
            else:
                send(table, False, maximise, q[t, p], b[t, p], f[t, p], rho_t, c, scratch, b[t, p - 1])
            if slope != 0:
                cut(b[t, p - 1], t * lanes, seam(slope, width, p - 1), 1.0)


@kernel
def _sweep_vjp(q, f, b, b_before, tables, rho, maximise, slope, width, d_f, d_b, d_q, d_b_before, d_tables):
    """Undo a sweep, last message first; adds to `d_q`, `d_b_before` and `d_tables`."""
    n_tiles, positions, n_rows, lanes = q.shape
    work = np.empty((3 * n_rows + 1, lanes))
    for step in range(2 * n_tiles * (positions - 1)):
        t, i = step // (2 * (positions - 1)), step % (2 * (positions - 1))
        flip = i >= positions - 1
        # First the way back, from its end at position 0, then the way there, from its end.
        source = 2 * (positions - 1) - 1 - i if flip else i + 1
        target = source + 1 if flip else source - 1
        gap = min(source, target)
        table, d_table = table_at(tables, t, gap, flip), table_at(d_tables, t, gap, flip)
        message, d_message = (f[t, target], d_f[t, target]) if flip else (b[t, target], d_b[t, target])
        said, heard = (f[t, source], b_before[t, source]) if flip else (b[t, source], f[t, source])
        d_said, d_heard = (
            (d_f[t, source], d_b_before[t, source]) if flip else (d_b[t, source], d_f[t, source])
        )
        rho_t = rho[0], rho[1][t * lanes : (t + 1) * lanes]
        if slope != 0:
            cut(d_message, t * lanes, seam(slope, width, gap), 0.0)
        if maximise is None:
            send_ratio_vjp(
                table, flip, q[t, source, 0], said[0], heard[0], rho_t, d_message[0], work,
                d_q[t, source, 0], d_said[0], d_heard[0], d_table,
            )  # fmt: skip
        else:
            send_vjp(
                table, table_at(tables, t, gap, not flip), flip, q[t, source], said, heard, rho_t,
                message, d_message, work, d_q[t, source], d_said, d_heard, d_table,
            )  # fmt: skip


@kernel
def hear_all(tiles, layout, state, active, parts):
    """Renew the part of a layout in the active examples."""
    for example in range(len(active)):
        if active[example]:
            hear(tiles, layout, state, example, parts)


@kernel
def sweeps(tiles, layout, state, active, maximise, scratch, parts):
    """Sweep one layout of the active examples, with what the messages of the others say, then renew its part.

    `maximise` is None where messages are ratios, `parts` where there are two layouts: a kernel is compiled
    for one of both cases only.
    """
    for example in range(len(active)):
        if active[example]:
            q = array_of(tiles, scratch, example, layout)
            listen(tiles, layout, state, example, parts, q)
            f, b = messages_of(tiles, state, example, layout)
            tables = tables_of(tiles, tiles.tables[layout], example, layout)
            rho, width = rho_of(tiles, example, layout), tiles.shapes[example, 1]
            _sweep(q, f, b, tables, rho, maximise, slope(layout), width)
            if parts is not None and layout < 3:
                hear(tiles, layout, state, example, parts)


@kernel
def sweeps_vjp(tiles, layout, before, after, active, maximise, d_state, adjoint, parts):
    """Undo the sweeps of one layout.

    Adds to the adjoints of the potentials; `d_q` and `d_b_before` must be zeros. Of two layouts, the other is
    told at once. Of four, `d_parts` gets the adjoint of q in layout 1, for all others.
    """
    seen = before if layout == 0 else after  # what the layouts before it had just said
    for example in range(len(active)):
        if active[example]:
            q = array_of(tiles, adjoint.scratch[layout], example, layout)
            listen(tiles, layout, seen, example, parts, q)
            f, b = messages_of(tiles, after, example, layout)
            _, b_old = messages_of(tiles, before, example, layout)
            d_f, d_b = messages_of(tiles, d_state, example, layout)
            d_q = array_of(tiles, adjoint.d_q, example, layout)
            d_b_old = array_of(tiles, adjoint.d_b_before, example, layout)
            tables = tables_of(tiles, tiles.tables[layout], example, layout)
            d_tables = tables_of(tiles, adjoint.d_tables[layout], example, layout)
            rho, width = rho_of(tiles, example, layout), tiles.shapes[example, 1]
            _sweep_vjp(
                q, f, b, b_old, tables, rho, maximise, slope(layout), width, d_f, d_b, d_q, d_b_old, d_tables
            )
            known = array_of(tiles, adjoint.d_unary[layout], example, layout)
            _settle(d_q.reshape(-1), d_b_old.reshape(-1), known.reshape(-1), d_f.reshape(-1), d_b.reshape(-1))
            if parts is None:
                d_f, d_b = messages_of(tiles, d_state, example, 1 - layout)
                cross_vjp(d_q, rho_of(tiles, example, 1 - layout), d_f, d_b)
            else:
                gather(tiles, layout, example, d_q, array_of(tiles, adjoint.d_parts[layout], example, 1))


@vector_kernel
def _settle(d_q, d_b_before, d_unary, d_f, d_b):
    """Of the messages before a sweep, only `b` went into it."""
    for i in range(len(d_q)):
        d_unary[i] += d_q[i]
        d_f[i] = 0.0
        d_b[i] = d_b_before[i]
