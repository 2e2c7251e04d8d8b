"""Messages along monotonic chains: where they maximise, the best answer on the way is kept, and the bound."""

import numpy as np

from skcrf.graph import score, sum_by_example
from skcrf.inference._pairwise.engine import PairwiseEngine
from skcrf.inference._pairwise.forests import breadth_first
from skcrf.inference._pairwise.readout import decode, read_dual

# A bound is reached if what was found is as high but for the last digits of what was summed.
_REACHED = 1e-14


class ChainEngine(PairwiseEngine):
    """Messages along monotonic chains.

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
        if plan.maximise:
            # Along rows what is chosen before is near by, and elsewhere along a search from the first node.
            self.orders = np.arange(self.graph.n_nodes), breadth_first(self.graph)[0]
            self.best, self.value = None, np.full(self.graph.n_examples, -np.inf)
            self.bound = np.full(self.graph.n_examples, np.inf)
            self.digits = _REACHED * _sizes(self.graph, theta)
            self._decode(self.initial_state())

    def step(self, messages, active):
        change = super().step(messages, active)
        if not self.maximise:
            return change
        self._decode(messages)
        # Where the bound is reached there is nothing to be found any more, whatever messages do.
        proven = self.bound - self.value <= self.digits  # never by what is impossible, which is -inf
        return np.where(proven, 0.0, change)

    def decode(self, state):
        return self.best

    def _decode(self, state):
        """Choose configurations by messages; keep those that are better, and the bound if it is lower."""
        bound = read_dual(self.graph, self.theta, self.rho, self.messages(state), self.inward, True)
        weighted = self.weighted(state)
        for order in self.orders:
            x = decode(self.graph, self.theta, weighted, order)
            value = score(self.graph, self.theta, x)
            better = (value > self.value)[self.graph.node_example]
            self.best = x if self.best is None else np.where(better, x, self.best)
            self.value = np.maximum(value, self.value)
        # What was found is a bound from below, and rounding may have put the other under it.
        self.bound = np.maximum(np.minimum(bound, self.bound), self.value)


def _sizes(graph, theta):
    """Tell how large the numbers are that make a score: the sum of the largest of each node and edge."""
    of_nodes, of_tables = (
        np.abs(np.where(part > -np.inf, part, 0.0)).max(axis=axes, initial=0.0)
        for part, axes in ((theta.unary, 1), (theta.tables, (1, 2)))
    )
    of_edges = of_tables[graph.edge_table]
    return sum_by_example(of_nodes, graph.node_example, graph) + sum_by_example(
        of_edges, graph.edge_example, graph
    )
