"""What directed models can do that others cannot: samples and likelihoods without approximation."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from skcrf.data import by_their_numbers, like_container
from skcrf.estimators._prediction import by_example
from skcrf.graph import clamp, score, sum_by_example
from skcrf.inference import BaseInference
from skcrf.models import ancestral_samples
from skcrf.models.features import potentials, scores
from skcrf.models.weights import Weights
from skcrf.training.convergence import not_inferred, warn_of


class Draw(NamedTuple):
    """Draws labels; all that travels to where a batch is.

    Attributes
    ----------
    weights : Weights
        Parameters.
    seeds : ndarray of shape (n_examples,)
        A seed for each example of the batch, so that its samples do not depend on the others.
    n_samples : int
        Number of samples of each example.
    """

    weights: Weights
    seeds: np.ndarray
    n_samples: int

    @by_their_numbers
    def __call__(self, batch):
        """Draw labels of all examples of a batch.

        Parameters
        ----------
        batch : Batch
            Some examples.

        Returns
        -------
        samples : list of ndarray of shape (..., n_samples)
            Samples of each example, of the shape of its labels; of a table one array.
        """
        sizes = np.diff(batch.graph.node_ptr)
        uniforms = [
            np.random.RandomState(seed).uniform(size=(size, self.n_samples))
            for seed, size in zip(self.seeds, sizes, strict=True)
        ]
        theta = scores(self.weights, batch)
        return by_example(
            batch, ancestral_samples(batch.graph, batch.factors, theta, np.concatenate(uniforms))
        )


class LogLikelihood(NamedTuple):
    """Computes log-probabilities of known labels; all that travels to where a batch is.

    Attributes
    ----------
    weights : Weights
        Parameters.
    inference : BaseInference
        What sums out labels that are hidden.
    """

    weights: Weights
    inference: BaseInference

    @by_their_numbers
    def __call__(self, batch):
        """Compute the log-probabilities of a batch.

        Parameters
        ----------
        batch : Batch
            Some examples.

        Returns
        -------
        values : ndarray of shape (n_examples,)
            One an example.
        converged : bool
            Whether inference did, on all that needed it.
        """
        batch = batch.given_labels
        field, y = batch.field, batch.y
        theta = potentials(self.weights, batch)
        n_hidden = sum_by_example(y < 0, field.node_example, field)
        if not n_hidden.any():
            return score(field, theta, y), True
        beliefs = self.inference.forward(field, clamp(theta, y))
        nothing_known = n_hidden == np.diff(field.node_ptr)
        summed = np.where(nothing_known, 0.0, beliefs.log_z)
        return np.where(n_hidden == 0, score(field, theta, y), summed), bool(beliefs.converged.all())


class DirectedMixin:
    """Samples and likelihoods of a fitted directed model."""

    _linear = False

    def sample(self, X, n_samples=1, random_state=None):
        """Draw labels from the model, every site after its parents: exact and independent samples.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        n_samples : int, default=1
            Number of samples of each example.
        random_state : int, RandomState instance or None, default=None
            Seed.

        Returns
        -------
        Y : sequence of ndarray of shape (n_samples, ...)
            ``Y[i][s]`` is sample s of the labels of example i, in the kind of container that X is.
        """
        batches, is_table = self._batches_of(X)
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        n_examples = sum(batch.n_examples for batch in batches)
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=n_examples)
        drawn, first = [], 0
        with self._workers() as run:
            for batch in batches:
                some = seeds[first : first + batch.n_examples]
                drawn += run(Draw(self._weights(), some, n_samples), [batch], title="samples")[0]
                first += batch.n_examples
        labels = [self.classes_[x] for x in drawn]
        if is_table:
            return np.concatenate(labels)
        return like_container(X, [np.moveaxis(x, -1, 0) for x in labels])

    def log_likelihood(self, X, Y):
        """Compute the log-probability of labels.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like
            Labels; hidden where masked or equal to `missing_label`.

        Returns
        -------
        log_likelihood : ndarray of shape (n_examples,)
            ``log p(Y[i] | X[i])``, exact where all labels of example i are known. Hidden labels are summed
            out by the inference, which makes it as exact as that is.
        """
        batches, _ = self._batches_of(X, Y)
        with self._workers() as run:
            results = run(LogLikelihood(self._weights(), self.inference_), batches, title="likelihood")
        if not all(converged for _, converged in results):
            warn_of(*not_inferred(self.inference_))
        return np.concatenate([values for values, _ in results])
