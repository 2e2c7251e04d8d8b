"""Base of the methods that only maximise, and find one configuration per example."""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from skcrf.graph import Graph, Potentials, canonical, outer, score, score_vjp, sum_by_example
from skcrf.inference._base import BaseInference, Beliefs, check_numbers, check_possible

#: Finite potential that stands for a forbidden pair in methods that compute probabilities.
FORBIDDEN = -1e8
# Relative size of a difference that is well above rounding errors.
_VISIBLE = 1e-6


def finite_tables(graph, theta, forbidden=None):
    """Replace -inf in tables, so that a node has a possible state whatever the states of its neighbours are.

    Parameters
    ----------
    graph : Graph or FactorGraph
        Structure of the batch.
    theta : Potentials
        Potentials.
    forbidden : float, default=None
        Lower limit of the tables. None sets it so low that a single forbidden pair costs more than everything
        else can gain.

    Returns
    -------
    theta : Potentials
        Canonical potentials with finite tables.
    """
    theta = canonical(theta)
    check_numbers(graph, theta)
    check_possible(graph, (theta.unary > -np.inf).any(axis=1))
    if not np.isneginf(theta.tables).any():
        return theta
    forbidden = _forbidding_values(graph, theta) if forbidden is None else forbidden
    return theta._replace(tables=np.maximum(theta.tables, forbidden))


def _forbidding_values(graph, theta):
    """Compute a potential per table, (n_tables, 1, 1), that nothing else in the example can compensate."""
    nodes, (tables, lowest) = _ranges(theta.unary)[0], _ranges(theta.tables.reshape(graph.n_tables, -1))
    total = sum_by_example(nodes, graph.node_example, graph)
    total += sum_by_example(tables[graph.edge_table], graph.edge_example, graph)
    # Visible beside the other entries of the table.
    cost = 2.0 * total[graph.table_example] + _VISIBLE * np.abs(lowest)
    return (lowest - np.where(cost > 0, cost, 1.0))[:, None, None]


def _ranges(rows):
    """Compute the range and the minimum of the possible entries of each row; 0 where there are none."""
    possible = rows > -np.inf
    any_possible = possible.any(axis=1)
    lowest = np.where(any_possible, np.min(rows, axis=1, where=possible, initial=np.inf), 0.0)
    return np.where(any_possible, rows.max(axis=1), 0.0) - lowest, lowest


class Solution(NamedTuple):
    """A configuration and the course of the search.

    Attributes
    ----------
    x : ndarray of shape (n_nodes,)
        The states.
    n_iter, converged : ndarray of shape (n_examples,)
        Number of iterations, and whether the last one changed nothing.
    is_optimal : ndarray of shape (n_examples,) or None
        Whether the configuration is known to be a maximiser; None if the method never knows.
    """

    x: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    is_optimal: np.ndarray | None = None


class _State(NamedTuple):
    graph: Graph
    theta: Potentials


class MAPSolver(BaseInference):
    """Base of the methods that search for a configuration of high score.

    The derivative of the score, `log_z`, is the configuration; the derivative of the configuration is 0. The
    search treats forbidden pairs as pairs of very low score; if it cannot avoid one, the score is -inf.
    """

    tasks = frozenset({"max"})
    differentiates = frozenset({"log_z"})

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        self.task_of(graph, tau)
        x, n_iter, converged, is_optimal = self._solve(graph, finite_tables(graph, theta))
        mu, value = np.eye(theta.unary.shape[1])[x], score(graph, theta, x)
        if is_optimal is not None:  # if a maximiser is impossible, all configurations are
            check_possible(graph, ~(is_optimal & np.isneginf(value))[graph.node_example])
        return Beliefs(
            mu=mu,
            edge_mu=outer(graph, mu) if edges else None,
            log_z=value,
            n_iter=n_iter,
            converged=converged,
            state=_State(graph, theta),
            bound=None if is_optimal is None else np.where(is_optimal, value, np.inf),
        )

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, theta = beliefs.state
        d_log_z = np.zeros(graph.n_examples) if d_log_z is None else d_log_z
        return score_vjp(graph, theta, beliefs.mu, d_log_z)

    def statistics(self, graph, beliefs):
        return score_vjp(graph, beliefs.state.theta, beliefs.mu, np.ones(graph.n_examples))

    @abstractmethod
    def _solve(self, graph, theta):
        """Search for a configuration without states that theta forbids: return a Solution."""
