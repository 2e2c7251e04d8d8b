"""Conditional random fields on sequences."""

from sklearn.feature_extraction import DictVectorizer

from skcrf.data import ChainTopology, SequenceReader, as_dictionaries, has_names
from skcrf.estimators._base import BaseFieldClassifier
from skcrf.estimators._decoding import split_edges
from skcrf.estimators._prediction import needs_marginals


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

    _reader = SequenceReader()

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

    def _first_reader(self, X):
        if not has_names(next(iter(X))):
            return self._reader
        items = (item for i, x in enumerate(X) if has_names(x) for item in as_dictionaries(x, f"X[{i}]"))
        return SequenceReader(vectorizer=DictVectorizer().fit(items))

    @property
    def _fitted_reader(self):
        return SequenceReader(self.n_features_in_, vectorizer=self.vectorizer_)

    @property
    def _topology(self):
        return ChainTopology()

    def _fit_edge_features(self, examples):
        self.vectorizer_ = examples.reader.vectorizer
        self.n_edge_features_ = ChainTopology.n_edge_features

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
        return self._infer(X, Y, arrange=split_edges)
