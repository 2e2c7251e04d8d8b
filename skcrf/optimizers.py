"""Optimizers: they know an objective ``w -> (value, gradient)`` and nothing else."""

from abc import ABC, abstractmethod
from numbers import Integral, Real
from operator import itemgetter

import numpy as np
from scipy.optimize import OptimizeResult
from scipy.optimize import minimize as scipy_minimize
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval

# How SciPy says that it stopped because of its steps: no progress (0), or a failed line search (2).
_BAD_DIRECTION = (0, 2)


class BaseOptimizer(BaseEstimator, ABC):
    """Base class of the optimizers.

    Conventions
    -----------
    - An objective is called with weights, one vector, and gives value and gradient there. Mini-batch
      methods also pass the `batches` to evaluate, some of ``objective.batches``.
    - ``callback(w, value)`` is called after each iteration and returns whether to stop.
    """

    _parameter_constraints = {}

    #: Number of examples in a mini-batch; None for methods that use all.
    batch_size = None

    @abstractmethod
    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        """Minimise.

        Parameters
        ----------
        objective : callable
            The objective.
        w : ndarray of shape (n_weights,)
            Where to start.
        max_iter : int
            Iterations at most.
        tol : float
            When to stop; what it is compared with is the method's business.
        callback : callable
            ``callback(w, value) -> bool``.
        rng : numpy.random.RandomState
            Source of randomness.

        Returns
        -------
        result : scipy.optimize.OptimizeResult
            With `x`, `fun`, `nit`, `success` and `message`.
        """


