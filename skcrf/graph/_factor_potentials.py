"""Potentials on factor graphs, and the operations of `_potentials` on them."""

import math

import numpy as np

from skcrf._numerics import kernel, kernel_array
from skcrf.graph._factor_graph import FactorGraph
from skcrf.graph._packing import owner
from skcrf.graph._potentials import (
    Potentials,
    outer,
    over_edges,
    scaled,
    score,
    score_vjp,
    sum_by_edge,
    sum_by_example,
    sum_by_table,
    tables_of_edges,
)


def factor_potentials(graph, tables, unary=None):
    """Make the potentials of one example from arrays.

    Parameters
    ----------
    graph : FactorGraph
        Structure.
    tables : sequence of array-like
        One array per table: one axis per node, or flat with the last node fastest.
    unary : sequence of array-like of shape (card,), default=None
        One array per node; None for zeros.

    Returns
    -------
    theta : Potentials
        Unary potentials with -inf where a node has no such state, and flat tables.
    """
    first = np.zeros(graph.n_tables, dtype=np.int64)
    first[graph.edge_table[::-1]] = np.arange(graph.n_edges)[::-1]
    scopes = [slice(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]) for factor in first]
    flat = _flat(tables, [tuple(graph.cards[graph.scope[at]].tolist()) for at in scopes], "tables")
    states = np.arange(int(graph.cards.max(initial=1)))
    padded = np.where(states < graph.cards[:, None], 0.0, -np.inf)
    if unary is not None:
        padded[padded == 0.0] = _flat(unary, [(int(card),) for card in graph.cards], "unary")
    return Potentials(padded, flat)


def _flat(arrays, shapes, name):
    """Concatenate arrays that have these shapes or are flat."""
    if len(arrays) != len(shapes):
        raise ValueError(f"{name} must hold {len(shapes)} arrays, as the graph has, got {len(arrays)}.")
    arrays = [np.asarray(array, dtype=np.float64) for array in arrays]
    for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        if array.shape not in (shape, (math.prod(shape),)):
            raise ValueError(
                f"{name}[{i}] must have the shape {shape} of the states of its nodes, got {array.shape}."
            )
    return np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])


def _entries_at(graph, x):
    """Find the entry of its table that each factor has in a configuration."""
    steps = np.bincount(
        owner(graph.scope_ptr), weights=graph.stride * x[graph.scope], minlength=graph.n_edges
    )
    return graph.entry_ptr[graph.edge_table] + steps.astype(np.int64)


@score.register
def _(graph: FactorGraph, theta, x):
    unary = theta.unary[np.arange(graph.n_nodes), x]
    tables = theta.tables[_entries_at(graph, x)]
    return sum_by_example(unary, graph.node_example, graph) + sum_by_example(
        tables, graph.edge_example, graph
    )


@score_vjp.register
def _(graph: FactorGraph, theta, mu, d_score):
    d_score = kernel_array(d_score)
    entries = _entries_at(graph, mu.argmax(axis=1))
    tables = np.bincount(entries, weights=d_score[graph.edge_example], minlength=len(theta.tables))
    return Potentials(mu * d_score[graph.node_example, None], tables.astype(np.float64))


@scaled.register
def _(graph: FactorGraph, theta, scale):
    of_tables = np.repeat(scale[graph.table_example], np.diff(graph.entry_ptr))
    return Potentials(theta.unary * scale[graph.node_example, None], theta.tables * of_tables)


def _entries(graph):
    """Find the table entry of each entry of the factor marginals."""
    shift = graph.entry_ptr[graph.edge_table] - graph.belief_ptr[:-1]
    return np.arange(graph.belief_ptr[-1]) + over_edges(graph, shift)


@sum_by_table.register
def _(graph: FactorGraph, values):
    entries = _entries(graph)
    return np.bincount(entries, weights=values, minlength=graph.entry_ptr[-1]).astype(np.float64)


@tables_of_edges.register
def _(graph: FactorGraph, tables):
    return tables[_entries(graph)]


@sum_by_edge.register
def _(graph: FactorGraph, values):
    return np.add.reduceat(values, graph.belief_ptr[:-1]) if len(values) else np.zeros(0)


@over_edges.register
def _(graph: FactorGraph, values):
    return np.repeat(values, np.diff(graph.belief_ptr))


@outer.register
def _(graph: FactorGraph, mu):
    factor_mu = np.empty(graph.belief_ptr[-1])
    _multiply(graph, kernel_array(mu), factor_mu)
    return factor_mu


@kernel
def _multiply(graph, mu, out):
    for factor in range(len(graph.edge_table)):
        first = graph.belief_ptr[factor]
        for entry in range(graph.belief_ptr[factor + 1] - first):
            product = 1.0
            for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                node = graph.scope[link]
                product *= mu[node, entry // graph.stride[link] % graph.cards[node]]
            out[first + entry] = product
