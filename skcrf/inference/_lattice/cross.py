"""Effects of the messages of one direction on the lines of the others.

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
    ROWS,
    array_of,
    messages_of,
    repeated_weights,
    slope_of,
    transpose,
    weights_of,
)
from skcrf.inference._lattice.message import joint, joint_vjp

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


@vector_kernel
def _transpose_block(block, out):
    """Transpose a block of a tile: from (line, labels and lanes) to (lane, label, line)."""
    n_lanes, n_values, _ = out.shape
    lanes = (block.shape[1] - _PADDING) // n_values
    for lane in range(n_lanes):
        for x in range(n_values):
            for i in range(len(block)):
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
            rows = block[: min(lanes_across, positions - first)]
            joint(f_t, b_t, rho_t, unary_t, first, rows)
            _transpose_block(rows, q[s, t * lanes : min((t + 1) * lanes, n_lines)])


@kernel
def cross_vjp(d_q, rho, d_f, d_b):
    """Pull the adjoint of q back to the messages of the other of rows and columns; adds to theirs."""
    n_tiles, _, n_values, lanes = d_f.shape
    n_across, n_lines, _, lanes_across = d_q.shape
    for s in range(n_across):
        for i in range(min(lanes_across, d_f.shape[1] - s * lanes_across)):
            for t in range(n_tiles):
                for x in range(n_values):
                    for lane in range(min(lanes, n_lines - t * lanes)):
                        value = rho.by_lane[t * lanes + lane] * d_q[s, t * lanes + lane, x, i]
                        d_f[t, s * lanes_across + i, x, lane] += value
                        d_b[t, s * lanes_across + i, x, lane] += value


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
