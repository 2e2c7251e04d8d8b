"""The interfaces of optimizers and of schedules, and the schedules."""

from abc import ABC, abstractmethod
from numbers import Integral

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval


class BaseOptimizer(BaseEstimator, ABC):
    """Base class of the optimizers, which know an objective and nothing else.

    Conventions
    -----------
    - ``objective(w)`` returns the value and the gradient at a weight vector; ``objective(w, batches)`` those
      of some of ``objective.batches``.
    - ``objective.is_smooth`` is False if the gradient is a subgradient; ``objective.not_convex_because`` is
      None, or a clause such as "labels are hidden".
    - ``objective.split(name)`` returns two objectives, both convex, whose difference is the objective. It
      raises a ValueError with the reason if there are none; `name` is that of the optimizer in the message.
    - ``objective.ridge`` is the strength of the penalty of each weight, and ``objective.share(w, batches)``
      the value and gradient of the terms of some batches in the objective, without the penalty.
    - ``objective.training_error(w)`` is the fraction of wrong predictions, or None if it is not known.
    - ``callback(w, value)`` is called after each iteration, with ``error=`` if the training error is known,
      and returns whether to stop. It is called with ``start=True`` before the first iteration, if the value
      at the start is known, and with ``inner=True`` after each iteration of an inner optimizer: neither
      counts as an iteration, but both are reported, and kept if the user interrupts.
    - The result is that of `scipy.optimize`. Without success, it may have the field `advice`.

    A subclass implements `minimize`, and `check` if it does not minimise every objective.
    """

    _parameter_constraints = {}

    #: Number of examples per mini-batch; None for optimizers that use all examples at once.
    batch_size = None
    #: Supported objectives: "any", "convex", "difference" of convex functions, or "svm", a structured SVM.
    objectives = "any"
    #: Whether it minimises any smooth function of the weights, such as that of the start of a fit.
    general = True
    #: Whether it starts from the given weights.
    uses_init = True
    #: Whether a fit changes the variables so that curvatures are even, where the model knows how.
    precondition = False

    @property
    def makes_epochs(self):
        """Whether it can make single passes over the examples, as `partial_fit` does: see `StepOptimizer`."""
        return False

    def check(self, objective):
        """Raise an error if the optimizer does not support an objective.

        Parameters
        ----------
        objective : callable
            The objective.
        """

    @abstractmethod
    def minimize(self, objective, w, *, max_iter, tol, callback, rng):
        """Minimise an objective.

        Parameters
        ----------
        objective : callable
            The objective.
        w : ndarray of shape (n_weights,)
            Initial weights.
        max_iter : int
            Maximum number of iterations.
        tol : float
            Tolerance of the stopping criterion, which depends on the optimizer.
        callback : callable
            ``callback(w, value) -> bool``.
        rng : numpy.random.RandomState
            Source of randomness.

        Returns
        -------
        result : scipy.optimize.OptimizeResult
            With `x`, `fun`, `nit`, `success` and `message`.
        """


def check_convex(optimizer, objective):
    """Raise an error if an objective is not convex."""
    if objective.not_convex_because is not None:
        raise ValueError(
            f"optimizer must suit the loss: {type(optimizer).__name__} needs a convex objective, got one "
            f"that is not, because {objective.not_convex_because}. Use optimizer='auto'."
        )


# Schedules


class BaseSchedule(BaseEstimator, ABC):
    """Base class of the schedules: the number of examples and iterations in each stage of a fit."""

    _parameter_constraints = {}

    @abstractmethod
    def stages(self, n_examples, max_iter):
        """Plan the stages of a fit.

        Parameters
        ----------
        n_examples : int
            Number of training examples.
        max_iter : int
            Maximum number of iterations of the first stage.

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
    """Doubling the number of examples and halving the number of iterations in each stage (D13 section 8.4).

    Most of the progress is made on a small random part of the training set.

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
