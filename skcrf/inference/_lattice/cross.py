"""What the layouts of a lattice say to each other: products of opposite messages, moved to crossing lines.

`q` of a layout is exp(theta) times what the messages of all other layouts say. With four neighbours there is
one other. With eight, what was said is kept as four arrays in layout 1, `parts`: exp(theta) times that of
layout 0, the same times that of layout 1, and that of layouts 2 and 3; a fifth one is scratch, and a sixth is
1 everywhere. Where lanes have no line, what is made by moving stays 1, and adjoints 0.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_kernel
from skcrf.inference._lattice.layout import array_of, messages_of, rho_of, rho_of_tile, slope
from skcrf.inference._lattice.message import joint, joint_vjp

# Keeps the rows of a block from falling on the same lines of the cache.
_PADDING = 8


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
        unary_t, rho_t = unary[t].reshape(positions, -1), rho_of_tile(rho, t, lanes, n_rows)
        for s in range(n_across):
            first = s * lanes_across
            turned = block[: min(lanes_across, positions - first)]
            joint(f_t, b_t, rho_t, unary_t, first, turned)
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
                        value = rho[1][t * lanes + lane] * d_q[s, t * lanes + lane, x, i]
                        d_f[t, s * lanes_across + i, x, lane] += value
                        d_b[t, s * lanes_across + i, x, lane] += value


@kernel
def swap(source, out):
    """Copy an array between layouts 0 and 1."""
    n_tiles, positions, n_rows, lanes = out.shape
    n_across, n_lines, _, lanes_across = source.shape
    for s in range(n_across):
        for i in range(min(lanes_across, positions - s * lanes_across)):
            for t in range(n_tiles):
                for x in range(n_rows):
                    for lane in range(min(lanes, n_lines - t * lanes)):
                        out[t, s * lanes_across + i, x, lane] = source[s, t * lanes + lane, x, i]


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
    """Copy from layout 1 to that of a slope; with the opposite slope, back again."""
    _, positions, n_rows, lanes = out.shape
    for p in range(positions):
        line, column = 0, (slope * p) % width
        while line < width:
            t, s = line // lanes, column // lanes
            i, j = line - t * lanes, column - s * lanes
            n = min(min(lanes - i, lanes - j), min(width - line, width - column))
            for x in range(n_rows):
                _copy(source[s, p, x, j : j + n], out[t, p, x, i : i + n])
            line, column = line + n, column + n
            if column == width:
                column = 0


@kernel
def _joints(f, b, rho, factor, out):
    n_tiles, positions, n_rows, lanes = f.shape
    for t in range(n_tiles):
        f_t, b_t = f[t].reshape(positions, -1), b[t].reshape(positions, -1)
        factor_t, out_t = factor[t].reshape(positions, -1), out[t].reshape(positions, -1)
        joint(f_t, b_t, rho_of_tile(rho, t, lanes, n_rows), factor_t, 0, out_t)


@kernel
def hear(tiles, layout, state, example, parts):
    """Renew the part of a layout; that of layout 1 after that of layout 0."""
    width = tiles.shapes[example, 1]
    f, b = messages_of(tiles, state, example, layout)
    rho, part = rho_of(tiles, example, layout), array_of(tiles, parts[layout], example, 1)
    if layout == 0:
        cross(f, b, rho, array_of(tiles, tiles.unary[0], example, 0), part)
    elif layout == 1:
        _joints(f, b, rho, array_of(tiles, parts[0], example, 1), part)
    else:
        scratch = array_of(tiles, parts[4], example, 1)
        _joints(f, b, rho, array_of(tiles, parts[5], example, 1), scratch)
        _rotate(scratch, -slope(layout), width, part)


@kernel
def listen(tiles, layout, state, example, parts, q):
    """Fill in q of a layout: of two where `parts` is None, else of four."""
    if parts is None:
        _listen_to_other(tiles, layout, state, example, q)
    else:
        _listen_to_all(tiles, layout, state, example, parts, q)


@inlined_kernel
def _listen_to_other(tiles, layout, state, example, q):
    f, b = messages_of(tiles, state, example, 1 - layout)
    unary = array_of(tiles, tiles.unary[1 - layout], example, 1 - layout)
    cross(f, b, rho_of(tiles, example, 1 - layout), unary, q)


@kernel
def _listen_to_all(tiles, layout, state, example, parts, q):
    scratch = array_of(tiles, parts[4], example, 1)
    falling = array_of(tiles, parts[2], example, 1).reshape(-1)
    rising = array_of(tiles, parts[3], example, 1).reshape(-1)
    if layout == 0:
        unary = array_of(tiles, tiles.unary[1], example, 1)
        _product_of_three(unary.reshape(-1), falling, rising, scratch.reshape(-1))
        f, b = messages_of(tiles, state, example, 1)
        cross(f, b, rho_of(tiles, example, 1), scratch, q)
    elif layout == 1:
        rows = array_of(tiles, parts[0], example, 1)
        _product_of_three(rows.reshape(-1), falling, rising, q.reshape(-1))
    else:
        rows_and_columns = array_of(tiles, parts[1], example, 1).reshape(-1)
        _product(rows_and_columns, rising if layout == 2 else falling, scratch.reshape(-1))
        _rotate(scratch, slope(layout), tiles.shapes[example, 1], q)


@kernel
def gather(tiles, layout, example, d_q, out):
    """Bring the adjoint of q of a layout to layout 1."""
    if layout == 0:
        swap(d_q, out)
    else:
        _rotate(d_q, -slope(layout), tiles.shapes[example, 1], out)


@kernel
def tell(tiles, layout, active, d_part, d_state, scratch):
    """Add what an adjoint in layout 1, of what the messages of some layout say, means for these messages.

    `scratch` is 0 where lanes have no line, and None without diagonals.
    """
    for example in range(len(active)):
        if active[example]:
            d_f, d_b = messages_of(tiles, d_state, example, layout)
            d_joint, rho = array_of(tiles, d_part, example, 1), rho_of(tiles, example, layout)
            if layout == 0:
                cross_vjp(d_joint, rho, d_f, d_b)
                continue
            if scratch is not None and layout > 1:
                moved = array_of(tiles, scratch, example, 1)
                _rotate(d_joint, slope(layout), tiles.shapes[example, 1], moved)
                d_joint = moved
            n_tiles, positions, n_rows, lanes = d_f.shape
            for t in range(n_tiles):
                rho_t, d_t = rho_of_tile(rho, t, lanes, n_rows), d_joint[t].reshape(positions, -1)
                joint_vjp(d_t, rho_t, d_f[t].reshape(positions, -1))
                joint_vjp(d_t, rho_t, d_b[t].reshape(positions, -1))
