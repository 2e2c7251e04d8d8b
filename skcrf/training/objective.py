"""The objective: from a weight vector to a value and its gradient, summed over batches.

Results are added in the order of the batches, so that a fit gives the same bits with any number of workers,
and each as soon as those before it are there, so that few gradients are in memory.
"""

from collections import OrderedDict
from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np

from skcrf.data import user_index
from skcrf.gradients import BaseGradient
from skcrf.inference import BaseInference
from skcrf.losses import BaseLoss
from skcrf.models import BaseModel, ChangeOfVariables
from skcrf.training.compatibility import (
    calls_inference,
    check_difference,
    is_smooth,
    not_convex_because,
    takes_compact,
)

# Evaluations that an objective remembers, more than a line search takes, and their largest size in bytes.
_REMEMBERED = 64
_REMEMBERED_BYTES = 2**24


class Evaluation(NamedTuple):
    """The evaluation of a loss on a batch, as it is sent to the worker that has the batch.

    Attributes
    ----------
    model : BaseModel
        The model.
    w : ndarray of shape (n_weights,)
        Weight vector.
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference, wrapped by a gradient strategy.
    part : {None, "convex", "concave"}
        Part of a difference of convex functions that the loss is. Parts do not share messages.
    resume : bool
        Whether inference starts from the messages of an earlier evaluation.
    renew : bool
        Whether later evaluations start from the messages of this one.
    """

    model: BaseModel
    w: np.ndarray
    loss: BaseLoss
    inference: BaseInference
    part: str | None = None
    resume: bool = False
    renew: bool = True

    def __call__(self, batch):
        """Return the weighted sum of losses, its gradient by parameter, and whether inference converged."""
        params, inference = self.model.unpack(self.w), self.inference
        with user_index(batch.index):
            compact = takes_compact(self.loss, inference)
            structure, theta = self.model.potentials(params, batch, compact)
            if self.resume:
                messages = batch.messages.setdefault(self.part, {})
                inference = _ResumedInference(inference, messages, self.renew)
            loss = self.loss.for_batch(batch.index)
            value, d_theta, converged = loss(inference, structure, theta, batch.labels, batch.site_weight)
            gradient = self.model.pull_back(params, batch, theta, d_theta)
        return batch.weight @ value, gradient, bool(converged.all())


class _ResumedInference(BaseGradient):
    """An inference that starts from the messages of an earlier evaluation.

    Parameters
    ----------
    inference : BaseInference
        The inference, wrapped by a gradient strategy.
    messages : dict
        Messages at the end of each forward pass of a loss, by its number.
    renew : bool
        Whether to replace them.
    """

    def __init__(self, inference, messages, renew):
        self.inference_ = inference
        self.messages = messages
        self.renew = renew
        self.layouts = inference.layouts
        self.n_calls = 0

    def forward(self, *args, **options):
        """Infer, starting from the messages of the same call in the earlier evaluation."""
        beliefs = self.inference_.forward(*args, **options, start=self.messages.get(self.n_calls))
        if self.renew or self.n_calls not in self.messages:
            self.messages[self.n_calls] = self.inference_.start_of(beliefs)
        self.n_calls += 1
        return beliefs

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        return self.inference_.backward(beliefs, d_mu, d_edge_mu, d_log_z)

    def beside(self, choose):
        return self.inference_.beside(choose)


def _count_labels(batches):
    return sum(batch.n_labels for batch in batches)


