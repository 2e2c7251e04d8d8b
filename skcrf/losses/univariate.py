"""Losses of the univariate marginals."""

import numpy as np

from skcrf.graph import sum_by_example
from skcrf.losses._base import BaseLoss, logistic


class UnivariateLogistic(BaseLoss):
    """Univariate logistic loss: minus the log of the marginal of each label, D13 section 4.2.1.

    Judges the marginals that the inference really predicts, so it makes up for what inference and model get
    wrong. Hidden sites do not count. The loss to try first.

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

    site_weighted = True

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta)
        labelled = np.flatnonzero(y >= 0)
        value, d_mass = logistic(beliefs.mu[labelled, y[labelled]])
        if site_weight is not None:
            value, d_mass = value * site_weight[labelled], d_mass * site_weight[labelled]
        d_mu = np.zeros_like(beliefs.mu)
        d_mu[labelled, y[labelled]] = d_mass
        value = sum_by_example(value, graph.node_example[labelled], graph)
        return value, inference.backward(beliefs, d_mu=d_mu), beliefs.converged
