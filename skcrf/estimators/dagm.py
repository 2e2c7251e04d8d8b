"""Directed models: the label of every site is conditioned on the labels of its parents."""

from skcrf.data import DAGReader, MeshTopology
from skcrf.estimators._directed import DirectedMixin
from skcrf.estimators.graph import BaseGraphClassifier
from skcrf.estimators.grid import BaseGridClassifier
from skcrf.graph import PARENTS
from skcrf.models import DirectedModel


class DAGMClassifier(DirectedMixin, BaseGraphClassifier):
    """Directed acyclic graphical model.

    The probability of the labels is the product over nodes of the probability of a node's label given its
    features and the labels of its parents. These conditionals are log-linear and normalised on their own:
    given its parents' labels ``y_p``, node i has label a with a probability proportional to ``exp(coef_[a] .
    x_i + intercept_[a] + sum_p edge_coef_[:, y_p, a] . v_pi)``. Therefore the likelihood needs no inference,
    and samples are exact. Marginals need inference, which sees one factor per node.

    A known label influences the parents of its node, but features alone do not: without known labels, the
    marginals of a node depend on the features of the node and its ancestors only.

    X is a sequence of graphs, as for `GraphCRFClassifier`: tuples ``(node_features, edges)`` or
    ``(node_features, edges, edge_features)``, here with edges (parent, child). Cycles raise an error. The
    table of a node has n_classes ** (n_parents + 1) entries, which limits the number of parents. y is a
    sequence of labels of shape (n_nodes,). A table X of shape (n_samples, n_features) with labels y of shape
    (n_samples,) is a set of graphs of one node each, for which the model is multinomial logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="bp"
        Method that computes marginals, in prediction, and in learning if the loss needs them or labels are
        hidden. The default is ten iterations of belief propagation on the factors of the model, from parents
        to children and back: with no label known, one iteration is enough.
    loss : str or BaseLoss, default="likelihood"
        Loss to minimise: a name in `skcrf.losses.LOSSES`, or an instance. The "likelihood" of a directed
        model is convex and needs no inference if all labels are known; the inference sums out hidden ones.
        Losses of the marginals, such as "univariate_logistic" and "clique_logistic", use the inference as
        they do for random fields.
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
        Weights of the features of edges: the first class is that of the parent, the second that of the child.
        If edges have no features, there is one weight per pair of labels; add a constant feature otherwise.
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
    GraphCRFClassifier : The undirected model on graphs.
    GridDAGMClassifier : The directed model on images.

    References
    ----------
    J. Pearl, "Probabilistic Reasoning in Intelligent Systems", 1988.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf import DAGMClassifier
    >>> rng = np.random.RandomState(0)
    >>> X = [(rng.normal(size=(3, 1)), np.array([[0, 2], [1, 2]])) for _ in range(50)]
    >>> y = [[a, b, a & b] for a, b in (rng.randint(2, size=2) for _ in X)]
    >>> est = DAGMClassifier(inference="exact").fit(X, y)
    >>> est.sample(X[:1], 2, random_state=0)[0].shape
    (2, 3)
    >>> est.log_likelihood(X[:2], y[:2]).shape
    (2,)
    """

    _reader = DAGReader()
    _model_class = DirectedModel

    def __init__(
        self,
        inference="bp",
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


class GridDAGMClassifier(DirectedMixin, BaseGridClassifier):
    """Directed model on images: a Markov mesh.

    The probability of a label image is the product over pixels of the probability of a pixel's label given
    its features and the labels of its parents, neighbours above it and to its left. Each conditional is
    log-linear and normalised on its own, as in `DAGMClassifier`. Therefore the likelihood needs no inference,
    and samples are exact.

    Features alone do not influence the parents of a pixel: without known labels, its marginal depends on the
    features of the pixels above and to the left, not on those below. Use features that see a neighbourhood,
    such as filter responses.

    X is a sequence of images of shape (height, width) or (height, width, n_features), which may differ in
    size; y is a sequence of label images of shape (height, width). Either may be a sequence that loads an
    image on access, such as `skcrf.datasets.LazyImages`. A table X of shape (n_samples, n_features) with
    labels y of shape (n_samples,) is a set of images of one pixel each, for which the model is multinomial
    logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="bp"
        Method that computes marginals, in prediction, and in learning if the loss needs them or labels are
        hidden. The default is ten iterations of belief propagation on the factors of the model, from parents
        to children and back.
    loss : str or BaseLoss, default="likelihood"
        Loss to minimise: a name in `skcrf.losses.LOSSES`, or an instance. The "likelihood" of a directed
        model is convex and needs no inference if all labels are known; the inference sums out hidden ones.
        Losses of the marginals, such as "univariate_logistic" and "clique_logistic", use the inference as
        they do for random fields.
    gradient : str or BaseGradient, default="backprop"
        Strategy that differentiates the loss through the inference.
    optimizer : "auto", str or BaseOptimizer, default="auto"
        Optimizer: a name in `skcrf.optimizers.OPTIMIZERS`, or an instance. "auto" chooses the one that suits
        the loss and the inference: "lbfgs" if the loss is smooth.
    schedule : {"at_once", "doubling"} or BaseSchedule, default="at_once"
        Part of the training set that the optimizer uses. "doubling" starts with a few images, and then takes
        twice as many for half as many iterations until it has all; it is faster if there are many images.
    init : {"auto", "independent", "coupled", "random", "zeros"}, name of a loss, or estimator, default="auto"
        Start of the optimizer: the model without edges ("independent"), the same with the best scale of its
        weights and one coupling ("coupled"), or with random weights added ("random", so that the states of
        hidden variables differ); zeros; the model that another loss finds; or a fitted estimator. "auto"
        chooses the one that suits the loss: "coupled" for most losses of marginals, "independent" for most
        others. A start that has to be fitted uses `optimizer`, or another one that suits its loss.
        In the first call of `partial_fit`, "auto" means zeros.
    alpha : float, default=1e-3
        Strength of the ridge penalty ``alpha / 2 (||coef_||^2 + ||edge_coef_||^2)``, relative to the mean
        loss per labelled pixel.
    fit_intercept : bool, default=True
        Whether each class has an intercept.
    decoding : {"auto", "mpm", "map", "marginal_map"}, default="auto"
        Rule of `predict`: "mpm" takes the label with the largest marginal at every pixel, "map" the most
        probable label image, and "marginal_map" the most probable label image after hidden variables are
        summed out. The last two need an inference that can maximise. "auto" chooses the rule that suits the
        loss and the inference.
    parents : sequence of {"above", "left", "above_left", "above_right"}, default=("above", "left")
        Neighbours of a pixel that are its parents. Each of them has its own weights; the table of a pixel has
        n_classes ** (n_parents + 1) entries.
    edge_features : {"bias", "contrast"}, BaseEdgeFeatures or transformer, default="bias"
        Features of a pixel and a parent, as for `GridCRFClassifier`. "bias" is a constant; "contrast" adds
        the norm of the difference of the two pixels' features; see `skcrf.preprocessing` for others. A
        transformer adds its output for the absolute differences, an array of shape (n_edges, n_features).
    max_iter : int, default=100
        Maximum number of iterations of the optimizer, in each stage of a fit. A start that has to be fitted,
        see `init`, has as many of its own.
    tol : float, default=1e-4
        Tolerance of the optimizer.
    missing_label : object, default=None
        Value in y that marks a hidden label. Masked entries of y are hidden as well.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, for losses that are sums over pixels; for max-margin losses, the cost of
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
        Seed of mini-batch optimizers, and of the images that schedule "doubling" draws.
    unary_channels : slice, array-like of int or bool, or None, default=None
        Features of a pixel that the potentials of single pixels depend on; None for all. The weights of the
        others in `coef_` are 0; only `edge_features` see them.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features of a pixel.
    coef_ : ndarray of shape (n_classes, n_features_in_)
        Weights of the features of pixels.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    edge_coef_ : ndarray of shape (n_edge_features * n_parents, n_classes, n_classes)
        Weights of the features of pairs, those with each of `parents` in turn. The first class is that of the
        parent, the second that of the pixel.
    edge_features_ : BaseEdgeFeatures
        Fitted features of pairs, without the constant; a transformer is wrapped.
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
    GridCRFClassifier : The undirected model on images.
    DAGMClassifier : Directed models on any acyclic graph.

    References
    ----------
    K. Abend, T. J. Harley and L. N. Kanal, "Classification of Binary Random Patterns", IEEE Transactions on
    Information Theory, 1965.

    Examples
    --------
    >>> from skcrf import GridDAGMClassifier
    >>> from skcrf.datasets import make_binary_denoising
    >>> X, Y = make_binary_denoising(n_images=4, shape=(16, 16), noise=1.5, random_state=0)
    >>> est = GridDAGMClassifier(parents=("above", "left", "above_left")).fit(X[:3], Y[:3])
    >>> est.sample(X[3:], n_samples=5, random_state=0).shape
    (1, 5, 16, 16)
    """

    _parameter_constraints = {**BaseGridClassifier._parameter_constraints, "parents": ["array-like"]}

    _model_class = DirectedModel

    def __init__(
        self,
        inference="bp",
        loss="likelihood",
        gradient="backprop",
        optimizer="auto",
        schedule="at_once",
        init="auto",
        alpha=1e-3,
        fit_intercept=True,
        decoding="auto",
        parents=("above", "left"),
        edge_features="bias",
        max_iter=100,
        tol=1e-4,
        missing_label=None,
        class_weight=None,
        classes=None,
        n_jobs=None,
        warm_start=False,
        verbose=0,
        random_state=None,
        unary_channels=None,
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
        self.parents = parents
        self.edge_features = edge_features
        self.max_iter = max_iter
        self.tol = tol
        self.missing_label = missing_label
        self.class_weight = class_weight
        self.classes = classes
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state
        self.unary_channels = unary_channels

    @property
    def _topology(self):
        return MeshTopology(self.parents_, self.edge_features_, self.n_edge_features_)

    def _fit_edge_features(self, examples):
        parents = tuple(self.parents)
        if not parents or len(set(parents)) < len(parents) or not set(parents) <= set(PARENTS):
            raise ValueError(f"parents must be some of {list(PARENTS)}, each once, got {self.parents!r}.")
        self.parents_ = parents
        super()._fit_edge_features(examples)
