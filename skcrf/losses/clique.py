"""Losses of the clique marginals, D13 section 4.2.3."""

from abc import abstractmethod
from functools import singledispatch
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf.graph import FactorGraph, over_edges, sum_by_example
from skcrf.losses._base import BaseLoss
from skcrf.losses._factor_pieces import labelled_states
from skcrf.losses.univariate import SmoothedClassification, UnivariateLogistic, UnivariateQuadratic

# Entries of edge marginals that are processed at a time: 2 MB, and a few times that for temporary arrays.
_ENTRIES_AT_A_TIME = 2**18


class CliqueLoss(BaseLoss):
    """Base class of the losses that are sums over cliques: edges or factors, and nodes without any.

    The loss of a clique is a function of its marginal and its labels. A subclass implements this function,
    `pointwise`. Hidden nodes of a clique are summed out of its marginal; cliques without labels do not count.

    See Also
    --------
    UnivariateLoss : The same for single nodes.
    """

    needs = frozenset({"mu"})

    @property
    def reads_tables(self):
        return False

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta, edges=True)
        value, d_edge_mu = _edge_losses(graph, beliefs.edge_mu, y, self.pointwise)
        total = sum_by_example(value, graph.edge_example, graph)
        isolated = np.flatnonzero((np.diff(graph.incident_ptr) == 0) & (y >= 0))
        d_mu = np.zeros_like(beliefs.mu)
        value, d_mu[isolated] = self.pointwise(beliefs.mu[isolated], y[isolated])
        total += sum_by_example(value, graph.node_example[isolated], graph)
        return total, inference.backward(beliefs, d_mu=d_mu, d_edge_mu=d_edge_mu), beliefs.converged

    @abstractmethod
    def pointwise(self, p, target):
        """Compute the loss of each marginal, and its derivative.

        Parameters
        ----------
        p : ndarray of shape (n, n_joint_states)
            Marginals over the labelled nodes of cliques, one per row.
        target : ndarray of shape (n,)
            Joint state of the labels of each row.

        Returns
        -------
        value : ndarray of shape (n,)
            Loss of each row.
        d_p : ndarray of shape (n, n_joint_states)
            Derivative of each value with respect to its row; a new array.
        """


@singledispatch
def _edge_losses(graph, edge_mu, y, pointwise):
    """Compute the loss of every edge, or factor, and its derivative with respect to the marginals."""
    first, second = y[graph.edges.T]
    value, d_edge_mu = np.zeros(len(edge_mu)), np.zeros_like(edge_mu)
    size = max(1, _ENTRIES_AT_A_TIME // edge_mu.shape[1] ** 2)
    for start in range(0, len(edge_mu), size):
        part = slice(start, start + size)
        _fill_losses(edge_mu[part], first[part], second[part], pointwise, value[part], d_edge_mu[part])
    return value, d_edge_mu


def _fill_losses(edge_mu, first, second, pointwise, value, d_edge_mu):
    """Fill in value and derivative of edges with the labels `first` and `second`; both are zero before."""
    n_states = edge_mu.shape[1]
    both = np.flatnonzero((first >= 0) & (second >= 0))
    pairs = edge_mu[both].reshape(-1, n_states**2)
    value[both], d_pairs = pointwise(pairs, first[both] * n_states + second[both])
    d_edge_mu[both] = d_pairs.reshape(-1, n_states, n_states)

    for known, hidden, axis in ((first, second, 2), (second, first, 1)):
        one = np.flatnonzero((known >= 0) & (hidden < 0))
        value[one], d_end = pointwise(edge_mu[one].sum(axis=axis), known[one])
        d_edge_mu[one] = np.expand_dims(d_end, axis)


@_edge_losses.register
def _(graph: FactorGraph, factor_mu, y, pointwise):
    labelled = labelled_states(graph, y)
    value, d_factor_mu = np.zeros(graph.n_edges), np.zeros_like(factor_mu)
    starts = np.concatenate([[0], np.cumsum(labelled.n_states)])
    place = labelled.state_of_entry + over_edges(graph, starts[:-1])
    counted = over_edges(graph, labelled.n_states > 0)
    p = np.bincount(place[counted], weights=factor_mu[counted], minlength=starts[-1])
    d_p = np.zeros(len(p))
    for n_states in np.unique(labelled.n_states[labelled.n_states > 0]).tolist():
        factors = np.flatnonzero(labelled.n_states == n_states)
        rows = starts[factors, None] + np.arange(n_states)
        value[factors], d_p[rows] = pointwise(p[rows], labelled.target[factors])
    d_factor_mu[counted] = d_p[place[counted]]
    return value, d_factor_mu


class CliqueLogistic(CliqueLoss):
    """Clique logistic loss: minus the log of the marginal of each pair of labels, D13 section 4.2.3.

    Neighbouring labels have to be right jointly, which identifies the model where the univariate loss may
    not. Cliques are the edges, and nodes without edges. A hidden end of an edge is summed out.

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

    pointwise = staticmethod(UnivariateLogistic.pointwise)


class CliqueQuadratic(CliqueLoss):
    """Clique quadratic loss: the squared distance of each pair's marginal from its labels, D13 section 4.2.3.

    Cliques are the edges, and nodes without edges. A hidden end of an edge is summed out.

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

    pointwise = staticmethod(UnivariateQuadratic.pointwise)


class CliqueSmoothed(CliqueLoss):
    """Smoothed classification error of cliques: about the number of wrong pairs of labels, D13 section 4.2.3.

    A pair is wrong where another pair of labels has a larger marginal. Cliques are the edges, and nodes
    without edges. A hidden end of an edge is summed out.

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

    _parameter_constraints = {"alpha": [Interval(Real, 0, None, closed="neither")]}

    starts_from = "univariate_logistic"  # D10 section 4: this loss is flat far from its minimum
    pointwise = SmoothedClassification.pointwise

    def __init__(self, alpha=15.0):
        self.alpha = alpha
