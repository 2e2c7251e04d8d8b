"""Losses that compare the labels with a single configuration: the largest marginals, or a sample."""

from copy import copy
from functools import partial
from itertools import pairwise
from numbers import Integral
from zlib import crc32

import numpy as np
from sklearn.utils._param_validation import Interval

from skcrf.graph import Potentials, clamp, score, score_vjp
from skcrf.inference import Gibbs
from skcrf.losses._base import BaseLoss
from skcrf.losses._log_partition import labelled_examples, score_gap


def _score_difference(graph, theta, x, right, counts):
    """Subtract the score of `right` from that of `x`; the derivative is for fixed configurations."""
    value = score_gap(score(graph, theta, x), score(graph, theta, right), counts)
    one_hot = np.eye(theta.unary.shape[1])
    d_scores = (score_vjp(graph, theta, one_hot[states], counts) for states in (x, right))
    return value, Potentials(*map(np.subtract, *d_scores))


class MaximumMarginal(BaseLoss):
    """Maximum marginal approximation: the score of the largest marginals minus that of the labels, K05.

    Replaces the expectation in the gradient of the likelihood by a single configuration, the label with the
    largest marginal at each site, so that weights change until this prediction is right. The result is not
    the gradient of the likelihood, nor of any smooth function: steps along it end in limit cycles, and an
    optimizer has to keep the best weights. Hidden labels are predicted in the same way, given the others.

    See Also
    --------
    Likelihood : The loss that it approximates; with a MAP solver, by the most probable configuration.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.inference import Tree
    >>> from skcrf.losses import MaximumMarginal
    >>> theta = Potentials(np.array([[0.0, 0.4], [0.0, 0.4], [0.0, 3.0]]), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = MaximumMarginal()(Tree(), chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([0.4])
    """

    tasks = frozenset({"sum"})
    is_smooth = False

    @property
    def reads_tables(self):
        return False

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta)
        x, right, converged = beliefs.mu.argmax(axis=1), y, beliefs.converged
        if (y < 0).any():
            clamped = inference.forward(graph, clamp(theta, y))
            right = np.where(y < 0, clamped.mu.argmax(axis=1), y)
            complete = np.bincount(graph.node_example[y < 0], minlength=graph.n_examples) == 0
            converged = converged & (complete | clamped.converged)
        return *_score_difference(graph, theta, x, right, labelled_examples(graph, y)), converged


class ContrastiveDivergence(BaseLoss):
    """Contrastive divergence: the score of a sample, started at the labels, minus that of the labels, K05.

    Replaces the expectation in the gradient of the likelihood by a single configuration, the labels after a
    few sweeps of Gibbs sampling. Calls no inference. The value is not that of the likelihood, and values at
    different weights cannot be compared, so that weights have to be chosen by their training error. Hidden
    labels are sampled first, given the others.

    Parameters
    ----------
    n_sweeps : int, default=1
        Sweeps over all sites. With more sweeps, the loss is closer to the likelihood.
    random_state : int, default=0
        Seed of the samples. They also depend on the labels of the example and on its index in the training
        set, so that every evaluation draws the same samples for any number of jobs.

    See Also
    --------
    Pseudolikelihood : Single sites given their neighbours, without sampling.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.graph import Potentials, chain
    >>> from skcrf.losses import ContrastiveDivergence
    >>> theta = Potentials(np.array([[0.0, 50.0], [0.0, 50.0], [0.0, 3.0]]), np.zeros((1, 2, 2)))
    >>> value, d_theta, converged = ContrastiveDivergence()(None, chain(3), theta, np.array([0, 1, -1]))
    >>> value.round(3)
    array([50.])
    """

    _parameter_constraints = {
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        "random_state": [Interval(Integral, 0, 2**31 - 1, closed="both")],
    }

    is_smooth = False
    graphs = "pairwise"

    # Index of each example in the training set; None for zeros.
    _numbers = None

    def __init__(self, n_sweeps=1, random_state=0):
        self.n_sweeps = n_sweeps
        self.random_state = random_state

    def for_batch(self, numbers):
        loss = copy(self)
        loss._numbers = numbers
        return loss

    def _evaluate(self, inference, graph, theta, y, site_weight):
        y = np.ascontiguousarray(y, dtype=np.int64)
        numbers = np.zeros(graph.n_examples, dtype=np.int64) if self._numbers is None else self._numbers
        # Examples with equal labels draw different samples.
        keys = [
            np.append(y[first:last], number)
            for (first, last), number in zip(pairwise(graph.node_ptr), numbers, strict=True)
        ]
        hidden_seeds, seeds = (
            [crc32(key, seed) for key in keys] for seed in (self.random_state + 1, self.random_state)
        )
        draw, right = partial(Gibbs().sample, graph, n_sweeps=self.n_sweeps), y
        if (y < 0).any():
            right = draw(clamp(theta, y), init=y, seeds=hidden_seeds)
        x = draw(theta, init=right, seeds=seeds)
        converged = np.ones(graph.n_examples, dtype=bool)
        return *_score_difference(graph, theta, x, right, labelled_examples(graph, y)), converged
