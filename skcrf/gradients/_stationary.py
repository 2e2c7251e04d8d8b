"""Gradient strategies that differentiate at a stationary point of the inference."""

from abc import abstractmethod
from math import prod
from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel_array, max_abs_by_part
from skcrf.gradients._base import BaseGradient
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
from skcrf.inference import Beliefs


class Inferred(NamedTuple):
    """Input and output of `forward` of the wrapped inference.

    Attributes
    ----------
    graph : Graph or FactorGraph
        Structure.
    theta : Potentials
        Potentials.
    beliefs : Beliefs
        Beliefs.
    task : str
        Task that the temperature asked for.
    """

    graph: Graph | FactorGraph
    theta: Potentials
    beliefs: Beliefs
    task: str = "sum"


class StationaryGradient(BaseGradient):
    """Base class of the strategies that are correct at a stationary point, where the Jacobian is symmetric.

    There the derivative of log_z is the expected statistics, D13 Eq 4. A subclass computes the response of
    the statistics to a change of theta. Examples that did not converge have no stationary point: as a rough
    approximation, their cliques are differentiated as if they were independent.

    Maxima are differentiated by the inference. If it cannot, the derivative of a maximal score is again the
    statistics, and the configuration does not depend on theta.
    """

    takes_truncated = False

    def differentiable(self, inference):
        return frozenset() if inference.is_random else frozenset({"mu", "log_z"})

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        self.inference_.task_of(graph, tau)  # raises the errors of the inference before those of the strategy
        task, _ = self.task_of(graph, tau)
        own = task == "sum" or "log_z" not in self.inference_.differentiates
        needs_edges = self.needs_curvature or self.reads_edges
        beliefs = super().forward(
            graph,
            theta,
            tau,
            edges=edges or (own and needs_edges),
            tape=tape and not own,
            start=start,
            inner=inner,
        )
        if not own:
            return beliefs
        state = Inferred(graph, canonical(theta), beliefs, task)
        return beliefs._replace(edge_mu=beliefs.edge_mu if edges else None, state=state)

    def start_of(self, beliefs):
        return super().start_of(_wrapped_beliefs(beliefs))

    def statistics(self, graph, beliefs):
        return super().statistics(graph, _wrapped_beliefs(beliefs))

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        if not isinstance(beliefs.state, Inferred):
            return self.inference_.backward(beliefs, d_mu, d_edge_mu, d_log_z)
        inferred = beliefs.state
        graph, theta, found = inferred.graph, inferred.theta, inferred.beliefs
        if d_log_z is None:
            d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        else:
            d_theta = scaled(graph, self.statistics(graph, beliefs), kernel_array(d_log_z))
        d_mu = np.zeros_like(found.mu) if d_mu is None else kernel_array(d_mu)
        if d_edge_mu is not None:
            d_edge_mu = kernel_array(d_edge_mu)
            if found.edge_mu is None:
                raise RuntimeError(
                    "forward must return edge_mu for its derivative, got None. Use forward(edges=True)."
                )
        moved = max_abs_by_example(graph, d_mu, d_edge_mu) > 0
        if inferred.task != "sum":
            if inferred.task != "max" and moved.any():
                raise NotImplementedError(
                    f"d_mu and d_edge_mu must be 0 for the task {inferred.task!r} of "
                    f"{type(self.inference_).__name__}, got other values. {type(self).__name__} "
                    "differentiates only log_z there."
                )
            return d_theta
        responses = []
        if (moved & found.converged).any():
            given = zero_other_examples(graph, found.converged, d_mu, d_edge_mu)
            responses.append(self._response(inferred, *given))
        if (moved & ~found.converged).any():
            given = zero_other_examples(graph, ~found.converged, d_mu, d_edge_mu)
            responses.append(independent_response(inferred, *given))
        for response in responses:
            d_theta = Potentials(*map(np.add, d_theta, response))
        return d_theta

    @abstractmethod
    def _response(self, inferred, d_mu, d_edge_mu):
        """Compute the product of the Jacobian of the statistics with a derivative; `d_edge_mu` may be None.

        The derivative is zero in examples that did not converge.
        """


def _wrapped_beliefs(beliefs):
    return beliefs.state.beliefs if isinstance(beliefs.state, Inferred) else beliefs


def max_abs_by_example(graph, unary, rows, ptr=None):
    """Compute the largest absolute value of each example.

    `rows` are values of edges, or of other items with the offsets `ptr`; None for no such values.
    """
    largest = max_abs_by_part(unary, graph.node_ptr)
    if rows is None:
        return largest
    ptr = graph.belief_rows if ptr is None else ptr
    return np.maximum(largest, max_abs_by_part(rows.reshape(len(rows), prod(rows.shape[1:])), ptr))


def zero_other_examples(graph, examples, d_mu, d_edge_mu):
    """Set the derivatives of all but some examples to zero."""
    if examples.all():
        return d_mu, d_edge_mu
    d_mu = np.where(examples[graph.node_example, None], d_mu, 0.0)
    if d_edge_mu is not None:
        d_edge_mu = np.where(over_edges(graph, examples[graph.edge_example]), d_edge_mu, 0.0)
    return d_mu, d_edge_mu


def independent_response(inferred, d_mu, d_edge_mu):
    """Differentiate as if every node and every edge were a field of its own."""
    graph, beliefs = inferred.graph, inferred.beliefs
    mu, edge_mu = beliefs.mu, beliefs.edge_mu
    unary = mu * (d_mu - (mu * d_mu).sum(axis=1, keepdims=True))
    if d_edge_mu is None:
        return Potentials(unary, np.zeros_like(inferred.theta.tables))
    means = over_edges(graph, sum_by_edge(graph, edge_mu * d_edge_mu))
    return Potentials(unary, sum_by_table(graph, edge_mu * (d_edge_mu - means)))
