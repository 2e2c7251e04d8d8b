"""Base of the methods that maximise and do nothing else: they answer with one configuration an example."""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from skcrf.graph import Graph, Potentials, canonical, outer, score, score_vjp, sum_by_example
from skcrf.inference._base import BaseInference, Beliefs, check_numbers, check_possible

#: The potential of a pair that is all but forbidden, where states have probabilities.
NEVER = -1e8
# What share of a number is well above its last digits.
_SHOWS = 1e-6


def searchable(graph, theta, instead=None):
    """Make potentials under which a node always has a state to go to, whatever its neighbours have.

    Parameters
    ----------
    graph : Graph
        Structure of the batch.
    theta : Potentials
        Potentials.
    instead : float, default=None
        The potential that stands for a forbidden pair, where -inf would forbid every state to a search that
        cannot avoid one. None is so low that a single one costs more than all else can gain.

    Returns
    -------
    theta : Potentials
        The same, with no pair that is forbidden.
    """
    theta = canonical(theta)
    check_numbers(graph, theta)
    check_possible(graph, (theta.unary > -np.inf).any(axis=1))
    if not np.isneginf(theta.tables).any():
        return theta
    instead = _costly(graph, theta) if instead is None else instead
    return theta._replace(tables=np.maximum(theta.tables, instead))


def _costly(graph, theta):
    """For each table, in shape (n_tables, 1, 1), what is worse than all else in its example is good."""
    of_nodes, (of_tables, lowest) = _spread(theta.unary)[0], _spread(theta.tables.reshape(graph.n_tables, -1))
    at_stake = sum_by_example(of_nodes, graph.node_example, graph)
    at_stake += sum_by_example(of_tables[graph.edge_table], graph.edge_example, graph)
    # No less than what shows beside the size of an entry.
    costly = 2.0 * at_stake[graph.table_example] + _SHOWS * np.abs(lowest)
    return (lowest - np.where(costly > 0, costly, 1.0))[:, None, None]


def _spread(rows):
    """Tell how far apart the possible entries of each row are, and the lowest one; 0 where none is."""
    possible = rows > -np.inf
    some = possible.any(axis=1)
    lowest = np.where(some, np.min(rows, axis=1, where=possible, initial=np.inf), 0.0)
    return np.where(some, rows.max(axis=1), 0.0) - lowest, lowest


class Found(NamedTuple):
    """A configuration, and how it was found.

    Attributes
    ----------
    x : ndarray of shape (n_nodes,)
        The states.
    n_iter, converged : ndarray of shape (n_examples,)
        Iterations, and whether no further one would have changed anything.
    exact : ndarray of shape (n_examples,) or None
        Whether no configuration is better, if the method can tell.
    """

    x: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    exact: np.ndarray | None = None


class _State(NamedTuple):
    graph: Graph
    theta: Potentials


class Maximiser(BaseInference):
    """Base of the methods that find a configuration of a high score.

    The derivative of its score, `log_z`, is told by the configuration; that of the configuration is 0. Where
    pairs of states are forbidden, the search avoids them as it avoids a very low score; what it could not
    avoid has the score -inf.
    """

    tasks = frozenset({"max"})
    differentiates = frozenset({"log_z"})

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False):
        self.task_of(graph, tau)
        found = self._find(graph, searchable(graph, theta))
        mu, value = np.eye(theta.unary.shape[1])[found.x], score(graph, theta, found.x)
        if found.exact is not None:  # the best is impossible: so is everything
            check_possible(graph, ~(found.exact & np.isneginf(value))[graph.node_example])
        return Beliefs(
            mu=mu,
            edge_mu=outer(graph, mu) if edges else None,
            log_z=value,
            n_iter=found.n_iter,
            converged=found.converged,
            state=_State(graph, theta),
            bound=None if found.exact is None else np.where(found.exact, value, np.inf),
        )

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, theta = beliefs.state
        d_log_z = np.zeros(graph.n_examples) if d_log_z is None else d_log_z
        return score_vjp(graph, theta, beliefs.mu, d_log_z)

    def statistics(self, graph, beliefs):
        return score_vjp(graph, beliefs.state.theta, beliefs.mu, np.ones(graph.n_examples))

    @abstractmethod
    def _find(self, graph, theta):
        """Find a configuration without states that theta forbids: return Found."""
