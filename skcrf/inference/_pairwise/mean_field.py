"""Mean field on pairwise graphs, D13 Algorithm 2."""

import numpy as np

from skcrf._numerics import kernel, log_normalise
from skcrf.inference._mean_field import MeanFieldEngine


@kernel
def _update(graph, theta, mu, node, out):
    """Compute the maximiser of the objective in the marginal of one node."""
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
    """Pull `d_log`, the derivative of an update before normalisation, back to neighbours and theta."""
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
    """Reverse an iteration node by node, last first; `mu` ends as `before`."""
    d_log = np.empty(theta.unary.shape[1])
    for example in range(len(active)):
        if active[example]:
            for p in range(graph.node_ptr[example + 1] - 1, graph.node_ptr[example] - 1, -1):
                node = graph.node_order[p]
                mean = 0.0
                for x in range(len(d_log)):
                    mean += d_mu[node, x] * mu[node, x]
                for x in range(len(d_log)):
                    d_log[x] = mu[node, x] * (d_mu[node, x] - mean)
                    d_mu[node, x] = 0.0
                    mu[node, x] = before[node, x]
                _update_vjp(graph, theta, mu, node, d_log, d_mu, d_theta)


@kernel
def objective(graph, theta, mu):
    """Compute log_z = theta . mu + H(mu), D13 Eq 10 and 12."""
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
def objective_vjp(graph, theta, mu, d_log_z, through, d_mu, d_theta):
    """Add the derivatives of log_z to `d_theta` and, if `through`, to `d_mu`."""
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


def outer_vjp(graph, mu, d_edge_mu, d_mu):
    """Add the derivative of the edge marginals, products of node marginals, to `d_mu`."""
    i, j = graph.edges.T
    np.add.at(d_mu, i, np.einsum("exz,ez->ex", d_edge_mu, mu[j]))
    np.add.at(d_mu, j, np.einsum("exz,ex->ez", d_edge_mu, mu[i]))


class PairwiseMeanField(MeanFieldEngine):
    """Mean field on any pairwise graph, node by node."""

    def update(self, state, active):
        _ascend(self.graph, self.theta, state, active)

    def step_vjp(self, adjoint, record, active, d_state):
        before, after = record
        _ascend_vjp(self.graph, self.theta, before, after.copy(), active, d_state, adjoint)

    def objective(self, mu):
        return objective(self.graph, self.theta, mu)

    def objective_vjp(self, mu, d_log_z, through, d_mu, d_theta):
        objective_vjp(self.graph, self.theta, mu, d_log_z, through, d_mu, d_theta)

    def edge_marginals_vjp(self, mu, d_edge_mu, d_mu):
        outer_vjp(self.graph, mu, d_edge_mu, d_mu)
