"""Losses that compare the labels with one configuration: where marginals are largest, or a sample."""

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
from skcrf.losses._log_partition import above, labelled


def score_difference(graph, theta, x, right, counts):
    """Compute by how much the score of a configuration is above that of another.

    Parameters
    ----------
    graph : Graph
        Structure.
    theta : Potentials
        Potentials.
    x, right : ndarray of shape (n_nodes,)
        The two configurations.
    counts : ndarray of shape (n_examples,)
        How often each example counts.

    Returns
    -------
    value : ndarray of shape (n_examples,)
        Differences of the scores.
    d_theta : Potentials
        Derivative of their sum, where both configurations stay what they are.
    """
    value = above(score(graph, theta, x), score(graph, theta, right), counts)
    one_hot = np.eye(theta.unary.shape[1])
    pulled = (score_vjp(graph, theta, one_hot[one], counts) for one in (x, right))
    return value, Potentials(*map(np.subtract, *pulled))


class MaximumMarginal(BaseLoss):
    """Maximum marginal approximation: the score where marginals are largest minus that of the labels, K05.

    The likelihood's derivative with what is expected in place of it taken at one configuration, the one that
    "mpm" decoding predicts; labels are learned until that is right. Not the derivative of the likelihood, nor
    of any smooth function: gradient steps end in limit cycles, for which its optimizer, "subgradient",
    keeps the best weights so far. Hidden labels are predicted in the same way, given the others.

    See Also
    --------
    Likelihood : What it approximates; with a MAP solver, by the most probable configuration.

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

    needs = frozenset()
    tasks = frozenset({"sum"})
    rounds = True
    subgradient = True
    optimizer = "subgradient"

    def _evaluate(self, inference, graph, theta, y, site_weight):
        beliefs = inference.forward(graph, theta)
        x, right, converged = beliefs.mu.argmax(axis=1), y, beliefs.converged
        if (y < 0).any():
            clamped = inference.forward(graph, clamp(theta, y))
            right = np.where(y < 0, clamped.mu.argmax(axis=1), y)
            complete = np.bincount(graph.node_example[y < 0], minlength=graph.n_examples) == 0
            converged = converged & (complete | clamped.converged)
        return *score_difference(graph, theta, x, right, labelled(graph, y)), converged


class ContrastiveDivergence(BaseLoss):
    """Contrastive divergence: the score of a sample that starts from the labels minus that of these, K05.

    The likelihood's derivative with what is expected in place of it taken at one configuration, which a few
    sweeps of Gibbs sampling make of the labels: what the model changes in them it likes too much. Calls no
    inference. The value is not that of the likelihood, nor is it to be compared between weights:
    its optimizer is "subgradient", which keeps weights by their training error. Hidden labels are drawn
    first, given the others, and sampled with them.

    Parameters
    ----------
    n_sweeps : int, default=1
        Sweeps over all sites; the more, the nearer to the likelihood.
    random_state : int, default=0
        Of what is drawn. Draws depend on it, on the labels of the example and on its number in the training
        set, so that they are the same in every evaluation, and for any number of jobs.

    See Also
    --------
    Pseudolikelihood : What single sites are given their neighbours, without sampling.

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

    rounds = True
    subgradient = True
    draws = True
    optimizer = "subgradient"
    graphs = "pairwise"

    def __init__(self, n_sweeps=1, random_state=0):
        self.n_sweeps = n_sweeps
        self.random_state = random_state

    def numbered(self, numbers):
        """Tell examples apart that have equal labels: they must not share what is drawn.

        Parameters
        ----------
        numbers : ndarray of shape (n_examples,)
            The number of each example of a batch among all.

        Returns
        -------
        loss : ContrastiveDivergence
            For this batch alone.
        """
        loss = copy(self)
        loss._numbers = numbers
        return loss

    def _evaluate(self, inference, graph, theta, y, site_weight):
        y = np.ascontiguousarray(y, dtype=np.int64)
        numbers = getattr(self, "_numbers", np.zeros(graph.n_examples, dtype=np.int64))
        own = [
            np.append(y[first:last], number)
            for (first, last), number in zip(pairwise(graph.node_ptr), numbers, strict=True)
        ]
        given = self.random_state
        hidden_seeds, seeds = ([crc32(labels, seed) for labels in own] for seed in (given + 1, given))
        draw, right = partial(Gibbs().sample, graph, n_sweeps=self.n_sweeps), y
        if (y < 0).any():
            right = draw(clamp(theta, y), init=y, seeds=hidden_seeds)
        x = draw(theta, init=right, seeds=seeds)
        converged = np.ones(graph.n_examples, dtype=bool)
        return *score_difference(graph, theta, x, right, labelled(graph, y)), converged
