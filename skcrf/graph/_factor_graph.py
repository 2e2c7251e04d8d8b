"""Factor graphs: factors of any number of nodes, and one number of states per node.

Factors take the place of the edges of `Graph` and keep their attribute names: `edge_ptr` delimits the factors
of an example, `edge_table` is the table of each factor. A *link* joins a factor to one of its nodes; message
``l`` travels along link ``l`` from the factor to the node. Edge ``e`` of a `Graph` is a factor with the links
``2 e`` and ``2 e + 1``.

The tables of the potentials are flattened in C order: the state of the last node changes fastest. The unary
potentials have one column per state of the largest node, with -inf beyond the states of smaller nodes.
Factor marginals are flat, like tables.
"""

from functools import singledispatch
from typing import NamedTuple

import numpy as np

from skcrf.graph._arrays import canonical_graph, owner
from skcrf.graph._pairwise_graph import Graph, untied, without_edges

# Larger tables do not fit into memory.
_MAX_LOG2_ENTRIES = 40


class FactorGraph(NamedTuple):
    """Structure of a batch of factor graphs: C-ordered int64 index arrays.

    Attributes
    ----------
    cards : ndarray of shape (n_nodes,)
        Number of states of each node.
    scope_ptr : ndarray of shape (n_edges + 1,)
        Start of the links of each factor.
    scope : ndarray of shape (n_links,)
        Node of each link; the links of a factor are contiguous, in the order of the axes of its table.
    stride : ndarray of shape (n_links,)
        Distance in the factor's flat table between consecutive states of that node.
    node_ptr, edge_ptr, table_ptr : ndarray of shape (n_examples + 1,)
        Start of the nodes, factors and tables of each example.
    edge_table : ndarray of shape (n_edges,)
        Table of each factor. Factors of one example may share a table.
    entry_ptr : ndarray of shape (n_tables + 1,)
        Start of the entries of each table.
    belief_ptr : ndarray of shape (n_edges + 1,)
        Start of the entries of each factor in the factor marginals.
    table_group : ndarray of shape (n_tables,)
        Group of each table; each group has its own weights.
    incident_ptr : ndarray of shape (n_nodes + 1,)
        Start of the entries of each node in `incident`.
    incident : ndarray of shape (n_links,)
        Links of each node.
    schedule : ndarray of shape (n_links,)
        Order of the messages in one iteration; the messages of an example are contiguous.
    node_order : ndarray of shape (n_nodes,)
        Order of the nodes in one iteration over nodes.
    shapes : ndarray of shape (n_examples, 2)
        Height and width of images whose pixels are the nodes, else zeros.
    normalised : ndarray of shape (n_examples,)
        1 where the tables are the conditional distributions of a directed model, so that log_z is 0.
    """

    cards: np.ndarray
    scope_ptr: np.ndarray
    scope: np.ndarray
    stride: np.ndarray
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    table_ptr: np.ndarray
    edge_table: np.ndarray
    entry_ptr: np.ndarray
    belief_ptr: np.ndarray
    table_group: np.ndarray
    incident_ptr: np.ndarray
    incident: np.ndarray
    schedule: np.ndarray
    node_order: np.ndarray
    shapes: np.ndarray
    normalised: np.ndarray

    layout = "factor"
    columns = {
        "cards": ("node",),
        "scope_ptr": ("edge", "link", "ptr"),
        "scope": ("link", "node"),
        "stride": ("link",),
        "node_ptr": ("example", "node", "ptr"),
        "edge_ptr": ("example", "edge", "ptr"),
        "table_ptr": ("example", "table", "ptr"),
        "edge_table": ("edge", "table"),
        "entry_ptr": ("table", "entry", "ptr"),
        "belief_ptr": ("edge", "belief", "ptr"),
        "table_group": ("table",),
        "incident_ptr": ("node", "link", "ptr"),
        "incident": ("link", "link"),
        "schedule": ("link", "link"),
        "node_order": ("node", "node"),
        "shapes": ("example",),
        "normalised": ("example",),
    }

    n_examples = Graph.n_examples
    n_nodes = Graph.n_nodes
    n_edges = Graph.n_edges
    n_tables = Graph.n_tables
    node_example = Graph.node_example
    edge_example = Graph.edge_example
    table_example = Graph.table_example

    @property
    def entry_rows(self):
        """ndarray of shape (n_examples + 1,): start of each example in the tables of the potentials."""
        return self.entry_ptr[self.table_ptr]

    @property
    def belief_rows(self):
        """ndarray of shape (n_examples + 1,): start of each example in the factor marginals."""
        return self.belief_ptr[self.edge_ptr]

    @property
    def sizes(self):
        """Dict: number of examples, nodes, edges, ... of the batch."""
        return {
            "example": self.n_examples,
            "node": self.n_nodes,
            "edge": self.n_edges,
            "table": self.n_tables,
            "link": len(self.scope),
            "entry": int(self.entry_ptr[-1]),
            "belief": int(self.belief_ptr[-1]),
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
            "link": np.repeat(edges, np.diff(self.scope_ptr)),
            "entry": np.repeat(tables, np.diff(self.entry_ptr)),
            "belief": np.repeat(edges, np.diff(self.belief_ptr)),
        }


