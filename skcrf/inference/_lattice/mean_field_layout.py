"""Memory layout of lattices for mean field, which updates one colour after the other.

No two sites of a colour are neighbours, so that all of them are updated at once. With four neighbours there
are the two colours of a checkerboard, with eight one colour for each parity of the row and the column. Lines
are rows or columns, whichever are longer. Arrays are (parity, line, value, site): site i of a parity is
position 2 i + parity of its line, so that all sites of a colour in a line are contiguous, and each step is
vector arithmetic on whole lines.

Before the first line and after the last one there is a line of zeros, and zeros after the last site of a line
pad it to whole vectors. So all sites have neighbours at all sides, and those that do not exist have no
effect. Along the line, neighbours have the number of the site, the one before or the one after, for which
there are three views of an array, shifted by -1, 0 and 1.

Edges of direction d join a site to its neighbours at two sides, the second ends of its edges and the first
ends. Edges with a table of their own have it where their first end is.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel

#: Kinds of values. BINARY is None, so that a kernel is compiled for one kind: probabilities of all labels, or
#: the smaller probability of two, as in `mean_field_binary`.
ALL_LABELS, BINARY = False, None

# Numbers per vector, to which lines are padded; there are as many zeros before and after all examples.
PADDING = 8


class Board(NamedTuple):
    """A batch of lattices and its potentials in lines of one colour.

    Attributes
    ----------
    kind : bool or None
        Kind of the values.
    is_narrow : bool
        Whether the exponentials of all energies are normal numbers.
    n_values : int
        Number of values per site: labels, or 1.
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    offsets : ndarray of shape (n_directions, 2)
        How far down and right the second end of an edge is from the first.
    node_ptr, start : ndarray of shape (n_examples + 1,)
        Where the nodes, and the arrays, of each example start.
    first_edge : ndarray of shape (n_examples, n_directions)
        Where the edges of each direction start.
    unary : ndarray of shape (size,)
        Unary potentials, flat.
    tables : ndarray
        Tables: shape (n_examples, n_directions, 2, n_values, n_values) for one table per direction, third
        axis 1 transposed; flat (direction, parity, line, value, value, site) if each edge has its own.
    """

    kind: bool | None
    is_narrow: bool
    n_values: int
    shapes: np.ndarray
    offsets: np.ndarray
    node_ptr: np.ndarray
    start: np.ndarray
    first_edge: np.ndarray
    unary: np.ndarray
    tables: np.ndarray


@kernel
def line_sizes(board, example):
    """Return the number of lines, their length, and whether lines are columns."""
    height, width = board.shapes[example]
    return min(height, width), max(height, width), height > width


@kernel
def sites_per_line(length):
    """Compute the length of arrays along a line: as many sites as parity 0 has, and at least one zero."""
    return ((length + 1) // 2 + PADDING) // PADDING * PADDING


def array_starts(shapes, n_values):
    """Compute where the array of each example starts, shape (n_examples + 1,)."""
    n_lines, length = np.sort(shapes, axis=1).T
    sizes = 2 * (n_lines + 2) * n_values * sites_per_line(length)
    return PADDING + np.concatenate([[0], np.cumsum(sizes)])


@kernel
def array_of(board, flat, example):
    """View one number per value and site of an example."""
    n_lines, length, _ = line_sizes(board, example)
    shape = (2, n_lines + 2, board.n_values, sites_per_line(length))
    return flat[board.start[example] : board.start[example + 1]].reshape(shape)


@kernel
def shifted_arrays_of(board, flat, example):
    """View one number per value and site of an example, for sites before, at and after each site."""
    n_lines, length, _ = line_sizes(board, example)
    first, last = board.start[example], board.start[example + 1]
    shape = (2, n_lines + 2, board.n_values, sites_per_line(length))
    return (
        flat[first - 1 : last - 1].reshape(shape),
        flat[first:last].reshape(shape),
        flat[first + 1 : last + 1].reshape(shape),
    )


@kernel
def tables_of(board, tables, example):
    """View the tables of an example: by direction, or three views like those of `shifted_arrays_of`."""
    if tables.ndim == 5:
        return tables[example]
    n_lines, length, _ = line_sizes(board, example)
    n, factor = board.n_values, len(board.offsets) * board.n_values
    first = PADDING + factor * (board.start[example] - PADDING)
    last = PADDING + factor * (board.start[example + 1] - PADDING)
    shape = (len(board.offsets), 2, n_lines + 2, n, n, sites_per_line(length))
    return (
        tables[first - 1 : last - 1].reshape(shape),
        tables[first:last].reshape(shape),
        tables[first + 1 : last + 1].reshape(shape),
    )


@kernel
def steps_of(board, turned):
    """Return how many lines and positions the second ends of edges are after the first, by direction."""
    steps = board.offsets.copy()
    if turned:
        steps[:, 0], steps[:, 1] = board.offsets[:, 1], board.offsets[:, 0]
    return steps


@inlined_kernel
def neighbours(arrays, line, parity, across, along):
    """View the sites that are so many lines and positions after those of a line and parity."""
    position = parity + along
    return arrays[1 + (position >> 1)][position & 1, 1 + line + across]


@inlined_kernel
def tables_by_edge(arrays, direction, line, parity, across, along):
    """View the tables of the edges whose first ends, or second ends, are the sites of a line and parity."""
    position = parity - along
    return (
        arrays[1][direction, parity, 1 + line],
        arrays[1 + (position >> 1)][direction, position & 1, 1 + line - across],
    )


@inlined_kernel
def colour_of(n_colours, line, parity, turned):
    """Compute the colour of the sites of a line and parity."""
    if n_colours == 2:
        return (line + parity) & 1
    return 2 * parity + (line & 1) if turned else 2 * (line & 1) + parity


@kernel
def count_sites(length, parity):
    """Count the sites of a parity in a line."""
    return (length + 1 - parity) // 2


@kernel
def subtract_maxima(nodes, out):
    """Subtract from the numbers of each node the largest of them."""
    for node in range(len(nodes)):
        top = nodes[node, 0]
        for x in range(1, nodes.shape[1]):
            top = max(top, nodes[node, x])
        for x in range(nodes.shape[1]):
            out[node, x] = nodes[node, x] - top


@kernel
def copy_nodes(board, nodes, flat, to_nodes):
    """Copy one number per node and value from the nodes of the graph to the board, or back."""
    for example in range(len(board.shapes)):
        width = board.shapes[example, 1]
        n_lines, length, turned = line_sizes(board, example)
        inside = array_of(board, flat, example)
        for line in range(n_lines):
            for position in range(length):
                row, column = (position, line) if turned else (line, position)
                values = nodes[board.node_ptr[example] + row * width + column]
                sites, i = inside[position % 2, 1 + line], position // 2
                for x in range(len(values)):
                    if to_nodes:
                        values[x] = sites[x, i]
                    else:
                        sites[x, i] = values[x]


@kernel
def copy_tables(board, edges, flat, to_edges):
    """Copy the tables of edges from the graph to the board, or back."""
    for example in range(len(board.shapes)):
        height, width = board.shapes[example]
        turned = line_sizes(board, example)[2]
        inside = tables_of(board, flat, example)[1]
        for direction in range(len(board.offsets)):
            down, right = board.offsets[direction]
            edge = board.first_edge[example, direction]
            for row in range(height - down):
                for column in range(max(0, -right), width - max(0, right)):
                    line, position = (column, row) if turned else (row, column)
                    by_site = inside[direction, position % 2, 1 + line, :, :, position // 2]
                    _copy_table(edges[edge], by_site, to_edges)
                    edge += 1


@kernel
def _copy_table(table, by_site, to_edges):
    for x in range(len(table)):
        for z in range(len(table)):
            if to_edges:
                table[x, z] = by_site[x, z]
            else:
                by_site[x, z] = table[x, z]
