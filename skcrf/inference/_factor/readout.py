"""Beliefs from messages on factor graphs, which are rows by position."""

import numpy as np

from skcrf._numerics import kernel, log_normalise
from skcrf.graph import Potentials
from skcrf.inference._factor.contract import add_along_axis, sum_to_axis
from skcrf.inference._factor.schedule import (
    END_SOURCE,
    FACTOR,
    FIRST_SOURCE,
    OPERATION,
    SIZE,
    SUM_OF_BEST,
)
from skcrf.inference._factor.sweep import Message, log_sum, restrict_to_best
from skcrf.inference._pairwise.hubs import (
    MAX_DIRECT,
    find_hubs,
    hub_cavity,
    hub_cavity_vjp,
    spread_adjoints,
    total_messages,
)
from skcrf.inference._pairwise.sweep import cavity, cavity_vjp
from skcrf.inference._pairwise.updates import END, FIRST, NODE, OWN


@kernel
def _max_size(graph):
    """Compute the maximum number of entries of a factor."""
    size = 1
    for factor in range(len(graph.edge_table)):
        size = max(size, graph.belief_ptr[factor + 1] - graph.belief_ptr[factor])
    return size


@kernel
def _cavities(schedule, graph, unary, messages):
    """Compute the cavities of all nodes without one message, by the position of that message."""
    weights, incident_ptr, out = schedule.weights, graph.incident_ptr, np.empty_like(messages)
    for node in range(len(unary)):
        first, end = incident_ptr[node], incident_ptr[node + 1]
        if end - first <= MAX_DIRECT:
            for own in range(first, end):
                cavity(unary, weights, messages, node, first, end, own, out, own)
    hubs = find_hubs(incident_ptr)
    totals = total_messages(hubs, incident_ptr, unary, weights, messages)
    for hub in range(len(hubs.node)):
        for own in range(incident_ptr[hubs.node[hub]], incident_ptr[hubs.node[hub] + 1]):
            hub_cavity(totals, hub, weights[own], messages, own, out, own)
    return out


@kernel
def _cavities_vjp(schedule, graph, d_cavities, d_messages, d_unary):
    """Pull the derivatives of all cavities back."""
    weights, incident_ptr = schedule.weights, graph.incident_ptr
    for node in range(len(d_unary)):
        first, end = incident_ptr[node], incident_ptr[node + 1]
        if end - first <= MAX_DIRECT:
            for own in range(first, end):
                cavity_vjp(weights, node, first, end, own, d_cavities, own, d_messages, d_unary)
    hubs = find_hubs(incident_ptr)
    d_totals = np.zeros((len(hubs.node), d_unary.shape[1]))
    for hub in range(len(hubs.node)):
        for own in range(incident_ptr[hubs.node[hub]], incident_ptr[hubs.node[hub] + 1]):
            hub_cavity_vjp(d_totals, hub, own, d_cavities, own, d_messages)
    spread_adjoints(hubs, incident_ptr, weights, d_totals, d_messages, d_unary)


@kernel
def _belief(schedule, graph, tables, rho, cavities, factor, out):
    """Compute the log-marginal of a factor; `cavities` is of `_cavities`."""
    start = graph.entry_ptr[graph.edge_table[factor]]
    for entry in range(len(out)):
        out[entry] = tables[start + entry] / rho[factor]
    for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        card, row = graph.cards[graph.scope[link]], schedule.position[link]
        add_along_axis(cavities, row, card, graph.stride[link], len(out), out)
    log_normalise(out)


@kernel
def read_nodes(graph, theta, weights, messages):
    """Compute the log-marginals of nodes, D13 Eq 17."""
    log_mu = np.empty_like(theta.unary)
    for node in range(len(log_mu)):
        first, end = graph.incident_ptr[node], graph.incident_ptr[node + 1]
        cavity(theta.unary, weights, messages, node, first, end, -1, log_mu, node)
        log_normalise(log_mu[node])
    return log_mu


@kernel
def _log_product(graph, log_mu, factor, out):
    """Compute the log-marginal of a factor with independent nodes."""
    out[:] = 0.0
    for link in range(graph.scope_ptr[factor], graph.scope_ptr[factor + 1]):
        node = graph.scope[link]
        add_along_axis(log_mu, node, graph.cards[node], graph.stride[link], len(out), out)


@kernel
def read_factors(schedule, graph, theta, rho, messages, log_mu, factor_mu):
    """Compute log_z = theta . mu + H(mu), D13 Eq 16, and the factor marginals; `factor_mu` may be empty."""
    log_z = np.zeros(len(graph.node_ptr) - 1)
    cavities, scratch = _cavities(schedule, graph, theta.unary, messages), np.empty((2, _max_size(graph)))
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(graph.cards[node]):
                if log_mu[node, x] > -np.inf:
                    log_z[example] += np.exp(log_mu[node, x]) * (theta.unary[node, x] - log_mu[node, x])
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            start, first = graph.entry_ptr[graph.edge_table[factor]], graph.belief_ptr[factor]
            size = graph.belief_ptr[factor + 1] - first
            belief, independent = scratch[0, :size], scratch[1, :size]
            _belief(schedule, graph, theta.tables, rho, cavities, factor, belief)
            _log_product(graph, log_mu, factor, independent)
            for entry in range(size):
                mass = np.exp(belief[entry])
                if mass > 0:
                    information = belief[entry] - independent[entry]
                    log_z[example] += mass * (theta.tables[start + entry] - rho[factor] * information)
                if len(factor_mu):
                    factor_mu[first + entry] = mass
    return log_z


