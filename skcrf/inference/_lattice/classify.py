"""Which examples are lattices, and of what kind."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel


class Kind(NamedTuple):
    """How a lattice is done in tiles; what all examples have in common that are done at once.

    Attributes
    ----------
    untied : bool
        Whether each edge has its own table.
    diagonals : bool
        Whether there are eight neighbours.
    forbidden : bool
        Whether two labels are not a ratio, since one of them is forbidden somewhere.
    by_line : bool
        Whether the lines of a direction differ in their weights.
    """

    untied: bool
    diagonals: bool
    forbidden: bool
    by_line: bool

    @staticmethod
    def numbers(*flags):
        """Number kinds, from 1 on; flags as above, an array each."""
        return 1 + sum(np.asarray(flag, dtype=np.int64) << bit for bit, flag in enumerate(flags))

    @classmethod
    def of(cls, number):
        """Find the kind of a number."""
        return cls(*(bool((number - 1) >> bit & 1) for bit in range(len(cls._fields))))


def lattice_kinds(graph):
    """Tell the kind of each example by its structure alone; 0 for everything that is no lattice with edges.

    Tables must be one a direction, or one an edge.
    """
    height, width = graph.shapes.T
    n_edges, straight = np.diff(graph.edge_ptr), height * (width - 1) + width * (height - 1)
    diagonals = n_edges > straight
    is_lattice = (
        (height > 0) & (n_edges > 0) & (n_edges == straight + diagonals * 2 * (height - 1) * (width - 1))
    )
    tied, untied = _one_value_a_direction(graph, graph.edge_table), _one_table_an_edge(graph)
    return (is_lattice & (tied | untied)) * Kind.numbers(~tied, diagonals)


def first_edges(graph, n_directions=2):
    """The first edge of each example and direction, -1 where there is none: (n_examples, n_directions)."""
    height, width = graph.shapes.T
    sizes = [height * (width - 1), width * (height - 1), *2 * [(height - 1) * (width - 1)]][:n_directions]
    ends = graph.edge_ptr[:-1, None] + np.cumsum(np.stack(sizes, axis=1), axis=1)
    exists = (np.stack(sizes, axis=1) > 0) & (np.diff(graph.edge_ptr) > 0)[:, None]
    return np.where(exists, ends - np.stack(sizes, axis=1), -1)


def at_edges(values, edges, otherwise):
    """Values at some edges, and something else at -1."""
    return np.where(edges >= 0, values[edges], otherwise)


@kernel
def _directions(graph, example):
    """Where the edges down, along falling diagonals and along rising ones start, or would start."""
    height, width = graph.shapes[example]
    down = graph.edge_ptr[example] + height * (width - 1)
    falling = down + width * (height - 1)
    return down, falling, falling + (height - 1) * (width - 1)


@kernel
def _one_value_a_direction(graph, values):
    """Whether all edges of a direction have one value, for each example that is a lattice."""
    alike = np.ones(len(graph.shapes), dtype=np.bool_)
    for example in range(len(alike)):
        first = graph.edge_ptr[example]
        starts = _directions(graph, example)
        for edge in range(first, graph.edge_ptr[example + 1]):
            for start in starts:
                first = start if edge == start else first
            alike[example] &= values[edge] == values[first]
    return alike


@kernel
def weights_by_line(graph, rho, kinds):
    """The weights of the edges of each example that is a lattice.

    Returns whether rows and columns each have one weight and so does either diagonal direction, whether rows
    or columns differ, and the smallest weight.
    """
    alike, differ = np.ones(len(kinds), dtype=np.bool_), np.zeros(len(kinds), dtype=np.bool_)
    smallest = np.ones(len(kinds))
    for example in range(len(kinds)):
        if kinds[example] > 0:
            width = graph.shapes[example, 1]
            right = graph.edge_ptr[example]
            down, falling, rising = _directions(graph, example)
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
def _one_table_an_edge(graph):
    """Whether the tables of an example are those of its edges, in their order."""
    own = np.diff(graph.table_ptr) == np.diff(graph.edge_ptr)
    for example in range(len(own)):
        shift = graph.table_ptr[example] - graph.edge_ptr[example]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            own[example] &= graph.edge_table[edge] == edge + shift
    return own


@kernel
def ranges(rows, ptr):
    """Largest difference between the finite numbers of a row of each part, and whether any is not finite."""
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
