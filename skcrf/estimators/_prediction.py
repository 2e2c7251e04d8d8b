"""Predictions of fitted classifiers."""

from copy import copy

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from skcrf._registry import resolve
from skcrf.data import (
    Examples,
    Labels,
    LazyClassIndices,
    Source,
    any_lazy,
    check_weights,
    is_table,
    like_container,
    make_batches,
    partition,
)
from skcrf.estimators._decoding import ComputePotentials, DecodeLabels, InferMarginals
from skcrf.inference import INFERENCE
from skcrf.training import missing_marginals, warn_inference

# Lazy examples that are predicted at a time in `score`; only their predictions are kept.
_SCORED_TOGETHER = 16


def _gives_marginals(estimator):
    # Predictions use the inference of the fit, whatever parameters are set later.
    inference = vars(estimator).get("inference_", estimator.inference)
    method = INFERENCE.get(inference) if isinstance(inference, str) else inference
    problem = None if method is None else missing_marginals(method, inference)
    if problem is not None:
        raise AttributeError(problem)
    return True


#: Decorator of methods that exist only if the inference gives marginals.
needs_marginals = available_if(_gives_marginals)


def _map_examples(function, P):
    """Apply a function to the array of each example, and keep the container."""
    if isinstance(P, np.ndarray) and P.dtype != object:
        return function(P)
    return like_container(P, [function(p) for p in P])


