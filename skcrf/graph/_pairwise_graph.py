"""Pairwise graphs: the structure of batches of fields whose factors are edges.

A batch is *one* graph that contains several examples. Nodes, edges and tables of an example are contiguous
(`node_ptr`, `edge_ptr`, `table_ptr`), so results for an example do not depend on the rest of its batch.
"""

from functools import singledispatch
from typing import NamedTuple

import numpy as np

from skcrf.graph._graph_cache import shared
from skcrf.graph._packing import canonical_graph, owner


class Graph(NamedTuple):
    """Structure of a batch of pairwise fields: index arrays, all int64 and C-ordered.

    Edge ``e`` sends message ``2 * e + s`` to its end ``edges[e, s]``.

    Attributes
    ----------
    edges : ndarray of shape (n_edges, 2)
        The two nodes of each edge; the rows of a table belong to the first.
    node_ptr, edge_ptr, table_ptr : ndarray of shape (n_examples + 1,)
        Start of the nodes, edges and tables of each example.
    edge_table : ndarray of shape (n_edges,)
        Table of each edge. Edges may share a table, but never across examples.
    table_group : ndarray of shape (n_tables,)
        Group of the edges that use a table (on a lattice: their direction); each group has its own weights.
    incident_ptr : ndarray of shape (n_nodes + 1,)
        Start of the entries of each node in `incident`.
    incident : ndarray of shape (2 * n_edges,)
        The messages that arrive at each node.
    schedule : ndarray of shape (2 * n_edges,)
        The order of the messages in one iteration; those of an example are contiguous.
    node_order : ndarray of shape (n_nodes,)
        The order of the nodes in one iteration over nodes; on a lattice, colour by colour.
    shapes : ndarray of shape (n_examples, 2)
        Height and width of the lattices, zeros for other graphs.
    """

    edges: np.ndarray
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    table_ptr: np.ndarray
    edge_table: np.ndarray
    table_group: np.ndarray
    incident_ptr: np.ndarray
    incident: np.ndarray
    schedule: np.ndarray
    node_order: np.ndarray
    shapes: np.ndarray

    layout = "pairwise"
    columns = {
        "edges": ("edge", "node"),
        "node_ptr": ("example", "node", "ptr"),
        "edge_ptr": ("example", "edge", "ptr"),
        "table_ptr": ("example", "table", "ptr"),
        "edge_table": ("edge", "table"),
        "table_group": ("table",),
        "incident_ptr": ("node", "link", "ptr"),
        "incident": ("link", "link"),
        "schedule": ("link", "link"),
        "node_order": ("node", "node"),
        "shapes": ("example",),
    }

    @property
    def sizes(self):
        """Dict: the number of items of each kind; an edge has two links, one to each end."""
        n_edges, n_tables = self.n_edges, self.n_tables
        return {
            "example": self.n_examples,
            "node": self.n_nodes,
            "edge": n_edges,
            "table": n_tables,
            "link": 2 * n_edges,
            "entry": n_tables,
            "belief": n_edges,
        }

    @property
    def examples_of(self):
        """Dict: the example of each item, by kind of item."""
        edges, tables = self.edge_example, self.table_example
        return {
            "example": np.arange(self.n_examples),
            "node": self.node_example,
            "edge": edges,
            "table": tables,
            "link": np.repeat(edges, 2),
            "entry": tables,
            "belief": edges,
        }

    @property
    def n_examples(self):
        """Number of examples."""
        return len(self.node_ptr) - 1

    @property
    def n_nodes(self):
        """Number of nodes, over all examples."""
        return len(self.node_order)

    @property
    def n_edges(self):
        """Number of edges, over all examples."""
        return len(self.edge_table)

    @property
    def n_tables(self):
        """Number of tables, over all examples."""
        return len(self.table_group)

    @property
    def normalised(self):
        """ndarray of shape (n_examples,): zeros, as tables of edges are not conditional distributions."""
        return np.zeros(self.n_examples, dtype=np.int64)

    @property
    def entry_rows(self):
        """ndarray of shape (n_examples + 1,): start of the tables of each example in potentials."""
        return self.table_ptr

    @property
    def belief_rows(self):
        """ndarray of shape (n_examples + 1,): start of the edges of each example in edge marginals."""
        return self.edge_ptr

    @property
    def node_example(self):
        """ndarray of shape (n_nodes,): the example of each node."""
        return owner(self.node_ptr)

    @property
    def edge_example(self):
        """ndarray of shape (n_edges,): the example of each edge."""
        return owner(self.edge_ptr)

    @property
    def table_example(self):
        """ndarray of shape (n_tables,): the example of each table."""
        return owner(self.table_ptr)


