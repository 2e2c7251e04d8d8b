"""Memory layout of lattices for sequential sweeps: strips of rows, each row skewed against the one above.

In a sequential sweep a node sends to all later neighbours in the order of rows. It only needs that its
earlier neighbours have sent before. In a strip, lanes are rows, and each lane is `slope` columns behind the
lane above: one column with four neighbours, two with eight. Then all sites of a position are independent of
each other, and their messages are computed in vector arithmetic.

An array is (strip, position, label, lane). There is one lane more at each side, a copy of the nearest row of
the strip above or below, so that neighbours are at a constant distance in memory. Every message is stored at
its source. Messages of sites outside of the image are 1.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._lattice.vector import LANES

#: Edges lead to the right, down, or down along falling or rising diagonals.
RIGHT, DOWN, FALLING, RISING = range(4)

# Positions before the first column, for its neighbours outside of the image.
_MARGIN = 1
# Lanes at the sides of a strip.
_SIDES = 2


class Strips(NamedTuple):
    """A batch of lattices and its potentials in strips.

    Attributes
    ----------
    n_labels, n_values : int
        Number of labels, and of the numbers per message: the same, or 1 where messages are ratios.
    n_directions : int
        2 with four neighbours, 4 with eight.
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    node_ptr, edge_ptr : ndarray of shape (n_examples + 1,)
        Where the nodes and the edges of each example start.
    start : ndarray of shape (n_examples + 1,)
        Where the arrays of each example start. Its messages are `n_directions` arrays of messages to later
        nodes, and as many of messages to earlier nodes.
    unary : ndarray
        exp(theta) of the nodes.
    tables : tuple of n_directions ndarrays
        exp(theta / rho) of the edges: (n_examples, n_labels, n_labels) if all of an example share a table,
        else flat arrays (strip, position, label, label, lane), at the earlier ends of edges.
    """

    n_labels: int
    n_values: int
    n_directions: int
    shapes: np.ndarray
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    start: np.ndarray
    unary: np.ndarray
    tables: tuple


class Shape(NamedTuple):
    """Size of the arrays of an example.

    Attributes
    ----------
    n_strips, positions : int
        Number of strips, and of positions per strip.
    slope : int
        How many columns a lane is behind the one above.
    row : int
        Numbers per position.
    size : int
        Numbers per array.
    """

    n_strips: int
    positions: int
    slope: int
    row: int
    size: int


@kernel
def shape_of(n_directions, height, width, n_values):
    """Compute the size of the arrays of an example."""
    n_strips, slope = (height + LANES - 1) // LANES, n_directions // 2
    positions = width + slope * (LANES + 1) + 2 * _MARGIN
    row = n_values * (LANES + _SIDES)
    return Shape(n_strips, positions, slope, row, n_strips * positions * row)


@kernel
def position_of(slope, lane, column):
    """Find the position of a column in a lane; the lanes of a strip are numbered from 0."""
    return _MARGIN + column + slope * (lane + 1)


@kernel
def lanes_between(slope, strip, position, rows, columns):
    """Find the first lane of a position with a row and a column in these ranges, and one after the last."""
    behind = position - _MARGIN - slope  # the column of the first lane
    first = max(0, rows[0] - strip * LANES, (behind - columns[1]) // slope + 1)
    end = min(LANES, rows[1] - strip * LANES)
    if behind < columns[0]:
        return first, first
    return first, max(first, min(end, (behind - columns[0]) // slope + 1))


@kernel
def rows_and_columns(direction, to_later, height, width):
    """Find the rows and columns of the sites that have a neighbour in a direction."""
    rows, columns = (0, height), (0, width)
    down, right = min(direction, DOWN), 0
    if direction == RIGHT or direction == FALLING:
        right = 1
    elif direction == RISING:
        right = -1
    if not to_later:
        down, right = -down, -right
    if down != 0:
        rows = (0, height - 1) if down > 0 else (1, height)
    if right != 0:
        columns = (0, width - 1) if right > 0 else (1, width)
    return rows, columns


@kernel
def edge_at(strips, example, direction, row, column):
    """Find the edge from a site to a later neighbour, which must exist."""
    height, width = strips.shapes[example]
    first = strips.edge_ptr[example]
    if direction == RIGHT:
        return first + row * (width - 1) + column
    first += height * (width - 1)
    if direction == DOWN:
        return first + row * width + column
    first += width * (height - 1) + (direction - FALLING) * (height - 1) * (width - 1)
    return first + row * (width - 1) + column - (direction == RISING)


# Between arrays of the graph and strips


@kernel
def copy_nodes(strips, rows, flat, to_rows):
    """Copy logarithms to strips, with a maximum of 0 or as ratios, or add adjoints to those of nodes."""
    n_labels, n_values = strips.n_labels, strips.n_values
    first_label = n_labels - n_values
    for example in range(len(strips.shapes)):
        height, width = strips.shapes[example]
        shape = shape_of(strips.n_directions, height, width, n_values)
        for r in range(height):
            strip, lane = r // LANES, r % LANES
            for column in range(width):
                node = strips.node_ptr[example] + r * width + column
                p = strip * shape.positions + position_of(shape.slope, lane, column)
                at = strips.start[example] + p * shape.row + 1 + lane
                if to_rows:
                    for x in range(n_values):
                        value = flat[at + x * (LANES + _SIDES)]
                        rows[node, first_label + x] += value
                        if n_values < n_labels:
                            rows[node, 0] -= value
                else:
                    top = rows[node, 0]
                    for x in range(1, n_values):
                        top = max(top, rows[node, x])
                    for x in range(n_values):
                        flat[at + x * (LANES + _SIDES)] = rows[node, first_label + x] - top


@kernel
def pack_tables(strips, direction, tables, rho, out):
    """Copy theta / rho, with a maximum of 0, of edges that have their own tables, also to the lanes aside."""
    n = strips.n_labels
    for example in range(len(strips.shapes)):
        height, width = strips.shapes[example]
        shape = shape_of(strips.n_directions, height, width, strips.n_values)
        rows, columns = rows_and_columns(direction, True, height, width)
        start = strips.start[example] // strips.n_values * n * n
        for r in range(rows[0], rows[1]):
            for column in range(columns[0], columns[1]):
                edge = edge_at(strips, example, direction, r, column)
                top = tables[edge].max()
                for side in range(2):
                    strip, lane = r // LANES, r % LANES
                    if side == 1:
                        strip, lane = strip + 1, -1
                        if (r + 1) % LANES != 0 or strip == shape.n_strips:
                            continue
                    p = strip * shape.positions + position_of(shape.slope, lane, column)
                    at = start + p * n * n * (LANES + _SIDES) + 1 + lane
                    for x in range(n):
                        for z in range(n):
                            value = (tables[edge, x, z] - top) / rho[example]
                            out[at + (x * n + z) * (LANES + _SIDES)] = value


@kernel
def unpack_tables(strips, direction, d_inside, rho, d_tables):
    """Add the adjoints of the logarithms of own tables, divided by rho, to those of theta."""
    n = strips.n_labels
    for example in range(len(strips.shapes)):
        height, width = strips.shapes[example]
        shape = shape_of(strips.n_directions, height, width, strips.n_values)
        rows, columns = rows_and_columns(direction, True, height, width)
        start = strips.start[example] // strips.n_values * n * n
        for r in range(rows[0], rows[1]):
            for column in range(columns[0], columns[1]):
                edge = edge_at(strips, example, direction, r, column)
                for side in range(2):
                    strip, lane = r // LANES, r % LANES
                    if side == 1:
                        strip, lane = strip + 1, -1
                        if (r + 1) % LANES != 0 or strip == shape.n_strips:
                            continue
                    p = strip * shape.positions + position_of(shape.slope, lane, column)
                    at = start + p * n * n * (LANES + _SIDES) + 1 + lane
                    for x in range(n):
                        for z in range(n):
                            value = d_inside[at + (x * n + z) * (LANES + _SIDES)]
                            d_tables[edge, x, z] += value / rho[example]


@kernel
def copy_messages(strips, rows, state, to_rows):
    """Copy messages, or their adjoints, between a state and rows numbered as in `Graph`; not to copies."""
    n_values, n_directions = strips.n_values, strips.n_directions
    first_label = strips.n_labels - n_values
    for example in range(len(strips.shapes)):
        height, width = strips.shapes[example]
        shape = shape_of(n_directions, height, width, n_values)
        for i in range(2 * n_directions):
            direction, to_later = i % n_directions, i < n_directions
            own_rows, own_columns = rows_and_columns(direction, to_later, height, width)
            start = 2 * n_directions * strips.start[example] + i * shape.size
            sign = 0 if to_later else 1
            right = 0 if direction == DOWN else -1 if direction == RISING else 1
            for r in range(own_rows[0], own_rows[1]):
                strip, lane = r // LANES, r % LANES
                for column in range(own_columns[0], own_columns[1]):
                    first = r - sign * min(direction, DOWN), column - sign * right
                    message = 2 * edge_at(strips, example, direction, first[0], first[1]) + 1 - sign
                    p = strip * shape.positions + position_of(shape.slope, lane, column)
                    at = start + p * shape.row + 1 + lane
                    for x in range(n_values):
                        if to_rows:
                            rows[message, first_label + x] = state[at + x * (LANES + _SIDES)]
                        else:
                            state[at + x * (LANES + _SIDES)] = rows[message, first_label + x]


# Copies at the sides of strips


@kernel
def copy_nodes_below(strips, flat):
    """Copy values of the last row of a strip to the strip below."""
    stride = LANES + _SIDES
    for example in range(len(strips.shapes)):
        height, width = strips.shapes[example]
        shape = shape_of(strips.n_directions, height, width, strips.n_values)
        shift = shape.slope * LANES
        for strip in range(shape.n_strips - 1):
            above = strips.start[example] + strip * shape.positions * shape.row
            below = above + shape.positions * shape.row
            for p in range(shape.positions - shift):
                for x in range(strips.n_values):
                    value = flat[above + (p + shift) * shape.row + x * stride + LANES]
                    flat[below + p * shape.row + x * stride] = value


@kernel
def copy_side(strips, shape, state, start, strip, forward):
    """Copy messages of a strip to the strips beside it, after it was swept.

    Messages to later nodes go below, messages to earlier nodes go above.
    """
    other = strip + 1 if forward else strip - 1
    if not 0 <= other < shape.n_strips:
        return
    stride = LANES + _SIDES
    shift = shape.slope * LANES
    source, target = (LANES, 0) if forward else (1, LANES + 1)
    for direction in range(1, strips.n_directions):
        i = direction if forward else strips.n_directions + direction
        here = start + i * shape.size + strip * shape.positions * shape.row + source
        there = start + i * shape.size + other * shape.positions * shape.row + target
        # A row is `shift` positions further on in the lanes of the strip above than in those below.
        for p in range(shape.positions - shift):
            at, to = (p + shift, p) if forward else (p, p + shift)
            for x in range(strips.n_values):
                state[there + to * shape.row + x * stride] = state[here + at * shape.row + x * stride]


@kernel
def fold_sides(strips, shape, d_state, start, strip):
    """Add the adjoints of the copies beside a strip to those of the messages, and set them to 0."""
    stride = LANES + _SIDES
    shift = shape.slope * LANES
    for i in range(2 * strips.n_directions):
        forward = i < strips.n_directions
        other = strip - 1 if forward else strip + 1
        if i % strips.n_directions == RIGHT or not 0 <= other < shape.n_strips:
            continue
        source, target = (0, LANES) if forward else (LANES + 1, 1)
        here = start + i * shape.size + strip * shape.positions * shape.row + source
        there = start + i * shape.size + other * shape.positions * shape.row + target
        for p in range(shape.positions - shift):
            at, to = (p, p + shift) if forward else (p + shift, p)
            for x in range(strips.n_values):
                d_state[there + to * shape.row + x * stride] += d_state[here + at * shape.row + x * stride]
                d_state[here + at * shape.row + x * stride] = 0.0
