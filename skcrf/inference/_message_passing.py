"""The methods that pass messages, by one of three engines: in tiles on lattices, else by edges or factors.

An engine holds a problem and knows: where messages `start`, the `step` that sends each of them once and its
`step_vjp`, the `marginals` that messages mean and their `marginals_vjp`, the `expected_tables`, the
`edge_marginals` and `log_z` and how to differentiate them by `read_vjp`, how to `decode` a configuration and
the `bound` of its score, if there is one; a
`new_adjoint` of the potentials and how to `leave` from it to `Potentials`; and the `row_ptr` of the examples
in its state.
"""

from abc import abstractmethod
from functools import cache, partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf.graph import Graph, Potentials, as_factors, canonical, clamp, outer, scaled, score, score_vjp
from skcrf.inference._base import BaseInference, Beliefs, check_numbers, check_possible
from skcrf.inference._curvature import LocalCurvature
from skcrf.inference._engine import backward_in_parts, forward_in_parts
from skcrf.inference._factor.engine import FactorEngine
from skcrf.inference._fixed_point import ITERATION, Trace, iterate, reverse
from skcrf.inference._lattice.engine import LatticeEngine
from skcrf.inference._pairwise.engine import PairwiseEngine

#: Constraints on the parameters of the methods that pass messages.
PASSING = {**ITERATION, "damping": [Interval(Real, 0, 1, closed="left")]}


class Plan(NamedTuple):
    """How to pass messages.

    Attributes
    ----------
    graph : Graph
        The batch, with the schedule to use.
    rho : ndarray of shape (n_edges,)
        Edge weights.
    max_iter, tol, damping : int, float, float
        As for the methods.
    tape : bool
        Whether a tape is kept in any case.
    inward : ndarray of shape (n_edges,) or None
        The messages along which trees are summed, if that sum is log_z; None if log_z is theta . mu + H(mu).
    """

    graph: Graph
    rho: np.ndarray
    max_iter: int
    tol: float
    damping: float
    tape: bool = False
    inward: np.ndarray | None = None


class _State(NamedTuple):
    plan: Plan
    theta: Potentials
    engine: Any
    max_terms: np.ndarray
    trace: Trace | None = None  # None where the inference maximised


class Start(NamedTuple):
    """Messages to start from: those of an earlier answer, in half the memory.

    Attributes
    ----------
    engine : type or None
        Whose messages they are; None before the first answer, when there are none.
    state : ndarray or None
        The messages.
    """

    engine: type | None = None
    state: np.ndarray | None = None

    def fits(self, engine):
        """Tell whether another problem has such messages."""
        return type(engine) is self.engine and len(self.state) == engine.row_ptr[-1]


class MessagePassing(BaseInference):
    """Base of the methods that pass messages: they differ in weights, schedule and stopping."""

    has_curvature = True
    reads_edges = False

    @abstractmethod
    def _plan(self, graph):
        """Choose how to pass messages: return a Plan."""

    #: The engines for any graph that the method takes, by its layout.
    _engines = {"pairwise": PairwiseEngine, "factor": FactorEngine}

    def _kinds(self, plan, theta):
        """Choose an engine for each example: 0 is the one for any graph of its layout."""
        if plan.graph.layout == "factor":
            return np.zeros(plan.graph.n_examples, dtype=np.int64)
        return LatticeEngine.kinds(plan, theta)

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None):
        task, tau = self.task_of(graph, tau)
        theta = canonical(theta)
        _refuse_unspoken(graph, theta)
        if task == "mixed":
            return self._marginal_map(graph, theta, tau == 0, edges=edges, tape=tape)
        maximise, plan = task == "max", self._plan(graph)
        if maximise:  # which leaves no nan
            check_possible(graph, (theta.unary > -np.inf).any(axis=1))

        def run(kind, graph, theta, selection):
            rho = plan.rho if selection is None else plan.rho[selection.edges]
            part = plan._replace(graph=graph, rho=rho)
            if kind:
                engine = LatticeEngine(part, theta, maximise, kind)
            else:
                engine = self._engines[graph.layout](part, theta, maximise)
            resumed = start is not None and selection is None and start.fits(engine)
            trace = iterate(
                engine.step,
                start.state.astype(np.float64) if resumed else engine.start(),
                graph.n_examples,
                max_iter=plan.max_iter,
                tol=plan.tol,
                tape=False if maximise else tape or plan.tape,
                resumed=resumed,
            )
            answer = _decoded if maximise else _marginals
            # A fixed point that was all but known beforehand takes few steps, its adjoint as many as ever.
            max_terms = 10 * (np.full_like(trace.n_iter, plan.max_iter) if resumed else trace.n_iter)
            return answer(_State(part, theta, engine, max_terms), trace, edges)

        beliefs = forward_in_parts(self._kinds(plan, theta), plan.graph, theta, run)
        # Only the batch knows the number of an example.
        check_possible(plan.graph, ~np.isnan(beliefs.mu[:, 0]))
        return beliefs

    def _marginal_map(self, graph, theta, maximised, **asked):
        """Choose the states of some nodes, and sum the others out given them.

        Mixed-product messages settle on a choice early, which on loopy graphs may be a bad one; max-product
        messages choose what is best together with the others. The choice that leaves the larger sum is kept.
        """
        chosen, *how = self._choose(graph, theta, maximised)
        found = self._given(graph, theta, chosen, *how, **asked)
        best = self.forward(graph, theta, 0.0)
        other = np.where(maximised, best.mu.argmax(axis=1), -1)
        other = np.where((best.log_z > -np.inf)[graph.node_example], other, chosen)
        if np.array_equal(other, chosen):
            return found
        together = self._given(graph, theta, other, best.n_iter, best.converged, **asked)
        better = together.log_z > found.log_z
        if better.all() or not better.any():
            return together if better.any() else found
        how = (np.where(better, *pair) for pair in zip((best.n_iter, best.converged), how, strict=True))
        return self._given(graph, theta, np.where(better[graph.node_example], other, chosen), *how, **asked)

    def _given(self, graph, theta, chosen, n_iter, converged, **asked):
        """Sum nodes out given the states of others: what their choice took counts too."""
        try:
            beliefs = self.forward(graph, clamp(theta, chosen), 1.0, **asked)
        except ValueError as error:
            name = type(self).__name__
            raise ValueError(
                f"What {name} chose where it maximises leaves nothing possible: raise max_iter or use "
                f"'exact'. ({error})"
            ) from error
        return beliefs._replace(n_iter=beliefs.n_iter + n_iter, converged=beliefs.converged & converged)

    def _choose(self, graph, theta, maximised):
        """Choose the states of some nodes by mixed-product messages; -1 at the others, which are summed out.

        Also tells the iterations of each example and whether they converged.
        """
        plan = self._plan(graph)
        if graph.layout == "pairwise":
            plan = plan._replace(graph=as_factors(graph, theta.unary.shape[1]))
            theta = theta._replace(tables=theta.tables.reshape(-1))
        engine = FactorEngine(plan, theta, maximised)
        how = {"max_iter": plan.max_iter, "tol": plan.tol, "tape": False}
        trace = iterate(engine.step, engine.start(), graph.n_examples, **how)
        return engine.decode(trace.state), trace.n_iter, trace.converged

    def start_of(self, beliefs):
        """Keep the messages of an answer.

        Parameters
        ----------
        beliefs : Beliefs
            What `forward` returned.

        Returns
        -------
        start : Start
            What a later `forward` on the same graph can start from.
        """
        trace = getattr(beliefs.state, "trace", None)
        if trace is None:
            return Start()
        engine = beliefs.state.engine
        return Start(type(engine), engine.kept(trace.state))

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return backward_in_parts(beliefs, d_mu, d_edge_mu, d_log_z, _backward)

    def curvature(self, graph, theta, beliefs):
        return LocalCurvature(graph, self._plan(graph).rho, beliefs.mu, beliefs.edge_mu)

    def statistics(self, graph, beliefs):
        return backward_in_parts(beliefs, None, None, None, _statistics)


