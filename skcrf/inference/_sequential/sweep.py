"""Sequential sweeps over strips: in the order of rows to later neighbours, then back to earlier ones."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._lattice.vector import LANES, WIDTH, address, put
from skcrf.inference._sequential.layout import (
    Shape,
    copy_side,
    fold_sides,
    lanes_between,
    position_of,
    shape_of,
)
from skcrf.inference._sequential.message import (
    RATIO,
    STRIDE,
    Kept,
    OwnTables,
    SharedTable,
    Sites,
    Work,
    add_products,
    add_products_by_lane,
    add_to_incoming,
    beliefs,
    send,
    send_ratio,
    send_ratio_vjp,
    send_vjp,
    transposed,
)

# Positions whose cavities and adjoints are kept, until their products are added to adjoints of shared tables.
_KEPT = 8


class Field(NamedTuple):
    """A lattice and its tables.

    Attributes
    ----------
    shape : Shape
        Size of its arrays.
    height, width : int
        Size of the lattice.
    steps, table_steps : tuple of n_directions ints
        Distance of the later neighbours of a site in the arrays, and in tables by lane.
    tables : tuple of n_directions SharedTable or OwnTables
        The tables of the edges; their targets are the earlier ends.
    """

    shape: Shape
    height: int
    width: int
    steps: tuple
    table_steps: tuple
    tables: tuple


@kernel
def _steps(tables, n):
    """Compute the distance of later neighbours, with `n` numbers per position."""
    if len(tables) == 2:
        return n, n + 1
    return n, 2 * n + 1, 3 * n + 1, n + 1


@kernel
def _table_of(strips, example, tables):
    n = strips.n_labels
    if tables.ndim == 3:
        return SharedTable(address(tables[example]), 0, n, 1)
    first = strips.start[example] // strips.n_values * n * n + 1
    return OwnTables(address(tables), first, n * STRIDE, STRIDE, 1)


@kernel
def tables_of(strips, example, tables):
    """Find the tables of an example."""
    first, second = _table_of(strips, example, tables[0]), _table_of(strips, example, tables[1])
    if len(tables) == 2:
        return first, second
    return first, second, _table_of(strips, example, tables[2]), _table_of(strips, example, tables[3])


@kernel
def field_of(strips, example):
    """Describe an example."""
    height, width = strips.shapes[example]
    shape = shape_of(strips.n_directions, height, width, strips.n_values)
    return Field(
        shape,
        height,
        width,
        _steps(strips.tables, shape.row),
        _steps(strips.tables, strips.n_labels**2 * STRIDE),
        tables_of(strips, example, strips.tables),
    )


@kernel
def sites_of(strips, example, size, unary, later, earlier):
    """Find the arrays of an example; messages to later and earlier nodes may be those of different states."""
    start, n = strips.start[example], strips.n_directions * size
    there, back = 2 * strips.n_directions * start, 2 * strips.n_directions * start + n
    return Sites(
        address(unary[start : start + size]),
        address(later[there : there + n]),
        address(earlier[back : back + n]),
        size,
    )


@kernel
def work_in(memory, n_values):
    """Divide memory of shape (5, n_values * LANES)."""
    return Work(
        address(memory[0]),
        address(memory[1]),
        address(memory[2]),
        address(memory[3]),
        address(memory[4]),
        n_values,
    )


@kernel
def first_and_last(field):
    """Find the first and the last position that has a site."""
    slope = field.shape.slope
    return position_of(slope, 0, 0), position_of(slope, LANES - 1, field.width - 1)


@kernel
def set_outside(messages, field, strip, position, n_values, value):
    """Set the messages of the lanes of a position that have no site."""
    first, end = lanes_between(field.shape.slope, strip, position, (0, field.height), (0, field.width))
    if first == 0 and end == LANES:
        return
    at = (strip * field.shape.positions + position) * field.shape.row + 1
    for direction in range(len(field.steps)):
        for x in range(n_values):
            to = direction * field.shape.size + at + x * STRIDE
            for lane in range(first):
                put(value, messages, to + lane)
            for lane in range(end, LANES):
                put(value, messages, to + lane)


@kernel
def _moved(table, by):
    """Move to the tables of another position; a shared table stays."""
    if len(table) == 4:
        return table
    return OwnTables(table.place, table.first + by, table.target, table.source, table.lane)


@kernel
def _oriented(table, to_later):
    """Swap targets and sources for messages to later neighbours."""
    return transposed(table) if to_later else table


@kernel
def table_at(field, direction, to_later, site, n_labels):
    """Find the table for messages from a site: shared, or by lane."""
    by = site * n_labels * n_labels * STRIDE - (0 if to_later else field.table_steps[direction])
    return _moved(_oriented(field.tables[direction], to_later), by)


@kernel
def _sweep_strip(sites, field, strip, to_later, n_labels, mode, work):
    """Send the messages of all sites of a strip, to later or to earlier neighbours."""
    shape, size = field.shape, field.shape.size
    first, last = first_and_last(field)
    sent, own = (sites.later, sites.earlier) if to_later else (sites.earlier, sites.later)
    for n in range(last - first + 1):
        p = first + n if to_later else last - n
        site = strip * shape.positions + p
        at = site * shape.row + 1
        beliefs(sites, field.steps, at, work)
        for direction in range(len(field.steps)):
            table = table_at(field, direction, to_later, site, n_labels)
            step = field.steps[direction]
            own_at = direction * size + at + (step if to_later else -step)
            if mode is RATIO:
                send_ratio(table, own, own_at, work.belief, sent, direction * size + at)
            else:
                send(table, mode, own, own_at, work, sent, direction * size + at)
        set_outside(sent, field, strip, p, work.n_values, 1.0)


@kernel
def sweep(strips, state, active, mode, memory):
    """Send every message of the active examples once; `memory` is of shape (5, n_values * LANES)."""
    work = work_in(memory, strips.n_values)
    for example in range(len(active)):
        if active[example]:
            field = field_of(strips, example)
            sites = sites_of(strips, example, field.shape.size, strips.unary, state, state)
            start, n = 2 * strips.n_directions * strips.start[example], field.shape.n_strips
            for i in range(2 * n):
                to_later = i < n
                strip = i if to_later else 2 * n - 1 - i
                _sweep_strip(sites, field, strip, to_later, strips.n_labels, mode, work)
                copy_side(strips, field.shape, state, start, strip, to_later)


# Derivatives


class Adjoint(NamedTuple):
    """Adjoints of the tables of an example, and memory to compute them.

    Attributes
    ----------
    tables : tuple of n_directions OwnTables
        Adjoints by lane of a strip, or of a vector for shared tables.
    size : int
        Entries per position, 0 for shared tables.
    kept : Kept
        Cavities and adjoints of sums: of `_KEPT` positions per direction.
    """

    tables: tuple
    size: int
    kept: Kept


@kernel
def _sum_of(d_sums, direction, n):
    return OwnTables(address(d_sums), direction * n * n * WIDTH, n * WIDTH, WIDTH, 0)


@kernel
def _sums_of(d_tables, d_sums, n):
    first, second = _sum_of(d_sums, 0, n), _sum_of(d_sums, 1, n)
    if len(d_tables) == 2:
        return first, second
    return first, second, _sum_of(d_sums, 2, n), _sum_of(d_sums, 3, n)


@kernel
def _adjoint_of(strips, example, d_tables, d_table, d_sums, kept):
    n, kept = strips.n_labels, Kept(address(kept[0]), address(kept[1]))
    if d_table.ndim == 3:
        return Adjoint(_sums_of(d_tables, d_sums, n), 0, kept)
    return Adjoint(tables_of(strips, example, d_tables), n * n * STRIDE, kept)


@kernel
def adjoint_of(strips, example, d_tables, d_sums, kept):
    """Find the adjoints of the tables of an example; those of shared tables are `d_sums`."""
    return _adjoint_of(strips, example, d_tables, d_tables[0], d_sums, kept)


@kernel
def d_table_at(adjoint, field, direction, to_later, site):
    """Find the adjoint of the table for messages from a site."""
    d_table = _oriented(adjoint.tables[direction], to_later)
    if adjoint.size == 0:
        return d_table
    return _moved(d_table, site * adjoint.size - (0 if to_later else field.table_steps[direction]))


@kernel
def add_kept(adjoint, field, to_later, n_kept, n_values):
    """Add the products of all that is kept to the adjoints of shared tables."""
    for direction in range(len(field.steps)):
        d_table = d_table_at(adjoint, field, direction, to_later, 0)
        at = direction * _KEPT * n_values * LANES
        add_products(n_values, n_kept, adjoint.kept.d_sums, adjoint.kept.cavity, at, d_table)


@kernel
def _send_vjp(sites, d_sites, field, adjoint, n_labels, to_later, mode, work, place, n_kept):
    """Pull the adjoints of the messages of a position back; `place` is a strip and a position."""
    shape, size, n = field.shape, field.shape.size, work.n_values
    site = place[0] * shape.positions + place[1]
    at = site * shape.row + 1
    sent, own = (sites.later, sites.earlier) if to_later else (sites.earlier, sites.later)
    d_sent, d_own = (d_sites.later, d_sites.earlier) if to_later else (d_sites.earlier, d_sites.later)
    set_outside(d_sent, field, place[0], place[1], n, 0.0)
    beliefs(sites, field.steps, at, work)
    for i in range(n * LANES):
        put(0.0, work.d_belief, i)
    for direction in range(len(field.steps)):
        table = table_at(field, direction, to_later, site, n_labels)
        d_table = d_table_at(adjoint, field, direction, to_later, site)
        step, to = field.steps[direction], direction * size + at
        own_at = to + (step if to_later else -step)
        if mode is RATIO:
            send_ratio_vjp(table, own, own_at, d_own, work, d_sent, to, d_table)
        else:
            slot = (direction * _KEPT + n_kept) * n * LANES
            send_vjp(table, own, own_at, d_own, work, sent, d_sent, to, adjoint.kept, slot)
            if adjoint.size > 0:
                add_products_by_lane(n, adjoint.kept.d_sums, adjoint.kept.cavity, slot, d_table)
    add_to_incoming(work.d_belief, field.steps, at, 1.0 / len(field.steps), n, d_sites)


@kernel
def _sweep_strip_vjp(sites, d_sites, field, adjoint, n_labels, strip, to_later, mode, work):
    """Undo `_sweep_strip`, last message first."""
    first, last = first_and_last(field)
    n_kept, sums_products = 0, mode is not RATIO and adjoint.size == 0
    for n in range(last - first + 1):
        place = strip, (last - n if to_later else first + n)
        _send_vjp(sites, d_sites, field, adjoint, n_labels, to_later, mode, work, place, n_kept)
        if sums_products:
            n_kept += 1
            if n_kept == _KEPT or n == last - first:
                add_kept(adjoint, field, to_later, n_kept, work.n_values)
                n_kept = 0


@kernel
def clear_outside(strips, example, d_state):
    """Set adjoints of messages that do not exist to 0."""
    field = field_of(strips, example)
    shape, n_directions, stride = field.shape, strips.n_directions, STRIDE
    sites = sites_of(strips, example, shape.size, strips.unary, d_state, d_state)
    start = 2 * n_directions * strips.start[example]
    for strip in range(shape.n_strips):
        for p in range(shape.positions):
            set_outside(sites.later, field, strip, p, strips.n_values, 0.0)
            set_outside(sites.earlier, field, strip, p, strips.n_values, 0.0)
            for i in range(2 * n_directions):
                at = start + i * shape.size + (strip * shape.positions + p) * shape.row
                for x in range(strips.n_values):
                    d_state[at + x * stride] = 0.0
                    d_state[at + x * stride + LANES + 1] = 0.0


@kernel
def sweep_vjp(strips, before, after, active, mode, d_state, d_unary, d_tables):
    """Undo a sweep: replaces the adjoint of the state after it by that before it."""
    n, n_directions = strips.n_labels, strips.n_directions
    memory = np.empty((5, strips.n_values * LANES))
    kept = np.empty((2, n_directions * _KEPT * strips.n_values * LANES))
    d_sums = np.zeros(n_directions * n * n * WIDTH)
    for example in range(len(active)):
        if active[example]:
            _undo(strips, example, before, after, mode, d_state, d_unary, d_tables, d_sums, (memory, kept))


@kernel
def _undo(strips, example, before, after, mode, d_state, d_unary, d_tables, d_sums, memory):
    work = work_in(memory[0], strips.n_values)
    d_sums[:] = 0.0
    field = field_of(strips, example)
    size, n_strips = field.shape.size, field.shape.n_strips
    d_sites = sites_of(strips, example, size, d_unary, d_state, d_state)
    adjoint = adjoint_of(strips, example, d_tables, d_sums, memory[1])
    start = 2 * strips.n_directions * strips.start[example]
    for i in range(2 * n_strips):
        to_later = i >= n_strips
        strip = 2 * n_strips - 1 - i if to_later else i
        # The first pass saw the messages to earlier nodes of the iteration before.
        sites = sites_of(strips, example, size, strips.unary, after, before if to_later else after)
        _sweep_strip_vjp(sites, d_sites, field, adjoint, strips.n_labels, strip, to_later, mode, work)
        fold_sides(strips, field.shape, d_state, start, strip)
    # No message depends on the earlier ones to later nodes.
    d_state[start : start + strips.n_directions * size] = 0.0
    clear_outside(strips, example, d_state)
    add_sums(strips, example, d_sums, d_tables)


@kernel
def add_sums(strips, example, d_sums, d_tables):
    """Add sums by lane of a vector to the adjoints of shared tables."""
    for direction in range(len(d_tables)):
        _add_sums(strips.n_labels, example, direction, d_sums, d_tables[direction])


@kernel
def _add_sums(n, example, direction, d_sums, d_table):
    if d_table.ndim == 3:
        for x in range(n):
            for z in range(n):
                at = ((direction * n + x) * n + z) * WIDTH
                d_table[example, x, z] += d_sums[at : at + WIDTH].sum()
