"""How a fit starts, how it is followed, and what is left of it when it fails."""

from contextlib import contextmanager

import numpy as np

from skcrf.optimizers import LBFGS


@contextmanager
def all_or_nothing(estimator):
    """Put an estimator back as it was if anything fails: what is refused loses nothing.

    Parameters
    ----------
    estimator : estimator
        The estimator that is about to change.

    Yields
    ------
    before : dict
        Its attributes before the change.
    """
    before = vars(estimator).copy()
    try:
        yield before
    except BaseException:
        # The callbacks still have to be torn down, for which they need what they left here.
        callbacks = {name: value for name, value in vars(estimator).items() if "callback" in name}
        vars(estimator).clear()
        vars(estimator).update({**before, **callbacks})
        raise


def independent_weights(objective, *, max_iter, tol):
    """Fit the model without edges, from which the others start (D13 section 8).

    Parameters
    ----------
    objective : Objective
        The objective of the whole model.
    max_iter : int
        Iterations at most.
    tol : float
        Largest entry of the gradient at which to stop.

    Returns
    -------
    weights : Weights
        The weights; those of edges are zero.
    """
    if not len(objective.shape.edge_coef) or all(
        batch.n_sites == batch.n_examples for batch in objective.batches
    ):
        return objective.shape  # no example has an edge
    start = objective.shape.ravel()
    result = LBFGS().minimize(
        objective.independent, start, max_iter=max_iter, tol=tol, callback=_go_on, rng=None
    )
    return objective.shape.unravel(result.x)


def _go_on(w, value):
    return False


class Monitor:
    """Follows an optimizer: keeps the curve and the best weights, and tells callbacks.

    Parameters
    ----------
    estimator : BaseFieldClassifier
        The estimator that is fitted.
    start : Weights
        Where the optimizer starts.
    context : sklearn.callback.CallbackContext
        The task of the fit, of which every iteration is a subtask.
    told : dict
        What the callbacks are told of each task.

    Attributes
    ----------
    loss_curve : list of float
        The objective after each iteration.
    best_w : ndarray of shape (n_weights,)
        The weights of the lowest objective so far.
    stopped : bool
        Whether a callback asked to stop.
    """

    def __init__(self, estimator, start, context, told):
        self.estimator = estimator
        self.shape = start
        self.context = context
        self.told = told
        self.loss_curve = []
        self.best_value, self.best_w = np.inf, start.ravel()
        self.stopped = False

    def __call__(self, w, value):
        """Take note of an iteration.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.
        value : float
            Objective.

        Returns
        -------
        stop : bool
            Whether to stop.
        """
        self.loss_curve.append(value)
        if value <= self.best_value:
            self.best_value, self.best_w = value, w.copy()
        if self.estimator.verbose:
            name = type(self.estimator).__name__
            print(f"[{name}] iteration {len(self.loss_curve)}: objective {value:.6g}")  # noqa: T201

        def attributes():
            fitted = self.shape.unravel(w.copy()).fitted()
            return {**fitted, "n_iter_": len(self.loss_curve), "loss_curve_": list(self.loss_curve)}

        iteration = self.context.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(**self.told)
        self.stopped = iteration.call_on_fit_task_end(**self.told, reconstruction_attributes=attributes)
        return self.stopped
