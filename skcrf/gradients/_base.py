"""Gradient strategies: inferences whose `backward` is obtained in a chosen way, wrapping another."""

from abc import abstractmethod
from math import prod
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from skcrf._numerics import kernel_array, max_abs_by_part
from skcrf.graph import (
    FactorGraph,
    Graph,
    Potentials,
    canonical,
    over_edges,
    scaled,
    sum_by_edge,
    sum_by_table,
)
from skcrf.inference import BaseInference, Beliefs


class BaseGradient(BaseInference):
    """Base class of the strategies.

    A strategy is configured without an inference and then wraps one, which gives an object with the
    inference door: the claims and the answers are those of the wrapped method.

    The class attributes are claims, and the test suite holds every class to them.
    """

    #: Layouts of graphs that the strategy takes, where the inference does.
    layouts = frozenset({"pairwise", "factor"})
    #: Whether the strategy differentiates truncated inference, ``tol=0``. If not, `wrap` refuses it.
    truncates = True
    #: Whether the strategy needs an inference that has `curvature`, and `wrap` refuses others.
    needs_curvature = False
    #: Bytes that the messages may take which are kept from one evaluation to the next; None for no limit.
    max_memory = 2**29

    def differentiable(self, inference):
        return inference.differentiates

    def wrap(self, inference):
        """Put this strategy around an inference.

        Parameters
        ----------
        inference : BaseInference
            The method that does the work.

        Returns
        -------
        wrapped : BaseGradient
            A clone of this strategy that holds the inference.
        """
        if is_truncated(inference) and not self.truncates:
            raise ValueError(
                f"{type(self).__name__} needs an inference that converges, but {type(inference).__name__} "
                "has tol=0: give it a tol above 0, or take Backprop."
            )
        if self.needs_curvature and not inference.has_curvature:
            raise ValueError(
                f"{type(self).__name__} needs the curvature of an objective, which "
                f"{type(inference).__name__} does not tell: take Backprop or Perturbation."
            )
        wrapped = clone(self)
        wrapped.inference_ = inference
        for claim in ("tasks", "exact_on", "bound", "differentiates", "resumes"):
            setattr(wrapped, claim, getattr(inference, claim))
        wrapped.layouts = self.layouts & inference.layouts
        return wrapped

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        # Not every inference has these keywords.
        given = {key: value for key, value in (("start", start), ("inner", inner)) if value is not None}
        return self.inference_.forward(graph, theta, tau, edges=edges, tape=tape, **given)

    @property
    def reads_edges(self):
        """Whether `statistics` needs beliefs with edge marginals."""
        return self.inference_.reads_edges

    def start_of(self, beliefs):
        """Keep what a later `forward` can start from.

        Parameters
        ----------
        beliefs : Beliefs
            What `forward` returned.

        Returns
        -------
        start : object
            What the wrapped inference makes of it.
        """
        return self.inference_.start_of(beliefs)

    def statistics(self, graph, beliefs):
        return self.inference_.statistics(graph, beliefs)

    def _methods_with(self, claim):
        from skcrf.gradients import GRADIENTS  # known once all strategies are

        return [name for name, strategy in GRADIENTS.items() if claim(strategy)]

    @abstractmethod
    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        pass


def is_truncated(inference):
    """Tell whether an inference does a fixed number of iterations.

    Parameters
    ----------
    inference : BaseInference
        Any inference.

    Returns
    -------
    truncated : bool
        False also for methods that do not iterate.
    """
    return inference.tol == 0


class Asked(NamedTuple):
    """A question to an inference, and its answer.

    Attributes
    ----------
    graph : Graph or FactorGraph
        Structure.
    theta : Potentials
        Potentials.
    beliefs : Beliefs
        The answer of the wrapped inference.
    """

    graph: Graph | FactorGraph
    theta: Potentials
    beliefs: Beliefs


