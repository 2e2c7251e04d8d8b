"""Samples and likelihoods of directed models."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from skcrf.data import like_container, user_index
from skcrf.graph import clamp, score, sum_by_example
from skcrf.inference import BaseInference
from skcrf.models import DirectedModel
from skcrf.training import warn_inference


class DrawSamples(NamedTuple):
    """Samples of the labels of a batch; each example in X has a seed, so that batches do not matter."""

    model: DirectedModel
    w: np.ndarray
    seeds: np.ndarray
    n_samples: int

    def __call__(self, batch):
        """Return one array per example, samples along the last axis."""
        sizes = np.diff(batch.graph.node_ptr)
        uniforms = [
            np.random.RandomState(seed).uniform(size=(size, self.n_samples))
            for seed, size in zip(self.seeds[batch.index], sizes, strict=True)
        ]
        with user_index(batch.index):
            samples = self.model.sample(self.model.unpack(self.w), batch, np.concatenate(uniforms))
        return batch.split(samples)


class LogLikelihood(NamedTuple):
    """Log-probabilities of the known labels of a batch; the inference sums out hidden ones."""

    model: DirectedModel
    w: np.ndarray
    inference: BaseInference

    def __call__(self, batch):
        """Return one value per example, and whether all inferences converged."""
        with user_index(batch.index):
            factors, theta = self.model.given_labels().potentials(self.model.unpack(self.w), batch)
            y = batch.labels
            n_hidden = sum_by_example(y < 0, factors.node_example, factors)
            # Known without inference: the score of all labels, and the probability 1 of none.
            exact = np.where(n_hidden == 0, score(factors, theta, y), 0.0)
            partly = (n_hidden > 0) & (n_hidden < np.diff(factors.node_ptr))
            if not partly.any():
                return exact, True
            beliefs = self.inference.forward(factors, clamp(theta, y))
            return np.where(partly, beliefs.log_z, exact), bool(beliefs.converged[partly].all())


class DirectedMixin:
    """Methods of fitted directed models."""

    def sample(self, X, n_samples=1, random_state=None):
        """Draw labels from the model, every site after its parents: exact and independent samples.

        Parameters
        ----------
        X : sequence of examples
            Examples; see the class.
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
        with self._workers() as run:
            drawn = run(DrawSamples(*self._fitted_model(), seeds, n_samples), batches, title="samples")
        labels = [self.classes_[x] for of_batch in drawn for x in of_batch]
        if is_table:
            return np.concatenate(labels)
        return like_container(X, [np.moveaxis(x, -1, 0) for x in labels])

    def log_likelihood(self, X, Y):
        """Compute the log-probability of labels.

        Parameters
        ----------
        X : sequence of examples
            Examples; see the class.
        Y : sequence of array-like
            Labels; hidden where masked or equal to `missing_label`.

        Returns
        -------
        log_likelihood : ndarray of shape (n_examples,)
            ``log p(Y[i] | X[i])``, exact where all labels of example i are known. The inference sums out
            hidden labels, so that the result is as exact as the inference is.
        """
        batches, _ = self._batches_of(X, Y)
        work = LogLikelihood(*self._fitted_model(), self.inference_)
        with self._workers() as run:
            results = run(work, batches, title="likelihood")
        if not all(converged for _, converged in results):
            warn_inference(self.inference_)
        return np.concatenate([values for values, _ in results])