@kernel
def read_tables(schedule, graph, theta, rho, messages):
    """Sum the factor marginals over the factors that share a table."""
    tables = np.zeros_like(theta.tables)
    cavities, scratch = _cavities(schedule, graph, theta.unary, messages), np.empty(_max_size(graph))
    for factor in range(len(graph.edge_table)):
        start = graph.entry_ptr[graph.edge_table[factor]]
        belief = scratch[: graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]]
        _belief(schedule, graph, theta.tables, rho, cavities, factor, belief)
        for entry in range(len(belief)):
            tables[start + entry] += np.exp(belief[entry])
    return tables


@kernel
def _node_vjp(schedule, graph, theta, node, log_mu, d_z, through, d_node, d_messages, d_theta):
    """Pull the derivatives of a node's log-marginal and of its terms of log_z back."""
    total = 0.0
    for x in range(graph.cards[node]):
        mass = np.exp(log_mu[node, x])
        if mass > 0:
            d_theta.unary[node, x] += d_z * mass
            if through:
                d_node[node, x] += d_z * mass * (theta.unary[node, x] - log_mu[node, x] - 1.0)
        total += d_node[node, x]
    for x in range(log_mu.shape[1]):
        d_node[node, x] -= total * np.exp(log_mu[node, x])
    first, end = graph.incident_ptr[node], graph.incident_ptr[node + 1]
    cavity_vjp(schedule.weights, node, first, end, -1, d_node, node, d_messages, d_theta.unary)


@kernel
def read_vjp(schedule, graph, theta, rho, messages, log_mu, d_mu, d_factor_mu, d_log_z, through):
    """Pull derivatives of marginals and log_z back to messages and theta (D13 Alg 3, steps 6 and 7).

    `through` is as on pairwise graphs; `d_factor_mu` may be empty.
    """
    d_messages = np.zeros_like(messages)
    d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    d_node = d_mu * np.exp(log_mu)  # with respect to log_mu
    cavities, scratch = _cavities(schedule, graph, theta.unary, messages), np.empty((4, _max_size(graph)))
    d_cavities = np.zeros_like(messages)
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            if d_z == 0 and len(d_factor_mu) == 0:
                continue
            start, first = graph.entry_ptr[graph.edge_table[factor]], graph.belief_ptr[factor]
            size = graph.belief_ptr[factor + 1] - first
            belief, independent, mass = scratch[0, :size], scratch[1, :size], scratch[2, :size]
            d_belief, total = scratch[3, :size], 0.0
            _belief(schedule, graph, theta.tables, rho, cavities, factor, belief)
            _log_product(graph, log_mu, factor, independent)
            for entry in range(size):
                mass[entry], d_belief[entry] = np.exp(belief[entry]), 0.0
                if mass[entry] > 0:
                    d_theta.tables[start + entry] += d_z * mass[entry]
                    if len(d_factor_mu):
                        d_belief[entry] += d_factor_mu[first + entry] * mass[entry]
                    if through and d_z != 0:
                        information = belief[entry] - independent[entry]
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
                    sum_to_axis(mass, card, stride, size, d_z * rho[factor], d_node, node)
                sum_to_axis(d_belief, card, stride, size, 1.0, d_cavities, schedule.position[link])
    _cavities_vjp(schedule, graph, d_cavities, d_messages, d_theta.unary)
    for example in range(len(d_log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            d_z = d_log_z[example]
            _node_vjp(schedule, graph, theta, node, log_mu, d_z, through, d_node, d_messages, d_theta)
    return d_messages, d_theta


@kernel
def choose_states(schedule, graph, theta, rho, messages, maximised, order):
    """Choose the states of the maximised nodes in order, each the best given those chosen before.

    On a forest where every node is maximised, the choice is a maximiser. Nodes that are summed out get -1.
    """
    unary, tables, weights = theta.unary, theta.tables, schedule.weights
    n_states = unary.shape[1]
    states, scores = np.full(len(graph.node_order), -1), np.empty(n_states)
    cavities, belief = np.empty((schedule.sizes[0], n_states)), np.empty((1, n_states))
    work, given_all = np.empty(schedule.sizes[1]), _cavities(schedule, graph, unary, messages)
    for node in order:
        if not maximised[node]:
            continue
        scores[:] = unary[node]
        for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            update, has_chosen = schedule.updates[schedule.update_of[graph.incident[q]]], False
            base = update[FIRST_SOURCE]
            for s in range(base, update[END_SOURCE]):
                other, row = schedule.sources[s, NODE], s - base
                if states[other] >= 0:
                    has_chosen = True
                    cavities[row] = -np.inf
                    cavities[row, states[other]] = 0.0
                else:
                    source = schedule.sources[s]
                    cavities[row] = given_all[source[OWN]]
                    if source[OPERATION] == SUM_OF_BEST:
                        first, end = source[FIRST], source[END]
                        cavity(unary, weights, messages, other, first, end, -1, belief, 0)
                        restrict_to_best(belief, cavities, row)
            factor = update[FACTOR]
            if has_chosen:
                table = graph.entry_ptr[graph.edge_table[factor]]
                message = Message(base, update[END_SOURCE], 0, update[SIZE], table, -1)
                found = log_sum(schedule.sources, message, cavities, 1.0 / rho[factor], tables, work)
                for x in range(graph.cards[node]):
                    scores[x] += weights[q] * work[found + x]
            else:
                for x in range(n_states):
                    scores[x] += weights[q] * messages[q, x]
        states[node] = np.argmax(scores)
    return states
