"""Memory layout of lattices: tiles of lines that are swept side by side.

Messages pass along the lines of two directions (four neighbours) or four (eight neighbours). In each
direction, an array is (tile, position along the line, label, lane), where a lane is one of the lines of a
tile. Lanes are innermost, so that all arithmetic runs on vectors and what a sweep touches stays in the cache.
In all directions but `ROWS` the position is the row of the image. A diagonal that leaves the image at one
side enters again at the other, one row on, in the same lane: then there are as many lines as columns, all of
them as long as columns, and no lane is ever empty. Its pieces must not exchange messages, so messages are
reset at each of its seams. `COLUMNS`, `FALLING` and `RISING` have the same shape, and a row of one is that of
another, rotated.

A site has two messages per direction: `f` comes from the position before, `b` from the one after; both are 1
where there is none. The state of an example is f and b of `ROWS`, then of `COLUMNS` and so on, in one flat
array.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._lattice.message import OwnTables, SharedTable
from skcrf.inference._lattice.vector import LANES, WIDTH, address

#: Directions: the lines of an array are rows, columns, falling diagonals or rising diagonals of the image.
ROWS, COLUMNS, FALLING, RISING = range(4)

# Lines per tile of ratios: many vectors long, while the positions of a line fit the cache.
_LANES_OF_RATIOS = 256


class Weights(NamedTuple):
    """Edge weights rho along some lines.

    Attributes
    ----------
    common : float
        The weight of all lanes, nan if they differ.
    by_lane : ndarray
        The weight of each lane.
    """

    common: float
    by_lane: np.ndarray


class Tiles(NamedTuple):
    """A batch of lattices and its potentials in tiles.

    Attributes
    ----------
    n_labels, n_values : int
        Number of labels, and of the numbers per message: the same, or 1 where messages are ratios.
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    node_ptr, edge_ptr : ndarray of shape (n_examples + 1,)
        Where the nodes and the edges of each example start.
    start, lane_start, table_start : ndarray of shape (n_examples + 1, n_directions)
        Where the arrays of each example start, the weights of its lanes, and its tables by lane.
    rho : ndarray of shape (n_examples, n_directions)
        Weights of the edges along the lines of each direction, nan where lines differ.
    lane_rho : tuple of n_directions ndarrays
        The same for each lane, one flat array per direction.
    unary : tuple of two ndarrays
        exp(theta) of the nodes by rows and by columns, one flat array each.
    tables : tuple of n_directions ndarrays
        exp(theta / rho) along the lines of each direction: shape (n_examples, 2, n_labels, n_labels) for one
        table per example, second axis 1 transposed; flat arrays (tile, gap, label, label, lane) if they
        differ from lane to lane, with one gap or as many as there are between positions. Potts tables are
        arrays (size, 1), which hold (tile, gap, unequal and equal, lane).
    table_shape : tuple
        (n_labels, n_labels), or (2, 1) for Potts tables.
    """

    n_labels: int
    n_values: int
    shapes: np.ndarray
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    start: np.ndarray
    lane_start: np.ndarray
    table_start: np.ndarray
    rho: np.ndarray
    lane_rho: tuple
    unary: tuple
    tables: tuple
    table_shape: tuple


@kernel
def dimensions(height, width, direction, n_values):
    """Compute the shape of an array: tiles, positions, numbers per message, lanes."""
    lines, positions = (height, width) if direction == ROWS else (width, height)
    if n_values > 1:
        return (lines + LANES - 1) // LANES, positions, n_values, LANES
    n_tiles = (lines + _LANES_OF_RATIOS - 1) // _LANES_OF_RATIOS
    lanes = (lines + n_tiles - 1) // n_tiles
    return n_tiles, positions, n_values, (lanes + WIDTH - 1) // WIDTH * WIDTH


@kernel
def count_lines(tiles, example, direction):
    """Count the lanes that have a line."""
    return tiles.shapes[example, min(direction, COLUMNS)]


@kernel
def slope_of(direction):
    """Compute how many columns a line moves to the right per position; 0 for rows and columns."""
    if direction <= COLUMNS:
        return 0
    return 1 if direction == FALLING else -1


@kernel
def seam_line(slope, width, gap):
    """Find the line that enters again at the other side between a position and the next; -1 if none does."""
    if slope == 0:
        return -1
    return gap % width if slope < 0 else (width - 1 - gap) % width


@kernel
def _place(direction, width, row, column):
    """Find the line and the position of a pixel."""
    if direction == ROWS:
        return row, column
    return (column - slope_of(direction) * row) % width, row


@kernel
def _edge_at(tiles, example, direction, line, gap):
    """Find the edge between a position of a line and the next; -1 if there is none."""
    height, width = tiles.shapes[example]
    first = tiles.edge_ptr[example]
    if direction == ROWS:
        return first + line * (width - 1) + gap
    first += height * (width - 1)
    if direction == COLUMNS:
        return first + gap * width + line
    slope = slope_of(direction)
    column = (line + slope * gap) % width
    if not 0 <= column + slope < width:
        return -1
    first += width * (height - 1) + (direction - FALLING) * (height - 1) * (width - 1)
    return first + gap * (width - 1) + min(column, column + slope)


# Views of flat arrays


@kernel
def _view(flat, start, shape):
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return flat[start : start + size].reshape(shape)


@kernel
def messages_of(tiles, state, example, direction):
    """View f and b of an example."""
    height, width = tiles.shapes[example]
    shape = dimensions(height, width, direction, tiles.n_values)
    first = 0
    for other in range(tiles.start.shape[1]):
        first += 2 * tiles.start[example + 1 if other < direction else example, other]
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return _view(state, first, shape), _view(state, first + size, shape)


@kernel
def array_of(tiles, flat, example, direction):
    """View an array of one number per label and site of an example."""
    height, width = tiles.shapes[example]
    return _view(flat, tiles.start[example, direction], dimensions(height, width, direction, tiles.n_values))


@kernel
def weights_of(tiles, example, direction):
    """View the weights of all lanes of an example."""
    start, stop = tiles.lane_start[example, direction], tiles.lane_start[example + 1, direction]
    return Weights(tiles.rho[example, direction], tiles.lane_rho[direction][start:stop])


@kernel
def repeated_weights(rho, tile, lanes, n_values):
    """Select the weights of a tile, repeated for each number of a message."""
    by_lane = rho.by_lane[tile * lanes : (tile + 1) * lanes]
    if n_values > 1:
        repeated = np.empty((n_values, lanes))
        for x in range(n_values):
            repeated[x] = by_lane
        by_lane = repeated.reshape(-1)
    return Weights(rho.common, by_lane)


@kernel
def repeat_weights(rho, shape):
    """Repeat the weights of all tiles for each number of a message: (tile, number and lane)."""
    n_tiles, _, n_values, lanes = shape
    by_lane = np.empty((n_tiles, n_values * lanes))
    for t in range(n_tiles):
        by_lane[t] = repeated_weights(rho, t, lanes, n_values).by_lane
    return Weights(rho.common, by_lane)


@kernel
def tables_of(tiles, tables, example, direction):
    """View the tables of an example along the lines of a direction."""
    if tables.ndim == 4:
        return tables[example]
    height, width = tiles.shapes[example]
    n_tiles, _, _, lanes = dimensions(height, width, direction, tiles.n_values)
    start, stop = tiles.table_start[example, direction], tiles.table_start[example + 1, direction]
    rows, columns = tiles.table_shape
    gaps = (stop - start) // (n_tiles * rows * columns * lanes)
    if tables.ndim == 2:
        return tables[start:stop].reshape((n_tiles, gaps, rows, lanes))
    return tables[start:stop].reshape((n_tiles, gaps, rows, columns, lanes))


@kernel
def table_at(tables, tile, position, flip):
    """View the table between a position and the next: for messages to the first of them, or flipped."""
    if tables.ndim == 3:
        return tables[1] if flip else tables[0]
    return tables[tile, min(position, tables.shape[1] - 1)]


@kernel
def table_between(tables, tile, position, to_first):
    """Find the table between a position and the next, for messages to the first of them or to the second."""
    if tables.ndim == 3:
        return SharedTable(address(tables[0] if to_first else tables[1]))
    gap = min(position, tables.shape[1] - 1)
    size = tables.strides[1] // tables.itemsize
    return OwnTables(address(tables), (tile * tables.shape[1] + gap) * size)


@kernel
def set_seam(messages, first_lane, line, value):
    """Set the messages of a tile to a value at the seam of a line, if the tile has that line."""
    lane = line - first_lane
    if 0 <= lane < messages.shape[1]:
        for x in range(len(messages)):
            messages[x, lane] = value


@kernel
def transpose(source, out):
    """Copy an array between rows and columns."""
    n_tiles, positions, n_values, lanes = out.shape
    n_across, n_lines, _, lanes_across = source.shape
    for s in range(n_across):
        for i in range(min(lanes_across, positions - s * lanes_across)):
            for t in range(n_tiles):
                for x in range(n_values):
                    for lane in range(min(lanes, n_lines - t * lanes)):
                        out[t, s * lanes_across + i, x, lane] = source[s, t * lanes + lane, x, i]


# Between arrays of the graph and tiles


@kernel
def pack_unary(tiles, unary, by_columns):
    """Copy the unary potentials of all nodes to columns, with a maximum of 0; ratios are differences."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        inside = array_of(tiles, by_columns, example, COLUMNS)
        n_tiles, _, _, lanes = inside.shape
        for row in range(height):
            for t in range(n_tiles):
                for lane in range(min(lanes, width - t * lanes)):
                    node = tiles.node_ptr[example] + row * width + t * lanes + lane
                    top = unary[node, 0]
                    for x in range(1, n_values):
                        top = max(top, unary[node, x])
                    for x in range(n_values):
                        inside[t, row, x, lane] = unary[node, n_labels - n_values + x] - top


