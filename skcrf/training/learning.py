"""How a fit starts, how it is followed, and what is left of it when it fails."""

import itertools
from functools import partial

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES
from skcrf.models.weights import Weights
from skcrf.optimizers import LBFGS
from skcrf.training.objective import is_smooth


def zero_start(objective, minimise):
    """Start from nothing.

    Parameters
    ----------
    objective : Objective
        The objective of the whole model.
    minimise : callable
        Not needed.

    Returns
    -------
    weights : Weights
        Zeros.
    """
    return objective.shape


def independent_start(objective, minimise):
    """Fit the model without edges, from which most losses find their way.

    Parameters
    ----------
    objective : Objective
        The objective of the whole model.
    minimise : callable
        ``minimise(objective, weights, title)`` gives the weights of the minimum, as `Monitor.minimise` does.

    Returns
    -------
    weights : Weights
        The weights; those of edges are zero.
    """
    if not len(objective.shape.edge_coef) or all(
        batch.n_sites == batch.n_examples for batch in objective.batches
    ):
        return objective.shape  # no example has an edge
    return minimise(objective.independent, objective.shape, "the model without edges")


def loss_start(loss, objective, minimise):
    """Fit the model by another loss, itself from where that loss starts (D10 section 4).

    Parameters
    ----------
    loss : str
        Its name.
    objective : Objective
        The objective of the whole model.
    minimise : callable
        As for `independent_start`.

    Returns
    -------
    weights : Weights
        The weights.
    """
    other = LOSSES[loss]()
    start = STARTS[other.starts_from](objective, minimise)
    return minimise(objective.changed(loss=other), start, type(other).__name__)


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
    try:
        check_is_fitted(init)
    except NotFittedError as error:
        raise ValueError(
            f"init={name}() is not fitted. Fit it first; where the model is cloned, as in GridSearchCV, "
            "put it into sklearn.frozen.FrozenEstimator, which keeps it fitted."
        ) from error
    wanted = ["classes_", *shape.fitted()]
    lacking = [attribute for attribute in wanted if not hasattr(init, attribute)]
    if lacking:
        raise ValueError(
            f"init must be a fitted estimator of fields, such as GridCRFClassifier, but {name} has no "
            f"{lacking[0]}. Of a search pass best_estimator_, of a pipeline its last step."
        )
    weights = Weights(init.coef_, init.intercept_, init.edge_coef_)
    if not np.array_equal(init.classes_, classes):
        raise ValueError(
            f"init={name} has classes {init.classes_.tolist()}, but the model has {classes.tolist()}."
        )
    if weights.shapes() != shape.shapes():
        raise ValueError(
            f"init={name} has weights of shapes {weights.shapes()}, but the model needs {shape.shapes()}: "
            "features, connectivity and edge_features must be the same."
        )
    return weights


def serves(inference, loss):
    """Tell whether an inference claims to do what a loss asks for.

    Parameters
    ----------
    inference : BaseInference
        The inference, or its class.
    loss : BaseLoss
        The loss.

    Returns
    -------
    serves : bool
        Always true for losses without inference.
    """
    return loss.tasks <= inference.tasks and loss.needs <= inference.differentiates


def suited(loss, inference, linear=True):
    """Name the optimizer that suits a loss and an inference.

    Parameters
    ----------
    loss : BaseLoss
        The loss.
    inference : BaseInference
        The inference.
    linear : bool, default=True
        Whether potentials are linear in the weights, as those of a directed model are not.

    Returns
    -------
    optimizer : str
        A name in `skcrf.optimizers.OPTIMIZERS`.
    """
    if loss.is_smooth:
        # With a MAP solver a loss that is smooth otherwise has kinks, and is least where all weights are
        # zero.
        return "lbfgs" if not linear or is_smooth(loss, inference) else "subgradient"
    if not linear or loss.difference is None:  # no half of a loss is convex where potentials are not linear
        return "subgradient"
    return "cccp" if loss.takes_hidden_labels else "bundle"


def decoding_for(loss):
    """Name the decoding that suits a loss."""
    if "mixed" in loss.tasks:
        return "marginal_map"
    return "map" if loss.tasks == {"max"} else "mpm"


def refuse_tasks(losses, inference):
    """Refuse an inference that cannot do what a loss asks for.

    Parameters
    ----------
    losses : iterable of tuple
        The parameter and the loss that it asks for.
    inference : BaseInference
        The inference.
    """
    for name, loss in losses:
        if not serves(inference, loss):
            able = sorted(one for one, method in INFERENCE.items() if serves(method, loss))
            wanted = [f"the tasks {sorted(loss.tasks)}"] if loss.tasks else []
            wanted += [f"a derivative of {' and '.join(sorted(loss.needs))}"] if loss.needs else []
            raise ValueError(
                f"{type(loss).__name__}, asked for by {name}, needs an inference with "
                f"{' and '.join(wanted)}, which {type(inference).__name__} has not: take one of {able}."
            )


