"""Arrays of a batch, for both kinds of graphs: potentials, packing, selection, sums by example.

A graph is a NamedTuple of index arrays. Its `columns` describe the rows and values of each array:
``("edge", "node")`` has one row per edge and node indices as values, ``("node",)`` one value per node, and
``("edge", "link", "ptr")`` holds the start of the links of each edge. Rows of one example are contiguous.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel_array


class Potentials(NamedTuple):
    """Potentials theta, or an array pair of their shapes such as a gradient.

    Attributes
    ----------
    unary : ndarray of shape (n_nodes, n_states)
        ``theta(x_i)``; ``-inf`` forbids a state.
    tables : ndarray of shape (n_tables, n_states, n_states)
        ``theta(x_i, x_j)``; edge ``e`` uses ``tables[graph.edge_table[e]]``. Factor graphs have flat tables
        of shape (n_entries,). Potts tables have shape (n_tables, 2): theta of unequal and of equal states.
    """

    unary: np.ndarray
    tables: np.ndarray


def is_potts(tables):
    """Return whether the tables of pairwise potentials, or their gradient, are Potts tables.

    Parameters
    ----------
    tables : ndarray
        Tables.

    Returns
    -------
    is_potts : bool
        Whether there are two numbers per table.
    """
    return tables.ndim == 2


def canonical(theta):
    """Convert potentials to the dtype and memory order of the kernels.

    Parameters
    ----------
    theta : Potentials
        Potentials of any dtype.

    Returns
    -------
    theta : Potentials
        Writable C-ordered float64 arrays, without a copy where possible.
    """
    return Potentials(*(kernel_array(array) for array in theta))


def canonical_graph(graph):
    """Convert a graph to the dtype and memory order of the kernels.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Graph of arrays or lists of integers.

    Returns
    -------
    graph : Graph or FactorGraph
        Graph of C-ordered int64 arrays, so that every kernel is compiled only once.
    """
    return type(graph)(*(np.ascontiguousarray(array, dtype=np.int64) for array in graph))


def owner(ptr):
    """Return the segment of each element, given the start `ptr` of each segment."""
    if len(ptr) == 2:
        return np.zeros(ptr[1] - ptr[0], dtype=np.int64)
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def sum_by_example(values, example, graph):
    """Sum values over each example in order, independently of the packing.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Values.
    example : ndarray of shape (n,)
        Example of each value.
    graph : Graph
        Batch.

    Returns
    -------
    sums : ndarray of shape (n_examples,)
        One sum per example.
    """
    if graph.n_examples == 1 and len(values):
        return np.cumsum(values, dtype=np.float64)[-1:].copy()  # adds in the order of bincount
    sums = np.bincount(example, weights=values, minlength=graph.n_examples)
    return sums.astype(np.float64)  # bincount returns integers for empty input


def pack(graphs):
    """Pack graphs into one batch.

    Parameters
    ----------
    graphs : sequence of Graph or of FactorGraph
        At least one graph; each may hold several examples.

    Returns
    -------
    graph : Graph or FactorGraph
        Graph of all examples, in order.
    """
    if len(graphs) == 1:
        return graphs[0]
    sizes = [graph.sizes for graph in graphs]
    starts = {of: np.cumsum([0, *(size[of] for size in sizes)])[:-1] for of in sizes[0]}

    def joined(name, of, to=None, *is_ptr):
        arrays = [getattr(graph, name) for graph in graphs]
        parts = [array[1:] for array in arrays] if is_ptr else arrays
        values = np.concatenate(parts)
        if to is not None:
            added = np.repeat(starts[to], [len(part) for part in parts])
            values = (values.T + added).T
        return np.concatenate([[0], values]) if is_ptr else values

    columns = graphs[0].columns
    return canonical_graph(
        type(graphs[0])(**{name: joined(name, *column) for name, column in columns.items()})
    )


class Selection(NamedTuple):
    """Indices of selected examples in a batch.

    Attributes
    ----------
    examples, nodes, edges, tables : ndarray
        Indices into the batch, ascending.
    entries : ndarray
        Rows of the tables of the potentials.
    beliefs : ndarray
        Rows of the edge marginals.
    """

    examples: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    tables: np.ndarray
    entries: np.ndarray
    beliefs: np.ndarray


def select(graph, examples):
    """Select examples of a batch.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Batch.
    examples : ndarray of shape (n_examples,)
        Boolean mask with at least one True.

    Returns
    -------
    graph : Graph or FactorGraph
        Batch of the selected examples, in order.
    selection : Selection
        Indices of the selection in the batch.
    """
    chosen = {of: np.flatnonzero(examples[example]) for of, example in graph.examples_of.items()}
    ranks = {of: _ranks(rows, graph.sizes[of]) for of, rows in chosen.items()}

    def selected(name, of, to=None, *is_ptr):
        array = getattr(graph, name)
        if is_ptr:
            return np.concatenate([[0], np.cumsum(np.diff(array)[chosen[of]])])
        return array[chosen[of]] if to is None else ranks[to][array[chosen[of]]]

    batch = type(graph)(**{name: selected(name, *column) for name, column in graph.columns.items()})
    names = ("example", "node", "edge", "table", "entry", "belief")
    return canonical_graph(batch), Selection(*(chosen[of] for of in names))


def _ranks(chosen, size):
    """Return the new index of each chosen row, -1 for the others."""
    ranks = np.full(size, -1)
    ranks[chosen] = np.arange(len(chosen))
    return ranks
