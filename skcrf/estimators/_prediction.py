"""From batches to predictions, example by example."""

from collections.abc import Callable
from copy import copy
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from skcrf._registry import resolve
from skcrf.data import (
    Labels,
    Source,
    any_lazy,
    by_their_numbers,
    check_shape,
    check_weights,
    like_container,
    read_labels,
)
from skcrf.data.batches import make_batches, partition
from skcrf.data.lazy import lazy_batches
from skcrf.estimators._decoding import Decoded, Posed, by_example, choose, field_of, needs_marginals
from skcrf.inference import INFERENCE, BaseInference
from skcrf.metrics import pooled_accuracy
from skcrf.models.weights import Weights
from skcrf.training.convergence import not_inferred, warn_of
from skcrf.training.learning import decoding_for

# Examples that are predicted at a time where scores are summed up: their predictions are all that is kept.
_TOGETHER = 16


def of_sites(batch, beliefs):
    """Cut the marginals of sites into examples.

    Parameters
    ----------
    batch : Batch
        The examples.
    beliefs : Beliefs
        What inference gave.

    Returns
    -------
    P : list of ndarray of shape (..., n_classes)
        One an example, of the shape of its labels; of a table one array.
    """
    return by_example(batch, beliefs.mu)


def of_edges(batch, beliefs):
    """Cut the marginals of edges into examples.

    Parameters
    ----------
    batch : Batch
        The examples.
    beliefs : Beliefs
        What inference gave.

    Returns
    -------
    P : list of ndarray of shape (n_edges, n_classes, n_classes)
        One an example, edges in their order.
    """
    return np.split(beliefs.edge_mu, batch.graph.edge_ptr[1:-1])


class Marginals(NamedTuple):
    """What is done with a batch; all that travels to where the batch is.

    Attributes
    ----------
    weights : Weights
        Parameters.
    inference : BaseInference
        The inference.
    arranged : callable
        From batch and beliefs to a list of arrays, one an example: `of_sites`, or something of edges.
    """

    weights: Weights
    inference: BaseInference
    arranged: Callable = of_sites

    @by_their_numbers
    def __call__(self, batch):
        """Infer the marginals of a batch.

        Parameters
        ----------
        batch : Batch
            Some examples.

        Returns
        -------
        P : list of ndarray
            What is wanted of each example.
        converged : bool
            Whether inference did, on all of them.
        """
        edges = self.arranged is not of_sites
        beliefs = self.inference.forward(*field_of(self.weights, batch), 1.0, edges=edges)
        return self.arranged(batch, beliefs), bool(beliefs.converged.all())


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


def lazy_accuracy(predict, X, y, sample_weight, missing_label, advice=""):
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
    advice : str, default=""
        What to say of labels of a wrong shape.

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
            check_shape(labels, predicted.shape, truth.called(i), f"X[{some[i]}]", advice)
            values, hidden = read_labels(labels, missing_label, truth.called(i))
            right += weight[some[i]] * np.count_nonzero((values == predicted) & ~hidden)
            total += weight[some[i]] * np.count_nonzero(~hidden)
    if not total > 0:
        raise ValueError("No site counts: every label in y is hidden, or has weight 0 by sample_weight.")
    return right / total


