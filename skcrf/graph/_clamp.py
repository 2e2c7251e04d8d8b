"""Potentials given labels: clamped to them, or augmented by a cost per wrong label."""

import numpy as np


def clamp(theta, y):
    """Forbid every state but the label at each labelled node.

    Parameters
    ----------
    theta : Potentials
        Potentials of either kind of graph.
    y : ndarray of shape (n_nodes,)
        Labels, -1 for hidden labels.

    Returns
    -------
    theta : Potentials
        New unary potentials with the same tables.
    """
    return theta._replace(unary=np.where(_wrong_states(theta, y), -np.inf, theta.unary))


def augment(theta, y, cost=1.0):
    """Add the cost of each wrong state to the unary potentials (loss-augmented inference).

    Parameters
    ----------
    theta : Potentials
        Potentials of either kind of graph.
    y : ndarray of shape (n_nodes,)
        Labels, -1 for hidden labels, where no cost is added.
    cost : float or ndarray of shape (n_nodes,) or (n_nodes, n_states), default=1.0
        Cost of a wrong label, per node or per node and state; 1.0 is the Hamming loss.

    Returns
    -------
    theta : Potentials
        New unary potentials with the same tables.
    """
    cost = cost if np.ndim(cost) == 2 else np.reshape(cost, (-1, 1))
    return theta._replace(unary=theta.unary + _wrong_states(theta, y) * cost)


def _wrong_states(theta, y):
    """Mark the states other than the label of each labelled node."""
    return (y[:, None] >= 0) & (y[:, None] != np.arange(theta.unary.shape[1]))
