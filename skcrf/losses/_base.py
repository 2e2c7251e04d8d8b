"""The loss door: a short program against an inference."""

from abc import ABC, abstractmethod

import numpy as np
from sklearn.base import BaseEstimator

from skcrf.graph import ExampleError, scaled


def has_kinks(loss, inference):
    """Tell whether a loss has kinks with an inference.

    Parameters
    ----------
    loss : BaseLoss
        The loss, or a half of it.
    inference : BaseInference
        The inference.

    Returns
    -------
    has_kinks : bool
        Whether it has its own, or those of best scores where the inference has no sums.
    """
    return loss.subgradient or (bool(loss.needs) and "sum" not in inference.tasks)


class BaseLoss(BaseEstimator, ABC):
    """Base class of all losses.

    Conventions
    -----------
    - y (n_nodes,) holds states, -1 where the label is hidden.
    - The value of an example is a sum over its labelled sites (or cliques), to be minimised.
    - An example without a label costs nothing.
    - What it does not take is refused by `check`, which needs no potentials, so that a fit can ask first.
    - A loss knows neither features nor weights: its derivative is with respect to theta.

    The class attributes are claims, and the test suite holds every class to them.
    """

    _parameter_constraints = {}

    #: What is asked of the inference, and differentiated: a subset of {"mu", "log_z"}. Where it is empty, the
    #: inference is never called.
    needs = frozenset()
    #: Tasks that the inference must be able to do; none where it does what it does by itself.
    tasks = frozenset()
    #: Whether what is needed is rounded to a configuration, so that inference is not differentiated.
    rounds = False
    #: Whether the loss has kinks, where its derivative is one of several.
    subgradient = False
    #: Whether some labels of an example may be hidden while others are known.
    hidden_labels = True
    #: Whether it is convex in theta where inference is exact and all labels are known.
    is_convex = False
    #: Two functions with the door of a loss, convex where inference is exact, whose difference the loss is.
    convex = concave = None
    #: Which half of such a difference it is, for those.
    half = None
    #: Graphs that the loss takes: "any" of any layout, "pairwise" for those that have edges in place of
    #: factors, or "lattice" for lattices and graphs without edges.
    graphs = "any"
    #: Whether all that it asks of a directed model is asked with the known labels clamped.
    clamps = False
    #: Whether the loss is a sum over sites, each of which can have a weight.
    site_weighted = False
    #: Whether the weight of a site is what a wrong label costs there.
    site_costs = False
    #: Whether it draws random numbers, for which it has to be told the examples apart: see `numbered`.
    draws = False
    #: What a fit starts from where the user does not say: "independent", or the loss to minimise first.
    starts_from = "independent"
    #: What minimises it where the user does not say: a name in `skcrf.optimizers.OPTIMIZERS`.
    optimizer = "lbfgs"
    #: How labels are predicted where the user does not say: "mpm", the label of the largest marginal at every
    #: site, "map", the most probable configuration, or "marginal_map", that of the sites that are not hidden
    #: variables, with these summed out.
    decoding = "mpm"

    @property
    def is_smooth(self):
        return not self.subgradient

    @property
    def difference(self):
        return None if self.convex is None else (self.convex, self.concave)

    @property
    def takes_hidden_labels(self):
        return self.hidden_labels

    def for_batch(self, numbers):
        return self.numbered(numbers) if self.draws else self

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
            Weight of each site, for losses that are sums over sites or have costs of sites; any where
            examples have one site each.

        Returns
        -------
        value : ndarray of shape (n_examples,)
            Loss of each example.
        d_theta : Potentials
            Derivative of the sum of the values with respect to theta.
        converged : ndarray of shape (n_examples,)
            Whether the inference did; True for losses without one.
        """
        if self.graphs != "any" and graph.layout != "pairwise":
            raise ValueError(
                f"{type(self).__name__} takes graphs of pairs alone, but this graph has the layout "
                f"{graph.layout!r}: take another loss."
            )
        n_labels = np.bincount(graph.node_example[y >= 0], minlength=graph.n_examples)
        self.check(inference, n_labels, np.diff(graph.node_ptr), theta.unary.shape[1])
        if site_weight is None or self.site_weighted or self.site_costs:
            return self._evaluate(inference, graph, theta, y, site_weight)
        if graph.n_nodes > graph.n_examples:
            raise ValueError(
                f"{type(self).__name__} is not a sum over sites, so that sites have no weights: "
                "leave class_weight at None or take another loss."
            )
        # Where an example is one site, the weight of the site is that of the example.
        value, d_theta, converged = self._evaluate(inference, graph, theta, y, None)
        return value * site_weight, scaled(graph, d_theta, site_weight), converged

    def check(self, inference, n_labels, sizes, n_states):
        """Refuse what the loss does not take: of a fit before it starts, and in every call.

        Parameters
        ----------
        inference : BaseInference
            The inference.
        n_labels : ndarray of shape (n_examples,)
            Number of labels that are known; 0 for examples that do not count.
        sizes : ndarray of shape (n_examples,)
            Number of sites.
        n_states : int
            Number of states of a site.
        """
        partly = (n_labels > 0) & (n_labels < sizes)
        if partly.any() and not self.hidden_labels:
            example = int(np.argmax(partly))
            raise ExampleError(
                f"{type(self).__name__} takes no hidden labels, but {(sizes - n_labels)[example]} of "
                f"{sizes[example]} labels of {{example}} are hidden: take 'latent_hinge', which maximises "
                "over them, or 'marginal_hinge', which sums them out.",
                example,
            )

    @abstractmethod
    def _evaluate(self, inference, graph, theta, y, site_weight):
        """Do the work of `__call__`."""