def single_graph(n_nodes, edges, *, forward, tied_groups=None, node_order=None, shape=(0, 0)):
    """Build the graph of one example.

    `forward` lists the messages of one half of each sweep, a list of arrays: a sweep sends them in order,
    then the opposite messages in the opposite order. `tied_groups` is the group of each edge if the edges of
    a group share a table; None for one table per edge.
    """
    edges = np.ascontiguousarray(edges, dtype=np.int64).reshape(-1, 2)
    n_edges = len(edges)
    arrivals = edges.ravel()  # entry 2 e + s is where message 2 e + s arrives
    schedule = [half for sweep in forward for half in (sweep, (sweep ^ 1)[::-1])]
    if tied_groups is None:
        edge_table, table_group = np.arange(n_edges), np.zeros(n_edges)
    else:
        table_group, edge_table = np.unique(tied_groups, return_inverse=True)
    return canonical_graph(
        Graph(
            edges=edges,
            node_ptr=[0, n_nodes],
            edge_ptr=[0, n_edges],
            table_ptr=[0, len(table_group)],
            edge_table=edge_table,
            table_group=table_group,
            incident_ptr=np.concatenate([[0], np.cumsum(np.bincount(arrivals, minlength=n_nodes))]),
            incident=np.argsort(arrivals, kind="stable"),
            schedule=np.concatenate(schedule) if schedule else [],
            node_order=np.arange(n_nodes) if node_order is None else node_order,
            shapes=[shape],
        )
    )


def chain(length, tied=True):
    """Make a chain: node i is joined to node i + 1.

    Parameters
    ----------
    length : int
        Number of nodes.
    tied : bool, default=True
        Whether all edges share one table.

    Returns
    -------
    graph : Graph
        The graph. Calls share its arrays, so do not write to them.
    """
    return _chain(length, tied)


@shared(Graph)
def _chain(length, tied):
    first = np.arange(length - 1)
    return from_edges(length, np.stack([first, first + 1], axis=1), tied=tied)


def from_edges(n_nodes, edges, tied=False):
    """Make the graph of one example from a list of edges.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    edges : array-like of shape (n_edges, 2)
        Pairs of different nodes, in any order and direction.
    tied : bool, default=False
        Whether all edges share one table.

    Returns
    -------
    graph : Graph
        The graph, its edges in the order given. Messages run from low nodes to high ones, then back.
    """
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    bad = ((edges < 0) | (edges >= n_nodes)).any(axis=1) | (edges[:, 0] == edges[:, 1])
    if bad.any():
        e = int(np.argmax(bad))
        raise ValueError(f"edges[{e}] must be two different nodes below {n_nodes}, got {edges[e].tolist()}.")
    low_first = np.lexsort((edges.max(axis=1), edges.min(axis=1)))
    towards_high = (edges[:, 1] > edges[:, 0]).astype(np.int64)
    return single_graph(
        n_nodes,
        edges,
        forward=[(2 * np.arange(len(edges)) + towards_high)[low_first]],
        tied_groups=np.zeros(len(edges)) if tied else None,
    )


def isolated(n_examples):
    """Make a batch of `n_examples` fields of one node each, without edges.

    Parameters
    ----------
    n_examples : int
        Number of fields.

    Returns
    -------
    graph : Graph
        The graph.
    """
    no_edges = np.zeros(n_examples + 1, dtype=np.int64)
    return from_edges(n_examples, [])._replace(
        node_ptr=np.arange(n_examples + 1),
        edge_ptr=no_edges,
        table_ptr=no_edges,
        shapes=np.ones((n_examples, 2), dtype=np.int64),
    )


@singledispatch
def untied(graph):
    """Give every edge a table of its own.

    Parameters
    ----------
    graph : Graph
        Any graph.

    Returns
    -------
    graph : Graph
        The same graph, for potentials whose tables are repeated by `tables_of_edges`.
    """
    return graph._replace(
        table_ptr=graph.edge_ptr,
        edge_table=np.arange(graph.n_edges),
        table_group=graph.table_group[graph.edge_table],
    )


@singledispatch
def without_edges(graph):
    """Remove all edges, which gives the graph of the independent model.

    Parameters
    ----------
    graph : Graph
        Any graph.

    Returns
    -------
    graph : Graph
        The same examples and nodes, without edges and tables.
    """
    none = np.zeros(0, dtype=np.int64)
    no_ptr = np.zeros_like(graph.node_ptr)
    return graph._replace(
        edges=none.reshape(0, 2),
        edge_ptr=no_ptr,
        table_ptr=no_ptr,
        edge_table=none,
        table_group=none,
        incident_ptr=np.zeros_like(graph.incident_ptr),
        incident=none,
        schedule=none,
    )
