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
    n_labels, n_values, lanes : int
        Number of labels, of the numbers per message (the same, or 1 where messages are ratios), and of the
        lines per tile of messages that are not ratios.
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
    lanes: int
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


class SharedTable(NamedTuple):
    """Address of a table (target, source) that edges share."""

    place: np.ndarray


class OwnTables(NamedTuple):
    """Address of tables (label, label, lane); `flip` if the source is first."""

    place: np.ndarray
    flip: bool


class PottsTables(NamedTuple):
    """Address of Potts tables by lane, and where the entries of unequal and of equal labels start."""

    place: np.ndarray
    unequal: int
    equal: int


class Scratch(NamedTuple):
    """Scratch memory of kernels, flat arrays.

    Attributes
    ----------
    work : ndarray
        Messages, see `Work`.
    block : ndarray
        Rows of a block that is transposed.
    tile : ndarray
        Numbers of one tile.
    lists : ndarray
        Lists of messages.
    sums : ndarray
        Adjoint of a table that edges share, with a vector per entry.
    """

    work: np.ndarray
    block: np.ndarray
    tile: np.ndarray
    lists: np.ndarray
    sums: np.ndarray


@kernel
def dimensions(height, width, direction, n_values, lanes):
    """Compute the shape of an array: tiles, positions, numbers per message, lanes."""
    lines, positions = (height, width) if direction == ROWS else (width, height)
    if n_values > 1:
        return (lines + lanes - 1) // lanes, positions, n_values, lanes
    n_tiles, vector = (lines + _LANES_OF_RATIOS - 1) // _LANES_OF_RATIOS, lanes // 2
    lines_per_tile = (lines + n_tiles - 1) // n_tiles
    return n_tiles, positions, n_values, (lines_per_tile + vector - 1) // vector * vector


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
def edge_at(tiles, example, direction, line, gap):
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
    shape = dimensions(height, width, direction, tiles.n_values, tiles.lanes)
    first = 0
    for other in range(tiles.start.shape[1]):
        first += 2 * tiles.start[example + 1 if other < direction else example, other]
    size = shape[0] * shape[1] * shape[2] * shape[3]
    return _view(state, first, shape), _view(state, first + size, shape)


@kernel
def array_of(tiles, flat, example, direction):
    """View an array of one number per label and site of an example."""
    height, width = tiles.shapes[example]
    return _view(
        flat,
        tiles.start[example, direction],
        dimensions(height, width, direction, tiles.n_values, tiles.lanes),
    )


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
        repeated = np.empty((n_values, lanes), by_lane.dtype)
        for x in range(n_values):
            repeated[x] = by_lane
        by_lane = repeated.reshape(-1)
    return Weights(rho.common, by_lane)


@kernel
def repeat_weights(rho, shape):
    """Repeat the weights of all tiles for each number of a message: (tile, number and lane)."""
    n_tiles, _, n_values, lanes = shape
    by_lane = np.empty((n_tiles, n_values * lanes), rho.by_lane.dtype)
    for t in range(n_tiles):
        by_lane[t] = repeated_weights(rho, t, lanes, n_values).by_lane
    return Weights(rho.common, by_lane)


@kernel
def tables_of(tiles, tables, example, direction):
    """View the tables of an example along the lines of a direction."""
    if tables.ndim == 4:
        return tables[example]
    height, width = tiles.shapes[example]
    n_tiles, _, _, lanes = dimensions(height, width, direction, tiles.n_values, tiles.lanes)
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


# Which examples are lattices that the engines support, and with which options. These functions run in every
# evaluation. The kernels take single arrays and fill arrays of their caller, since both make them compile
# faster.


class Options(NamedTuple):
    """Options of the lattice engines; examples with equal options run together.

    Attributes
    ----------
    own_tables : bool or ndarray of shape (n_examples,)
        Whether each edge has its own table, instead of one per direction.
    has_diagonals : bool or ndarray of shape (n_examples,)
        Whether nodes have eight neighbours instead of four.
    forbids_label : bool or ndarray of shape (n_examples,)
        Whether there are two labels and one of them is forbidden somewhere, so that messages are no ratios.
    weighs_lines : bool or ndarray of shape (n_examples,)
        Whether the lines of a direction differ in their edge weights.
    is_single : bool or ndarray of shape (n_examples,)
        Whether messages are of float32.
    """

    own_tables: bool | np.ndarray
    has_diagonals: bool | np.ndarray
    forbids_label: bool | np.ndarray = False
    weighs_lines: bool | np.ndarray = False
    is_single: bool | np.ndarray = False

    def encode(self):
        """Number the options, from 1 on."""
        return 1 + sum(np.asarray(flag, dtype=np.int64) << bit for bit, flag in enumerate(self))

    @classmethod
    def decode(cls, number):
        """Restore options from their number."""
        return cls(*(bool((number - 1) >> bit & 1) for bit in range(len(cls._fields))))


