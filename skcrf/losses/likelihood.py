"""Likelihood and its surrogates: differences of two log-partition functions."""

from sklearn.utils._param_validation import StrOptions

from skcrf._registry import resolve
from skcrf.inference import INFERENCE, BaseInference, MeanField
from skcrf.losses._log_partition import ClampedLogPartition, DifferenceLoss, FreeLogPartition

# Parameters of the mean field beside an inference that does not iterate.
_CONVERGED = {"max_iter": 1000, "tol": 1e-8}


class Likelihood(DifferenceLoss):
    """Minus the log-likelihood, with the log-partition function of the inference, D13 section 4.1.

    The true likelihood if the inference is exact, a surrogate likelihood if it is approximate, and the
    truncated likelihood (D13 section 7.3) if it is truncated; with too few iterations the truncated
    likelihood diverges. Hidden labels are summed out: the loss is the difference of two log-partition
    functions, one of them with the labels clamped (Eq 21). With a MAP solver, both are scores of best
    configurations, the saddle point approximation of K05. Its minimum is at zero weights, so that weights
    have to be chosen by their training error instead. The free log-partition function of normalised fields is
    0: if all labels are known, no inference is called, and the loss is convex.

    See Also
    --------
    EM : The same with a second inference for the clamped field.

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

    difference = FreeLogPartition(), ClampedLogPartition()


class EM(DifferenceLoss):
    """Surrogate EM: the likelihood with a second inference for the clamped field, D13 section 4.1.2.

    The log-partition function of the free field comes from the inference of the estimator, that of the field
    with the known labels clamped from a second inference. With converged "trw" for the first and "mean_field"
    for the second, the loss is an upper bound of minus the log-likelihood of the known labels, since TRW
    bounds its log-partition function from above and mean field from below. If all labels are known, the loss
    is `Likelihood`. Examples without labels do not count.

    Parameters
    ----------
    clamped : str, BaseInference or None, default=None
        The inference of the clamped field, by name or as an instance. It is differentiated by the gradient
        strategy of the first inference; if that needs convergence, both inferences have to converge. None is
        mean field with `max_iter` and `tol` of the first inference, or converged mean field if the first
        inference does not iterate.

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

    _parameter_constraints = {"clamped": [StrOptions(set(INFERENCE)), BaseInference, None]}

    def __init__(self, clamped=None):
        self.clamped = clamped

    @property
    def difference(self):
        """Tuple of two callables: the function that is added, and the function that is subtracted."""
        return FreeLogPartition(), ClampedLogPartition(second_inference=self._second_inference)

    def check(self, inference, n_labels, sizes, n_states):
        super().check(inference, n_labels, sizes, n_states)
        self._check_clamped()

    def _check_clamped(self):
        # A gradient strategy is a BaseInference too, but without an inference it has no task.
        if isinstance(self.clamped, BaseInference) and not self.clamped.tasks:
            raise ValueError(
                f"The 'clamped' parameter of EM must be one of {sorted(INFERENCE)}, an inference method or "
                f"None, got {self.clamped!r}."
            )

    def _second_inference(self, inference):
        """Make the inference of the clamped field, differentiated as the first inference is."""
        self._check_clamped()
        try:
            return inference.beside(self._clamped_inference)
        except ValueError as error:
            raise ValueError(f"The inference 'clamped' of EM: {error}") from error

    def _clamped_inference(self, inference):
        if self.clamped is not None:
            return resolve(INFERENCE, self.clamped, name="clamped")
        if inference.tol is None:
            return MeanField(**_CONVERGED)
        return MeanField(max_iter=inference.max_iter, tol=inference.tol)
