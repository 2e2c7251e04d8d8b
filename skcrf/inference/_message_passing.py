"""Base of the methods that pass messages."""

from abc import abstractmethod
from functools import singledispatch
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf._numerics import vector_exp, vector_kernel
from skcrf.graph import FactorGraph, canonical, clamp, full_tables
from skcrf.inference._base import BaseInference, check_numbers, check_possible
from skcrf.inference._curvature import LocalCurvature
from skcrf.inference._engine import (
    Engine,
    as_factor_problem,
    choose_engines,
    expected_statistics,
    infer,
    part_of,
    pull_back,
    resume_point,
)
from skcrf.inference._factor.engine import FactorEngine, FactorPairEngine
from skcrf.inference._fixed_point import ITERATION, iterate
from skcrf.inference._lattice.engine import LatticeEngine
from skcrf.inference._lattice.mixed import MixedLatticeEngine
from skcrf.inference._pairwise.engine import PairwiseEngine

#: Constraints on the parameters of the methods that pass messages.
PASSING = {
    **ITERATION,
    "damping": [Interval(Real, 0, 1, closed="left")],
    "dtype": [StrOptions({"float64", "float32"})],
}

# Tolerances below this are out of reach of messages in single precision.
_SINGLE_MIN_TOL = 1e-6


class EdgelessEngine(PairwiseEngine):
    """Batches without edges, which have no messages: marginals are those of single sites."""

    is_plain = False

    @classmethod
    def options(cls, plan, theta):
        return np.full(plan.graph.n_examples, 1 if plan.graph.n_edges == 0 and not plan.maximise else 0)

    def __init__(self, plan, theta, options=1):
        Engine.__init__(self, plan, theta, options)
        self.row_ptr = 2 * plan.graph.edge_ptr

    def initial_state(self):
        return np.zeros((0, self.theta.unary.shape[1]))

    def step(self, state, active):
        return np.zeros(len(active))

    def step_vjp(self, adjoint, record, active, d_state):
        pass

    def new_adjoint(self):
        return Engine.new_adjoint(self)

    def to_potentials(self, adjoint):
        return adjoint

    def messages(self, state):
        return state

    def messages_vjp(self, d_messages):
        return d_messages

    def marginals(self, state):
        return _site_marginals(self.theta.unary)

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        _site_marginals_vjp(mu, d_mu, adjoint.unary)
        return np.zeros_like(state)


@vector_kernel
def _site_marginals(unary):
    """Compute the softmax of every row; nan where no state is possible."""
    mu = np.empty_like(unary)
    for node in range(len(mu)):
        top = unary[node, 0]
        for x in range(1, mu.shape[1]):
            top = max(top, unary[node, x])
        for x in range(mu.shape[1]):
            mu[node, x] = unary[node, x] - top if top > -np.inf else -np.inf
    flat = mu.reshape(-1)
    for i in range(flat.size):
        flat[i] = vector_exp(flat[i])
    for node in range(len(mu)):
        total = 0.0
        for x in range(mu.shape[1]):
            total += mu[node, x]
        scale = 1.0 / total if total > 0 else np.nan
        for x in range(mu.shape[1]):
            mu[node, x] *= scale
    return mu


@vector_kernel
def _site_marginals_vjp(mu, d_mu, d_unary):
    d_belief = np.empty(mu.shape[1])
    for node in range(len(mu)):
        mean = 0.0
        for x in range(mu.shape[1]):
            mean += mu[node, x] * d_mu[node, x]
        for x in range(mu.shape[1]):
            d_belief[x] = mu[node, x] * (d_mu[node, x] - mean)
            d_unary[node, x] += d_belief[x]


