"""Base of the mean-field engines."""

from abc import abstractmethod

import numpy as np

from skcrf._numerics import kernel, max_abs_by_part
from skcrf.graph import Potentials, outer
from skcrf.inference._engine import Engine


@kernel
def uniform(unary, mu):
    """Divide the probability of each node equally among its possible labels."""
    for node in range(len(unary)):
        n_possible = 0
        for x in range(unary.shape[1]):
            n_possible += unary[node, x] > -np.inf
        for x in range(unary.shape[1]):
            mu[node, x] = 1.0 / n_possible if unary[node, x] > -np.inf else 0.0


class MeanFieldEngine(Engine):
    """Coordinate ascent on the mean-field objective; the state holds the node marginals."""

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.row_ptr = plan.graph.node_ptr

    @abstractmethod
    def update(self, state, active):
        """Update every node of the active examples once, in place."""

    @abstractmethod
    def objective(self, mu):
        """Compute log_z = theta . mu + H(mu) per example, D13 Eq 10 and 12."""

    @abstractmethod
    def objective_vjp(self, mu, d_log_z, through, d_mu, d_theta):
        """Add the derivatives of `objective` to `d_theta` and, if `through`, to `d_mu`."""

    @abstractmethod
    def edge_marginals_vjp(self, mu, d_edge_mu, d_mu):
        """Add the derivative of the edge marginals, products of node marginals, to `d_mu`."""

    def pack(self, values):
        """Bring one number per node and label to the layout of the state."""
        return values

    def initial_state(self):
        mu = np.empty_like(self.theta.unary)
        uniform(self.theta.unary, mu)
        return self.pack(mu)

    def step(self, state, active):
        before = state.copy() if self.measure else None
        self.update(state, active)
        return self.changes(before, state) if self.measure else None

    def changes(self, before, state):
        """Find the largest change of a marginal in each example."""
        return max_abs_by_part(state - before, self.row_ptr)

    def marginals(self, state):
        return state

    def marginals_vjp(self, adjoint, state, mu, d_mu):
        return self.pack(d_mu.copy())

    def edge_marginals(self, state):
        return outer(self.graph, self.marginals(state))

    def expected_tables(self, state):
        mu = self.marginals(state)
        means = Potentials(np.zeros_like(mu), np.zeros_like(self.theta.tables))
        self.objective_vjp(mu, np.ones(self.graph.n_examples), False, np.empty((0, mu.shape[1])), means)
        return means.tables

    def log_z(self, state):
        return self.objective(self.marginals(state))

    def readout_vjp(self, state, d_mu, d_edge_mu, d_log_z, through):
        mu, d_mu = self.marginals(state), d_mu.copy()
        d_theta = Potentials(np.zeros_like(mu), np.zeros_like(self.theta.tables))
        if d_edge_mu is not None:
            self.edge_marginals_vjp(mu, d_edge_mu, d_mu)
        if d_log_z is not None:
            self.objective_vjp(mu, d_log_z, through, d_mu, d_theta)
        return self.pack(d_mu), d_theta

    def beliefs_vjp(self, adjoint, state, mu, d_mu, d_edge_mu, d_log_z, through):
        return self.readout_vjp(state, d_mu, d_edge_mu, d_log_z, through)
