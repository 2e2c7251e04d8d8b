"""Losses that are differences of two log-partition functions, and the two halves of them.

Each half is convex in theta where inference is exact, so that the difference is what the concave-convex
procedure takes. A half has the door of a loss, and is none: it is not to be minimised alone, and what it does
not take is for the loss to refuse.
"""

from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from skcrf.graph import ExampleError, Potentials, augment, clamp, scaled, score, score_vjp, sum_by_example
from skcrf.losses._base import BaseLoss

# Configurations of the labelled sites of an example that are enumerated at most.
_MOST_CONFIGURATIONS = 2**12
# Costs beyond would leave nothing of the potentials that they are added to.
_HIGHEST_COST = 1e12


class DifferenceLoss(BaseLoss):
    """A loss that is `convex` minus `concave`, two halves that differ in what is known of the labels."""

    needs = frozenset({"log_z"})
    tasks = frozenset()
    is_convex = True

    @property
    @abstractmethod
    def convex(self):
        """Callable: the half that is added."""

    @property
    @abstractmethod
    def concave(self):
        """Callable: the half that is subtracted."""

    def _halves(self, *asked):
        """Evaluate both."""
        return self.convex(*asked), self.concave(*asked)

    def _evaluate(self, inference, graph, theta, y, site_weight):
        free, clamped = self._halves(inference, graph, theta, y, site_weight)
        d_theta = Potentials(*(one - other for one, other in zip(free[1], clamped[1], strict=True)))
        return above(free[0], clamped[0], labelled(graph, y)), d_theta, free[2] & clamped[2]


def above(score, right, counts):
    """Compute by how much scores are above others: not at all where both are of what is impossible.

    Parameters
    ----------
    score, right : ndarray of shape (n_examples,)
        Scores; -inf where an approximation chose what is impossible.
    counts : ndarray of shape (n_examples,)
        1 for examples that count, else 0.

    Returns
    -------
    above : ndarray of shape (n_examples,)
        Differences, 0 for examples that do not count.
    """
    some = (counts > 0) & (score != right)
    return np.subtract(score, right, out=np.zeros_like(score), where=some)


def labelled(graph, y):
    """Tell which examples have a label.

    Parameters
    ----------
    graph : Graph
        Structure.
    y : ndarray of shape (n_nodes,)
        Labels, -1 where hidden.

    Returns
    -------
    labelled : ndarray of shape (n_examples,)
        1 for those that have one, else 0: their loss is counted so often.
    """
    return (sum_by_example(y >= 0, graph.node_example, graph) > 0).astype(np.float64)


def _refuse_costs(cost, n_states):
    """Refuse what cannot be the cost of wrong labels; that a number is not negative was seen before."""
    if isinstance(cost, Real):
        cost = cost * (1 - np.eye(n_states))
    expected = (
        f"expected ({n_states}, {n_states}): a row for each right label, a column for each that is "
        "predicted, in the order of the classes"
    )
    try:
        table = check_array(cost, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name="cost")
    except (TypeError, ValueError) as error:
        raise ValueError(f"cost is no table of numbers, {expected}: {error}") from error
    if table.shape != (n_states, n_states):
        raise ValueError(f"cost has shape {table.shape}, {expected}.")
    if (table < 0).any() or np.diagonal(table).any():
        raise ValueError("cost must be at least 0, and 0 on its diagonal: right labels cost nothing.")
    if table.max() > _HIGHEST_COST:
        raise ValueError(f"cost has an entry of {table.max():g}, expected at most {_HIGHEST_COST:g}.")


def log_z_at(inference, graph, theta, tau, d_log_z, **inner):
    """Compute a log-partition function at any temperature: the highest is divided out of the potentials.

    Parameters
    ----------
    inference : BaseInference
        The inference.
    graph : Graph
        Structure.
    theta : Potentials
        Potentials.
    tau : float, ndarray of shape (n_nodes,) or None
        Temperature; None for what the inference does by itself.
    d_log_z : ndarray of shape (n_examples,)
        Derivative of some value with respect to the answer.
    **inner : dict
        ``inner=`` for inferences that are told which nodes to eliminate first.

    Returns
    -------
    log_z : ndarray of shape (n_examples,)
        The answer.
    d_theta : Potentials
        Derivative of that value with respect to theta.
    converged : ndarray of shape (n_examples,)
        Whether the inference did.
    """
    if tau is None:
        beliefs, hottest = inference.forward(graph, theta), 1.0
    else:
        hottest = float(np.max(tau)) or 1.0
        scaled = theta if hottest == 1.0 else Potentials(*(part / hottest for part in theta))
        beliefs = inference.forward(graph, scaled, tau / hottest, **inner)
    return hottest * beliefs.log_z, inference.backward(beliefs, d_log_z=d_log_z), beliefs.converged


