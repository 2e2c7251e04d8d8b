"""Sum-, max- and mixed-product messages along factors: the engine."""

import numpy as np

from skcrf.inference._engine import Engine
from skcrf.inference._factor.readout import decode, read_factors, read_nodes, read_tables, read_vjp
from skcrf.inference._factor.schedule import factor_route_of
from skcrf.inference._factor.sweep import sweep, sweep_vjp
from skcrf.inference._pairwise.sweep import marginals, marginals_vjp


class FactorEngine(Engine):
    """Messages along factors of any number of nodes.

    Parameters
    ----------
    plan : Plan
        How to pass messages.
    theta : Potentials
        Potentials.
    options : int, default=1
        As for `Engine`.
    """

    layout = "factor"

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.damping = float(plan.damping)
        self.row_ptr = plan.graph.scope_ptr[plan.graph.edge_ptr]
        self.maximised = np.full(plan.graph.n_nodes, False) | plan.maximise
        self.route = factor_route_of(plan.graph, theta, plan.rho, self.maximised)
        self.position = np.empty_like(plan.graph.incident)
        self.position[plan.graph.incident] = np.arange(len(plan.graph.incident))

    def initial_state(self):
        return np.zeros((len(self.graph.scope), self.theta.unary.shape[1]))

    def step(self, messages, active):
        how = (self.rho, self.damping, self.measure)
        return sweep(self.route, self.graph, self.theta, *how, messages, active)

    def step_vjp(self, d_theta, before, after, active, d_messages):
        how = (self.rho, self.damping)
        states = (before, after.copy(), active, d_messages)
        sweep_vjp(self.route, self.graph, self.theta, *how, *states, d_theta)

    def marginals(self, messages):
        return marginals(self.graph, self.theta, self.route.weights, messages)

    def marginals_vjp(self, d_theta, messages, mu, d_mu):
        d_messages = np.zeros_like(messages)
        marginals_vjp(self.graph, self.route.weights, mu, d_mu, d_messages, d_theta)
        return d_messages

    def _problem(self, messages):
        return self.graph, self.theta, self.rho, self.route.weights, self.position, messages

    def _log_mu(self, messages):
        return read_nodes(self.graph, self.theta, self.route.weights, messages)

    def expected_tables(self, messages):
        return read_tables(*self._problem(messages))

    def edge_marginals(self, messages):
        factor_mu = np.empty(self.graph.belief_ptr[-1])
        read_factors(*self._problem(messages), self._log_mu(messages), factor_mu)
        return factor_mu

    def log_z(self, messages):
        return read_factors(*self._problem(messages), self._log_mu(messages), np.empty(0))

    def readout_vjp(self, messages, d_mu, d_edge_mu, d_log_z, through):
        d_edge_mu = np.empty(0) if d_edge_mu is None else d_edge_mu
        log_mu = self._log_mu(messages)
        return read_vjp(*self._problem(messages), log_mu, d_mu, d_edge_mu, d_log_z, through)

    def decode(self, messages):
        return decode(self.route, self.graph, self.theta, self.rho, messages, self.maximised)
