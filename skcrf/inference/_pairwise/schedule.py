"""What is prepared once so that messages pass quickly along any graph: where they stand, and exponentials."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel

#: Messages of a run, at most.
RUN = 8
# Weights for which the exponentials of one table are kept. Spanning trees give edges about ten.
_MOST_WEIGHTS = 32


class Route(NamedTuple):
    """The messages of an iteration, in the order of the schedule.

    A message is told by the position at which it stands in `graph.incident`: those that arrive at a node
    stand together, and so are read together. Without that, a large graph is mostly spent waiting for memory.

    Attributes
    ----------
    steps : ndarray of shape (n_messages, 6), int32
        The node that sends, the first position of what arrives there and the one behind the last, the
        position of what arrives there along the same edge, that of the message itself, and its number.
    run_ptr : ndarray of shape (n_runs + 1,)
        Where runs start. Of the messages of a run, none depends on another, so that they can be sent at once.
    example_ptr : ndarray of shape (n_examples + 1,)
        Where the runs of each example start.
    weights : ndarray of shape (n_messages,)
        rho, by position.
    factors : ndarray of shape (n_factors, n_states, n_states)
        ``exp((theta - max theta) / rho)`` of every table, for each weight of its edges.
    edge_factor : ndarray of shape (n_edges,)
        The factor of an edge, -1 if it has none.
    """

    steps: np.ndarray
    run_ptr: np.ndarray
    example_ptr: np.ndarray
    weights: np.ndarray
    factors: np.ndarray
    edge_factor: np.ndarray


def route_of(graph, theta, rho, *, maximise):
    """Prepare to pass messages.

    Parameters
    ----------
    graph : Graph
        The batch.
    theta : Potentials
        Potentials.
    rho : ndarray of shape (n_edges,)
        Edge weights.
    maximise : bool
        Whether messages maximise, which takes no exponentials.

    Returns
    -------
    route : Route
        What kernels need.
    """
    steps, run_ptr, example_ptr = _steps(graph)
    first_edge, edge_factor = distinct(graph, rho)
    if maximise:
        first_edge, edge_factor = first_edge[:0], np.full(graph.n_edges, -1)
    tables = theta.tables[graph.edge_table[first_edge]]
    top = tables.max(axis=(1, 2), keepdims=True, initial=-np.inf)
    tables -= np.where(top > -np.inf, top, 0.0)  # in place: tables of many edges are large
    tables /= rho[first_edge, None, None]
    factors = np.exp(tables, out=tables)
    return Route(steps, run_ptr, example_ptr, rho[graph.incident >> 1], factors, edge_factor)


@kernel
def _steps(graph):
    n_messages, n_examples = len(graph.schedule), len(graph.node_ptr) - 1
    position = np.empty(n_messages, np.int64)
    for q in range(n_messages):
        position[graph.incident[q]] = q
    steps, run_ptr = np.empty((n_messages, 6), np.int32), np.empty(n_messages + 1, np.int64)
    example_ptr = np.zeros(n_examples + 1, np.int64)
    reached = np.full(len(graph.node_order), -1)  # the last run that had a message to a node
    n_runs = 0
    for example in range(n_examples):
        start = -RUN
        for p in range(2 * graph.edge_ptr[example], 2 * graph.edge_ptr[example + 1]):
            message = graph.schedule[p]
            edge, side = message >> 1, message & 1
            source = graph.edges[edge, 1 - side]
            if p - start >= RUN or reached[source] == n_runs - 1:
                start = p
                run_ptr[n_runs] = p
                n_runs += 1
            reached[graph.edges[edge, side]] = n_runs - 1
            steps[p, 0] = source
            steps[p, 1] = graph.incident_ptr[source]
            steps[p, 2] = graph.incident_ptr[source + 1]
            steps[p, 3] = position[message ^ 1]
            steps[p, 4] = position[message]
            steps[p, 5] = message
        example_ptr[example + 1] = n_runs
    run_ptr[n_runs] = n_messages
    return steps, run_ptr[: n_runs + 1].copy(), example_ptr


@kernel
def distinct(graph, rho):
    """The different pairs of a table and a weight: an edge that has each, and the pair of each edge."""
    first_edge, edge_pair = np.empty(len(rho), np.int64), np.full(len(rho), -1)
    newest, older = np.full(len(graph.table_group), -1), np.empty(len(rho), np.int64)
    n_pairs = 0
    for edge in range(len(rho)):
        table = graph.edge_table[edge]
        pair, n_met = newest[table], 0
        while pair >= 0 and rho[first_edge[pair]] != rho[edge]:
            pair, n_met = older[pair], n_met + 1
        if pair < 0 and n_met < _MOST_WEIGHTS:
            pair = n_pairs
            first_edge[pair], older[pair], newest[table] = edge, newest[table], pair
            n_pairs += 1
        edge_pair[edge] = pair
    return first_edge[:n_pairs].copy(), edge_pair
