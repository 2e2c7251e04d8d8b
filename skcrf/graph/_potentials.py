"""Potentials on a graph, and what can be done with them without inference.

What depends on the layout of the graph is dispatched on it; `_factor_potentials` has the other layout.
"""

from functools import singledispatch
from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, kernel_array


class Potentials(NamedTuple):
    """theta, or anything with its layout, such as a gradient with respect to it.

    Attributes
    ----------
    unary : ndarray of shape (n_nodes, n_states)
        ``theta(x_i)``; ``-inf`` forbids a state.
    tables : ndarray of shape (n_tables, n_states, n_states)
        ``theta(x_i, x_j)``; the edges' tables are ``tables[graph.edge_table]``. Flat, (n_entries,), in the
        layout of factors.
    """

    unary: np.ndarray
    tables: np.ndarray


def canonical(theta):
    """Give potentials the one dtype and memory order that kernels are compiled for.

    Parameters
    ----------
    theta : Potentials
        Potentials of any numbers.

    Returns
    -------
    theta : Potentials
        float64, C-ordered and writable; the same arrays where they already are.
    """
    return Potentials(*(kernel_array(part) for part in theta))


@singledispatch
def score(graph, theta, x):
    """Compute the score ``theta . f(x)`` of a configuration.

    Parameters
    ----------
    graph : Graph
        Structure.
    theta : Potentials
        Potentials.
    x : ndarray of shape (n_nodes,)
        The state of every node.

    Returns
    -------
    score : ndarray of shape (n_examples,)
        One score an example.
    """
    i, j = graph.edges.T
    unary = theta.unary[np.arange(graph.n_nodes), x]
    pairs = theta.tables[graph.edge_table, x[i], x[j]]
    return sum_by_example(unary, graph.node_example, graph) + sum_by_example(pairs, graph.edge_example, graph)


@singledispatch
def score_vjp(graph, theta, mu, d_score):
    """Compute the derivative of `score`: where the configuration has its ones.

    Parameters
    ----------
    graph : Graph
        Structure.
    theta : Potentials
        Potentials.
    mu : ndarray of shape (n_nodes, n_states)
        The configuration, one-hot.
    d_score : ndarray of shape (n_examples,)
        Derivative of some value with respect to the scores.

    Returns
    -------
    d_theta : Potentials
        Derivative of that value with respect to theta.
    """
    tables, d_score = np.zeros(theta.tables.shape), kernel_array(d_score)
    _add_pairs(graph, kernel_array(mu), d_score, tables)
    return Potentials(mu * d_score[graph.node_example, None], tables)


@kernel
def _add_pairs(graph, mu, d_score, tables):
    """Add the pair of states at the ends of every edge to its table: no table an edge is made on the way."""
    for example in range(len(d_score)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            for x in range(mu.shape[1]):
                if mu[i, x] != 0.0:
                    for z in range(mu.shape[1]):
                        tables[table, x, z] += mu[i, x] * mu[j, z] * d_score[example]


@singledispatch
def scaled(graph, theta, scale):
    """Multiply what has the layout of potentials by one number an example.

    Parameters
    ----------
    graph : Graph
        Structure.
    theta : Potentials
        What to multiply.
    scale : ndarray of shape (n_examples,)
        The numbers.

    Returns
    -------
    theta : Potentials
        The products.
    """
    of_tables = scale[graph.table_example, None, None]
    return Potentials(theta.unary * scale[graph.node_example, None], theta.tables * of_tables)


@singledispatch
def outer(graph, mu):
    """Compute the edge marginals of a field whose nodes are independent.

    Parameters
    ----------
    graph : Graph
        Structure.
    mu : ndarray of shape (n_nodes, n_states)
        Node marginals, or a one-hot configuration.

    Returns
    -------
    edge_mu : ndarray of shape (n_edges, n_states, n_states)
        Products of the marginals of both ends.
    """
    return mu[graph.edges[:, 0], :, None] * mu[graph.edges[:, 1], None, :]


def sum_by_node(graph, values):
    """Sum what edges tell their ends, in order, so that the sum does not depend on the packing.

    Parameters
    ----------
    graph : Graph
        The batch.
    values : ndarray of shape (n_edges, 2 * n_states)
        One number for each state of the first end, then of the second.

    Returns
    -------
    sums : ndarray of shape (n_nodes, n_states)
        One sum a state.
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
        The batch.
    values : ndarray of shape (n_edges, n_states, n_states)
        One table an edge.

    Returns
    -------
    sums : ndarray of shape (n_tables, n_states, n_states)
        Their sums, in the order of the edges.
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
        The batch.
    tables : ndarray of shape (n_tables, n_states, n_states)
        One table a table.

    Returns
    -------
    values : ndarray of shape (n_edges, n_states, n_states)
        One table an edge.
    """
    return tables[graph.edge_table]


@singledispatch
def sum_by_edge(graph, values):
    """Sum over the pairs of states of each edge.

    Parameters
    ----------
    graph : Graph
        The batch.
    values : ndarray of shape (n_edges, n_states, n_states)
        One table an edge.

    Returns
    -------
    sums : ndarray of shape (n_edges,)
        One sum an edge.
    """
    return values.sum(axis=(1, 2))


@singledispatch
def over_edges(graph, values):
    """Give what edges have the layout of their marginals.

    Parameters
    ----------
    graph : Graph
        The batch.
    values : ndarray of shape (n_edges,)
        One number an edge.

    Returns
    -------
    values : ndarray of shape (n_edges, 1, 1)
        The same for all pairs of states.
    """
    return values[:, None, None]


def sum_by_example(values, example, graph):
    """Sum values over each example, in order, so that the sum does not depend on the packing.

    Parameters
    ----------
    values : ndarray of shape (n,)
        What to sum.
    example : ndarray of shape (n,)
        The example of each value.
    graph : Graph
        The batch.

    Returns
    -------
    sums : ndarray of shape (n_examples,)
        One sum an example.
    """
    sums = np.bincount(example, weights=values, minlength=graph.n_examples)
    return sums.astype(np.float64)  # without values, NumPy counts in integers