def _refuse_unspoken(graph, theta):
    """Refuse what no message would tell of: factors without a node, and what is not a number."""
    check_numbers(graph, theta)
    if graph.layout == "factor":
        nodeless = np.flatnonzero(np.diff(graph.scope_ptr) == 0)
        impossible = nodeless[theta.tables[graph.entry_ptr[graph.edge_table[nodeless]]] == -np.inf]
        if len(impossible):
            check_possible(graph, graph.node_example != graph.edge_example[impossible[0]])


def _backward(beliefs, d_mu, d_edge_mu, d_log_z):
    plan, theta, engine, max_terms, trace = beliefs.state
    graph = plan.graph
    if trace is None:
        d_log_z = np.zeros(graph.n_examples) if d_log_z is None else d_log_z
        return score_vjp(graph, theta, beliefs.mu, d_log_z)
    d_mu = np.zeros_like(beliefs.mu) if d_mu is None else d_mu
    adjoint, d_read = engine.new_adjoint(), None
    if d_edge_mu is None and (d_log_z is None or trace.tape is None):
        d_state = engine.marginals_vjp(adjoint, trace.state, beliefs.mu, d_mu)
        if d_log_z is not None:  # at a fixed point the marginals are its derivative, D13 Eq 4
            d_read = scaled(graph, _statistics(beliefs), d_log_z)
    else:
        d_log_z = np.zeros(graph.n_examples) if d_log_z is None else d_log_z
        through = trace.tape is not None
        d_state, d_read = engine.read_vjp(trace.state, d_mu, d_edge_mu, d_log_z, through)
    step_vjp = partial(engine.step_vjp, adjoint)
    reverse(step_vjp, trace, d_state, engine.row_ptr, tol=plan.tol, max_terms=max_terms)
    d_theta = engine.leave(adjoint)
    if d_read is not None:
        d_theta = Potentials(d_theta.unary + d_read.unary, d_theta.tables + d_read.tables)
    return d_theta


def _statistics(beliefs, *_):
    plan, theta, engine, _, trace = beliefs.state
    if trace is None:
        return score_vjp(plan.graph, theta, beliefs.mu, np.ones(plan.graph.n_examples))
    return Potentials(beliefs.mu.copy(), engine.expected_tables(trace.state))


def exact_backward(beliefs, d_mu, d_edge_mu, d_log_z):
    """Pull derivatives back where the answer is exact: that of log_z are the marginals, D13 Eq 4."""
    if d_mu is not None or d_edge_mu is not None or d_log_z is None:
        return _backward(beliefs, d_mu, d_edge_mu, d_log_z)
    return scaled(beliefs.state.plan.graph, _statistics(beliefs), d_log_z)


def _marginals(state, trace, edges):
    engine = state.engine
    mu = engine.marginals(trace.state)
    edge_mu = engine.edge_marginals(trace.state) if edges else None
    log_z = cache(partial(engine.log_z, trace.state))
    return Beliefs(mu, edge_mu, log_z, trace.n_iter, trace.converged, state._replace(trace=trace))


def _decoded(state, trace, edges):
    graph, theta = state.plan.graph, state.theta
    x = state.engine.decode(trace.state)
    mu = np.eye(theta.unary.shape[1])[x]
    edge_mu = outer(graph, mu) if edges else None
    found = score(graph, theta, x), trace.n_iter, trace.converged
    return Beliefs(mu, edge_mu, *found, state, state.engine.bound)
