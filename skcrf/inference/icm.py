"""Maximisation by iterated conditional modes."""

from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import kernel
from skcrf.graph import score
from skcrf.inference._map_solver import MAPSolver, Solution
from skcrf.inference._random import (
    conditional_arrays,
    conditional_scores,
    random_streams,
    sample_independent,
)


class ICM(MAPSolver):
    """Iterated conditional modes: every node takes its best state given its neighbours, until none changes.

    The score never decreases, and the result is a local maximum: no change of a single node increases it. The
    first search starts from the best states of the unary potentials, others from states sampled from them.

    Parameters
    ----------
    n_restarts : int, default=0
        Number of further searches; the best result is returned.
    max_sweeps : int, default=100
        Maximum number of sweeps over all nodes per search.
    random_state : int, RandomState instance or None, default=0
        Seed of the restarts. All examples of a batch have equal random streams of their own, so that results
        do not depend on the other examples.

    See Also
    --------
    GraphCut : Changes many nodes at once.

    Notes
    -----
    Besag, "On the statistical analysis of dirty pictures", 1986.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, lattice
    >>> from skcrf.inference import ICM
    >>> unary = np.array([[0.0, 1.0], [0.0, 2.0], [0.5, 0.0], [0.0, 0.5]])
    >>> beliefs = ICM().forward(lattice(2, 2), Potentials(unary, np.stack([np.eye(2), np.eye(2)])))
    >>> beliefs.mu.argmax(axis=1), beliefs.log_z
    (array([1, 1, 1, 1]), array([7.5]))
    """

    _parameter_constraints = {
        "n_restarts": [Interval(Integral, 0, None, closed="left")],
        "max_sweeps": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_restarts=0, max_sweeps=100, random_state=0):
        self.n_restarts = n_restarts
        self.max_sweeps = max_sweeps
        self.random_state = random_state

    def _solve(self, graph, theta):
        x = theta.unary.argmax(axis=1)
        all_examples = np.ones(graph.n_examples, dtype=bool)
        n_iter, converged = coordinate_ascent(graph, theta, all_examples, self.max_sweeps, x)
        streams = np.tile(random_streams(self.random_state, 1), (graph.n_examples, 1))
        for _ in range(self.n_restarts):
            other = sample_independent(graph, theta, streams)
            n_more, other_converged = coordinate_ascent(graph, theta, all_examples, self.max_sweeps, other)
            is_better = score(graph, theta, other) > score(graph, theta, x)
            x = np.where(is_better[graph.node_example], other, x)
            n_iter, converged = n_iter + n_more, np.where(is_better, other_converged, converged)
        return Solution(x, n_iter, converged)


@kernel
def coordinate_ascent(graph, theta, active, max_sweeps, x):
    """Change the states of single nodes of the active examples as long as that increases the score.

    Returns the number of sweeps, and whether the last one changed nothing.
    """
    n_examples = len(graph.node_ptr) - 1
    n_iter, converged = np.zeros(n_examples, np.int64), ~active
    scores, arrays = np.empty(theta.unary.shape[1]), conditional_arrays(graph, theta)
    for example in range(n_examples):
        first, end = graph.node_ptr[example], graph.node_ptr[example + 1]
        while n_iter[example] < max_sweeps and not converged[example]:
            n_iter[example] += 1
            converged[example] = True
            for node in graph.node_order[first:end]:
                conditional_scores(arrays, node, x, scores)
                best = np.argmax(scores)
                if scores[best] > scores[x[node]]:
                    x[node], converged[example] = best, False
    return n_iter, converged
