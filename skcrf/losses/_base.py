"""The loss door: a short program against an inference."""

from abc import ABC, abstractmethod

import numpy as np
from sklearn.base import BaseEstimator

# Probabilities below this are not told apart: the reciprocal, and a sum of it over many sites, must not
# overflow. A site whose label has less than that teaches nothing.
_SMALLEST = 1e-300


class BaseLoss(BaseEstimator, ABC):
    """Base class of all losses.

    Conventions
    -----------
    - y (n_nodes,) holds states, -1 where the label is hidden.
    - The value of an example is a sum over its labelled sites (or cliques), to be minimised.
    - A loss knows neither features nor weights: its derivative is with respect to theta.
    """

    _parameter_constraints = {}

    #: Whether the loss is a sum over sites, each of which can have a weight.
    site_weighted = False
    #: What a fit starts from where the user does not say: "independent", or the loss to minimise first.
    starts_from = "independent"

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate the loss and its derivative.

        Parameters
        ----------
        inference : BaseInference
            The inference whose predictions are judged.
        graph : Graph
            Structure of the batch.
        theta : Potentials
            Potentials.
        y : ndarray of shape (n_nodes,)
            Labels, -1 where hidden.
        site_weight : ndarray of shape (n_nodes,), default=None
            Weight of each site, for losses that are sums over sites.

        Returns
        -------
        value : ndarray of shape (n_examples,)
            Loss of each example.
        d_theta : Potentials
            Derivative of the sum of the values with respect to theta.
        converged : ndarray of shape (n_examples,)
            Whether the inference did.
        """
        if site_weight is not None and not self.site_weighted:
            raise ValueError(
                f"{type(self).__name__} is not a sum over sites, so that sites have no weights: "
                "leave class_weight at None or take another loss."
            )
        return self._evaluate(inference, graph, theta, y, site_weight)

    @abstractmethod
    def _evaluate(self, inference, graph, theta, y, site_weight):
        """Do the work of `__call__`."""


def logistic(mass):
    """Compute ``-log(mass)`` and its derivative.

    Parameters
    ----------
    mass : ndarray
        Probabilities.

    Returns
    -------
    value, derivative : ndarray
        Both finite, also at 0.
    """
    mass = np.maximum(mass, _SMALLEST)
    return -np.log(mass), -1.0 / mass
