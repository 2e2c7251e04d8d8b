"""Sum- and max-product messages on any pairwise graph, in the log domain: D13 Eq 18 and Algorithm 3.

Sweeps keep messages as rows in the order of arrival, see `Route`; what is read from them for beliefs of edges
and for log_z is numbered as `Graph` says. Every message has a maximum of 0.

Inside of loops there are neither views nor fields of tuples: each would be counted as a reference.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, log_normalise, vector_exp, vector_kernel, vector_log
from skcrf.graph import Potentials
from skcrf.inference._route import RUN, route_of

# Exponentials below 1e-304 are lost. Where a sum is not much larger, it is done again with care.
_SMALL = 1e-200


@inlined_kernel
def _arrive(unary, weights, messages, node, first, last, own, out, at):
    """log e^theta(x_j) prod_d m_d(x_j)^rho_d / m_own(x_j) for node j, up to a constant; own = -1 for none.

    The maximum is 0, but all values are -inf where no state is possible.
    """
    n_states = unary.shape[1]
    for x in range(n_states):
        out[at, x] = unary[node, x]
    for q in range(first, last):
        weight = weights[q] - (q == own)
        # What is impossible stays so, also where the exponent rho - 1 is negative; not where it is 0.
        impossible = -np.inf if weight != 0 else 0.0
        for x in range(n_states):
            value = messages[q, x]
            out[at, x] += weight * value if value > -np.inf else impossible
    top = out[at, 0]
    for x in range(1, n_states):
        top = max(top, out[at, x])
    if top > -np.inf:
        for x in range(n_states):
            out[at, x] -= top


@vector_kernel
def _exponentials(values, n, out):
    for i in range(n):
        out[i] = vector_exp(values[i])


@vector_kernel
def _logarithms(values, n):
    for i in range(n):
        values[i] = vector_log(values[i])


@inlined_kernel
def _sum(factors, factor, side, scaled, sums, at):
    """Sum over the states of the source; returns the least sum."""
    least = np.inf
    for x_target in range(sums.shape[1]):
        total = 0.0
        if side == 0:
            for x in range(sums.shape[1]):
                total += factors[factor, x_target, x] * scaled[at, x]
        else:
            for x in range(sums.shape[1]):
                total += factors[factor, x, x_target] * scaled[at, x]
        sums[at, x_target] = total
        least = min(least, total)
    return least


@kernel
def _sum_with_care(tables, table, side, power, maximise, cavity, at, share, out):
    """Compute one message for any potentials, and the share that each state of the source has in it."""
    n_states = len(share)
    for x_target in range(n_states):
        best = 0
        for x in range(n_states):
            theta = tables[table, x_target, x] if side == 0 else tables[table, x, x_target]
            share[x_target, x] = power * theta + cavity[at, x]
            if share[x_target, x] > share[x_target, best]:
                best = x
        top = share[x_target, best]
        out[at, x_target] = top
        if not maximise and top > -np.inf:
            total = 1.0
            for x in range(n_states):
                if x == best:
                    share[x_target, x] = 1.0
                else:
                    share[x_target, x] = np.exp(share[x_target, x] - top)
                    total += share[x_target, x]
            out[at, x_target] += np.log(total)
            for x in range(n_states):
                share[x_target, x] /= total
        elif not maximise:
            share[x_target] = 0.0


@inlined_kernel
def _whole(n_rows, n_states):
    """Count the numbers in some rows, up to the next whole vector."""
    return 4 * ((n_rows * n_states + 3) // 4)


@vector_kernel
def _sweep(route, graph, theta, rho, damping, maximise, measure, messages, active):
    """Send every message of the active examples once, run by run.

    Returns the largest change of a message's exponential in each example, if asked to `measure` it.
    """
    steps, run_ptr, example_ptr, weights, factors, edge_factor = route
    unary, tables = theta
    edge_table, n_states = graph.edge_table, unary.shape[1]
    rows = np.ones((3, RUN + 3, n_states))
    cavity, scaled, new = rows[0], rows[1], rows[2]
    cavity_flat, scaled_flat, new_flat = cavity.reshape(-1), scaled.reshape(-1), new.reshape(-1)
    share, safe = np.empty((n_states, n_states)), np.zeros(RUN, np.bool_)
    change = np.zeros(len(active))
    for example in range(len(active)):
        if not active[example]:
            continue
        largest = 0.0
        for run in range(example_ptr[example], example_ptr[example + 1]):
            start, n_sent = run_ptr[run], run_ptr[run + 1] - run_ptr[run]
            for at in range(n_sent):
                p = start + at
                node, first, last, own = steps[p, 0], steps[p, 1], steps[p, 2], steps[p, 3]
                _arrive(unary, weights, messages, node, first, last, own, cavity, at)
            if not maximise:
                _exponentials(cavity_flat, _whole(n_sent, n_states), scaled_flat)
                for at in range(n_sent):
                    factor = edge_factor[steps[start + at, 5]]
                    least = (
                        _sum(factors, factor, steps[start + at, 6], scaled, new, at) if factor >= 0 else 0.0
                    )
                    safe[at] = least > _SMALL
                _logarithms(new_flat, _whole(n_sent, n_states))
            for at in range(n_sent):
                position, edge, side = steps[start + at, 4], steps[start + at, 5], steps[start + at, 6]
                if not safe[at]:
                    table, power = edge_table[edge], 1.0 / rho[edge]
                    _sum_with_care(tables, table, side, power, maximise, cavity, at, share, new)
                top = new[at, 0]
                for x in range(1, n_states):
                    top = max(top, new[at, x])
                for x in range(n_states):
                    value = new[at, x] - top
                    old = messages[position, x]
                    # Before damping, which makes the steps small, not the distance to the end. Exponentials
                    # of what is not positive differ by less, so that most need not be computed.
                    if measure and value != old and abs(value - old) > largest:
                        largest = max(largest, abs(np.exp(value) - np.exp(old)))
                    messages[position, x] = (1.0 - damping) * value + damping * old if damping > 0 else value
        change[example] = largest
    return change


@vector_kernel
def _sweep_vjp(route, graph, theta, rho, damping, before, messages, active, d_messages, d_theta):
    """Undo a sweep run by run, last first; `messages` ends as `before` (D13 Alg 3, step 8)."""
    steps, run_ptr, example_ptr, weights, factors, edge_factor = route
    (unary, tables), (d_unary, d_tables) = theta, d_theta
    edge_table, n_states = graph.edge_table, unary.shape[1]
    rows = np.ones((3, RUN + 3, n_states))
    cavity, scaled, sums = rows[0], rows[1], rows[2]
    cavity_flat, scaled_flat = cavity.reshape(-1), scaled.reshape(-1)
    share, d_new, d_cavity = np.empty((n_states, n_states)), np.empty(n_states), np.empty(n_states)
    for example in range(len(active)):
        if not active[example]:
            continue
        for run in range(example_ptr[example + 1] - 1, example_ptr[example] - 1, -1):
            start, n_sent = run_ptr[run], run_ptr[run + 1] - run_ptr[run]
            for at in range(n_sent):
                for x in range(n_states):
                    messages[steps[start + at, 4], x] = before[steps[start + at, 4], x]
            for at in range(n_sent):
                p = start + at
                node, first, last, own = steps[p, 0], steps[p, 1], steps[p, 2], steps[p, 3]
                _arrive(unary, weights, messages, node, first, last, own, cavity, at)
            _exponentials(cavity_flat, _whole(n_sent, n_states), scaled_flat)
            for at in range(n_sent):
                p = start + at
                node, first, last, own = steps[p, 0], steps[p, 1], steps[p, 2], steps[p, 3]
                position, edge, side = steps[p, 4], steps[p, 5], steps[p, 6]
                table, factor, power = edge_table[edge], edge_factor[edge], 1.0 / rho[edge]
                least = _sum(factors, factor, side, scaled, sums, at) if factor >= 0 else 0.0
                if least > _SMALL:
                    _share(factors, factor, side, scaled, sums, at, share)
                else:
                    _sum_with_care(tables, table, side, power, False, cavity, at, share, sums)
                # The derivative of subtracting the maximum. In exact arithmetic the sum is 0, but what
                # rounding leaves of it would grow from sweep to sweep.
                total, top = 0.0, 0
                for x in range(n_states):
                    total += d_messages[position, x]
                    top = x if sums[at, x] > sums[at, top] else top
                for x in range(n_states):
                    d_new[x] = (1.0 - damping) * (d_messages[position, x] - (total if x == top else 0.0))
                    d_messages[position, x] *= damping
                    d_cavity[x] = 0.0
                for x_target in range(n_states):
                    for x in range(n_states):
                        d_value = d_new[x_target] * share[x_target, x]
                        d_cavity[x] += d_value
                        if side == 0:
                            d_tables[table, x_target, x] += power * d_value
                        else:
                            d_tables[table, x, x_target] += power * d_value
                for x in range(n_states):
                    d_unary[node, x] += d_cavity[x]
                for q in range(first, last):
                    weight = weights[q] - (q == own)
                    for x in range(n_states):
                        d_messages[q, x] += weight * d_cavity[x]


@inlined_kernel
def _share(factors, factor, side, scaled, sums, at, share):
    """The share that each state of the source has in a message, as `_sum_with_care` has it."""
    for x_target in range(len(share)):
        scale = 1.0 / sums[at, x_target]
        if side == 0:
            for x in range(len(share)):
                share[x_target, x] = factors[factor, x_target, x] * scaled[at, x] * scale
        else:
            for x in range(len(share)):
                share[x_target, x] = factors[factor, x, x_target] * scaled[at, x] * scale


@inlined_kernel
def _table_entry(theta, table, side, x_target, x_source):
    """theta of a pair, where the target of a message is the first (side 0) or second end."""
    if side == 0:
        return theta.tables[table, x_target, x_source]
    return theta.tables[table, x_source, x_target]


@inlined_kernel
def _cavity(graph, theta, rho, messages, node, edge, out):
    """log e^theta(x_j) prod_d m_d(x_j)^rho_d / m_edge(x_j), for node j; edge = -1 divides by none."""
    for x in range(len(out)):
        out[x] = theta.unary[node, x]
    for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
        message = graph.incident[p]
        weight = rho[message >> 1] - (message >> 1 == edge)
        if weight != 0:
            for x in range(len(out)):
                value = messages[message, x]
                # What is impossible stays so, also where the exponent rho - 1 is negative.
                out[x] += weight * value if value > -np.inf else value


@inlined_kernel
def _cavity_vjp(graph, rho, node, edge, d_out, d_messages, d_theta):
    for x in range(len(d_out)):
        d_theta.unary[node, x] += d_out[x]
    for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
        message = graph.incident[p]
        weight = rho[message >> 1] - (message >> 1 == edge)
        for x in range(len(d_out)):
            d_messages[message, x] += weight * d_out[x]


@kernel
def _edge_belief(graph, theta, rho, messages, edge, cavities, out):
    """Log-marginal of an edge, flattened into `out`; uses `cavities` (2, n_states) as scratch."""
    n_states = theta.unary.shape[1]
    for side in range(2):
        _cavity(graph, theta, rho, messages, graph.edges[edge, side], edge, cavities[side])
    table = graph.edge_table[edge]
    for x in range(n_states):
        for z in range(n_states):
            out[x * n_states + z] = theta.tables[table, x, z] / rho[edge] + cavities[0, x] + cavities[1, z]
    log_normalise(out)


@kernel
def read_nodes(graph, theta, rho, messages):
    """Logarithms of the marginals of nodes, Eq 17."""
    log_mu = np.empty_like(theta.unary)
    for node in range(len(log_mu)):
        _cavity(graph, theta, rho, messages, node, -1, log_mu[node])
        log_normalise(log_mu[node])
    return log_mu


@kernel
def read_edges(graph, theta, rho, messages, log_mu, edge_mu):
    """log_z = theta . mu + H(mu), Eq 16, and the marginals of edges; `edge_mu` may have no rows."""
    n_states = theta.unary.shape[1]
    log_z = np.zeros(len(graph.node_ptr) - 1)
    cavities, belief = np.empty((2, n_states)), np.empty(n_states * n_states)
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(n_states):
                if log_mu[node, x] > -np.inf:
                    log_z[example] += np.exp(log_mu[node, x]) * (theta.unary[node, x] - log_mu[node, x])
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            _edge_belief(graph, theta, rho, messages, edge, cavities, belief)
            for x in range(n_states):
                for z in range(n_states):
                    value = belief[x * n_states + z]
                    mass = np.exp(value)
                    if mass > 0:
                        information = value - log_mu[i, x] - log_mu[j, z]
                        log_z[example] += mass * (theta.tables[table, x, z] - rho[edge] * information)
                    if len(edge_mu):
                        edge_mu[edge, x, z] = mass
    return log_z


@kernel
def read_vjp(graph, theta, rho, messages, log_mu, d_mu, d_edge_mu, d_log_z, through):
    """Pull derivatives of marginals and log_z back to messages and theta (D13 Alg 3, steps 6 and 7).

    `through` says whether log_z depends on theta by way of the marginals too: not at a fixed point,
    where they are stationary (Eq 9). `d_edge_mu` may have no rows.
    """
    n_states = theta.unary.shape[1]
    d_messages = np.zeros_like(messages)
    d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    d_node = d_mu * np.exp(log_mu)  # with respect to log_mu
    cavities, d_cavities = np.empty((2, n_states)), np.empty((2, n_states))
    belief, d_belief = np.empty(n_states * n_states), np.empty(n_states * n_states)
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            if d_z == 0 and len(d_edge_mu) == 0:
                continue
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            _edge_belief(graph, theta, rho, messages, edge, cavities, belief)
            total = 0.0
            for x in range(n_states):
                for z in range(n_states):
                    at, mass = x * n_states + z, np.exp(belief[x * n_states + z])
                    d_belief[at] = 0.0
                    if mass == 0:
                        continue
                    d_theta.tables[table, x, z] += d_z * mass
                    if len(d_edge_mu):
                        d_belief[at] += d_edge_mu[edge, x, z] * mass
                    if through and d_z != 0:
                        information = belief[at] - log_mu[i, x] - log_mu[j, z]
                        gain = theta.tables[table, x, z] - rho[edge] * (information + 1.0)
                        d_belief[at] += d_z * mass * gain
                        d_node[i, x] += d_z * rho[edge] * mass
                        d_node[j, z] += d_z * rho[edge] * mass
                    total += d_belief[at]
            d_cavities[:] = 0.0
            for x in range(n_states):
                for z in range(n_states):
                    at = x * n_states + z
                    d_joint = d_belief[at] - total * np.exp(belief[at])
                    d_theta.tables[table, x, z] += d_joint / rho[edge]
                    d_cavities[0, x] += d_joint
                    d_cavities[1, z] += d_joint
            for side in range(2):
                _cavity_vjp(graph, rho, graph.edges[edge, side], edge, d_cavities[side], d_messages, d_theta)
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            for x in range(n_states):
                mass = np.exp(log_mu[node, x])
                if mass > 0:
                    d_theta.unary[node, x] += d_z * mass
                    if through:
                        d_node[node, x] += d_z * mass * (theta.unary[node, x] - log_mu[node, x] - 1.0)
            total = d_node[node].sum()
            for x in range(n_states):
                d_node[node, x] -= total * np.exp(log_mu[node, x])
            _cavity_vjp(graph, rho, node, -1, d_node[node], d_messages, d_theta)
    return d_messages, d_theta


@kernel
def breadth_first(graph):
    """Visit the nodes of each example breadth first.

    Returns the nodes in order, the message that brought the visit to each node (-1 at a root), and
    for each example an edge that closes a cycle, -1 if it is a forest.
    """
    n_nodes = len(graph.node_order)
    order, arrival = np.empty(n_nodes, np.int64), np.full(n_nodes, -2)
    closing = np.full(len(graph.node_ptr) - 1, -1)
    for example in range(len(graph.node_ptr) - 1):
        first, last = graph.node_ptr[example], graph.node_ptr[example]
        for root in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            if arrival[root] == -2:
                arrival[root] = -1
                order[last] = root
                last += 1
            while first < last:
                node = order[first]
                first += 1
                for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
                    onward = graph.incident[p] ^ 1
                    neighbour = graph.edges[onward >> 1, onward & 1]
                    if arrival[neighbour] == -2:
                        arrival[neighbour] = onward
                        order[last] = neighbour
                        last += 1
                    elif onward >> 1 != arrival[node] >> 1:
                        closing[example] = onward >> 1
    return order, arrival, closing


@kernel
def decode(graph, theta, messages, order):
    """Choose states in order, each the best given those chosen before: on a forest, a maximiser."""
    states = np.full(len(order), -1)
    best = np.empty(theta.unary.shape[1])
    for node in order:
        for x in range(len(best)):
            best[x] = theta.unary[node, x]
        for p in range(graph.incident_ptr[node], graph.incident_ptr[node + 1]):
            message = graph.incident[p]
            neighbour = graph.edges[message >> 1, 1 - (message & 1)]
            for x in range(len(best)):
                if states[neighbour] >= 0:
                    table = graph.edge_table[message >> 1]
                    best[x] += _table_entry(theta, table, message & 1, x, states[neighbour])
                else:
                    best[x] += messages[message, x]
        states[node] = np.argmax(best)
    return states


@vector_kernel
def _marginals(graph, theta, weights, messages):
    """Marginals of nodes, Eq 17, nan where no state is possible."""
    unary, incident_ptr = theta.unary, graph.incident_ptr
    cavity, mu = np.empty_like(unary), np.empty_like(unary)
    for node in range(len(mu)):
        first, last = incident_ptr[node], incident_ptr[node + 1]
        _arrive(unary, weights, messages, node, first, last, -1, cavity, node)
    _exponentials(cavity.reshape(-1), cavity.size, mu.reshape(-1))
    for node in range(len(mu)):
        total = 0.0
        for x in range(mu.shape[1]):
            total += mu[node, x]
        scale = 1.0 / total if total > 0 else np.nan
        for x in range(mu.shape[1]):
            mu[node, x] *= scale
    return mu


@vector_kernel
def _marginals_vjp(graph, weights, mu, d_mu, d_messages, d_theta):
    incident_ptr, d_unary, d_belief = graph.incident_ptr, d_theta.unary, np.empty(mu.shape[1])
    for node in range(len(mu)):
        mean = 0.0
        for x in range(mu.shape[1]):
            mean += mu[node, x] * d_mu[node, x]
        for x in range(mu.shape[1]):
            d_belief[x] = mu[node, x] * (d_mu[node, x] - mean)
            d_unary[node, x] += d_belief[x]
        for q in range(incident_ptr[node], incident_ptr[node + 1]):
            for x in range(mu.shape[1]):
                d_messages[q, x] += weights[q] * d_belief[x]


class PairwiseEngine:
    """Messages on any graph.

    Parameters
    ----------
    plan : Plan
        How to pass messages.
    theta : Potentials
        Potentials.
    maximise : bool
        Whether messages maximise instead of summing.
    """

    def __init__(self, plan, theta, maximise):
        self.graph, self.rho, self.damping = plan.graph, plan.rho, float(plan.damping)
        self.measure = plan.tol > 0
        self.theta, self.maximise = theta, maximise
        self.row_ptr = 2 * plan.graph.edge_ptr
        self.route = route_of(plan.graph, theta, plan.rho, maximise=maximise)

    def start(self):
        return np.zeros((2 * self.graph.n_edges, self.theta.unary.shape[1]))

    def step(self, messages, active):
        how = (self.rho, self.damping, self.maximise, self.measure)
        return _sweep(self.route, self.graph, self.theta, *how, messages, active)

    def step_vjp(self, d_theta, before, after, active, d_messages):
        how = (self.rho, self.damping)
        states = (before, after.copy(), active, d_messages)
        _sweep_vjp(self.route, self.graph, self.theta, *how, *states, d_theta)

    def messages(self, state):
        messages = np.empty_like(state)
        messages[self.graph.incident] = state
        return messages

    def enter(self, d_messages):
        return d_messages[self.graph.incident]

    def marginals(self, messages):
        return _marginals(self.graph, self.theta, self.route.weights, messages)

    def marginals_vjp(self, d_theta, messages, mu, d_mu):
        d_messages = np.zeros_like(messages)
        _marginals_vjp(self.graph, self.route.weights, mu, d_mu, d_messages, d_theta)
        return d_messages

    def new_adjoint(self):
        return Potentials(np.zeros_like(self.theta.unary), np.zeros_like(self.theta.tables))

    def leave(self, d_theta):
        return d_theta
