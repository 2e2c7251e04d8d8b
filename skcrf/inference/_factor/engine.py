"""Engine for sum-, max- and mixed-product messages on factor graphs."""

import numpy as np

from skcrf.inference._engine import Engine
from skcrf.inference._factor.readout import choose_states, read_factors, read_nodes, read_tables, read_vjp
from skcrf.inference._factor.schedule import factor_links, factor_schedule
from skcrf.inference._factor.sweep import sweep, sweep_vjp
from skcrf.inference._pairwise.hubs import has_hubs, hubs_of
from skcrf.inference._pairwise.schedule import breadth_first
from skcrf.inference._pairwise.sweep import marginals, marginals_vjp


class FactorEngine(Engine):
    """Messages on any factor graph; the state holds log-messages by position."""

    layout = "factor"

    @classmethod
    def options(cls, plan, theta):
        return 1 + has_hubs(plan.graph).astype(np.int64)

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.damping = float(plan.damping)
        self.row_ptr = plan.graph.scope_ptr[plan.graph.edge_ptr]
        self.maximised = np.full(plan.graph.n_nodes, False) | plan.maximise
        self.schedule = factor_schedule(plan.graph, theta, plan.rho, self.maximised)
        self.hubs = hubs_of(plan.graph)
        # Mixed-product messages depend on beliefs that are equal.
        self.dtype = np.float64 if self.maximised.any() else plan.dtype

    def initial_state(self):
        return np.zeros((len(self.graph.scope), self.theta.unary.shape[1]), dtype=self.dtype)

    def step(self, state, active):
        settings = self.hubs, self.damping, self.measure
        return sweep(self.schedule, self.graph, self.theta, *settings, state, active)

    def step_vjp(self, adjoint, before, after, active, d_state):
        settings, states = (self.hubs, self.damping), (before, after.copy(), active, d_state)
        sweep_vjp(self.schedule, self.graph, self.theta, *settings, *states, adjoint)

    def marginals(self, state):
        return marginals(self.graph, self.theta, self.schedule.weights, state)

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        d_state = np.zeros_like(state)
        marginals_vjp(self.graph, self.schedule.weights, mu, d_mu, d_state, adjoint)
        return d_state

    def edge_marginals(self, state):
        return self._read_factors(state, np.empty(self.graph.belief_ptr[-1]))[1]

    def log_z(self, state):
        return self._read_factors(state, np.empty(0))[0]

    def expected_tables(self, state):
        return read_tables(*self._problem(state))

    def readout_vjp(self, state, d_mu, d_edge_mu, d_log_z, through):
        d_edge_mu = np.empty(0) if d_edge_mu is None else d_edge_mu
        problem = self._problem(state)
        d_state, d_theta = read_vjp(
            *problem, self._log_marginals(problem[-1]), d_mu, d_edge_mu, d_log_z, through
        )
        return d_state.astype(self.dtype, copy=False), d_theta

    def decode(self, state):
        order, _ = breadth_first(factor_links(self.graph))
        return choose_states(*self._problem(state), self.maximised, order)

    def _problem(self, state):
        """Return the arguments of functions that read beliefs, of float64 also where the state is not."""
        return self.schedule, self.graph, self.theta, self.rho, state.astype(np.float64, copy=False)

    def _log_marginals(self, messages):
        return read_nodes(self.graph, self.theta, self.schedule.weights, messages)

    def _read_factors(self, state, factor_mu):
        problem = self._problem(state)
        return read_factors(*problem, self._log_marginals(problem[-1]), factor_mu), factor_mu
