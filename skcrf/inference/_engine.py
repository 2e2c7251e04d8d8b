"""Examples of a batch that are done by different engines.

Which engine does an example is decided by the example alone, so that its answer does not depend on the batch
it is in to the last bit. Where a batch has several kinds, each is done as a batch of its own.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel_array
from skcrf.graph import Potentials, select
from skcrf.inference._base import Beliefs


class _Parts(NamedTuple):
    selections: list
    beliefs: list
    theta: Potentials


def forward_in_parts(kinds, graph, theta, run):
    """Run the inference of each kind of example.

    Parameters
    ----------
    kinds : ndarray of shape (n_examples,)
        A number for each engine.
    graph : Graph
        The batch.
    theta : Potentials
        Potentials.
    run : callable
        ``run(kind, graph, theta, selection)`` gives the Beliefs of the examples of a kind; `selection` says
        where they stand in the batch, None for a batch of one kind.

    Returns
    -------
    beliefs : Beliefs
        The answer for the batch.
    """
    found = np.unique(kinds)
    if len(found) == 1:
        return run(int(found[0]), graph, theta, None)
    selections, parts = [], []
    for kind in found.tolist():
        part, where = select(graph, kinds == kind)
        part_theta = Potentials(theta.unary[where.nodes], theta.tables[where.entries])
        selections.append(where)
        parts.append(run(kind, part, part_theta, where))

    def joined(name, field, size):
        values = [getattr(part, name) for part in parts]
        out = np.empty((size, *values[0].shape[1:]), dtype=values[0].dtype)
        for where, value in zip(selections, values, strict=True):
            out[getattr(where, field)] = value
        return out

    return Beliefs(
        mu=joined("mu", "nodes", graph.n_nodes),
        edge_mu=None if parts[0].edge_mu is None else joined("edge_mu", "beliefs", graph.sizes["belief"]),
        log_z=cache(lambda: joined("log_z", "examples", graph.n_examples)),
        n_iter=joined("n_iter", "examples", graph.n_examples),
        converged=joined("converged", "examples", graph.n_examples),
        state=_Parts(selections, parts, theta),
        bound=None if parts[0].bound is None else joined("bound", "examples", graph.n_examples),
    )


def backward_in_parts(beliefs, d_mu, d_edge_mu, d_log_z, run):
    """Run the vector-Jacobian product of `forward_in_parts`.

    Parameters
    ----------
    beliefs : Beliefs
        What it gave.
    d_mu, d_edge_mu, d_log_z : ndarray or None
        As for `BaseInference.backward`, of any numbers.
    run : callable
        ``run(beliefs, d_mu, d_edge_mu, d_log_z)`` gives the derivative for the examples of a kind.

    Returns
    -------
    d_theta : Potentials
        Derivative with respect to theta.
    """
    d_mu, d_edge_mu, d_log_z = (
        None if value is None else kernel_array(value) for value in (d_mu, d_edge_mu, d_log_z)
    )
    if not isinstance(beliefs.state, _Parts):
        return run(beliefs, d_mu, d_edge_mu, d_log_z)
    selections, parts, theta = beliefs.state
    d_theta = Potentials(np.empty_like(theta.unary), np.empty_like(theta.tables))
    for where, part in zip(selections, parts, strict=True):
        fields = (d_mu, where.nodes), (d_edge_mu, where.beliefs), (d_log_z, where.examples)
        given = (None if value is None else value[rows] for value, rows in fields)
        d_theta.unary[where.nodes], d_theta.tables[where.entries] = run(part, *given)
    return d_theta
