"""Losses of the node marginals, D13 section 4.2.

Their functions of a marginal and its label, `pointwise`, are also those of the losses of pairs in `clique`.
"""

from abc import abstractmethod
from numbers import Real

import numpy as np
from scipy.special import expit
from sklearn.utils._param_validation import Interval

from skcrf.graph import sum_by_example
from skcrf.losses._base import BaseLoss

# Smaller probabilities are treated as equal, so that neither their reciprocals nor sums of these overflow.
_SMALLEST = 1e-300


class UnivariateLoss(BaseLoss):
    """Base class of the losses that are sums over the labelled nodes.

    The loss of a node is a function of its marginal and its label. A subclass implements this function,
    `pointwise`. Hidden nodes do not count.

    See Also
    --------
    CliqueLoss : The same for pairs of nodes.

    Examples
    --------
    The expected number of wrong labels, as a new loss:

    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import UnivariateLoss
    >>> class ExpectedErrors(UnivariateLoss):
    ...     def pointwise(self, p, target):
    ...         rows = np.arange(len(p))
    ...         d_p = np.zeros_like(p)
    ...         d_p[rows, target] = -1.0
    ...         return 1.0 - p[rows, target], d_p
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = ExpectedErrors()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.])
    """

    needs = frozenset({"mu"})
    site_weighted = True

    @property
    def reads_tables(self):
        return False

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta)
        labelled = y >= 0
        value, d_mu = self.pointwise(beliefs.mu, np.maximum(y, 0))
        if site_weight is not None or not labelled.all():
            weight = labelled * (1.0 if site_weight is None else site_weight)
            value = value * weight
            d_mu *= weight[:, None]
        value = sum_by_example(value, graph.node_example, graph)
        return value, inference.backward(beliefs, d_mu=d_mu), beliefs.converged

    @abstractmethod
    def pointwise(self, p, target):
        """Compute the loss of each marginal, and its derivative.

        Parameters
        ----------
        p : ndarray of shape (n, n_states)
            Marginals, one per row.
        target : ndarray of shape (n,)
            Label of each row.

        Returns
        -------
        value : ndarray of shape (n,)
            Loss of each row.
        d_p : ndarray of shape (n, n_states)
            Derivative of each value with respect to its row; a new array.
        """


class UnivariateLogistic(UnivariateLoss):
    """Univariate logistic loss: minus the log of the marginal of each label, D13 section 4.2.1.

    Fits the marginals that the inference predicts, and so compensates for errors of the inference and of the
    model. Hidden sites do not count. Recommended as the first loss to try.

    See Also
    --------
    CliqueLogistic : The same for pairs of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import UnivariateLogistic
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = UnivariateLogistic()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.386])
    """

    @staticmethod
    def pointwise(p, target):
        # -log p(target)
        entries = p.shape[1] * np.arange(len(p)) + target
        mass = np.maximum(p.ravel().take(entries), _SMALLEST)
        d_p = np.zeros(p.shape)
        d_p.ravel()[entries] = -1.0 / mass
        return -np.log(mass), d_p


class UnivariateQuadratic(UnivariateLoss):
    """Univariate quadratic loss: the squared distance of each marginal from its label, D13 section 4.2.2.

    The loss of a site is at most 2, so that wrong labels in the data have little influence. For the same
    reason its gradient is small where predictions are far from the labels, and an optimizer may get stuck.
    Hidden sites do not count.

    See Also
    --------
    CliqueQuadratic : The same for pairs of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import UnivariateQuadratic
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = UnivariateQuadratic()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.])
    """

    @staticmethod
    def pointwise(p, target):
        # sum_x (p(x) - [x == target])^2
        error = p.copy()
        error[np.arange(len(p)), target] -= 1.0
        return (error * error).sum(axis=1), 2.0 * error


class SmoothedClassification(UnivariateLoss):
    """Smoothed classification error: about the number of wrong predictions, D13 section 4.2.2.

    The sum over labelled sites of ``S(largest marginal of another label - marginal of the label)`` with the
    smooth step ``S(t) = 1 / (1 + exp(-alpha t))``. The closest of all losses to the accuracy, and not convex:
    an optimizer may get stuck. Hidden sites do not count.

    Parameters
    ----------
    alpha : float, default=15.0
        Steepness of the step, above 0. Larger values approximate the number of errors more closely, but
        give smaller gradients at sites whose label has a marginal far from that of the other labels.

    See Also
    --------
    CliqueSmoothed : The same for pairs of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import SmoothedClassification
    >>> theta = Potentials(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), np.zeros((1, 2, 2)))
    >>> loss = SmoothedClassification(alpha=50.0)
    >>> value, d_theta, converged = loss(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.])
    """

    _parameter_constraints = {"alpha": [Interval(Real, 0, None, closed="neither")]}

    starts_from = "univariate_logistic"  # D10 section 4: this loss is flat far from its minimum

    def __init__(self, alpha=15.0):
        self.alpha = alpha

    def pointwise(self, p, target):
        rows = np.arange(len(p))
        others = p.copy()
        others[rows, target] = -np.inf  # with a single state the value is 0
        best = np.argmax(others, axis=1)
        value = expit(self.alpha * (others[rows, best] - p[rows, target]))
        slope = self.alpha * value * (1.0 - value)
        d_p = np.zeros_like(p)
        d_p[rows, best] = slope
        d_p[rows, target] -= slope
        return value, d_p
