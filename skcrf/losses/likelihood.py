"""The likelihood and its surrogates: differences of two log-partition functions."""

from sklearn.utils._param_validation import StrOptions

from skcrf._registry import Instances, resolve
from skcrf.gradients import Backprop, BaseGradient
from skcrf.inference import INFERENCE, BaseInference, MeanField
from skcrf.losses._log_partition import Clamped, DifferenceLoss, Free

# Mean field beside an inference that does not iterate, and has its answer to the last digits.
_CONVERGED = {"max_iter": 1000, "tol": 1e-8}


class Likelihood(DifferenceLoss):
    """Minus the log-likelihood, with the log-partition function of the inference, D13 section 4.1.

    The true likelihood where the inference is exact, the surrogate likelihood where it is not, and the
    truncated one (D13 section 7.3) where it is truncated: then give it iterations enough, as with too few
    it diverges. Hidden labels are summed out: the loss is the difference of two log-partition functions,
    of which one has the labels clamped (Eq 21). With a MAP solver, which has no sums, both are best scores:
    the saddle point approximation of K05, which is least where all weights are zero, so that its optimizer is
    "subgradient", which keeps weights by their training error. In a directed model the other is known to be
    0: where all labels are known, no inference is called, and the loss is convex.

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

    convex, concave = Free(), Clamped()
    clamps = True


class EM(DifferenceLoss):
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

    convex = Free()
    clamps = True

    def __init__(self, clamped=None):
        self.clamped = clamped

    @property
    def concave(self):
        """Callable: the half that is subtracted."""
        return Clamped(beside=self._beside)

    def _beside(self, inference):
        """Make the inference of the clamped field; the strategy around the other is put around it too."""
        wrap = getattr(inference, "wrap", Backprop().wrap)
        clamped = self.clamped
        if clamped is None:
            clamped = _mean_field_beside(getattr(inference, "inference_", inference))
        try:
            return wrap(resolve(INFERENCE, clamped, name="clamped"))
        except ValueError as error:
            raise ValueError(f"The 'clamped' inference of EM: {error}") from error


def _mean_field_beside(inference):
    """Make the mean field that iterates as an inference does, to convergence if that does not iterate."""
    found = inference.get_params(deep=False)
    return MeanField(**{name: found.get(name, value) for name, value in _CONVERGED.items()})
