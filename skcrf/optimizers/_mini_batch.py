"""Optimizers that take one step per mini-batch."""

from abc import abstractmethod

import numpy as np

from skcrf.optimizers._base import BaseOptimizer


class StepOptimizer(BaseOptimizer):
    """Base class of the optimizers that take one step per mini-batch, which `partial_fit` needs.

    A subclass implements `init_state` and `step`, and `minimize` by calls of `epoch`.
    """

    general = False
    makes_epochs = True

    @abstractmethod
    def init_state(self, w):
        """Make the state before the first step.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.

        Returns
        -------
        state : tuple
            The state, such as running means of the gradient.
        """

    @abstractmethod
    def step(self, w, gradient, state):
        """Take a step.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.
        gradient : ndarray of shape (n_weights,)
            Gradient of a mini-batch at these weights.
        state : tuple
            State after the last step.

        Returns
        -------
        w : ndarray of shape (n_weights,)
            New weights.
        state : tuple
            New state.
        """

    def averaged(self, w, state):
        """Return the weights to predict with after a step.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights after the step.
        state : tuple
            State after the step.

        Returns
        -------
        w : ndarray of shape (n_weights,)
            The same weights, unless the optimizer averages.
        """
        return w

    def epoch(self, objective, w, state, rng):
        """Do one pass over the training set.

        Parameters
        ----------
        objective : callable
            The objective.
        w : ndarray of shape (n_weights,)
            Weights.
        state : tuple
            State after the last step.
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
