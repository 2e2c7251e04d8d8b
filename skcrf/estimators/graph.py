"""Conditional random fields on graphs."""

from sklearn.utils._param_validation import StrOptions

from skcrf.data import GraphReader, GraphTopology
from skcrf.estimators._base import BaseFieldClassifier
from skcrf.estimators._decoding import split_edges
from skcrf.estimators._prediction import needs_marginals


class BaseGraphClassifier(BaseFieldClassifier):
    """Base class of the classifiers of graphs."""

    @property
    def _fitted_reader(self):
        return type(self._reader)(self.n_features_in_, n_edge_features=self.n_edge_features_in_)

    @property
    def _topology(self):
        return GraphTopology(self.n_edge_features_in_)

    def _fit_edge_features(self, examples):
        self.n_edge_features_in_ = 0 if examples.is_table else examples.reader.n_edge_features or 0
        self.n_edge_features_ = self._topology.n_edge_features


class GraphCRFClassifier(BaseGraphClassifier):
    """Conditional random field on graphs.

    The model labels all nodes of a graph jointly: a pairwise field whose potentials are linear in features of
    nodes and of edges. Learning fits the marginals that approximate inference returns to the labels, and
    `predict_proba` returns these marginals.

    X is a sequence of graphs, which must have the same numbers of features: tuples ``(node_features, edges)``
    or ``(node_features, edges, edge_features)`` of an array or CSR matrix of shape (n_nodes, n_features),
    integers of shape (n_edges, 2), the two nodes of each edge, and an array of shape (n_edges,
    n_edge_features). A last item, booleans of shape (n_nodes,), marks hidden variables: nodes that never have
    a label and are masked in y. Graphs may have no edges, and then need no edge features; self-loops and
    repeated edges raise an error. y is a sequence of labels of shape (n_nodes,). Either may be a sequence
    that loads an example on access. A table X of shape (n_samples, n_features) with labels y of shape
    (n_samples,) is a set of graphs of one node each, for which the model is multinomial logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="trw"
        Method that computes marginals, in learning and in prediction alike. The default is ten iterations of
        tree-reweighted belief propagation. "tree" is exact if no graph has a cycle.
    loss : str or BaseLoss, default="univariate_logistic"
        Loss to minimise: a name in `skcrf.losses.LOSSES`, or an instance.
    gradient : str or BaseGradient, default="backprop"
        Strategy that differentiates the loss through the inference.
    optimizer : "auto", str or BaseOptimizer, default="auto"
        Optimizer: a name in `skcrf.optimizers.OPTIMIZERS`, or an instance. "auto" chooses the one that suits
        the loss and the inference: "lbfgs" if the loss is smooth.
    schedule : {"at_once", "doubling"} or BaseSchedule, default="at_once"
        Part of the training set that the optimizer uses. "doubling" starts with a few graphs, and then takes
        twice as many for half as many iterations until it has all; it is faster if there are many graphs.
    init : {"auto", "independent", "coupled", "random", "zeros"}, name of a loss, or estimator, default="auto"
        Start of the optimizer: the model without edges ("independent"), the same with the best scale of its
        weights and one coupling ("coupled"), or with random weights added ("random", so that the states of
        hidden variables differ); zeros; the model that another loss finds; or a fitted estimator. "auto"
        chooses the one that suits the loss: "coupled" for most losses of marginals, "independent" for most
        others. A start that has to be fitted uses `optimizer`, or another one that suits its loss.
        In the first call of `partial_fit`, "auto" means zeros.
    alpha : float, default=1e-3
        Strength of the ridge penalty ``alpha / 2 (||coef_||^2 + ||edge_coef_||^2)``, relative to the mean
        loss per labelled node.
    fit_intercept : bool, default=True
        Whether each class has an intercept.
    symmetric : bool or "potts", default=True
        Whether the two ends of an edge can be exchanged: ``edge_coef_[f, a, b] == edge_coef_[f, b, a]``, so
        that the order of the two nodes of an edge does not matter. Use False if the direction of edges, or
        the sign of their features, has a meaning. With "potts", only equality of the two labels matters: one
        weight per feature of edges.
    decoding : {"auto", "mpm", "map", "marginal_map"}, default="auto"
        Rule of `predict`: "mpm" takes the label with the largest marginal at every node, "map" the most
        probable configuration, and "marginal_map" the most probable configuration after hidden variables are
        summed out. The last two need an inference that can maximise. "auto" chooses the rule that suits the
        loss and the inference.
    max_iter : int, default=100
        Maximum number of iterations of the optimizer, in each stage of a fit. A start that has to be fitted,
        see `init`, has as many of its own.
    tol : float, default=1e-4
        Tolerance of the optimizer.
    missing_label : object, default=None
        Value in y that marks a hidden label. Masked entries of y are hidden as well.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, for losses that are sums over nodes; for max-margin losses, the cost of
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
        Seed of mini-batch optimizers, and of the graphs that schedule "doubling" draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features of a node.
    n_edge_features_in_ : int
        Number of features of an edge in X; 0 if X has none.
    coef_ : ndarray of shape (n_classes, n_features_in_)
        Weights of the features of nodes.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    edge_coef_ : ndarray of shape (max(1, n_edge_features_in_), n_classes, n_classes)
        Weights of the features of edges: the first class is that of the first node of an edge. If
        edges have no features, there is one weight per pair of labels; add a constant feature otherwise.
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
    GridCRFClassifier : The same on images, faster.
    ChainCRFClassifier : The same on sequences, exact by default.

    References
    ----------
    J. Domke, "Learning Graphical Model Parameters with Approximate Marginal Inference", PAMI 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf import GraphCRFClassifier
    >>> triangle = np.array([[0, 1], [1, 2], [2, 0]])
    >>> X = [(np.array([[1.0], [0.8], [-0.1]]), triangle), (np.array([[-1.0], [-0.5]]), triangle[:1])]
    >>> y = [[1, 1, 1], [0, 0]]
    >>> est = GraphCRFClassifier(alpha=0.1).fit(X, y)
    >>> est.predict(X)
    [array([1, 1, 1]), array([0, 0])]
    """

    _parameter_constraints = {
        **BaseFieldClassifier._parameter_constraints,
        "symmetric": ["boolean", StrOptions({"potts"})],
    }

    _reader = GraphReader()

    def __init__(
        self,
        inference="trw",
        loss="univariate_logistic",
        gradient="backprop",
        optimizer="auto",
        schedule="at_once",
        init="auto",
        alpha=1e-3,
        fit_intercept=True,
        symmetric=True,
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
        self.symmetric = symmetric
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

    def _model_options(self):
        return super()._model_options() | {"symmetric": self.symmetric}

    @needs_marginals
    def predict_edge_proba(self, X, Y=None):
        """Compute the marginals of all edges.

        Parameters
        ----------
        X : sequence of tuple
            Graphs.
        Y : sequence of array-like of shape (n_nodes,), default=None
            Known labels, as for `predict_proba`.

        Returns
        -------
        P : list of ndarray of shape (n_edges, n_classes, n_classes)
            ``P[i][e, a, b]`` is the probability that the first node of edge e of graph i has class a and its
            second node class b. The rows of a table have no edges, and P is empty.
        """
        return self._infer(X, Y, arrange=split_edges)
