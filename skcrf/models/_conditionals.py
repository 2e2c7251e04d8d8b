"""Factors of directed models: the conditional distribution of every node given its parents.

The edges of a `Graph` lead from parents to children. With pairwise potentials, node i has state x with the
score ``unary[i, x] + sum_p tables[p, x_p, x]`` over its parents p, and ``log p(x_i | parents)`` is that score
minus its log-sum-exp over x. The product of all conditionals is a distribution, so log_z is 0.
"""

import numpy as np

from skcrf._numerics import empty, kernel, log_normalise
from skcrf.graph import ExampleError, FactorGraph, Potentials, canonical_graph, topological_order

# Entries of the largest table of a node and its parents.
_MAX_ENTRIES = 2**16


def families(graph, n_states, given=None, image_shapes=None):
    """Make the factors of a directed model: one per node, of its parents and itself.

    Parameters
    ----------
    graph : Graph
        A batch whose edges lead from parents to children.
    n_states : int
        Number of states of all nodes.
    given : ndarray of shape (n_nodes,), default=None
        Known states, -1 where unknown. Parents with a known state are left out: the factors of their children
        have the tables for these states.
    image_shapes : ndarray of shape (n_examples, 2), default=None
        Height and width of images whose pixels are the nodes, else zeros; None for those of lattices. They do
        not change the factors, but help inference to eliminate pixels in a good order.

    Returns
    -------
    factors : FactorGraph
        Factor i belongs to node i. Its nodes are the parents, in the order of their edges, then the child.
        Messages run from parents to children, then back. All examples are `normalised`.
    """
    n_nodes, edges = graph.n_nodes, graph.edges
    order = topological_order(n_nodes, edges)
    parents, children = edges.T if given is None else edges[given[edges[:, 0]] < 0].T
    order = order[np.argsort(graph.node_example[order], kind="stable")]
    n_parents = np.bincount(children, minlength=n_nodes)
    _check_families(graph, n_parents, n_states)
    scope_ptr = np.concatenate([[0], np.cumsum(n_parents + 1)])
    # Edges in the order of their children, and after each node's edges the node itself.
    of_link = np.concatenate([children, np.arange(n_nodes)])
    by_child = np.argsort(of_link, kind="stable")
    scope = np.concatenate([parents, np.arange(n_nodes)])[by_child]
    place_from_end = scope_ptr[of_link[by_child] + 1] - np.arange(len(scope)) - 1
    entry_ptr = np.concatenate([[0], np.cumsum(n_states ** (n_parents + 1))])
    return canonical_graph(
        FactorGraph(
            cards=np.full(n_nodes, n_states),
            scope_ptr=scope_ptr,
            scope=scope,
            stride=n_states**place_from_end,
            node_ptr=graph.node_ptr,
            edge_ptr=graph.node_ptr,
            table_ptr=graph.node_ptr,
            edge_table=np.arange(n_nodes),
            entry_ptr=entry_ptr,
            belief_ptr=entry_ptr,
            table_group=np.zeros(n_nodes),
            incident_ptr=np.concatenate([[0], np.cumsum(np.bincount(scope, minlength=n_nodes))]),
            incident=np.argsort(scope, kind="stable"),
            schedule=_down_and_up(graph, of_link[by_child], place_from_end, order),
            node_order=order,
            shapes=graph.shapes if image_shapes is None else image_shapes,
            normalised=np.ones(graph.n_examples),
        )
    )


def _check_families(graph, n_parents, n_states):
    """Raise an error for repeated parents and for tables that are too large."""
    pairs = graph.edges[:, 0] * graph.n_nodes + graph.edges[:, 1]
    _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    if (counts > 1).any():
        parent, child = graph.edges[first[np.argmax(counts > 1)]]
        raise ValueError(f"edges must hold every parent of a node once, got {parent} -> {child} twice.")
    most = int(np.log(_MAX_ENTRIES) / np.log(max(n_states, 2)) + 1e-9) - 1
    if (n_parents > most).any():
        node = int(np.argmax(n_parents))
        example = graph.node_example[node]
        raise ExampleError(
            f"Node {node - graph.node_ptr[example]} of {{example}} must have at most {most} parents, got "
            f"{n_parents[node]}: with {n_states} classes its table would have "
            f"{n_states}**{n_parents[node] + 1} entries.",
            example,
        )


