"""Log-partition functions with the interface of a loss, and losses that are differences of two of them.

Every function is convex in theta if inference is exact. It is evaluated like a loss, but it is not a loss: it
is not meant to be minimised alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skcrf.graph import Potentials, clamp, scaled, score, score_vjp, sum_by_example
from skcrf.losses._base import BaseLoss


class DifferenceLoss(BaseLoss):
    """Base class of the losses that are differences of two log-partition functions.

    A subclass sets `difference`: the function that is added, such as `FreeLogPartition`, and the function
    that is subtracted, such as `ClampedLogPartition`. Both are convex in theta if inference is exact, and sum
    hidden labels out, or maximise over them. All other attributes follow from these two functions.

    See Also
    --------
    Likelihood : The smallest example.
    """

    needs = frozenset({"log_z"})
    is_convex = True

    @property
    @abstractmethod
    def difference(self):
        """Tuple of two callables: the function that is added, and the function that is subtracted."""

    @property
    def tasks(self):
        """Frozenset: tasks that the inference must support."""
        convex, concave = self.difference
        return convex.tasks | concave.tasks

    @property
    def is_smooth(self):
        """Whether the loss is smooth in theta."""
        return all(part.is_smooth for part in self.difference)

    @property
    def site_weighted(self):
        """Whether nodes can have weights."""
        return self.difference[0].site_weighted

    @property
    def conditions_on_labels(self):
        return self.difference[0].is_zero_if_normalised

    @property
    def reads_tables(self):
        return False

    def second_inference_of(self, inference):
        others = (part.second_inference_of(inference) for part in self.difference)
        return next((other for other in others if other is not None), None)

    def check(self, inference, n_labels, sizes, n_states):
        super().check(inference, n_labels, sizes, n_states)
        for part in self.difference:
            part.check(inference, n_labels, sizes, n_states)

    def _evaluate(self, inference, graph, theta, y, site_weight):
        convex, concave = self.difference
        free, clamped = convex._with_clamped(concave, inference, graph, theta, y, site_weight)
        d_theta = Potentials(*(one - other for one, other in zip(free[1], clamped[1], strict=True)))
        return score_gap(free[0], clamped[0], labelled_examples(graph, y)), d_theta, free[2] & clamped[2]


class LogPartition(ABC):
    """Base class of the log-partition functions.

    Attributes and methods have the meaning that they have for `BaseLoss`. Values of examples without labels
    have no meaning; their derivative is zero.
    """

    needs = frozenset({"log_z"})
    tasks = frozenset()
    is_smooth = True
    is_convex = True
    site_weighted = False
    difference = None
    conditions_on_labels = False
    reads_tables = False
    #: Whether the function is 0 for normalised fields.
    is_zero_if_normalised = False

    @abstractmethod
    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate the function and its derivative, as `BaseLoss.__call__` does."""

    def second_inference_of(self, inference):
        """Make the second inference, as `BaseLoss.second_inference_of` does.

        Parameters
        ----------
        inference : BaseInference
            The first inference.

        Returns
        -------
        second : BaseInference or None
            The second inference; None if the function calls no other.
        """
        return None

    def for_batch(self, numbers):
        """Return the function to evaluate on a batch.

        Parameters
        ----------
        numbers : ndarray of shape (n_examples,)
            Index of each example of the batch in the training set.

        Returns
        -------
        function : LogPartition
            The function itself.
        """
        return self

    def check(self, inference, n_labels, sizes, n_states):  # noqa: B027
        """Raise an error if the function does not support the labels or the inference.

        Parameters
        ----------
        inference : BaseInference
            The inference.
        n_labels : ndarray of shape (n_examples,)
            Number of known labels; 0 for examples that do not count.
        sizes : ndarray of shape (n_examples,)
            Number of nodes.
        n_states : int
            Number of states of a node.
        """

    def _with_clamped(self, clamped, *args):
        """Evaluate this function and the clamped one, which may share computations."""
        return self(*args), clamped(*args)


