"""Joint effects of the messages of one direction on the other directions, and their adjoints.

The factor `q` of a site in one direction is exp(theta) times the joint effects of the messages of all other
directions. With four neighbours there is one other direction. With eight, the joint effects are kept in
`JointEffects`. Lanes without a line keep the 1 (adjoints the 0) that they were filled with.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.layout import (
    COLUMNS,
    FALLING,
    ROWS,
    Weights,
    array_of,
    messages_of,
    repeat_weights,
    slope_of,
    transpose,
    weights_of,
)
from skcrf.inference._lattice.message import Joint, add_weighted, cross, cross_vjp, joint_effect, work_in
from skcrf.inference._lattice.vector import shifted, wide_address


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
def _joint_effect(f, b, rho, factor, out, scratch):
    """Compute the joint effect of all messages of a direction, times a factor."""
    n_tiles, positions, n_values, lanes = f.shape
    size = n_values * lanes
    work, rho = work_in(wide_address(scratch.work), size), repeat_weights(rho, f.shape)
    for t in range(n_tiles):
        rho_t = Weights(rho.common, wide_address(rho.by_lane[t]))
        for at in range(t * positions * size, (t + 1) * positions * size, size):
            joint = Joint(shifted(wide_address(factor), at), shifted(wide_address(out), at))
            joint_effect(wide_address(f), wide_address(b), at, rho_t, work, joint)


@kernel
def update_effect(tiles, direction, state, example, effects, scratch):
    """Recompute the joint effect of a direction; `columns` needs an up-to-date `rows`."""
    width = tiles.shapes[example, 1]
    f, b = messages_of(tiles, state, example, direction)
    rho, effect = weights_of(tiles, example, direction), array_of(tiles, effects[direction], example, COLUMNS)
    if direction == ROWS:
        unary = array_of(tiles, tiles.unary[ROWS], example, ROWS)
        cross(f, b, repeat_weights(rho, f.shape), unary, effect, scratch)
    elif direction == COLUMNS:
        _joint_effect(f, b, rho, array_of(tiles, effects.rows, example, COLUMNS), effect, scratch)
    else:
        rotated = array_of(tiles, effects.scratch, example, COLUMNS)
        _joint_effect(f, b, rho, array_of(tiles, effects.ones, example, COLUMNS), rotated, scratch)
        _rotate(rotated, -slope_of(direction), width, effect)


@kernel
def update_effects(tiles, direction, state, active, effects, scratch):
    """Recompute the joint effect of a direction in the active examples."""
    for example in range(len(active)):
        if active[example]:
            update_effect(tiles, direction, state, example, effects, scratch)


@kernel
def q_of_eight_neighbours(tiles, direction, state, example, effects, q, scratch):
    """Compute q of a direction."""
    product = array_of(tiles, effects.scratch, example, COLUMNS)
    falling = array_of(tiles, effects.falling, example, COLUMNS).reshape(-1)
    rising = array_of(tiles, effects.rising, example, COLUMNS).reshape(-1)
    if direction == ROWS:
        unary = array_of(tiles, tiles.unary[COLUMNS], example, COLUMNS)
        _product_of_three(unary.reshape(-1), falling, rising, product.reshape(-1))
        f, b = messages_of(tiles, state, example, COLUMNS)
        cross(f, b, repeat_weights(weights_of(tiles, example, COLUMNS), f.shape), product, q, scratch)
    elif direction == COLUMNS:
        rows = array_of(tiles, effects.rows, example, COLUMNS)
        _product_of_three(rows.reshape(-1), falling, rising, q.reshape(-1))
    else:
        rows_and_columns = array_of(tiles, effects.columns, example, COLUMNS).reshape(-1)
        _product(rows_and_columns, rising if direction == FALLING else falling, product.reshape(-1))
        _rotate(product, slope_of(direction), tiles.shapes[example, 1], q)


@kernel
def to_columns(tiles, direction, example, d_q, out):
    """Copy the adjoint of q of a direction to columns."""
    if direction == ROWS:
        transpose(d_q, out)
    else:
        _rotate(d_q, -slope_of(direction), tiles.shapes[example, 1], out)


@kernel
def effects_vjp(tiles, direction, active, d_effect, d_state, rotated, scratch):
    """Pull the adjoint of a joint effect, by columns, back to the messages of its direction.

    Adds to the adjoint of f; that of b is stored as the difference. `rotated` is 0 where lanes have no line.
    """
    for example in range(len(active)):
        if active[example]:
            d_f, _ = messages_of(tiles, d_state, example, direction)
            d_joint, rho = array_of(tiles, d_effect, example, COLUMNS), weights_of(tiles, example, direction)
            if direction == ROWS:
                cross_vjp(d_joint, rho, d_f, scratch)
                continue
            if direction > COLUMNS:
                by_lines = array_of(tiles, rotated, example, COLUMNS)
                _rotate(d_joint, slope_of(direction), tiles.shapes[example, 1], by_lines)
                d_joint = by_lines
            n_tiles, positions, n_values, lanes = d_f.shape
            rho, size = repeat_weights(rho, d_f.shape), n_values * lanes
            for t in range(n_tiles):
                for at in range(t * positions * size, (t + 1) * positions * size, size):
                    values, out = shifted(wide_address(d_joint), at), shifted(wide_address(d_f), at)
                    add_weighted(values, wide_address(rho.by_lane[t]), size, out)
