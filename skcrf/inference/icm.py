"""Maximisation by iterated conditional modes."""

from numbers import Integral

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf._numerics import kernel
from skcrf.graph import score
from skcrf.inference._map_solver import Found, Maximiser
from skcrf.inference._random import arrays_of, draw_states, local_scores, streams


class ICM(Maximiser):
    """Iterated conditional modes: every node takes its best state given its neighbours, until none changes.

    The score never falls, and the answer is a local maximum: no change of a single node raises it. The first
    search starts from the best states of the unary potentials, others from states drawn by them.

    Parameters
    ----------
    n_restarts : int, default=0
        Further searches; the best answer is kept.
    max_sweeps : int, default=100
        Rounds over all nodes in a search, at most.
    random_state : int, RandomState instance or None, default=0
        Of further searches. Every example of a batch draws from a stream of its own that starts alike, so
        that its answer does not depend on the others.

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

    def _find(self, graph, theta):
        x = theta.unary.argmax(axis=1)
        every = np.ones(graph.n_examples, dtype=bool)
        n_iter, converged = climb(graph, theta, every, self.max_sweeps, x)
        starts = np.tile(streams(self.random_state, 1), (graph.n_examples, 1))
        for _ in range(self.n_restarts):
            other = draw_states(graph, theta, starts)
            more, reached = climb(graph, theta, every, self.max_sweeps, other)
            better = score(graph, theta, other) > score(graph, theta, x)
            x = np.where(better[graph.node_example], other, x)
            n_iter, converged = n_iter + more, np.where(better, reached, converged)
        return Found(x, n_iter, converged)


@kernel
def climb(graph, theta, wanted, max_sweeps, x):
    """Change the states of single nodes as long as that raises the score, in the examples where it is wanted.

    Returns sweeps, and whether nothing more is to be done.
    """
    n_examples = len(graph.node_ptr) - 1
    n_iter, converged = np.zeros(n_examples, np.int64), ~wanted
    scores, arrays = np.empty(theta.unary.shape[1]), arrays_of(graph, theta)
    for example in range(n_examples):
        first, end = graph.node_ptr[example], graph.node_ptr[example + 1]
        while n_iter[example] < max_sweeps and not converged[example]:
            n_iter[example] += 1
            converged[example] = True
            for node in graph.node_order[first:end]:
                local_scores(arrays, node, x, scores)
                best = np.argmax(scores)
                if scores[best] > scores[x[node]]:
                    x[node], converged[example] = best, False
    return n_iter, converged
