"""Base of the methods that maximise and do nothing else: they answer with one configuration an example."""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from skcrf.graph import Graph, Potentials, canonical, outer, score, score_vjp
from skcrf.inference._base import BaseInference, Beliefs, check_numbers, check_possible

# The potential that stands for a forbidden pair in a search, which may be unable to avoid one: -inf would
# forbid every state.
_FORBIDDEN = -1e8


def searchable(graph, theta):
    """Make potentials under which a node always has a state to go to, whatever its neighbours have.

    Parameters
    ----------
    graph : Graph
        Structure of the batch.
    theta : Potentials
        Potentials.

    Returns
    -------
    theta : Potentials
        The same, with forbidden pairs that are very bad instead.
    """
    theta = canonical(theta)
    check_numbers(graph, theta)
    check_possible(graph, (theta.unary > -np.inf).any(axis=1))
    return theta._replace(tables=np.maximum(theta.tables, _FORBIDDEN))


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
