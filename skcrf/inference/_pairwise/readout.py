"""How beliefs are read from sum- and max-product messages on a pairwise graph.

Messages are read as rows of an array (2 * n_edges, n_states) of logarithms, with a maximum of 0 and numbered
as `Graph` says.
"""

from abc import abstractmethod

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, log_normalise
from skcrf.graph import Potentials
from skcrf.inference._engine import Engine
from skcrf.inference._pairwise.forests import breadth_first


@inlined_kernel
def cavity_of(graph, theta, rho, messages, node, edge, out):
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
        cavity_of(graph, theta, rho, messages, graph.edges[edge, side], edge, cavities[side])
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
        cavity_of(graph, theta, rho, messages, node, -1, log_mu[node])
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
def read_tables(graph, theta, rho, messages):
    """Marginals of edges, summed over those that share a table."""
    n_states = theta.unary.shape[1]
    tables = np.zeros_like(theta.tables)
    cavities, belief = np.empty((2, n_states)), np.empty(n_states * n_states)
    for edge in range(len(graph.edges)):
        _edge_belief(graph, theta, rho, messages, edge, cavities, belief)
        for x in range(n_states):
            for z in range(n_states):
                tables[graph.edge_table[edge], x, z] += np.exp(belief[x * n_states + z])
    return tables


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


@inlined_kernel
def _table_entry(theta, table, side, x_target, x_source):
    """theta of a pair, where the target of a message is the first (side 0) or second end."""
    if side == 0:
        return theta.tables[table, x_target, x_source]
    return theta.tables[table, x_source, x_target]


@kernel
def log_sum(values):
    """Turn values into their shares in the sum of their exponentials, and return the log of that sum."""
    top = values.max()
    if top == -np.inf:
        values[:] = 0.0
        return top
    total = 0.0
    for x in range(len(values)):
        values[x] = np.exp(values[x] - top)
        total += values[x]
    values /= total
    return top + np.log(total)


@inlined_kernel
def _log_total(values, maximise):
    """The log of the sum of exponentials, or the maximum; leaves the shares in a sum."""
    return values.max() if maximise else log_sum(values)


@kernel
def _log_inward(graph, theta, rho, messages, inward, maximise, cavity, shares, best):
    """log c of an edge: by how much its inward message falls short of what its source would send.

    ``c m(x_i) >= sum_xj exp(theta(x_i, x_j) / rho) b_j(x_j) / m_outward(x_j)`` for all x_i that are not
    forbidden, an equality once a pass has sent m. Leaves the shares of the x_j at the x_i where it is
    tightest in `best`, and returns that state too.
    """
    edge, side = inward >> 1, inward & 1
    node = graph.edges[edge, side]
    cavity_of(graph, theta, rho, messages, graph.edges[edge, 1 - side], edge, cavity)
    largest, tightest = -np.inf, 0
    for x in range(len(cavity)):
        if messages[inward, x] > -np.inf and theta.unary[node, x] > -np.inf:
            for z in range(len(cavity)):
                shares[z] = _table_entry(theta, graph.edge_table[edge], side, x, z) / rho[edge] + cavity[z]
            value = _log_total(shares, maximise) - messages[inward, x]
            if value > largest:
                largest, tightest = value, x
                best[:] = shares
    return largest, tightest


@kernel
def _end_weights(graph, rho, inward):
    """For each node, the weight of the trees that start from it or consist of it alone."""
    weights = np.ones(len(graph.node_order))
    for edge in range(len(inward)):
        weights[graph.edges[edge, 1 - (inward[edge] & 1)]] -= rho[edge]
    return weights


@kernel
def read_dual(graph, theta, rho, messages, inward, maximise):
    """Sum the log-partition functions of trees by their weights: an upper bound of the true one.

    Or their largest scores, where messages maximise: an upper bound of the best score.

    Any messages share theta among the trees: with ``b_i = e^theta_i prod_d m_d^rho_d``, node i has
    ``log b_i - log m_d - ...`` in a tree from whose edges the messages m_d arrive. Nodes are summed out along
    `inward`, which leaves a factor c_e an edge, and ``sum_x b_i(x)`` at the node i that a tree starts from.
    """
    n_states = theta.unary.shape[1]
    log_z, weights = np.zeros(len(graph.node_ptr) - 1), _end_weights(graph, rho, inward)
    rows = np.empty((3, n_states))
    for example in range(len(log_z)):
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            log_c, _ = _log_inward(
                graph, theta, rho, messages, inward[edge], maximise, rows[0], rows[1], rows[2]
            )
            log_z[example] += rho[edge] * log_c
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            cavity_of(graph, theta, rho, messages, node, -1, rows[0])
            log_z[example] += weights[node] * _log_total(rows[0], maximise)
    return log_z


