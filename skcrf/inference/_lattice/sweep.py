"""Sweeps of messages along the lines of a direction, there and back, and their derivatives."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._lattice.effects import q_of_eight_neighbours, to_columns, update_effect
from skcrf.inference._lattice.layout import (
    COLUMNS,
    RISING,
    ROWS,
    OwnTables,
    PottsTables,
    SharedTable,
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
    Site,
    fill,
    joint_effect,
    keep,
    put_weighted_block,
    send_ratio,
    transpose_block,
    undo_ratio,
    update_back,
    update_there,
    work_in,
)
from skcrf.inference._lattice.product import add_outer, add_to_own, keep_scaled, send, undo
from skcrf.inference._lattice.vector import prefetch, put, shifted, wide_address, width_of

# Positions ahead of a sweep that are loaded into the cache: processors foresee few accesses by themselves.
AHEAD = 4
# Numbers of a state that stays in the cache from one direction to the next.
_CACHED = 2**20


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


class Record(NamedTuple):
    """Addresses of the cavities of a sweep, from which its derivative is computed.

    Those of more than one number are scaled such that the table times the cavity is the normalised message.

    Attributes
    ----------
    f, b : address
        Cavities of the messages to the next position and to the one before, at the site that sends them.
    is_kept : bool
        Whether to keep them.
    """

    f: np.ndarray
    b: np.ndarray
    is_kept: bool


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
def _record_of(tiles, record, example, direction):
    """Find the record of a direction; if none is wanted, it has no numbers."""
    if len(record) == 0:
        return Record(wide_address(record), wide_address(record), False)
    f, b = messages_of(tiles, record, example, direction)
    return Record(wide_address(f), wide_address(b), True)


@kernel
def _send(table, mode, site, at, rho, work, joint, to, cavities, is_kept):
    """Compute the messages from the sites at one place to another."""
    if mode is RATIO:
        send_ratio(table, site, at, rho, work, joint, to)
        if is_kept:
            keep(work, cavities, at)
    else:
        send(table, mode, site, at, rho, work, joint, to)
        if is_kept:
            keep_scaled(work, cavities, at)


@kernel
def _sweep_tile(t, lines, course, mode, across, scratch, record):
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
        _send(table, mode, there, at, rho, work, (), at + size, record.f, record.is_kept)
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
            _send(table, mode, back, at, rho, work, joint, at - size, record.b, record.is_kept)
            if course.slope != 0:
                line = seam_line(course.slope, course.width, p - 1)
                set_seam(lines.b[t, p - 1], t * lanes, line, 1.0)
        if len(across) > 0 and p % width == 0:
            transpose_block(block, step, lanes, p, t * lanes, across.q)


@kernel
def sweep(tiles, direction, before, after, active, mode, q, effects, scratch, record):
    """Sweep one direction of the active examples, then recompute its joint effect.

    `q` has one array per direction. `effects` is None without diagonals: then kernels are compiled without
    the code for them, `q` of the direction must be up to date, and that of the other becomes so. `record` has
    the layout of a state; it has no numbers where none is wanted.
    """
    for example in range(len(active)):
        if active[example]:
            q_lines = array_of(tiles, q[direction], example, direction)
            f, b = messages_of(tiles, after, example, direction)
            _, b_before = messages_of(tiles, before, example, direction)
            lines, course = Lines(q_lines, f, b, b_before), _course(tiles, direction, example, f)
            kept = _record_of(tiles, record, example, direction)
            if effects is None:
                other = 1 - direction
                unary = array_of(tiles, tiles.unary[direction], example, direction)
                across = Across(unary, array_of(tiles, q[other], example, other))
                for t in range(len(f)):
                    _sweep_tile(t, lines, course, mode, across, scratch, kept)
            else:
                seen = before if direction == ROWS else after  # other directions were swept before it
                q_of_eight_neighbours(tiles, direction, seen, example, effects, q_lines, scratch)
                for t in range(len(f)):
                    _sweep_tile(t, lines, course, mode, (), scratch, kept)
                if direction < RISING:
                    update_effect(tiles, direction, after, example, effects, scratch)


# Derivatives


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


class Lists(NamedTuple):
    """Lists of adjoints of products, which the adjoints of tables are computed from.

    Attributes
    ----------
    place : address
        Memory of the lists.
    length : int
        Messages in a full list; with a table per edge, all those of a line.
    """

    place: np.ndarray
    length: int


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
def _undo_back(tile, c, course, mode, adjoints, d_tables, lists, work):
    """Undo the messages back along the lines of a tile, last first: those to the first positions."""
    size, rho = work.size, Weights(course.rho.common, wide_address(course.rho.by_lane[tile.number]))
    fill(work.sums, size, 0.0)
    update_back(adjoints, 0, mode, rho, work, work.sums)
    for p in range(1, tile.positions):
        at = p * size
        _forget_seam(work, tile, course, p - 1)
        prefetch(c, at + AHEAD * size, size)
        table = _table_between(course.tables, tile.number, p - 1, True)
        if mode is RATIO:
            d_table = _adjoint_of(d_tables, course.tables, tile, p - 1)
            undo_ratio(table, False, shifted(c, at), work, d_table)
        else:
            there, n = _table_between(course.tables, tile.number, p - 1, False), (p - 1) % lists.length
            undo(table, there, shifted(c, at), work, shifted(lists.place, n * size))
            if course.tables.ndim == 3 and (n == lists.length - 1 or p == tile.positions - 1):
                first = shifted(c, at - n * size)
                add_outer(lists.place, first, n + 1, tile.n_values, wide_address(d_tables))
        update_back(adjoints, at, mode, rho, work, shifted(c, at))


@kernel
def _undo_there(tile, record, course, mode, adjoints, d_tables, lists, work, outs, across):
    """Undo the messages to the ends of the lines of a tile, last first.

    `across` is empty with diagonals.
    """
    size, rho = work.size, Weights(course.rho.common, wide_address(course.rho.by_lane[tile.number]))
    c = record.f
    for p in range(tile.positions - 1, -1, -1):
        at = p * size
        prefetch(c, at - AHEAD * size, size)
        if adjoints.adds:
            prefetch(adjoints.unary, at - AHEAD * size, size)
        if p == tile.positions - 1:
            fill(work.sums, size, 0.0)
        else:
            table = _table_between(course.tables, tile.number, p, False)
            d_table = _adjoint_of(d_tables, course.tables, tile, p)
            _forget_seam(work, tile, course, p)
            if mode is RATIO:
                undo_ratio(table, True, shifted(c, at), work, d_table)
            else:
                back, n = _table_between(course.tables, tile.number, p, True), p % lists.length
                if course.tables.ndim == 3:
                    undo(table, back, shifted(c, at), work, shifted(lists.place, n * size))
                    if n == 0:
                        n_messages = min(lists.length, tile.positions - 1 - p)
                        add_outer(shifted(c, at), lists.place, n_messages, tile.n_values, d_table)
                else:
                    d_sum = shifted(lists.place, (lists.length - 1) * size)
                    undo(table, back, shifted(c, at), work, d_sum)
                    d_back = shifted(lists.place, n * size)
                    c_next = shifted(record.b, at + size)
                    add_to_own(back, shifted(c, at), d_sum, c_next, d_back, d_table, tile.n_values)
        sent = shifted(c, at) if p < tile.positions - 1 else work.sums
        update_there(adjoints, at, mode, rho, work, sent, shifted(outs.place, p % outs.rows * outs.step))
        if len(across) > 0 and p % outs.rows == 0:
            put_weighted_block(outs.place, outs.step, tile.lanes, p, tile.number * tile.lanes, across)


@kernel
def _undo_tile(tile, record, course, mode, d_lines, d_tables, scratch, outs, across):
    """Undo the sweep of a tile: adds to the adjoints of the tables, replaces those of the messages.

    In `d_lines`, the adjoints are arrays.
    """
    size = tile.n_values * tile.lanes
    first = tile.number * tile.positions * size
    d_f, d_b = shifted(wide_address(d_lines.f), first), shifted(wide_address(d_lines.b), first)
    work = work_in(wide_address(scratch.work), size)
    lists = Lists(wide_address(scratch.lists), len(scratch.lists) // size)
    unary, shares = shifted(wide_address(d_lines.unary), first), wide_address(d_lines.shares[tile.number])
    adjoints = Adjoints(d_f, d_b, wide_address(scratch.tile), unary, shares, d_lines.adds)
    of_tile = Record(shifted(record.f, first), shifted(record.b, first), True)
    _undo_back(tile, of_tile.b, course, mode, adjoints, d_tables, lists, work)
    _undo_there(tile, of_tile, course, mode, adjoints, d_tables, lists, work, outs, across)


@kernel
def sweep_vjp(tiles, direction, record, active, mode, d_state, adjoint, d_q):
    """Undo the sweep of one direction.

    Adds to the adjoints of the potentials. `d_q` is None without diagonals: then the adjoint of q becomes
    that of messages of the other direction; otherwise it is left in `d_q_by_columns`.
    """
    scratch = adjoint.scratch
    for example in range(len(active)):
        if not active[example]:
            continue
        kept = _record_of(tiles, record, example, direction)
        d_f, d_b = messages_of(tiles, d_state, example, direction)
        d_unary = array_of(tiles, adjoint.d_unary[direction], example, direction)
        course, n_before = _course(tiles, direction, example, d_f), adjoint.n_sweeps[example]
        adjoint.n_sweeps[example] += 1
        # Adjoints of potentials count those of q of both directions. Without diagonals, those of columns are
        # in the adjoints of messages along rows, next to those of marginals when the last rows are undone.
        adds = d_q is not None or n_before == 0 or direction == ROWS
        shares = _shares_of_f(course.rho.by_lane, d_q is None and n_before > 1 and direction == ROWS)
        d_lines = Adjoints(d_f, d_b, d_f, d_unary, shares, adds)
        d_tables = tables_of(tiles, adjoint.d_tables[direction], example, direction)
        sums = _sums_of(d_tables, scratch)
        n_tiles, positions, n_values, lanes = d_f.shape
        size, width = n_values * lanes, width_of(wide_address(d_f))
        if d_q is None:
            other = 1 - direction
            d_f_seen, _ = messages_of(tiles, d_state, example, other)
            weights, streams = weights_of(tiles, example, other).by_lane, len(d_state) > _CACHED
            across = AdjointAcross(d_f_seen, weights, n_before == 0, streams)
            outs = Outs(wide_address(scratch.block), size + PADDING, width)
            for t in range(n_tiles):
                fill(outs.place, outs.rows * outs.step, 0.0)
                tile = Tile(t, positions, n_values, lanes)
                _undo_tile(tile, kept, course, mode, d_lines, sums, scratch, outs, across)
        else:
            d_q_lines = array_of(tiles, d_q, example, direction)
            for t in range(n_tiles):
                outs = Outs(shifted(wide_address(d_q_lines), t * positions * size), size, positions)
                tile = Tile(t, positions, n_values, lanes)
                _undo_tile(tile, kept, course, mode, d_lines, sums, scratch, outs, ())
            d_f[:] = 0.0
            by_columns = array_of(tiles, adjoint.d_q_by_columns[direction], example, COLUMNS)
            to_columns(tiles, direction, example, d_q_lines, by_columns)
        _add_totals(sums, d_tables)


@kernel
def _shares_of_f(weights, counts):
    """Compute the shares of the adjoints of messages f in those of q, which were multiplied by weights."""
    shares = np.empty_like(weights)
    for t in range(weights.shape[0]):
        for i in range(weights.shape[1]):
            shares[t, i] = 1.0 / weights[t, i] if counts else 0.0
    return shares


@kernel
def _sums_of(d_tables, scratch):
    """Return the memory for the adjoints of tables: that of a shared table is summed by lane at first."""
    if d_tables.ndim == 3:
        scratch.sums[:] = 0.0
        return scratch.sums
    return d_tables


@kernel
def _add_totals(sums, d_tables):
    """Add the sums over lanes to the adjoint of a shared table."""
    if d_tables.ndim == 3:
        n, width = d_tables.shape[1], width_of(wide_address(sums))
        for x in range(n):
            for z in range(n):
                first = (x * n + z) * width
                for i in range(first, first + width):
                    d_tables[0, x, z] += sums[i]
