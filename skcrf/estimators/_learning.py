"""How a fit starts, how it is followed, and what is left of it when it fails."""

from contextlib import contextmanager
from functools import partial

import numpy as np
from scipy.optimize import OptimizeResult

from skcrf.features import Weights
from skcrf.losses import LOSSES
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


def zero_start(objective, *, max_iter, tol):
    """Start from nothing.

    Parameters
    ----------
    objective : Objective
        The objective of the whole model.
    max_iter, tol : int, float
        Not needed.

    Returns
    -------
    weights : Weights
        Zeros.
    """
    return objective.shape


def independent_start(objective, *, max_iter, tol):
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
    return _minimised(objective.independent, objective.shape, max_iter, tol)


def loss_start(loss, objective, *, max_iter, tol):
    """Fit the model by another loss, itself from where that loss starts (D13 section 8, D10 section 4).

    Parameters
    ----------
    loss : str
        Its name.
    objective : Objective
        The objective of the whole model.
    max_iter : int
        Iterations at most.
    tol : float
        Largest entry of the gradient at which to stop.

    Returns
    -------
    weights : Weights
        The weights.
    """
    other = LOSSES[loss]()
    start = STARTS[other.starts_from](objective, max_iter=max_iter, tol=tol)
    return _minimised(objective.changed(loss=other), start, max_iter, tol)


#: What a fit may start from, by name.
STARTS = {
    "independent": independent_start,
    "zeros": zero_start,
    **{name: partial(loss_start, name) for name in LOSSES},
}


def weights_of(init, shape, classes):
    """Take the weights of another estimator.

    Parameters
    ----------
    init : estimator
        Fitted.
    shape : Weights
        Weights whose shapes those of the model have.
    classes : ndarray of shape (n_classes,)
        Labels of the model.

    Returns
    -------
    weights : Weights
        Its weights.
    """
    name = type(init).__name__
    if not hasattr(init, "coef_"):
        raise ValueError(
            f"init={name}() is not fitted. Fit it first; where the model is cloned, as in GridSearchCV, "
            "put it into sklearn.frozen.FrozenEstimator, which keeps it fitted."
        )
    weights = Weights(init.coef_, init.intercept_, init.edge_coef_)
    if not np.array_equal(init.classes_, classes):
        raise ValueError(f"init={name} has classes {list(init.classes_)}, but y has {list(classes)}.")
    if weights.shapes() != shape.shapes():
        raise ValueError(
            f"init={name} has weights of shapes {weights.shapes()}, but the model needs {shape.shapes()}: "
            "features, connectivity and edge_features must be the same."
        )
    return weights


def _minimised(objective, start, max_iter, tol):
    result = LBFGS().minimize(objective, start.ravel(), max_iter=max_iter, tol=tol, callback=_go_on, rng=None)
    return start.unravel(result.x)


def _go_on(w, value):
    return False


def parts(objective, schedule, max_iter, rng):
    """Follow a schedule: make the objectives that are minimised one after the other.

    Parameters
    ----------
    objective : Objective
        The objective of all examples.
    schedule : BaseSchedule
        The schedule.
    max_iter : int
        Iterations of its first stage at most.
    rng : numpy.random.RandomState
        Draws the examples of the first stages.

    Returns
    -------
    parts : list of tuple
        An objective and a number of iterations for each stage; the last objective is the one of all.
    """
    sizes = np.array([batch.n_examples for batch in objective.batches])
    stages = schedule.stages(sizes.sum(), max_iter)
    order = rng.permutation(len(sizes)) if len(stages) > 1 else np.arange(len(sizes))
    ends = np.searchsorted(np.cumsum(sizes[order]), [n for n, _ in stages[:-1]]) + 1
    chosen = [[objective.batches[i] for i in np.sort(order[:end])] for end in ends]
    few = [objective.changed(batches=batches) for batches in chosen]
    return list(zip([*few, objective], [n for _, n in stages], strict=True))


def learn(objective, w, *, optimizer, schedule, max_iter, tol, monitor, rng):
    """Run an optimizer through the stages of a schedule.

    Parameters
    ----------
    objective : Objective
        The objective of all examples.
    w : ndarray of shape (n_weights,)
        Where to start.
    optimizer : BaseOptimizer
        The optimizer.
    schedule : BaseSchedule
        The schedule.
    max_iter : int
        Iterations of the first stage at most.
    tol : float
        Tolerance of the optimizer.
    monitor : Monitor
        Follows it.
    rng : numpy.random.RandomState
        Source of randomness.

    Returns
    -------
    result : scipy.optimize.OptimizeResult
        That of the last stage. Where the user interrupts, `x` are the best weights so far, and `success` is
        None.
    """
    try:
        for part, n in parts(objective, schedule, max_iter, rng):
            monitor.restart()
            result = optimizer.minimize(part, w, max_iter=n, tol=tol, callback=monitor, rng=rng)
            w = result.x
            if monitor.stopped:
                break
    except KeyboardInterrupt:
        return OptimizeResult(x=monitor.best_w, success=None, message="interrupted")
    return result


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
        self.best_w = start.ravel()
        self.stopped = False
        self.restart()

    def restart(self):
        """Forget the lowest objective: from here on it is another one."""
        self.best_value = np.inf

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