@kernel
def copy_to_rows(tiles, by_columns, by_rows):
    """Copy one number per label and site from columns to rows."""
    for example in range(len(tiles.shapes)):
        transpose(array_of(tiles, by_columns, example, COLUMNS), array_of(tiles, by_rows, example, ROWS))


@kernel
def unpack_unary(tiles, d_inside, d_unary):
    """Add the adjoints in all directions to those of the nodes."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        height, width = tiles.shapes[example]
        for direction in range(len(d_inside)):
            inside = array_of(tiles, d_inside[direction], example, direction)
            lanes = inside.shape[3]
            for node in range(height * width):
                line, p = _place(direction, width, node // width, node % width)
                t, lane = line // lanes, line % lanes
                for x in range(n_values):
                    value = inside[t, p, x, lane]
                    d_unary[tiles.node_ptr[example] + node, n_labels - n_values + x] += value
                    if n_values < n_labels:
                        d_unary[tiles.node_ptr[example] + node, 0] -= value


@kernel
def pack_weights(tiles, direction, rho, out):
    """Copy the weights of the rows or columns that have edges."""
    for example in range(len(tiles.shapes)):
        start = tiles.lane_start[example, direction]
        if tiles.shapes[example, 1 - direction] > 1:
            for line in range(count_lines(tiles, example, direction)):
                out[start + line] = rho[_edge_at(tiles, example, direction, line, 0)]


@kernel
def pack_tables(tiles, shared, tables, direction, out):
    """Copy theta / rho by lane, with a maximum of 0.

    `shared` is the table of all edges along the lines of an example, or -1 if each edge has its own.
    """
    for example in range(len(tiles.shapes)):
        inside = tables_of(tiles, out, example, direction)
        rho = weights_of(tiles, example, direction).by_lane
        _, n_gaps, rows, columns, lanes = inside.shape
        for line in range(count_lines(tiles, example, direction)):
            for p in range(n_gaps):
                at = shared[example] if shared[example] >= 0 else _edge_at(tiles, example, direction, line, p)
                if at < 0:
                    continue
                top = tables[at].max()
                for x in range(rows):
                    for z in range(columns):
                        value = (tables[at, x, z] - top) / rho[line]
                        inside[line // lanes, p, x, z, line % lanes] = value


@kernel
def unpack_tables(tiles, shared, d_inside, direction, d_tables):
    """Add the adjoints by lane, divided by rho, to those of the tables; `shared` as for `pack_tables`."""
    for example in range(len(tiles.shapes)):
        inside = tables_of(tiles, d_inside, example, direction)
        rho = weights_of(tiles, example, direction).by_lane
        _, n_gaps, rows, columns, lanes = inside.shape
        for line in range(count_lines(tiles, example, direction)):
            for p in range(n_gaps):
                at = shared[example] if shared[example] >= 0 else _edge_at(tiles, example, direction, line, p)
                if at < 0:
                    continue
                for x in range(rows):
                    for z in range(columns):
                        value = inside[line // lanes, p, x, z, line % lanes]
                        d_tables[at, x, z] += value / rho[line]


@kernel
def copy_messages(tiles, rows, state, to_rows):
    """Copy messages, or their adjoints, between a state and rows numbered as in `Graph`."""
    n_labels, n_values = tiles.n_labels, tiles.n_values
    for example in range(len(tiles.shapes)):
        for direction in range(tiles.rho.shape[1]):
            f, b = messages_of(tiles, state, example, direction)
            lanes = f.shape[3]
            for line in range(count_lines(tiles, example, direction)):
                t, lane = line // lanes, line % lanes
                for p in range(f.shape[1] - 1):
                    edge = _edge_at(tiles, example, direction, line, p)
                    if edge < 0:
                        continue
                    for x in range(n_values):
                        at = n_labels - n_values + x
                        if to_rows:
                            rows[2 * edge + 1, at] = f[t, p + 1, x, lane]
                            rows[2 * edge, at] = b[t, p, x, lane]
                        else:
                            f[t, p + 1, x, lane] = rows[2 * edge + 1, at]
                            b[t, p, x, lane] = rows[2 * edge, at]
