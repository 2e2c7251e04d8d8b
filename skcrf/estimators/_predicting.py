"""From batches to predictions, example by example."""

from typing import NamedTuple

import numpy as np

from skcrf._examples import Source, check_weights, like_container
from skcrf._labels import check_shape, read_labels
from skcrf.features import Weights, potentials
from skcrf.graph import clamp
from skcrf.inference import BaseInference

# Examples that are predicted at a time where scores are summed up: their predictions are all that is kept.
_TOGETHER = 16


class Marginals(NamedTuple):
    """What is done with a batch; all that travels to where the batch is.

    Attributes
    ----------
    weights : Weights
        Parameters.
    inference : BaseInference
        The inference.
    n_directions : int
        Number of groups of edges whose marginals are wanted; 0 for those of the sites.
    """

    weights: Weights
    inference: BaseInference
    n_directions: int = 0

    def __call__(self, batch):
        """Infer the marginals of a batch.

        Parameters
        ----------
        batch : Batch
            Some examples.

        Returns
        -------
        rows : ndarray of shape (n_nodes, n_classes) or (n_nodes, n_directions, n_classes, n_classes)
            Marginals of each site, or of the edges that start there, nan where there is none.
        node_ptr : ndarray of shape (n_examples + 1,)
            Where the sites of each example start.
        shapes : ndarray of shape (n_examples, 2)
            Height and width of each example.
        converged : bool
            Whether inference did, on all of them.
        """
        graph, edges = batch.graph, self.n_directions > 0
        theta = potentials(self.weights, batch)
        if (batch.y >= 0).any():
            theta = clamp(theta, batch.y)
        beliefs = self.inference.forward(graph, theta, edges=edges)
        rows = beliefs.mu
        if edges:
            rows = np.full((graph.n_nodes, self.n_directions, *beliefs.edge_mu.shape[1:]), np.nan)
            rows[graph.edges[:, 0], graph.table_group[graph.edge_table]] = beliefs.edge_mu
        return rows, graph.node_ptr, graph.shapes, bool(beliefs.converged.all())


def by_example(X, results, *, is_table):
    """Cut the rows of each batch's result into examples.

    Parameters
    ----------
    X : sequence of examples
        What the results belong to.
    results : list of tuple
        What `Marginals` gave for each batch.
    is_table : bool
        Whether X is a table.

    Returns
    -------
    P : sequence of ndarray
        In the kind of container that X is.
    """
    if is_table:
        return np.concatenate([rows for rows, *_ in results])
    shaped = []
    for rows, node_ptr, shapes, _ in results:
        examples = np.split(rows, node_ptr[1:-1])
        shaped += [one.reshape(*shape, *one.shape[1:]) for one, shape in zip(examples, shapes, strict=True)]
    return like_container(X, shaped)


def map_examples(function, P):
    """Apply a function to the array of each example, whatever the container.

    Parameters
    ----------
    function : callable
        A function of arrays.
    P : sequence of ndarray
        One array an example, or one array of all.

    Returns
    -------
    results : sequence of ndarray
        In the container of P.
    """
    if isinstance(P, np.ndarray) and P.dtype != object:
        return function(P)
    return like_container(P, [function(p) for p in P])


def lazy_accuracy(predict, X, y, sample_weight, missing_label):
    """Compute the pooled accuracy of examples that are loaded when asked for, a few at a time.

    Parameters
    ----------
    predict : callable
        From examples to labels.
    X : sequence of examples
        What is seen.
    y : sequence of array-like
        True labels.
    sample_weight : array-like of shape (n_examples,) or None
        Weight of each example.
    missing_label : object
        The value that stands for a hidden label.

    Returns
    -------
    accuracy : float
        The share of labelled sites that are predicted right.
    """
    if len(y) != len(X):
        raise ValueError(f"y holds {len(y)} examples, but X holds {len(X)}.")
    weight = check_weights(sample_weight, len(X))
    right = total = 0.0
    for start in range(0, len(X), _TOGETHER):
        some = np.arange(start, min(start + _TOGETHER, len(X)))
        truth = Source(y, "y", some)
        for i, predicted in enumerate(predict(Source(X, "X", some))):
            labels = truth[i]
            check_shape(labels, predicted.shape, truth.called(i), f"X[{some[i]}]")
            values, hidden = read_labels(labels, missing_label, truth.called(i))
            right += weight[some[i]] * np.count_nonzero((values == predicted) & ~hidden)
            total += weight[some[i]] * np.count_nonzero(~hidden)
    if not total > 0:
        raise ValueError("No site counts: every label in y is hidden, or has weight 0 by sample_weight.")
    return right / total