class MessagePassing(BaseInference):
    """Base of the methods that pass messages; they differ in edge weights, schedule and stopping."""

    #: Engines in order of preference.
    _engines = (EdgelessEngine, LatticeEngine, PairwiseEngine, FactorPairEngine, FactorEngine)

    #: Name of the type of the messages; a parameter of methods that offer a choice.
    dtype = "float64"

    @property
    def precision(self):
        return np.finfo(self.dtype).eps

    @abstractmethod
    def _plan(self, graph):
        """Choose edge weights, schedule and stopping: return a Plan."""

    def _message_type(self):
        """Return the type of the messages, after checking that they can reach the tolerance."""
        dtype = np.dtype(self.dtype).type
        if dtype is np.float32 and 0 < self.tol < _SINGLE_MIN_TOL:
            raise ValueError(
                f"tol must be 0 or at least {_SINGLE_MIN_TOL:g} with dtype='float32', got {self.tol!r}. "
                "Use a larger tol or dtype='float64'."
            )
        return dtype

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        task, tau = self.task_of(graph, tau)
        theta = canonical(theta)
        check_numbers(graph, theta)
        _check_nodeless_factors(graph, theta)
        if task == "mixed":
            return self._marginal_map(graph, theta, tau == 0, edges=edges, tape=tape)
        plan = self._plan(graph)._replace(maximise=task == "max")
        # Maxima of impossible nodes are not nan, so the check below would miss them.
        if plan.maximise:
            check_possible(graph, (theta.unary > -np.inf).any(axis=1))
        beliefs = infer(self._engines, plan, theta, edges=edges, tape=tape, start=start)
        check_possible(plan.graph, ~np.isnan(beliefs.mu[:, 0]))
        return beliefs

    def _marginal_map(self, graph, theta, maximised, **asked):
        """Choose the states of some nodes, and sum the others out given them.

        Mixed-product messages settle on a choice early, which on loopy graphs may be a bad one; max-product
        messages choose what is best together with the others. The choice that leaves the larger sum is kept.
        """
        chosen, *how = self._choose(graph, theta, maximised)
        best = self.forward(graph, theta, 0.0)
        other = np.where(maximised, best.mu.argmax(axis=1), -1)
        other = np.where((best.log_z > -np.inf)[graph.node_example], other, chosen)
        try:
            found = self._given(graph, theta, chosen, *how, **asked)
        except ValueError:  # an impossible choice
            return self._given(graph, theta, other, best.n_iter, best.converged, **asked)
        if np.array_equal(other, chosen):
            return found
        together = self._given(graph, theta, other, best.n_iter, best.converged, **asked)
        better = together.log_z > found.log_z
        if better.all() or not better.any():
            return together if better.any() else found
        how = (np.where(better, *pair) for pair in zip((best.n_iter, best.converged), how, strict=True))
        return self._given(graph, theta, np.where(better[graph.node_example], other, chosen), *how, **asked)

    def _given(self, graph, theta, chosen, n_iter, converged, **asked):
        """Sum nodes out given the states of others; the iterations that chose these are added."""
        try:
            beliefs = self.forward(graph, clamp(theta, chosen), 1.0, **asked)
        except ValueError as error:
            able = self._names_of(lambda method: method.exact_on == "any")
            raise ValueError(
                f"The configuration decoded by {type(self).__name__} has probability zero. Increase max_iter "
                f"or use one of the exact inferences {able}. ({error})"
            ) from error
        return beliefs._replace(n_iter=beliefs.n_iter + n_iter, converged=beliefs.converged & converged)

    def _choose(self, graph, theta, maximised):
        """Choose the states of some nodes by mixed-product messages; -1 at the others, which are summed out.

        Also returns the iterations of each example and whether they converged.
        """
        plan, theta = self._plan(graph)._replace(maximise=maximised), full_tables(theta)
        how = {"max_iter": plan.max_iter, "tol": plan.tol, "tape": False}
        chosen, n_iter = np.empty(graph.n_nodes, dtype=np.int64), np.empty(graph.n_examples, dtype=np.int64)
        left, converged = np.ones(graph.n_examples, dtype=bool), np.empty(graph.n_examples, dtype=bool)
        groups = choose_engines((MixedLatticeEngine,), plan, theta)
        for _, _, examples in groups:
            left &= ~examples
        for engine, options, examples in [*groups, (FactorEngine, 1, left)]:
            if examples.any():
                part, part_theta, where = part_of(plan, theta, examples)
                if engine is FactorEngine:
                    factors, part_theta = as_factor_problem(part.graph, part_theta)
                    part = part._replace(graph=factors)
                run = engine(part, part_theta, options)
                trace = iterate(run, run.initial_state(), part.graph.n_examples, **how)
                chosen[where.nodes] = run.decode(trace.state)
                n_iter[where.examples], converged[where.examples] = trace.n_iter, trace.converged
        return chosen, n_iter, converged

    def start_of(self, beliefs):
        return resume_point(beliefs)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return pull_back(beliefs, d_mu, d_edge_mu, d_log_z)

    def curvature(self, graph, theta, beliefs):
        return LocalCurvature(graph, self._plan(graph).rho, beliefs.mu, beliefs.edge_mu)

    def statistics(self, graph, beliefs):
        return expected_statistics(beliefs)


@singledispatch
def _check_nodeless_factors(graph, theta):
    """Raise ImpossibleError for factors without nodes that forbid their example: they send no messages."""


@_check_nodeless_factors.register
def _(graph: FactorGraph, theta):
    nodeless = np.flatnonzero(np.diff(graph.scope_ptr) == 0)
    impossible = nodeless[theta.tables[graph.entry_ptr[graph.edge_table[nodeless]]] == -np.inf]
    if len(impossible):
        check_possible(graph, graph.node_example != graph.edge_example[impossible[0]])
