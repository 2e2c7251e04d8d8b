"""Mean field in plain NumPy: the example of the page on adding an inference."""

import numpy as np
from scipy.special import entr, softmax

from skcrf.graph import Potentials, outer, sum_by_example, sum_by_table
from skcrf.inference import BaseInference, Beliefs


class PlainMeanField(BaseInference):
    """Mean field by damped parallel updates, without derivatives."""

    def __init__(self, max_iter=500, tol=1e-6):
        self.max_iter = max_iter
        self.tol = tol

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        self.task_of(graph, tau)  # raises an error for unsupported graphs and temperatures
        first, second = graph.edges.T
        tables = theta.tables[graph.edge_table]  # edges can share a table
        mu = softmax(theta.unary, axis=1)
        n_iter = np.zeros(graph.n_examples, dtype=int)
        active = np.ones(graph.n_examples, dtype=bool)
        while active.any() and n_iter.max() < self.max_iter:
            field = theta.unary.copy()
            np.add.at(field, first, np.einsum("eab,eb->ea", tables, mu[second]))
            np.add.at(field, second, np.einsum("eab,ea->eb", tables, mu[first]))
            step = 0.5 * (softmax(field, axis=1) - mu) * active[graph.node_example, None]
            mu += step
            n_iter += active
            change = np.zeros(graph.n_examples)  # examples converge independently of each other
            np.maximum.at(change, graph.node_example, np.abs(step).max(axis=1))
            active &= change > self.tol
        edge_mu = outer(graph, mu)
        log_z = sum_by_example((mu * theta.unary + entr(mu)).sum(axis=1), graph.node_example, graph)
        log_z += sum_by_example((edge_mu * tables).sum(axis=(1, 2)), graph.edge_example, graph)
        converged = ~active | (self.tol == 0)
        return Beliefs(mu, edge_mu if edges else None, log_z, n_iter, converged, state=(graph, edge_mu))


class MeanFieldWithBackward(PlainMeanField):
    """The same with the derivative of log_z, which at a fixed point is given by the marginals."""

    bound = "lower"  # log_z is a lower bound of the log-partition function
    differentiates = frozenset({"log_z"})

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        graph, edge_mu = beliefs.state
        unary = d_log_z[graph.node_example, None] * beliefs.mu
        by_edge = d_log_z[graph.edge_example, None, None] * edge_mu
        return Potentials(unary, sum_by_table(graph, by_edge))
