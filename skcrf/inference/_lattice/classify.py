"""Which examples are lattices that the lattice engines support, and with which options."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel


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
    """

    own_tables: bool | np.ndarray
    has_diagonals: bool | np.ndarray
    forbids_label: bool | np.ndarray = False
    weighs_lines: bool | np.ndarray = False

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
    tied, own_tables = _one_value_per_direction(graph, graph.edge_table), _one_table_per_edge(graph)
    return is_lattice & (tied | own_tables), Options(~tied, has_diagonals)


def first_edges(graph, n_directions):
    """Find the first edge of each example and direction, -1 if none: (n_examples, n_directions)."""
    height, width = graph.shapes.T
    sizes = [height * (width - 1), width * (height - 1), *2 * [(height - 1) * (width - 1)]][:n_directions]
    ends = graph.edge_ptr[:-1, None] + np.cumsum(np.stack(sizes, axis=1), axis=1)
    exists = (np.stack(sizes, axis=1) > 0) & (np.diff(graph.edge_ptr) > 0)[:, None]
    return np.where(exists, ends - np.stack(sizes, axis=1), -1)


def values_at(edges, values, default):
    """Look up the values of edges; `default` for edge -1."""
    return np.where(edges >= 0, values[edges], default)


@kernel
def _direction_starts(graph, example):
    """Find where the edges down, along falling and along rising diagonals start, or would start."""
    height, width = graph.shapes[example]
    down = graph.edge_ptr[example] + height * (width - 1)
    falling = down + width * (height - 1)
    return down, falling, falling + (height - 1) * (width - 1)


@kernel
def _one_value_per_direction(graph, values):
    """Tell for each lattice whether all edges of a direction have the same value."""
    alike = np.ones(len(graph.shapes), dtype=np.bool_)
    for example in range(len(alike)):
        first = graph.edge_ptr[example]
        starts = _direction_starts(graph, example)
        for edge in range(first, graph.edge_ptr[example + 1]):
            for start in starts:
                first = start if edge == start else first
            alike[example] &= values[edge] == values[first]
    return alike


@kernel
def weights_by_line(graph, rho, is_lattice):
    """Summarise the edge weights of each lattice.

    Returns whether rows and columns have one weight each and so does each diagonal direction, whether rows or
    columns differ, and the smallest weight.
    """
    alike, differ = np.ones(len(is_lattice), dtype=np.bool_), np.zeros(len(is_lattice), dtype=np.bool_)
    smallest = np.ones(len(is_lattice))
    for example in range(len(is_lattice)):
        if is_lattice[example]:
            width = graph.shapes[example, 1]
            right = graph.edge_ptr[example]
            down, falling, rising = _direction_starts(graph, example)
            for edge in range(right, graph.edge_ptr[example + 1]):
                if edge < down:
                    first, line = right, edge - (edge - right) % (width - 1)
                elif edge < falling:
                    first, line = down, down + (edge - down) % width
                else:
                    first = falling if edge < rising else rising
                    line = first
                alike[example] &= rho[edge] == rho[line]
                differ[example] |= rho[edge] != rho[first]
                smallest[example] = min(smallest[example], rho[edge])
    return alike, differ, smallest


@kernel
def _one_table_per_edge(graph):
    """Tell whether the tables of each example are those of its edges, in their order."""
    own = np.diff(graph.table_ptr) == np.diff(graph.edge_ptr)
    for example in range(len(own)):
        shift = graph.table_ptr[example] - graph.edge_ptr[example]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            own[example] &= graph.edge_table[edge] == edge + shift
    return own


@kernel
def finite_ranges(rows, ptr):
    """Find the largest range of finite numbers in a row of each part, and whether any is not finite."""
    ranges, forbidden = np.zeros(len(ptr) - 1), np.zeros(len(ptr) - 1, dtype=np.bool_)
    for part in range(len(ranges)):
        for i in range(ptr[part], ptr[part + 1]):
            low, high = np.inf, -np.inf
            for x in range(rows.shape[1]):
                if rows[i, x] > -np.inf:
                    low, high = min(low, rows[i, x]), max(high, rows[i, x])
                else:
                    forbidden[part] = True
            ranges[part] = max(ranges[part], high - low)
    return ranges, forbidden