def lattice_options(graph):
    """Find the lattices with edges, and the options that follow from their structure.

    Tables must be one per direction, or one per edge. Returns whether each example is such a lattice, and
    Options of arrays.
    """
    height, width = graph.shapes.T
    n_edges, straight = np.diff(graph.edge_ptr), height * (width - 1) + width * (height - 1)
    has_diagonals = n_edges > straight
    is_lattice = (
        (height > 0) & (n_edges > 0) & (n_edges == straight + has_diagonals * 2 * (height - 1) * (width - 1))
    )
    tied, own_tables = is_lattice.copy(), is_lattice & (np.diff(graph.table_ptr) == n_edges)
    _compare_tables(graph.edge_ptr, _ends(graph, 4), graph.table_ptr, graph.edge_table, tied, own_tables)
    return is_lattice & (tied | own_tables), Options(~tied, has_diagonals)


def _ends(graph, n_directions):
    """Find where the edges of each direction end: (n_examples, n_directions)."""
    height, width = graph.shapes.T
    sizes = [height * (width - 1), width * (height - 1), *2 * [(height - 1) * (width - 1)]][:n_directions]
    ends = graph.edge_ptr[:-1, None] + np.cumsum(np.stack(sizes, axis=1), axis=1)
    return np.minimum(ends, graph.edge_ptr[1:, None])  # not all lattices have diagonals


def first_edges(graph, n_directions):
    """Find the first edge of each example and direction, -1 if none: (n_examples, n_directions)."""
    ends = _ends(graph, n_directions)
    starts = np.concatenate([graph.edge_ptr[:-1, None], ends[:, :-1]], axis=1)
    return np.where(ends > starts, starts, -1)


def values_at(edges, values, default):
    """Look up the values of edges; `default` for edge -1."""
    return np.where(edges >= 0, values[edges], default)


def weights_by_line(graph, rho, is_lattice):
    """Summarise the edge weights of each lattice.

    Returns whether rows and columns have one weight each and so does each diagonal direction, whether rows or
    columns differ, and the smallest weight.
    """
    alike, differ, smallest = is_lattice.copy(), np.zeros_like(is_lattice), np.ones(len(is_lattice))
    _compare_weights(graph.edge_ptr, _ends(graph, 4), graph.shapes, rho, alike, differ, smallest)
    return alike, differ, smallest


@kernel
def _compare_tables(edge_ptr, ends, table_ptr, edge_table, tied, own):
    """Clear `tied` where edges of a direction differ in their table, `own` where tables are not by edge."""
    for example in range(len(own)):
        start, n_other, n_foreign = edge_ptr[example], 0, 0
        if tied[example] or own[example]:
            for end in ends[example]:
                tables = edge_table[start:end]
                shift = start + table_ptr[example] - edge_ptr[example]
                for i in range(len(tables)):
                    n_other += tables[i] != tables[0]
                    n_foreign += tables[i] != i + shift
                start = end
        tied[example] &= n_other == 0
        own[example] &= n_foreign == 0


@kernel
def _compare_weights(edge_ptr, ends, shapes, rho, alike, differ, smallest):
    """Compute `weights_by_line` of the examples in `alike`."""
    for example in range(len(alike)):
        start, width, n_other = edge_ptr[example], shapes[example, 1], 0
        for direction in range(ends.shape[1] if alike[example] else 0):
            # In memory, a line along a row is consecutive, and one along a column has one edge per row.
            size = width if direction == COLUMNS else width - 1
            first = rho[start : min(start + size, ends[example, direction])]
            while start < ends[example, direction]:
                weights = rho[start : start + size]
                if direction == COLUMNS:
                    for i in range(len(weights)):
                        n_other += weights[i] != first[i]
                else:
                    line = weights if direction == ROWS else first
                    for i in range(len(weights)):
                        n_other += weights[i] != line[0]
                if direction == ROWS:
                    differ[example] |= weights[0] != first[0]
                    smallest[example] = min(smallest[example], weights[0])
                start += size
            for i in range(len(first)):
                if direction == COLUMNS:
                    differ[example] |= first[i] != first[0]
                smallest[example] = min(smallest[example], first[i])
        alike[example] &= n_other == 0


def finite_ranges(rows, ptr):
    """Find the largest range of finite numbers in a row of each part, and whether any is not finite."""
    ranges, forbidden = np.zeros(len(ptr) - 1), np.zeros(len(ptr) - 1, dtype=bool)
    _finite_ranges(rows, ptr, ranges, forbidden)
    return ranges, forbidden


@kernel
def _finite_ranges(rows, ptr, ranges, forbidden):
    """Compute `finite_ranges`."""
    for part in range(len(ranges)):
        for i in range(ptr[part], ptr[part + 1]):
            low, high = np.inf, -np.inf
            for x in range(rows.shape[1]):
                value = rows[i, x]
                if value > -np.inf:
                    low, high = min(low, value), max(high, value)
                else:
                    forbidden[part] = True
            ranges[part] = max(ranges[part], high - low)
