"""How lattices lie for mean field, which updates one colour after the other.

No two sites of a colour are neighbours, so that all of them are updated at once. With four neighbours there
are the two colours of a checkerboard, with eight a colour for each parity of the row and the column. Arrays
are (line, parity, label, site): site i of a parity is position 2 i + parity of its line, so that all sites of
a colour in a line lie side by side, and each step is arithmetic of whole lines. Lines are rows or columns,
whichever are longer.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel


class Board(NamedTuple):
    """A batch of lattices and its potentials, as the kernels want them.

    Attributes
    ----------
    shapes : ndarray of shape (n_examples, 2)
        Heights and widths.
    offsets : ndarray of shape (n_directions, 2)
        How far down and right the second end of an edge is from the first.
    n_labels : ndarray of shape (1,)
        Number of labels.
    node_ptr, start : ndarray of shape (n_examples + 1,)
        Where the nodes, and the arrays, of each example start.
    first_edge : ndarray of shape (n_examples, n_directions)
        Where the edges of each direction start.
    unary : ndarray of shape (size,)
        theta of the nodes, flat.
    tables : ndarray
        theta of the edges: shape (n_directions, n_examples, n_labels, n_labels) for one table a direction;
        flat arrays (line, parity, label, label, site) of the edge's first end, one a direction, if each edge
        has its own.
    """

    shapes: np.ndarray
    offsets: np.ndarray
    n_labels: np.ndarray
    node_ptr: np.ndarray
    start: np.ndarray
    first_edge: np.ndarray
    unary: np.ndarray
    tables: np.ndarray


@kernel
def size_of(board, example):
    """Number of lines, their length, and whether lines are columns."""
    height, width = board.shapes[example]
    return min(height, width), max(height, width), height > width


@kernel
def array_of(board, flat, example):
    n_lines, length, _ = size_of(board, example)
    shape = (n_lines, 2, board.n_labels[0], (length + 1) // 2)
    return flat[board.start[example] : board.start[example + 1]].reshape(shape)


@kernel
def tables_of(board, tables, direction, example):
    if tables.ndim == 4:
        return tables[direction, example]
    n_lines, length, _ = size_of(board, example)
    n = board.n_labels[0]
    inside = tables[direction, board.start[example] * n : board.start[example + 1] * n]
    return inside.reshape((n_lines, 2, n, n, (length + 1) // 2))


@kernel
def colour_of(board, line, parity, turned):
    if len(board.offsets) == 2:
        return (line + parity) % 2
    return 2 * parity + line % 2 if turned else 2 * (line % 2) + parity


@kernel
def move(board, nodes, flat, leaving):
    """Copy numbers of nodes and labels to the board, or from it."""
    for example in range(len(board.shapes)):
        width = board.shapes[example, 1]
        n_lines, length, turned = size_of(board, example)
        inside = array_of(board, flat, example)
        for line in range(n_lines):
            for position in range(length):
                row, column = (position, line) if turned else (line, position)
                values = nodes[board.node_ptr[example] + row * width + column]
                parity, i = position % 2, position // 2
                for x in range(len(values)):
                    if leaving:
                        values[x] = inside[line, parity, x, i]
                    else:
                        inside[line, parity, x, i] = values[x]


@kernel
def move_tables(board, edges, flat, leaving):
    """Copy the edges' own tables to the board, or from it."""
    for example in range(len(board.shapes)):
        height, width = board.shapes[example]
        turned = size_of(board, example)[2]
        for direction in range(len(board.offsets)):
            down, right = board.offsets[direction]
            inside = tables_of(board, flat, direction, example)
            edge = board.first_edge[example, direction]
            for row in range(height - down):
                for column in range(max(0, -right), width - max(0, right)):
                    line, position = (column, row) if turned else (row, column)
                    table = edges[edge]
                    _copy_table(table, inside[line, position % 2, :, :, position // 2], leaving)
                    edge += 1


@kernel
def _copy_table(table, inside, leaving):
    for x in range(len(table)):
        for z in range(len(table)):
            if leaving:
                table[x, z] = inside[x, z]
            else:
                inside[x, z] = table[x, z]


@kernel
def n_sites_of(length, parity):
    return (length + 1 - parity) // 2


@kernel
def neighbours(board, example, line, parity, side):
    """Where the neighbours of a line's sites are: the second ends of their edges, and the first ends.

    Returns which sites have one, `first` and `last`, its line and parity, and how far its number is from
    theirs.
    """
    n_lines, length, turned = size_of(board, example)
    down, right = board.offsets[side // 2]
    across, along = (right, down) if turned else (down, right)
    if side % 2 == 1:
        across, along = -across, -along
    first = 1 if parity + along < 0 else 0
    last = (length + 1 - parity - max(0, along)) // 2
    if not 0 <= line + across < n_lines:
        last = first
    return first, last, line + across, (parity + along) % 2, (parity + along) // 2
