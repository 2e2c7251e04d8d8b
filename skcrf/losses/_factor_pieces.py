"""Kernels of the losses on graphs with factors of any number of nodes.

Entry e of a factor has its node number s in the state ``e // stride[s] % cards[node]``.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel
from skcrf.losses._piece_likelihood import piece


@kernel
def _labelled_entry(graph, factor, y, link):
    """Compute the offset of the labels of the nodes other than that of `link`; -1 if one is hidden."""
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
    """Compute the unary potentials of each node given the labels of all others.

    Factors with another hidden node are left out.
    """
    field[:] = theta.unary
    for factor in range(len(graph.edge_table)):
        start = graph.entry_ptr[graph.edge_table[factor]]
        for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
            node, entry = graph.scope[link], _labelled_entry(graph, factor, y, link)
            if entry >= 0:
                for x in range(graph.cards[node]):
                    field[node, x] += theta.tables[start + entry + x * graph.stride[link]]


@kernel
def condition_factors_vjp(graph, y, d_field, d_theta):
    """Add the derivative with respect to the field to that with respect to theta."""
    d_theta.unary[:] += d_field
    for factor in range(len(graph.edge_table)):
        start = graph.entry_ptr[graph.edge_table[factor]]
        for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
            node, entry = graph.scope[link], _labelled_entry(graph, factor, y, link)
            if entry >= 0:
                for x in range(graph.cards[node]):
                    d_theta.tables[start + entry + x * graph.stride[link]] += d_field[node, x]


@kernel
def _mark_agreeing(graph, factor, y, agrees):
    """Mark the entries of a factor that agree with the labels of its nodes; return the number of labels."""
    n_labels = 0
    for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        n_labels += y[graph.scope[link]] >= 0
    for entry in range(len(agrees)):
        agrees[entry] = True
        for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
            node = graph.scope[link]
            if y[node] >= 0:
                agrees[entry] &= entry // graph.stride[link] % graph.cards[node] == y[node]
    return n_labels


@kernel
def factor_pieces(graph, fields, tables, share, y, value, d_theta):
    """Add the losses of all labelled factors, with a share of the unary potentials of their nodes."""
    largest = 1
    for factor in range(len(graph.edge_table)):
        largest = max(largest, graph.belief_ptr[factor + 1] - graph.belief_ptr[factor])
    all_scores, all_agrees = np.empty(largest), np.empty(largest, np.bool_)
    for example in range(len(value)):
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            start = graph.entry_ptr[graph.edge_table[factor]]
            size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
            scores, agrees = all_scores[:size], all_agrees[:size]
            if _mark_agreeing(graph, factor, y, agrees) == 0:
                continue
            for entry in range(size):
                scores[entry] = tables[start + entry]
                for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                    node = graph.scope[link]
                    scores[entry] += fields[node, entry // graph.stride[link] % graph.cards[node]]
            value[example] += piece(scores, agrees)
            for entry in range(size):
                d_theta.tables[start + entry] += scores[entry]
                for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                    node = graph.scope[link]
                    x = entry // graph.stride[link] % graph.cards[node]
                    d_theta.unary[node, x] += share[node] * scores[entry]


class LabelledStates(NamedTuple):
    """Joint states of the labelled nodes of every factor.

    Attributes
    ----------
    n_states : ndarray of shape (n_edges,)
        Number of joint states; 0 where no node is labelled.
    target : ndarray of shape (n_edges,)
        Joint state of the labels.
    state_of_entry : ndarray of shape (n_beliefs,)
        Joint state of the labelled nodes in each entry of the factor's marginal.
    """

    n_states: np.ndarray
    target: np.ndarray
    state_of_entry: np.ndarray


def labelled_states(graph, y):
    """Find the joint states of the labelled nodes of every factor."""
    return LabelledStates(*_labelled_states(graph, np.ascontiguousarray(y, dtype=np.int64)))


@kernel
def _labelled_states(graph, y):
    n_factors = len(graph.edge_table)
    n_states, target = np.zeros(n_factors, np.int64), np.zeros(n_factors, np.int64)
    state_of_entry = np.zeros(graph.belief_ptr[-1], np.int64)
    for factor in range(n_factors):
        first, last, size = graph.belief_ptr[factor], graph.belief_ptr[factor + 1], 1
        for link in range(graph.scope_ptr[factor + 1] - 1, graph.scope_ptr[factor] - 1, -1):
            node, stride = graph.scope[link], graph.stride[link]
            if y[node] >= 0:
                target[factor] += size * y[node]
                for entry in range(last - first):
                    state_of_entry[first + entry] += size * (entry // stride % graph.cards[node])
                size *= graph.cards[node]
                n_states[factor] = size
    return n_states, target, state_of_entry