@dataclass(frozen=True)
class FreeLogPartition(LogPartition):
    """Log-partition function of the free field.

    It is 0 for normalised fields, whose probabilities sum to 1 by construction; for these no inference is
    called.
    """

    is_zero_if_normalised = True

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate the function and its derivative, as `BaseLoss.__call__` does."""
        normalised = graph.normalised > 0
        if normalised.all():
            zeros = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
            return np.zeros(graph.n_examples), zeros, normalised
        d_log_z = labelled_examples(graph, y) * ~normalised
        log_z, d_theta, converged = log_partition(inference, graph, theta, None, d_log_z)
        return np.where(normalised, 0.0, log_z), d_theta, normalised | converged


@dataclass(frozen=True)
class ClampedLogPartition(LogPartition):
    """Log-partition function of the field with the labels clamped.

    If all labels of an example are known, it is the score of the labels, which needs no inference.

    Parameters
    ----------
    tau : float or None, default=None
        Temperature of hidden nodes; None for the default of the inference.
    second_inference : callable or None, default=None
        Function from the inference of the free field to that of the clamped field; None to use the same.
    """

    tau: float | None = None
    second_inference: Callable | None = None

    @property
    def tasks(self):
        """Frozenset: tasks that the inference must support."""
        return frozenset() if self.tau is None else frozenset({"sum" if self.tau > 0 else "max"})

    @property
    def is_smooth(self):
        """Whether the function is smooth in theta."""
        return self.tau != 0

    def second_inference_of(self, inference):
        """Make the inference of the clamped field.

        Parameters
        ----------
        inference : BaseInference
            The inference of the free field.

        Returns
        -------
        second : BaseInference or None
            The second inference; None if the inference is that of the free field.
        """
        return None if self.second_inference is None else self.second_inference(inference)

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate the function and its derivative, as `BaseLoss.__call__` does."""
        counts = labelled_examples(graph, y)
        complete = sum_by_example(y < 0, graph.node_example, graph) == 0
        results = []
        if not complete.all():
            if self.second_inference is not None:
                inference = self.second_inference(inference)
            found = log_partition(inference, graph, clamp(theta, y), self.tau, counts * ~complete)
            results.append((~complete, found))
        if complete.any():
            x = np.maximum(y, 0)  # the state of hidden nodes does not matter
            one_hot = np.eye(theta.unary.shape[1])[x]
            d_score = score_vjp(graph, theta, one_hot, counts * complete)
            results.append((complete, (score(graph, theta, x), d_score, complete)))
        return merged(results)


def score_gap(score, other, counts):
    """Subtract scores; 0 for examples that do not count, and where both are -inf."""
    differs = (counts > 0) & (score != other)
    return np.subtract(score, other, out=np.zeros_like(score), where=differs)


def labelled_examples(graph, y):
    """Compute 1.0 for each example that has a label, else 0.0."""
    return (sum_by_example(y >= 0, graph.node_example, graph) > 0).astype(np.float64)


def log_partition(inference, graph, theta, tau, d_log_z, inner=None):
    """Compute a log-partition function at any temperature: (log_z, d_theta, converged).

    The highest temperature is divided out of the potentials, as ``log_z(theta, tau) = t log_z(theta / t,
    tau / t)``. None is the default temperature of the inference.
    """
    if tau is None:
        beliefs, hottest = inference.forward(graph, theta), 1.0
    else:
        hottest = float(np.max(tau)) or 1.0
        theta = theta if hottest == 1.0 else Potentials(*(part / hottest for part in theta))
        beliefs = inference.forward(graph, theta, tau / hottest, inner=inner)
    return hottest * beliefs.log_z, inference.backward(beliefs, d_log_z=d_log_z), beliefs.converged


def larger(graph, one, other):
    """Take the larger of two results (log_z, d_theta, converged) for each example.

    The maximum converged if both did.
    """
    wins = other[0] > one[0]
    of_one, of_other = (scaled(graph, d, 1.0 * w) for d, w in ((one[1], ~wins), (other[1], wins)))
    return np.maximum(one[0], other[0]), Potentials(*map(np.add, of_one, of_other)), one[2] & other[2]


def merged(results):
    """Merge results for disjoint sets of examples: pairs of examples and (log_z, d_theta, converged)."""
    (_, (log_z, d_theta, converged)), *others = results
    for examples, (other, d_other, other_converged) in others:
        log_z = np.where(examples, other, log_z)
        d_theta = Potentials(*map(np.add, d_theta, d_other))
        converged = np.where(examples, other_converged, converged)
    return log_z, d_theta, converged
