"""Minimising an objective: starts, stages, and the monitor of iterations.

Fits start from zeros, from the minimum of the model without edges or of another loss, or from a fitted
estimator. The monitor keeps curves and the best weights, calls callbacks and prints progress.
"""

import itertools
from copy import deepcopy
from functools import partial

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skcrf.gradients import Backprop
from skcrf.inference import TRW
from skcrf.losses import LOSSES, UnivariateLogistic
from skcrf.models import Combinations
from skcrf.training.compatibility import optimizer_of_start

# Iterations and largest number of batches that find the scale of weights and the coupling of a start: two
# numbers do not need all examples.
_SCALE_ITERATIONS, _SCALE_BATCHES = 8, 16

# Starts


def start_from_zeros(objective, fit_start, rng):
    """Return weights that are all zero."""
    return objective.model.pack(objective.model.zeros())


def start_from_independent(objective, fit_start, rng):
    """Fit the model without edges, which is a good start for most losses.

    Parameters
    ----------
    objective : Objective
        Objective of the whole model.
    fit_start : callable
        ``fit_start(objective, w, title)`` returns the weights of the minimum, as `Monitor.fit_start` does.
    rng : numpy.random.RandomState
        Source of randomness, which only a random start uses.

    Returns
    -------
    w : ndarray of shape (n_weights,)
        Weights; those of edges are zero.
    """
    w = start_from_zeros(objective, fit_start, rng)
    independent = objective.replace(
        model=objective.model.independent(),
        loss=UnivariateLogistic(),
        inference=Backprop().wrap(TRW(max_iter=0)),  # without messages, marginals are those of single sites
    )
    return fit_start(independent, w, "the model without edges") if _has_edges(objective) else w


def _has_edges(objective):
    return any(batch.n_sites > batch.n_examples for batch in objective.batches)


