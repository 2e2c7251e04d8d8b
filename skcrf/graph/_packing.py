"""Packing of graphs into a batch, and selection of examples of a batch, for every layout.

A layout is a NamedTuple of index arrays. Its attribute `columns` describes each array by the items that its
rows belong to and the items that its values count: ``("edge", "node")`` is one row per edge that names nodes,
``("node",)`` one value per node, and ``("edge", "link", "ptr")`` the start of the links of each edge. `sizes`
gives the number of items of each kind. The items of an example are contiguous.
"""

from typing import NamedTuple

import numpy as np


def canonical_graph(graph):
    """Convert a graph to the dtype and memory order that kernels are compiled for.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Arrays, or lists, of numbers.

    Returns
    -------
    graph : Graph or FactorGraph
        int64 and C-ordered; every other kind of array would need a compilation of its own.
    """
    return type(graph)(*(np.ascontiguousarray(array, dtype=np.int64) for array in graph))


def owner(ptr):
    """Return the index of the owner of each item, given the start of the items of each owner."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def pack(graphs):
    """Pack graphs into one batch.

    Parameters
    ----------
    graphs : sequence of Graph or of FactorGraph
        At least one graph; each may itself hold several examples.

    Returns
    -------
    graph : Graph or FactorGraph
        One graph with all the examples, in order.
    """
    if len(graphs) == 1:
        return graphs[0]
    sizes = [graph.sizes for graph in graphs]
    offsets = {of: np.cumsum([0, *(size[of] for size in sizes)])[:-1] for of in sizes[0]}

    def joined(name, of, to=None, *is_ptr):
        arrays = [getattr(graph, name) for graph in graphs]
        if to is not None:
            arrays = [array + offset for array, offset in zip(arrays, offsets[to], strict=True)]
        return np.concatenate([[0], *(array[1:] for array in arrays)] if is_ptr else arrays)

    columns = graphs[0].columns
    return canonical_graph(
        type(graphs[0])(**{name: joined(name, *column) for name, column in columns.items()})
    )


class Selection(NamedTuple):
    """Positions of some examples in a batch.

    Attributes
    ----------
    examples, nodes, edges, tables : ndarray
        Indices into the batch, ascending.
    entries : ndarray
        Rows in the tables of potentials.
    beliefs : ndarray
        Rows in the edge marginals.
    """

    examples: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    tables: np.ndarray
    entries: np.ndarray
    beliefs: np.ndarray


def select(graph, examples):
    """Select some examples of a batch.

    Parameters
    ----------
    graph : Graph or FactorGraph
        A batch.
    examples : ndarray of shape (n_examples,)
        True for those to select, at least one.

    Returns
    -------
    graph : Graph or FactorGraph
        A batch of these examples, in order.
    selection : Selection
        Their positions in the batch.
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
    """Map the old index of each chosen item to the new one, others to -1."""
    ranks = np.full(size, -1)
    ranks[chosen] = np.arange(len(chosen))
    return ranks
