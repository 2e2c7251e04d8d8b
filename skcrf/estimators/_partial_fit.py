"""Fitting in several calls, by mini-batches."""

from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from skcrf._registry import restore_on_error
from skcrf.training import Monitor, missing_epochs


def _is_incremental(estimator):
    problem = missing_epochs(estimator.optimizer)
    if problem is not None:
        raise AttributeError(problem)
    return True


class PartialFitMixin:
    """The method `partial_fit` of a classifier with a mini-batch optimizer."""

    @available_if(_is_incremental)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Make one pass over some more examples; needs a mini-batch optimizer such as "adam".

        The first call fixes the shape of the model: the number of neighbours, the features of edges and, for
        dictionaries, the names of features; later names are ignored. It also finds the start: `init` as for
        `fit`, except that "auto" means zeros. A start that has to be fitted uses the examples of that call.

        Parameters
        ----------
        X : sequence of examples
            Training examples; see the class.
        y : sequence of array-like
            Labels, as for `fit`.
        classes : array-like of shape (n_classes,), default=None
            All labels of all calls. Needed in the first call, unless the parameter `classes` has them or `y`
            holds them all.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        self : object
            The estimator.
        """
        first = not self.__sklearn_is_fitted__()
        with restore_on_error(self):
            self._run_epoch(self._prepare(X, y, sample_weight, reset=first, classes=classes), first)
        return self

    def _run_epoch(self, batches, first):
        if not batches:  # no labels, or no weights
            return
        with self._workers() as run:
            objective = self._objective(batches, run)
            monitor = Monitor(self, objective.model)
            # The first call may have few examples: fit to them only a start that the user asks for by name.
            init = "zeros" if isinstance(self.init, str) and self.init == "auto" else self.init
            w = self._start(init, objective, monitor) if first else self._fitted_model()[1]
            # After a fit, or with another optimizer, start afresh from the fitted weights.
            optimizer = self.optimizer_
            fresh = type(optimizer), w, optimizer.init_state(w), check_random_state(self.random_state)
            before = vars(self).get("_partial_fit_state", fresh)
            _, w, state, rng = before if before[0] is fresh[0] else fresh
            w, value, state = optimizer.epoch(objective, w, state, rng)
        self._partial_fit_state = fresh[0], w, state, rng
        monitor.loss_curve = [*([] if first else self.loss_curve_), value]
        self._set_fitted(objective.model.unpack(optimizer.averaged(w, state)), monitor, converged=False)