class LBFGS(BaseOptimizer):
    """L-BFGS, started afresh when it stops on a bad search direction (D13 section 8.4).

    Stops when no entry of the gradient is larger than `tol`, or when a fresh start brings nothing.

    Parameters
    ----------
    memory : int, default=10
        Number of corrections that approximate the Hessian.
    max_restarts : int, default=5
        How often to start afresh at most.

    Examples
    --------
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.optimizers import LBFGS
    >>> GridCRFClassifier(optimizer=LBFGS(memory=20))
    GridCRFClassifier(optimizer=LBFGS(memory=20))
    """

    _parameter_constraints = {
        "memory": [Interval(Integral, 1, None, closed="left")],
        "max_restarts": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(self, memory=10, max_restarts=5):
        self.memory = memory
        self.max_restarts = max_restarts

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        def on_iteration(intermediate_result):
            if callback(intermediate_result.x, float(intermediate_result.fun)):
                raise StopIteration

        nit, fun, ftol = 0, np.inf, 64 * np.finfo(np.float64).eps
        options = {"maxcor": self.memory, "gtol": tol, "ftol": ftol, "maxls": 50}
        for _ in range(self.max_restarts + 1):
            result = scipy_minimize(
                objective,
                w,
                jac=True,
                method="L-BFGS-B",
                callback=on_iteration,
                options={**options, "maxiter": max_iter - nit},
            )
            nit += result.nit
            w = result.x
            flat = np.abs(result.jac).max() <= tol
            # A bad direction ends in a line search that fails, or in steps too small to count. If a
            # fresh start does not get further, there is nothing to gain.
            stuck = result.nit == 0 or fun - result.fun <= ftol * max(1.0, abs(result.fun))
            if flat or stuck or nit >= max_iter or result.status not in _BAD_DIRECTION:
                break
            fun = result.fun
        # At a minimum to the last digit no step lowers the value. Far from a gradient of zero there are other
        # reasons: features of very different sizes, or a gradient that is not quite that of the value.
        largest = np.abs(result.jac).max()
        floor = 10 * np.sqrt(np.finfo(np.float64).eps) * max(1.0, abs(result.fun))
        success, message = bool(flat or (stuck and largest <= floor)), result.message
        if stuck and not success:
            message = f"no step lowers the objective, though its gradient is {largest:.1g}"
        return OptimizeResult(x=w, fun=result.fun, nit=nit, success=success, message=message)


class Adam(BaseOptimizer):
    """Mini-batch gradient steps of adaptive size; also serves `partial_fit`.

    An iteration is a pass over the training set. Stops when the mean objective of a pass has not improved
    by more than `tol` for `patience` passes, and returns the best weights of those before and after the best
    pass.

    Parameters
    ----------
    batch_size : int, default=8
        Number of examples in a mini-batch.
    learning_rate : float, default=0.02
        Size of the steps.
    beta1, beta2 : float, default=0.9, 0.99
        How slowly the running mean and square of the gradient forget.
    patience : int, default=5
        Passes without improvement before it stops.

    Examples
    --------
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.optimizers import Adam
    >>> GridCRFClassifier(optimizer=Adam(batch_size=4))
    GridCRFClassifier(optimizer=Adam(batch_size=4))
    """

    _parameter_constraints = {
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "beta1": [Interval(Real, 0, 1, closed="left")],
        "beta2": [Interval(Real, 0, 1, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, batch_size=8, learning_rate=0.02, beta1=0.9, beta2=0.99, patience=5):
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.beta1 = beta1
        self.beta2 = beta2
        self.patience = patience

    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        state, first, around = self.start(w), w, [w]
        best_value, since = np.inf, 0
        nit, settled, message = 0, False, f"reached max_iter={max_iter}"
        while nit < max_iter and not settled:
            before = w
            w, value, state = self.epoch(objective, w, state, rng)
            nit += 1
            since = 0 if value < best_value - tol else since + 1
            if value < best_value:
                best_value, around = value, [before, w]
            settled = since >= self.patience
            if callback(w, value):
                message = "stopped by a callback"
                break
        # The value of a pass is that of weights on its way: what they are worth at its ends is to be seen.
        best_value, best_w = min(((objective(end)[0], end) for end in around), key=itemgetter(0))
        start_value = objective(first)[0]
        if settled and best_value < start_value:
            message = f"no improvement above tol={tol} in {self.patience} passes"
        elif settled:
            best_value, best_w, settled = start_value, first, False
            message = "nothing was better than the start: is learning_rate too high?"
        return OptimizeResult(x=best_w, fun=best_value, nit=nit, success=settled, message=message)

    def start(self, w):
        """Make the state from which the first pass starts.

        Parameters
        ----------
        w : ndarray of shape (n_weights,)
            Weights.

        Returns
        -------
        state : tuple
            Running mean, running square, number of steps.
        """
        return np.zeros_like(w), np.zeros_like(w), 0

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
        mean, square, step = state
        values, sizes = [], []
        for batches in self._mini_batches(objective.batches, rng):
            value, gradient = objective(w, batches)
            values.append(value)
            sizes.append(sum(batch.n_examples for batch in batches))
            step += 1
            mean = self.beta1 * mean + (1 - self.beta1) * gradient
            square = self.beta2 * square + (1 - self.beta2) * gradient**2
            size = self.learning_rate * np.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)
            w = w - size * mean / (np.sqrt(square) + 1e-8)
        return w, float(np.average(values, weights=sizes)), (mean, square, step)

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


class BaseSchedule(BaseEstimator, ABC):
    """Base class of the schedules: what an optimizer sees of the training set, and for how long."""

    _parameter_constraints = {}

    @abstractmethod
    def stages(self, n_examples, max_iter):
        """Plan the fit.

        Parameters
        ----------
        n_examples : int
            Number of training examples.
        max_iter : int
            Iterations of the first stage at most.

        Returns
        -------
        stages : list of tuple of int
            Number of examples and of iterations of each stage; the last has all examples.
        """


class AtOnce(BaseSchedule):
    """All examples in one stage.

    Examples
    --------
    >>> from skcrf.optimizers import AtOnce
    >>> AtOnce().stages(100, 50)
    [(100, 50)]
    """

    def stages(self, n_examples, max_iter):
        return [(n_examples, max_iter)]


class Doubling(BaseSchedule):
    """A few examples first, then twice as many for half as many iterations, and so on (D13 section 8.4).

    Most of the way to the optimum is made on a small part of the training set, which is drawn at random.

    Parameters
    ----------
    first : int, default=32
        Number of examples of the first stage.

    Examples
    --------
    >>> from skcrf.optimizers import Doubling
    >>> Doubling(first=32).stages(200, 100)
    [(32, 100), (64, 50), (128, 25), (200, 12)]
    """

    _parameter_constraints = {"first": [Interval(Integral, 1, None, closed="left")]}

    def __init__(self, first=32):
        self.first = first

    def stages(self, n_examples, max_iter):
        stages, used = [], self.first
        while used < n_examples:
            stages.append((used, max_iter))
            used, max_iter = 2 * used, max(1, max_iter // 2)
        return [*stages, (n_examples, max_iter)]


OPTIMIZERS = {"adam": Adam, "lbfgs": LBFGS}
SCHEDULES = {"at_once": AtOnce, "doubling": Doubling}
