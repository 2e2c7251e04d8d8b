"""Schedules of messages on pairwise graphs: their order, and the indices and exponentials for sweeps."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import GraphCache, kernel, vector_exp, vector_kernel
from skcrf.inference._pairwise.updates import POSITION, levels, node_levels, order_updates

# Number of weights per table for which exponentials are stored. Spanning trees give edges about ten.
_MAX_WEIGHTS = 32


class MessageSchedule(NamedTuple):
    """The message updates of one iteration.

    The position of a message is its index in `graph.incident`. Messages are stored by position, so that all
    messages to a node are contiguous: otherwise sweeps on large graphs mostly wait for memory.

    Updates are in an order that gives the same messages as the order of ``graph.schedule``. Those that do not
    depend on each other, in one example or in several, are computed together in blocks. The sequence of the
    updates of an example does not depend on the other examples.

    Attributes
    ----------
    updates : ndarray of shape (n_messages, 8), int32
        One row per message; columns NODE, FIRST, END, OWN, POSITION, MESSAGE, TABLE, EXP_TABLE.
    example : ndarray of shape (n_messages,), int32
        The example of each update.
    block_ptr : ndarray of shape (n_blocks + 1,)
        Where blocks of updates start. The messages of a block do not depend on each other.
    block_table : ndarray of shape (n_blocks,)
        ``2 * EXP_TABLE + MESSAGE % 2`` in blocks of `BLOCK_SIZE` messages of one example for which these are
        equal, -1 in others.
    sent_at : ndarray of shape (n_messages,), int32
        The update that sends each message, by position.
    weights : ndarray of shape (n_messages,)
        rho, by position.
    exp_tables : ndarray of shape (n_exp_tables, n_states, n_states)
        ``exp((theta - max theta) / rho)`` for each distinct pair of a table and a weight.
    edge_exp_table : ndarray of shape (n_edges,)
        The row of `exp_tables` that an edge uses, -1 for none.
    first_edge : ndarray of shape (n_exp_tables,)
        An edge that uses each row of `exp_tables`.
    """

    updates: np.ndarray
    example: np.ndarray
    block_ptr: np.ndarray
    block_table: np.ndarray
    sent_at: np.ndarray
    weights: np.ndarray
    exp_tables: np.ndarray
    edge_exp_table: np.ndarray
    first_edge: np.ndarray


class _Order(NamedTuple):
    """The part of a schedule that does not depend on potentials: all fields but `exp_tables`."""

    rho: np.ndarray
    maximise: bool
    fields: dict


_orders = GraphCache()


def message_schedule(graph, theta, rho, *, maximise):
    """Prepare the updates in the order of ``graph.schedule``; maximising needs no exponentials."""
    order = _orders.get(graph)
    if order is None or order.maximise != maximise or not np.array_equal(order.rho, rho):
        order = _orders.put(graph, _order(graph, rho, maximise))
    exp_tables = exponentials_of_tables(theta.tables, graph.edge_table, order.fields["first_edge"], rho)
    return MessageSchedule(exp_tables=exp_tables, **order.fields)


def _order(graph, rho, maximise):
    """Compute the fields of a schedule that do not depend on potentials."""
    first_edge, edge_exp_table = distinct_tables(graph, rho)
    if maximise:
        first_edge, edge_exp_table = first_edge[:0], np.full(graph.n_edges, -1)
    level = levels(graph, node_levels(graph))
    updates, example, block_ptr, block_table = order_updates(graph, level, edge_exp_table)
    sent_at = np.empty(len(updates), np.int32)
    sent_at[updates[:, POSITION]] = np.arange(len(updates), dtype=np.int32)
    fields = {"updates": updates, "example": example, "block_ptr": block_ptr, "block_table": block_table}
    fields["sent_at"] = sent_at
    edges = {"edge_exp_table": edge_exp_table, "first_edge": first_edge}
    return _Order(rho.copy(), maximise, {**fields, **edges, "weights": rho[graph.incident >> 1]})


@vector_kernel
def exponentials_of_tables(tables, edge_table, first_edge, rho):
    """Compute ``exp((theta - max theta) / rho)`` for the tables and weights of some edges."""
    out = np.empty((len(first_edge), *tables.shape[1:]))
    for row in range(len(first_edge)):
        table, power, top = edge_table[first_edge[row]], 1.0 / rho[first_edge[row]], -np.inf
        for x in range(tables.shape[1]):
            for z in range(tables.shape[2]):
                top = max(top, tables[table, x, z])
        top = top if top > -np.inf else 0.0
        for x in range(tables.shape[1]):
            for z in range(tables.shape[2]):
                out[row, x, z] = power * (tables[table, x, z] - top)
    flat = out.reshape(-1)
    for i in range(flat.size):
        flat[i] = vector_exp(flat[i])
    return out


@kernel
def distinct_tables(graph, rho):
    """List an edge for each distinct pair of a table and a weight, and the pair of each edge, -1 for none."""
    first_edge, edge_pair = np.empty(len(rho), np.int64), np.full(len(rho), -1)
    newest, older = np.full(len(graph.table_group), -1), np.empty(len(rho), np.int64)
    n_pairs = 0
    for edge in range(len(rho)):
        table = graph.edge_table[edge]
        pair, n_weights = newest[table], 0
        while pair >= 0 and rho[first_edge[pair]] != rho[edge]:
            pair, n_weights = older[pair], n_weights + 1
        if pair < 0 and n_weights < _MAX_WEIGHTS:
            pair = n_pairs
            first_edge[pair], older[pair], newest[table] = edge, newest[table], pair
            n_pairs += 1
        edge_pair[edge] = pair
    return first_edge[:n_pairs].copy(), edge_pair


# Breadth-first search, on graphs of both layouts. A link joins an edge or factor to one of its nodes.


class Links(NamedTuple):
    """The neighbours of each node.

    Attributes
    ----------
    ptr : ndarray of shape (n_nodes + 1,)
        Where the links to the neighbours of each node start.
    link : ndarray
        For each edge or factor of a node, the links to its other nodes.
    node : ndarray of shape (n_links,)
        The node of each link.
    """

    ptr: np.ndarray
    link: np.ndarray
    node: np.ndarray


def edge_links(graph):
    """List the neighbours on a pairwise graph; links are numbered like messages."""
    return Links(graph.incident_ptr, graph.incident ^ 1, graph.edges.reshape(-1))


@kernel
def breadth_first_from(links, root, visits, arrival, out):
    """Visit the nodes connected with a root once more; returns their number.

    Leaves the nodes in `out`, and the link by which each but the root was reached in `arrival`.
    """
    round_ = visits[root] + 1
    out[0], visits[root], n_found, n_done = root, round_, 1, 0
    while n_done < n_found:
        node = out[n_done]
        n_done += 1
        for p in range(links.ptr[node], links.ptr[node + 1]):
            link = links.link[p]
            neighbour = links.node[link]
            if visits[neighbour] < round_:
                out[n_found], visits[neighbour], arrival[neighbour] = neighbour, round_, link
                n_found += 1
    return n_found


@kernel
def breadth_first(links):
    """Visit all nodes; returns them in order, and the link by which each was reached, -1 at roots."""
    n_nodes, n_visited = len(links.ptr) - 1, 0
    order, arrival, visits = np.empty(n_nodes, np.int64), np.full(n_nodes, -1), np.zeros(n_nodes, np.int64)
    for root in range(n_nodes):
        if visits[root] == 0:
            n_visited += breadth_first_from(links, root, visits, arrival, order[n_visited:])
    return order, arrival


# Forests


@kernel
def cycle_edges(graph, arrival):
    """Find an edge that closes a cycle in each example, -1 in forests; `arrival` is of `breadth_first`."""
    closing = np.full(len(graph.node_ptr) - 1, -1)
    for example in range(len(closing)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            if arrival[graph.edges[edge, 0]] >> 1 != edge and arrival[graph.edges[edge, 1]] >> 1 != edge:
                closing[example] = edge
    return closing


@kernel
def two_passes(graph, order, arrival):
    """Schedule the messages of forests from leaves to roots, then back."""
    schedule = np.empty(len(graph.schedule), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        up = down = graph.edge_ptr[example] + graph.edge_ptr[example + 1]  # the middle of its messages
        for p in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            message = arrival[order[p]]
            if message >= 0:
                up -= 1
                schedule[up], schedule[down] = message ^ 1, message
                down += 1
    return schedule


# Monotonic chains. Nodes have an order, and each edge leads from its earlier to its later end. Chains that
# arrive at a node continue behind it as long as there are edges, so that max(n_before, n_after) chains pass
# through it.


class Chains(NamedTuple):
    """Schedule and edge weights of monotonic chains.

    Attributes
    ----------
    schedule : ndarray of shape (2 * n_edges,)
        In order, each node sends to all later neighbours, then in reverse order to all earlier ones.
    rho : ndarray of shape (n_edges,)
        The weight of the chains, 1 / (maximum number of chains through a node) in each component.
    inward : ndarray of shape (n_edges,)
        The message of each edge towards the end from which its chain starts.
    """

    schedule: np.ndarray
    rho: np.ndarray
    inward: np.ndarray


def monotonic_chains(graph):
    """Divide a graph into monotonic chains.

    Nodes are ordered by their numbers, on a lattice row by row; on other graphs also breadth first from a
    peripheral node, if fewer chains meet then. A component without cycles is one tree of weight 1.
    """
    return Chains(*_chains(graph, edge_links(graph)))


@kernel
def _chains(graph, links):
    n_nodes = len(graph.node_order)
    sequence, rank = np.arange(n_nodes), np.empty(n_nodes, np.int64)
    visits, arrival = np.zeros(n_nodes, np.int64), np.empty(n_nodes, np.int64)
    rho, inward = np.ones(len(graph.edges)), np.empty(len(graph.edges), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        first, end = graph.node_ptr[example], graph.node_ptr[example + 1]
        if graph.shapes[example].min() > 1:
            n_chains = _rank_nodes(graph, sequence[first:end], rank)
            _weigh(graph, sequence[first:end], rank, 1.0 / n_chains, rho, inward)
            continue
        for root in range(graph.node_ptr[example], end):
            if visits[root] > 0:
                continue
            last = first + breadth_first_from(links, root, visits, arrival, sequence[first:end])
            nodes, n_messages = sequence[first:last], 0
            for node in nodes:
                n_messages += graph.incident_ptr[node + 1] - graph.incident_ptr[node]
            if n_messages == 2 * (len(nodes) - 1):
                _order_tree(nodes, arrival, inward)
                _rank_nodes(graph, nodes, rank)
            else:
                n_chains = _order_component(graph, links, nodes, visits, arrival, rank)
                _weigh(graph, nodes, rank, 1.0 / n_chains, rho, inward)
            first = last
    return _passes(graph, sequence, rank), rho, inward


@kernel
def _order_tree(nodes, arrival, inward):
    """Reverse a tree's nodes, so that leaves come first and the root, from which it starts, last."""
    for p in range(1, len(nodes)):
        message = arrival[nodes[p]]
        inward[message >> 1] = message ^ 1
    nodes[:] = nodes[::-1].copy()