@kernel
def read_dual_vjp(graph, theta, rho, messages, inward, d_log_z, d_messages, d_theta):
    """Pull the derivative of `read_dual` back to messages and theta; adds to both."""
    weights = _end_weights(graph, rho, inward)
    rows = np.empty((3, theta.unary.shape[1]))
    for example in range(len(d_log_z)):
        d_z = d_log_z[example]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            towards, side, table = inward[edge], inward[edge] & 1, graph.edge_table[edge]
            _, x = _log_inward(graph, theta, rho, messages, towards, False, rows[0], rows[1], rows[2])
            d_messages[towards, x] -= d_z * rho[edge]
            for z in range(rows.shape[1]):
                i, j = (x, z) if side == 0 else (z, x)
                d_theta.tables[table, i, j] += d_z * rows[2, z]
                rows[2, z] *= d_z * rho[edge]
            _cavity_vjp(graph, rho, graph.edges[edge, 1 - side], edge, rows[2], d_messages, d_theta)
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            cavity_of(graph, theta, rho, messages, node, -1, rows[0])
            log_sum(rows[0])
            rows[0] *= d_z * weights[node]
            _cavity_vjp(graph, rho, node, -1, rows[0], d_messages, d_theta)


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


class EdgeReader(Engine):
    """A part of the engines for pairwise graphs: what their messages mean.

    Parameters
    ----------
    plan : Plan
        How to pass messages.
    theta : Potentials
        Potentials.
    options : int, default=1
        As for `Engine`.
    """

    def __init__(self, plan, theta, options=1):
        super().__init__(plan, theta, options)
        self.inward = plan.inward

    @abstractmethod
    def messages(self, state):
        """Logarithms of the messages, as rows numbered as `Graph` says."""

    @abstractmethod
    def enter(self, d_messages):
        """The adjoint of the state that means an adjoint of such rows."""

    def edge_marginals(self, state):
        n_states = self.theta.unary.shape[1]
        return self._read(state, np.empty((self.graph.n_edges, n_states, n_states)))[1]

    def log_z(self, state):
        if self.inward is not None:
            return read_dual(self.graph, self.theta, self.rho, self.messages(state), self.inward, False)
        n_states = self.theta.unary.shape[1]
        return self._read(state, np.empty((0, n_states, n_states)))[0]

    def _read(self, state, edge_mu):
        problem = self.graph, self.theta, self.rho, self.messages(state)
        return read_edges(*problem, read_nodes(*problem), edge_mu), edge_mu

    def readout_vjp(self, state, d_mu, d_edge_mu, d_log_z, through):
        n_states = self.theta.unary.shape[1]
        problem = self.graph, self.theta, self.rho, self.messages(state)
        d_edge_mu = np.empty((0, n_states, n_states)) if d_edge_mu is None else d_edge_mu
        # At a fixed point both kinds of log_z are stationary, and have the marginals for a derivative.
        of_dual = self.inward is not None and through
        d_free = np.zeros_like(d_log_z) if of_dual else d_log_z
        d_messages, d_theta = read_vjp(*problem, read_nodes(*problem), d_mu, d_edge_mu, d_free, through)
        if of_dual:
            read_dual_vjp(*problem, self.inward, d_log_z, d_messages, d_theta)
        return self.enter(d_messages), d_theta

    def decode(self, state):
        """A configuration: on forests, a maximiser."""
        order, _, _ = breadth_first(self.graph)
        return decode(self.graph, self.theta, self.weighted(state), order)

    def weighted(self, state):
        """Messages by their edges' weights: a node has as much of a message as its edge counts."""
        return self.messages(state) * np.repeat(self.rho, 2)[:, None]
