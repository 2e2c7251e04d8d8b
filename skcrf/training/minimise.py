"""Minimising an objective: stages, curves, best weights, callbacks and printed progress."""

import itertools

import numpy as np
from scipy.optimize import OptimizeResult

from skcrf.optimizers import LBFGS


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
        Largest number of iterations of the first stage.
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
            result = optimizer.minimize(stage, w, max_iter=n_iter, tol=tol, callback=monitor, rng=rng)
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
        Task of the fit, of which every iteration is a subtask.
    fit_arguments : dict, default=None
        Arguments of every callback.

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

    def minimise(self, objective, w, title):
        """Minimise the objective of a start, which neither curves nor callbacks include.

        The optimizer is that of the estimator, or L-BFGS if that is not for any smooth function.

        Parameters
        ----------
        objective : callable
            From a weight vector to value and gradient.
        w : ndarray of shape (n_weights,)
            Start.
        title : str
            Name in printed progress.

        Returns
        -------
        w : ndarray of shape (n_weights,)
            Weights of the minimum.
        """
        fit, count = self.estimator, itertools.count(1)
        optimizer = fit.optimizer_ if fit.optimizer_.general else LBFGS()

        def callback(w, value):
            self._keep_best(w, value)
            self._print(f"start from {title}, iteration {next(count)}", value)
            return False

        self.restart(w)
        result = optimizer.minimize(
            objective, w, max_iter=fit.max_iter, tol=fit.tol, callback=callback, rng=None
        )
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
