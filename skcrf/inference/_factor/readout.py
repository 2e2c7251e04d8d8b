"""How beliefs are read from messages along factors, which are rows in the order of arrival."""

import numpy as np

from skcrf._numerics import kernel, log_normalise
from skcrf.graph import Potentials
from skcrf.inference._factor.contract import collect, spread
from skcrf.inference._factor.schedule import BEST
from skcrf.inference._factor.sweep import restrict, sum_with_care
from skcrf.inference._pairwise.sweep import arrive


@kernel
def _most(graph):
    """The most nodes and the most entries of a factor."""
    arity, size = 1, 1
    for factor in range(len(graph.edge_table)):
        arity = max(arity, graph.scope_ptr[factor + 1] - graph.scope_ptr[factor])
        size = max(size, graph.belief_ptr[factor + 1] - graph.belief_ptr[factor])
    return arity, size


@kernel
def _belief(graph, theta, rho, weights, position, messages, factor, cavities, out):
    """Log-marginal of a factor; `cavities` is scratch of a row for each of its nodes."""
    start, first = graph.entry_ptr[graph.edge_table[factor]], graph.scope_ptr[factor]
    for entry in range(len(out)):
        out[entry] = theta.tables[start + entry] / rho[factor]
    for link in range(first, graph.scope_ptr[factor + 1]):
        node, row = graph.scope[link], link - first
        begin, end = graph.incident_ptr[node], graph.incident_ptr[node + 1]
        arrive(theta.unary, weights, messages, node, begin, end, position[link], cavities, row)
        spread(cavities, row, graph.cards[node], graph.stride[link], len(out), out)
    log_normalise(out)


@kernel
def read_nodes(graph, theta, weights, messages):
    """Logarithms of the marginals of nodes, Eq 17."""
    log_mu = np.empty_like(theta.unary)
    for node in range(len(log_mu)):
        first, last = graph.incident_ptr[node], graph.incident_ptr[node + 1]
        arrive(theta.unary, weights, messages, node, first, last, -1, log_mu, node)
        log_normalise(log_mu[node])
    return log_mu


@kernel
def _independent(graph, log_mu, factor, out):
    """Logarithms of what a factor's marginal would be if its nodes had nothing to do with each other."""
    out[:] = 0.0
    for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        node = graph.scope[link]
        spread(log_mu, node, graph.cards[node], graph.stride[link], len(out), out)


@kernel
def read_factors(graph, theta, rho, weights, position, messages, log_mu, factor_mu):
    """log_z = theta . mu + H(mu), Eq 16, and the marginals of factors; `factor_mu` may be empty."""
    log_z = np.zeros(len(graph.node_ptr) - 1)
    arity, most = _most(graph)
    cavities, scratch = np.empty((arity, theta.unary.shape[1])), np.empty((2, most))
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(graph.cards[node]):
                if log_mu[node, x] > -np.inf:
                    log_z[example] += np.exp(log_mu[node, x]) * (theta.unary[node, x] - log_mu[node, x])
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            start, first = graph.entry_ptr[graph.edge_table[factor]], graph.belief_ptr[factor]
            size = graph.belief_ptr[factor + 1] - first
            belief, apart = scratch[0, :size], scratch[1, :size]
            _belief(graph, theta, rho, weights, position, messages, factor, cavities, belief)
            _independent(graph, log_mu, factor, apart)
            for entry in range(size):
                mass = np.exp(belief[entry])
                if mass > 0:
                    information = belief[entry] - apart[entry]
                    log_z[example] += mass * (theta.tables[start + entry] - rho[factor] * information)
                if len(factor_mu):
                    factor_mu[first + entry] = mass
    return log_z


@kernel
def read_tables(graph, theta, rho, weights, position, messages):
    """Marginals of factors, summed over those that share a table."""
    tables = np.zeros_like(theta.tables)
    arity, most = _most(graph)
    cavities, scratch = np.empty((arity, theta.unary.shape[1])), np.empty(most)
    for factor in range(len(graph.edge_table)):
        start = graph.entry_ptr[graph.edge_table[factor]]
        belief = scratch[: graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]]
        _belief(graph, theta, rho, weights, position, messages, factor, cavities, belief)
        for entry in range(len(belief)):
            tables[start + entry] += np.exp(belief[entry])
    return tables


@kernel
def _arrive_vjp(graph, weights, node, own, d_cavity, row, d_messages, d_unary):
    for x in range(d_cavity.shape[1]):
        d_unary[node, x] += d_cavity[row, x]
    for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
        weight = weights[q] - (q == own)
        for x in range(d_cavity.shape[1]):
            d_messages[q, x] += weight * d_cavity[row, x]


