"""Potentials given labels: clamped to them, or augmented by a cost per wrong label."""

import numpy as np


def clamp(theta, y):
    """Forbid every state but the label at each labelled node.

    Parameters
    ----------
    theta : Potentials
        Potentials.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where there is none.

    Returns
    -------
    theta : Potentials
        New unary potentials, the same tables.
    """
    forbidden = (y[:, None] >= 0) & (y[:, None] != np.arange(theta.unary.shape[1]))
    return theta._replace(unary=np.where(forbidden, -np.inf, theta.unary))


def augment(theta, y, cost=1.0):
    """Add what each state costs to the potentials, as max-margin learning asks: by default the Hamming loss.

    Parameters
    ----------
    theta : Potentials
        Potentials.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where there is none; nothing is added there.
    cost : float or ndarray of shape (n_nodes,) or (n_nodes, n_states), default=1.0
        What a wrong label costs, or each of them.

    Returns
    -------
    theta : Potentials
        New unary potentials, the same tables.
    """
    wrong = (y[:, None] >= 0) & (y[:, None] != np.arange(theta.unary.shape[1]))
    cost = cost if np.ndim(cost) == 2 else np.reshape(cost, (-1, 1))
    return theta._replace(unary=theta.unary + wrong * cost)
