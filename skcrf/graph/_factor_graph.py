"""Factor graphs: factors of any number of nodes, and any number of states per node.

Names are those of `Graph`, with a factor in the place of an edge: `edge_ptr` is the start of the factors of
each example, `edge_table` the table of each factor. A *link* joins a factor to one of its nodes; message
``l`` goes along link ``l`` from the factor to the node. An edge ``e`` of `Graph` is a factor with the links
``2 e`` and ``2 e + 1``.

Tables of potentials are flat: the state of the last node of a factor changes fastest. Unary potentials have
one column per state of the largest number of states, and -inf where a node has no such state. The marginals
of factors are flat, like tables.
"""

from typing import NamedTuple

import numpy as np

from skcrf.graph._packing import canonical_graph, owner
from skcrf.graph._pairwise_graph import Graph, untied, without_edges

# Largest log2 of the number of entries of a table: no memory holds more.
_MOST_LOG2_ENTRIES = 40


class FactorGraph(NamedTuple):
    """Structure of a batch of fields with factors: index arrays, all int64 and C-ordered.

    Attributes
    ----------
    cards : ndarray of shape (n_nodes,)
        Number of states of each node.
    scope_ptr : ndarray of shape (n_edges + 1,)
        Start of the links of each factor.
    scope : ndarray of shape (n_links,)
        The node of each link; links of a factor are contiguous, in the order of the axes of its table.
    stride : ndarray of shape (n_links,)
        Distance in the factor's table between entries that differ by one in the state of that node.
    node_ptr, edge_ptr, table_ptr : ndarray of shape (n_examples + 1,)
        Start of the nodes, factors and tables of each example.
    edge_table : ndarray of shape (n_edges,)
        Table of each factor. Factors may share a table, but never across examples.
    entry_ptr : ndarray of shape (n_tables + 1,)
        Start of the entries of each table.
    belief_ptr : ndarray of shape (n_edges + 1,)
        Start of the marginals of each factor, in the array of all factor marginals.
    table_group : ndarray of shape (n_tables,)
        Group of the factors that use a table.
    incident_ptr : ndarray of shape (n_nodes + 1,)
        Start of the entries of each node in `incident`.
    incident : ndarray of shape (n_links,)
        The links at each node.
    schedule : ndarray of shape (n_links,)
        The order of the messages in one iteration; those of an example are contiguous.
    node_order : ndarray of shape (n_nodes,)
        The order of the nodes in one iteration over nodes.
    shapes : ndarray of shape (n_examples, 2)
        Height and width if the nodes are the pixels of an image, else zeros.
    normalised : ndarray of shape (n_examples,)
        1 where the tables are conditional distributions of a directed model, so that log_z is 0.
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
        """ndarray of shape (n_examples + 1,): start of the tables of each example in potentials."""
        return self.entry_ptr[self.table_ptr]

    @property
    def belief_rows(self):
        """ndarray of shape (n_examples + 1,): start of the factors of each example in factor marginals."""
        return self.belief_ptr[self.edge_ptr]

    @property
    def sizes(self):
        """Dict: the number of items of each kind."""
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
        """Dict: the example of each item, by kind of item."""
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
    """Make the graph of one example from the nodes of each factor.

    Parameters
    ----------
    cards : array-like of shape (n_nodes,)
        Number of states of each node.
    scopes : sequence of array-like
        The nodes of each factor, all different, in the order of the axes of its table. The table of a factor
        without nodes is one number.
    edge_table : array-like of shape (n_edges,), default=None
        Table of each factor; None for one table per factor.
    table_group : array-like of shape (n_tables,), default=None
        Group of the factors that use a table; None for a single group.
    shape : tuple, default=(0, 0)
        Height and width if the nodes are the pixels of an image.
    normalised : bool, default=False
        Whether the tables are the conditional distributions of a directed model.

    Returns
    -------
    graph : FactorGraph
        The graph. Messages run from low nodes to high ones, then back.
    """
    cards = _check_cards(cards)
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


def _check_cards(cards):
    given = np.asarray(cards).reshape(-1)
    whole = given.astype(np.int64)
    bad = (whole != given) | (whole < 1)
    if bad.any():
        node = int(np.argmax(bad))
        raise ValueError(f"cards[{node}] must be a whole number of at least one state, got {given[node]}.")
    return whole


def _check_scopes(cards, scope, scope_ptr):
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
        raise ValueError(f"scopes[{f}] must be different nodes below {len(cards)}, got {nodes}.")


def _check_sizes(cards, scope_ptr):
    """Raise an error for tables that no memory holds."""
    total = np.concatenate([[0.0], np.cumsum(np.log2(cards))])
    log_sizes = total[scope_ptr[1:]] - total[scope_ptr[:-1]]
    if (log_sizes > _MOST_LOG2_ENTRIES).any():
        f = int(np.argmax(log_sizes))
        n_nodes = scope_ptr[f + 1] - scope_ptr[f]
        raise ValueError(
            f"scopes[{f}] must have a table of at most 2**{_MOST_LOG2_ENTRIES} entries, got {n_nodes} nodes "
            f"with a table of 2**{log_sizes[f]:.4g} entries."
        )


def _strides(cards, scope_ptr):
    """Compute the stride of each link in the table of its factor, and the size of each table."""
    stride, sizes = np.ones(len(cards), dtype=np.int64), np.ones(len(scope_ptr) - 1, dtype=np.int64)
    lengths = np.diff(scope_ptr)
    for axis in range(1, int(lengths.max(initial=0)) + 1):  # counted from the last axis of each factor
        factors = np.flatnonzero(lengths >= axis)
        links = scope_ptr[factors + 1] - axis
        stride[links] = sizes[factors]
        sizes[factors] *= cards[links]
    return stride, sizes


def _check_tables(edge_table, n_tables, cards, scope_ptr):
    """Raise an error if factors share a table but differ in shape."""
    if len(np.unique(edge_table)) != n_tables or edge_table.min(initial=0) < 0:
        raise ValueError(
            f"edge_table must name every table below {n_tables}, got {np.unique(edge_table).tolist()}."
        )
    first = {}
    for factor, table in enumerate(edge_table.tolist()) if n_tables < len(edge_table) else ():
        shape = cards[scope_ptr[factor] : scope_ptr[factor + 1]].tolist()
        if first.setdefault(table, shape) != shape:
            raise ValueError(
                f"scopes[{factor}] must have the shape {first[table]} of its table, got {shape}."
            )


def _sweeps(scope, scope_ptr):
    """Order the messages: along rising nodes to all but the lowest of each factor, then back to these."""
    factor = owner(scope_ptr)
    lowest, highest = np.zeros(len(scope_ptr) - 1, np.int64), np.zeros(len(scope_ptr) - 1, np.int64)
    with_nodes = np.flatnonzero(np.diff(scope_ptr))
    if len(with_nodes):
        lowest[with_nodes] = np.minimum.reduceat(scope, scope_ptr[with_nodes])
        highest[with_nodes] = np.maximum.reduceat(scope, scope_ptr[with_nodes])
    order = np.lexsort((scope, highest[factor], lowest[factor]))
    back = (scope == lowest[factor])[order]
    return np.concatenate([order[~back], order[back][::-1]])


def as_factors(graph, n_states):
    """Convert a pairwise graph to a factor graph, with edges as factors of two nodes.

    Parameters
    ----------
    graph : Graph
        A batch.
    n_states : int
        Number of states of all nodes.

    Returns
    -------
    graph : FactorGraph
        The same batch, for potentials with flat tables.
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
