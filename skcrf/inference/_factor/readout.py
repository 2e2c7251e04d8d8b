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
from skcrf.inference._pairwise.schedule import END, FIRST, NODE, OWN
from skcrf.inference._pairwise.sweep import cavity, cavity_vjp


@kernel
def _max_sizes(graph):
    """Compute the maximum numbers of nodes and of entries of a factor."""
    arity, size = 1, 1
    for factor in range(len(graph.edge_table)):
        arity = max(arity, graph.scope_ptr[factor + 1] - graph.scope_ptr[factor])
        size = max(size, graph.belief_ptr[factor + 1] - graph.belief_ptr[factor])
    return arity, size


@kernel
def _belief(schedule, graph, theta, rho, messages, factor, cavities, out):
    """Compute the log-marginal of a factor; `cavities` is scratch with one row per node."""
    start, first = graph.entry_ptr[graph.edge_table[factor]], graph.scope_ptr[factor]
    for entry in range(len(out)):
        out[entry] = theta.tables[start + entry] / rho[factor]
    for link in range(first, graph.scope_ptr[factor + 1]):
        node, row = graph.scope[link], link - first
        begin, end, own = graph.incident_ptr[node], graph.incident_ptr[node + 1], schedule.position[link]
        cavity(theta.unary, schedule.weights, messages, node, begin, end, own, cavities, row)
        add_along_axis(cavities, row, graph.cards[node], graph.stride[link], len(out), out)
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
    max_arity, max_size = _max_sizes(graph)
    cavities, scratch = np.empty((max_arity, theta.unary.shape[1])), np.empty((2, max_size))
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(graph.cards[node]):
                if log_mu[node, x] > -np.inf:
                    log_z[example] += np.exp(log_mu[node, x]) * (theta.unary[node, x] - log_mu[node, x])
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            start, first = graph.entry_ptr[graph.edge_table[factor]], graph.belief_ptr[factor]
            size = graph.belief_ptr[factor + 1] - first
            belief, independent = scratch[0, :size], scratch[1, :size]
            _belief(schedule, graph, theta, rho, messages, factor, cavities, belief)
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
    max_arity, max_size = _max_sizes(graph)
    cavities, scratch = np.empty((max_arity, theta.unary.shape[1])), np.empty(max_size)
    for factor in range(len(graph.edge_table)):
        start = graph.entry_ptr[graph.edge_table[factor]]
        belief = scratch[: graph.belief_ptr[factor + 1] - graph.belief_ptr[factor]]
        _belief(schedule, graph, theta, rho, messages, factor, cavities, belief)
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
    n_states = theta.unary.shape[1]
    d_messages = np.zeros_like(messages)
    d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    d_node = d_mu * np.exp(log_mu)  # with respect to log_mu
    max_arity, max_size = _max_sizes(graph)
    cavities, d_cavity = np.empty((max_arity, n_states)), np.empty((1, n_states))
    scratch = np.empty((4, max_size))
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for factor in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            if d_z == 0 and len(d_factor_mu) == 0:
                continue
            start, first = graph.entry_ptr[graph.edge_table[factor]], graph.belief_ptr[factor]
            size = graph.belief_ptr[factor + 1] - first
            belief, independent, mass = scratch[0, :size], scratch[1, :size], scratch[2, :size]
            d_belief, total = scratch[3, :size], 0.0
            _belief(schedule, graph, theta, rho, messages, factor, cavities, belief)
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
                d_cavity[0] = 0.0
                sum_to_axis(d_belief, card, stride, size, 1.0, d_cavity, 0)
                begin, end, own = (
                    graph.incident_ptr[node],
                    graph.incident_ptr[node + 1],
                    schedule.position[link],
                )
                cavity_vjp(schedule.weights, node, begin, end, own, d_cavity, 0, d_messages, d_theta.unary)
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
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
    work = np.empty(schedule.sizes[1])
    for node in order:
        if not maximised[node]:
            continue
        scores[:] = unary[node]
        for q in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            update, has_chosen = schedule.updates[schedule.update_of[graph.incident[q]]], False
            base = update[FIRST_SOURCE]
            for s in range(base, update[END_SOURCE]):
                source, row = schedule.sources[s], s - base
                other, first, end, own = source[NODE], source[FIRST], source[END], source[OWN]
                if states[other] >= 0:
                    has_chosen = True
                    cavities[row] = -np.inf
                    cavities[row, states[other]] = 0.0
                else:
                    cavity(unary, weights, messages, other, first, end, own, cavities, row)
                    if source[OPERATION] == SUM_OF_BEST:
                        restrict_to_best(unary, weights, messages, other, first, end, belief, cavities, row)
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
