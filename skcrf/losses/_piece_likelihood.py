"""Likelihoods of small pieces of a graph, each with all its scores in one table."""

import numpy as np

from skcrf._numerics import kernel


@kernel
def log_sum(scores, first, second):
    """Log of the sum of exponentials of those that agree with two labels, -1 for any."""
    rows = range(len(scores)) if first < 0 else range(first, first + 1)
    columns = range(scores.shape[1]) if second < 0 else range(second, second + 1)
    top, total = -np.inf, 0.0
    for x in rows:
        for z in columns:
            top = max(top, scores[x, z])
    if top == -np.inf:
        return top
    for x in rows:
        for z in columns:
            total += np.exp(scores[x, z] - top)
    return top + np.log(total)


@kernel
def piece(scores, first, second):
    """Minus the log-likelihood of the labels of a piece, inf if they are impossible.

    The scores become the derivative.
    """
    free, clamped = log_sum(scores, -1, -1), log_sum(scores, first, second)
    for x in range(len(scores)):
        for z in range(scores.shape[1]):
            agrees = (first < 0 or x == first) and (second < 0 or z == second)
            d_score = 0.0
            if scores[x, z] > -np.inf:
                d_score = np.exp(scores[x, z] - free) - (np.exp(scores[x, z] - clamped) if agrees else 0.0)
            scores[x, z] = d_score
    return np.inf if clamped == -np.inf else free - clamped


@kernel
def node_pieces(node_ptr, unary, weight, y, value, d_unary):
    """Add up the labelled nodes as pieces of their own, each as often as its weight says."""
    scores = np.empty((unary.shape[1], 1))
    for example in range(len(value)):
        for node in range(node_ptr[example], node_ptr[example + 1]):
            if weight[node] != 0.0 and y[node] >= 0:
                for x in range(len(scores)):
                    scores[x, 0] = unary[node, x]
                value[example] += weight[node] * piece(scores, y[node], -1)
                for x in range(len(scores)):
                    d_unary[node, x] += weight[node] * scores[x, 0]


@kernel
def edge_pieces(graph, fields, tables, share, y, value, d_theta):
    """Add up the edges as pieces, each with the fields of its ends: a share of their unary potentials."""
    n_states = fields.shape[1]
    scores = np.empty((n_states, n_states))
    for example in range(len(value)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            if y[i] < 0 and y[j] < 0:
                continue
            for x in range(n_states):
                for z in range(n_states):
                    scores[x, z] = tables[table, x, z] + fields[i, x] + fields[j, z]
            value[example] += piece(scores, y[i], y[j])
            for x in range(n_states):
                for z in range(n_states):
                    d_theta.tables[table, x, z] += scores[x, z]
                    d_theta.unary[i, x] += share[i] * scores[x, z]
                    d_theta.unary[j, z] += share[j] * scores[x, z]
