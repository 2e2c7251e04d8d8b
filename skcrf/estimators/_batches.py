"""From validated examples to batches."""

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


def make_batches(fields, estimator, y=None, weight=None, class_weights=None, batch_size=None):
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

    Returns
    -------
    batches : list of Batch
        All examples, in order.
    """
    sizes = np.array([int(np.prod(shape)) for shape in fields.shapes])
    ends = np.cumsum(sizes)
    y = np.full(ends[-1], -1) if y is None else y
    keep = np.arange(len(sizes))
    if weight is not None:
        labels = np.add.reduceat(y >= 0, ends - sizes)
        keep = np.flatnonzero((labels > 0) & (weight > 0))
        if len(keep) == 0:
            raise ValueError("No example has both a label in Y and a non-zero weight in sample_weight.")
    weight = np.ones(len(sizes)) if weight is None else weight
    make = _table_batch if fields.is_table else _batch
    batches = []
    for chosen in _partition(keep, sizes, batch_size):
        known = np.concatenate([y[ends[i] - sizes[i] : ends[i]] for i in chosen])
        graph, X, V = make(fields, estimator, chosen)
        site_weight = None if class_weights is None else np.where(known >= 0, class_weights[known], 0.0)
        batches.append(Batch(graph, X, V, known, weight[chosen], site_weight))
    return batches


def _table_batch(fields, estimator, chosen):
    first, last = chosen[0], chosen[-1]
    rows = slice(first, last + 1) if last - first + 1 == len(chosen) else chosen
    return isolated(len(chosen)), fields.features[rows], np.zeros((0, estimator.n_edge_features_))


def _batch(fields, estimator, chosen):
    graphs = [estimator._graph(fields.shapes[i]) for i in chosen]
    features = [fields.features[i] for i in chosen]
    V = [estimator._edge_values(graph, X) for graph, X in zip(graphs, features, strict=True)]
    if len(chosen) == 1:
        return graphs[0], features[0], V[0]
    return pack(graphs), np.concatenate(features), np.concatenate(V)


def _partition(keep, sizes, batch_size):
    """Cut the examples into runs of few sites and of few examples, whichever is less."""
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
        return compute_class_weight(class_weight, classes=classes, y=classes)
    counts = np.bincount(y[y >= 0], weights=site_weight[y >= 0], minlength=len(classes))
    present = counts > 0
    return np.where(present, counts.sum() / (present.sum() * np.where(present, counts, 1.0)), 1.0)