class PredictionMixin:
    """Methods of a fitted classifier."""

    def _batches_of(self, X, Y=None, *, alone=False):
        """Return batches of examples with known labels, and whether X is a table.

        With `alone`, every example is a batch of its own, unless X is a table.
        """
        check_is_fitted(self)
        advice = self._reader.advice
        if any_lazy(X, Y, self._reader.is_example):
            # One example per batch: their sizes are known only after they are loaded.
            examples, alone = Examples(_source(X, Y, self._reader), self._fitted_reader, None), True
            labels = Y
            if Y is not None:
                source = Source(Y, "Y")
                labels = LazyClassIndices(source, self.classes_, self.missing_label, advice)
        else:
            examples = self._read(X, reset=False)
            labels = Y
            if Y is not None:
                checked = Labels(Y, examples.shapes, missing_label=self.missing_label, advice=advice)
                labels = checked.encode(self.classes_)
        every = np.arange(len(examples))
        alone = alone and not examples.is_table
        parts = every[:, None] if alone else partition(every, examples.sizes)
        batches = make_batches(examples, labels, self._topology, parts, np.ones(len(examples)))
        return batches, examples.is_table

    def _run(self, work, X, Y):
        """Run a function of batches; return its results per example in the container of X."""
        batches, is_table = self._batches_of(X, Y)
        with self._workers() as run:
            results = run(work, batches, title="inference")
        if not all(converged for _, converged in results):
            warn_inference(self.inference_)
        P = [p for found, _ in results for p in found]
        return np.concatenate(P) if is_table else like_container(X, P)

    def _infer(self, X, Y, **options):
        """Infer the marginals of the sites, or of the edges: see `InferMarginals`."""
        check_is_fitted(self)
        return self._run(InferMarginals(*self._fitted_model(), self.inference_, **options), X, Y)

    @needs_marginals
    def predict_proba(self, X, Y=None):
        """Compute the marginals of every site.

        Parameters
        ----------
        X : sequence of examples
            Examples; see the class.
        Y : sequence of array-like, default=None
            Known labels of some sites, hidden where masked or equal to `missing_label`. Marginals are
            conditional on them.

        Returns
        -------
        P : sequence of ndarray of shape (..., n_classes)
            Probabilities of the classes in the order of `classes_`, in the kind of container that X is.
        """
        return self._infer(X, Y)

    @needs_marginals
    def predict_log_proba(self, X, Y=None):
        """Compute the logarithms of the marginals of every site.

        Parameters
        ----------
        X : sequence of examples
            Examples; see the class.
        Y : sequence of array-like, default=None
            Known labels, as for `predict_proba`.

        Returns
        -------
        P : sequence of ndarray of shape (..., n_classes)
            Log-probabilities of the classes.
        """
        with np.errstate(divide="ignore"):
            return _map_examples(np.log, self.predict_proba(X, Y))

    def predict(self, X, Y=None):
        """Predict the label of every site.

        The label has the largest marginal, or belongs to the most probable configuration: see the parameter
        `decoding`. Hidden variables get their best state given the labels.

        Parameters
        ----------
        X : sequence of examples
            Examples; see the class.
        Y : sequence of array-like, default=None
            Known labels, as for `predict_proba`.

        Returns
        -------
        labels : sequence of ndarray
            Labels, in the kind of container that X is.
        """
        check_is_fitted(self)
        work = DecodeLabels(*self._fitted_model(), self.inference_, self._decoding())
        return _map_examples(lambda states: self.classes_[states], self._run(work, X, Y))

    def with_inference(self, inference):
        """Return a copy that predicts with the same weights by another inference.

        Weights are best with the inference that they were learned for. Useful exceptions are more iterations
        in prediction than in training, a MAP solver that gives labels only, and sampling.

        Parameters
        ----------
        inference : str or BaseInference
            Name or instance.

        Returns
        -------
        other : estimator
            Fitted copy with the same weights and the parameter `inference`.

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
        params = self.get_params(deep=False)
        for name in self._components:
            setattr(other, name, clone(params[name], safe=False))  # later changes must not reach both copies
        vars(other).pop("_partial_fit_state", None)
        other.inference = inference
        other._validate_params()
        other.inference_ = resolve(INFERENCE, inference, name="inference")
        other.inference_.check_layout(self._model().layout)
        other._decoding()  # raises an error if the inference cannot do it
        return other

    def potentials(self, X, Y=None):
        """Compute the potentials of the fields, to which any inference can be applied.

        With them one can compare inferences, score a configuration, bound the best score, or sample.

        Parameters
        ----------
        X : sequence of examples
            Examples; see the class.
        Y : sequence of array-like, default=None
            Known labels, as for `predict_proba`: other labels of these sites are forbidden.

        Returns
        -------
        fields : list of tuple
            Graph and `Potentials` of each example, states being indices into `classes_`. For a table, one
            tuple per batch of rows.

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
            return run(ComputePotentials(*self._fitted_model()), batches, title="potentials")

    def score(self, X, y, sample_weight=None):
        """Compute the pooled accuracy: the fraction of labelled sites that are predicted right.

        Parameters
        ----------
        X : sequence of examples
            Examples; see the class.
        y : sequence of array-like
            True labels; hidden ones do not count.
        sample_weight : array-like of shape (n_examples,), default=None
            Weight of each example.

        Returns
        -------
        score : float
            Accuracy.
        """
        check_is_fitted(self)
        right, total = self._count_right(X, y, sample_weight)
        if not total > 0:
            raise ValueError(
                "y and sample_weight must leave a labelled site with a weight above 0, got none."
            )
        return float(right / total)

    def _count_right(self, X, y, sample_weight):
        """Return the weighted number of right labels, and of all labels.

        Lazy examples are predicted a few at a time, and their labels loaded one at a time, to save memory.
        """
        lazy = any_lazy(X, y, self._reader.is_example)
        if lazy and len(y) != len(X):
            raise ValueError(f"y must hold {len(X)} examples, as X does, got {len(y)}.")
        table = not lazy and is_table(X, self._reader.is_example)
        how = {"missing_label": self.missing_label, "name": "y", "advice": self._reader.advice}
        weight = check_weights(sample_weight, _num_samples(X))
        every, counts = np.arange(len(weight)), []
        for some in np.split(every, every[_SCORED_TOGETHER::_SCORED_TOGETHER]) if lazy else [every]:
            predicted = self.predict(Source(X, "X", some) if lazy else X)
            shapes = [()] * len(predicted) if table else [labels.shape for labels in predicted]
            parts = [(y, shapes)]
            if lazy:
                parts = ((Source(y, "y", [i]), [shape]) for i, shape in zip(some, shapes, strict=True))
            labels = (Labels(*part, **how) for part in parts)
            known = (pair for one in labels for pair in zip(one.values, one.hidden, strict=True))
            for (values, hidden), own in zip(known, [predicted] if table else predicted, strict=True):
                right = np.stack([(values == own) & ~hidden, ~hidden], axis=-1).reshape(-1, 2)
                counts.append(right if table else right.sum(axis=0, keepdims=True))
        return weight @ np.concatenate(counts)


def _source(X, Y, reader):
    """Return the source of lazy examples, after a check that there are as many labels."""
    if len(X) == 0:
        raise ValueError(f"X must hold at least one {reader.one}, got none.")
    if Y is not None and len(Y) != len(X):
        raise ValueError(f"Y must hold {len(X)} examples, as X does, got {len(Y)}.")
    return Source(X, "X")
