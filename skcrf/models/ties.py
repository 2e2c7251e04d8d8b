"""Ties between the weights of edges: projections onto the weights that `symmetric` allows."""

import numpy as np


def untied(edge_coef, n_groups):
    """Return the weights unchanged: every pair of labels has its own."""
    return edge_coef


def symmetric(edge_coef, n_groups):
    """Average the weights of (a, b) and (b, a), so that the two ends of an edge can be exchanged."""
    return 0.5 * (edge_coef + edge_coef.transpose(0, 2, 1))


def potts(edge_coef, n_groups):
    """Average over equal and over unequal pairs of labels and over all groups of edges.

    With two labels x_i of -1 and 1 this is the form x_i x_j v.mu_ij of K05.
    """
    n_classes = edge_coef.shape[1]
    equal = np.eye(n_classes, dtype=bool)
    by_group = edge_coef.reshape(n_groups, -1, n_classes, n_classes)
    tied = np.empty_like(by_group)
    for labels in (equal, ~equal):
        n_tied = max(n_groups * labels.sum(), 1)  # a single class has no unequal pairs
        tied[:, :, labels] = by_group[:, :, labels].sum(axis=(0, 2))[:, None] / n_tied
    return tied.reshape(edge_coef.shape)


#: Projections by the value of the parameter `symmetric`.
TIES = {False: untied, True: symmetric, "potts": potts}
