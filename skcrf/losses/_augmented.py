"""Log-partition function of the field with the costs of wrong labels, at two temperatures."""

from dataclasses import dataclass
from itertools import pairwise
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from skcrf._registry import names_of
from skcrf.graph import ExampleError, Potentials, augment, clamp, sum_by_example
from skcrf.inference import INFERENCE
from skcrf.losses._log_partition import (
    ClampedLogPartition,
    LogPartition,
    labelled_examples,
    larger,
    log_partition,
    merged,
)

# Configurations of the labelled nodes of an example that are enumerated at most.
_MAX_CONFIGURATIONS = 2**12
# Larger costs would leave no digits of the potentials to which they are added.
_MAX_COST = 1e12


@dataclass(frozen=True)
class AugmentedLogPartition(LogPartition):
    """Log-partition function of the free field with the costs of wrong labels, P16 Eq 4.6, first term.

    At ``eps_y=0`` the score of the correct labels is a lower bound of the maximum. If an approximate
    inference finds a lower score, the bound is used, so that the slack in P16 Eq 4.4 is at least 0.

    Parameters
    ----------
    eps_y : float
        Temperature of labelled nodes.
    eps_h : float
        Temperature of hidden nodes, which are summed out (or maximised over) first.
    cost : float or array-like of shape (n_states, n_states), default=1.0
        Cost of a wrong label, or of each wrong label (column) for each correct label (row).
    """

    eps_y: float
    eps_h: float
    cost: ArrayLike = 1.0

    site_weighted = True

    @property
    def tasks(self):
        """Frozenset: tasks that the inference must support."""
        tasks = {"sum" if eps > 0 else "max" for eps in (self.eps_y, self.eps_h)}
        return frozenset(tasks | ({"mixed"} if self.eps_y == 0 < self.eps_h else set()))

    @property
    def is_smooth(self):
        """Whether the function is smooth in theta."""
        return min(self.eps_y, self.eps_h) > 0

    def check(self, inference, n_labels, sizes, n_states):
        _check_cost(self.cost, n_states)
        many = (n_labels < sizes) & (n_labels * np.log2(n_states) > np.log2(_MAX_CONFIGURATIONS))
        if many.any() and self._enumerates(inference):
            example = int(np.argmax(many))
            able = names_of(INFERENCE, lambda method: "tempered" in method.tasks)
            raise ExampleError(
                f"eps_y and eps_h must be equal, or eps_y 0, for {type(inference).__name__}, got "
                f"eps_y={self.eps_y} and eps_h={self.eps_h} with {n_labels[example]} labels of {n_states} "
                f"states in {{example}}: more than {_MAX_CONFIGURATIONS} configurations of the known labels "
                f"would be enumerated. Use equal temperatures, or one of the inferences {able}, which have "
                "the task 'tempered'.",
                example,
            )

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate the function and its derivative, as `BaseLoss.__call__` does."""
        found = self._inferred(inference, graph, theta, y, site_weight)
        if self._exceeds_labels(inference):
            return found
        # Neither correct nor hidden labels have a cost, so that it does not matter for their score.
        return larger(graph, found, ClampedLogPartition(self.eps_h)(inference, graph, theta, y))

    def _with_clamped(self, clamped, inference, graph, *args):
        found, bound = self._inferred(inference, graph, *args), clamped(inference, graph, *args)
        return found if self._exceeds_labels(inference) else larger(graph, found, bound), bound

    def _exceeds_labels(self, inference):
        """Whether the inferred value is never below the score of the correct labels."""
        return self.eps_y > 0 or inference.exact_on == "any"

    def _inferred(self, inference, graph, theta, y, site_weight=None):
        """Compute the value that the inference finds, which may be below the score of the labels."""
        cost = np.asarray(self.cost, dtype=np.float64)
        cost = cost[y] if cost.ndim else cost  # any row for hidden labels, to which no cost is added
        if site_weight is not None:
            cost = cost * np.reshape(site_weight, (-1,) + (1,) * (np.ndim(cost) - 1))
        theta, counts = augment(theta, y, cost), labelled_examples(graph, y)
        if self.eps_y == self.eps_h:
            return log_partition(inference, graph, theta, self.eps_y, counts)
        # Examples without hidden nodes have a single temperature, whatever others are in the batch.
        hides = sum_by_example(y < 0, graph.node_example, graph) > 0
        results = []
        if not hides.all():
            results.append((~hides, log_partition(inference, graph, theta, self.eps_y, counts * ~hides)))
        if hides.any():
            results.append((hides, self._hidden_first(inference, graph, theta, y, counts * hides)))
        return merged(results)

    def _hidden_first(self, inference, graph, theta, y, counts):
        """Eliminate hidden nodes before the others, which are enumerated if the inference cannot do this."""
        if self._enumerates(inference):
            return self._enumerated(inference, graph, theta, y, counts)
        tau = np.where(y >= 0, self.eps_y, self.eps_h)
        return log_partition(inference, graph, theta, tau, counts, inner=y < 0)

    def _enumerates(self, inference):
        return self.eps_h != self.eps_y > 0 and "tempered" not in inference.tasks

    def _enumerated(self, inference, graph, theta, y, counts):
        configurations = _configurations(graph, theta, y, counts)
        log_z = [
            log_partition(inference, graph, clamp(theta, x), self.eps_h, np.zeros_like(counts))[0]
            for x, _ in configurations
        ]
        valid = np.array([examples for _, examples in configurations])
        scores = np.where(valid, log_z, -np.inf) / self.eps_y
        top = scores.max(axis=0)
        weight = np.exp(scores - top)
        total = weight.sum(axis=0)
        d_theta = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
        converged = np.ones(len(counts), dtype=bool)
        for (x, _), probability in zip(configurations, weight / total, strict=True):
            found = log_partition(inference, graph, clamp(theta, x), self.eps_h, counts * probability)
            d_theta = Potentials(*map(np.add, d_theta, found[1]))
            converged &= found[2]
        return self.eps_y * (top + np.log(total)), d_theta, converged


def _configurations(graph, theta, y, counts):
    """List all states of the labelled nodes, of all examples at once, and the examples that have them.

    Other examples, which do not count, have fewer configurations or forbid this one, have their labels.
    """
    n_states = theta.unary.shape[1]
    known = (y >= 0) & (counts[graph.node_example] > 0)
    n_known = np.bincount(graph.node_example[known], minlength=graph.n_examples)
    sizes = n_states**n_known
    digit = np.zeros(len(y), dtype=np.int64)  # index of each labelled node among those of its example
    for first, last in pairwise(graph.node_ptr):
        digit[first:last] = np.maximum(np.cumsum(known[first:last]) - 1, 0)
    found = []
    for number in range(sizes.max()):
        states = number // n_states**digit % n_states
        impossible = known & np.isneginf(theta.unary[np.arange(len(y)), states])
        valid = (number < sizes) & (sum_by_example(impossible, graph.node_example, graph) == 0)
        found.append((np.where(known & valid[graph.node_example], states, y), valid))
    return found


def _check_cost(cost, n_states):
    """Raise an error if the costs of wrong labels are not valid."""
    if isinstance(cost, Real):
        cost = cost * (1 - np.eye(n_states))
    expected = (
        f"cost must be a number or an array of shape ({n_states}, {n_states}), with one row per correct "
        "label and one column per predicted label in the order of the classes"
    )
    try:
        table = check_array(cost, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name="cost")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected}: {error}") from error
    if table.shape != (n_states, n_states):
        raise ValueError(f"{expected}, got shape {table.shape}.")
    if (table < 0).any() or np.diagonal(table).any():
        raise ValueError(
            f"cost must be at least 0, and 0 on the diagonal, got a minimum of {table.min():g} and the "
            f"diagonal {np.diagonal(table).tolist()}. Correct labels have no cost."
        )
    if table.max() > _MAX_COST:
        raise ValueError(f"cost must be at most {_MAX_COST:g}, got an entry of {table.max():g}.")
