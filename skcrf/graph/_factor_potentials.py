"""Potentials of factor graphs: the factor versions of the functions in `_pairwise_potentials`."""

import math

import numpy as np

from skcrf._numerics import kernel, kernel_array
from skcrf.graph._arrays import Potentials, owner, sum_by_example
from skcrf.graph._factor_graph import FactorGraph
from skcrf.graph._pairwise_potentials import (
    outer,
    over_edges,
    scaled,
    score,
    score_vjp,
    sum_by_edge,
    sum_by_table,
    tables_of_edges,
)


def factor_potentials(graph, tables, unary=None):
    """Build the potentials of a factor graph.

    Parameters
    ----------
    graph : FactorGraph
        Graph of one example.
    tables : sequence of array-like
        One array per table, with one axis per node of the factor, or flattened in C order.
    unary : sequence of array-like of shape (card,), default=None
        Unary potentials of each node; None for zeros.

    Returns
    -------
    theta : Potentials
        Unary potentials, padded with -inf beyond the states of a node, and flat tables.
    """
    first = np.zeros(graph.n_tables, dtype=np.int64)
    first[graph.edge_table[::-1]] = np.arange(graph.n_edges)[::-1]
    links = [slice(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]) for factor in first]
    flat = _flat(tables, [tuple(graph.cards[graph.scope[at]].tolist()) for at in links], "tables")
    states = np.arange(int(graph.cards.max(initial=1)))
    padded = np.where(states < graph.cards[:, None], 0.0, -np.inf)
    if unary is not None:
        padded[padded == 0.0] = _flat(unary, [(int(card),) for card in graph.cards], "unary")
    return Potentials(padded, flat)


def _flat(arrays, shapes, name):
    """Concatenate arrays that have the given shapes or are flat."""
    if len(arrays) != len(shapes):
        raise ValueError(f"{name} must hold {len(shapes)} arrays, got {len(arrays)}.")
    arrays = [np.asarray(array, dtype=np.float64) for array in arrays]
    for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        accepted = dict.fromkeys([shape, (math.prod(shape),)])
        if array.shape not in accepted:
            expected = " or ".join(map(str, accepted))
            raise ValueError(f"{name}[{i}] must have shape {expected}, got shape {array.shape}.")
    return np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])


def _entries_at(graph, x):
    """Return the index of the table entry that each factor takes in configuration `x`."""
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
    """Return the index of the table entry of each entry of the factor marginals."""
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
