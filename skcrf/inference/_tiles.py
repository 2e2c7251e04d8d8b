"""Sweeps over lattices of four neighbours, in tiles of lines that are crossed side by side.

There are two layouts: 0 has the rows of the image as lines, 1 its columns. In each, an array is
(tile, position along the line, label, lane), lanes innermost, so that all arithmetic is that of vectors and
what a sweep touches stays in the cache. A layout has two messages a site: `f` comes from the position before,
`b` from the one after; both are 1 where there is none. The state of an example is f and b of layout 0, then
of layout 1, in one flat array.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lanes import joint, send, send_ratio, send_ratio_vjp, send_vjp

# Lines of a tile: many vectors long, while the positions of a line fit the cache. Ratios are but one number.
_LANES, _LANES_OF_RATIOS = 64, 256
# Keeps the rows of a block from falling on the same lines of the cache.
_PADDING = 8


class Tiles(NamedTuple):
    """A batch of lattices and its potentials, as the kernels want them.

    Attributes
    ----------
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    sizes : ndarray of shape (2,)
        Number of labels, and of the numbers in a message: as many, but 1 where it is a ratio.
    node_ptr : ndarray of shape (n_examples + 1,)
        Where the nodes of each example start.
    start : ndarray of shape (n_examples + 1, 2)
        Where the arrays of each example start, in both layouts.
    table_start : ndarray of shape (n_examples + 1, 2)
        Where its tables start, if each edge has its own.
    rho : ndarray of shape (n_examples, 2)
        Weights of the edges along the lines of both layouts.
    unary : tuple of two ndarrays
        exp(theta) of the nodes, one flat array a layout.
    tables : tuple of two ndarrays
        exp(theta / rho) along the lines of both layouts: shape (n_examples, 2, n_labels, n_labels) for one
        table an example, second axis 1 transposed; flat if each edge has its own.
    """

    shapes: np.ndarray
    sizes: np.ndarray
    node_ptr: np.ndarray
    start: np.ndarray
    table_start: np.ndarray
    rho: np.ndarray
    unary: tuple
    tables: tuple


@kernel
def dimensions(height, width, layout, n_rows):
    """The shape of an array: tiles, positions, numbers a message, lanes."""
    lines, positions = (height, width) if layout == 0 else (width, height)
    most = _LANES_OF_RATIOS if n_rows == 1 else _LANES
    n_tiles = (lines + most - 1) // most
    lanes = (lines + n_tiles - 1) // n_tiles
    if lanes > 4:
        lanes = (lanes + 3) // 4 * 4
    return n_tiles, positions, n_rows, lanes


@kernel
def _view(flat, start, shape):
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return flat[start : start + size].reshape(shape)


@kernel
def messages_of(tiles, state, example, layout):
    """f and b of an example."""
    height, width = tiles.shapes[example]
    shape = dimensions(height, width, layout, tiles.sizes[1])
    first = 2 * (tiles.start[example, 0] + tiles.start[example, 1])
    if layout == 1:
        first += 2 * (tiles.start[example + 1, 0] - tiles.start[example, 0])
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return _view(state, first, shape), _view(state, first + size, shape)


@kernel
def array_of(tiles, flat, example, layout):
    """An array of one number a label and site."""
    height, width = tiles.shapes[example]
    return _view(flat, tiles.start[example, layout], dimensions(height, width, layout, tiles.sizes[1]))


@kernel
def tables_of(tiles, tables, example, layout):
    """The tables of an example along the lines of a layout."""
    if tables.ndim == 4:
        return tables[example]
    height, width = tiles.shapes[example]
    n_tiles, positions, _, lanes = dimensions(height, width, layout, tiles.sizes[1])
    start, stop = tiles.table_start[example, layout], tiles.table_start[example + 1, layout]
    return tables[start:stop].reshape((n_tiles, positions - 1, tiles.sizes[0], tiles.sizes[0], lanes))


@kernel
def table_at(tables, tile, position, flip):
    """The table between a position and the next: for messages to the first of them, or flipped."""
    if tables.ndim == 3:
        return tables[1] if flip else tables[0]
    return tables[tile, position]


@kernel
def _sweep(q, f, b, tables, rho, maximise):
    """Cross all lines to the end, then back. Where messages are ratios, `maximise` is None."""
    n_tiles, positions, n_rows, lanes = q.shape
    c, scratch = np.empty((n_rows, lanes)), np.empty((n_rows + 1, lanes))
    for t in range(n_tiles):
        for p in range(positions - 1):
            table = table_at(tables, t, p, True)
            if maximise is None:
                send_ratio(table, True, q[t, p, 0], f[t, p, 0], b[t, p, 0], rho, f[t, p + 1, 0])
            else:
                send(table, True, maximise, q[t, p], f[t, p], b[t, p], rho, c, scratch, f[t, p + 1])
        for p in range(positions - 1, 0, -1):
            table = table_at(tables, t, p - 1, False)
            if maximise is None:
                send_ratio(table, False, q[t, p, 0], b[t, p, 0], f[t, p, 0], rho, b[t, p - 1, 0])
            else:
                send(table, False, maximise, q[t, p], b[t, p], f[t, p], rho, c, scratch, b[t, p - 1])


@kernel
def _sweep_vjp(q, f, b, b_before, tables, rho, maximise, d_f, d_b, d_q, d_b_before, d_tables):
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
        if maximise is None:
            send_ratio_vjp(
                table, flip, q[t, source, 0], said[0], heard[0], rho, d_message[0], work,
                d_q[t, source, 0], d_said[0], d_heard[0], d_table,
            )  # fmt: skip
        else:
            send_vjp(
                table, table_at(tables, t, gap, not flip), flip, q[t, source], said, heard, rho,
                message, d_message, work, d_q[t, source], d_said, d_heard, d_table,
            )  # fmt: skip


@vector_kernel
def _turn(block, out):
    """Turn a block of a tile across: (lane, label, line) from lines of all labels and lanes."""
    n_lanes, n_rows, _ = out.shape
    lanes = (block.shape[1] - _PADDING) // n_rows
    for lane in range(n_lanes):
        for x in range(n_rows):
            for i in range(len(block)):
                out[lane, x, i] = block[i, x * lanes + lane]


@kernel
def cross(f, b, rho, unary, q):
    """q = exp(theta) times what the messages of the other layout, in which `unary` is, say."""
    n_tiles, positions, n_rows, lanes = f.shape
    n_across, n_lines, _, lanes_across = q.shape
    block = np.empty((lanes_across, n_rows * lanes + _PADDING))
    for t in range(n_tiles):
        f_t, b_t = f[t].reshape(positions, -1), b[t].reshape(positions, -1)
        unary_t = unary[t].reshape(positions, -1)
        for s in range(n_across):
            first = s * lanes_across
            turned = block[: min(lanes_across, positions - first)]
            joint(f_t, b_t, rho, unary_t, first, turned)
            _turn(turned, q[s, t * lanes : min((t + 1) * lanes, n_lines)])


@kernel
def cross_vjp(d_q, rho, d_f, d_b):
    """Add what the adjoint of q means for the messages of the other layout."""
    n_tiles, _, n_rows, lanes = d_f.shape
    n_across, n_lines, _, lanes_across = d_q.shape
    for s in range(n_across):
        for i in range(min(lanes_across, d_f.shape[1] - s * lanes_across)):
            for t in range(n_tiles):
                for x in range(n_rows):
                    for lane in range(min(lanes, n_lines - t * lanes)):
                        value = rho * d_q[s, t * lanes + lane, x, i]
                        d_f[t, s * lanes_across + i, x, lane] += value
                        d_b[t, s * lanes_across + i, x, lane] += value


@kernel
def sweeps(tiles, layout, state, active, maximise, scratch):
    """Sweep one layout of the active examples, with what the messages of the other say.

    `maximise` is None where messages are ratios: a kernel is compiled for one of both cases only.
    """
    other = 1 - layout
    for example in range(len(active)):
        if active[example]:
            rho, rho_other = tiles.rho[example, layout], tiles.rho[example, other]
            q = array_of(tiles, scratch, example, layout)
            f, b = messages_of(tiles, state, example, other)
            cross(f, b, rho_other, array_of(tiles, tiles.unary[other], example, other), q)
            f, b = messages_of(tiles, state, example, layout)
            _sweep(q, f, b, tables_of(tiles, tiles.tables[layout], example, layout), rho, maximise)


@kernel
def sweeps_vjp(
    tiles, layout, seen, before, after, active, maximise, d_state, d_unary, d_tables, scratch, d_q, d_b_before
):
    """Undo the sweeps of one layout, which had `seen` the messages of the other.

    Adds to the adjoints of the potentials; `d_q` and `d_b_before` must be zeros.
    """
    other = 1 - layout
    for example in range(len(active)):
        if active[example]:
            rho, rho_other = tiles.rho[example, layout], tiles.rho[example, other]
            q, dq = array_of(tiles, scratch, example, layout), array_of(tiles, d_q, example, layout)
            f, b = messages_of(tiles, seen, example, other)
            cross(f, b, rho_other, array_of(tiles, tiles.unary[other], example, other), q)
            f, b = messages_of(tiles, after, example, layout)
            d_f, d_b = messages_of(tiles, d_state, example, layout)
            _, b_old = messages_of(tiles, before, example, layout)
            d_b_old = array_of(tiles, d_b_before, example, layout)
            tables = tables_of(tiles, tiles.tables[layout], example, layout)
            d_inside = tables_of(tiles, d_tables, example, layout)
            _sweep_vjp(q, f, b, b_old, tables, rho, maximise, d_f, d_b, dq, d_b_old, d_inside)
            known = array_of(tiles, d_unary, example, layout)
            _settle(dq.reshape(-1), d_b_old.reshape(-1), known.reshape(-1), d_f.reshape(-1), d_b.reshape(-1))
            d_f, d_b = messages_of(tiles, d_state, example, other)
            cross_vjp(dq, rho_other, d_f, d_b)


@vector_kernel
def _settle(d_q, d_b_before, d_unary, d_f, d_b):
    """Of the messages before a sweep, only `b` went into it."""
    for i in range(len(d_q)):
        d_unary[i] += d_q[i]
        d_f[i] = 0.0
        d_b[i] = d_b_before[i]
