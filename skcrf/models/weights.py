"""The parameters of a model, and which of them are tied to one another."""

from typing import NamedTuple

import numpy as np


class Weights(NamedTuple):
    """The parameters of a model, or a gradient with respect to them.

    Attributes
    ----------
    coef : ndarray of shape (n_classes, n_features)
        Weights of the features of sites.
    intercept : ndarray of shape (n_classes,)
        Constants.
    edge_coef : ndarray of shape (n_edge_features, n_classes, n_classes)
        Weights of the features of edges; those of each group of edges follow one another.
    """

    coef: np.ndarray
    intercept: np.ndarray
    edge_coef: np.ndarray

    def ravel(self):
        """Return all parameters as one vector."""
        return np.concatenate([part.ravel() for part in self])

    def shapes(self):
        """Return the shapes of all parts."""
        return [part.shape for part in self]

    def fitted(self):
        """Return the fitted attributes of an estimator that has these weights."""
        return {f"{name}_": np.array(part) for name, part in self._asdict().items()}

    def unravel(self, w):
        """Cut a vector into parts of this shape."""
        parts, start = [], 0
        for part in self:
            parts.append(w[start : start + part.size].reshape(part.shape))
            start += part.size
        return Weights(*parts)


def zero_weights(n_classes, n_features, n_edge_features):
    """Make weights that are all zero.

    Parameters
    ----------
    n_classes, n_features, n_edge_features : int
        Sizes.

    Returns
    -------
    weights : Weights
        Zeros.
    """
    return Weights(
        np.zeros((n_classes, n_features)),
        np.zeros(n_classes),
        np.zeros((n_edge_features, n_classes, n_classes)),
    )


def untied(edge_coef, n_groups):
    """Leave weights of edges as they are.

    Parameters
    ----------
    edge_coef : ndarray of shape (n_edge_features, n_classes, n_classes)
        Weights, or a gradient with respect to them.
    n_groups : int
        Number of groups of edges, such as the directions of a lattice.

    Returns
    -------
    edge_coef : ndarray of shape (n_edge_features, n_classes, n_classes)
        The nearest that are allowed.
    """
    return edge_coef


def mirrored(edge_coef, n_groups):
    """Let the two ends of an edge be exchanged: parameters and result as for `untied`."""
    return 0.5 * (edge_coef + edge_coef.transpose(0, 2, 1))


def potts(edge_coef, n_groups):
    """Let nothing count but whether labels are equal, in all groups alike: as for `untied`.

    With two labels x_i of -1 and 1 this is the form x_i x_j v.mu_ij of K05.
    """
    n_classes = edge_coef.shape[1]
    equal = np.eye(n_classes, dtype=bool)
    by_group = edge_coef.reshape(n_groups, -1, n_classes, n_classes)
    tied = np.empty_like(by_group)
    for labels in (equal, ~equal):
        n_tied = max(n_groups * labels.sum(), 1)  # with a single class none are different
        tied[:, :, labels] = by_group[:, :, labels].sum(axis=(0, 2))[:, None] / n_tied
    return tied.reshape(edge_coef.shape)


#: What the weights of edges are allowed to be, by what a user says of `symmetric`: projections.
TIES = {False: untied, True: mirrored, "potts": potts}
