"""The objective: from weights to a value and its gradient, summed over batches.

Results are added in the order of the batches, so a fit gives the same bits with any number of workers.
"""

from collections import OrderedDict
from copy import copy
from typing import NamedTuple

import numpy as np

from skcrf.data import by_their_numbers
from skcrf.gradients import Backprop
from skcrf.inference import BP, BaseInference
from skcrf.inference._message_passing import Start
from skcrf.losses import (
    LOSSES,
    BaseLoss,
    ClampedLogPartition,
    FreeLogPartition,
    UnivariateLogistic,
)
from skcrf.models.features import potentials, pull_back
from skcrf.models.weights import Weights
from skcrf.parallel import workers

__all__ = ["Evaluation", "Objective", "workers"]

# What an objective remembers: more evaluations than a line search takes, in as much memory at most.
_EVALUATIONS = 64
_BYTES = 2**24


class Evaluation(NamedTuple):
    """What is done with a batch; all that travels to where the batch is.

    Attributes
    ----------
    weights : Weights
        Parameters.
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference, wrapped by a gradient strategy.
    edges : bool
        Whether the model has edges.
    resume : bool
        Whether inference starts from where it ended in an earlier evaluation of the batch.
    renew : bool
        Whether later ones start from where it ends in this one.
    """

    weights: Weights
    loss: BaseLoss
    inference: BaseInference
    edges: bool = True
    resume: bool = False
    renew: bool = True

    @by_their_numbers
    def __call__(self, batch):
        """Evaluate the loss of a batch.

        Parameters
        ----------
        batch : Batch
            Some examples.

        Returns
        -------
        value : float
            Weighted sum of their losses.
        gradient : ndarray of shape (n_weights,)
            Its derivative.
        converged : bool
            Whether inference did, on all of them.
        """
        batch = batch if self.edges else batch.without_edges()
        batch = batch.given_labels if _clamps(self.loss) else batch
        theta = potentials(self.weights, batch)
        inference = self.inference
        if self.resume:  # the halves of a loss do not start from one another
            half = None if isinstance(self.loss, BaseLoss) else type(self.loss)
            inference = Resumed(inference, batch.starts.setdefault(half, {}), self.renew)
        loss = self.loss.for_batch(batch.numbers)
        value, d_theta, converged = loss(inference, batch.field, theta, batch.y, batch.site_weight)
        gradient = pull_back(d_theta, batch, self.weights, theta).ravel()
        return batch.weight @ value, gradient, bool(converged.all())


def _clamps(loss):
    if loss.difference is not None:
        return isinstance(loss.difference[0], FreeLogPartition)
    return isinstance(loss, (FreeLogPartition, ClampedLogPartition))


def is_smooth(loss, inference):
    """Return whether a loss is smooth with an inference."""
    return loss.is_smooth and not (bool(loss.needs) and "sum" not in inference.tasks)


class Resumed:
    """An inference that starts from where it ended before.

    Parameters
    ----------
    inference : BaseInference
        The inference.
    starts : dict
        Where each of the forward passes of a loss ended; kept from one evaluation to the next.
    renew : bool
        Whether to write there.
    """

    def __init__(self, inference, starts, renew=True):
        self.inference = inference
        self.starts = starts
        self.renew = renew
        self.n_calls = 0

    def __getattr__(self, name):
        return getattr(self.inference, name)

    def forward(self, *args, **options):
        """Infer, as the inference does."""
        start = self.starts.get(self.n_calls, Start())
        beliefs = self.inference.forward(*args, **options, start=start)
        if self.renew or self.n_calls not in self.starts:
            self.starts[self.n_calls] = self.inference.start_of(beliefs)
        self.n_calls += 1
        return beliefs


def _count(batches):
    """Count the labels of batches, examples by their weights: what their losses are divided by."""
    return sum(batch.n_labels for batch in batches)