def higher(graph, one, other):
    """Take the higher of two answers for each example.

    Parameters
    ----------
    graph : Graph
        Structure.
    one, other : tuple
        log_z of shape (n_examples,), d_theta, and converged of shape (n_examples,).

    Returns
    -------
    higher : tuple
        The same of the higher one, which converged where both did.
    """
    wins = other[0] > one[0]
    of_one, of_other = (scaled(graph, d, 1.0 * w) for d, w in ((one[1], ~wins), (other[1], wins)))
    return np.maximum(one[0], other[0]), Potentials(*map(np.add, of_one, of_other)), one[2] & other[2]


def _together(graph, parts):
    """Add answers of which each is for some examples: (examples, (log_z, d_theta, converged))."""
    (_, (log_z, d_theta, converged)), *others = parts
    for examples, (other, d_other, other_converged) in others:
        log_z = np.where(examples, other, log_z)
        d_theta = Potentials(*map(np.add, d_theta, d_other))
        converged = np.where(examples, other_converged, converged)
    return log_z, d_theta, converged


class Free(NamedTuple):
    """log_z of the free field.

    The probabilities of a directed model sum to 1, whatever its parameters: that needs no inference.
    """

    needs = frozenset({"log_z"})
    half = "convex"
    draws = False
    tasks = frozenset()
    difference = None
    is_smooth = property(lambda self: not self.subgradient)
    for_batch = lambda self, numbers: self
    clamps = True
    subgradient = False

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate, as a loss does."""
        known = graph.normalised > 0
        if known.all():
            none = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
            return np.zeros(graph.n_examples), none, known
        log_z, d_theta, converged = log_z_at(inference, graph, theta, None, labelled(graph, y) * ~known)
        return np.where(known, 0.0, log_z), d_theta, known | converged


class Augmented(NamedTuple):
    """log_z of the free field with what wrong labels cost, at two temperatures: P16 Eq 4.6, its first half.

    Where labels are maximised the right ones are a candidate, whose score an inference that is not exact may
    fail to reach: then it is theirs, P16 Eq 4.4 with slack at least 0.

    Attributes
    ----------
    eps_y : float
        Temperature of labelled sites.
    eps_h : float
        Temperature of hidden sites, which are summed out (or maximised) first.
    cost : float or array-like of shape (n_states, n_states)
        What a wrong label costs, or each instead of each right one.
    """

    eps_y: float
    eps_h: float
    cost: ArrayLike = 1.0

    needs = frozenset({"log_z"})
    half = "convex"
    draws = False
    tasks = frozenset()
    difference = None
    is_smooth = property(lambda self: not self.subgradient)
    for_batch = lambda self, numbers: self
    clamps = False

    @property
    def subgradient(self):
        """Whether there are kinks."""
        return min(self.eps_y, self.eps_h) == 0

    def check(self, inference, n_labels, sizes, n_states):
        """Refuse costs that are none, and labels that are too many to be enumerated, as a loss does."""
        _refuse_costs(self.cost, n_states)
        many = (n_labels < sizes) & (n_labels * np.log2(n_states) > np.log2(_MOST_CONFIGURATIONS))
        if many.any() and self._enumerates(inference):
            example = int(np.argmax(many))
            raise ExampleError(
                f"Where temperatures differ, as eps_y={self.eps_y} and eps_h={self.eps_h} do, an inference "
                f"without the task 'tempered' needs the known labels of an example to be enumerated, but "
                f"{n_labels[example]} labels of {n_states} states in {{example}} are more than "
                f"{_MOST_CONFIGURATIONS} configurations. Take inference 'exact', or equal temperatures.",
                example,
            )

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate, as a loss does."""
        found = self.found(inference, graph, theta, y, site_weight)
        if self.reaches(inference):
            return found
        # The right labels cost nothing, nor do hidden ones: with costs or without, their score is the same.
        return higher(graph, found, Clamped(self.eps_h)(inference, graph, theta, y))

    def reaches(self, inference):
        """Tell whether what an inference finds is never below the score of the right labels.

        Parameters
        ----------
        inference : BaseInference
            The inference.

        Returns
        -------
        reaches : bool
            If not, that score has to be a candidate.
        """
        return self.eps_y > 0 or inference.exact_on == "any"

    def found(self, inference, graph, theta, y, site_weight=None):
        """Evaluate, with no other candidate than what the inference finds."""
        cost = np.asarray(self.cost, dtype=np.float64)
        cost = cost[y] if cost.ndim else cost  # of hidden labels any row, as nothing is added there
        if site_weight is not None:
            cost = cost * np.reshape(site_weight, (-1,) + (1,) * (np.ndim(cost) - 1))
        return self._free(inference, graph, augment(theta, y, cost), y)

    def _free(self, inference, graph, theta, y):
        counts = labelled(graph, y)
        if self.eps_y == self.eps_h:
            return log_z_at(inference, graph, theta, self.eps_y, counts)
        # What is asked for an example must not depend on others in the batch: those without hidden sites
        # have one temperature.
        hides = sum_by_example(y < 0, graph.node_example, graph) > 0
        parts = []
        if not hides.all():
            parts.append((~hides, log_z_at(inference, graph, theta, self.eps_y, counts * ~hides)))
        if hides.any():
            parts.append((hides, self._hidden_first(inference, graph, theta, y, counts * hides)))
        return _together(graph, parts)

    def _hidden_first(self, inference, graph, theta, y, counts):
        """Eliminate hidden sites, then the others: by the inference if it can, else these are enumerated."""
        if self._enumerates(inference):
            return self._enumerated(inference, graph, theta, y, counts)
        tau = np.where(y >= 0, self.eps_y, self.eps_h)
        inner = {"inner": y < 0} if "tempered" in inference.tasks else {}  # else sums are inside of maxima
        return log_z_at(inference, graph, theta, tau, counts, **inner)

    def _enumerates(self, inference):
        return self.eps_h != self.eps_y > 0 and "tempered" not in inference.tasks

    def _enumerated(self, inference, graph, theta, y, counts):
        configurations = _configurations(graph, theta, y, counts)
        every = [
            log_z_at(inference, graph, clamp(theta, x), self.eps_h, np.zeros_like(counts))[0]
            for x, _ in configurations
        ]
        own = np.array([valid for _, valid in configurations])
        scores = np.where(own, every, -np.inf) / self.eps_y
        top = scores.max(axis=0)
        weight = np.exp(scores - top)
        total = weight.sum(axis=0)
        d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        converged = np.ones(len(counts), dtype=bool)
        for (x, _), share in zip(configurations, weight / total, strict=True):
            answer = log_z_at(inference, graph, clamp(theta, x), self.eps_h, counts * share)
            d_theta = Potentials(*map(np.add, d_theta, answer[1]))
            converged &= answer[2]
        return self.eps_y * (top + np.log(total)), d_theta, converged


