"""The likelihood and its surrogates: differences of two log-partition functions."""

import numpy as np
from sklearn.utils._param_validation import StrOptions

from skcrf._registry import Instances, resolve
from skcrf.gradients import Backprop, BaseGradient
from skcrf.graph import Potentials, clamp, score, score_vjp, sum_by_example
from skcrf.inference import INFERENCE, BaseInference, MeanField
from skcrf.losses._base import BaseLoss

# Mean field beside an inference that does not iterate, and has its answer to the last digits.
_CONVERGED = {"max_iter": 1000, "tol": 1e-8}


class Likelihood(BaseLoss):
    """Minus the log-likelihood, with the log-partition function of the inference, D13 section 4.1.

    The true likelihood where the inference is exact, the surrogate likelihood where it is not, and the
    truncated one (D13 section 7.3) where it is truncated: then give it iterations enough, as with too few
    it diverges. Hidden labels are summed out: the loss is the difference of two log-partition functions,
    of which one has the labels clamped (Eq 21). In a directed model the other is known to be 0: where all
    labels are known, no inference is called, and the loss is convex.

    See Also
    --------
    EM : The same with another inference where labels are clamped.

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

    needs = frozenset({"log_z"})
    clamps = True

    def _evaluate(self, inference, graph, theta, y, site_weight):
        return _difference(inference, inference, graph, theta, y)


class EM(BaseLoss):
    """Surrogate EM: the likelihood with an inference of its own where labels are clamped, D13 section 4.1.2.

    The log-partition function of the free field comes from the inference of the estimator, that of the field
    with the known labels clamped from another. With "trw", converged, for the first and "mean_field" for the
    second, the loss is never below the true minus log-likelihood of the known labels: the one bounds from
    above what is added, the other from below what is subtracted. Where all labels are known, this is
    `Likelihood`. Examples without a label cost nothing.

    Parameters
    ----------
    clamped : str, BaseInference or None, default=None
        The inference of the field with clamped labels, by name or as an instance. Its derivative is obtained
        in the way that is chosen for the other, and where that needs an inference that converges, both have
        to. None is mean field with `max_iter` and `tol` of the other, so that both are truncated or both
        converge; where the other does not iterate, mean field converges.

    See Also
    --------
    Likelihood : The same inference for both.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import EM
    >>> theta = Potentials(np.zeros((3, 2)), np.eye(2)[None])
    >>> value, d_theta, converged = EM()(Tree(), chain(3), theta, np.array([0, -1, -1]))
    >>> value.round(3)
    array([0.781])
    >>> EM(clamped="tree")(Tree(), chain(3), theta, np.array([0, -1, -1]))[0].round(3)
    array([0.693])
    """

    _parameter_constraints = {
        "clamped": [StrOptions(set(INFERENCE)), Instances(BaseInference, but=BaseGradient), None]
    }

    needs = frozenset({"log_z"})
    clamps = True

    def __init__(self, clamped=None):
        self.clamped = clamped

    def _evaluate(self, inference, graph, theta, y, site_weight):
        # The strategy around the inference is put around the other as well.
        wrap = getattr(inference, "wrap", Backprop().wrap)
        clamped = self.clamped
        if clamped is None:
            clamped = _mean_field_beside(getattr(inference, "inference_", inference))
        try:
            clamped = wrap(resolve(INFERENCE, clamped, name="clamped"))
        except ValueError as error:
            raise ValueError(f"The 'clamped' inference of EM: {error}") from error
        return _difference(inference, clamped, graph, theta, y)


def _mean_field_beside(inference):
    """Make the mean field that iterates as an inference does, to convergence if that does not iterate."""
    found = inference.get_params(deep=False)
    return MeanField(**{name: found.get(name, value) for name, value in _CONVERGED.items()})


def _difference(inference, clamped_inference, graph, theta, y):
    """log_z of the free field minus log_z with the labels clamped (D13 Eq 21), derivative, convergence."""
    counts = (sum_by_example(y >= 0, graph.node_example, graph) > 0).astype(np.float64)
    free_log_z, d_free, free_converged = _free(inference, graph, theta, counts)
    log_z, d_clamped, converged = _clamped(clamped_inference, graph, theta, y, counts)
    d_theta = Potentials(d_free.unary - d_clamped.unary, d_free.tables - d_clamped.tables)
    return counts * (free_log_z - log_z), d_theta, free_converged & converged


def _free(inference, graph, theta, d_log_z):
    """log_z of the free field, its derivative, and whether the inference converged.

    The probabilities of a directed model sum to 1, whatever its parameters: that needs no inference.
    """
    known = graph.normalised > 0
    if known.all():
        none = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        return np.zeros(graph.n_examples), none, known
    beliefs = inference.forward(graph, theta)
    d_theta = inference.backward(beliefs, d_log_z=d_log_z * ~known)
    return np.where(known, 0.0, beliefs.log_z), d_theta, known | beliefs.converged


def _clamped(inference, graph, theta, y, d_log_z):
    """log_z with the labels clamped, its derivative, and whether the inference converged.

    Where an example has all its labels one configuration is left, whose score needs no inference, whatever
    others are in the batch.
    """
    known = sum_by_example(y < 0, graph.node_example, graph) == 0
    x = np.maximum(y, 0)  # of hidden labels nothing is asked
    one_hot = np.eye(theta.unary.shape[1])[x]
    if known.all():
        return score(graph, theta, x), score_vjp(graph, theta, one_hot, d_log_z), known
    beliefs = inference.forward(graph, clamp(theta, y))
    d_theta = inference.backward(beliefs, d_log_z=d_log_z * ~known)
    if not known.any():
        return beliefs.log_z, d_theta, beliefs.converged
    d_score = score_vjp(graph, theta, one_hot, d_log_z * known)
    d_theta = Potentials(d_theta.unary + d_score.unary, d_theta.tables + d_score.tables)
    return np.where(known, score(graph, theta, x), beliefs.log_z), d_theta, known | beliefs.converged
