"""Memory layout of lattices for mean field, which updates one colour after the other.

No two sites of a colour are neighbours, so that all of them are updated at once. With four neighbours there
are the two colours of a checkerboard, with eight one colour for each parity of the row and the column. Arrays
are (line, parity, label, site): site i of a parity is position 2 i + parity of its line, so that all sites of
a colour in a line are contiguous, and each step is vector arithmetic on whole lines. Lines are rows or
columns, whichever are longer.

Edges of direction d join a site to its neighbours at two sides: side 2 d leads to the second ends of its
edges, side 2 d + 1 to the first ends.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel

#: The end of an edge to which a side leads: ``side % 2``.
SECOND_END, FIRST_END = 0, 1


class Board(NamedTuple):
    """A batch of lattices and its potentials in lines of one colour.

    Attributes
    ----------
    n_labels : int
        Number of labels.
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
        Tables: shape (n_directions, n_examples, n_labels, n_labels) for one table per direction; one flat
        array (line, parity, label, label, site) per direction if each edge has its own, by first ends.
    """

    n_labels: int
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
def array_of(board, flat, example):
    """View one number per label and site of an example."""
    n_lines, length, _ = line_sizes(board, example)
    shape = (n_lines, 2, board.n_labels, (length + 1) // 2)
    return flat[board.start[example] : board.start[example + 1]].reshape(shape)


@kernel
def tables_of(board, tables, direction, example):
    """View the table, or the tables by site, of a direction."""
    if tables.ndim == 4:
        return tables[direction, example]
    n_lines, length, _ = line_sizes(board, example)
    n = board.n_labels
    inside = tables[direction, board.start[example] * n : board.start[example + 1] * n]
    return inside.reshape((n_lines, 2, n, n, (length + 1) // 2))


@kernel
def colour_of(board, line, parity, turned):
    """Compute the colour of the sites of a line and parity."""
    if len(board.offsets) == 2:
        return (line + parity) % 2
    return 2 * parity + line % 2 if turned else 2 * (line % 2) + parity


@kernel
def copy_nodes(board, nodes, flat, to_nodes):
    """Copy one number per node and label from the nodes of the graph to the board, or back."""
    for example in range(len(board.shapes)):
        width = board.shapes[example, 1]
        n_lines, length, turned = line_sizes(board, example)
        inside = array_of(board, flat, example)
        for line in range(n_lines):
            for position in range(length):
                row, column = (position, line) if turned else (line, position)
                values = nodes[board.node_ptr[example] + row * width + column]
                parity, i = position % 2, position // 2
                for x in range(len(values)):
                    if to_nodes:
                        values[x] = inside[line, parity, x, i]
                    else:
                        inside[line, parity, x, i] = values[x]


@kernel
def copy_tables(board, edges, flat, to_edges):
    """Copy the tables of edges from the graph to the board, or back."""
    for example in range(len(board.shapes)):
        height, width = board.shapes[example]
        turned = line_sizes(board, example)[2]
        for direction in range(len(board.offsets)):
            down, right = board.offsets[direction]
            inside = tables_of(board, flat, direction, example)
            edge = board.first_edge[example, direction]
            for row in range(height - down):
                for column in range(max(0, -right), width - max(0, right)):
                    line, position = (column, row) if turned else (row, column)
                    table = edges[edge]
                    _copy_table(table, inside[line, position % 2, :, :, position // 2], to_edges)
                    edge += 1


@kernel
def _copy_table(table, inside, to_edges):
    for x in range(len(table)):
        for z in range(len(table)):
            if to_edges:
                table[x, z] = inside[x, z]
            else:
                inside[x, z] = table[x, z]


@kernel
def count_sites(length, parity):
    """Count the sites of a parity in a line."""
    return (length + 1 - parity) // 2


@kernel
def neighbours(board, example, line, parity, side):
    """Find the neighbours at one side of the sites of a line and parity.

    Returns which sites have one, from `first` to before `last`, the line and the parity of the neighbours,
    and the difference between their numbers and those of the sites.
    """
    n_lines, length, turned = line_sizes(board, example)
    down, right = board.offsets[side // 2]
    across, along = (right, down) if turned else (down, right)
    if side % 2 == FIRST_END:
        across, along = -across, -along
    first = 1 if parity + along < 0 else 0
    last = (length + 1 - parity - max(0, along)) // 2
    if not 0 <= line + across < n_lines:
        last = first
    return first, last, line + across, (parity + along) % 2, (parity + along) // 2
