"""Mean field along factors of any number of nodes, D13 Algorithm 2."""

import numpy as np

from skcrf._numerics import kernel, log_normalise
from skcrf.inference._factor.contract import contract, contract_vjp
from skcrf.inference._mean_field import MeanFieldEngine


@kernel
def _room(graph):
    """The most numbers between a table and its expectation."""
    most = 1
    for factor in range(len(graph.edge_table)):
        size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
        most = max(most, size * (1 + graph.scope_ptr[factor + 1] - graph.scope_ptr[factor]))
    return most


@kernel
def _axis(graph, link, target, size):
    """Shape of a table before and behind the axis of a link, once the later ones but `target` are gone."""
    card = graph.cards[graph.scope[link]]
    inner = graph.cards[graph.scope[target]] if target > link else 1
    return size // (card * graph.stride[link]), card, inner


@kernel
def _expect(graph, tables, start, factor, target, mu, work):
    """Expectation of ``tables[start:]`` given the state of the node of `target`, -1 for no link.

    Returns where it starts in `work`, behind what is between, which stands behind a copy of the table.
    """
    size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
    for entry in range(size):
        work[entry] = tables[start + entry]
    found, at = 0, size
    for link in range(graph.scope_ptr[factor + 1] - 1, graph.scope_ptr[factor] - 1, -1):
        if link != target:
            outer, card, inner = _axis(graph, link, target, size)
            contract(work, found, outer, card, inner, mu, graph.scope[link], work, at)
            found, at = at, at + outer * inner
    return found


@kernel
def _expect_vjp(graph, d_tables, start, factor, target, mu, work, d_work, found, d_mu):
    """Pull what stands at `found` in `d_work` back to marginals and tables; adds to both."""
    size = graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]
    at = found
    for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        if link != target:
            node = graph.scope[link]
            outer, card, inner = _axis(graph, link, target, size)
            first = at - outer * card * inner
            contract_vjp(work, first, outer, card, inner, mu, node, d_work, at, d_mu, node, d_work, first)
            at = first
    for entry in range(size):
        d_tables[start + entry] += d_work[entry]


@kernel
def _factors_of_links(graph):
    factor_of = np.empty(len(graph.scope), np.int64)
    for factor in range(len(graph.edge_table)):
        factor_of[graph.scope_ptr[factor] : graph.scope_ptr[factor + 1]] = factor
    return factor_of


@kernel
def _ascend(graph, theta, factor_of, mu, active):
    """Update every node of the active examples once: theta_i and what factors expect given x_i."""
    new, work = np.empty(theta.unary.shape[1]), np.empty(_room(graph))
    for example in range(len(active)):
        if not active[example]:
            continue
        for p in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            node = graph.node_order[p]
            new[:] = theta.unary[node]
            for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                link = graph.incident[q]
                start = graph.entry_ptr[graph.edge_table[factor_of[link]]]
                found = _expect(graph, theta.tables, start, factor_of[link], link, mu, work)
                for x in range(graph.cards[node]):
                    new[x] += work[found + x]
            log_normalise(new)
            for x in range(len(new)):
                mu[node, x] = np.exp(new[x])


@kernel
def _ascend_vjp(graph, theta, factor_of, before, mu, active, d_mu, d_theta):
    """Undo an iteration node by node, last first; `mu` ends as `before`."""
    room = _room(graph)
    d_log, work, d_work = np.empty(theta.unary.shape[1]), np.empty(room), np.empty(room)
    for example in range(len(active)):
        if not active[example]:
            continue
        for p in range(graph.node_ptr[example + 1] - 1, graph.node_ptr[example] - 1, -1):
            node = graph.node_order[p]
            mean = 0.0
            for x in range(len(d_log)):
                mean += d_mu[node, x] * mu[node, x]
            for x in range(len(d_log)):  # backnorm
                d_log[x] = mu[node, x] * (d_mu[node, x] - mean)
                d_mu[node, x] = 0.0
                mu[node, x] = before[node, x]
                d_theta.unary[node, x] += d_log[x]
            for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                link = graph.incident[q]
                factor = factor_of[link]
                start = graph.entry_ptr[graph.edge_table[factor]]
                found = _expect(graph, theta.tables, start, factor, link, mu, work)
                d_work[found : found + graph.cards[node]] = d_log[: graph.cards[node]]
                _expect_vjp(graph, d_theta.tables, start, factor, link, mu, work, d_work, found, d_mu)


@kernel
def _objective(graph, theta, mu):
    """log_z = theta . mu + H(mu), D13 Eq 10 and 12."""
    log_z, work = np.zeros(len(graph.node_ptr) - 1), np.empty(_room(graph))
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(graph.cards[node]):
                if mu[node, x] > 0:
                    log_z[example] += mu[node, x] * (theta.unary[node, x] - np.log(mu[node, x]))
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            start = graph.entry_ptr[graph.edge_table[factor]]
            log_z[example] += work[_expect(graph, theta.tables, start, factor, -1, mu, work)]
    return log_z


@kernel
def _expectations_vjp(graph, starts, tables, mu, d_values, d_mu, d_tables):
    """Pull the derivatives of what tables are expected to be, factor by factor, back to both."""
    room = _room(graph)
    work, d_work = np.empty(room), np.empty(room)
    for factor in range(len(graph.edge_table)):
        found = _expect(graph, tables, starts[factor], factor, -1, mu, work)
        d_work[found] = d_values[factor]
        _expect_vjp(graph, d_tables, starts[factor], factor, -1, mu, work, d_work, found, d_mu)


def _objective_vjp(graph, theta, mu, d_log_z, through, d_mu, d_theta):
    """Pull the derivative of log_z back to theta and, if it goes `through` the marginals, to them."""
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
    """Pull the derivative of the marginals of factors back to those of nodes, whose products they are."""
    ones, unused = np.ones(graph.n_edges), np.zeros_like(d_factor_mu)
    _expectations_vjp(graph, graph.belief_ptr[:-1], d_factor_mu, mu, ones, d_mu, unused)


class FactorMeanField(MeanFieldEngine):
    """Mean field along factors, node after node."""

    layout = "factor"

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.factor_of = _factors_of_links(plan.graph)

    def update(self, state, active):
        _ascend(self.graph, self.theta, self.factor_of, state, active)

    def step_vjp(self, adjoint, before, after, active, d_state):
        _ascend_vjp(self.graph, self.theta, self.factor_of, before, after.copy(), active, d_state, adjoint)

    def objective(self, mu):
        return _objective(self.graph, self.theta, mu)

    def objective_vjp(self, mu, d_log_z, through, d_mu, d_theta):
        _objective_vjp(self.graph, self.theta, mu, d_log_z, through, d_mu, d_theta)

    def edge_marginals_vjp(self, mu, d_edge_mu, d_mu):
        _outer_vjp(self.graph, mu, d_edge_mu, d_mu)
