"""What messages mean once they have crossed a forest: no exponential for each pair of states of each edge."""

import numpy as np

from skcrf._numerics import kernel
from skcrf.inference._pairwise.engine import PairwiseEngine
from skcrf.inference._pairwise.readout import cavity_of, log_sum

# Exponentials below 1e-304 are lost. Where a sum is not much larger, it is done again with care.
_SMALL = 1e-200


@kernel
def _read_forest(graph, theta, tops, factors, edge_factor, messages):
    """log_z, and the marginals of edges, summed over those that share a table.

    ``log_z = sum_i log z_i + sum_ij (log z_ij - log z_i - log z_j)``, with z the sums that normalise the
    beliefs of nodes and edges; the scale of the messages cancels. `tops` are the largest entries of tables.
    """
    n_states, rho = theta.unary.shape[1], np.ones(len(graph.edges))
    log_z, log_nodes = np.zeros(len(graph.node_ptr) - 1), np.empty(len(theta.unary))
    tables = np.zeros_like(theta.tables)
    row, ends, joint = np.empty(n_states), np.empty((2, n_states)), np.empty(n_states * n_states)
    for example in range(len(log_z)):
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            cavity_of(graph, theta, rho, messages, node, -1, row)
            log_nodes[node] = log_sum(row)
            log_z[example] += log_nodes[node]
        for edge in range(graph.edge_ptr[example], graph.edge_ptr[example + 1]):
            i, j, table = graph.edges[edge, 0], graph.edges[edge, 1], graph.edge_table[edge]
            factor, log_edge = factors[edge_factor[edge]], tops[table]
            for side in range(2):
                cavity_of(graph, theta, rho, messages, graph.edges[edge, side], edge, ends[side])
                top = ends[side].max()
                log_edge += top
                for x in range(n_states):
                    ends[side, x] = np.exp(ends[side, x] - top)
            total = 0.0
            for x in range(n_states):
                inner = 0.0
                for z in range(n_states):
                    inner += factor[x, z] * ends[1, z]
                total += ends[0, x] * inner
            if total > _SMALL:
                log_edge += np.log(total)
                for x in range(n_states):
                    share = ends[0, x] / total
                    for z in range(n_states):
                        tables[table, x, z] += share * factor[x, z] * ends[1, z]
            else:
                for side in range(2):
                    cavity_of(graph, theta, rho, messages, graph.edges[edge, side], edge, ends[side])
                for x in range(n_states):
                    for z in range(n_states):
                        joint[x * n_states + z] = theta.tables[table, x, z] + ends[0, x] + ends[1, z]
                log_edge = log_sum(joint)
                for x in range(n_states):
                    for z in range(n_states):
                        tables[table, x, z] += joint[x * n_states + z]
            log_z[example] += log_edge - log_nodes[i] - log_nodes[j]
    return log_z, tables


class ForestEngine(PairwiseEngine):
    """Messages on forests, which are exact after one sweep.

    Parameters
    ----------
    plan : Plan
        How to pass messages.
    theta : Potentials
        Potentials.
    options : int, default=1
        As for `Engine`.
    """

    _known = None, None  # the state that was read last, and what it says

    def log_z(self, state):
        return self._read_all(state)[0]

    def expected_tables(self, state):
        return self._read_all(state)[1].copy()

    def _read_all(self, state):
        if self._known[0] is not state:
            tops = self.theta.tables.max(axis=(1, 2), initial=-np.inf)
            factors = self.route.factors, self.route.edge_factor
            self._known = state, _read_forest(self.graph, self.theta, tops, *factors, self.messages(state))
        return self._known[1]
