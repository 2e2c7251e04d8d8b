"""Potentials on a graph, and operations on them that need no inference.

Functions that depend on the layout are generic functions of the graph (`functools.singledispatch`). This
module has the pairwise versions, `_factor_potentials` those of factor graphs.
"""

from functools import singledispatch
from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, kernel_array


class Potentials(NamedTuple):
    """Potentials theta, or arrays of the same shapes, such as a gradient with respect to theta.

    Attributes
    ----------
    unary : ndarray of shape (n_nodes, n_states)
        ``theta(x_i)``; ``-inf`` forbids a state.
    tables : ndarray of shape (n_tables, n_states, n_states)
        ``theta(x_i, x_j)``; the tables of the edges are ``tables[graph.edge_table]``. Flat, (n_entries,), on
        factor graphs.
    """

    unary: np.ndarray
    tables: np.ndarray


def canonical(theta):
    """Convert potentials to the dtype and memory order that kernels are compiled for.

    Parameters
    ----------
    theta : Potentials
        Potentials of any dtype.

    Returns
    -------
    theta : Potentials
        float64, C-ordered and writable; without a copy if they already are.
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
        One score per example.
    """
    i, j = graph.edges.T
    unary = theta.unary[np.arange(graph.n_nodes), x]
    pairs = theta.tables[graph.edge_table, x[i], x[j]]
    return sum_by_example(unary, graph.node_example, graph) + sum_by_example(pairs, graph.edge_example, graph)


@singledispatch
def score_vjp(graph, theta, mu, d_score):
    """Compute the vector-Jacobian product of `score`.

    Parameters
    ----------
    graph : Graph
        Structure.
    theta : Potentials
        Potentials.
    mu : ndarray of shape (n_nodes, n_states)
        The configuration, one-hot.
    d_score : ndarray of shape (n_examples,)
        Derivative of a value with respect to the scores.

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
    """Add the states at the ends of every edge to its table, without making one table per edge."""
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
        Structure.
    theta : Potentials
        Potentials.
    scale : ndarray of shape (n_examples,)
        The factors.

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
    """Sum the contributions of edges to their ends, in an order that does not depend on the packing.

    Parameters
    ----------
    graph : Graph
        The batch.
    values : ndarray of shape (n_edges, 2 * n_states)
        One number per state of the first end, then of the second.

    Returns
    -------
    sums : ndarray of shape (n_nodes, n_states)
        One sum per state.
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
        One table per edge.

    Returns
    -------
    sums : ndarray of shape (n_tables, n_states, n_states)
        One sum per table, in the order of the edges.
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
        The tables.

    Returns
    -------
    values : ndarray of shape (n_edges, n_states, n_states)
        One table per edge.
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
        One table per edge.

    Returns
    -------
    sums : ndarray of shape (n_edges,)
        One sum per edge.
    """
    return values.sum(axis=(1, 2))


@singledispatch
def over_edges(graph, values):
    """Reshape one number per edge so that it can be combined with edge marginals.

    Parameters
    ----------
    graph : Graph
        The batch.
    values : ndarray of shape (n_edges,)
        One number per edge.

    Returns
    -------
    values : ndarray of shape (n_edges, 1, 1)
        The same number for all pairs of states.
    """
    return values[:, None, None]


def sum_by_example(values, example, graph):
    """Sum values over each example, in an order that does not depend on the packing.

    Parameters
    ----------
    values : ndarray of shape (n,)
        The values.
    example : ndarray of shape (n,)
        The example of each value.
    graph : Graph
        The batch.

    Returns
    -------
    sums : ndarray of shape (n_examples,)
        One sum per example.
    """
    sums = np.bincount(example, weights=values, minlength=graph.n_examples)
    return sums.astype(np.float64)  # without values, NumPy returns integers
