"""Mean field: the best fully factorised approximation, D13 section 3.2 and Algorithm 2."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from skcrf._numerics import kernel, log_normalise, max_abs_by_part
from skcrf.graph import Graph, Potentials, outer
from skcrf.inference._base import BaseInference, Beliefs
from skcrf.inference._curvature import ProductCurvature
from skcrf.inference._engine import backward_in_parts, forward_in_parts
from skcrf.inference._factor.mean_field import (
    FactorFieldEngine,
    factor_objective,
    factor_objective_vjp,
    factor_outer_vjp,
)
from skcrf.inference._fixed_point import ITERATION, Trace, iterate, reverse
from skcrf.inference._lattice.classify import lattice_kinds
from skcrf.inference._lattice.mean_field import CheckerboardEngine
from skcrf.inference._map_solver import NEVER, searchable


@kernel
def _update(graph, theta, mu, node, out):
    """The maximiser of the objective in the marginal of one node."""
    for x in range(len(out)):
        out[x] = theta.unary[node, x]
    for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
        edge, side = graph.incident[p] >> 1, graph.incident[p] & 1
        neighbour, table = graph.edges[edge, 1 - side], graph.edge_table[edge]
        for x in range(len(out)):
            for z in range(len(out)):
                pair = theta.tables[table, x, z] if side == 0 else theta.tables[table, z, x]
                out[x] += mu[neighbour, z] * pair
    log_normalise(out)
    for x in range(len(out)):
        out[x] = np.exp(out[x])


@kernel
def _update_vjp(graph, theta, mu, node, d_log, d_mu, d_theta):
    """Push `d_log`, the adjoint of a node's update before normalisation, to its neighbours and theta."""
    for x in range(len(d_log)):
        d_theta.unary[node, x] += d_log[x]
    for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
        edge, side = graph.incident[p] >> 1, graph.incident[p] & 1
        neighbour, table = graph.edges[edge, 1 - side], graph.edge_table[edge]
        for x in range(len(d_log)):
            for z in range(len(d_log)):
                if side == 0:
                    d_theta.tables[table, x, z] += d_log[x] * mu[neighbour, z]
                    d_mu[neighbour, z] += d_log[x] * theta.tables[table, x, z]
                else:
                    d_theta.tables[table, z, x] += d_log[x] * mu[neighbour, z]
                    d_mu[neighbour, z] += d_log[x] * theta.tables[table, z, x]


@kernel
def _ascend(graph, theta, mu, active):
    """Update every node of the active examples once."""
    new = np.empty(theta.unary.shape[1])
    for example in range(len(active)):
        if active[example]:
            for p in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
                node = graph.node_order[p]
                _update(graph, theta, mu, node, new)
                for x in range(len(new)):
                    mu[node, x] = new[x]


@kernel
def _ascend_vjp(graph, theta, before, mu, active, d_mu, d_theta):
    """Undo an iteration node by node, last first; `mu` ends as `before`."""
    d_log = np.empty(theta.unary.shape[1])
    for example in range(len(active)):
        if active[example]:
            for p in range(graph.node_ptr[example + 1] - 1, graph.node_ptr[example] - 1, -1):
                node = graph.node_order[p]
                mean = 0.0
                for x in range(len(d_log)):
                    mean += d_mu[node, x] * mu[node, x]
                for x in range(len(d_log)):  # backnorm
                    d_log[x] = mu[node, x] * (d_mu[node, x] - mean)
                    d_mu[node, x] = 0.0
                    mu[node, x] = before[node, x]
                _update_vjp(graph, theta, mu, node, d_log, d_mu, d_theta)


@kernel
def _objective(graph, theta, mu):
    """log_z = theta . mu + H(mu), D13 Eq 10 and 12."""
    n_states = theta.unary.shape[1]
    log_z = np.zeros(len(graph.node_ptr) - 1)
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(n_states):
                if mu[node, x] > 0:
                    log_z[example] += mu[node, x] * (theta.unary[node, x] - np.log(mu[node, x]))
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            for x in range(n_states):
                for z in range(n_states):
                    log_z[example] += mu[i, x] * mu[j, z] * theta.tables[table, x, z]
    return log_z


@kernel
def _objective_vjp(graph, theta, mu, d_log_z, through, d_mu, d_theta):
    """Pull the derivative of log_z back to theta and, if it goes `through` the marginals, to them."""
    n_states = theta.unary.shape[1]
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(n_states):
                d_theta.unary[node, x] += d_z * mu[node, x]
                if through and mu[node, x] > 0:
                    d_mu[node, x] += d_z * (theta.unary[node, x] - np.log(mu[node, x]) - 1.0)
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            for x in range(n_states):
                for z in range(n_states):
                    d_theta.tables[table, x, z] += d_z * mu[i, x] * mu[j, z]
                    if through:
                        d_mu[i, x] += d_z * mu[j, z] * theta.tables[table, x, z]
                        d_mu[j, z] += d_z * mu[i, x] * theta.tables[table, x, z]


def _outer_vjp(graph, mu, d_edge_mu, d_mu):
    """Pull the derivative of the marginals of edges back to those of nodes, whose products they are."""
    i, j = graph.edges.T
    np.add.at(d_mu, i, np.einsum("exz,ez->ex", d_edge_mu, mu[j]))
    np.add.at(d_mu, j, np.einsum("exz,ex->ez", d_edge_mu, mu[i]))


