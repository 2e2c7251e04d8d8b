"""Beliefs from sum- and max-product messages on pairwise graphs.

Messages are rows of an array (2 * n_edges, n_states) of logarithms, with a maximum of 0, numbered as in
`Graph`.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, log_normalise, softmax, vector_kernel
from skcrf.graph import Potentials
from skcrf.inference._pairwise.block import SMALL, add_products, exponentials, logarithms
from skcrf.inference._pairwise.entries import add_to_entry, entry
from skcrf.inference._pairwise.products import cavities_of, cavities_vjp, node_products, node_products_vjp


@kernel
def _edge_belief(edge_table, tables, rho, cavities, edge, out):
    """Compute the log-marginal of an edge, flattened; `cavities` is of `cavities_of`."""
    n_states, table = cavities.shape[1], edge_table[edge]
    for x in range(n_states):
        for z in range(n_states):
            cavity = cavities[2 * edge, x]
            out[x * n_states + z] = (
                entry(tables, table, x, z) / rho[edge] + cavity + cavities[2 * edge + 1, z]
            )
    log_normalise(out)


@kernel
def read_nodes(graph, theta, rho, messages):
    """Compute the log-marginals of nodes, D13 Eq 17."""
    log_mu = node_products(graph, theta, rho, messages)
    for node in range(len(log_mu)):
        log_normalise(log_mu[node])
    return log_mu


@kernel
def read_edges(graph, theta, rho, messages, log_mu, edge_mu):
    """Compute log_z = theta . mu + H(mu), D13 Eq 16, and the edge marginals; `edge_mu` may have no rows."""
    n_states = theta.unary.shape[1]
    log_z = np.zeros(len(graph.node_ptr) - 1)
    cavities, belief = cavities_of(graph, theta, rho, messages), np.empty(n_states * n_states)
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(n_states):
                if log_mu[node, x] > -np.inf:
                    log_z[example] += np.exp(log_mu[node, x]) * (theta.unary[node, x] - log_mu[node, x])
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            _edge_belief(graph.edge_table, theta.tables, rho, cavities, edge, belief)
            for x in range(n_states):
                for z in range(n_states):
                    value = belief[x * n_states + z]
                    mass = np.exp(value)
                    if mass > 0:
                        information = value - log_mu[i, x] - log_mu[j, z]
                        log_z[example] += mass * (entry(theta.tables, table, x, z) - rho[edge] * information)
                    if len(edge_mu):
                        edge_mu[edge, x, z] = mass
    return log_z


@kernel
def read_tables(graph, theta, rho, messages):
    """Sum the edge marginals over the edges that share a table."""
    n_states = theta.unary.shape[1]
    tables = np.zeros_like(theta.tables)
    cavities, belief = cavities_of(graph, theta, rho, messages), np.empty(n_states * n_states)
    for edge in range(len(graph.edges)):
        _edge_belief(graph.edge_table, theta.tables, rho, cavities, edge, belief)
        for x in range(n_states):
            for z in range(n_states):
                add_to_entry(tables, graph.edge_table[edge], x, z, np.exp(belief[x * n_states + z]))
    return tables


@inlined_kernel
def _node_vjp(theta, node, log_mu, d_z, through, d_node, d_theta):
    """Pull the derivatives of a node's terms of log_z back to its log-marginal, and that to its product."""
    for x in range(log_mu.shape[1]):
        mass = np.exp(log_mu[node, x])
        if mass > 0:
            d_theta.unary[node, x] += d_z * mass
            if through:
                d_node[node, x] += d_z * mass * (theta.unary[node, x] - log_mu[node, x] - 1.0)
    total = d_node[node].sum()
    for x in range(log_mu.shape[1]):
        d_node[node, x] -= total * np.exp(log_mu[node, x])


