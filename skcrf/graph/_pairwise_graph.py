"""The structure of graphs, and how they are made and packed.

A batch is *one* graph with several parts, the examples. Nodes, edges and tables of an example are
contiguous (`node_ptr`, `edge_ptr`, `table_ptr`), so what is computed for an example does not depend
on which others it was packed with.
"""

from functools import lru_cache, singledispatch
from typing import NamedTuple

import numpy as np

from skcrf.graph._packing import canonical_graph, owner


class Graph(NamedTuple):
    """The structure of a batch of pairwise fields: index arrays only, all int64 and C-ordered.

    Message ``2 * e + s`` is the one that edge ``e`` sends to its end ``edges[e, s]``.

    Attributes
    ----------
    edges : ndarray of shape (n_edges, 2)
        The two nodes of each edge; the rows of a table belong to the first.
    node_ptr, edge_ptr, table_ptr : ndarray of shape (n_examples + 1,)
        Where the nodes, edges and tables of each example start.
    edge_table : ndarray of shape (n_edges,)
        Which table an edge uses. Edges may share one, never across examples.
    table_group : ndarray of shape (n_tables,)
        The kind of edge a table is for (on a lattice: its direction); each has its own weights.
    incident_ptr : ndarray of shape (n_nodes + 1,)
        Where the entries of each node start in `incident`.
    incident : ndarray of shape (2 * n_edges,)
        The messages that arrive at each node.
    schedule : ndarray of shape (2 * n_edges,)
        The order of the messages in one iteration; those of an example are contiguous.
    node_order : ndarray of shape (n_nodes,)
        The order of the nodes in one iteration over nodes; on a lattice colour by colour.
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
        """Dict: how many there are of everything; each edge has two links, one to each end."""
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
        """Dict: the example that each thing belongs to."""
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
        """Number of parts."""
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
        """ndarray of shape (n_examples,): zeros, as tables of edges are no conditional distributions."""
        return np.zeros(self.n_examples, dtype=np.int64)

    @property
    def entry_rows(self):
        """ndarray of shape (n_examples + 1,): where the tables of each example start in potentials."""
        return self.table_ptr

    @property
    def belief_rows(self):
        """ndarray of shape (n_examples + 1,): where those of each example start in marginals of edges."""
        return self.edge_ptr

    @property
    def node_example(self):
        """ndarray of shape (n_nodes,): the example a node belongs to."""
        return owner(self.node_ptr)

    @property
    def edge_example(self):
        """ndarray of shape (n_edges,): the example an edge belongs to."""
        return owner(self.edge_ptr)

    @property
    def table_example(self):
        """ndarray of shape (n_tables,): the example a table belongs to."""
        return owner(self.table_ptr)


def _single(n_nodes, edges, *, forward, tied_groups=None, node_order=None, shape=(0, 0)):
    """Build the graph of one example.

    `forward` lists the messages of one half of each sweep, a list of arrays: a sweep sends them in
    order, then the opposite messages in the opposite order. `tied_groups` is the group of each edge
    when edges of a group share a table, None for a table an edge.
    """
    edges = np.ascontiguousarray(edges, dtype=np.int64).reshape(-1, 2)
    n_edges = len(edges)
    arrivals = edges.ravel()  # entry 2 e + s is where message 2 e + s arrives
    schedule = [part for sweep in forward for part in (sweep, (sweep ^ 1)[::-1])]
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


# The neighbours of a pixel that make its edges, (down, right), by connectivity. Their order is the
# order of the sweeps: right and left, down and up, then the diagonals.
OFFSETS = {4: [(0, 1), (1, 0)], 8: [(0, 1), (1, 0), (1, 1), (1, -1)]}
#: What a pixel is to such a neighbour: its parent in a Markov mesh. All of them come earlier, line by line.
PARENTS = {"left": (0, 1), "above": (1, 0), "above_left": (1, 1), "above_right": (1, -1)}


def lattice(height, width, connectivity=4, tied=True):
    """Make the lattice of a `height` x `width` image; pixel (r, c) is node ``r * width + c``.

    Parameters
    ----------
    height, width : int
        Size of the image.
    connectivity : {4, 8}, default=4
        Neighbours of a pixel.
    tied : bool, default=True
        Whether all edges of a direction share one table.

    Returns
    -------
    graph : Graph
        The graph, with edges grouped by direction. Small ones are shared between calls: they are not to be
        written to.
    """
    make = _small_lattice if height * width <= _SMALL else _lattice
    return make(height, width, tuple(OFFSETS[connectivity]), tied)


def mesh(height, width, parents, tied=True):
    """Make the Markov mesh of an image: a directed lattice, whose edges lead from parents to children.

    Parameters
    ----------
    height, width : int
        Size of the image.
    parents : sequence of {"left", "above", "above_left", "above_right"}
        The neighbours of a pixel that are its parents, which makes a group of edges each.
    tied : bool, default=True
        Whether all edges of a direction share one table.

    Returns
    -------
    graph : Graph
        The graph, as `lattice` makes it.
    """
    return _lattice(height, width, [PARENTS[parent] for parent in parents], tied)


def _lattice(height, width, offsets, tied):
    node = np.arange(height * width).reshape(height, width)
    edges, groups, forward, n_edges = [], [], [], 0
    for group, (down, right) in enumerate(offsets):
        first = node[: height - down, max(0, -right) : width - max(0, right)].ravel()
        edges.append(np.stack([first, first + down * width + right], axis=1))
        groups.append(np.full(len(first), group))
        forward.append(2 * np.arange(n_edges, n_edges + len(first)) + 1)
        n_edges += len(first)
    row, column = np.divmod(node.ravel(), width)
    # No two neighbours have one colour, so that the nodes of a colour may be visited at once.
    straight = all(0 in offset for offset in offsets)
    colour = (row + column) % 2 if straight else 2 * (row % 2) + column % 2
    groups = np.concatenate(groups)
    graph = _single(
        height * width,
        np.concatenate(edges),
        forward=forward,
        tied_groups=groups if tied else None,
        node_order=np.argsort(colour, kind="stable"),
        shape=(height, width),
    )
    if not tied:
        graph = graph._replace(table_group=np.ascontiguousarray(groups, dtype=np.int64))
    return graph


# Images of one size come again and again, and their graph is much larger than they are.
_SMALL = 2**17
_small_lattice = lru_cache(maxsize=4)(_lattice)


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
        The graph.
    """
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
        raise ValueError(f"edges[{e}] is {edges[e].tolist()}, expected two different nodes below {n_nodes}.")
    low_first = np.lexsort((edges.max(axis=1), edges.min(axis=1)))
    towards_high = (edges[:, 1] > edges[:, 0]).astype(np.int64)
    return _single(
        n_nodes,
        edges,
        forward=[(2 * np.arange(len(edges)) + towards_high)[low_first]],
        tied_groups=np.zeros(len(edges)) if tied else None,
    )


def isolated(n_examples):
    """Make a batch of `n_examples` fields of one node each, and no edge.

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
        The same, for potentials whose tables are as `tables_of_edges` repeats them.
    """
    own = {"table_ptr": graph.edge_ptr, "edge_table": np.arange(graph.n_edges)}
    return graph._replace(table_group=graph.table_group[graph.edge_table], **own)


@singledispatch
def without_edges(graph):
    """Drop the edges: the graph of the independent model.

    Parameters
    ----------
    graph : Graph
        Any graph.

    Returns
    -------
    graph : Graph
        The same examples and nodes, no edges and no tables.
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
