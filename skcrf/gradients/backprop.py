"""Back-propagation through the inference."""

from numbers import Real

from sklearn.utils._param_validation import Interval, StrOptions

from skcrf.gradients._base import BaseGradient


class Backprop(BaseGradient):
    """Back-propagation through the inference, D13 section 7.

    Parameters
    ----------
    mode : {"auto", "truncated", "fixed_point"}, default="auto"
        "truncated" differentiates the iterations that were done, which are kept on a tape. "fixed_point"
        iterates the adjoint at the fixed point, which needs no tape, so that memory does not grow with the
        number of iterations, but is correct only if the inference converged. "auto" is "truncated" if the
        inference is truncated (``tol=0``), else "fixed_point".
    max_memory : float or None, default=2**29
        Maximal size of a tape in bytes, per batch. Larger tapes keep about ``2 * sqrt(max_iter)`` states in
        place of `max_iter` and compute the others again, with the same result. Also the maximal size of the
        messages that are kept from one evaluation to the next. None for no limit.

    Examples
    --------
    >>> from skcrf.gradients import Backprop
    >>> from skcrf.inference import TRW
    >>> Backprop().wrap(TRW(max_iter=5)).exact_on
    'forest'
    """

    _parameter_constraints = {
        "mode": [StrOptions({"auto", "truncated", "fixed_point"})],
        "max_memory": [Interval(Real, 0, None, closed="left"), None],
    }

    def __init__(self, mode="auto", max_memory=2**29):
        self.mode = mode
        self.max_memory = max_memory

    def wrap(self, inference):
        if inference.tol == 0 and self.mode == "fixed_point":
            raise ValueError(
                "inference must converge for Backprop(mode='fixed_point'), got "
                f"{type(inference).__name__} with tol=0. Set its tol above 0 or use mode='auto'."
            )
        return super().wrap(inference)

    @property
    def _keeps_tape(self):
        return self.mode == "truncated" or (self.mode == "auto" and self.inference_.tol == 0)

    @property
    def resumes(self):
        """Whether `forward` can resume from earlier beliefs: not on a tape, whose start must be constant."""
        return self.inference_.resumes and not self._keeps_tape

    def _tape(self, tape):
        if not self._keeps_tape or tape:
            return tape
        return True if self.max_memory is None else max(1.0, self.max_memory)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return self.inference_.backward(beliefs, d_mu, d_edge_mu, d_log_z)
