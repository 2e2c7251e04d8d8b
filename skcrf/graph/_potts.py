"""Potts tables: potentials of pairs that depend only on whether both states are equal.

Such tables are stored as two numbers each, in arrays of shape (n_tables, 2): that of unequal states, then
that of equal ones. Then memory and time do not grow with the square of the number of states.
"""

import numpy as np

from skcrf.graph._arrays import is_potts

#: Columns of Potts tables.
UNEQUAL, EQUAL = range(2)


def full_tables(theta):
    """Write Potts tables out.

    Parameters
    ----------
    theta : Potentials
        Potentials of either kind of graph.

    Returns
    -------
    theta : Potentials
        The same, with tables of shape (n_tables, n_states, n_states) in place of Potts tables.
    """
    if not is_potts(theta.tables):
        return theta
    n_states = theta.unary.shape[1]
    tables = np.empty((len(theta.tables), n_states, n_states), theta.tables.dtype)
    tables[:] = theta.tables[:, UNEQUAL, None, None]
    _diagonals(tables)[:] = theta.tables[:, EQUAL, None]
    return theta._replace(tables=tables)


def full_tables_vjp(d_theta):
    """Compute the vector-Jacobian product of `full_tables`.

    Parameters
    ----------
    d_theta : Potentials
        Gradient with respect to potentials with tables of shape (n_tables, n_states, n_states), or already
        with respect to Potts tables.

    Returns
    -------
    d_theta : Potentials
        Gradient with respect to Potts tables.
    """
    if is_potts(d_theta.tables):
        return d_theta
    equal = _diagonals(d_theta.tables).sum(axis=1)
    everything = d_theta.tables.sum(axis=(1, 2))
    return d_theta._replace(tables=np.stack([everything - equal, equal], axis=1))


def _diagonals(tables):
    """View the diagonal of each C-ordered table."""
    n_states = tables.shape[1]
    return tables.reshape(len(tables), n_states**2)[:, :: n_states + 1]