def refuse_weights(losses, class_weight):
    """Refuse class weights that mean nothing to a loss.

    Parameters
    ----------
    losses : iterable of tuple
        The parameter and the loss that it asks for.
    class_weight : dict or "balanced"
        What the user asks for.
    """
    for name, loss in losses:
        if not loss.site_weighted:
            able = sorted(n for n, one in LOSSES.items() if one.site_weighted)
            raise ValueError(
                f"class_weight={class_weight!r} needs a loss that is a sum over sites, or of costs at sites, "
                f"which {type(loss).__name__}, asked for by {name}, is not; take one of {able}."
            )


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


def learn(objective, start, *, optimizer, schedule, max_iter, tol, monitor, rng):
    """Run an optimizer through the stages of a schedule.

    Parameters
    ----------
    objective : Objective
        The objective of all examples.
    start : callable
        Finds the weights to start from.
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
        That of the last stage. Where the user interrupts, `x` are the best weights so far, those of the start
        if it is not yet left, and `success` is None.
    """
    optimizer.check(objective)
    try:
        w = start().ravel()
        for part, n in parts(objective, schedule, max_iter, rng):
            monitor.restart(w)
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
    shape : Weights
        Weights whose shapes those of the model have, the best so far.
    context : sklearn.callback.CallbackContext, default=None
        The task of the fit, of which every iteration is a subtask.
    told : dict, default=None
        What the callbacks are told of each task.

    Attributes
    ----------
    loss_curve : list of float
        The objective after each iteration.
    error_curve : list of float
        The training error after each iteration, where the optimizer asks for it.
    best_w : ndarray of shape (n_weights,)
        The weights of the lowest training error so far, of the lowest objective where errors are not known.
    stopped : bool
        Whether a callback asked to stop.
    """

    def __init__(self, estimator, shape, context=None, told=None):
        self.estimator = estimator
        self.shape = shape
        self.context = context
        self.told = told
        self.loss_curve = []
        self.error_curve = []
        self.n_inner = 0
        self.stopped = False
        self.restart(shape.ravel())

    def restart(self, w):
        """Forget the lowest objective: from here on it is another one.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights, the best until it was evaluated.
        """
        self.best, self.best_w = (np.inf, np.inf), w

    def minimise(self, objective, start, title):
        """Minimise what the fit starts from; the curve and the callbacks know nothing of it.

        The optimizer is that of the estimator, or L-BFGS where that is not for any smooth function at once.

        Parameters
        ----------
        objective : callable
            From weights, one vector, to value and gradient.
        start : Weights
            Where to start.
        title : str
            What to call it where progress is told.

        Returns
        -------
        weights : Weights
            The best that were found.
        """
        fit, count = self.estimator, itertools.count(1)
        optimizer = fit.optimizer_ if fit.optimizer_.general else LBFGS()

        def callback(w, value):
            self._keep(w, value)
            self._tell(f"start from {title}, iteration {next(count)}", value)
            return False

        self.restart(start.ravel())
        result = optimizer.minimize(
            objective, self.best_w, max_iter=fit.max_iter, tol=fit.tol, callback=callback, rng=None
        )
        return start.unravel(result.x)

    def __call__(self, w, value, error=None, start=False, inner=False):
        """Take note of an iteration.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.
        value : float
            Objective.
        error : float, default=None
            Training error, if it is known.
        start : bool, default=False
            Whether no iteration was done: then these are the best weights until others are better.
        inner : bool, default=False
            Whether it is one of the many that make an iteration: then it is kept and told, not counted.

        Returns
        -------
        stop : bool
            Whether to stop.
        """
        self._keep(w, value, error)
        self.n_inner = self.n_inner + 1 if inner else 0
        if inner:
            self._tell(f"iteration {len(self.loss_curve) + 1}, inner iteration {self.n_inner}", value)
        if start or inner:
            return False
        self.loss_curve.append(value)
        if error is not None:
            self.error_curve.append(error)
        self._tell(f"iteration {len(self.loss_curve)}", value, error)

        def attributes():
            fitted = self.shape.unravel(w.copy()).fitted()
            return {**fitted, **self.curves()}

        iteration = self.context.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(**self.told)
        self.stopped = iteration.call_on_fit_task_end(**self.told, reconstruction_attributes=attributes)
        return self.stopped

    def curves(self):
        """Return the fitted attributes that tell of the iterations so far."""
        return {
            "n_iter_": len(self.loss_curve),
            "loss_curve_": list(self.loss_curve),
            "train_error_curve_": list(self.error_curve),
        }

    def _keep(self, w, value, error=None):
        # Weights of which no error is known are no better than those of which one is.
        found = (np.inf if error is None else error, value)
        if found <= self.best:
            self.best, self.best_w = found, w.copy()

    def _tell(self, what, value, error=None):
        if self.estimator.verbose:
            errors = "" if error is None else f", training error {error:.4f}"
            print(f"[{type(self.estimator).__name__}] {what}: objective {value:.6g}{errors}")  # noqa: T201