def _down_and_up(graph, factor, place_from_end, order):
    """Order the messages: first to children, parents first; then to parents, children first."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    up = place_from_end > 0
    return np.lexsort((np.where(up, -rank[factor], rank[factor]), up, graph.node_example[factor]))


def conditionals(graph, factors, theta, given=None):
    """Compute ``log p(x_i | parents)`` of every node by normalising its scores.

    Parameters
    ----------
    graph : Graph
        A batch whose edges lead from parents to children.
    factors : FactorGraph
        Result of `families`.
    theta : Potentials
        Pairwise potentials.
    given : ndarray of shape (n_nodes,), default=None
        Known states passed to `families`.

    Returns
    -------
    log_p : Potentials
        Potentials of the factors; those of nodes are zero.
    """
    tables = empty(factors.entry_ptr[-1])
    _conditionals(graph, factors, _states(graph, given), theta, tables)
    return Potentials(np.zeros_like(theta.unary), tables)


def conditionals_vjp(graph, factors, log_p, d_log_p, given=None):
    """Compute the derivative of `conditionals`.

    Parameters
    ----------
    graph : Graph
        A batch whose edges lead from parents to children.
    factors : FactorGraph
        Result of `families`.
    log_p : Potentials
        Result of `conditionals`.
    d_log_p : Potentials
        Derivative of some value with respect to it; the part of nodes is ignored.
    given : ndarray of shape (n_nodes,), default=None
        Known states passed to `families`.

    Returns
    -------
    d_theta : Potentials
        Derivative with respect to theta.
    """
    n_states = log_p.unary.shape[1]
    d_theta = Potentials(np.zeros(log_p.unary.shape), np.zeros((graph.n_tables, n_states, n_states)))
    _conditionals_vjp(graph, factors, _states(graph, given), log_p.tables, d_log_p.tables, d_theta)
    return d_theta


def _states(graph, given):
    return np.full(graph.n_nodes, -1) if given is None else np.ascontiguousarray(given, dtype=np.int64)


@kernel
def _conditionals(graph, factors, given, theta, log_p):
    n_states = theta.unary.shape[1]
    for node in range(len(theta.unary)):
        for start in range(factors.entry_ptr[node], factors.entry_ptr[node + 1], n_states):
            row = log_p[start : start + n_states]  # one configuration of the parents
            row[:] = theta.unary[node]
            link = factors.scope_ptr[node]
            for message in graph.incident[graph.incident_ptr[node] : graph.incident_ptr[node + 1]]:
                if message % 2 == 1:  # the node is the child of this edge
                    state = given[graph.edges[message // 2, 0]]
                    if state < 0:
                        state = (start - factors.entry_ptr[node]) // factors.stride[link] % n_states
                        link += 1
                    row += theta.tables[graph.edge_table[message // 2], state]
            log_normalise(row)


@kernel
def _conditionals_vjp(graph, factors, given, log_p, d_log_p, d_theta):
    n_states = d_theta.unary.shape[1]
    d_row = np.empty(n_states)
    for node in range(len(d_theta.unary)):
        for start in range(factors.entry_ptr[node], factors.entry_ptr[node + 1], n_states):
            total, largest = 0.0, 0.0
            for x in range(n_states):
                total += d_log_p[start + x]
                largest = max(largest, abs(d_log_p[start + x]))
            if largest == 0.0:  # as most rows are where all labels are known
                continue
            for x in range(n_states):
                d_row[x] = d_log_p[start + x] - total * np.exp(log_p[start + x])
                d_theta.unary[node, x] += d_row[x]
            link = factors.scope_ptr[node]
            for message in graph.incident[graph.incident_ptr[node] : graph.incident_ptr[node + 1]]:
                if message % 2 == 1:
                    state = given[graph.edges[message // 2, 0]]
                    if state < 0:
                        state = (start - factors.entry_ptr[node]) // factors.stride[link] % n_states
                        link += 1
                    d_table = d_theta.tables[graph.edge_table[message // 2], state]
                    for x in range(n_states):
                        d_table[x] += d_row[x]


def ancestral_samples(graph, factors, theta, uniforms):
    """Draw configurations, every node after its parents.

    Parameters
    ----------
    graph : Graph
        A batch whose edges lead from parents to children.
    factors : FactorGraph
        Result of `families`.
    theta : Potentials
        Pairwise potentials.
    uniforms : ndarray of shape (n_nodes, n_samples)
        Numbers drawn uniformly from [0, 1).

    Returns
    -------
    x : ndarray of shape (n_nodes, n_samples)
        The state of every node in every sample.
    """
    x = np.zeros(uniforms.shape, dtype=np.int64)
    _ancestral_samples(graph, factors, theta, uniforms, x)
    return x


@kernel
def _ancestral_samples(graph, factors, theta, uniforms, x):
    n_states = theta.unary.shape[1]
    row = np.empty(n_states)
    for node in factors.node_order:
        for sample in range(x.shape[1]):
            row[:] = theta.unary[node]
            for message in graph.incident[graph.incident_ptr[node] : graph.incident_ptr[node + 1]]:
                if message % 2 == 1:
                    edge = message // 2
                    row += theta.tables[graph.edge_table[edge], x[graph.edges[edge, 0], sample]]
            log_normalise(row)
            left, state = uniforms[node, sample], 0
            while state < n_states - 1:
                left -= np.exp(row[state])
                if left < 0.0:
                    break
                state += 1
            x[node, sample] = state