def from_factors(cards, scopes, *, edge_table=None, table_group=None, shape=(0, 0), normalised=False):
    """Build the graph of one example from the nodes of each factor.

    Parameters
    ----------
    cards : array-like of shape (n_nodes,)
        Number of states of each node.
    scopes : sequence of array-like
        Distinct nodes of each factor, in the order of the axes of its table. The table of a factor without
        nodes is one number.
    edge_table : array-like of shape (n_edges,), default=None
        Table of each factor; None for one table per factor.
    table_group : array-like of shape (n_tables,), default=None
        Group of each table; None for a single group.
    shape : tuple, default=(0, 0)
        Height and width of the image whose pixels are the nodes.
    normalised : bool, default=False
        Whether the tables are the conditional distributions of a directed model.

    Returns
    -------
    graph : FactorGraph
        Graph whose schedule sends messages from low to high nodes, then back.
    """
    cards = _integer_cards(cards)
    lengths = np.array([len(scope) for scope in scopes], dtype=np.int64)
    scope_ptr = np.concatenate([[0], np.cumsum(lengths)])
    scope = np.concatenate([np.zeros(0), *scopes])
    _check_scopes(cards, scope, scope_ptr)
    scope = scope.astype(np.int64)
    _check_sizes(cards[scope], scope_ptr)
    stride, sizes = _strides(cards[scope], scope_ptr)
    edge_table = np.arange(len(lengths)) if edge_table is None else np.asarray(edge_table, dtype=np.int64)
    n_tables = int(edge_table.max(initial=-1)) + 1
    _check_tables(edge_table, n_tables, cards[scope], scope_ptr)
    table_sizes = np.zeros(n_tables, dtype=np.int64)
    table_sizes[edge_table] = sizes
    return canonical_graph(
        FactorGraph(
            cards=cards,
            scope_ptr=scope_ptr,
            scope=scope,
            stride=stride,
            node_ptr=[0, len(cards)],
            edge_ptr=[0, len(lengths)],
            table_ptr=[0, n_tables],
            edge_table=edge_table,
            entry_ptr=np.concatenate([[0], np.cumsum(table_sizes)]),
            belief_ptr=np.concatenate([[0], np.cumsum(sizes)]),
            table_group=np.zeros(n_tables) if table_group is None else table_group,
            incident_ptr=np.concatenate([[0], np.cumsum(np.bincount(scope, minlength=len(cards)))]),
            incident=np.argsort(scope, kind="stable"),
            schedule=_sweeps(scope, scope_ptr),
            node_order=np.arange(len(cards)),
            shapes=[shape],
            normalised=[normalised],
        )
    )


def _integer_cards(cards):
    """Return the numbers of states as int64."""
    given = np.asarray(cards).reshape(-1)
    whole = given.astype(np.int64)
    if (whole != given).any():
        node = int(np.argmax(whole != given))
        raise ValueError(f"cards[{node}] must be an integer, got {given[node]}.")
    return whole


def _check_scopes(cards, scope, scope_ptr):
    """Check that nodes have states and that the nodes of a factor exist and are distinct."""
    if (cards < 1).any():
        node = int(np.argmax(cards < 1))
        raise ValueError(f"cards[{node}] must be at least 1, got {cards[node]}.")
    factor = owner(scope_ptr)
    outside = ~((scope >= 0) & (scope < len(cards)) & (scope == np.floor(scope)))
    repeated = np.zeros(len(scope), dtype=bool)
    order = np.lexsort((scope, factor))
    again = (np.diff(scope[order]) == 0) & (np.diff(factor[order]) == 0)
    repeated[order[1:][again]] = True
    bad = outside | repeated
    if bad.any():
        f = int(factor[np.argmax(bad)])
        nodes = [node if node % 1 else int(node) for node in scope[scope_ptr[f] : scope_ptr[f + 1]].tolist()]
        raise ValueError(f"scopes[{f}] must be distinct nodes below {len(cards)}, got {nodes}.")


