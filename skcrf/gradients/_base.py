"""Gradient strategies: inferences whose `backward` is obtained in a chosen way, wrapping another."""

from abc import abstractmethod

from sklearn.base import clone

from skcrf.inference import BaseInference


class BaseGradient(BaseInference):
    """Base class of the strategies.

    A strategy is configured without an inference and then wraps one, which gives an object with the
    inference door: the claims and the answers are those of the wrapped method.
    """

    def wrap(self, inference):
        """Put this strategy around an inference.

        Parameters
        ----------
        inference : BaseInference
            The method that does the work.

        Returns
        -------
        wrapped : BaseGradient
            A clone of this strategy that holds the inference.
        """
        wrapped = clone(self)
        wrapped.inference_ = inference
        for claim in ("tasks", "exact_on", "bound", "differentiates", "resumes"):
            setattr(wrapped, claim, getattr(inference, claim))
        return wrapped

    def forward(self, graph, theta, tau=1.0, *, edges=False, tape=False, start=None):
        resumed = {} if start is None else {"start": start}
        return self.inference_.forward(graph, theta, tau, edges=edges, tape=tape, **resumed)

    def start_of(self, beliefs):
        """Keep what a later `forward` can start from.

        Parameters
        ----------
        beliefs : Beliefs
            What `forward` returned.

        Returns
        -------
        start : object
            What the wrapped inference makes of it.
        """
        return self.inference_.start_of(beliefs)

    @abstractmethod
    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        pass
