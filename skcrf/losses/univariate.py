"""Losses of the univariate marginals."""

from abc import abstractmethod

import numpy as np

from skcrf.graph import sum_by_example
from skcrf.losses._base import BaseLoss
from skcrf.losses._pointwise import Smoothed, logistic, quadratic


class UnivariateLoss(BaseLoss):
    """A judge of the marginal of each labelled site; hidden sites do not count."""

    needs = frozenset({"mu"})
    tasks = frozenset({"sum"})
    site_weighted = True

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta)
        weight = (y >= 0) * (1.0 if site_weight is None else site_weight)
        value, d_mu = self._judge(beliefs.mu, np.maximum(y, 0))
        value = sum_by_example(value * weight, graph.node_example, graph)
        d_mu *= weight[:, None]
        return value, inference.backward(beliefs, d_mu=d_mu), beliefs.converged

    @abstractmethod
    def _judge(self, p, target):
        """Judge rows of probabilities (n, n_states); return the value of each row and its derivative."""


class UnivariateLogistic(UnivariateLoss):
    """Univariate logistic loss: minus the log of the marginal of each label, D13 section 4.2.1.

    Judges the marginals that the inference really predicts, so it makes up for what inference and model get
    wrong. Hidden sites do not count. The loss to try first.

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

    _judge = staticmethod(logistic)


class UnivariateQuadratic(UnivariateLoss):
    """Univariate quadratic loss: the squared distance of each marginal from its label, D13 section 4.2.2.

    No site costs more than 2, so that labels that are plainly wrong do little harm; nor does it help much to
    make them a little less wrong, and an optimizer may get stuck. Hidden sites do not count.

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

    _judge = staticmethod(quadratic)


class SmoothedClassification(Smoothed, UnivariateLoss):
    """Smoothed classification error: about the number of sites that are predicted wrong, D13 section 4.2.2.

    The sum over labelled sites of ``S(largest marginal of another label - marginal of the label)`` with the
    smooth step ``S(t) = 1 / (1 + exp(-alpha t))``. Nearest to the accuracy that is reported in the end, and
    not convex: an optimizer may get stuck. Hidden sites do not count.

    Parameters
    ----------
    alpha : float, default=15.0
        Steepness of the step, above 0. The larger, the closer to the number of errors, and the less is
        learned from sites that are far from being decided otherwise.

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