class PredictionMixin:
    """What a fitted classifier of fields says of other examples."""

    def _batches_of(self, X, Y=None, *, alone=False):
        """Put examples, and what is known of their labels, into batches; tell whether X is a table.

        With `alone` every example is a batch by itself, unless they are rows of a table.
        """
        check_is_fitted(self)
        if any_lazy(X, Y, self._reads.is_example):
            # One example each: how many would go together is known only after they were loaded.
            parts = [[i] for i in range(len(X))]
            return lazy_batches(X, Y, self._reading(), parts, np.ones(len(X))), False
        fields = self._read(X, reset=False)
        known = None
        if Y is not None:
            advice = self._reads.advice
            labels = Labels(Y, fields.shapes, missing_label=self.missing_label, advice=advice)
            known = labels.encode(self.classes_)
        every = np.arange(len(fields.shapes))
        chosen = every[:, None] if alone and not fields.is_table else partition(every, fields.sizes)
        weight = np.ones(len(fields.shapes))
        return make_batches(fields, known, self._reading(), chosen, weight), fields.is_table

    def _run(self, work, X, Y):
        """Do some work on all batches; put what was found for each into the container of X."""
        batches, is_table = self._batches_of(X, Y)
        with self._workers() as run:
            results = run(work, batches, title="inference")
        if not all(converged for _, converged in results):
            warn_of(*not_inferred(self.inference_))
        P = [p for found, _ in results for p in found]
        return np.concatenate(P) if is_table else like_container(X, P)

    def _infer(self, X, Y, **wanted):
        """Infer the marginals of the sites, or what else is wanted: see `Marginals`."""
        check_is_fitted(self)
        return self._run(Marginals(self._weights(), self.inference_, **wanted), X, Y)

    @needs_marginals
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

    @needs_marginals
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
        """Predict the label of every site.

        That is the one of the largest marginal, or the one in the most probable configuration: see the
        parameter `decoding`. At hidden variables it is their best state given the labels.

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
        check_is_fitted(self)
        states = self._run(Decoded(self._weights(), self.inference_, self._decoding()), X, Y)
        return map_examples(lambda x: self.classes_[x], states)

    def with_inference(self, inference):
        """Make a copy that predicts with the same weights by another inference.

        Weights are best with the inference that they were learned for; but a few iterations in training may
        be worth more of them in prediction, a MAP solver is what gives labels only, and samples tell how sure
        they are.

        Parameters
        ----------
        inference : str or BaseInference
            By name, or as an instance.

        Returns
        -------
        other : estimator
            Fitted. It has the same weights, and `inference` as its parameter.

        Examples
        --------
        >>> from skcrf import GridCRFClassifier
        >>> from skcrf.datasets import make_binary_denoising
        >>> X, Y = make_binary_denoising(n_images=4, shape=(16, 16), noise=1.5, random_state=0)
        >>> est = GridCRFClassifier(max_iter=20, tol=1e-2).fit(X[:3], Y[:3])
        >>> est.with_inference("graph_cut").predict(X[3:]).shape
        (1, 16, 16)
        """
        check_is_fitted(self)
        other = copy(self)
        for name, component in self.get_params(deep=False).items():
            if name != "init" and hasattr(component, "get_params"):
                setattr(other, name, clone(component))  # to be set apart from now on
        vars(other).pop("_pass", None)  # of `partial_fit`, which then starts afresh
        other.inference = inference
        other._validate_params()
        other.inference_ = resolve(INFERENCE, inference, name="inference")
        other.inference_.check_layout(self._structure.layout)
        other._decoding()  # refuses what it cannot do
        return other

    def potentials(self, X, Y=None):
        """Compute the potentials of the fields, to which any inference can be applied.

        That tells what `predict` does not: how good a configuration is, and how much better another one may
        be, what else but the fitted inference would say, or how sure samples are.

        Parameters
        ----------
        X : sequence of examples
            What is seen; see the class.
        Y : sequence of array-like, default=None
            What is known, as for `predict_proba`: other labels of these sites are forbidden.

        Returns
        -------
        fields : list of tuple
            Graph and `Potentials` of each example, states being numbers of `classes_`; of the rows of a table
            one of some of them after the other.

        Examples
        --------
        >>> from skcrf import GridCRFClassifier
        >>> from skcrf.datasets import make_binary_denoising
        >>> from skcrf.inference import TRWS
        >>> X, Y = make_binary_denoising(n_images=4, shape=(16, 16), random_state=0)
        >>> est = GridCRFClassifier("graph_cut", "pseudolikelihood").fit(X, Y)
        >>> graph, theta = est.potentials(X[:1])[0]
        >>> cut, chains = est.inference_.forward(graph, theta), TRWS().forward(graph, theta, tau=0.0)
        >>> bool(chains.log_z[0] <= cut.log_z[0] <= chains.bound[0])
        True
        """
        batches, _ = self._batches_of(X, Y, alone=True)
        with self._workers() as run:
            return run(Posed(self._weights()), batches, title="potentials")

    def _decoding(self):
        """Find how labels are decoded, and refuse what the inference cannot do."""
        return choose(self.decoding, decoding_for(self.loss_), self.inference_)

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
        if any_lazy(X, y, self._reads.is_example):
            advice = self._reads.advice
            return lazy_accuracy(self.predict, X, y, sample_weight, self.missing_label, advice)
        labels = self.predict(X)
        return pooled_accuracy(y, labels, missing_label=self.missing_label, sample_weight=sample_weight)
