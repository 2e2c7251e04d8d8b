"""Max-margin losses: wrong labels have to score worse than the right ones by what they cost."""

from abc import abstractmethod
from numbers import Real

from sklearn.utils._param_validation import Interval

from skcrf.losses._log_partition import Augmented, Clamped, DifferenceLoss, higher


class MarginLoss(DifferenceLoss):
    """A difference of log-partition functions at two temperatures, the first with costs: P16 Eq 4.6.

    Parameters
    ----------
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        What a wrong label costs, or each instead of each right one.
    """

    _parameter_constraints = {"cost": [Interval(Real, 0, None, closed="left"), "array-like"]}

    site_costs = True
    site_weighted = True

    def __init__(self, cost=1.0):
        self.cost = cost

    @property
    @abstractmethod
    def temperatures(self):
        """Tuple of float: that of the labels, and that of the hidden labels."""

    @property
    def convex(self):
        """Callable: the half that is added."""
        return Augmented(*self.temperatures, self.cost)

    @property
    def concave(self):
        """Callable: the half that is subtracted."""
        return Clamped(self.temperatures[1])

    def check(self, inference, n_labels, sizes, n_states):
        super().check(inference, n_labels, sizes, n_states)
        self.convex.check(inference, n_labels, sizes, n_states)

    def _halves(self, inference, graph, *asked):
        """Evaluate both: the second is the candidate that the first would infer again."""
        found, right = (half(inference, graph, *asked) for half in (self.convex.found, self.concave))
        return found if self.convex.reaches(inference) else higher(graph, found, right), right


class Hinge(MarginLoss):
    """Structured hinge loss of the structured SVM: the margin by which wrong labels win, P16 Eq 2.48.

    The best score of any labels, with what is wrong in them added, minus the score of the right ones. Never
    below the cost of the labels that the best configuration predicts, where inference is exact. A wrong label
    costs 1, or what `cost` and `class_weight` say. Convex, with kinks: its optimizer is "bundle", and
    "frank_wolfe" and "subgradient" are others. Labels must be known; those of a whole example may be hidden,
    which then does not count.

    Parameters
    ----------
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        What a wrong label costs; or what each costs, in columns, instead of each right one, in rows, zeros
        on the diagonal: any loss that is a sum over sites. Times the weight of the right label where there
        are class weights.

    See Also
    --------
    LatentHinge : For hidden labels, maximised over.
    MarginalHinge : For hidden labels, summed out.

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

    tasks = frozenset({"max"})
    subgradient = True
    optimizer = "bundle"
    hidden_labels = False
    decoding = "map"
    temperatures = 0.0, 0.0


class LatentHinge(MarginLoss):
    """Hinge loss of the latent structured SVM: hidden labels are maximised over, P16 Eq 4.5.

    As `Hinge`, and both scores are those with the hidden labels that make them best. Where labels are hidden
    it is not convex, but a difference of convex functions: its optimizer is "cccp", and "subgradient" is
    another. A hidden label that might well be another is taken for certain; see `MarginalHinge`.

    Parameters
    ----------
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        As for `Hinge`.

    See Also
    --------
    MarginalHinge : Hidden labels are summed out.

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

    tasks = frozenset({"max"})
    subgradient = True
    optimizer = "cccp"
    decoding = "map"
    temperatures = 0.0, 0.0


class MarginalHinge(MarginLoss):
    """Hinge loss of the marginal structured SVM: hidden labels are summed out, P16 Eq 4.3.

    As `Hinge`, with scores that are logarithms of sums over the hidden labels, so that what is not certain of
    them is accounted for. Never below the cost of the labels that marginal MAP predicts, where inference is
    exact. A difference of convex functions: its optimizer is "cccp", and "subgradient" is another.

    Parameters
    ----------
    cost : float or array-like of shape (n_classes, n_classes), default=1.0
        As for `Hinge`.

    See Also
    --------
    LatentHinge : Hidden labels are maximised over.

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

    tasks = frozenset({"max", "sum", "mixed"})
    subgradient = True
    optimizer = "cccp"
    decoding = "marginal_map"
    temperatures = 0.0, 1.0


class Unified(MarginLoss):
    """The loss of which max-margin losses and likelihoods are limits, P16 Eq 4.6.

    The difference of two logarithms of sums over labels and hidden labels, at temperatures of their own; at
    temperature 0 a sum is a maximum. Smooth where both are above 0.

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
        Temperature of the hidden labels, from 0 to 1. Where it is not `eps_y`, which is above 0, an inference
        that has not the task "tempered" is asked for every configuration of the known labels of an example,
        4096 at most.
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
        **MarginLoss._parameter_constraints,
    }

    def __init__(self, eps_y=1.0, eps_h=1.0, cost=1.0):
        super().__init__(cost)
        self.eps_y = eps_y
        self.eps_h = eps_h

    @classmethod
    def mllr(cls):
        """Make the loss of multinomial latent logistic regression.

        A sum over labels of maxima over hidden ones.

        Returns
        -------
        loss : Unified
            With ``eps_y=1``, ``eps_h=0`` and no cost.
        """
        return cls(eps_y=1.0, eps_h=0.0, cost=0.0)

    @classmethod
    def epsilon_extension(cls, eps):
        """Make the loss of the epsilon-extension: one temperature for all labels.

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
    def temperatures(self):
        """Tuple of float: that of the labels, and that of the hidden labels."""
        return self.eps_y, self.eps_h

    @property
    def tasks(self):
        """Frozenset: tasks that the inference must be able to do."""
        tasks = {"sum" if eps > 0 else "max" for eps in (self.eps_y, self.eps_h)}
        return frozenset(tasks | ({"mixed"} if self.eps_y == 0 < self.eps_h else set()))

    @property
    def subgradient(self):
        """Whether the loss has kinks."""
        return self.convex.subgradient

    @property
    def optimizer(self):
        """What minimises it where the user does not say."""
        return "cccp" if self.subgradient else "lbfgs"

    @property
    def decoding(self):
        """How labels are predicted: by maxima of what is maximised in learning."""
        if self.eps_y > 0:
            return "mpm"
        return "marginal_map" if self.eps_h > 0 else "map"
