"""Implicit differentiation by perturbation."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, Options

from skcrf.gradients._base import StationaryGradient, alone, largest_by_example, only
from skcrf.graph import (
    Potentials,
    over_edges,
    scaled,
    select,
    sum_by_edge,
    sum_by_example,
    sum_by_table,
    tables_of_edges,
    untied,
)

# Where to look, in steps, and what it counts: the differences of D13 section 6.
_DIFFERENCES = {
    1: ((1.0, 1.0), (0.0, -1.0)),
    2: ((1.0, 0.5), (-1.0, -0.5)),
    4: ((2.0, -1 / 12), (1.0, 8 / 12), (-1.0, -8 / 12), (-2.0, 1 / 12)),
}


class Perturbation(StationaryGradient):
    """Perturbation: inference with theta moved a little along the derivative of the loss, D13 section 6, D10.

    The Jacobian of the marginals is symmetric where they maximise an objective, so its product with the
    derivative of the loss with respect to marginals is a difference of marginals. That takes nothing but more
    inference, by any method, and memory for no more than one at a time. The perturbed runs take as many
    iterations as the first one took, so that where they stop does not disturb the difference.

    Parameters
    ----------
    sides : {1, 2, 4}, default=2
        Perturbed runs of inference; more are more accurate.
    multiplier : float, default=1.0
        The step is ``multiplier * eps^(1/3) (1 + |theta|) / |g|``, with the largest entries of theta and of
        the loss's derivative g in each example. The best one rises with `sides`; 1 is right for two.

    See Also
    --------
    Backprop : Faster, and right for truncated inference too.
    Implicit : Solves a linear system instead.

    Notes
    -----
    Where the loss depends on marginals of edges, each edge has a table of its own in the perturbed runs, and
    they are slower for it. Rounding errors grow with the largest entry of g: a label that is very improbable,
    as seen by a logistic loss, makes the gradient of its whole example less accurate. Below a probability of
    1e-8, what such a label means for the rest of the field is left out.

    Examples
    --------
    >>> from skcrf.gradients import Perturbation
    >>> from skcrf.inference import MeanField
    >>> Perturbation(sides=4).wrap(MeanField(max_iter=500, tol=1e-8)).bound
    'lower'
    """

    _parameter_constraints = {
        "sides": [Options(Integral, {1, 2, 4})],
        "multiplier": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, sides=2, multiplier=1.0):
        self.sides = sides
        self.multiplier = multiplier

    def wrap(self, inference):
        wrapped = super().wrap(inference)
        wrapped.resumes = False  # the perturbed runs repeat all iterations of the first
        return wrapped

    def forward(self, graph, theta, tau=1.0, *, edges=False, tape=False, start=None):
        return super().forward(graph, theta, tau, edges=edges, tape=tape)

    def _response(self, asked, d_mu, d_edge_mu):
        graph, _, beliefs = asked
        given, rest = _within_reach(graph, beliefs, d_mu, d_edge_mu)
        response = self._differences(asked, *given)
        # A covariance is at most the smaller probability, so that differences are lost which are larger than
        # this: runs of inference went different ways. The factor is for marginals that are not exact.
        bound = 10 * _total(graph, beliefs, *given)
        lost = largest_by_example(graph, response.unary, None) > bound
        response = scaled(graph, response, (~lost).astype(np.float64))
        for left in (only(graph, lost, *given) if lost.any() else None, rest):
            if left is not None:
                response = Potentials(*map(np.add, response, alone(asked, *left)))
        return response

    def _differences(self, asked, d_mu, d_edge_mu):
        """Difference the statistics, those examples together that took as many iterations."""
        graph, theta, beliefs = asked
        iterates = {"max_iter", "tol"} <= set(self.inference_.get_params())
        moved = largest_by_example(graph, d_mu, d_edge_mu) > 0
        n_iter = np.where(moved, beliefs.n_iter if iterates else 0, -1)
        centre = self.inference_.statistics(graph, beliefs) if self.sides == 1 else None
        response = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        for count in np.unique(n_iter[moved]).tolist():
            inference, part, (nodes, entries, edges) = self.inference_, graph, (slice(None),) * 3
            if (n_iter != count).any():
                part, at = select(graph, n_iter == count)
                inference, nodes, entries, edges = (
                    inference.part_of(graph, at),
                    at.nodes,
                    at.entries,
                    at.beliefs,
                )
            if iterates:
                inference = clone(inference).set_params(max_iter=count, tol=0.0)
            response.unary[nodes], response.tables[entries] = self._difference(
                inference,
                part,
                Potentials(theta.unary[nodes], theta.tables[entries]),
                d_mu[nodes],
                None if d_edge_mu is None else d_edge_mu[edges],
                None if centre is None else Potentials(centre.unary[nodes], centre.tables[entries]),
            )
        return response

    def _difference(self, inference, graph, theta, d_mu, d_edge_mu, centre):
        """Difference the statistics of examples that took as many iterations; `centre` are those at theta."""
        own, tables = graph, theta.tables
        if d_edge_mu is not None:  # it differs from edge to edge, and so does what is added to theta
            own, tables = untied(graph), tables_of_edges(graph, theta.tables)
        step = self._step(graph, theta, d_mu, d_edge_mu)
        by_node, by_edge = step[graph.node_example, None], over_edges(graph, step[graph.edge_example])
        total = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        for offset, weight in _DIFFERENCES[self.sides]:
            found = centre
            if offset != 0:
                moved = tables if d_edge_mu is None else tables + offset * by_edge * d_edge_mu
                moved = Potentials(theta.unary + offset * by_node * d_mu, moved)
                found = inference.statistics(own, inference.forward(own, moved, edges=inference.reads_edges))
                if d_edge_mu is not None:
                    found = Potentials(found.unary, sum_by_table(graph, found.tables))
            for sums, part in zip(total, found, strict=True):
                sums += weight * part
        return scaled(graph, total, 1.0 / step)

    def _step(self, graph, theta, d_mu, d_edge_mu):
        """The step of each example, so that they do not influence each other."""
        finite = Potentials(*(np.where(np.isfinite(part), part, 0.0) for part in theta))
        size = 1.0 + largest_by_example(graph, *finite, graph.entry_rows)
        scale = self.multiplier * np.finfo(np.float64).eps ** (1 / 3)
        return scale * size / largest_by_example(graph, d_mu, d_edge_mu)


def _total(graph, beliefs, d_mu, d_edge_mu):
    """Sum the sizes of what differences see, over each example."""
    by_node = (beliefs.mu * np.abs(d_mu)).sum(axis=1)
    total = sum_by_example(by_node, graph.node_example, graph)
    if d_edge_mu is not None:
        by_edge = sum_by_edge(graph, beliefs.edge_mu * np.abs(d_edge_mu))
        total += sum_by_example(by_edge, graph.edge_example, graph)
    return total


def _within_reach(graph, beliefs, d_mu, d_edge_mu):
    """Split derivatives into what differences can see, and the rest, None if that is nothing.

    Differences see the derivative times `mu`; rounding errors grow with the derivative alone, by which the
    step is divided. So that one label of next to no probability does not drown its whole example, derivatives
    are cut off where they are larger than all that is seen by more than the root of epsilon.
    """
    edge_seen = None if d_edge_mu is None else beliefs.edge_mu * d_edge_mu
    seen = largest_by_example(graph, beliefs.mu * d_mu, edge_seen)
    most = seen / np.sqrt(np.finfo(np.float64).eps)
    cut, rest = _clipped(d_mu, most[graph.node_example, None] * (beliefs.mu > 0))
    edge_cut, edge_rest = None, None
    if d_edge_mu is not None:
        limit = over_edges(graph, most[graph.edge_example]) * (beliefs.edge_mu > 0)
        edge_cut, edge_rest = _clipped(d_edge_mu, limit)
    something = rest.any() or (edge_rest is not None and edge_rest.any())
    return (cut, edge_cut), (rest, edge_rest) if something else None


def _clipped(values, limit):
    cut = np.clip(values, -limit, limit)
    return cut, np.where(limit > 0, values - cut, 0.0)