@kernel
def _order_component(graph, links, nodes, visits, arrival, rank):
    """Order the nodes of a component so that few chains meet; returns their maximum number at a node."""
    other, peripheral = np.empty_like(nodes), nodes[-1]
    nodes.sort()
    # Starting in the middle of a graph, all neighbours of the first node would come later.
    breadth_first_from(links, peripheral, visits, arrival, other)
    if _rank_nodes(graph, other, rank) < _rank_nodes(graph, nodes, rank):
        nodes[:] = other
    return _rank_nodes(graph, nodes, rank)


@kernel
def _rank_nodes(graph, nodes, rank):
    """Rank nodes by their order; returns the maximum number of chains at a node."""
    for p in range(len(nodes)):
        rank[nodes[p]] = p
    n_chains = 1
    for node in nodes:
        n_before = 0
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            n_before += rank[graph.edges[message >> 1, 1 - (message & 1)]] < rank[node]
        n_after = graph.incident_ptr[node + 1] - graph.incident_ptr[node] - n_before
        n_chains = max(n_chains, n_before, n_after)
    return n_chains


@kernel
def _weigh(graph, nodes, rank, weight, rho, inward):
    """Set the weights of the edges of a component; chains start from their earliest nodes."""
    for node in nodes:
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            rho[message >> 1] = weight
            if rank[graph.edges[message >> 1, 1 - (message & 1)]] > rank[node]:
                inward[message >> 1] = message


@kernel
def _passes(graph, sequence, rank):
    """List the messages to later neighbours in order of the nodes, then those to earlier ones in reverse."""
    schedule = np.empty(len(graph.schedule), np.int64)
    for example in range(len(graph.node_ptr) - 1):
        first, last = graph.node_ptr[example], graph.node_ptr[example + 1]
        forward = 2 * graph.edge_ptr[example]
        backward = 2 * graph.edge_ptr[example + 1]
        for p in range(first, last):
            node = sequence[p]
            # Filled from both ends: the first node of the sequence is the last to send to earlier ones.
            for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                message = graph.incident[q] ^ 1
                if rank[graph.edges[message >> 1, message & 1]] > rank[node]:
                    schedule[forward] = message
                    forward += 1
                else:
                    backward -= 1
                    schedule[backward] = message
    return schedule
