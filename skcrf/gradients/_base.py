"""Gradient strategies, which wrap an inference: their base class, and back-propagation through it."""

from abc import abstractmethod
from numbers import Real
from operator import attrgetter

from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from skcrf._registry import names_of
from skcrf.inference import BaseInference


class BaseGradient(BaseInference):
    """Base class of the gradient strategies.

    A strategy has its own parameters and no inference. `wrap` puts it around an inference; the result is an
    inference with the beliefs and the claims of the wrapped one, and with the `backward` of the strategy.
    Only parameters are not those of the wrapped inference: `tol`, if the strategy has it, is that of its
    solver, and ``inference_.tol`` that of the inference.

    A subclass implements `backward`, and `differentiable` if its derivatives are not those of the inference.
    """

    #: Layouts of graphs that the strategy supports, if the inference does: see `BaseInference`.
    layouts = frozenset({"pairwise", "factor"})
    #: Whether the strategy differentiates truncated inference, ``tol=0``; if not, `wrap` raises an error.
    takes_truncated = True
    #: Whether the strategy needs an inference that has `curvature`; `wrap` raises an error for others.
    needs_curvature = False
    #: Memory in bytes for the messages that are kept from one evaluation to the next; None for no limit.
    max_memory = 2**29

    #: The wrapped inference; None before `wrap`.
    inference_ = None

    exact_on = property(attrgetter("inference_.exact_on"))
    bound = property(attrgetter("inference_.bound"))
    is_random = property(attrgetter("inference_.is_random"))
    resumes = property(attrgetter("inference_.resumes"))
    has_curvature = property(attrgetter("inference_.has_curvature"))
    reads_edges = property(attrgetter("inference_.reads_edges"))

    @property
    def tasks(self):
        """Frozenset: tasks of the wrapped inference; empty before `wrap`."""
        return frozenset() if self.inference_ is None else self.inference_.tasks

    @property
    def differentiates(self):
        """Frozenset: beliefs that `backward` differentiates, a subset of {"mu", "log_z"}."""
        return self.differentiable(self.inference_)

    def differentiable(self, inference):
        """Return the beliefs of an inference that the strategy can differentiate.

        Parameters
        ----------
        inference : BaseInference
            The inference.

        Returns
        -------
        differentiable : frozenset of str
            A subset of {"mu", "log_z"}; by default the one that the inference differentiates itself.
        """
        return inference.differentiates

    def wrap(self, inference):
        """Put this strategy around an inference.

        Parameters
        ----------
        inference : BaseInference
            The inference.

        Returns
        -------
        wrapped : BaseGradient
            A clone of this strategy that holds the inference.
        """
        if inference.tol == 0 and not self.takes_truncated:
            able = self._names_of(lambda strategy: strategy.takes_truncated)
            raise ValueError(
                f"inference must converge for {type(self).__name__}, got {type(inference).__name__} with "
                f"tol=0. Set its tol above 0 or use one of the gradients {able}."
            )
        if self.needs_curvature and not inference.has_curvature:
            able = self._names_of(lambda strategy: not strategy.needs_curvature)
            raise ValueError(
                f"inference must have a curvature for {type(self).__name__}, got {type(inference).__name__}, "
                f"which has none. Use one of the gradients {able}."
            )
        wrapped = clone(self)
        wrapped.inference_ = inference
        wrapped.layouts = self.layouts & inference.layouts
        return wrapped

    def beside(self, choose):
        return self.wrap(choose(self.inference_))

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        options = {"edges": edges, "tape": self._tape(tape), "start": start, "inner": inner}
        return self.inference_.forward(graph, theta, tau, **options)

    def _tape(self, tape):
        """Return whether the inference records a tape, or the memory for it in bytes."""
        return tape

    def start_of(self, beliefs):
        return self.inference_.start_of(beliefs)

    def statistics(self, graph, beliefs):
        return self.inference_.statistics(graph, beliefs)

    def curvature(self, graph, theta, beliefs):
        return self.inference_.curvature(graph, theta, beliefs)

    def part_of(self, graph, selection):
        part = self.inference_.part_of(graph, selection)
        return self if part is self.inference_ else self.wrap(part)

    def _names_of(self, condition):
        from skcrf.gradients import GRADIENTS  # not complete while this module is imported

        return names_of(GRADIENTS, condition)

    @abstractmethod
    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        pass


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
        Maximum size of a tape in bytes, per batch. Larger tapes keep about ``2 * sqrt(max_iter)`` states in
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

    layouts = frozenset({"pairwise", "factor", "potts"})

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
