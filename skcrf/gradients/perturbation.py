"""Implicit differentiation by perturbation."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, Options

from skcrf.gradients._stationary import (
    StationaryGradient,
    independent_response,
    max_abs_by_example,
    zero_other_examples,
)
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

# Offsets, in steps, and weights of the differences of D13 section 6, by the number of sides.
_DIFFERENCES = {
    1: ((1.0, 1.0), (0.0, -1.0)),
    2: ((1.0, 0.5), (-1.0, -0.5)),
    4: ((2.0, -1 / 12), (1.0, 8 / 12), (-1.0, -8 / 12), (-2.0, 1 / 12)),
}


class Perturbation(StationaryGradient):
    """Perturbation: differences of inference along the derivative of the loss, D13 section 6, D10.

    If the marginals maximise an objective, their Jacobian is symmetric, so that its product with the
    derivative of the loss with respect to the marginals is a difference of marginals. This needs nothing but
    more runs of any inference, and memory for one run at a time. The perturbed runs take as many iterations
    as the first run, so that the stopping criterion does not disturb the difference.

    Parameters
    ----------
    sides : {1, 2, 4}, default=2
        Number of perturbed runs; more runs are more accurate.
    multiplier : float, default=1.0
        The step is ``multiplier * eps^(1/3) (1 + |theta|) / |g|``, with the largest entries of theta and of
        the derivative g of the loss in each example. The best value increases with `sides`; 1 is best for two
        sides.

    See Also
    --------
    Backprop : Faster, and also correct for truncated inference.
    Implicit : Solves a linear system instead.

    Notes
    -----
    If the loss depends on edge marginals, each edge has its own table in the perturbed runs, which are slower
    for it. Rounding errors grow with the largest entry of g: a very improbable label makes the gradient of
    a logistic loss less accurate in its whole example. The influence of labels with a probability below 1e-8
    on other nodes is neglected.

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

    @property
    def resumes(self):
        """Whether `forward` can resume: no, since perturbed runs repeat all iterations of the first."""
        return False

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        return super().forward(graph, theta, tau, edges=edges, tape=tape, inner=inner)

    def _response(self, inferred, d_mu, d_edge_mu):
        graph, beliefs = inferred.graph, inferred.beliefs
        given, remainder = _clip(graph, beliefs, d_mu, d_edge_mu)
        response = self._differences(inferred, *given)
        # A covariance is at most the smaller probability. Differences above this bound are wrong, because
        # the runs of inference diverged. The factor is for marginals that are not exact.
        bound = 10 * _total(graph, beliefs, *given)
        wrong = max_abs_by_example(graph, response.unary, None) > bound
        response = scaled(graph, response, (~wrong).astype(np.float64))
        for left in (zero_other_examples(graph, wrong, *given) if wrong.any() else None, remainder):
            if left is not None:
                response = Potentials(*map(np.add, response, independent_response(inferred, *left)))
        return response

    def _differences(self, inferred, d_mu, d_edge_mu):
        """Difference the statistics, together for all examples with the same number of iterations."""
        graph, theta, beliefs = inferred.graph, inferred.theta, inferred.beliefs
        iterates = self.inference_.tol is not None
        moved = max_abs_by_example(graph, d_mu, d_edge_mu) > 0
        n_iter = np.where(moved, beliefs.n_iter if iterates else 0, -1)
        centre = self.inference_.statistics(graph, beliefs) if self.sides == 1 else None
        response = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        for count in np.unique(n_iter[moved]).tolist():
            inference, part = self.inference_, graph
            nodes = entries = edges = slice(None)
            if (n_iter != count).any():
                part, at = select(graph, n_iter == count)
                inference = inference.part_of(graph, at)
                nodes, entries, edges = at.nodes, at.entries, at.beliefs
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
        """Difference the statistics, which are `centre` at theta."""
        own, tables = graph, theta.tables
        if d_edge_mu is not None:  # the tables of all edges are perturbed differently
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
        """Compute the step of each example."""
        finite = Potentials(*(np.where(np.isfinite(part), part, 0.0) for part in theta))
        size = 1.0 + max_abs_by_example(graph, *finite, graph.entry_rows)
        scale = self.multiplier * self.inference_.precision ** (1 / 3)
        return scale * size / max_abs_by_example(graph, d_mu, d_edge_mu)


def _total(graph, beliefs, d_mu, d_edge_mu):
    """Sum the absolute values of the derivatives, weighted by their probabilities, over each example."""
    by_node = (beliefs.mu * np.abs(d_mu)).sum(axis=1)
    total = sum_by_example(by_node, graph.node_example, graph)
    if d_edge_mu is not None:
        by_edge = sum_by_edge(graph, beliefs.edge_mu * np.abs(d_edge_mu))
        total += sum_by_example(by_edge, graph.edge_example, graph)
    return total


def _clip(graph, beliefs, d_mu, d_edge_mu):
    """Split derivatives into those of moderate size and the remainder, None if that is zero.

    The difference is proportional to the derivative times `mu`, its rounding error to the derivative alone,
    by which the step is divided. Derivatives that exceed the largest product by more than the root of epsilon
    are clipped, so that a single improbable label does not spoil its whole example.
    """
    edge_product = None if d_edge_mu is None else beliefs.edge_mu * d_edge_mu
    largest = max_abs_by_example(graph, beliefs.mu * d_mu, edge_product)
    limit = largest / np.sqrt(np.finfo(np.float64).eps)
    clipped, remainder = _clipped(d_mu, limit[graph.node_example, None] * (beliefs.mu > 0))
    edge_clipped, edge_remainder = None, None
    if d_edge_mu is not None:
        edge_limit = over_edges(graph, limit[graph.edge_example]) * (beliefs.edge_mu > 0)
        edge_clipped, edge_remainder = _clipped(d_edge_mu, edge_limit)
    exceeds = remainder.any() or (edge_remainder is not None and edge_remainder.any())
    return (clipped, edge_clipped), (remainder, edge_remainder) if exceeds else None


def _clipped(values, limit):
    clipped = np.clip(values, -limit, limit)
    return clipped, np.where(limit > 0, values - clipped, 0.0)