@kernel
def read_vjp(graph, theta, rho, messages, log_mu, d_mu, d_edge_mu, d_log_z, through):
    """Pull derivatives of marginals and log_z back to messages and theta (D13 Alg 3, steps 6 and 7).

    `through` tells whether log_z depends on theta through the marginals too: not at a fixed point, where they
    are stationary (D13 Eq 9). `d_edge_mu` may have no rows.
    """
    n_states = theta.unary.shape[1]
    d_messages = np.zeros_like(messages)
    d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    d_node = d_mu * np.exp(log_mu)  # with respect to log_mu
    uses_edges = len(d_edge_mu) > 0 or (d_log_z != 0).any()
    cavities = cavities_of(graph, theta, rho, messages) if uses_edges else messages
    d_cavities = np.zeros_like(messages)
    belief, d_belief = np.empty(n_states * n_states), np.empty(n_states * n_states)
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            if d_z == 0 and len(d_edge_mu) == 0:
                continue
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            _edge_belief(graph.edge_table, theta.tables, rho, cavities, edge, belief)
            total = 0.0
            for x in range(n_states):
                for z in range(n_states):
                    at, mass = x * n_states + z, np.exp(belief[x * n_states + z])
                    d_belief[at] = 0.0
                    if mass == 0:
                        continue
                    add_to_entry(d_theta.tables, table, x, z, d_z * mass)
                    if len(d_edge_mu):
                        d_belief[at] += d_edge_mu[edge, x, z] * mass
                    if through and d_z != 0:
                        information = belief[at] - log_mu[i, x] - log_mu[j, z]
                        gain = entry(theta.tables, table, x, z) - rho[edge] * (information + 1.0)
                        d_belief[at] += d_z * mass * gain
                        d_node[i, x] += d_z * rho[edge] * mass
                        d_node[j, z] += d_z * rho[edge] * mass
                    total += d_belief[at]
            for x in range(n_states):
                for z in range(n_states):
                    at = x * n_states + z
                    d_joint = d_belief[at] - total * np.exp(belief[at])
                    add_to_entry(d_theta.tables, table, x, z, d_joint / rho[edge])
                    d_cavities[2 * edge, x] += d_joint
                    d_cavities[2 * edge + 1, z] += d_joint
    if uses_edges:
        cavities_vjp(graph, rho, d_cavities, np.empty((0, n_states)), d_messages, d_theta.unary)
    for example in range(len(d_log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            _node_vjp(theta, node, log_mu, d_log_z[example], through, d_node, d_theta)
    node_products_vjp(graph, rho, d_node, d_messages, d_theta.unary)
    return d_messages, d_theta


@vector_kernel
def _scaled_exponentials(values):
    """Replace rows by their exponentials, relative to the largest; returns the maxima."""
    tops = np.empty(len(values))
    for row in range(len(values)):
        top = values[row, 0]
        for x in range(1, values.shape[1]):
            top = max(top, values[row, x])
        tops[row] = top
        top = top if top > -np.inf else 0.0
        for x in range(values.shape[1]):
            values[row, x] -= top
    exponentials(values.reshape(-1), values.size, values.reshape(-1))
    return tops


@kernel
def _log_total(tables, table, cavities, edge, joint):
    """Compute the log-sum-exp of an edge in the log domain, leaving its marginal in `joint`."""
    n_states = cavities.shape[1]
    for x in range(n_states):
        for z in range(n_states):
            value = entry(tables, table, x, z) + cavities[2 * edge, x]
            joint[x * n_states + z] = value + cavities[2 * edge + 1, z]
    return softmax(joint)


@vector_kernel
def read_forest(schedule, graph, theta, table_max, messages):
    """Compute log_z, and the edge marginals summed over the edges that share a table, on forests.

    ``log_z = sum_i log z_i + sum_ij (log z_ij - log z_i - log z_j)``, where z normalises the beliefs of nodes
    and edges; the scale of the messages cancels. `table_max` holds the largest entries of tables.
    """
    n_states, rho, exp_tables = theta.unary.shape[1], np.ones(len(graph.edges)), schedule.exp_tables
    nodes, cavities = node_products(graph, theta, rho, messages), cavities_of(graph, theta, rho, messages)
    ends = cavities.copy()
    log_nodes, log_ends = _scaled_exponentials(nodes), _scaled_exponentials(ends)
    node_totals, edge_totals = np.empty(len(nodes)), np.empty(len(graph.edges))
    tables, products = np.zeros_like(theta.tables), np.zeros_like(exp_tables)
    for node in range(len(nodes)):
        node_totals[node] = nodes[node].sum()
    for edge in range(len(edge_totals)):
        exp_table, total = schedule.edge_exp_table[edge], 0.0
        for x in range(n_states):
            inner = 0.0
            for z in range(n_states):
                inner += entry(exp_tables, exp_table, x, z) * ends[2 * edge + 1, z]
            total += ends[2 * edge, x] * inner
        edge_totals[edge] = total
        if total > SMALL:
            for x in range(n_states):
                share = ends[2 * edge, x] / total
                for z in range(n_states):
                    add_to_entry(products, exp_table, x, z, share * ends[2 * edge + 1, z])
    add_products(graph, schedule, rho, products, tables)
    is_safe = edge_totals > SMALL
    logarithms(node_totals, len(node_totals))
    logarithms(edge_totals, len(edge_totals))
    log_nodes += node_totals
    log_z, joint = np.zeros(len(graph.node_ptr) - 1), np.empty(n_states * n_states)
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            log_z[example] += log_nodes[node]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            table, log_edge = graph.edge_table[edge], edge_totals[edge]
            if is_safe[edge]:
                log_edge += table_max[table] + log_ends[2 * edge] + log_ends[2 * edge + 1]
            else:
                log_edge = _log_total(theta.tables, table, cavities, edge, joint)
                for x in range(n_states):
                    for z in range(n_states):
                        add_to_entry(tables, table, x, z, joint[x * n_states + z])
            log_z[example] += log_edge - log_nodes[graph.edges[edge, 0]] - log_nodes[graph.edges[edge, 1]]
    return log_z, tables


@inlined_kernel
def _table_entry(theta, table, side, x_target, x_source):
    """Look up theta of a pair; the target of a message is the first (side 0) or second end."""
    if side == 0:
        return entry(theta.tables, table, x_target, x_source)
    return entry(theta.tables, table, x_source, x_target)


@kernel
def choose_states(graph, theta, messages, order):
    """Choose states in order, each the best given those chosen before: on a forest, a maximiser.

    Nodes that are not in `order` get -1.
    """
    states = np.full(len(theta.unary), -1)
    scores = np.empty(theta.unary.shape[1])
    for node in order:
        for x in range(len(scores)):
            scores[x] = theta.unary[node, x]
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            neighbour = graph.edges[message >> 1, 1 - (message & 1)]
            for x in range(len(scores)):
                if states[neighbour] >= 0:
                    table = graph.edge_table[message >> 1]
                    scores[x] += _table_entry(theta, table, message & 1, x, states[neighbour])
                else:
                    scores[x] += messages[message, x]
        states[node] = np.argmax(scores)
    return states


# The dual bound: the log-partition functions of trees, summed by their weights.


@inlined_kernel
def _log_sum(values, maximise):
    """Compute the log-sum-exp, leaving the softmax, or the maximum."""
    return values.max() if maximise else softmax(values)


@kernel
def _log_inward(graph, theta, rho, messages, cavities, inward, maximise, shares, best):
    """Compute log c of an edge, by how much its inward message falls short of the update of its source.

    ``c m(x_i) >= sum_xj exp(theta(x_i, x_j) / rho) b_j(x_j) / m_outward(x_j)`` for all x_i that are not
    forbidden, with equality once a pass has sent m. Leaves the softmax over x_j at the x_i where the bound is
    tightest in `best`, and also returns this x_i.
    """
    edge, side = inward >> 1, inward & 1
    node, cavity = graph.edges[edge, side], cavities[inward ^ 1]
    largest, tightest = -np.inf, 0
    for x in range(len(cavity)):
        if messages[inward, x] > -np.inf and theta.unary[node, x] > -np.inf:
            for z in range(len(cavity)):
                shares[z] = _table_entry(theta, graph.edge_table[edge], side, x, z) / rho[edge] + cavity[z]
            value = _log_sum(shares, maximise) - messages[inward, x]
            if value > largest:
                largest, tightest = value, x
                best[:] = shares
    return largest, tightest


@kernel
def _end_weights(graph, rho, inward):
    """Compute the weight per node of the trees that start from it or consist of it alone."""
    weights = np.ones(len(graph.node_order))
    for edge in range(len(inward)):
        weights[graph.edges[edge, 1 - (inward[edge] & 1)]] -= rho[edge]
    return weights


@kernel
def read_dual(graph, theta, rho, messages, inward, maximise):
    """Sum the log-partition functions of trees, or their maxima, by weight: an upper bound of the true one.

    Any messages reparametrise theta: with ``b_i = e^theta_i prod_d m_d^rho_d``, node i has
    ``log b_i - log m_d - ...`` in a tree from whose edges the messages m_d arrive. Eliminating nodes along
    `inward` leaves a factor c_e per edge, and ``sum_x b_i(x)`` at the node i from which a tree starts.
    """
    n_states = theta.unary.shape[1]
    log_z, weights = np.zeros(len(graph.node_ptr) - 1), _end_weights(graph, rho, inward)
    products, cavities = node_products(graph, theta, rho, messages), cavities_of(graph, theta, rho, messages)
    shares, best = np.empty(n_states), np.empty(n_states)
    for example in range(len(log_z)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            log_c, _ = _log_inward(
                graph, theta, rho, messages, cavities, inward[edge], maximise, shares, best
            )
            log_z[example] += rho[edge] * log_c
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            log_z[example] += weights[node] * _log_sum(products[node], maximise)
    return log_z


@kernel
def read_dual_vjp(graph, theta, rho, messages, inward, d_log_z, d_messages, d_theta):
    """Add the derivatives of `read_dual` to those of messages and theta."""
    weights, n_states = _end_weights(graph, rho, inward), theta.unary.shape[1]
    products, cavities = node_products(graph, theta, rho, messages), cavities_of(graph, theta, rho, messages)
    d_cavities, direct = np.zeros_like(messages), np.zeros_like(messages)
    shares, best = np.empty(n_states), np.empty(n_states)
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            towards, side, table = inward[edge], inward[edge] & 1, graph.edge_table[edge]
            _, x = _log_inward(graph, theta, rho, messages, cavities, towards, False, shares, best)
            direct[towards, x] = -(d_z * rho[edge])
            for z in range(n_states):
                i, j = (x, z) if side == 0 else (z, x)
                add_to_entry(d_theta.tables, table, i, j, d_z * best[z])
                d_cavities[towards ^ 1, z] = best[z] * (d_z * rho[edge])
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            softmax(products[node])
            for x in range(n_states):
                products[node, x] *= d_z * weights[node]
    cavities_vjp(graph, rho, d_cavities, direct, d_messages, d_theta.unary)
    node_products_vjp(graph, rho, products, d_messages, d_theta.unary)
