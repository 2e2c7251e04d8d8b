"""Kernels of the likelihoods of small pieces of a graph, each with all its scores in one array."""

import numpy as np

from skcrf._numerics import kernel


@kernel
def piece(scores, agrees):
    """Compute minus the log-likelihood of the labels, inf if they are impossible.

    `agrees` marks the joint states that agree with the labels. The scores are replaced by the derivative.
    """
    top, clamped_top = -np.inf, -np.inf
    for x in range(len(scores)):
        top = max(top, scores[x])
        if agrees[x]:
            clamped_top = max(clamped_top, scores[x])
    total, clamped_total = 0.0, 0.0
    for x in range(len(scores)):
        if scores[x] != -np.inf:
            total += np.exp(scores[x] - top)
            if agrees[x]:
                clamped_total += np.exp(scores[x] - clamped_top)
    free = top if top == -np.inf else top + np.log(total)
    clamped = clamped_top if clamped_top == -np.inf else clamped_top + np.log(clamped_total)
    for x in range(len(scores)):
        d_score = 0.0
        if scores[x] > -np.inf:
            d_score = np.exp(scores[x] - free)
            if agrees[x]:
                d_score -= np.exp(scores[x] - clamped)
        scores[x] = d_score
    return np.inf if clamped == -np.inf else free - clamped


@kernel
def node_pieces(node_ptr, unary, weight, y, value, d_unary):
    """Add the losses of all labelled nodes, times their weights."""
    n_states = unary.shape[1]
    scores, agrees = np.empty(n_states), np.empty(n_states, np.bool_)
    for example in range(len(value)):
        for node in range(node_ptr[example], node_ptr[example + 1]):
            if weight[node] != 0.0 and y[node] >= 0:
                for x in range(n_states):
                    scores[x], agrees[x] = unary[node, x], x == y[node]
                value[example] += weight[node] * piece(scores, agrees)
                for x in range(n_states):
                    d_unary[node, x] += weight[node] * scores[x]


@kernel
def edge_pieces(graph, fields, tables, share, y, value, d_theta):
    """Add the losses of all labelled edges, with a share of the unary potentials of their ends."""
    n_states = fields.shape[1]
    scores, agrees = np.empty(n_states**2), np.empty(n_states**2, np.bool_)
    for example in range(len(value)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            if y[i] < 0 and y[j] < 0:
                continue
            for x in range(n_states):
                for z in range(n_states):
                    scores[x * n_states + z] = tables[table, x, z] + fields[i, x] + fields[j, z]
                    agrees[x * n_states + z] = (y[i] < 0 or x == y[i]) and (y[j] < 0 or z == y[j])
            value[example] += piece(scores, agrees)
            for x in range(n_states):
                for z in range(n_states):
                    d_score = scores[x * n_states + z]
                    d_theta.tables[table, x, z] += d_score
                    d_theta.unary[i, x] += share[i] * d_score
                    d_theta.unary[j, z] += share[j] * d_score
