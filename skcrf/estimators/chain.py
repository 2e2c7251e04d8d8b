"""Conditional random fields on sequences."""

from sklearn.feature_extraction import DictVectorizer

from skcrf.data import ChainTopology, SequenceReader, as_dictionaries, has_names
from skcrf.estimators._base import BaseFieldClassifier
from skcrf.estimators._decoding import split_edges
from skcrf.estimators._prediction import needs_marginals


class ChainCRFClassifier(BaseFieldClassifier):
    """Conditional random field on sequences: a linear chain.

    The model labels all items of a sequence jointly: a chain whose potentials are linear in the features of
    items, with a weight for each pair of successive labels. By default it is learned by maximum likelihood;
    marginals (forward-backward) and the most probable labels (Viterbi) are exact.

    X is a sequence of sequences, which may differ in length: arrays of shape (length, n_features), CSR
    matrices of that shape, which stay sparse, or lists of dictionaries that map names of features to numbers,
    bools or strings, for which `fit` fits a `DictVectorizer`; a list of names gives each the value 1. Names
    that `fit`, or the first call of `partial_fit`, has not seen are ignored. Columns of data frames are used
    in their order, whatever their names. y is a sequence of label sequences of shape (length,), integers or
    strings. Either may be a sequence that loads an example on access. A table X of shape (n_samples,
    n_features) with labels y of shape (n_samples,) is a set of sequences of one item each, for which the
    model is multinomial logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="tree"
        Method that computes marginals, in learning and in prediction alike. The default is exact: one pass in
        each direction.
    loss : str or BaseLoss, default="likelihood"
        Loss to minimise: a name in `skcrf.losses.LOSSES`, or an instance.
    gradient : str or BaseGradient, default="backprop"
        Strategy that differentiates the loss through the inference.
    optimizer : "auto", str or BaseOptimizer, default="auto"
        Optimizer: a name in `skcrf.optimizers.OPTIMIZERS`, or an instance. "auto" chooses the one that suits
        the loss and the inference: "lbfgs" if the loss is smooth.
    schedule : {"at_once", "doubling"} or BaseSchedule, default="at_once"
        Part of the training set that the optimizer uses. "doubling" starts with a few sequences, and then
        takes twice as many for half as many iterations until it has all; it is faster if there are many
        sequences.
    init : {"auto", "independent", "coupled", "random", "zeros"}, name of a loss, or estimator, default="auto"
        Start of the optimizer: the model without edges ("independent"), the same with the best scale of its
        weights and one coupling ("coupled"), or with random weights added ("random", so that the states of
        hidden variables differ); zeros; the model that another loss finds; or a fitted estimator. "auto"
        chooses the one that suits the loss: "coupled" for most losses of marginals, "independent" for most
        others. A start that has to be fitted uses `optimizer`, or another one that suits its loss.
        In the first call of `partial_fit`, "auto" means zeros.
    alpha : float, default=1e-3
        Strength of the ridge penalty ``alpha / 2 (||coef_||^2 + ||edge_coef_||^2)``, relative to the mean
        loss per labelled item.
    fit_intercept : bool, default=True
        Whether each class has an intercept.
    decoding : {"auto", "mpm", "map", "marginal_map"}, default="auto"
        Rule of `predict`: "mpm" takes the label with the largest marginal at every item, "map" the most
        probable sequence of labels, and "marginal_map" the most probable sequence of labels after hidden
        variables are summed out. The last two need an inference that can maximise. "auto" chooses the rule
        that suits the loss and the inference.
    max_iter : int, default=100
        Maximum number of iterations of the optimizer, in each stage of a fit. A start that has to be fitted,
        see `init`, has as many of its own.
    tol : float, default=1e-4
        Tolerance of the optimizer.
    missing_label : object, default=None
        Value in y that marks a hidden label. Masked entries of y are hidden as well.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, for losses that are sums over items; for max-margin losses, the cost of
        predicting another class.
    classes : array-like of shape (n_classes,), default=None
        All labels, if the training set may lack some; None for those in y.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it. Under ``joblib.parallel_config(backend="dask")``
        the workers of the cluster do the work instead.
    warm_start : bool, default=False
        Whether `fit` starts from the weights of the last fit.
    verbose : int, default=0
        Level of printed progress: 1 prints the objective after each iteration, also of the start; 2 also
        prints how many batches are done, for evaluations that take seconds. See `set_callbacks` for progress
        bars.
    random_state : int, RandomState instance or None, default=None
        Seed of mini-batch optimizers, and of the sequences that schedule "doubling" draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features of an item.
    vectorizer_ : DictVectorizer or None
        Vectorizer of dictionaries of features; None where X is arrays.
    coef_ : ndarray of shape (n_classes, n_features_in_)
        Weights of the features of items.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    edge_coef_ : ndarray of shape (1, n_classes, n_classes)
        Weights of pairs: ``edge_coef_[0, a, b]`` is that of label b after label a.
    n_iter_ : int
        Number of iterations of the optimizer, without those of the start.
    loss_curve_ : list of float
        Objective after each iteration.
    train_error_curve_ : list of float
        Fraction of labels that are predicted wrong after each iteration, if the optimizer computes it.
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
        """Compute the marginals of all pairs of neighbours.

        Parameters
        ----------
        X : sequence of examples
            Sequences.
        Y : sequence of array-like of shape (length,), default=None
            Known labels, as for `predict_proba`.

        Returns
        -------
        P : list of ndarray of shape (length - 1, n_classes, n_classes)
            ``P[i][t, a, b]`` is the probability that item t of sequence i has class a and the next one
            has class b. The items of a table have no neighbours, and P is empty: (0, n_classes, n_classes).
        """
        return self._infer(X, Y, arrange=split_edges)
