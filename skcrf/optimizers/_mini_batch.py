"""Optimizers that take one step a mini-batch."""

from abc import abstractmethod

import numpy as np

from skcrf.optimizers._base import BaseOptimizer


class StepOptimizer(BaseOptimizer):
    """Base class of the optimizers that can also do one pass at a time, for `partial_fit`."""

    general = False

    @abstractmethod
    def start(self, w):
        """Make the state from which the first pass starts.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.

        Returns
        -------
        state : tuple
            What a step needs to know of those before.
        """

    @abstractmethod
    def step(self, w, gradient, state):
        """Take a step.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.
        gradient : ndarray of shape (n_weights,)
            Gradient there, of a mini-batch.
        state : tuple
            What `start` or an earlier step gave.

        Returns
        -------
        w : ndarray of shape (n_weights,)
            New weights.
        state : tuple
            New state.
        """

    def judged(self, w, state):
        """Tell the weights that count after a step.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            The weights of the step.
        state : tuple
            The state after it.

        Returns
        -------
        w : ndarray of shape (n_weights,)
            The same, unless the method says otherwise.
        """
        return w

    def epoch(self, objective, w, state, rng):
        """Do one pass over the training set.

        Parameters
        ----------
        objective : Objective
            The objective.
        w : ndarray of shape (n_weights,)
            Weights.
        state : tuple
            What `start` or an earlier pass gave.
        rng : numpy.random.RandomState
            Shuffles the batches.

        Returns
        -------
        w : ndarray of shape (n_weights,)
            New weights.
        value : float
            Mean objective of the mini-batches.
        state : tuple
            New state.
        """
        if self.batch_size is None:
            value, gradient = objective(w)
            w, state = self.step(w, gradient, state)
            return w, value, state
        values, sizes = [], []
        for batches in self._mini_batches(objective.batches, rng):
            value, gradient = objective(w, batches)
            values.append(value)
            sizes.append(sum(batch.n_examples for batch in batches))
            w, state = self.step(w, gradient, state)
        return w, float(np.average(values, weights=sizes)), state

    def _mini_batches(self, batches, rng):
        chosen, n_examples = [], 0
        for index in rng.permutation(len(batches)):
            chosen.append(batches[index])
            n_examples += batches[index].n_examples
            if n_examples >= self.batch_size:
                yield chosen
                chosen, n_examples = [], 0
        if chosen:
            yield chosen
