"""Base class of the losses."""

from abc import ABC, abstractmethod

import numpy as np
from sklearn.base import BaseEstimator

from skcrf._registry import names_of
from skcrf.graph import ExampleError, scaled

#: Attributes of losses that were renamed, and the attributes that replace them.
_RENAMED = {
    "subgradient": "is_smooth",
    "site_costs": "site_weighted",
    "hidden_labels": "takes_hidden_labels",
    "convex": "difference",
    "concave": "difference",
}


class BaseLoss(BaseEstimator, ABC):
    """Base class of all losses.

    A loss compares the beliefs of an inference with the labels, and returns its value and its derivative with
    respect to the potentials. It knows neither features nor weights.

    Conventions
    -----------
    - y (n_nodes,) holds states, -1 where the label is hidden.
    - The loss of an example is a sum over its labelled nodes (or cliques). It is to be minimised.
    - The loss of an example without labels is 0.
    - The inference is called if and only if ``needs | tasks`` is not empty.

    A subclass implements `_evaluate` and sets the class attributes that differ from the defaults. The test
    suite checks them for every loss in `LOSSES`. The properties follow from these attributes, or have values
    that suit nearly every loss.
    """

    _parameter_constraints = {}

    #: Beliefs that the loss differentiates: a subset of {"mu", "log_z"}.
    needs = frozenset()
    #: Supported graphs: "any", "pairwise" (graphs with edges, no factors) or "lattice" (lattices and graphs
    #: without edges).
    graphs = "any"
    #: Whether the loss is smooth in theta; if not, its derivative is a subgradient.
    is_smooth = True
    #: Whether the loss is convex in theta if inference is exact and no label is hidden.
    is_convex = False
    #: Whether nodes can have weights: the loss is a sum over nodes, or of costs at nodes.
    site_weighted = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        for old in _RENAMED.keys() & vars(cls).keys():
            raise TypeError(f"{cls.__name__} must set {_RENAMED[old]}, got {old}, which was renamed.")

    @property
    def tasks(self):
        """Frozenset: tasks that the inference must support, a subset of {"sum", "max", "mixed"}.

        By default "sum" if the loss differentiates marginals, else none.
        """
        return frozenset({"sum"} if "mu" in self.needs else ())

    @property
    def difference(self):
        """None, or two functions of which the loss is the difference: see `DifferenceLoss`."""
        return None

    @property
    def conditions_on_labels(self):
        """Whether the loss needs no more of a normalised field than the field with its labels clamped."""
        return False

    @property
    def reads_tables(self):
        """Whether the loss reads the tables of theta itself, so that Potts tables have to be written out."""
        return True

    @property
    def takes_hidden_labels(self):
        """Whether some labels of an example may be hidden while others are known."""
        return True

    @property
    def starts_from(self):
        """str: the start of a fit with ``init="auto"``, "coupled", "independent" or another loss."""
        # Some other losses have no minimum with truncated inference, or one with too strong couplings.
        return "coupled" if "mu" in self.needs else "independent"

    def second_inference_of(self, inference):
        """Make the second inference that the loss calls besides the inference of the estimator.

        It is checked as the first one is: its task, its derivative and its layouts.

        Parameters
        ----------
        inference : BaseInference
            The first inference, which may be wrapped by a gradient strategy.

        Returns
        -------
        second : BaseInference or None
            The second inference, wrapped as the first one is; None if the loss calls no other.
        """
        return None

    def __call__(self, inference, graph, theta, y, site_weight=None):
        """Evaluate the loss and its derivative.

        Parameters
        ----------
        inference : BaseInference
            The inference; losses that do not call it accept None.
        graph : Graph or FactorGraph
            Structure of the batch.
        theta : Potentials
            Potentials.
        y : ndarray of shape (n_nodes,)
            Labels, -1 where hidden.
        site_weight : ndarray of shape (n_nodes,), default=None
            Weight of each node. Losses that are not `site_weighted` accept weights only if every example has
            a single node.

        Returns
        -------
        value : ndarray of shape (n_examples,)
            Loss of each example.
        d_theta : Potentials
            Derivative of the sum of the values with respect to theta.
        converged : ndarray of shape (n_examples,)
            Whether the inference converged; True for losses that do not call it.
        """
        name = type(self).__name__
        if self.graphs != "any" and graph.layout != "pairwise":
            raise ValueError(
                f"graph must have the layout 'pairwise' for {name}, got {graph.layout!r}. "
                f"Use one of {self._names_of(lambda loss: loss.graphs == 'any')}."
            )
        sizes, known = np.diff(graph.node_ptr), y >= 0
        n_labels = sizes if known.all() else np.bincount(graph.node_example[known], minlength=len(sizes))
        self.check(inference, n_labels, sizes, theta.unary.shape[1])
        if site_weight is None or self.site_weighted:
            return self._evaluate(inference, graph, theta, y, site_weight)
        if graph.n_nodes > graph.n_examples:
            raise ValueError(
                f"site_weight must be None for {name}, which is not a sum over nodes, got an array. "
                f"Set class_weight=None or use one of {self._names_of(lambda loss: loss.site_weighted)}."
            )
        # In examples with a single node, the weight of the node is the weight of the example.
        value, d_theta, converged = self._evaluate(inference, graph, theta, y, None)
        return value * site_weight, scaled(graph, d_theta, site_weight), converged

    def for_batch(self, numbers):
        """Return the loss to evaluate on a batch.

        Parameters
        ----------
        numbers : ndarray of shape (n_examples,)
            Index of each example of the batch in the training set.

        Returns
        -------
        loss : BaseLoss
            The loss itself, unless it depends on these indices, as losses that draw random numbers do.
        """
        return self

    def check(self, inference, n_labels, sizes, n_states):
        """Raise an error if the loss does not support the labels or the inference.

        Called once before a fit and in every evaluation.

        Parameters
        ----------
        inference : BaseInference
            The inference.
        n_labels : ndarray of shape (n_examples,)
            Number of known labels; 0 for examples that do not count.
        sizes : ndarray of shape (n_examples,)
            Number of nodes.
        n_states : int
            Number of states of a node.
        """
        partly = (n_labels > 0) & (n_labels < sizes)
        if partly.any() and not self.takes_hidden_labels:
            example = int(np.argmax(partly))
            able = self._names_of(
                lambda loss: (
                    loss.takes_hidden_labels and (loss.difference is None) == (self.difference is None)
                )
            )
            raise ExampleError(
                f"y must have no hidden labels for {type(self).__name__}, got {(sizes - n_labels)[example]} "
                f"hidden of {sizes[example]} labels in {{example}}. Use one of {able}.",
                example,
            )

    @abstractmethod
    def _evaluate(self, inference, graph, theta, y, site_weight):
        """Compute the result of `__call__`, whose arguments have been checked."""

    def _names_of(self, condition):
        """List the names of the losses that meet a condition."""
        from skcrf.losses import LOSSES  # not complete while this module is imported

        return names_of(LOSSES, condition)
