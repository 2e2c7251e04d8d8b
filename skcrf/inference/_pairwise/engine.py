"""Engines for sum- and max-product messages on pairwise graphs."""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from skcrf.graph import Potentials, score, sum_by_example
from skcrf.inference._engine import Engine
from skcrf.inference._pairwise.arrangement import Arrangement
from skcrf.inference._pairwise.block import add_products
from skcrf.inference._pairwise.entries import without_entries
from skcrf.inference._pairwise.hubs import has_hubs, hubs_of
from skcrf.inference._pairwise.readout import (
    choose_states,
    read_dual,
    read_dual_vjp,
    read_edges,
    read_forest,
    read_nodes,
    read_tables,
    read_vjp,
)
from skcrf.inference._pairwise.schedule import breadth_first, edge_links, message_schedule
from skcrf.inference._pairwise.sweep import marginals, marginals_vjp, sweep, sweep_vjp

#: Relative to the numbers that are summed, a score within rounding errors of its bound is optimal.
ROUNDING = 1e-14


class MessageEngine(Engine):
    """Base of the engines that pass messages on pairwise graphs."""

    @abstractmethod
    def messages(self, state):
        """Convert a state to log-messages, numbered as in `Graph`."""

    @abstractmethod
    def messages_vjp(self, d_messages):
        """Pull derivatives with respect to these messages back to the state."""

    def edge_marginals(self, state):
        n_states = self.theta.unary.shape[1]
        return self._read_edges(state, np.empty((self.graph.n_edges, n_states, n_states)))[1]

    def log_z(self, state):
        if self.inward is not None:
            return read_dual(self.graph, self.theta, self.rho, self.messages(state), self.inward, False)
        n_states = self.theta.unary.shape[1]
        return self._read_edges(state, np.empty((0, n_states, n_states)))[0]

    def _read_edges(self, state, edge_mu):
        problem = self.graph, self.theta, self.rho, self.messages(state)
        return read_edges(*problem, read_nodes(*problem), edge_mu), edge_mu

    def readout_vjp(self, state, d_mu, d_edge_mu, d_log_z, through):
        n_states = self.theta.unary.shape[1]
        problem = self.graph, self.theta, self.rho, self.messages(state)
        d_edge_mu = np.empty((0, n_states, n_states)) if d_edge_mu is None else d_edge_mu
        # At a fixed point both definitions of log_z are stationary, with the marginals as derivative.
        is_dual = self.inward is not None and through
        d_primal = np.zeros_like(d_log_z) if is_dual else d_log_z
        d_messages, d_theta = read_vjp(*problem, read_nodes(*problem), d_mu, d_edge_mu, d_primal, through)
        if is_dual:
            read_dual_vjp(*problem, self.inward, d_log_z, d_messages, d_theta)
        return self.messages_vjp(d_messages), d_theta

    def decode(self, state):
        order, _ = breadth_first(edge_links(self.graph))
        return choose_states(self.graph, self.theta, self.weighted_messages(state), order)

    def weighted_messages(self, state):
        """Multiply the messages by the weights of their edges."""
        return self.messages(state) * np.repeat(self.rho, 2)[:, None]


class PairwiseAdjoint(NamedTuple):
    """Derivatives with respect to the potentials, and those that need to be multiplied by tables.

    Attributes
    ----------
    unary, tables : ndarray
        As in `Potentials`.
    products : ndarray of shape (n_exp_tables, n_states, n_states)
        Derivatives with respect to `exp_tables`.
    """

    unary: np.ndarray
    tables: np.ndarray
    products: np.ndarray


