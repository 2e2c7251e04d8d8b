"""Sweeps of messages along the lines of a direction, there and back, and their derivatives."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.effects import q_of_eight_neighbours, to_columns, update_effect
from skcrf.inference._lattice.layout import (
    COLUMNS,
    RISING,
    ROWS,
    Weights,
    array_of,
    messages_of,
    repeat_weights,
    seam_line,
    set_seam,
    slope_of,
    tables_of,
    weights_of,
)
from skcrf.inference._lattice.message import (
    PADDING,
    RATIO,
    Across,
    AdjointAcross,
    Adjoints,
    Joint,
    OwnTables,
    PottsTables,
    SharedTable,
    Site,
    cross_tile,
    fill,
    joint_effect,
    put_weighted_block,
    send_ratio,
    transpose_block,
    undo_ratio,
    update_back,
    update_there,
    work_in,
)
from skcrf.inference._lattice.product import Lists, add_lists, add_to_own, cavities_and_inverses, send, undo
from skcrf.inference._lattice.vector import load, prefetch, put, shifted, total, wide_address, width_of

# Bytes of a list of messages whose products fit the cache together with their sums; where those alone are
# large, sums are rather loaded seldom.
LIST_BYTES, MOST_LABELS, LONG_LIST = 8192, 9, 24

# Positions ahead of a sweep towards the first position that are loaded into the cache: processors foresee
# accesses in rising order only.
AHEAD = 4


class Lines(NamedTuple):
    """Arrays along the lines of a direction of one example: (tile, position, label, lane).

    Attributes
    ----------
    q : ndarray
        The factor of each site.
    f, b : ndarray
        Messages after the sweep.
    b_before : ndarray
        Messages b before it.
    """

    q: np.ndarray
    f: np.ndarray
    b: np.ndarray
    b_before: np.ndarray


class Course(NamedTuple):
    """Tables and weights along the lines of a direction of one example.

    Attributes
    ----------
    tables : ndarray
        Tables, see `Tiles`.
    rho : Weights
        Weights, repeated for each number of a message.
    slope, width : int
        Columns that a line moves to the right per position, and those of the image.
    """

    tables: np.ndarray
    rho: Weights
    slope: int
    width: int


@kernel
def _course(tiles, direction, example, f):
    tables = tables_of(tiles, tiles.tables[direction], example, direction)
    rho = repeat_weights(weights_of(tiles, example, direction), f.shape)
    return Course(tables, rho, slope_of(direction), tiles.shapes[example, 1])


@kernel
def _table_between(tables, tile, position, to_first):
    """Find the table between a position and the next, for messages to the first of them or to the second."""
    if tables.ndim == 3:
        return SharedTable(wide_address(tables[0] if to_first else tables[1]))
    if tables.ndim == 4:
        n_gaps, lanes = tables.shape[1], tables.shape[3]
        gap = tile * n_gaps + min(position, n_gaps - 1)
        return PottsTables(shifted(wide_address(tables), gap * 2 * lanes), 0, lanes)
    _, n_gaps, n_labels, _, lanes = tables.shape
    gap = tile * n_gaps + min(position, n_gaps - 1)
    return OwnTables(shifted(wide_address(tables), gap * n_labels * n_labels * lanes), not to_first)


@kernel
def _joint_at(across, at, row):
    """Find the addresses for the joint effect of a site, if there is one."""
    if len(across) > 0:
        return Joint(shifted(wide_address(across.unary), at), row)
    return ()


@kernel
def _sweep_tile(t, lines, course, mode, across, scratch):
    """Send messages along the lines of a tile to the end, then back; `across` is empty with diagonals."""
    _, positions, n_values, lanes = lines.f.shape
    size, first = n_values * lanes, t * positions * n_values * lanes
    work, rho = (
        work_in(wide_address(scratch.work), size),
        Weights(course.rho.common, wide_address(course.rho.by_lane[t])),
    )
    q, f, b = wide_address(lines.q), wide_address(lines.f), wide_address(lines.b)
    lines.f[t, 0] = 1.0
    lines.b[t, positions - 1] = 1.0
    there, back = Site(q, f, wide_address(lines.b_before)), Site(q, b, f)
    for gap in range(positions - 1):
        table, at = _table_between(course.tables, t, gap, False), first + gap * size
        if mode is RATIO:
            send_ratio(table, there, at, rho, work, (), at + size)
        else:
            send(table, mode, there, at, rho, work, (), at + size)
        if course.slope != 0:
            line = seam_line(course.slope, course.width, gap)
            set_seam(lines.f[t, gap + 1], t * lanes, line, 1.0)
    block, step, width = wide_address(scratch.block), size + PADDING, width_of(f)
    if len(across) > 0:
        fill(block, width * step, 1.0)
    for p in range(positions - 1, -1, -1):
        at = first + p * size
        joint = _joint_at(across, at, shifted(block, p % width * step))
        if len(across) > 0:
            prefetch(joint.factor, -AHEAD * size, size)
        if p == 0:
            if len(across) > 0:
                joint_effect(b, f, at, rho, work, joint)
        else:
            table = _table_between(course.tables, t, p - 1, True)
            if mode is RATIO:
                send_ratio(table, back, at, rho, work, joint, at - size)
            else:
                send(table, mode, back, at, rho, work, joint, at - size)
            if course.slope != 0:
                line = seam_line(course.slope, course.width, p - 1)
                set_seam(lines.b[t, p - 1], t * lanes, line, 1.0)
        if len(across) > 0 and p % width == 0:
            transpose_block(block, step, lanes, p, t * lanes, across.q)


@kernel
def sweep(tiles, direction, before, after, active, mode, q, effects, scratch):
    """Sweep one direction of the active examples, then recompute its joint effect.

    `q` has one array per direction. `effects` is None without diagonals: then kernels are compiled without
    the code for them, `q` of the direction must be up to date, and that of the other becomes so.
    """
    for example in range(len(active)):
        if active[example]:
            q_lines = array_of(tiles, q[direction], example, direction)
            f, b = messages_of(tiles, after, example, direction)
            _, b_before = messages_of(tiles, before, example, direction)
            lines, course = Lines(q_lines, f, b, b_before), _course(tiles, direction, example, f)
            if effects is None:
                other = 1 - direction
                unary = array_of(tiles, tiles.unary[direction], example, direction)
                across = Across(unary, array_of(tiles, q[other], example, other))
                for t in range(len(f)):
                    _sweep_tile(t, lines, course, mode, across, scratch)
            else:
                seen = before if direction == ROWS else after  # other directions were swept before it
                q_of_eight_neighbours(tiles, direction, seen, example, effects, q_lines, scratch)
                for t in range(len(f)):
                    _sweep_tile(t, lines, course, mode, (), scratch)
                if direction < RISING:
                    update_effect(tiles, direction, after, example, effects, scratch)


# Derivatives


@kernel
def _lists(scratch, tables, mode, positions, size):
    """Divide memory for lists: as many messages as fit the cache, or all of a line for own tables."""
    length = 0
    if mode is not RATIO:
        length = LONG_LIST if tables.shape[1] > MOST_LABELS else max(1, LIST_BYTES // (8 * size))
        if tables.ndim > 3:
            length = positions + 1
    memory = wide_address(scratch.lists)
    return Lists(memory, shifted(memory, length * size), length)


class Tile(NamedTuple):
    """Number and shape of a tile."""

    number: int
    positions: int
    n_values: int
    lanes: int


class Outs(NamedTuple):
    """Where the adjoint of q goes: a block that is transposed, or with diagonals all positions of the tile.

    Attributes
    ----------
    place : address
        The first row.
    step, rows : int
        Numbers per row, and the number of rows.
    """

    place: np.ndarray
    step: int
    rows: int


@kernel
def _adjoint_of(d_tables, tables, tile, gap):
    """Find the adjoint of the table between a position and the next."""
    if tables.ndim == 3:
        return wide_address(d_tables)
    return _table_between(d_tables, tile.number, gap, True).place


@kernel
def _forget_seam(work, tile, course, gap):
    """Set the adjoint of a message to zero at the seam of a line, where there is no message."""
    if course.slope != 0:
        lane = seam_line(course.slope, course.width, gap) - tile.number * tile.lanes
        if 0 <= lane < tile.lanes:
            for x in range(tile.n_values):
                put(0.0, work.d, x * tile.lanes + lane)


@kernel
def _undo_message(tables, tile, gap, to_first, message, work, lists, n):
    """Undo the message between a position and the next; its cavity is number n of the lists."""
    table = _table_between(tables, tile.number, gap, to_first)
    back = _table_between(tables, tile.number, gap, not to_first)
    at, receiver = n * work.size, gap if to_first else gap + 1
    inverses = shifted(work.inverses, receiver % 2 * work.size)
    undo(table, back, message, work, shifted(lists.c, at), inverses, shifted(lists.d_sum, at))


@kernel
def _undo_back(tile, site, course, mode, adjoints, d_tables, lists, work):
    """Undo the messages back along the lines of a tile, last first: those to the first positions."""
    size, is_shared, n = work.size, course.tables.ndim == 3, 0
    rho = Weights(course.rho.common, wide_address(course.rho.by_lane[tile.number]))
    for p in range(tile.positions):
        at = p * size
        if mode is RATIO:
            c = work.d  # not used
            if p > 0:
                table = _table_between(course.tables, tile.number, p - 1, True)
                undo_ratio(
                    table, False, site, at, rho, work, _adjoint_of(d_tables, course.tables, tile, p - 1)
                )
        else:
            c = shifted(lists.c, n * size)
            cavities_and_inverses(site, at, rho, work, c, shifted(work.inverses, p % 2 * size))
            if p > 0:
                message = shifted(site.f, at - size)
                _undo_message(course.tables, tile, p - 1, True, message, work, lists, n)
                n += 1
                if is_shared and n == lists.length:
                    add_lists(n, tile.n_values, True, lists, wide_address(d_tables))
                    n = 0
        if p == 0:
            fill(work.sums, size, 0.0)
        update_back(adjoints, at, mode, rho, work, c)
        _forget_seam(work, tile, course, p)
    if mode is not RATIO and is_shared:
        add_lists(n, tile.n_values, True, lists, wide_address(d_tables))


@kernel
def _undo_there(tile, site, course, mode, adjoints, d_tables, lists, work, outs, across):
    """Undo the messages to the ends of the lines of a tile, last first.

    `across` is empty with diagonals.
    """
    size, is_shared, n = work.size, course.tables.ndim == 3, 0
    rho = Weights(course.rho.common, wide_address(course.rho.by_lane[tile.number]))
    for p in range(tile.positions - 1, -1, -1):
        at = p * size
        prefetch(site.b, at - AHEAD * size, size)
        prefetch(adjoints.unary, at - AHEAD * size, size)
        if mode is RATIO:
            c = work.d  # not used
            if p < tile.positions - 1:
                table = _table_between(course.tables, tile.number, p, False)
                undo_ratio(table, True, site, at, rho, work, _adjoint_of(d_tables, course.tables, tile, p))
        else:
            if not is_shared:
                n = lists.length - 1
            c = shifted(lists.c, n * size)
            cavities_and_inverses(site, at, rho, work, c, shifted(work.inverses, p % 2 * size))
            if p < tile.positions - 1:
                message = shifted(site.f, at + size)
                _undo_message(course.tables, tile, p, False, message, work, lists, n)
                if is_shared:
                    n += 1
                    if n == lists.length:
                        add_lists(n, tile.n_values, False, lists, wide_address(d_tables))
                        n = 0
                else:
                    table = _table_between(course.tables, tile.number, p, True)
                    d_table = _adjoint_of(d_tables, course.tables, tile, p)
                    add_to_own(table, tile.n_values, lists, n * size, at, d_table)
        if p == tile.positions - 1:
            fill(work.sums, size, 0.0)
        update_there(adjoints, at, mode, rho, work, c, shifted(outs.place, p % outs.rows * outs.step))
        _forget_seam(work, tile, course, p - 1)
        if len(across) > 0 and p % outs.rows == 0:
            line, weights = tile.number * tile.lanes, wide_address(across.weights)
            put_weighted_block(outs.place, outs.step, tile.lanes, p, line, weights, across.d_f, across.add)
    if mode is not RATIO and is_shared:
        add_lists(n, tile.n_values, False, lists, wide_address(d_tables))


@kernel
def _undo_tile(tile, q, lines, course, mode, d_lines, d_tables, scratch, outs, across):
    """Undo the sweep of a tile: adds to the adjoints of the tables, replaces those of the messages."""
    size = tile.n_values * tile.lanes
    first = tile.number * tile.positions * size
    f, b = shifted(wide_address(lines.f), first), shifted(wide_address(lines.b), first)
    b_before = shifted(wide_address(lines.b_before), first)
    d_f, d_b = shifted(wide_address(d_lines.f), first), shifted(wide_address(d_lines.b), first)
    work = work_in(wide_address(scratch.work), size)
    lists = _lists(scratch, course.tables, mode, tile.positions, size)
    d_q = shifted(wide_address(scratch.tile), tile.positions * size)
    adjoints = Adjoints(d_f, d_b, d_q, shifted(wide_address(d_lines.unary), first))
    _undo_back(tile, Site(q, b, f), course, mode, adjoints, d_tables, lists, work)
    _undo_there(tile, Site(q, f, b_before), course, mode, adjoints, d_tables, lists, work, outs, across)


@kernel
def sweep_vjp(tiles, direction, before, after, active, mode, d_state, adjoint, effects):
    """Undo the sweep of one direction.

    Adds to the adjoints of the potentials. Without diagonals, adds the adjoint of q to the messages of the
    other direction too; with them, leaves it in `d_q_by_columns`.
    """
    seen = before if direction == ROWS else after  # other directions were swept before it
    scratch = adjoint.scratch
    for example in range(len(active)):
        if not active[example]:
            continue
        f, b = messages_of(tiles, after, example, direction)
        _, b_before = messages_of(tiles, before, example, direction)
        d_f, d_b = messages_of(tiles, d_state, example, direction)
        d_unary = array_of(tiles, adjoint.d_unary[direction], example, direction)
        lines, d_lines = Lines(f, f, b, b_before), Adjoints(d_f, d_b, d_f, d_unary)
        course = _course(tiles, direction, example, f)
        d_tables = tables_of(tiles, adjoint.d_tables[direction], example, direction)
        sums = _sums_of(d_tables, scratch)
        n_tiles, positions, n_values, lanes = f.shape
        size, width = n_values * lanes, width_of(wide_address(f))
        if effects is None:
            other, is_new = 1 - direction, adjoint.is_new[example]
            adjoint.is_new[example] = False
            f_seen, b_seen = messages_of(tiles, seen, example, other)
            rho = weights_of(tiles, example, other)
            rho_seen = repeat_weights(rho, f_seen.shape)
            unary = array_of(tiles, tiles.unary[other], example, other)
            d_f_seen, _ = messages_of(tiles, d_state, example, other)
            q = scratch.tile[: positions * size].reshape((1, positions, n_values, lanes))
            for t in range(n_tiles):
                cross_tile(f_seen, b_seen, rho_seen, unary, t, q, scratch)
                tile, outs = (
                    Tile(t, positions, n_values, lanes),
                    Outs(wide_address(scratch.block), size + PADDING, width),
                )
                _clear_block(outs)
                across = AdjointAcross(d_f_seen, rho.by_lane, is_new)
                _undo_tile(tile, wide_address(q), lines, course, mode, d_lines, sums, scratch, outs, across)
        else:
            q = array_of(tiles, adjoint.q[direction], example, direction)
            q_of_eight_neighbours(tiles, direction, seen, example, effects, q, scratch)
            d_q = array_of(tiles, adjoint.d_q, example, direction)
            for t in range(n_tiles):
                first = t * positions * size
                tile, outs = (
                    Tile(t, positions, n_values, lanes),
                    Outs(shifted(wide_address(d_q), first), size, positions),
                )
                q_tile = shifted(wide_address(q), first)
                _undo_tile(tile, q_tile, lines, course, mode, d_lines, sums, scratch, outs, ())
            d_f[:] = 0.0
            by_columns = array_of(tiles, adjoint.d_q_by_columns[direction], example, COLUMNS)
            to_columns(tiles, direction, example, d_q, by_columns)
        _add_totals(sums, d_tables)


@kernel
def _clear_block(outs):
    fill(outs.place, outs.rows * outs.step, 0.0)


@kernel
def _sums_of(d_tables, scratch):
    """Return the memory for the adjoints of tables: that of a shared table is summed by lane at first."""
    if d_tables.ndim == 3:
        scratch.sums[:] = 0.0
        return scratch.sums
    return d_tables


@vector_kernel
def _add_totals(sums, d_tables):
    """Add the sums over lanes to the adjoint of a shared table."""
    if d_tables.ndim == 3:
        n = d_tables.shape[1]
        for x in range(n):
            for z in range(n):
                at = (x * n + z) * width_of(wide_address(sums))
                d_tables[0, x, z] += total(load(wide_address(sums), at))
