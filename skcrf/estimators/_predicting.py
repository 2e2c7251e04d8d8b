"""From batches to predictions, example by example."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skcrf._examples import Source, any_lazy, check_weights, like_container
from skcrf._labels import Labels, check_shape, read_labels
from skcrf.estimators._batches import make_batches, partition
from skcrf.estimators._lazy import lazy_batches
from skcrf.features import Weights, potentials
from skcrf.graph import clamp
from skcrf.inference import BaseInference
from skcrf.metrics import pooled_accuracy

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


def warn_of(problem, advice):
    """Warn that something did not converge.

    Parameters
    ----------
    problem, advice : str
        What is wrong, and what to do.
    """
    warnings.warn(f"{problem}: {advice}.", ConvergenceWarning, stacklevel=5)


class PredictionMixin:
    """What a fitted classifier of fields says of other examples."""

    def _infer(self, X, Y, n_directions=0):
        """Infer the marginals of the sites, or of the edges in so many directions."""
        check_is_fitted(self)
        if any_lazy(X, Y):
            # One example each: how many would go together is known only after they were loaded.
            parts, is_table = [[i] for i in range(len(X))], False
            batches = lazy_batches(X, Y, self._reading(), parts, np.ones(len(X)))
        else:
            fields = self._read(X, reset=False)
            known = None
            if Y is not None:
                labels = Labels(Y, fields.shapes, missing_label=self.missing_label)
                known = labels.encode(self.classes_)
            chosen = partition(np.arange(len(fields.shapes)), fields.sizes)
            weight = np.ones(len(fields.shapes))
            batches, is_table = make_batches(fields, known, self._reading(), chosen, weight), fields.is_table
        with self._workers() as run:
            results = run(
                Marginals(self._weights(), self.inference_, n_directions), batches, title="inference"
            )
        if not all(converged for *_, converged in results):
            warn_of(*self._not_inferred())
        return by_example(X, results, is_table=is_table)

    def predict_proba(self, X, Y=None):
        """Infer the marginals of every site.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like, default=None
            What is known: labels of some sites, hidden where masked or equal to `missing_label`. The
            answer is then given these labels.

        Returns
        -------
        P : sequence of ndarray of shape (..., n_classes)
            Probabilities of the classes, in the order of `classes_`, in the kind of container X is.
        """
        return self._infer(X, Y)

    def predict_log_proba(self, X, Y=None):
        """Infer the logarithms of the marginals of every site.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like, default=None
            What is known, as for `predict_proba`.

        Returns
        -------
        P : sequence of ndarray of shape (..., n_classes)
            Log-probabilities of the classes.
        """
        with np.errstate(divide="ignore"):
            return map_examples(np.log, self.predict_proba(X, Y))

    def predict(self, X, Y=None):
        """Predict the label of every site: the one of the largest marginal.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like, default=None
            What is known, as for `predict_proba`.

        Returns
        -------
        labels : sequence of ndarray
            Labels, in the kind of container that X is.
        """
        return map_examples(lambda p: self.classes_[np.argmax(p, axis=-1)], self.predict_proba(X, Y))

    def score(self, X, y, sample_weight=None):
        """Compute the pooled accuracy: the share of labelled sites that are predicted right.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        y : sequence of array-like
            True labels; hidden ones do not count.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        score : float
            Accuracy.
        """
        if any_lazy(X, y):
            return lazy_accuracy(self.predict, X, y, sample_weight, self.missing_label)
        labels = self.predict(X)
        return pooled_accuracy(y, labels, missing_label=self.missing_label, sample_weight=sample_weight)