class StationaryGradient(BaseGradient):
    """Base of the strategies that are right at a stationary point, where the Jacobian is symmetric.

    There the derivative of log_z is the expected statistics, D13 Eq 4, and what is left to a strategy is the
    response of the statistics to a change of theta. Examples that did not converge have no such point: their
    cliques are differentiated as if each stood alone, which is a rough guide.
    """

    truncates = False

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        self.inference_.task_of(graph, tau)  # what it refuses, it refuses in its own name
        summing = self.task_of(graph, tau)[0] == "sum"
        needs_edges = self.needs_curvature or self.inference_.reads_edges
        how = {"edges": edges or (summing and needs_edges), "tape": tape and not summing}
        beliefs = super().forward(graph, theta, tau, start=start, inner=inner, **how)
        if not summing:  # what is maximised is differentiated by the inference itself
            return beliefs
        asked = Asked(graph, canonical(theta), beliefs)
        return beliefs._replace(edge_mu=beliefs.edge_mu if edges else None, state=asked)

    def start_of(self, beliefs):
        return super().start_of(_answer(beliefs))

    def statistics(self, graph, beliefs):
        return super().statistics(graph, _answer(beliefs))

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        if not isinstance(beliefs.state, Asked):
            return self.inference_.backward(beliefs, d_mu, d_edge_mu, d_log_z)
        graph, theta, answer = asked = beliefs.state
        if d_log_z is None:
            d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        else:
            d_theta = scaled(graph, self.statistics(graph, beliefs), kernel_array(d_log_z))
        d_mu = np.zeros_like(answer.mu) if d_mu is None else kernel_array(d_mu)
        if d_edge_mu is not None:
            d_edge_mu = kernel_array(d_edge_mu)
            if answer.edge_mu is None:
                raise RuntimeError("Derivatives with respect to edge_mu need forward(edges=True).")
        moved = largest_by_example(graph, d_mu, d_edge_mu) > 0
        parts = []
        if (moved & answer.converged).any():
            parts.append(self._response(asked, *only(graph, answer.converged, d_mu, d_edge_mu)))
        if (moved & ~answer.converged).any():
            parts.append(alone(asked, *only(graph, ~answer.converged, d_mu, d_edge_mu)))
        for part in parts:
            d_theta = Potentials(*map(np.add, d_theta, part))
        return d_theta

    @abstractmethod
    def _response(self, asked, d_mu, d_edge_mu):
        """Compute how the statistics change as theta goes that way; `d_edge_mu` may be None.

        Both are zero in examples that did not converge, of which nothing is asked.
        """


def _answer(beliefs):
    return beliefs.state.beliefs if isinstance(beliefs.state, Asked) else beliefs


def largest_by_example(graph, unary, rows, ptr=None):
    """Find the largest size of a number of each example.

    Parameters
    ----------
    graph : Graph
        Structure.
    unary : ndarray of shape (n_nodes, n_states)
        Numbers of nodes.
    rows : ndarray of shape (n, ...) or None
        Numbers of edges, or of tables.
    ptr : ndarray of shape (n_examples + 1,), default=None
        Where those of each example start; None for edges.

    Returns
    -------
    largest : ndarray of shape (n_examples,)
        The maxima.
    """
    largest = max_abs_by_part(unary, graph.node_ptr)
    if rows is None:
        return largest
    ptr = graph.belief_rows if ptr is None else ptr
    return np.maximum(largest, max_abs_by_part(rows.reshape(len(rows), prod(rows.shape[1:])), ptr))


def only(graph, examples, d_mu, d_edge_mu):
    """Keep the derivatives of some examples.

    Parameters
    ----------
    graph : Graph
        Structure.
    examples : ndarray of shape (n_examples,)
        Of which to keep them.
    d_mu : ndarray of shape (n_nodes, n_states)
        Derivative with respect to the node marginals.
    d_edge_mu : ndarray of shape (n_edges, n_states, n_states) or None
        Derivative with respect to the edge marginals.

    Returns
    -------
    d_mu, d_edge_mu : ndarray or None
        The same, and zeros for the other examples.
    """
    if examples.all():
        return d_mu, d_edge_mu
    d_mu = np.where(examples[graph.node_example, None], d_mu, 0.0)
    if d_edge_mu is not None:
        d_edge_mu = np.where(over_edges(graph, examples[graph.edge_example]), d_edge_mu, 0.0)
    return d_mu, d_edge_mu


def alone(asked, d_mu, d_edge_mu):
    """Differentiate as if every node and every edge were the whole field.

    Parameters
    ----------
    asked : Asked
        A question and its answer, with the marginals of edges if they have a derivative.
    d_mu : ndarray of shape (n_nodes, n_states)
        Derivative of some value with respect to the node marginals.
    d_edge_mu : ndarray of shape (n_edges, n_states, n_states) or None
        Derivative with respect to the edge marginals.

    Returns
    -------
    d_theta : Potentials
        What theta has to do with it directly.
    """
    graph, theta, beliefs = asked
    mu, edge_mu = beliefs.mu, beliefs.edge_mu
    unary = mu * (d_mu - (mu * d_mu).sum(axis=1, keepdims=True))
    if d_edge_mu is None:
        return Potentials(unary, np.zeros_like(theta.tables))
    means = over_edges(graph, sum_by_edge(graph, edge_mu * d_edge_mu))
    return Potentials(unary, sum_by_table(graph, edge_mu * (d_edge_mu - means)))