@kernel
def read_vjp(
    graph, theta, rho, weights, position, messages, log_mu, d_mu, d_factor_mu, d_log_z, through
):  # fmt: skip
    """Pull derivatives of marginals and log_z back to messages and theta (D13 Alg 3, steps 6 and 7).

    `through` says whether log_z depends on theta by way of the marginals too: not at a fixed point,
    where they are stationary (Eq 9). `d_factor_mu` may be empty.
    """
    n_states = theta.unary.shape[1]
    d_messages = np.zeros_like(messages)
    d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    d_node = d_mu * np.exp(log_mu)  # with respect to log_mu
    arity, most = _most(graph)
    cavities, d_cavity, scratch = np.empty((arity, n_states)), np.empty((1, n_states)), np.empty((4, most))
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            if d_z == 0 and len(d_factor_mu) == 0:
                continue
            start, first = graph.entry_ptr[graph.edge_table[factor]], graph.belief_ptr[factor]
            size = graph.belief_ptr[factor + 1] - first
            belief, apart, mass = scratch[0, :size], scratch[1, :size], scratch[2, :size]
            d_belief, total = scratch[3, :size], 0.0
            _belief(graph, theta, rho, weights, position, messages, factor, cavities, belief)
            _independent(graph, log_mu, factor, apart)
            for entry in range(size):
                mass[entry], d_belief[entry] = np.exp(belief[entry]), 0.0
                if mass[entry] > 0:
                    d_theta.tables[start + entry] += d_z * mass[entry]
                    if len(d_factor_mu):
                        d_belief[entry] += d_factor_mu[first + entry] * mass[entry]
                    if through and d_z != 0:
                        information = belief[entry] - apart[entry]
                        gain = theta.tables[start + entry] - rho[factor] * (information + 1.0)
                        d_belief[entry] += d_z * mass[entry] * gain
                    total += d_belief[entry]
            for entry in range(size):
                d_belief[entry] -= total * mass[entry]
                d_theta.tables[start + entry] += d_belief[entry] / rho[factor]
            for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                node, stride = graph.scope[link], graph.stride[link]
                card = graph.cards[node]
                if through and d_z != 0:
                    collect(mass, card, stride, size, d_z * rho[factor], d_node, node)
                d_cavity[0] = 0.0
                collect(d_belief, card, stride, size, 1.0, d_cavity, 0)
                _arrive_vjp(graph, weights, node, position[link], d_cavity, 0, d_messages, d_theta.unary)
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            total = 0.0
            for x in range(graph.cards[node]):
                mass_x = np.exp(log_mu[node, x])
                if mass_x > 0:
                    d_theta.unary[node, x] += d_z * mass_x
                    if through:
                        d_node[node, x] += d_z * mass_x * (theta.unary[node, x] - log_mu[node, x] - 1.0)
                total += d_node[node, x]
            for x in range(n_states):
                d_node[node, x] -= total * np.exp(log_mu[node, x])
            _arrive_vjp(graph, weights, node, -1, d_node, node, d_messages, d_theta.unary)
    return d_messages, d_theta


@kernel
def breadth_first(graph):
    """Order the nodes so that each but the first of a connected part is in a factor with an earlier one."""
    n_nodes, n_found, factor_of = len(graph.node_order), 0, np.empty(len(graph.scope), np.int64)
    for factor in range(len(graph.edge_table)):
        factor_of[graph.scope_ptr[factor] : graph.scope_ptr[factor + 1]] = factor
    order, found = np.empty(n_nodes, np.int64), np.zeros(n_nodes, np.bool_)
    entered = np.zeros(len(graph.edge_table), np.bool_)
    for root in range(n_nodes):
        if found[root]:
            continue
        at, order[n_found], found[root] = n_found, root, True
        n_found += 1
        while at < n_found:
            node = order[at]
            at += 1
            for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                factor = factor_of[graph.incident[q]]
                if entered[factor]:
                    continue
                entered[factor] = True
                for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
                    if not found[graph.scope[link]]:
                        found[graph.scope[link]] = True
                        order[n_found] = graph.scope[link]
                        n_found += 1
    return order


@kernel
def decode(route, graph, theta, rho, messages, maximised):
    """Choose the states of the maximised nodes in turn, each the best given those chosen before.

    On a forest, where all are maximised, the choice is a maximiser. -1 where a node is summed out.
    """
    unary, tables, weights = theta.unary, theta.tables, route.weights
    n_states = unary.shape[1]
    states, best = np.full(len(graph.node_order), -1), np.empty(n_states)
    cavity, belief = np.empty((route.sizes[0], n_states)), np.empty((1, n_states))
    work = np.empty(route.sizes[1])
    for node in breadth_first(graph):
        if not maximised[node]:
            continue
        best[:] = unary[node]
        for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            step, known = route.step_of[graph.incident[q]], False
            base = route.steps[step, 0]
            for s in range(base, route.steps[step, 1]):
                other, first, last = route.sources[s, 0], route.sources[s, 1], route.sources[s, 2]
                if states[other] >= 0:
                    known = True
                    cavity[s - base] = -np.inf
                    cavity[s - base, states[other]] = 0.0
                else:
                    own = route.sources[s, 3]
                    arrive(unary, weights, messages, other, first, last, own, cavity, s - base)
                    if route.sources[s, 7] == BEST:
                        restrict(unary, weights, messages, other, first, last, belief, cavity, s - base)
            factor = route.steps[step, 3]
            if known:
                table = graph.entry_ptr[graph.edge_table[factor]]
                found = sum_with_care(
                    route.steps, route.sources, step, 0, cavity, 1.0 / rho[factor], tables, table, work
                )
                for x in range(graph.cards[node]):
                    best[x] += weights[q] * work[found + x]
            else:
                for x in range(n_states):
                    best[x] += weights[q] * messages[q, x]
        states[node] = np.argmax(best)
    return states
