"""Sum- and max-product messages on any pairwise graph: the engine."""

import numpy as np

from skcrf.inference._pairwise.readout import EdgeReader, read_tables
from skcrf.inference._pairwise.schedule import route_of
from skcrf.inference._pairwise.sweep import marginals, marginals_vjp, sweep, sweep_vjp


class PairwiseEngine(EdgeReader):
    """Messages on any graph.

    Parameters
    ----------
    plan : Plan
        How to pass messages.
    theta : Potentials
        Potentials.
    options : int, default=1
        As for `Engine`.
    """

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.damping, self.maximise = float(plan.damping), plan.maximise
        self.row_ptr = 2 * plan.graph.edge_ptr
        self.route = route_of(plan.graph, theta, plan.rho, maximise=plan.maximise)

    def initial_state(self):
        return np.zeros((2 * self.graph.n_edges, self.theta.unary.shape[1]))

    def step(self, messages, active):
        how = (self.rho, self.damping, self.maximise, self.measure)
        return sweep(self.route, self.graph, self.theta, *how, messages, active)

    def step_vjp(self, d_theta, before, after, active, d_messages):
        how = (self.rho, self.damping)
        states = (before, after.copy(), active, d_messages)
        sweep_vjp(self.route, self.graph, self.theta, *how, *states, d_theta)

    def messages(self, state):
        messages = np.empty_like(state)
        messages[self.graph.incident] = state
        return messages

    def enter(self, d_messages):
        return d_messages[self.graph.incident]

    def marginals(self, messages):
        return marginals(self.graph, self.theta, self.route.weights, messages)

    def expected_tables(self, state):
        return read_tables(self.graph, self.theta, self.rho, self.messages(state))

    def marginals_vjp(self, d_theta, messages, mu, d_mu):
        d_messages = np.zeros_like(messages)
        marginals_vjp(self.graph, self.route.weights, mu, d_mu, d_messages, d_theta)
        return d_messages