def _configurations(graph, theta, y, counts):
    """All states of the labelled sites, for every example at once: (states, examples that have them so).

    Of examples that do not count, and where a state is forbidden, the labels again.
    """
    n_states = theta.unary.shape[1]
    known = (y >= 0) & (counts[graph.node_example] > 0)
    n_known = np.bincount(graph.node_example[known], minlength=graph.n_examples)
    sizes = n_states**n_known
    place = np.zeros(len(y), dtype=np.int64)  # of each labelled site among those of its example
    for first, last in pairwise(graph.node_ptr):
        place[first:last] = np.maximum(np.cumsum(known[first:last]) - 1, 0)
    found = []
    for number in range(sizes.max()):
        states = number // n_states**place % n_states
        impossible = known & np.isneginf(theta.unary[np.arange(len(y)), states])
        own = (number < sizes) & (sum_by_example(impossible, graph.node_example, graph) == 0)
        found.append((np.where(known & own[graph.node_example], states, y), own))
    return found


class Clamped(NamedTuple):
    """log_z with the labels clamped.

    Where an example has all its labels one configuration is left, whose score needs no inference, whatever
    others are in the batch.

    Attributes
    ----------
    tau : float or None
        Temperature of hidden sites; None for what the inference does by itself.
    beside : callable or None
        From the inference of the free field to that of this one, where that is another.
    """

    tau: float | None = None
    beside: Callable | None = None

    needs = frozenset({"log_z"})
    half = "concave"
    draws = False
    tasks = frozenset()
    difference = None
    is_smooth = property(lambda self: not self.subgradient)
    for_batch = lambda self, numbers: self
    clamps = True

    @property
    def subgradient(self):
        """Whether there are kinks."""
        return self.tau == 0

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate, as a loss does."""
        counts = labelled(graph, y)
        known = sum_by_example(y < 0, graph.node_example, graph) == 0
        parts = []
        if not known.all():
            other = inference if self.beside is None else self.beside(inference)
            parts.append((~known, log_z_at(other, graph, clamp(theta, y), self.tau, counts * ~known)))
        if known.any():
            x = np.maximum(y, 0)  # of hidden labels nothing is asked
            one_hot = np.eye(theta.unary.shape[1])[x]
            d_score = score_vjp(graph, theta, one_hot, counts * known)
            parts.append((known, (score(graph, theta, x), d_score, known)))
        return _together(graph, parts)
