"""Conditional random fields on sequences."""

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from numbers import Real

import numpy as np
from sklearn.feature_extraction import DictVectorizer

from skcrf._arrays import as_rows
from skcrf._examples import has_axes
from skcrf.estimators._base import BaseFieldClassifier
from skcrf.estimators._decoding import needs_marginals
from skcrf.estimators._predicting import of_edges
from skcrf.estimators._reading import BaseReader, Example
from skcrf.estimators._structures import BaseStructure
from skcrf.graph import chain

# Graphs are kept for the next sequences of their lengths.
_chain = lru_cache(maxsize=64)(chain)


# Types of values of features that need no look at the value.
_PLAIN = {str, bool, int}


def _is_named(item):
    """Tell whether an item of a sequence names its features: a dictionary, or a list of names."""
    names = isinstance(item, (list, tuple, set)) and all(isinstance(name, str) for name in item)
    return isinstance(item, Mapping) or names


class Sequences(BaseReader):
    """Reads sequences: arrays, sparse matrices, or lists of dictionaries of features.

    Parameters
    ----------
    n_features : int, default=None
        Number of features that an item must have; None for any.
    as_in : str, default="in fit"
        Where that number comes from, for messages.
    vectorizer : DictVectorizer, default=None
        Fitted, for dictionaries; None for arrays.
    """

    one, many = "sequence", "sequences"
    advice = (
        "sequences are (length, n_features) or lists of dictionaries of features, labels (length,), "
        "one sequence is [sequence]."
    )

    def __init__(self, n_features=None, as_in="in fit", vectorizer=None):
        super().__init__(n_features, as_in)
        self.vectorizer = vectorizer

    def __call__(self, example, name):
        """Validate one sequence, as `BaseReader` says."""
        check_named(example, self.vectorizer is not None, name, self.as_in)
        if self.vectorizer is not None:
            example = self.vectorizer.transform(checked_names(example, name))
        rows = as_rows(example, name, self.n_features, self.as_in)
        return Example(rows, rows.shape[:1], rows.shape[:1])

    def like(self, example, name):
        known = self.n_features is not None
        return self if known else Sequences(example.X.shape[1], f"in {name}", self.vectorizer)

    def is_example(self, item):
        return has_axes(item) or has_names(item)


def has_names(example):
    """Tell whether a sequence is a list, or an array of objects, of items that name their features.

    Parameters
    ----------
    example : object
        What the user passed.

    Returns
    -------
    has_names : bool
        Whether it is.
    """
    if isinstance(example, np.ndarray):
        # All of them: a table of objects may hold a dictionary by mistake.
        return (
            example.dtype == object
            and example.ndim == 1
            and example.size > 0
            and all(map(_is_named, example))
        )
    return isinstance(example, (list, tuple)) and len(example) > 0 and _is_named(example[0])


def check_named(example, expected, name, as_in):
    """Refuse a sequence that names its features where others do not, or the other way round.

    Parameters
    ----------
    example : object
        What the user passed.
    expected : bool
        Whether features have names.
    name : str
        What to call the sequence in messages.
    as_in : str
        Where that is known from.
    """
    named = has_names(example)
    if named != expected:
        what = "is empty" if _is_empty(example) else "is an array"
        found, wanted = ("names its features", "arrays") if named else (what, "dictionaries")
        raise TypeError(f"{name} {found}, but {wanted} are expected, as {as_in}.")


def _is_empty(example):
    return getattr(example, "size", None) == 0 or (isinstance(example, (list, tuple)) and not example)


def checked_names(sequence, name):
    """Make dictionaries of a sequence whose items name their features.

    Parameters
    ----------
    sequence : list of dict or of list of str
        The items; the names in a list have the value 1.
    name : str
        What to call the sequence in messages.

    Returns
    -------
    items : list of dict
        Features of each item: numbers, bools, strings or lists of strings by name.
    """
    items = []
    for i, item in enumerate(sequence):
        if not _is_named(item):
            raise TypeError(f"{name}[{i}] is {item!r}, expected a dictionary of features.")
        item = item if isinstance(item, Mapping) else dict.fromkeys(item, 1.0)
        if not (_PLAIN.issuperset(map(type, item.values())) and {str}.issuperset(map(type, item))):
            called = f"{name}[{i}]"
            item = {feature: _checked(value, feature, called) for feature, value in item.items()}
        items.append(item)
    return items


