"""Lattices in tiles of lines that are crossed side by side: how they lie in memory.

There are two layouts for four neighbours and four for eight: 0 has the rows of the image as lines, 1 its
columns, 2 its falling diagonals and 3 its rising ones. In each, an array is (tile, position along the line,
label, lane), lanes innermost, so that all arithmetic is that of vectors and what a sweep touches stays in the
cache. In all layouts but 0 the position is the row. A diagonal that leaves the image at one side comes in
again at the other, one row on, and has the same lane: then there are as many lines as columns, all of them
as long as columns, and no lane is ever empty. Its pieces have nothing to say to each other, which is seen to
at each of its seams. So layouts 1, 2 and 3 have one shape, and a row of one is that of another, rotated.

A layout has two messages a site: `f` comes from the position before, `b` from the one after; both are 1 where
there is none. The state of an example is f and b of layout 0, then of layout 1 and so on, in one flat array.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel

# Lines of a tile: many vectors long, while the positions of a line fit the cache. Ratios are but one number.
_LANES, _LANES_OF_RATIOS = 64, 256


class Tiles(NamedTuple):
    """A batch of lattices and its potentials, as the kernels want them.

    Attributes
    ----------
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    sizes : ndarray of shape (2,)
        Number of labels, and of the numbers in a message: as many, but 1 where it is a ratio.
    node_ptr, edge_ptr : ndarray of shape (n_examples + 1,)
        Where the nodes and the edges of each example start.
    start, lane_start, table_start : ndarray of shape (n_examples + 1, n_layouts)
        Where the arrays of each example start, the weights of its lanes, and its tables by lane.
    rho : ndarray of shape (n_examples, n_layouts)
        Weights of the edges along the lines of each layout, nan where lines differ.
    weights : tuple of n_layouts ndarrays
        The same for each lane, one flat array a layout.
    unary : tuple of two ndarrays
        exp(theta) of the nodes in layouts 0 and 1, one flat array each.
    tables : tuple of n_layouts ndarrays
        exp(theta / rho) along the lines of each layout: shape (n_examples, 2, n_labels, n_labels) for one
        table an example, second axis 1 transposed; flat arrays (tile, gap, label, label, lane) if they differ
        from lane to lane, with one gap or as many as there are between positions.
    """

    shapes: np.ndarray
    sizes: np.ndarray
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    start: np.ndarray
    lane_start: np.ndarray
    table_start: np.ndarray
    rho: np.ndarray
    weights: tuple
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
def n_lines(tiles, example, layout):
    """How many lanes have a line."""
    return tiles.shapes[example, min(layout, 1)]


@kernel
def slope(layout):
    """How many columns a line moves to the right from a position to the next; of layout 0, nothing."""
    return 0 if layout < 2 else 5 - 2 * layout


@kernel
def seam(slope, width, gap):
    """The line that comes in again at the other side between a position and the next; -1 if none does."""
    if slope == 0:
        return -1
    return gap % width if slope < 0 else (width - 1 - gap) % width


@kernel
def place(layout, width, row, column):
    """The line and the position of a pixel."""
    if layout == 0:
        return row, column
    return (column - slope(layout) * row) % width, row


@kernel
def edge_at(tiles, example, layout, line, gap):
    """The edge between a position of a line and the next; -1 if there is none."""
    height, width = tiles.shapes[example]
    first = tiles.edge_ptr[example]
    if layout == 0:
        return first + line * (width - 1) + gap
    first += height * (width - 1)
    if layout == 1:
        return first + gap * width + line
    down_right = slope(layout)
    column = (line + down_right * gap) % width
    if not 0 <= column + down_right < width:
        return -1
    first += width * (height - 1) + (layout - 2) * (height - 1) * (width - 1)
    return first + gap * (width - 1) + min(column, column + down_right)


@kernel
def _view(flat, start, shape):
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return flat[start : start + size].reshape(shape)


@kernel
def messages_of(tiles, state, example, layout):
    """f and b of an example."""
    height, width = tiles.shapes[example]
    shape = dimensions(height, width, layout, tiles.sizes[1])
    first = 0
    for other in range(tiles.start.shape[1]):
        first += 2 * tiles.start[example + 1 if other < layout else example, other]
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return _view(state, first, shape), _view(state, first + size, shape)


@kernel
def array_of(tiles, flat, example, layout):
    """An array of one number a label and site."""
    height, width = tiles.shapes[example]
    return _view(flat, tiles.start[example, layout], dimensions(height, width, layout, tiles.sizes[1]))


@kernel
def rho_of(tiles, example, layout):
    """The weight of the edges along all lines, and that of each lane."""
    start, stop = tiles.lane_start[example, layout], tiles.lane_start[example + 1, layout]
    return tiles.rho[example, layout], tiles.weights[layout][start:stop]


@kernel
def rho_of_tile(rho, tile, lanes, n_rows):
    """The part that belongs to a tile, again for each of the labels."""
    weights = rho[1][tile * lanes : (tile + 1) * lanes]
    if n_rows > 1:
        repeated = np.empty((n_rows, lanes))
        for x in range(n_rows):
            repeated[x] = weights
        weights = repeated.reshape(-1)
    return rho[0], weights


@kernel
def tables_of(tiles, tables, example, layout):
    """The tables of an example along the lines of a layout."""
    if tables.ndim == 4:
        return tables[example]
    height, width = tiles.shapes[example]
    n_tiles, _, _, lanes = dimensions(height, width, layout, tiles.sizes[1])
    start, stop = tiles.table_start[example, layout], tiles.table_start[example + 1, layout]
    n = tiles.sizes[0]
    return tables[start:stop].reshape((n_tiles, (stop - start) // (n_tiles * n * n * lanes), n, n, lanes))


@kernel
def table_at(tables, tile, position, flip):
    """The table between a position and the next: for messages to the first of them, or flipped."""
    if tables.ndim == 3:
        return tables[1] if flip else tables[0]
    return tables[tile, min(position, tables.shape[1] - 1)]


@kernel
def cut(messages, first_lane, line, value):
    """Give messages of a tile a value at the seam of a line, if it is there."""
    lane = line - first_lane
    if 0 <= lane < messages.shape[1]:
        for x in range(len(messages)):
            messages[x, lane] = value
