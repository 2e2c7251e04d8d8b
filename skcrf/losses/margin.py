"""Max-margin losses: the score of the correct labels must exceed all others by the cost of these."""

from numbers import Real

from sklearn.utils._param_validation import Interval

from skcrf.losses._augmented import AugmentedLogPartition
from skcrf.losses._log_partition import ClampedLogPartition, DifferenceLoss

_COST = {"cost": [Interval(Real, 0, None, closed="left"), "array-like"]}


def _margin(eps_y, eps_h, cost):
    """Return the two terms of P16 Eq 4.6."""
    return AugmentedLogPartition(eps_y, eps_h, cost), ClampedLogPartition(eps_h)


class Hinge(DifferenceLoss):
    """Structured hinge loss of the structured SVM, P16 Eq 2.48.

    The largest sum of score and cost of any labels, minus the score of the correct labels. If inference is
    exact, it is an upper bound of the cost of the most probable configuration. A wrong label costs 1, or the
    value given by `cost` and `class_weight`. Convex, but not smooth. Hidden labels are not supported;
    examples without any label do not count.

    Parameters
    ----------
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        Cost of a wrong label, or of each predicted label (column) for each correct label (row), with zeros
        on the diagonal. Class weights multiply the cost by the weight of the correct label.

    See Also
    --------
    LatentHinge : Maximises over hidden labels.
    MarginalHinge : Sums hidden labels out.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import Hinge
    >>> theta = Potentials(np.array([[0.0, 0.4], [0.0, 0.4], [0.0, 3.0]]), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = Hinge()(Tree(), chain(3), theta, np.array([0, 1, 1]))
    >>> value.round(3)
    array([2.])
    """

    _parameter_constraints = _COST

    takes_hidden_labels = False

    def __init__(self, cost=1.0):
        self.cost = cost

    @property
    def difference(self):
        """Tuple of two callables: the function that is added, and the function that is subtracted."""
        return _margin(0.0, 0.0, self.cost)


class LatentHinge(DifferenceLoss):
    """Hinge loss of the latent structured SVM, which maximises over hidden labels, P16 Eq 4.5.

    As `Hinge`, but each of the two scores is maximised over the hidden labels. If labels are hidden, the loss
    is not convex, but a difference of convex functions. Uncertain hidden labels are treated as if the best
    ones were certain; see `MarginalHinge`.

    Parameters
    ----------
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        As for `Hinge`.

    See Also
    --------
    MarginalHinge : Sums hidden labels out.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import LatentHinge
    >>> theta = Potentials(np.array([[0.0, 0.4], [0.0, 0.4], [0.0, 3.0]]), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = LatentHinge()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([2.])
    """

    _parameter_constraints = _COST

    def __init__(self, cost=1.0):
        self.cost = cost

    @property
    def difference(self):
        """Tuple of two callables: the function that is added, and the function that is subtracted."""
        return _margin(0.0, 0.0, self.cost)


class MarginalHinge(DifferenceLoss):
    """Hinge loss of the marginal structured SVM, which sums hidden labels out, P16 Eq 4.3.

    As `Hinge`, but each of the two scores is the logarithm of a sum over the hidden labels, so that their
    uncertainty counts. If inference is exact, it is an upper bound of the cost of the marginal MAP
    configuration. A difference of convex functions.

    Parameters
    ----------
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        As for `Hinge`.

    See Also
    --------
    LatentHinge : Maximises over hidden labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import BruteForce
    >>> from skcrf.losses import MarginalHinge
    >>> theta = Potentials(np.array([[0.0, 0.4], [0.0, 0.4], [0.0, 3.0]]), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = MarginalHinge()(BruteForce(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([2.])
    """

    _parameter_constraints = _COST

    def __init__(self, cost=1.0):
        self.cost = cost

    @property
    def difference(self):
        """Tuple of two callables: the function that is added, and the function that is subtracted."""
        return _margin(0.0, 1.0, self.cost)


class Unified(DifferenceLoss):
    """Unified loss, which has max-margin losses and likelihoods as limits, P16 Eq 4.6.

    The difference of two logarithms of sums over labels and hidden labels, each with its own temperature; at
    temperature 0 a sum is a maximum. Smooth if both temperatures are above 0.

    ========================  =============  =============
    temperatures              ``eps_h = 0``  ``eps_h = 1``
    ========================  =============  =============
    ``eps_y = 0``             LatentHinge    MarginalHinge
    ``eps_y = 1, cost = 0``   `mllr`         Likelihood
    ========================  =============  =============

    Parameters
    ----------
    eps_y : float, default=1.0
        Temperature of the labels, from 0 to 1.
    eps_h : float, default=1.0
        Temperature of the hidden labels, from 0 to 1. If it differs from `eps_y` and `eps_y` is above 0, an
        inference without the task "tempered" is called once per configuration of the known labels of an
        example, of which there may be 4096.
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        As for `Hinge`; 0 for no margin.

    See Also
    --------
    Likelihood : The limit of temperatures 1 without a cost.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import Unified
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = Unified(cost=0.0)(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.386])
    """

    _parameter_constraints = {
        "eps_y": [Interval(Real, 0, 1, closed="both")],
        "eps_h": [Interval(Real, 0, 1, closed="both")],
        **_COST,
    }

    def __init__(self, eps_y=1.0, eps_h=1.0, cost=1.0):
        self.eps_y = eps_y
        self.eps_h = eps_h
        self.cost = cost

    @classmethod
    def mllr(cls):
        """Make the loss of multinomial latent logistic regression.

        It sums over labels the maxima over hidden labels.

        Returns
        -------
        loss : Unified
            With ``eps_y=1``, ``eps_h=0`` and no cost.
        """
        return cls(eps_y=1.0, eps_h=0.0, cost=0.0)

    @classmethod
    def epsilon_extension(cls, eps):
        """Make the loss of the epsilon-extension, with one temperature for all labels.

        Parameters
        ----------
        eps : float
            The temperature, from 0 to 1.

        Returns
        -------
        loss : Unified
            With ``eps_y = eps_h = eps``.
        """
        return cls(eps_y=eps, eps_h=eps)

    @property
    def difference(self):
        """Tuple of two callables: the function that is added, and the function that is subtracted."""
        return _margin(self.eps_y, self.eps_h, self.cost)