def _check_sizes(cards, scope_ptr):
    """Check that no table is too large for memory."""
    total = np.concatenate([[0.0], np.cumsum(np.log2(cards))])
    log_sizes = total[scope_ptr[1:]] - total[scope_ptr[:-1]]
    if (log_sizes > _MAX_LOG2_ENTRIES).any():
        f = int(np.argmax(log_sizes))
        n_nodes = scope_ptr[f + 1] - scope_ptr[f]
        raise ValueError(
            f"scopes[{f}] must have a table of at most 2**{_MAX_LOG2_ENTRIES} entries, "
            f"got {n_nodes} nodes and 2**{log_sizes[f]:.4g} entries."
        )


def _strides(cards, scope_ptr):
    """Compute the stride of each link and the number of table entries of each factor."""
    stride, sizes = np.ones(len(cards), dtype=np.int64), np.ones(len(scope_ptr) - 1, dtype=np.int64)
    lengths = np.diff(scope_ptr)
    for place in range(1, int(lengths.max(initial=0)) + 1):  # from the last axis of each factor to its first
        factors = np.flatnonzero(lengths >= place)
        links = scope_ptr[factors + 1] - place
        stride[links] = sizes[factors]
        sizes[factors] *= cards[links]
    return stride, sizes


def _check_tables(edge_table, n_tables, cards, scope_ptr):
    """Check that tables are numbered without gaps and that factors sharing a table have its shape."""
    values = np.unique(edge_table)
    if len(values) != n_tables or edge_table.min(initial=0) < 0:
        raise ValueError(
            "edge_table must number the tables 0, 1, 2, ... without gaps, "
            f"got {len(values)} distinct values from {values[0]} to {values[-1]}."
        )
    first = {}
    for factor, table in enumerate(edge_table.tolist()) if n_tables < len(edge_table) else ():
        shape = cards[scope_ptr[factor] : scope_ptr[factor + 1]].tolist()
        if first.setdefault(table, shape) != shape:
            raise ValueError(
                f"scopes[{factor}] must have the shape {first[table]} of its table, got {shape}."
            )


def _sweeps(scope, scope_ptr):
    """Order the messages: along rising nodes to all but the lowest node of each factor, then back to it."""
    factor = owner(scope_ptr)
    lowest, highest = np.zeros(len(scope_ptr) - 1, np.int64), np.zeros(len(scope_ptr) - 1, np.int64)
    some = np.flatnonzero(np.diff(scope_ptr))
    if len(some):
        lowest[some] = np.minimum.reduceat(scope, scope_ptr[some])
        highest[some] = np.maximum.reduceat(scope, scope_ptr[some])
    order = np.lexsort((scope, highest[factor], lowest[factor]))
    back = (scope == lowest[factor])[order]
    return np.concatenate([order[~back], order[back][::-1]])


@singledispatch
def as_factors(graph, n_states):
    """Convert a pairwise graph to a factor graph with one factor per edge; factor graphs stay as they are.

    Parameters
    ----------
    graph : Graph
        Batch of pairwise graphs.
    n_states : int
        Number of states of every node.

    Returns
    -------
    graph : FactorGraph
        The same batch; its potentials are those of `graph` with flattened tables.
    """
    n_edges, n_tables, size = graph.n_edges, graph.n_tables, n_states**2
    return canonical_graph(
        FactorGraph(
            cards=np.full(graph.n_nodes, n_states),
            scope_ptr=2 * np.arange(n_edges + 1),
            scope=graph.edges.ravel(),
            stride=np.tile([n_states, 1], n_edges),
            node_ptr=graph.node_ptr,
            edge_ptr=graph.edge_ptr,
            table_ptr=graph.table_ptr,
            edge_table=graph.edge_table,
            entry_ptr=size * np.arange(n_tables + 1),
            belief_ptr=size * np.arange(n_edges + 1),
            table_group=graph.table_group,
            incident_ptr=graph.incident_ptr,
            incident=graph.incident,
            schedule=graph.schedule,
            node_order=graph.node_order,
            shapes=graph.shapes,
            normalised=np.zeros(graph.n_examples),
        )
    )


@as_factors.register
def _(graph: FactorGraph, n_states):
    return graph


@untied.register
def _(graph: FactorGraph):
    return untied.dispatch(Graph)(graph)._replace(entry_ptr=graph.belief_ptr)


@without_edges.register
def _(graph: FactorGraph):
    none, no_ptr = np.zeros(0, dtype=np.int64), np.zeros_like(graph.node_ptr)
    return graph._replace(
        scope_ptr=np.zeros(1, dtype=np.int64),
        scope=none,
        stride=none,
        edge_ptr=no_ptr,
        table_ptr=no_ptr,
        edge_table=none,
        entry_ptr=np.zeros(1, dtype=np.int64),
        belief_ptr=np.zeros(1, dtype=np.int64),
        table_group=none,
        incident_ptr=np.zeros_like(graph.incident_ptr),
        incident=none,
        schedule=none,
        normalised=np.zeros_like(graph.normalised),
    )
