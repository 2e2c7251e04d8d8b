"""From validated examples to batches."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from sklearn.utils import compute_class_weight

from skcrf.features import Batch
from skcrf.graph import isolated, pack

# Sites that make a batch worth its overhead. Larger examples are batches of their own, and their
# features are not copied; smaller ones are packed together. A constant, so that results do not depend
# on the number of jobs.
_BATCH_SITES = 2048


class Fields(NamedTuple):
    """Validated examples.

    Attributes
    ----------
    features : list of ndarray of shape (n_sites, n_features), or one ndarray
        The features of each example; for a table one array whose rows are the examples.
    shapes : list of tuple
        The shape of the labels of each example; () for the rows of a table.
    """

    features: list | np.ndarray
    shapes: list

    @property
    def is_table(self):
        """Whether the examples are rows of a table."""
        return self.shapes[0] == ()

    @property
    def sizes(self):
        """ndarray of shape (n_examples,): the number of sites of each example."""
        return np.array([math.prod(shape) for shape in self.shapes])


def make_batches(fields, estimator, y=None, weight=None, class_weights=None, batch_size=None, rng=None):
    """Pack examples into batches.

    Parameters
    ----------
    fields : Fields
        The examples.
    estimator : BaseFieldClassifier
        Says which graph and edge features an example has.
    y : ndarray of shape (n_sites,), default=None
        Labels of all sites of all examples, -1 where hidden; None where nothing is known.
    weight : ndarray of shape (n_examples,), default=None
        Weights, for training; examples that have no weight or no label are left out.
    class_weights : ndarray of shape (n_classes,), default=None
        Weights of the classes.
    batch_size : int, default=None
        Number of examples in a batch at most.
    rng : numpy.random.RandomState, default=None
        Shuffles the examples, where there is a batch size.

    Returns
    -------
    batches : list of Batch
        All examples, in order unless they are shuffled; none if none teaches anything.
    """
    sizes = fields.sizes
    ends = np.cumsum(sizes)
    y = np.full(ends[-1], -1) if y is None else y
    keep = np.arange(len(sizes))
    if weight is not None:
        labels = np.add.reduceat(y >= 0, ends - sizes)
        keep = np.flatnonzero((labels > 0) & (weight > 0))
    if batch_size is not None:
        keep = rng.permutation(keep)  # sorted data must not give batches of one class
    weight = np.ones(len(sizes)) if weight is None else weight
    graph_of = cache(estimator._graph)  # images of one size share their graph
    batches = []
    for chosen in _partition(keep, sizes, batch_size):
        if fields.is_table:
            known = y[chosen]
            graph, X, V = _table_batch(fields, estimator, chosen)
        else:
            known = np.concatenate([y[ends[i] - sizes[i] : ends[i]] for i in chosen])
            graph, X, V = _batch(fields, estimator, chosen, graph_of)
        site_weight = None if class_weights is None else np.where(known >= 0, class_weights[known], 0.0)
        batches.append(Batch(graph, X, V, known, weight[chosen], site_weight))
    return batches


def _table_batch(fields, estimator, chosen):
    in_order = (np.diff(chosen) == 1).all()
    rows = slice(chosen[0], chosen[-1] + 1) if in_order else chosen
    return isolated(len(chosen)), fields.features[rows], np.zeros((0, estimator.n_edge_features_))


def _batch(fields, estimator, chosen, graph_of):
    graphs = [graph_of(fields.shapes[i]) for i in chosen]
    features = [fields.features[i] for i in chosen]
    V = [estimator._edge_values(graph, X) for graph, X in zip(graphs, features, strict=True)]
    if len(chosen) == 1:
        return graphs[0], features[0], V[0]
    return pack(graphs), np.concatenate(features), np.concatenate(V)


def _partition(keep, sizes, batch_size):
    """Cut the examples into runs of few sites and of few examples, whichever is less."""
    if len(keep) == 0:
        return
    start, sites = 0, 0
    for i, size in enumerate(sizes[keep]):
        full = sites + size > _BATCH_SITES or (batch_size is not None and i - start >= batch_size)
        if i > start and full:
            yield keep[start:i]
            start, sites = i, 0
        sites += size
    yield keep[start:]


def class_weights_of(class_weight, classes, y, site_weight):
    """Compute the weight of each class.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        What the user asks for.
    classes : ndarray of shape (n_classes,)
        Labels.
    y : ndarray of shape (n_sites,)
        Labels of all sites, -1 where hidden.
    site_weight : ndarray of shape (n_sites,)
        The weight of the example a site belongs to.

    Returns
    -------
    weights : ndarray of shape (n_classes,) or None
        Weights.
    """
    if class_weight is None:
        return None
    if class_weight != "balanced":
        weights = compute_class_weight(class_weight, classes=classes, y=classes)
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"class_weight={class_weight!r}: expected finite weights of at least 0.")
        return weights
    counts = np.bincount(y[y >= 0], weights=site_weight[y >= 0], minlength=len(classes))
    present = counts > 0
    return np.where(present, counts.sum() / (present.sum() * np.where(present, counts, 1.0)), 1.0)
