"""The likelihood and its surrogates."""

import numpy as np

from skcrf.graph import Potentials, clamp, score, score_vjp
from skcrf.losses._base import BaseLoss


class Likelihood(BaseLoss):
    """Minus the log-likelihood, with the log-partition function of the inference, D13 section 4.1.

    The true likelihood where the inference is exact, the surrogate likelihood where it is not, and the
    truncated one (D13 section 7.3) where it is truncated: then give it iterations enough, as with too few
    it diverges. Hidden labels are summed out: the loss is the difference of two log-partition functions,
    of which one has the labels clamped (Eq 21).

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import Likelihood
    >>> theta = Potentials(np.zeros((3, 2)), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = Likelihood()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([1.386])
    """

    def _evaluate(self, inference, graph, theta, y, site_weight):
        one = np.ones(graph.n_examples)
        free = inference.forward(graph, theta)
        d_free = inference.backward(free, d_log_z=one)
        if (y >= 0).all():  # one configuration is left, whose score needs no inference
            log_z, converged = score(graph, theta, y), True
            d_clamped = score_vjp(graph, theta, np.eye(theta.unary.shape[1])[y], one)
        else:
            clamped = inference.forward(graph, clamp(theta, y))
            log_z, converged = clamped.log_z, clamped.converged
            d_clamped = inference.backward(clamped, d_log_z=one)
        d_theta = Potentials(d_free.unary - d_clamped.unary, d_free.tables - d_clamped.tables)
        return free.log_z - log_z, d_theta, free.converged & converged