class _GraphEngine:
    """Mean field on any graph, node after node."""

    def __init__(self, graph, theta):
        self.graph, self.theta, self.row_ptr = graph, theta, graph.node_ptr

    def start(self, mu):
        return mu

    def step(self, mu, active):
        _ascend(self.graph, self.theta, mu, active)

    def step_vjp(self, d_theta, before, after, active, d_mu):
        _ascend_vjp(self.graph, self.theta, before, after.copy(), active, d_mu, d_theta)

    def marginals(self, mu):
        return mu

    def new_adjoint(self):
        return Potentials(np.zeros_like(self.theta.unary), np.zeros_like(self.theta.tables))

    def leave(self, d_theta):
        return d_theta


class _Layout(NamedTuple):
    """What depends on the layout of a graph: the engine for any, and kernels."""

    engine: type
    objective: Callable
    objective_vjp: Callable
    outer_vjp: Callable


_LAYOUTS = {
    "pairwise": _Layout(_GraphEngine, _objective, _objective_vjp, _outer_vjp),
    "factor": _Layout(FactorFieldEngine, factor_objective, factor_objective_vjp, factor_outer_vjp),
}


class _State(NamedTuple):
    graph: Graph
    theta: Potentials
    engine: Any
    trace: Trace


class MeanField(BaseInference):
    """Mean field by coordinate ascent, node after node.

    Every update raises the objective, so it always converges, to a local maximum; its `log_z` is never
    above the true one, after any number of iterations. Marginals tend to be too sure of themselves.

    Parameters
    ----------
    max_iter : int, default=10
        Iterations, each of which updates every node once.
    tol : float, default=0.0
        With 0, exactly `max_iter` iterations are done and define the answer (truncated inference). Otherwise
        iterate until no marginal changes by more than `tol`, at most `max_iter` times.

    See Also
    --------
    TRW : The bound from the other side.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import MeanField
    >>> theta = Potentials(np.array([[0.0, 1.0], [0.0, 0.0]]), np.eye(2)[None])
    >>> MeanField(max_iter=100).forward(chain(2), theta).mu.round(3)
    array([[0.219, 0.781],
           [0.363, 0.637]])
    """

    _parameter_constraints = ITERATION

    layouts = frozenset({"pairwise", "factor"})
    bound = "lower"
    has_curvature = True
    reads_edges = False

    def __init__(self, max_iter=10, tol=0.0):
        self.max_iter = max_iter
        self.tol = tol

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False):
        self.task_of(graph, tau)
        theta = searchable(graph, theta, NEVER)

        def run(kind, graph, theta, selection):
            engine = (CheckerboardEngine if kind else _LAYOUTS[graph.layout].engine)(graph, theta)
            return self._ascend(engine, graph, theta, edges, tape)

        no_lattice = np.zeros(graph.n_examples, dtype=np.int64)
        kinds = lattice_kinds(graph) if graph.layout == "pairwise" else no_lattice
        return forward_in_parts(kinds, graph, theta, run)

    def _ascend(self, engine, graph, theta, edges, tape):
        def step(state, active):
            before = state.copy() if self.tol > 0 else None
            engine.step(state, active)
            return max_abs_by_part(state - before, engine.row_ptr) if self.tol > 0 else None

        allowed = theta.unary > -np.inf
        start = engine.start(allowed / allowed.sum(axis=1, keepdims=True))
        trace = iterate(step, start, graph.n_examples, max_iter=self.max_iter, tol=self.tol, tape=tape)
        mu = engine.marginals(trace.state)
        edge_mu = outer(graph, mu) if edges else None
        log_z = cache(partial(_LAYOUTS[graph.layout].objective, graph, theta, mu))
        state = _State(graph, theta, engine, trace)
        return Beliefs(mu, edge_mu, log_z, trace.n_iter, trace.converged, state)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return backward_in_parts(beliefs, d_mu, d_edge_mu, d_log_z, self._backward)

    def curvature(self, graph, theta, beliefs):
        return ProductCurvature(graph, searchable(graph, theta, NEVER).tables, beliefs.mu)

    def statistics(self, graph, beliefs):
        return backward_in_parts(beliefs, None, None, None, self._statistics)

    def _statistics(self, beliefs, *_):
        graph, theta, _, _ = beliefs.state
        means = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        no_mu = np.empty((0, theta.unary.shape[1]))
        objective_vjp = _LAYOUTS[graph.layout].objective_vjp
        objective_vjp(graph, theta, beliefs.mu, np.ones(graph.n_examples), False, no_mu, means)
        return means

    def _backward(self, beliefs, d_mu, d_edge_mu, d_log_z):
        graph, theta, engine, trace = beliefs.state
        mu, adjoint = beliefs.mu, engine.new_adjoint()
        d_read = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        d_mu = np.zeros_like(theta.unary) if d_mu is None else d_mu.copy()
        if d_edge_mu is not None:
            _LAYOUTS[graph.layout].outer_vjp(graph, mu, d_edge_mu, d_mu)
        if d_log_z is not None:
            objective_vjp = _LAYOUTS[graph.layout].objective_vjp
            objective_vjp(graph, theta, mu, d_log_z, trace.tape is not None, d_mu, d_read)
        step_vjp = partial(engine.step_vjp, adjoint)
        reverse(
            step_vjp, trace, engine.start(d_mu), engine.row_ptr, tol=self.tol, max_terms=10 * trace.n_iter
        )
        d_theta = engine.leave(adjoint)
        return Potentials(d_theta.unary + d_read.unary, d_theta.tables + d_read.tables)