class Objective:
    """Mean loss per labelled site plus ``alpha / 2`` times the squared norm of the coefficients.

    Remembers its last evaluations, so that asking again for one of them costs nothing.

    Parameters
    ----------
    batches : list of Batch or LazyBatch
        The training set.
    shape : Weights
        Weights whose shapes those of the model have.
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference, wrapped by a gradient strategy.
    alpha : float
        Strength of the ridge; the intercept is free.
    fit_intercept : bool
        Whether the intercept is fitted.
    tie : callable
        From weights of edges, or a gradient with respect to them, to the nearest that the model allows.
    run : callable
        What `workers` gives.
    judge : callable, default=None
        From weights to what counts the wrong predictions of a batch; None where they are not asked for.

    Attributes
    ----------
    converged : bool
        Whether every inference of the last evaluation converged.
    """

    def __init__(
        self,
        batches,
        shape,
        *,
        loss,
        inference,
        alpha,
        fit_intercept,
        tie,
        run,
        judge=None,
    ):
        self.batches = batches
        self.shape = shape
        self.loss = loss
        self.inference = inference
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tie = tie
        self.run = run
        self.judge = judge
        self.converged = True
        self._among = batches  # all that a part of it may have
        self._n_labels = _count(batches)
        self._known = OrderedDict()
        self._n_evaluations = 0

    def changed(self, **attributes):
        """Make another objective that differs in some attributes, and share the rest.

        Parameters
        ----------
        **attributes : dict
            Such as another `loss`, or a part of the `batches`.

        Returns
        -------
        objective : Objective
            The other one.
        """
        other = copy(self)
        vars(other).update(attributes, converged=True, _known=OrderedDict(), _n_evaluations=0)
        if "batches" in attributes:
            other._n_labels = _count(other.batches)
        return other

    def __call__(self, w, batches=None):
        """Evaluate.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights, as one vector.
        batches : list of Batch or LazyBatch, default=None
            The part of the training set to evaluate; None for all.

        Returns
        -------
        value : float
            Objective.
        gradient : ndarray of shape (n_weights,)
            Its gradient.
        """
        calls = self.loss.needs | self.loss.tasks
        resume = bool(calls) and self.inference.resumes and self._starts_fit_in_memory()
        evaluation = Evaluation(self.shape.unravel(w), self.loss, self.inference, resume=resume)
        if batches is None:
            return self._remembered(evaluation, w, "evaluation")
        value, gradient, self.converged = self._evaluate(evaluation, batches, "mini-batch")
        return value, gradient

    @property
    def is_smooth(self):
        """Whether the objective is smooth."""
        return is_smooth(self.loss, self.inference)

    @property
    def linear(self):
        """Whether potentials are linear in the weights, without which nothing is known to be convex."""
        return all(batch.is_linear for batch in self.batches)

    @property
    def not_convex_because(self):
        """None, or the reason why the objective is not known to be convex."""
        name = type(self.loss).__name__
        if not self.loss.is_convex:
            return f"{name} is not convex"
        if any((batch.y < 0).any() for batch in self.batches if not batch.is_lazy):
            return f"{name} is not convex if labels are hidden"
        return None if self.linear else "potentials are not linear in the weights"

    def split(self):
        """Split into two objectives, each convex where inference is exact.

        Returns
        -------
        convex, concave : Objective
            What is added, with the ridge, and what is subtracted.
        """
        if self.loss.difference is None:
            able = sorted(name for name, loss in LOSSES.items() if loss.difference is not None)
            raise ValueError(
                f"{type(self.loss).__name__} is not a difference of convex functions, which the optimizer "
                f"needs: take one of {able}, or another optimizer."
            )
        if not self.linear:
            raise ValueError(
                "The losses of a directed model, whose potentials are not linear in the weights, are no "
                "differences of convex functions, which the optimizer needs: take optimizer 'auto'."
            )
        convex, concave = self.loss.difference
        return self.changed(loss=convex), self.changed(loss=concave, alpha=0.0)

    def training_error(self, w):
        """Compute the share of the labels that are predicted wrong.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights, as one vector.

        Returns
        -------
        error : float
            The share, examples counting by their weights.
        """
        wrong = self.run(
            self.judge(self.shape.unravel(w)), self.batches, among=self._among, title="training error"
        )
        return float(sum(wrong) / self._n_labels)

    @property
    def ridge(self):
        """Strength of the penalty of each weight; weights that are not fitted count as penalised."""
        strength = self.shape.unravel(np.full(len(self.shape.ravel()), float(self.alpha)))
        if self.fit_intercept:
            strength.intercept[:] = 0.0
        return strength.ravel()

    def share(self, w, batches):
        """Evaluate the share that batches have in the mean loss of all, without the ridge.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights, as one vector.
        batches : list of Batch or LazyBatch
            Some of the training set.

        Returns
        -------
        value : float
            Their losses over the number of all labels.
        gradient : ndarray of shape (n_weights,)
            Its gradient.
        """
        evaluation = Evaluation(self.shape.unravel(w), self.loss, self.inference)
        value, gradient, self.converged = self._mean(evaluation, batches, self._n_labels, "block")
        return float(value), self._within(gradient)

    def _starts_fit_in_memory(self):
        """Whether the messages of all batches may be kept: two an edge, half as wide as in work."""
        if any(batch.is_lazy for batch in self.batches):
            return False
        limit = self.inference.max_memory
        n_messages = sum(batch.field.sizes["link"] for batch in self.batches)
        return limit is None or n_messages * len(self.shape.intercept) * 4 <= limit

    def independent(self, w):
        """Evaluate the model without edges, by the univariate logistic loss.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights, as one vector; those of edges have only the penalty.

        Returns
        -------
        value : float
            Objective.
        gradient : ndarray of shape (n_weights,)
            Its gradient.
        """
        inference = Backprop().wrap(BP(max_iter=0))
        evaluation = Evaluation(self.shape.unravel(w), UnivariateLogistic(), inference, edges=False)
        return self._remembered(evaluation, w, "independent model")

    def _remembered(self, evaluation, w, title):
        key = (evaluation.edges, w.tobytes())
        if key not in self._known:
            if evaluation.resume:
                evaluation = self._renewing(evaluation)
            self._known[key] = self._evaluate(evaluation, self.batches, title)
            fit = max(2, min(_EVALUATIONS, _BYTES // (2 * w.nbytes)))
            while len(self._known) > fit:
                self._known.popitem(last=False)
        value, gradient, self.converged = self._known[key]
        return value, gradient.copy()

    def _renewing(self, evaluation):
        """Let later evaluations start from where the first, the second, the fourth, the eighth... one ends.

        From one of these to the next, the value is a function of the weights, as line searches need it.
        """
        self._n_evaluations += 1
        renew = self._n_evaluations & (self._n_evaluations - 1) == 0
        if renew:
            self._known.clear()  # with other starts, these are not quite the values
        return evaluation._replace(renew=renew)

    def _evaluate(self, evaluation, batches, title):
        value, gradient, converged = self._mean(evaluation, batches, _count(batches), title)
        weights = evaluation.weights
        penalised = weights._replace(intercept=np.zeros_like(weights.intercept)).ravel()
        value += 0.5 * self.alpha * (penalised @ penalised)
        return float(value), self._within(gradient + self.alpha * penalised), converged

    def _mean(self, evaluation, batches, n_labels, title):
        results = self.run(evaluation, batches, among=self._among, title=title)
        value = sum(value for value, _, _ in results) / n_labels
        gradient = sum(gradient for _, gradient, _ in results) / n_labels
        return value, gradient, all(converged for _, _, converged in results)

    def _within(self, gradient):
        """Take the gradient within the weights of the model, from which no step leads away; in place."""
        if not self.fit_intercept:
            self.shape.unravel(gradient).intercept[:] = 0.0
        edge_coef = self.shape.unravel(gradient).edge_coef
        edge_coef[:] = self.tie(edge_coef)
        return gradient
