"""Losses of the clique marginals, D13 section 4.2.3."""

from abc import abstractmethod

import numpy as np

from skcrf.graph import over_edges, sum_by_example
from skcrf.losses._base import BaseLoss
from skcrf.losses._factor_pieces import known_part
from skcrf.losses._pointwise import Smoothed, logistic, quadratic

# Numbers of marginals that are judged at a time: 2 MB, and a few times that for what is computed on the way.
_TOGETHER = 2**18


class CliqueLoss(BaseLoss):
    """A judge of the marginal of each clique: the edges or factors, and nodes that have none.

    A clique with hidden nodes is judged by its marginal over the others; what is all hidden does not count.
    """

    needs = frozenset({"mu"})
    tasks = frozenset({"sum"})

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta, edges=True)
        value, d_edge_mu = _JUDGES[graph.layout](self, graph, beliefs.edge_mu, y)
        total = sum_by_example(value, graph.edge_example, graph)
        alone = np.flatnonzero((np.diff(graph.incident_ptr) == 0) & (y >= 0))
        d_mu = np.zeros_like(beliefs.mu)
        value, d_mu[alone] = self._judge(beliefs.mu[alone], y[alone])
        total += sum_by_example(value, graph.node_example[alone], graph)
        return total, inference.backward(beliefs, d_mu=d_mu, d_edge_mu=d_edge_mu), beliefs.converged

    def _judge_factors(self, graph, factor_mu, y):
        """Judge every factor by its marginal over those of its nodes whose labels are known."""
        known = known_part(graph, y)
        value, d_factor_mu = np.zeros(graph.n_edges), np.zeros_like(factor_mu)
        starts = np.concatenate([[0], np.cumsum(known.sizes)])
        places = known.place + over_edges(graph, starts[:-1])
        counted = over_edges(graph, known.sizes > 0)
        p = np.bincount(places[counted], weights=factor_mu[counted], minlength=starts[-1])
        d_p = np.zeros(len(p))
        for size in np.unique(known.sizes[known.sizes > 0]).tolist():
            together = np.flatnonzero(known.sizes == size)
            rows = starts[together, None] + np.arange(size)
            value[together], d_p[rows] = self._judge(p[rows], known.target[together])
        d_factor_mu[counted] = d_p[places[counted]]
        return value, d_factor_mu

    def _judge_edges(self, graph, edge_mu, y):
        """Judge every edge by those of its ends whose labels are known."""
        first, second = y[graph.edges.T]
        value, d_edge_mu = np.zeros(len(edge_mu)), np.zeros_like(edge_mu)
        size = max(1, _TOGETHER // edge_mu.shape[1] ** 2)
        for start in range(0, len(edge_mu), size):
            some = slice(start, start + size)
            self._judge_some(edge_mu[some], first[some], second[some], value[some], d_edge_mu[some])
        return value, d_edge_mu

    def _judge_some(self, edge_mu, first, second, value, d_edge_mu):
        """Fill in value and derivative of some edges, where they are zero."""
        n_states = edge_mu.shape[1]
        both = np.flatnonzero((first >= 0) & (second >= 0))
        pairs = edge_mu[both].reshape(-1, n_states**2)
        value[both], d_pairs = self._judge(pairs, first[both] * n_states + second[both])
        d_edge_mu[both] = d_pairs.reshape(-1, n_states, n_states)

        for known, hidden, axis in ((first, second, 2), (second, first, 1)):
            one = np.flatnonzero((known >= 0) & (hidden < 0))
            value[one], d_end = self._judge(edge_mu[one].sum(axis=axis), known[one])
            d_edge_mu[one] = np.expand_dims(d_end, axis)

    @abstractmethod
    def _judge(self, p, target):
        """Judge rows of probabilities (n, m); return the value of each row and its derivative."""


# By the layout of the graph.
_JUDGES = {"pairwise": CliqueLoss._judge_edges, "factor": CliqueLoss._judge_factors}


class CliqueLogistic(CliqueLoss):
    """Clique logistic loss: minus the log of the marginal of each pair of labels, D13 section 4.2.3.

    Asks for pairs of neighbours to be right together, which identifies the model where the univariate
    loss may not. Cliques are the edges, and nodes that have none. A hidden end of an edge is summed out.

    See Also
    --------
    UnivariateLogistic : The same for single labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import CliqueLogistic
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = CliqueLogistic()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([2.079])
    """

    _judge = staticmethod(logistic)


class CliqueQuadratic(CliqueLoss):
    """Clique quadratic loss: the squared distance of each pair's marginal from its labels, D13 section 4.2.3.

    Cliques are the edges, and nodes that have none. A hidden end of an edge is summed out.

    See Also
    --------
    UnivariateQuadratic : The same for single labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import CliqueQuadratic
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = CliqueQuadratic()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.25])
    """

    _judge = staticmethod(quadratic)


class CliqueSmoothed(Smoothed, CliqueLoss):
    """Smoothed classification error of cliques: about the number of wrong pairs of labels, D13 section 4.2.3.

    A pair is wrong where another pair of labels has a larger marginal. Cliques are the edges, and nodes that
    have none. A hidden end of an edge is summed out.

    Parameters
    ----------
    alpha : float, default=15.0
        Steepness of the step, above 0, as for `SmoothedClassification`.

    See Also
    --------
    SmoothedClassification : The same for single labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import CliqueSmoothed
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = CliqueSmoothed()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.])
    """
