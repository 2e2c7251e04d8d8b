"""Potentials of pairwise graphs: scores, and sums over the edges of a graph.

`_factor_potentials` registers the versions of these functions for factor graphs.
"""

from functools import singledispatch

import numpy as np

from skcrf._numerics import kernel, kernel_array
from skcrf.graph._arrays import Potentials, is_potts, sum_by_example


@singledispatch
def score(graph, theta, x):
    """Compute the score ``theta . f(x)`` of a configuration.

    Parameters
    ----------
    graph : Graph
        Batch.
    theta : Potentials
        Potentials.
    x : ndarray of shape (n_nodes,)
        State of every node.

    Returns
    -------
    score : ndarray of shape (n_examples,)
        One score per example.
    """
    i, j = graph.edges.T
    unary = theta.unary[np.arange(graph.n_nodes), x]
    entries = ((x[i] == x[j]).astype(np.int64),) if is_potts(theta.tables) else (x[i], x[j])
    pairs = theta.tables[graph.edge_table, *entries]
    return sum_by_example(unary, graph.node_example, graph) + sum_by_example(pairs, graph.edge_example, graph)


@singledispatch
def score_vjp(graph, theta, mu, d_score):
    """Compute the vector-Jacobian product of `score`.

    Parameters
    ----------
    graph : Graph
        Batch.
    theta : Potentials
        Potentials.
    mu : ndarray of shape (n_nodes, n_states)
        One-hot configuration.
    d_score : ndarray of shape (n_examples,)
        Gradient with respect to the scores.

    Returns
    -------
    d_theta : Potentials
        Gradient with respect to the potentials.
    """
    tables, d_score = np.zeros(theta.tables.shape), kernel_array(d_score)
    if is_potts(tables):
        x = mu.argmax(axis=1)
        equal = x[graph.edges[:, 0]] == x[graph.edges[:, 1]]
        np.add.at(tables, (graph.edge_table, equal.astype(np.int64)), d_score[graph.edge_example])
    else:
        _add_pairs(graph, kernel_array(mu), d_score, tables)
    return Potentials(mu * d_score[graph.node_example, None], tables)


@kernel
def _add_pairs(graph, mu, d_score, tables):
    """Add the pair of states of every edge to its table, without a temporary table per edge."""
    for example in range(len(d_score)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            for x in range(mu.shape[1]):
                if mu[i, x] != 0.0:
                    for z in range(mu.shape[1]):
                        tables[table, x, z] += mu[i, x] * mu[j, z] * d_score[example]


@singledispatch
def scaled(graph, theta, scale):
    """Multiply potentials by one number per example.

    Parameters
    ----------
    graph : Graph
        Batch.
    theta : Potentials
        Potentials or their gradient.
    scale : ndarray of shape (n_examples,)
        Factor of each example.

    Returns
    -------
    theta : Potentials
        Scaled potentials.
    """
    of_tables = scale[graph.table_example].reshape(-1, *[1] * (theta.tables.ndim - 1))
    return Potentials(theta.unary * scale[graph.node_example, None], theta.tables * of_tables)


@singledispatch
def outer(graph, mu):
    """Compute the edge marginals of independent nodes.

    Parameters
    ----------
    graph : Graph
        Batch.
    mu : ndarray of shape (n_nodes, n_states)
        Node marginals, or a one-hot configuration.

    Returns
    -------
    edge_mu : ndarray of shape (n_edges, n_states, n_states)
        Outer product of the marginals of both nodes of each edge.
    """
    return mu[graph.edges[:, 0], :, None] * mu[graph.edges[:, 1], None, :]


def sum_by_node(graph, values):
    """Sum values of edges over each node, in the order of the edges, independently of the packing.

    Parameters
    ----------
    graph : Graph
        Batch.
    values : ndarray of shape (n_edges, 2 * n_states)
        Values of the states of the first node, then of the second.

    Returns
    -------
    sums : ndarray of shape (n_nodes, n_states)
        One sum per node and state.
    """
    n_states = values.shape[1] // 2
    states = graph.edges[:, :, None] * n_states + np.arange(n_states)
    sums = np.bincount(states.ravel(), weights=values.ravel(), minlength=graph.n_nodes * n_states)
    return sums.astype(np.float64).reshape(graph.n_nodes, n_states)


@singledispatch
def sum_by_table(graph, values):
    """Sum over the edges that share a table.

    Parameters
    ----------
    graph : Graph
        Batch.
    values : ndarray of shape (n_edges, n_states, n_states)
        One table per edge.

    Returns
    -------
    sums : ndarray of shape (n_tables, n_states, n_states)
        Sums in the order of the edges.
    """
    size = values.shape[1] * values.shape[2]
    entries = graph.edge_table[:, None] * size + np.arange(size)
    sums = np.bincount(entries.ravel(), weights=values.ravel(), minlength=graph.n_tables * size)
    return sums.astype(np.float64).reshape(graph.n_tables, *values.shape[1:])


@singledispatch
def tables_of_edges(graph, tables):
    """Repeat tables for the edges that share them; `sum_by_table` is the adjoint.

    Parameters
    ----------
    graph : Graph
        Batch.
    tables : ndarray of shape (n_tables, n_states, n_states)
        Tables of the potentials.

    Returns
    -------
    values : ndarray of shape (n_edges, n_states, n_states)
        One table per edge.
    """
    return tables[graph.edge_table]


@singledispatch
def sum_by_edge(graph, values):
    """Sum over the states of each edge.

    Parameters
    ----------
    graph : Graph
        Batch.
    values : ndarray of shape (n_edges, n_states, n_states)
        One table per edge.

    Returns
    -------
    sums : ndarray of shape (n_edges,)
        One sum per edge.
    """
    return values.sum(axis=(1, 2))


@singledispatch
def over_edges(graph, values):
    """Reshape values of edges so that they broadcast over the edge marginals.

    Parameters
    ----------
    graph : Graph
        Batch.
    values : ndarray of shape (n_edges,)
        One value per edge.

    Returns
    -------
    values : ndarray of shape (n_edges, 1, 1)
        The same values.
    """
    return values[:, None, None]
