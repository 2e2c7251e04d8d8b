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

    Every node has a label. The model is a pairwise field whose potentials are linear in features of nodes and
    of edges. It is learned by how well the marginals that approximate inference predicts with it fit the
    labels, and `predict_proba` gives these marginals back.

    X is a sequence of graphs, which may differ in everything but their numbers of features: tuples
    ``(node_features, edges)`` or ``(node_features, edges, edge_features)`` of an array or CSR matrix of shape
    (n_nodes, n_features), integers of shape (n_edges, 2), the two nodes of each edge, and an array of shape
    (n_edges, n_edge_features). A last item, booleans of shape (n_nodes,), marks hidden variables: nodes that
    never have a label, which have states like any other and are masked in y. Nodes without edges, and graphs
    without any, are fine, and the latter need no edge features; self-loops and pairs that are joined twice
    are refused. y is a sequence of labels
    of shape (n_nodes,). Each may be a sequence that loads an example when asked for it. A plain table X of
    shape (n_samples, n_features) with labels y of shape (n_samples,) means graphs of one node each, and the
    model is multinomial logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="trw"
        How marginals are computed, in learning and in prediction alike. By default ten iterations of
        tree-reweighted belief propagation. "tree" is exact where no graph has a cycle.
    loss : str or BaseLoss, default="univariate_logistic"
        What is minimised: a name in `skcrf.losses.LOSSES`, or an instance.
    gradient : str or BaseGradient, default="backprop"
        How the loss is differentiated through the inference.
    optimizer : "auto", str or BaseOptimizer, default="auto"
        How the loss is minimised: a name in `skcrf.optimizers.OPTIMIZERS`, or an instance. "auto" is what
        suits the loss and the inference: "lbfgs" where the loss is smooth.
    schedule : {"at_once", "doubling"} or BaseSchedule, default="at_once"
        What the optimizer sees of the training set. "doubling" starts with a few graphs, and then takes twice
        as many for half as many iterations until it has all.
    init : {"auto", "independent", "zeros"}, the name of a loss or a fitted estimator, default="auto"
        Where the optimizer starts: from the model without edges, from zeros, from the model that another loss
        finds, or from the weights of another estimator of fields. "auto" is what suits the loss. A start that
        has to be fitted is fitted by `optimizer`, or by L-BFGS where that needs mini-batches. In the first
        call of `partial_fit` "auto" means zeros; other starts are fitted to the examples of that call.
    alpha : float, default=1e-3
        Strength of the ridge penalty ``alpha / 2 (||coef_||^2 + ||edge_coef_||^2)``, relative to the
        mean loss of a labelled node.
    fit_intercept : bool, default=True
        Whether each class has a constant.
    symmetric : bool or "potts", default=True
        Whether the two ends of an edge can be exchanged: ``edge_coef_[f, a, b] == edge_coef_[f, b, a]``, and
        it does not matter in which order an edge names its nodes. Take False where the direction of edges, or
        the sign of their features, has a meaning. With "potts" nothing counts but whether the two labels are
        equal: one weight for each feature of edges.
    decoding : {"auto", "mpm", "map", "marginal_map"}, default="auto"
        What `predict` gives: "mpm" the label of the largest marginal of every node, "map" the most probable
        configuration, "marginal_map" that of the labels with hidden variables summed out. For both the
        inference has to be able to maximise. "auto" is what suits the loss and the inference.
    max_iter : int, default=100
        Iterations of the optimizer at most, in each stage of a fit. A start that has to be fitted, see
        `init`, has as many of its own.
    tol : float, default=1e-4
        Tolerance of the optimizer.
    missing_label : object, default=None
        The value in y that stands for a hidden label. Masked entries of y are hidden in any case.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, for losses that are sums over nodes; with margins, what a class costs where it
        is predicted wrong.
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
        Constants.
    edge_coef_ : ndarray of shape (max(1, n_edge_features_in_), n_classes, n_classes)
        Weights of the features of edges: the first class is that of the node that an edge names first. Where
        edges have no features, those of the constant 1, which has to be among them otherwise.
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

    @needs_marginals
    def predict_edge_proba(self, X, Y=None):
        """Infer the marginals of all edges.

        Parameters
        ----------
        X : sequence of tuple
            Graphs.
        Y : sequence of array-like of shape (n_nodes,), default=None
            What is known, as for `predict_proba`.

        Returns
        -------
        P : list of ndarray of shape (n_edges, n_classes, n_classes)
            ``P[i][e, a, b]`` is the probability that the first node of edge e of graph i has class a and its
            second node class b. The rows of a table have no edges, and P is empty.
        """
        return self._infer(X, Y, arrange=split_edges)