def start_from_coupled(objective, fit_start, rng):
    """Fit the model without edges, then the scale of its weights together with one coupling of equal labels.

    The model without edges does not know that neighbours repeat its evidence, so that its weights are too
    large beside couplings. Without edges, or if the loss is not smooth, this is the start from that model.

    Parameters
    ----------
    objective : Objective
        Objective of the whole model.
    fit_start, rng : callable and numpy.random.RandomState
        As for `start_from_independent`.

    Returns
    -------
    w : ndarray of shape (n_weights,)
        Weights.
    """
    w = start_from_independent(objective, fit_start, rng)
    if not objective.is_smooth or not _has_edges(objective):
        return w
    some = objective.batches[:: -(-len(objective.batches) // _SCALE_BATCHES)]
    objective = objective.replace(batches=some)
    coupling = objective.model.coupling(objective.moments(w))
    if coupling is None:
        return w
    change = Combinations(np.stack([w, objective.model.pack(coupling)]))
    return fit_start(objective, w, "scale and coupling", change=change, max_iter=_SCALE_ITERATIONS)


def start_from_random(objective, fit_start, rng):
    """Add random weights to the model without edges, so that the states of hidden variables differ.

    States that have equal weights have equal gradients, and would stay equal. In variables of even curvature
    the random weights are all of the same size, and of norm 1 together.
    """
    model, w = objective.model, start_from_independent(objective, fit_start, rng)
    change = model.change_of_variables(objective.moments(w), objective.alpha)
    return model.project_vector(w + change.to_weights(rng.normal(size=len(w)) / np.sqrt(len(w))))


def start_from_loss(loss, objective, fit_start, rng):
    """Fit the model by another loss, itself from where that loss starts (D10 section 4)."""
    other = objective.replace(loss=LOSSES[loss]())
    w = STARTS[other.loss.starts_from](other, fit_start, rng)
    return fit_start(other, w, type(other.loss).__name__)


#: Starts by the name given as `init`.
STARTS = {
    "independent": start_from_independent,
    "coupled": start_from_coupled,
    "random": start_from_random,
    "zeros": start_from_zeros,
    **{name: partial(start_from_loss, name) for name in LOSSES},
}


def start_from_estimator(init, model, classes):
    """Return the parameters of a fitted estimator, or raise an error if they do not fit the model.

    Parameters
    ----------
    init : estimator
        Fitted estimator.
    model : BaseModel
        Model to be fitted.
    classes : ndarray of shape (n_classes,)
        Labels of the model.

    Returns
    -------
    params : dict of ndarray
        Parameters.
    """
    name = type(init).__name__
    try:
        check_is_fitted(init)
    except NotFittedError as error:
        raise ValueError(
            f"init must be fitted, got an unfitted {name}. Fit it first; where the model is cloned, as in "
            "GridSearchCV, wrap it in sklearn.frozen.FrozenEstimator, which keeps it fitted."
        ) from error
    fitted = {f"{parameter}_": parameter for parameter in model.shapes}
    lacking = [attribute for attribute in ("classes_", *fitted) if not hasattr(init, attribute)]
    if lacking:
        raise ValueError(
            f"init must be a fitted estimator of fields, such as GridCRFClassifier, got {name} without "
            f"{lacking[0]}. Pass the best_estimator_ of a search, or the last step of a pipeline."
        )
    params = {parameter: getattr(init, attribute) for attribute, parameter in fitted.items()}
    if not np.array_equal(init.classes_, classes):
        raise ValueError(
            f"init must have the classes {classes.tolist()}, got {name} with {init.classes_.tolist()}."
        )
    shapes = {parameter: values.shape for parameter, values in params.items()}
    if shapes != dict(model.shapes):
        raise ValueError(
            f"init must have weights of shapes {list(model.shapes.values())}, got {name} with "
            f"{list(shapes.values())}. Features, connectivity and edge_features must be the same."
        )
    return params


# Stages and iterations


def minimise(optimizer, objective, w, *, callback, change=None, **options):
    """Run an optimizer in the variables of `change`, or in those of even curvature if it asks for them."""
    if change is None:
        if not optimizer.precondition:
            return optimizer.minimize(objective, w, callback=callback, **options)
        change = objective.model.change_of_variables(objective.moments(w), objective.alpha)

    def callback_with_weights(v, *values, **flags):
        return callback(change.to_weights(v), *values, **flags)

    v = change.to_variables(w)
    result = optimizer.minimize(objective.in_variables(change), v, callback=callback_with_weights, **options)
    result.x = change.to_weights(result.x)
    return result


def stage_objectives(objective, schedule, max_iter, rng):
    """Return pairs of an objective and a number of iterations, one per stage; the last has all examples."""
    sizes = np.array([batch.n_examples for batch in objective.batches])
    stages = schedule.stages(sizes.sum(), max_iter)
    order = rng.permutation(len(sizes)) if len(stages) > 1 else np.arange(len(sizes))
    ends = np.searchsorted(np.cumsum(sizes[order]), [n for n, _ in stages[:-1]]) + 1
    chosen = [[objective.batches[i] for i in np.sort(order[:end])] for end in ends]
    smaller = [objective.replace(batches=batches) for batches in chosen]
    return list(zip([*smaller, objective], [n for _, n in stages], strict=True))


def run_stages(objective, start, *, optimizer, schedule, max_iter, tol, monitor, rng):
    """Minimise an objective through the stages of a schedule.

    Parameters
    ----------
    objective : Objective
        Objective of all examples.
    start : callable
        Returns the weights to start from.
    optimizer : BaseOptimizer
        The optimizer.
    schedule : BaseSchedule
        The schedule.
    max_iter : int
        Maximum number of iterations of the first stage.
    tol : float
        Tolerance of the optimizer.
    monitor : Monitor
        Records the iterations.
    rng : numpy.random.RandomState
        Source of randomness.

    Returns
    -------
    result : scipy.optimize.OptimizeResult
        Result of the last stage. If the user interrupts, `x` are the best weights so far, those of the start
        if there are no others, and `success` is None.
    """
    optimizer.check(objective)
    try:
        w = start()
        for stage, n_iter in stage_objectives(objective, schedule, max_iter, rng):
            monitor.restart(w)
            result = minimise(optimizer, stage, w, max_iter=n_iter, tol=tol, callback=monitor, rng=rng)
            w = result.x
            if monitor.stopped:
                break
    except KeyboardInterrupt:
        return OptimizeResult(x=monitor.best_w, success=None, message="interrupted")
    return result


class Monitor:
    """Records the iterations of an optimizer, and passes them on to callbacks.

    Parameters
    ----------
    estimator : BaseFieldClassifier
        Estimator that is fitted.
    model : BaseModel
        Its model.
    context : sklearn.callback.CallbackContext, default=None
        Task of the fit, of which every iteration is a subtask; None to call no callbacks, so that nothing
        stops the optimizer.
    fit_arguments : dict, default=None
        Arguments of every callback; None if there are none to call.

    Attributes
    ----------
    loss_curve : list of float
        Objective after each iteration.
    error_curve : list of float
        Training error after each iteration, where the optimizer computes it.
    best_w : ndarray of shape (n_weights,)
        Weights of the lowest training error so far, of the lowest objective where errors are not known.
    stopped : bool
        Whether a callback asked to stop.
    """

    def __init__(self, estimator, model, context=None, fit_arguments=None):
        self.estimator = estimator
        self.model = model
        self.context = context
        self.fit_arguments = fit_arguments
        self.loss_curve = []
        self.error_curve = []
        self.n_inner = 0
        self.stopped = False
        self.restart(model.pack(model.zeros()))

    def restart(self, w):
        """Forget the lowest objective: from now on the objective is another one, and `w` the best."""
        self.best, self.best_w = (np.inf, np.inf), w

    def fit_start(self, objective, w, title, *, change=None, max_iter=None):
        """Minimise the objective of a start, which neither curves nor callbacks include.

        The optimizer is that of the estimator if it suits the objective, see `optimizer_of_start`. It draws
        the random numbers that a fit draws first, from a copy of the generator, so that the draws of the fit
        do not depend on its start. A start that does not converge raises no warning, since the fit goes on
        from there, but is printed.

        Parameters
        ----------
        objective : Objective
            Objective of the start.
        w : ndarray of shape (n_weights,)
            Start.
        title : str
            Name in printed progress.
        change : ChangeOfVariables, default=None
            Variables to minimise over, such as few combinations of weights.
        max_iter : int, default=None
            Number of iterations that are enough; None for the largest number of the estimator.

        Returns
        -------
        w : ndarray of shape (n_weights,)
            Weights of the minimum.
        """
        fit, count = self.estimator, itertools.count(1)
        optimizer = optimizer_of_start(fit.optimizer_, objective)
        optimizer.check(objective)

        def callback(w, value, error=None, start=False, inner=False):
            self._keep_best(w, value, error)
            if not (start or inner):
                self._print(f"start from {title}, iteration {next(count)}", value, error)
            return False

        self.restart(w)
        rng = deepcopy(check_random_state(fit.random_state))
        limit = fit.max_iter if max_iter is None else min(max_iter, fit.max_iter)
        options = {"max_iter": limit, "tol": fit.tol, "change": change, "rng": rng}
        result = minimise(optimizer, objective, w, callback=callback, **options)
        if not result.success and max_iter is None:
            self._print(f"start from {title} did not converge ({result.message})", result.fun)
        return result.x

    def __call__(self, w, value, error=None, start=False, inner=False):
        """Record an iteration.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.
        value : float
            Objective.
        error : float, default=None
            Training error, if known.
        start : bool, default=False
            Whether no iteration was done yet: the weights are the best until others are better.
        inner : bool, default=False
            Whether this is one of several inner iterations, which are not counted.

        Returns
        -------
        stop : bool
            Whether to stop.
        """
        self._keep_best(w, value, error)
        self.n_inner = self.n_inner + 1 if inner else 0
        if inner:
            self._print(f"iteration {len(self.loss_curve) + 1}, inner iteration {self.n_inner}", value)
        if start or inner:
            return False
        self.loss_curve.append(value)
        if error is not None:
            self.error_curve.append(error)
        self._print(f"iteration {len(self.loss_curve)}", value, error)

        if self.context is None:
            return False

        def attributes():
            return {**fitted_attributes(self.model.unpack(w)), **self.curves()}

        iteration = self.context.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(**self.fit_arguments)
        self.stopped = iteration.call_on_fit_task_end(
            **self.fit_arguments, reconstruction_attributes=attributes
        )
        return self.stopped

    def curves(self):
        """Return the fitted attributes of the iterations so far."""
        return {
            "n_iter_": len(self.loss_curve),
            "loss_curve_": list(self.loss_curve),
            "train_error_curve_": list(self.error_curve),
        }

    def _keep_best(self, w, value, error=None):
        # Weights without a known error are no better than those with one.
        found = (np.inf if error is None else error, value)
        if found <= self.best:
            self.best, self.best_w = found, w.copy()

    def _print(self, what, value, error=None):
        if self.estimator.verbose:
            errors = "" if error is None else f", training error {error:.4f}"
            print(f"[{type(self.estimator).__name__}] {what}: objective {value:.6g}{errors}")  # noqa: T201


def fitted_attributes(params):
    """Return the fitted attributes of an estimator with these parameters, as copies."""
    return {f"{name}_": np.array(values) for name, values in params.items()}
