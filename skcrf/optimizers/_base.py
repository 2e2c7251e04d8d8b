"""The optimizer door: an objective ``w -> (value, gradient)`` goes in, the best weights come out."""

from abc import ABC, abstractmethod

from sklearn.base import BaseEstimator


class BaseOptimizer(BaseEstimator, ABC):
    """Base class of the optimizers.

    Conventions
    -----------
    - An objective is called with weights, one vector, and gives value and gradient there. Mini-batch
      methods also pass the `batches` to evaluate, some of ``objective.batches``.
    - Some methods ask more of it, by name: ``objective.training_error(w)``, the share of labels that are
      predicted wrong; ``objective.split()``, two objectives whose difference it is, and ``objective.smooth``;
      ``objective.not_convex_because``, which raises if it is known not to be convex;
      ``objective.ridge`` and ``objective.share(w, batches)``, the parts of a structured SVM.
    - ``callback(w, value)`` is called after each iteration, with ``error=`` where it is known, and returns
      whether to stop. Methods that know what the start is worth call it before, with ``start=True``.
      Methods that run another in each iteration call it after each one of that, too, with ``inner=True``: no
      iteration is counted, but users see progress, and lose nothing when they interrupt.
    - The result is that of `scipy.optimize`; where it has no success, `advice` may say what would help.
    """

    _parameter_constraints = {}

    #: Number of examples in a mini-batch; None for methods that use all.
    batch_size = None
    #: What it minimises: "any" objective, a "convex" one, a "difference" of these, or a structured "svm".
    objectives = "any"
    #: Whether it minimises any smooth function, such as that of the model that a fit starts from.
    general = True
    #: Whether it starts from the weights that it is given.
    starts = True

    def check(self, objective):
        """Refuse an objective that is none of those that the method is for.

        Parameters
        ----------
        objective : callable
            The objective.
        """

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
