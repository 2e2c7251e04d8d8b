"""Mean field on factor graphs, D13 Algorithm 2."""

import numpy as np

from skcrf._numerics import kernel, log_normalise
from skcrf.inference._factor.contract import Axis, contract, contract_vjp
from skcrf.inference._factor.schedule import factors_of_links
from skcrf.inference._mean_field import MeanFieldEngine


@kernel
def _work_size(graph):
    """Compute the maximum number of values between a table and its expectation."""
    largest = 1
    for factor in range(len(graph.edge_table)):
        size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
        largest = max(largest, size * (1 + graph.scope_ptr[factor + 1] - graph.scope_ptr[factor]))
    return largest


@kernel
def _axis(graph, link, target, size):
    """Describe the axis of a link, after all later ones but `target` were contracted."""
    node = graph.scope[link]
    inner = graph.cards[graph.scope[target]] if target > link else 1
    return Axis(size // (graph.cards[node] * graph.stride[link]), graph.cards[node], inner, node)


@kernel
def _expectation(graph, tables, start, factor, target, mu, work):
    """Compute the expectation of ``tables[start:]`` given the state of the node of `target`, -1 for no link.

    Returns where it starts in `work`, after a copy of the table and intermediate results.
    """
    size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
    for entry in range(size):
        work[entry] = tables[start + entry]
    found, at = 0, size
    for link in range(graph.scope_ptr[factor + 1] - 1, graph.scope_ptr[factor] - 1, -1):
        if link != target:
            axis = _axis(graph, link, target, size)
            contract(work, found, axis, mu, work, at)
            found, at = at, at + axis.outer * axis.inner
    return found


@kernel
def _expectation_vjp(graph, d_tables, start, factor, target, mu, work, d_work, found, d_mu):
    """Pull the derivative at ``d_work[found:]`` back; adds to those of marginals and tables."""
    size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
    at = found
    for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        if link != target:
            axis = _axis(graph, link, target, size)
            first = at - axis.outer * axis.card * axis.inner
            contract_vjp(work, d_work, first, axis, mu, d_mu, at)
            at = first
    for entry in range(size):
        d_tables[start + entry] += d_work[entry]


@kernel
def _ascend(graph, theta, factor_of, mu, active):
    """Update every node of the active examples once: theta_i plus the expectations of its factors."""
    new, work = np.empty(theta.unary.shape[1]), np.empty(_work_size(graph))
    for example in range(len(active)):
        if not active[example]:
            continue
        for p in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            node = graph.node_order[p]
            new[:] = theta.unary[node]
            for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                link = graph.incident[q]
                start = graph.entry_ptr[graph.edge_table[factor_of[link]]]
                found = _expectation(graph, theta.tables, start, factor_of[link], link, mu, work)
                for x in range(graph.cards[node]):
                    new[x] += work[found + x]
            log_normalise(new)
            for x in range(len(new)):
                mu[node, x] = np.exp(new[x])


@kernel
def _ascend_vjp(graph, theta, factor_of, before, mu, active, d_mu, d_theta):
    """Reverse an iteration node by node, last first; `mu` ends as `before`."""
    size = _work_size(graph)
    d_log, work, d_work = np.empty(theta.unary.shape[1]), np.empty(size), np.empty(size)
    for example in range(len(active)):
        if not active[example]:
            continue
        for p in range(graph.node_ptr[example + 1] - 1, graph.node_ptr[example] - 1, -1):
            node = graph.node_order[p]
            mean = 0.0
            for x in range(len(d_log)):
                mean += d_mu[node, x] * mu[node, x]
            for x in range(len(d_log)):
                d_log[x] = mu[node, x] * (d_mu[node, x] - mean)
                d_mu[node, x] = 0.0
                mu[node, x] = before[node, x]
                d_theta.unary[node, x] += d_log[x]
            for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                link = graph.incident[q]
                factor = factor_of[link]
                start = graph.entry_ptr[graph.edge_table[factor]]
                found = _expectation(graph, theta.tables, start, factor, link, mu, work)
                d_work[found : found + graph.cards[node]] = d_log[: graph.cards[node]]
                _expectation_vjp(graph, d_theta.tables, start, factor, link, mu, work, d_work, found, d_mu)


@kernel
def _objective(graph, theta, mu):
    """Compute log_z = theta . mu + H(mu), D13 Eq 10 and 12."""
    log_z, work = np.zeros(len(graph.node_ptr) - 1), np.empty(_work_size(graph))
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(graph.cards[node]):
                if mu[node, x] > 0:
                    log_z[example] += mu[node, x] * (theta.unary[node, x] - np.log(mu[node, x]))
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            start = graph.entry_ptr[graph.edge_table[factor]]
            log_z[example] += work[_expectation(graph, theta.tables, start, factor, -1, mu, work)]
    return log_z


@kernel
def _expectations_vjp(graph, starts, tables, mu, d_values, d_mu, d_tables):
    """Pull the derivatives of the expectations of tables back to marginals and tables."""
    size = _work_size(graph)
    work, d_work = np.empty(size), np.empty(size)
    for factor in range(len(graph.edge_table)):
        found = _expectation(graph, tables, starts[factor], factor, -1, mu, work)
        d_work[found] = d_values[factor]
        _expectation_vjp(graph, d_tables, starts[factor], factor, -1, mu, work, d_work, found, d_mu)


def _objective_vjp(graph, theta, mu, d_log_z, through, d_mu, d_theta):
    """Add the derivatives of log_z to `d_theta` and, if `through`, to `d_mu`."""
    of_nodes = d_log_z[graph.node_example, None]
    d_theta.unary[:] += of_nodes * mu
    starts = graph.entry_ptr[graph.edge_table]
    given = d_mu if through else np.zeros_like(mu)
    _expectations_vjp(graph, starts, theta.tables, mu, d_log_z[graph.edge_example], given, d_theta.tables)
    if through:
        possible = mu > 0
        gain = np.where(possible, theta.unary, 1.0) - np.log(np.where(possible, mu, 1.0)) - 1.0
        d_mu += of_nodes * gain


def _outer_vjp(graph, mu, d_factor_mu, d_mu):
    """Add the derivative of the factor marginals, products of node marginals, to `d_mu`."""
    ones, unused = np.ones(graph.n_edges), np.zeros_like(d_factor_mu)
    _expectations_vjp(graph, graph.belief_ptr[:-1], d_factor_mu, mu, ones, d_mu, unused)


class FactorMeanField(MeanFieldEngine):
    """Mean field on any factor graph, node by node."""

    layout = "factor"

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.factor_of = factors_of_links(plan.graph)

    def update(self, state, active):
        _ascend(self.graph, self.theta, self.factor_of, state, active)

    def step_vjp(self, adjoint, record, active, d_state):
        before, after = record
        _ascend_vjp(self.graph, self.theta, self.factor_of, before, after.copy(), active, d_state, adjoint)

    def objective(self, mu):
        return _objective(self.graph, self.theta, mu)

    def objective_vjp(self, mu, d_log_z, through, d_mu, d_theta):
        _objective_vjp(self.graph, self.theta, mu, d_log_z, through, d_mu, d_theta)

    def edge_marginals_vjp(self, mu, d_edge_mu, d_mu):
        _outer_vjp(self.graph, mu, d_edge_mu, d_mu)
