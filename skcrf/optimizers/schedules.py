"""Schedules: the number of training examples and iterations in each stage of a fit."""

from abc import ABC, abstractmethod
from numbers import Integral

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval


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
            Maximal number of iterations of the first stage.

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
