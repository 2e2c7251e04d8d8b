"""Several graphs as one batch, and some examples of a batch as another: the same for every layout.

A layout is a NamedTuple of index arrays. It says of each of them, in `columns`, what its rows belong to and
what its numbers count: ``("edge", "node")`` is a row an edge that names nodes, ``("node",)`` a value of each
node, and ``("edge", "link", "ptr")`` says where the links of each edge start. `sizes` tells how many there
are of everything. What belongs to an example is contiguous.
"""

from typing import NamedTuple

import numpy as np


def canonical_graph(graph):
    """Give a graph the one dtype and memory order that kernels are compiled for.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Arrays, or lists, of numbers.

    Returns
    -------
    graph : Graph or FactorGraph
        int64 and C-ordered: each other variant would be a compilation of its own.
    """
    return type(graph)(*(np.ascontiguousarray(array, dtype=np.int64) for array in graph))


def owner(ptr):
    """Tell to which part each thing belongs.

    Parameters
    ----------
    ptr : ndarray of shape (n_parts + 1,)
        Where the things of each part start.

    Returns
    -------
    part : ndarray of shape (n_things,)
        The part of each.
    """
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
    starts = {of: np.cumsum([0, *(size[of] for size in sizes)])[:-1] for of in sizes[0]}

    def joined(name, of, to=None, *is_ptr):
        arrays = [getattr(graph, name) for graph in graphs]
        if to is not None:
            arrays = [array + start for array, start in zip(arrays, starts[to], strict=True)]
        return np.concatenate([[0], *(array[1:] for array in arrays)] if is_ptr else arrays)

    columns = graphs[0].columns
    return canonical_graph(
        type(graphs[0])(**{name: joined(name, *column) for name, column in columns.items()})
    )


class Selection(NamedTuple):
    """Where some examples stand in a batch.

    Attributes
    ----------
    examples, nodes, edges, tables : ndarray
        Indices into the batch, ascending.
    entries : ndarray
        Rows of the tables of potentials.
    beliefs : ndarray
        Rows of the marginals of edges.
    """

    examples: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    tables: np.ndarray
    entries: np.ndarray
    beliefs: np.ndarray


def select(graph, examples):
    """Take some examples out of a batch.

    Parameters
    ----------
    graph : Graph or FactorGraph
        A batch.
    examples : ndarray of shape (n_examples,)
        True for those to take, at least one.

    Returns
    -------
    graph : Graph or FactorGraph
        A batch of these examples alone, in order.
    selection : Selection
        Where they stood.
    """
    chosen = {of: np.flatnonzero(examples[part]) for of, part in graph.examples_of.items()}
    ranks = {of: _ranks(rows, graph.sizes[of]) for of, rows in chosen.items()}

    def kept(name, of, to=None, *is_ptr):
        array = getattr(graph, name)
        if is_ptr:
            return np.concatenate([[0], np.cumsum(np.diff(array)[chosen[of]])])
        return array[chosen[of]] if to is None else ranks[to][array[chosen[of]]]

    part = type(graph)(**{name: kept(name, *column) for name, column in graph.columns.items()})
    names = ("example", "node", "edge", "table", "entry", "belief")
    return canonical_graph(part), Selection(*(chosen[of] for of in names))


def _ranks(chosen, size):
    """The new number of each thing that is kept."""
    ranks = np.full(size, -1)
    ranks[chosen] = np.arange(len(chosen))
    return ranks
