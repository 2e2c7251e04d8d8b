"""Back-propagation."""

from numbers import Real

from sklearn.utils._param_validation import Interval, StrOptions

from skcrf.gradients._base import BaseGradient, is_truncated


class Backprop(BaseGradient):
    """Back-propagation through the inference, D13 section 7.

    Parameters
    ----------
    mode : {"auto", "truncated", "fixed_point"}, default="auto"
        "truncated" differentiates the very iterations that were done, which are kept on a tape.
        "fixed_point" iterates the adjoint at the fixed point, which needs no tape and memory that does
        not grow with the number of iterations, but is right only where the inference converged. "auto"
        is truncated where the inference is (``tol=0``).
    max_memory : float or None, default=2**29
        Bytes above which the tape of a batch has gaps: then about ``2 * sqrt(max_iter)`` states are kept in
        place of `max_iter`, and one more pass through the inference fills the gaps, with the same result.
        Also the bytes above which no messages are kept from one evaluation to the next. None for no limit.

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
        wrapped = super().wrap(inference)
        truncated = is_truncated(inference)
        if truncated and self.mode == "fixed_point":
            raise ValueError(
                f"Backprop(mode='fixed_point') needs an inference that converges, but "
                f"{type(inference).__name__} has tol=0: give it a tol above 0."
            )
        wrapped.keeps_tape_ = self.mode == "truncated" or (self.mode == "auto" and truncated)
        # What is differentiated is the way from a start that does not depend on theta.
        wrapped.resumes = wrapped.resumes and not wrapped.keeps_tape_
        return wrapped

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        if self.keeps_tape_ and not tape:
            tape = True if self.max_memory is None else max(1.0, self.max_memory)
        return super().forward(graph, theta, tau, edges=edges, tape=tape, start=start, inner=inner)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return self.inference_.backward(beliefs, d_mu, d_edge_mu, d_log_z)