class PairwiseEngine(MessageEngine):
    """Messages on any pairwise graph; the state holds log-messages by position."""

    takes_potts = True

    @classmethod
    def options(cls, plan, theta):
        return 1 + has_hubs(plan.graph).astype(np.int64)

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.damping, self.maximise, self.dtype = float(plan.damping), plan.maximise, plan.dtype
        self.row_ptr = 2 * plan.graph.edge_ptr
        self.arrangement = Arrangement(plan.graph)
        self.swept = theta._replace(unary=self.arrangement.arranged(theta.unary))
        graph = self.arrangement.graph
        self.schedule = message_schedule(graph, theta, plan.rho, maximise=plan.maximise)
        self.hubs = hubs_of(graph)

    def initial_state(self):
        return np.zeros((2 * self.graph.n_edges, self.theta.unary.shape[1]), dtype=self.dtype)

    # Kernels subtract infinities and look for nan, about which NumPy warns where they are not compiled.

    @np.errstate(invalid="ignore")
    def step(self, state, active):
        settings = self.hubs, self.damping, self.maximise, self.measure
        return sweep(self.schedule, self.arrangement.graph, self.swept, *settings, state, active)

    @np.errstate(invalid="ignore")
    def step_vjp(self, adjoint, record, active, d_state):
        before, after = record
        settings, states = (self.hubs, self.damping), (before, after.copy(), active, d_state)
        sweep_vjp(self.schedule, self.arrangement.graph, self.swept, *settings, *states, adjoint)

    def new_adjoint(self):
        return PairwiseAdjoint(*super().new_adjoint(), np.zeros_like(self.schedule.exp_tables))

    def to_potentials(self, adjoint):
        tables = adjoint.tables.copy()
        add_products(self.graph, self.schedule, self.rho, adjoint.products, tables)
        return Potentials(self.arrangement.original(adjoint.unary), tables)

    def messages(self, state):
        messages = np.empty(state.shape)  # of float64 also where those of the state are not
        messages[self.arrangement.graph.incident] = state
        return messages

    def messages_vjp(self, d_messages):
        return d_messages[self.arrangement.graph.incident].astype(self.dtype, copy=False)

    def marginals(self, state):
        mu = marginals(self.arrangement.graph, self.swept, self.schedule.weights, state)
        return self.arrangement.original(mu)

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state, (mu, d_mu) = np.zeros_like(state), map(self.arrangement.arranged, (mu, d_mu))
        marginals_vjp(self.arrangement.graph, self.schedule.weights, mu, d_mu, d_state, adjoint)
        return d_state

    def expected_tables(self, state):
        return read_tables(self.graph, self.theta, self.rho, self.messages(state))


class ForestEngine(PairwiseEngine):
    """Messages on forests, where one sweep is exact; avoids exponentials per edge and pair of states."""

    _readout = None, None  # the state that was read last, and its log_z and expected tables

    def log_z(self, state):
        return self._read_once(state)[0]

    def expected_tables(self, state):
        return self._read_once(state)[1].copy()

    def _read_once(self, state):
        if self._readout[0] is not state:
            table_max = self.theta.tables.max(axis=(1, 2), initial=-np.inf)
            problem = self.schedule, self.graph, self.theta, table_max
            self._readout = state, read_forest(*problem, self.messages(state))
        return self._readout[1]


class ChainEngine(PairwiseEngine):
    """Messages along monotonic chains; where they maximise, keeps the best configuration and bound."""

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        if plan.maximise:
            # By rows, neighbours are decoded soon after each other; on other graphs, breadth first.
            order, _ = breadth_first(edge_links(self.graph))
            self.orders = np.arange(self.graph.n_nodes), order
            self.best, self.value = None, np.full(self.graph.n_examples, -np.inf)
            self.bound = np.full(self.graph.n_examples, np.inf)
            self.rounding = ROUNDING * magnitudes(self.graph, theta)
            self._update_best(self.initial_state())

    def step(self, state, active):
        change = super().step(state, active)
        if not self.maximise:
            return change
        self._update_best(state)
        # An optimal configuration cannot be improved, even if messages still change.
        is_optimal = self.bound - self.value <= self.rounding  # False for impossible ones, at -inf
        return np.where(is_optimal, 0.0, change)

    def decode(self, state):
        return self.best

    def _update_best(self, state):
        """Decode configurations; keep the best per example, and the lowest bound."""
        bound = read_dual(self.graph, self.theta, self.rho, self.messages(state), self.inward, True)
        weighted = self.weighted_messages(state)
        for order in self.orders:
            x = choose_states(self.graph, self.theta, weighted, order)
            value = score(self.graph, without_entries(self.theta), x)
            is_better = (value > self.value)[self.graph.node_example]
            self.best = x if self.best is None else np.where(is_better, x, self.best)
            self.value = np.maximum(value, self.value)
        # Rounding may put the bound below the score.
        self.bound = np.maximum(np.minimum(bound, self.bound), self.value)


def magnitudes(graph, theta):
    """Sum the largest absolute potentials of all nodes and edges per example."""
    nodes, tables = (
        np.abs(np.where(values > -np.inf, values, 0.0)).max(axis=axes, initial=0.0)
        for values, axes in ((theta.unary, 1), (theta.tables, (1, 2)))
    )
    of_nodes = sum_by_example(nodes, graph.node_example, graph)
    return of_nodes + sum_by_example(tables[graph.edge_table], graph.edge_example, graph)
