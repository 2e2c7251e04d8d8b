"""Pairwise graphs: lattices, Markov meshes, chains and lists of edges.

A batch is one graph whose examples have contiguous nodes, edges and tables (`node_ptr`, `edge_ptr`,
`table_ptr`), so that results for an example do not depend on the other examples of the batch.
"""

from functools import lru_cache, singledispatch
from typing import NamedTuple

import numpy as np

from skcrf.graph._arrays import canonical_graph, owner


class Graph(NamedTuple):
    """Structure of a batch of pairwise graphs: C-ordered int64 index arrays.

    Edge ``e`` sends message ``2 * e + s`` to node ``edges[e, s]``.

    Attributes
    ----------
    edges : ndarray of shape (n_edges, 2)
        Nodes of each edge; the rows of its table are the states of the first node.
    node_ptr, edge_ptr, table_ptr : ndarray of shape (n_examples + 1,)
        Start of the nodes, edges and tables of each example.
    edge_table : ndarray of shape (n_edges,)
        Table of each edge. Edges of one example may share a table.
    table_group : ndarray of shape (n_tables,)
        Group of each table (on a lattice: the direction of the edge); each group has its own weights.
    incident_ptr : ndarray of shape (n_nodes + 1,)
        Start of the entries of each node in `incident`.
    incident : ndarray of shape (2 * n_edges,)
        Messages that arrive at each node.
    schedule : ndarray of shape (2 * n_edges,)
        Order of the messages in one iteration; the messages of an example are contiguous.
    node_order : ndarray of shape (n_nodes,)
        Order of the nodes in one iteration over nodes; on a lattice, colour by colour.
    shapes : ndarray of shape (n_examples, 2)
        Height and width of lattices, zeros for other graphs.
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
        """Dict: number of examples, nodes, edges, ... of the batch; an edge has two links."""
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
        """Dict: example of each node, edge, table, ..."""
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
        """Number of nodes of all examples."""
        return len(self.node_order)

    @property
    def n_edges(self):
        """Number of edges of all examples."""
        return len(self.edge_table)

    @property
    def n_tables(self):
        """Number of tables of all examples."""
        return len(self.table_group)

    @property
    def normalised(self):
        """ndarray of shape (n_examples,): zeros, since the tables are not conditional distributions."""
        return np.zeros(self.n_examples, dtype=np.int64)

    @property
    def entry_rows(self):
        """ndarray of shape (n_examples + 1,): start of each example in the tables of the potentials."""
        return self.table_ptr

    @property
    def belief_rows(self):
        """ndarray of shape (n_examples + 1,): start of each example in the edge marginals."""
        return self.edge_ptr

    @property
    def node_example(self):
        """ndarray of shape (n_nodes,): example of each node."""
        return owner(self.node_ptr)

    @property
    def edge_example(self):
        """ndarray of shape (n_edges,): example of each edge."""
        return owner(self.edge_ptr)

    @property
    def table_example(self):
        """ndarray of shape (n_tables,): example of each table."""
        return owner(self.table_ptr)


def _single(n_nodes, edges, *, forward, tied_groups=None, node_order=None, shape=(0, 0)):
    """Build the graph of one example.

    Each array of `forward` is half a sweep: the sweep sends these messages, then the opposite messages in
    reverse order. Edges share the table of their group in `tied_groups`; None for one table per edge.
    """
    edges = np.ascontiguousarray(edges, dtype=np.int64).reshape(-1, 2)
    n_edges = len(edges)
    arrivals = edges.ravel()  # entry 2 e + s is the node where message 2 e + s arrives
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


# Offsets (down, right) from a pixel to the neighbours it has edges to, by connectivity. Their order is the
# order of the sweeps: right and left, down and up, then the diagonals.
OFFSETS = {4: [(0, 1), (1, 0)], 8: [(0, 1), (1, 0), (1, 1), (1, -1)]}
#: Offset (down, right) to a pixel from each of its parents in a Markov mesh. Parents come first row by row.
PARENTS = {"left": (0, 1), "above": (1, 0), "above_left": (1, 1), "above_right": (1, -1)}


def lattice(height, width, connectivity=4, tied=True):
    """Build the lattice of an image; pixel (r, c) is node ``r * width + c``.

    Parameters
    ----------
    height, width : int
        Size of the image.
    connectivity : {4, 8}, default=4
        Number of neighbours of a pixel.
    tied : bool, default=True
        Whether all edges of one direction share a table.

    Returns
    -------
    graph : Graph
        Graph with one group of edges per direction. Calls with equal arguments may share the graph; do not
        modify its arrays.
    """
    return _shared_lattice(height, width, tuple(OFFSETS[connectivity]), tied)


def mesh(height, width, parents, tied=True):
    """Build the Markov mesh of an image, a lattice with edges from parents to children.

    Parameters
    ----------
    height, width : int
        Size of the image.
    parents : sequence of {"left", "above", "above_left", "above_right"}
        Neighbours of a pixel that are its parents; each is one group of edges.
    tied : bool, default=True
        Whether all edges of one direction share a table.

    Returns
    -------
    graph : Graph
        Graph with one group of edges per parent. Its `shapes` are zeros unless its edges are those of a
        lattice in their order. Calls with equal arguments may share the graph; do not modify its arrays.
    """
    return _shared_lattice(height, width, tuple(PARENTS[parent] for parent in parents), tied)


def _shared_lattice(height, width, offsets, tied):
    """Return the lattice, from the cache if it is small."""
    make = _cached_lattice if height * width <= _MAX_CACHED_NODES else _lattice
    return make(height, width, offsets, tied)


def _lattice(height, width, offsets, tied):
    """Build a lattice with one group of edges per offset."""
    node = np.arange(height * width).reshape(height, width)
    edges, groups, forward, n_edges = [], [], [], 0
    for group, (down, right) in enumerate(offsets):
        first = node[: height - down, max(0, -right) : width - max(0, right)].ravel()
        edges.append(np.stack([first, first + down * width + right], axis=1))
        groups.append(np.full(len(first), group))
        forward.append(2 * np.arange(n_edges, n_edges + len(first)) + 1)
        n_edges += len(first)
    row, column = np.divmod(node.ravel(), width)
    # Neighbours have different colours, so that the nodes of one colour can be updated in parallel.
    straight = all(0 in offset for offset in offsets)
    colour = (row + column) % 2 if straight else 2 * (row % 2) + column % 2
    groups = np.concatenate(groups)
    is_lattice = list(offsets) in OFFSETS.values()  # readers of `shapes` rely on the order of the edges
    graph = _single(
        height * width,
        np.concatenate(edges),
        forward=forward,
        tied_groups=groups if tied else None,
        node_order=np.argsort(colour, kind="stable"),
        shape=(height, width) if is_lattice else (0, 0),
    )
    if not tied:
        graph = graph._replace(table_group=np.ascontiguousarray(groups, dtype=np.int64))
    return graph


# Images of one size share their graph, which takes much more memory than an image. The limit bounds the
# memory that the caches keep.
_MAX_CACHED_NODES = 2**17
_cached_lattice = lru_cache(maxsize=4)(_lattice)


def chain(length, tied=True):
    """Build a chain with edges from node i to node i + 1.

    Parameters
    ----------
    length : int
        Number of nodes.
    tied : bool, default=True
        Whether all edges share a table.

    Returns
    -------
    graph : Graph
        Chain. Calls with equal arguments may share the graph; do not modify its arrays.
    """
    make = _cached_chain if length <= _MAX_CACHED_LENGTH else _chain
    return make(length, tied)


def _chain(length, tied):
    first = np.arange(length - 1)
    return from_edges(length, np.stack([first, first + 1], axis=1), tied=tied)


# Sentences have many lengths, and making a short chain takes longer than inference on it.
_MAX_CACHED_LENGTH = 1024
_cached_chain = lru_cache(maxsize=256)(_chain)


def from_edges(n_nodes, edges, tied=False):
    """Build the graph of one example from its edges.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    edges : array-like of shape (n_edges, 2)
        Pairs of distinct nodes, in any order and direction.
    tied : bool, default=False
        Whether all edges share a table.

    Returns
    -------
    graph : Graph
        Graph with the edges in the given order. Its schedule sends messages from low to high nodes, then
        back.
    """
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    bad = ((edges < 0) | (edges >= n_nodes)).any(axis=1) | (edges[:, 0] == edges[:, 1])
    if bad.any():
        e = int(np.argmax(bad))
        raise ValueError(f"edges[{e}] must be two distinct nodes below {n_nodes}, got {edges[e].tolist()}.")
    low_first = np.lexsort((edges.max(axis=1), edges.min(axis=1)))
    towards_high = (edges[:, 1] > edges[:, 0]).astype(np.int64)
    return _single(
        n_nodes,
        edges,
        forward=[(2 * np.arange(len(edges)) + towards_high)[low_first]],
        tied_groups=np.zeros(len(edges)) if tied else None,
    )


def isolated(n_examples):
    """Build a batch of examples with one node each and no edges.

    Parameters
    ----------
    n_examples : int
        Number of examples.

    Returns
    -------
    graph : Graph
        Graph without edges.
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
    """Give every edge its own table.

    Parameters
    ----------
    graph : Graph
        Any graph.

    Returns
    -------
    graph : Graph
        Graph for potentials whose tables are those of `tables_of_edges`.
    """
    own = {"table_ptr": graph.edge_ptr, "edge_table": np.arange(graph.n_edges)}
    return graph._replace(table_group=graph.table_group[graph.edge_table], **own)


@singledispatch
def without_edges(graph):
    """Remove all edges and tables.

    Parameters
    ----------
    graph : Graph
        Any graph.

    Returns
    -------
    graph : Graph
        Graph of the same examples and nodes, without edges and tables.
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