def _checked(value, feature, name):
    """Refuse a value of a feature that has no meaning as one."""
    if not isinstance(feature, str):
        raise TypeError(f"{name} has the feature {feature!r}, expected names of features to be strings.")
    if isinstance(value, str) or (type(value) is float and isfinite(value)):  # most are
        return value
    if isinstance(value, (np.bool_, np.ndarray)):
        return _checked(value.tolist(), feature, name)
    if isinstance(value, (Real, Decimal)):
        if not isfinite(value):
            raise ValueError(
                f"{name}[{feature!r}] is {value}, expected a finite number: leave out what is unknown."
            )
        return value
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(one, str) for one in value):
        return value
    hint = "."
    if isinstance(value, Mapping):
        hint = f": give its parts names of their own, such as '{feature}:{next(iter(value), '')}'."
    found = "a dictionary" if isinstance(value, Mapping) else f"{value!r}"
    raise TypeError(
        f"{name}[{feature!r}] is {found}, expected a number, a bool, a string or a list of strings{hint}"
    )


class Chains(BaseStructure):
    """Says that the graph of a sequence is a chain, whose edges share one table."""

    n_edge_features = 1

    def graph(self, outline):
        return _chain(*outline)

    def edge_values(self, graph, outline, X):
        """Give the feature of the table of a sequence, a constant.

        Parameters
        ----------
        graph : Graph
            Its graph.
        outline : tuple
            Its length.
        X : ndarray or CSR matrix of shape (length, n_features)
            Its features.

        Returns
        -------
        V : ndarray of shape (n_tables, 1)
            Ones.
        """
        return np.ones((graph.n_tables, 1))