class Objective:
    """Mean loss per labelled site plus ``alpha / 2`` times the squared norm of the penalised weights.

    The last evaluations are remembered, so that asking for one of them again costs nothing.

    Parameters
    ----------
    batches : list of Batch or BatchLoader
        The training set.
    model : BaseModel
        The model.
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference, wrapped by a gradient strategy.
    alpha : float
        Strength of the ridge penalty.
    run : callable
        Runs a function over batches, see `skcrf.parallel.workers`.
    count_errors : callable, default=None
        Makes the function of a batch that counts wrong predictions of some weights; None if not needed.

    Attributes
    ----------
    converged : bool
        Whether every inference of the last evaluation converged.
    """

    def __init__(self, batches, model, *, loss, inference, alpha, run, count_errors=None):
        self.batches = batches
        self.model = model
        self.loss = loss
        self.inference = inference
        self.alpha = alpha
        self.run = run
        self.count_errors = count_errors
        self.part = None
        self.change = ChangeOfVariables()
        self.converged = True
        self._all_batches = batches
        self._n_labels = _count_labels(batches)
        self._results = OrderedDict()
        self._n_evaluations = 0

    def replace(self, **attributes):
        """Return another objective that differs in some attributes, such as `loss` or `batches`."""
        other = copy(self)
        vars(other).update(attributes, converged=True, _results=OrderedDict(), _n_evaluations=0)
        if "batches" in attributes:
            other._n_labels = _count_labels(other.batches)
        return other

    def in_variables(self, change):
        """Return the objective as a function of other variables; both remember the same evaluations."""
        other = copy(self)
        other.change = change
        return other

    def __call__(self, v, batches=None):
        """Return the value and the gradient at weights, or at other variables, of some batches or of all."""
        w = self.change.to_weights(v)
        evaluation = self._evaluation(w)
        if batches is not None:
            n_labels = _count_labels(batches)
            value, gradient, self.converged = self._mean(evaluation, batches, n_labels, title="mini-batch")
            return value, self.change.pull_back(gradient)
        key = w.tobytes()
        if key not in self._results:
            if evaluation.resume:
                evaluation = evaluation._replace(renew=self._renews_messages())
            self._results[key] = self._mean(evaluation, self.batches, self._n_labels, title="evaluation")
            fit = max(2, min(_REMEMBERED, _REMEMBERED_BYTES // (2 * w.nbytes)))
            while len(self._results) > fit:
                self._results.popitem(last=False)
        value, gradient, self.converged = self._results[key]
        return value, self.change.pull_back(gradient.copy())

    @property
    def is_smooth(self):
        """Whether the objective is smooth."""
        return is_smooth(self.loss, self.inference, self.model.is_linear)

    @property
    def not_convex_because(self):
        """str or None: the reason why the objective need not be convex; None if it is convex."""
        hides_labels = any(batch.hides_labels for batch in self.batches)
        return not_convex_because(self.loss, hides_labels, self.model.is_linear)

    @property
    def ridge(self):
        """ndarray of shape (n_weights,): strength of the penalty of each weight, 0 where it has none."""
        ones = self.model.pack({name: np.ones(shape) for name, shape in self.model.shapes.items()})
        return self.alpha * self.model.penalised(ones)

    def moments(self, w):
        """Return the moments of the features at a weight vector, by name; see `BaseModel.moments`."""
        total = {}

        def add(found):
            for name, moments in found.items():
                total[name] = total[name].plus(moments) if name in total else moments

        compute = partial(self.model.moments, self.model.unpack(w))
        self.run(compute, self.batches, among=self._all_batches, title="moments of features", take=add)
        return total

    def split(self, optimizer="this optimizer"):
        """Return two objectives, convex where inference is exact, whose difference this one is.

        Parameters
        ----------
        optimizer : str, default="this optimizer"
            Name of the optimizer, for the message of the error if there are none.

        Returns
        -------
        convex, concave : Objective
            The first one, with the penalty, minus the second.
        """
        check_difference(self.loss, self.model.is_linear, optimizer)
        convex, concave = self.loss.difference
        return self.replace(loss=convex, part="convex"), self.replace(loss=concave, part="concave", alpha=0.0)

    def share(self, w, batches):
        """Return the part that batches contribute to the mean loss of all, without the penalty."""
        evaluation = self._evaluation(self.change.to_weights(w))._replace(resume=False)
        value, gradient, self.converged = self._mean(
            evaluation, batches, self._n_labels, penalty=False, title="block"
        )
        return value, self.change.pull_back(gradient)

    def training_error(self, w):
        """Return the weighted fraction of labels that are predicted wrong, or None if it is not known."""
        if self.count_errors is None:
            return None
        count = self.count_errors(self.model, self.change.to_weights(w))
        wrong = self.run(count, self.batches, among=self._all_batches, title="training error")
        return float(sum(wrong) / self._n_labels)

    def _evaluation(self, w):
        model = self.model.given_labels() if self.loss.conditions_on_labels else self.model
        resume = calls_inference(self.loss) and self.inference.resumes and self._messages_fit_in_memory()
        return Evaluation(model, w, self.loss, self.inference, self.part, resume)

    def _messages_fit_in_memory(self):
        """Whether the messages of all batches may be kept: two per edge, half as wide as in use."""
        if any(batch.is_lazy for batch in self.batches):
            return False
        limit = self.inference.max_memory
        n_messages = sum(self.model.structure(batch).sizes["link"] for batch in self.batches)
        return limit is None or 4 * self.model.n_classes * n_messages <= limit

    def _renews_messages(self):
        """Whether this evaluation replaces the messages: the first, second, fourth, eighth... one does.

        In between, the value is a function of the weights, as line searches need.
        """
        self._n_evaluations += 1
        renew = self._n_evaluations & (self._n_evaluations - 1) == 0
        if renew:
            self._results.clear()  # with other starts the values differ slightly
        return renew

    def _mean(self, evaluation, batches, n_labels, *, penalty=True, title):
        """Return the mean loss with its penalty, the gradient, and whether all inferences converged."""
        values, all_converged, gradient = [], [], np.zeros_like(evaluation.w)

        def add(result):
            value, gradient_of_batch, converged = result
            values.append(value)
            all_converged.append(converged)
            self.model.add_gradient(gradient, gradient_of_batch)

        self.run(evaluation, batches, among=self._all_batches, title=title, take=add)
        value = sum(values) / n_labels
        gradient /= n_labels
        if penalty:
            penalised = self.model.penalised(evaluation.w)
            value += 0.5 * self.alpha * (penalised @ penalised)
            gradient += self.alpha * penalised
        return float(value), self.model.project_vector(gradient), all(all_converged)
