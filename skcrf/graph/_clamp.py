"""Clamping of labelled nodes, and augmentation of potentials by costs."""

import numpy as np


def clamp(theta, y):
    """Forbid every state but the label at each labelled node.

    Nodes with a hidden label keep their potentials.

    Parameters
    ----------
    theta : Potentials
        Potentials.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where hidden.

    Returns
    -------
    theta : Potentials
        New unary potentials, the same tables.
    """
    return theta._replace(unary=np.where(_wrong(theta, y), -np.inf, theta.unary))


def augment(theta, y, cost=1.0):
    """Add the cost of each state to the potentials, for max-margin learning; by default the Hamming loss.

    Parameters
    ----------
    theta : Potentials
        Potentials.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where hidden; nothing is added there.
    cost : float or ndarray of shape (n_nodes,) or (n_nodes, n_states), default=1.0
        Cost of a wrong label, or of each wrong label.

    Returns
    -------
    theta : Potentials
        New unary potentials, the same tables.
    """
    cost = cost if np.ndim(cost) == 2 else np.reshape(cost, (-1, 1))
    return theta._replace(unary=theta.unary + _wrong(theta, y) * cost)


def _wrong(theta, y):
    """Mark the states of labelled nodes that are not the label."""
    return (y[:, None] >= 0) & (y[:, None] != np.arange(theta.unary.shape[1]))