class ChainCRFClassifier(BaseFieldClassifier):
    """Conditional random field on sequences: a linear chain.

    Every item of a sequence has a label. The model is a chain whose potentials are linear in the features of
    items, and that has a weight for each pair of labels that may follow one another. By default it is learned
    by maximum likelihood; marginals (forward-backward) and the most probable labels (Viterbi) are exact.

    X is a sequence of sequences, which may differ in length: arrays of shape (length, n_features), CSR
    matrices of that shape, whose products stay sparse, or lists of dictionaries of features, from names to
    numbers, bools or strings, for which a `DictVectorizer` is fitted inside; names alone, in a list, have the
    value 1. Names that the fit has not seen, or the first call of `partial_fit`, are left out. The columns of
    data frames are taken in their order, whatever their names. y is a sequence of label sequences of shape
    (length,), ints or strings. Each may be a sequence that loads an example when asked for it. A plain table
    X of shape (n_samples, n_features) with labels y of shape (n_samples,) means sequences of one item each,
    and the model is multinomial logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="tree"
        How marginals are computed, in learning and in prediction alike. By default the exact ones, by one
        pass in each direction.
    loss : str or BaseLoss, default="likelihood"
        What is minimised: a name in `skcrf.losses.LOSSES`, or an instance.
    gradient : str or BaseGradient, default="backprop"
        How the loss is differentiated through the inference.
    optimizer : "auto", str or BaseOptimizer, default="auto"
        How the loss is minimised: a name in `skcrf.optimizers.OPTIMIZERS`, or an instance. "auto" is what
        suits the loss and the inference: "lbfgs" where the loss is smooth.
    schedule : {"at_once", "doubling"} or BaseSchedule, default="at_once"
        What the optimizer sees of the training set. "doubling" starts with a few sequences, and then takes
        twice as many for half as many iterations until it has all.
    init : {"auto", "independent", "zeros"}, the name of a loss or a fitted estimator, default="auto"
        Where the optimizer starts: from the model without edges, from zeros, from the model that another loss
        finds, or from the weights of another estimator of fields. "auto" is what suits the loss. A start that
        has to be fitted is fitted by `optimizer`, or by L-BFGS where that needs mini-batches. In the first
        call of `partial_fit` "auto" means zeros; other starts are fitted to the examples of that call.
    alpha : float, default=1e-3
        Strength of the ridge penalty ``alpha / 2 (||coef_||^2 + ||edge_coef_||^2)``, relative to the
        mean loss of a labelled item.
    fit_intercept : bool, default=True
        Whether each class has a constant.
    decoding : {"auto", "mpm", "map", "marginal_map"}, default="auto"
        What `predict` gives: "mpm" the label of the largest marginal of every item, "map" the most probable
        sequence of labels, "marginal_map" that of the labels with hidden variables summed out. For both
        the inference has to be able to maximise. "auto" is what suits the loss and the inference.
    max_iter : int, default=100
        Iterations of the optimizer at most, in each stage of a fit. A start that has to be fitted, see
        `init`, has as many of its own.
    tol : float, default=1e-4
        Tolerance of the optimizer.
    missing_label : object, default=None
        The value in y that stands for a hidden label. Masked entries of y are hidden in any case.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, for losses that are sums over items, such as "univariate_logistic"; with
        margins, what a class costs where it is predicted wrong.
    classes : array-like of shape (n_classes,), default=None
        All labels, for training sets that may lack some; None for those in y.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it. Under ``joblib.parallel_config(backend="dask")``
        the workers of the cluster do the work instead.
    warm_start : bool, default=False
        Whether `fit` starts from the weights of the last fit.
    verbose : int, default=0
        Whether to print the objective in each iteration, of the start too; from 2 on also how many of its
        batches are done, in evaluations that take seconds. See `set_callbacks` for progress bars.
    random_state : int, RandomState instance or None, default=None
        Seed of mini-batch optimizers, and of the sequences that schedule "doubling" draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features of an item.
    vectorizer_ : DictVectorizer or None
        What makes numbers of dictionaries, and knows the names of the features; None where X is arrays.
    coef_ : ndarray of shape (n_classes, n_features_in_)
        Weights of the features of items.
    intercept_ : ndarray of shape (n_classes,)
        Constants.
    edge_coef_ : ndarray of shape (1, n_classes, n_classes)
        Weights of pairs: ``edge_coef_[0, a, b]`` is that of label b after label a.
    n_iter_ : int
        Iterations of the optimizer, without those of the start.
    loss_curve_ : list of float
        The objective after each iteration.
    train_error_curve_ : list of float
        The share of labels that are predicted wrong after each iteration, where the optimizer asks for it.
    converged_ : bool
        Whether optimizer and inference converged.

    See Also
    --------
    GraphCRFClassifier : The same on graphs.
    skcrf.metrics.sequence_accuracy_score : The share of sequences that are all right.

    Examples
    --------
    >>> from skcrf import ChainCRFClassifier
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "dog"}, {"word": "barks"}]]
    >>> y = [["DET", "NOUN"], ["DET", "NOUN", "VERB"]]
    >>> est = ChainCRFClassifier().fit(X, y)
    >>> est.predict([[{"word": "the"}, {"word": "cat"}]])
    [array(['DET', 'NOUN'], dtype='<U4')]
    """

    _reads = Sequences()

    def __init__(
        self,
        inference="tree",
        loss="likelihood",
        gradient="backprop",
        optimizer="auto",
        schedule="at_once",
        init="auto",
        alpha=1e-3,
        fit_intercept=True,
        decoding="auto",
        max_iter=100,
        tol=1e-4,
        missing_label=None,
        class_weight=None,
        classes=None,
        n_jobs=None,
        warm_start=False,
        verbose=0,
        random_state=None,
    ):
        self.inference = inference
        self.loss = loss
        self.gradient = gradient
        self.optimizer = optimizer
        self.schedule = schedule
        self.init = init
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.decoding = decoding
        self.max_iter = max_iter
        self.tol = tol
        self.missing_label = missing_label
        self.class_weight = class_weight
        self.classes = classes
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def _start_reading(self, X):
        if not has_names(next(iter(X))):
            return self._reads
        items = (item for i, x in enumerate(X) if has_names(x) for item in checked_names(x, f"X[{i}]"))
        return Sequences(vectorizer=DictVectorizer().fit(items))

    @property
    def _reader(self):
        return Sequences(self.n_features_in_, vectorizer=self.vectorizer_)

    @property
    def _structure(self):
        return Chains()

    def _fit_edge_features(self, fields):
        self.vectorizer_ = fields.reader.vectorizer
        self.n_edge_features_ = Chains.n_edge_features

    @property
    def _n_groups(self):
        return 1

    @needs_marginals
    def predict_edge_proba(self, X, Y=None):
        """Infer the marginals of all pairs of neighbours.

        Parameters
        ----------
        X : sequence of examples
            Sequences.
        Y : sequence of array-like of shape (length,), default=None
            What is known, as for `predict_proba`.

        Returns
        -------
        P : list of ndarray of shape (length - 1, n_classes, n_classes)
            ``P[i][t, a, b]`` is the probability that item t of sequence i has class a and the next one
            has class b. The items of a table have no neighbours, and P is empty: (0, n_classes, n_classes).
        """
        return self._infer(X, Y, arranged=of_edges)
