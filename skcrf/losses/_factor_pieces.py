"""Factors of any number of nodes as losses see them: what labels say, pieces, and known marginals."""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel


@kernel
def _entry(graph, factor, y, link):
    """The entry of a factor at the labels of its nodes, that of `link` left out; -1 if one is hidden."""
    entry = 0
    for other in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        label = y[graph.scope[other]]
        if other != link:
            if label < 0:
                return -1
            entry += graph.stride[other] * label
    return entry


@kernel
def condition_factors(graph, theta, y, field):
    """Add what labelled nodes say to each node; a factor with a hidden node says nothing to the others."""
    field[:] = theta.unary
    for factor in range(len(graph.edge_table)):
        start = graph.entry_ptr[graph.edge_table[factor]]
        for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
            node, entry = graph.scope[link], _entry(graph, factor, y, link)
            if entry >= 0:
                for x in range(graph.cards[node]):
                    field[node, x] += theta.tables[start + entry + x * graph.stride[link]]


@kernel
def condition_factors_vjp(graph, y, d_field, d_theta):
    """Pull the derivative with respect to the field back to theta."""
    d_theta.unary[:] += d_field
    for factor in range(len(graph.edge_table)):
        start = graph.entry_ptr[graph.edge_table[factor]]
        for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
            node, entry = graph.scope[link], _entry(graph, factor, y, link)
            if entry >= 0:
                for x in range(graph.cards[node]):
                    d_theta.tables[start + entry + x * graph.stride[link]] += d_field[node, x]


@kernel
def _agrees(graph, factor, y, entry):
    """Whether an entry of a factor has the known labels of its nodes, and how many are known."""
    agrees, n_known = True, 0
    for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        node = graph.scope[link]
        if y[node] >= 0:
            n_known += 1
            agrees &= entry // graph.stride[link] % graph.cards[node] == y[node]
    return agrees, n_known


@kernel
def _log_sum(scores, chosen, n):
    top, total = -np.inf, 0.0
    for entry in range(n):
        if chosen[entry]:
            top = max(top, scores[entry])
    if top == -np.inf:
        return top
    for entry in range(n):
        if chosen[entry]:
            total += np.exp(scores[entry] - top)
    return top + np.log(total)


@kernel
def factor_pieces(graph, fields, tables, share, y, value, d_theta):
    """Add up the factors as pieces, each with the fields of its nodes: a share of their unary potentials."""
    most = 1
    for factor in range(len(graph.edge_table)):
        most = max(most, graph.belief_ptr[factor + 1] - graph.belief_ptr[factor])
    scores, agree, every = np.empty(most), np.empty(most, np.bool_), np.ones(most, np.bool_)
    for example in range(len(value)):
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            start = graph.entry_ptr[graph.edge_table[factor]]
            size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
            if _agrees(graph, factor, y, 0)[1] == 0:
                continue
            for entry in range(size):
                agree[entry], _ = _agrees(graph, factor, y, entry)
                scores[entry] = tables[start + entry]
                for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                    node = graph.scope[link]
                    scores[entry] += fields[node, entry // graph.stride[link] % graph.cards[node]]
            free, clamped = _log_sum(scores, every, size), _log_sum(scores, agree, size)
            value[example] += np.inf if clamped == -np.inf else free - clamped
            for entry in range(size):
                if scores[entry] == -np.inf:
                    continue
                d_score = np.exp(scores[entry] - free)
                if agree[entry]:
                    d_score -= np.exp(scores[entry] - clamped)
                d_theta.tables[start + entry] += d_score
                for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                    node = graph.scope[link]
                    x = entry // graph.stride[link] % graph.cards[node]
                    d_theta.unary[node, x] += share[node] * d_score


class Known(NamedTuple):
    """The marginals of factors over those of their nodes whose labels are known.

    Attributes
    ----------
    sizes : ndarray of shape (n_edges,)
        How many states these nodes have together; 0 where none is known.
    target : ndarray of shape (n_edges,)
        Which of them the labels are.
    place : ndarray of shape (n_beliefs,)
        To which of them each entry of a factor's marginal belongs.
    """

    sizes: np.ndarray
    target: np.ndarray
    place: np.ndarray


@kernel
def _known(graph, y):
    sizes, target = np.zeros(len(graph.edge_table), np.int64), np.zeros(len(graph.edge_table), np.int64)
    place = np.zeros(graph.belief_ptr[-1], np.int64)
    for factor in range(len(sizes)):
        first, last, size = graph.belief_ptr[factor], graph.belief_ptr[factor + 1], 1
        for link in range(graph.scope_ptr[factor + 1] - 1, graph.scope_ptr[factor] - 1, -1):
            node, stride = graph.scope[link], graph.stride[link]
            if y[node] >= 0:
                target[factor] += size * y[node]
                for entry in range(last - first):
                    place[first + entry] += size * (entry // stride % graph.cards[node])
                size *= graph.cards[node]
                sizes[factor] = size
    return sizes, target, place


def known_part(graph, y):
    """Find the known part of every factor.

    Parameters
    ----------
    graph : FactorGraph
        Structure.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where hidden.

    Returns
    -------
    known : Known
        The part.
    """
    return Known(*_known(graph, np.ascontiguousarray(y, dtype=np.int64)))
