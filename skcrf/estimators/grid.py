"""Conditional random fields on images."""

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import HasMethods, Options, StrOptions

from skcrf.data import (
    EDGE_FEATURES,
    BaseEdgeFeatures,
    Bias,
    Differences,
    ImageReader,
    LatticeTopology,
    as_edge_features,
    choose_channels,
    count_edge_features,
)
from skcrf.estimators._base import BaseFieldClassifier
from skcrf.estimators._prediction import needs_marginals

# Numbers that features of edges are fitted to, about: 128 MB.
_FITTED_NUMBERS = 2**24


class ArrangeDirections(NamedTuple):
    """Edge marginals by the pixel that an edge starts from, and by direction."""

    n_directions: int

    def __call__(self, batch, beliefs):
        """Return arrays (height, width, n_directions, n_classes, n_classes), nan where there is no edge."""
        graph = batch.graph
        rows = np.full((graph.n_nodes, self.n_directions, *beliefs.edge_mu.shape[1:]), np.nan)
        rows[graph.edges[:, 0], graph.table_group[graph.edge_table]] = beliefs.edge_mu
        return batch.split(rows)


class EdgeSamples:
    """Images spread evenly over all, as many as memory should hold; read in each loop over them.

    Parameters
    ----------
    examples : Examples
        The images.
    topology : Topology
        Gives their graphs.
    n_features : int
        Number of features of a pixel.
    """

    def __init__(self, examples, topology, n_features):
        self.examples = examples
        self.topology = topology
        self.n_features = n_features

    def __iter__(self):
        """Yield the arguments of `transform_edges` for each image with edges."""
        sizes = self.examples.sizes * (self.examples.sizes > 1) * self.topology.n_groups * self.n_features
        every = max(1, math.ceil(sizes.sum() / _FITTED_NUMBERS))
        for i in np.flatnonzero(sizes)[::every]:
            X, _, outline = self.examples[i]
            graph = self.topology.graph(outline)
            if graph.n_edges:
                yield self.topology.view(graph, outline, X)


class BaseGridClassifier(BaseFieldClassifier):
    """Base class of the classifiers of images."""

    _parameter_constraints = {
        **BaseFieldClassifier._parameter_constraints,
        "edge_features": [StrOptions(set(EDGE_FEATURES)), BaseEdgeFeatures, HasMethods(["fit", "transform"])],
        "unary_channels": ["array-like", slice, None],
    }

    _reader = ImageReader()

    @property
    def edge_transformer_(self):
        """Fitted transformer of differences; None if `edge_features` is none or there were no edges."""
        return self.edge_features_.transformer_ if isinstance(self.edge_features_, Differences) else None

    def _model_options(self):
        options = super()._model_options()
        if self.unary_channels is None:
            return options
        used = np.zeros(self.n_features_in_, dtype=bool)
        used[choose_channels(self.unary_channels, self.n_features_in_, "unary_channels")] = True
        return options | {"used": used}

    def _fit_edge_features(self, examples):
        self.edge_features_, self.n_edge_features_ = Bias(), 1  # of the topology that gives the samples
        samples = EdgeSamples(examples, self._topology, self.n_features_in_)
        named = isinstance(self.edge_features, str)
        features = EDGE_FEATURES[self.edge_features]() if named else as_edge_features(self.edge_features)
        self.edge_features_ = features.fit_edges(samples, self.n_features_in_)
        self.n_edge_features_ = 1 + count_edge_features(self.edge_features_, self.n_features_in_)


class GridCRFClassifier(BaseGridClassifier):
    """Conditional random field on images.

    The model labels all pixels of an image jointly: a pairwise field on the lattice of pixels whose
    potentials are linear in features of pixels and of pairs of neighbours. Learning fits the marginals that
    approximate inference returns to the labels, and `predict_proba` returns these marginals.

    X is a sequence of images of shape (height, width) or (height, width, n_features), which may differ in
    size; y is a sequence of label images of shape (height, width). Either may be a sequence that loads an
    image on access, such as `skcrf.datasets.LazyImages`, for data larger than memory. A table X of shape
    (n_samples, n_features) with labels y of shape (n_samples,) is a set of images of one pixel each, for
    which the model is multinomial logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="trw"
        Method that computes marginals, in learning and in prediction alike. The default is ten iterations of
        tree-reweighted belief propagation.
    loss : str or BaseLoss, default="univariate_logistic"
        Loss to minimise: a name in `skcrf.losses.LOSSES`, or an instance. Choices are losses of the
        marginals, such as "univariate_logistic" and "clique_logistic", the "likelihood" and its surrogates,
        and losses that need no inference, such as "pseudolikelihood".
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
    connectivity : {4, 8}, default=4
        Number of neighbours of a pixel.
    edge_features : {"bias", "contrast"}, BaseEdgeFeatures or transformer, default="bias"
        Features of a pair of neighbours; each direction has its own weights for them. "bias" is a constant;
        all others are added to it: "contrast" is the norm of the difference of the two pixels' features; see
        `skcrf.preprocessing` for others, such as `ContrastThresholds`. A transformer adds its output for the
        absolute differences, an array of shape (n_edges, n_features). Features that are learned are fitted to
        the edges of images spread evenly over X, to all of them unless they hold more than about 2**24
        numbers.
    symmetric : bool or "potts", default=False
        Whether the two pixels of a pair can be exchanged: ``edge_coef_[f, a, b] == edge_coef_[f, b, a]``;
        each direction still has its own weights. With "potts", only equality of the two labels matters, in
        all directions alike: one weight per feature of pairs. With two labels and
        ``edge_features="contrast"``, this is the discriminative random field of Kumar and Hebert.
    max_iter : int, default=100
        Maximum number of iterations of the optimizer, in each stage of a fit. A start that has to be fitted,
        see `init`, has as many of its own. With schedule "doubling" this is the number of the first stage,
        and each later one has half as many as the one before, but at least one.
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
    edge_coef_ : ndarray of shape (n_edge_features, n_classes, n_classes)
        Weights of the features of pairs: those for horizontal pairs, then vertical ones, then, with 8
        neighbours, those towards down-right and down-left. The first class is that of the left (upper) pixel.
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
    skcrf.plotting.MarginalsDisplay : Pictures of predictions.

    References
    ----------
    J. Domke, "Learning Graphical Model Parameters with Approximate Marginal Inference", PAMI 2013.

    Examples
    --------
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.datasets import make_binary_denoising
    >>> X, Y = make_binary_denoising(n_images=4, shape=(16, 16), noise=1.5, random_state=0)
    >>> est = GridCRFClassifier(max_iter=20, tol=1e-2).fit(X[:3], Y[:3])
    >>> est.predict_proba(X[3:]).shape
    (1, 16, 16, 2)
    """

    _parameter_constraints = {
        **BaseGridClassifier._parameter_constraints,
        "connectivity": [Options(Integral, {4, 8})],
        "symmetric": ["boolean", StrOptions({"potts"})],
    }

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
        decoding="auto",
        connectivity=4,
        edge_features="bias",
        symmetric=False,
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
        self.connectivity = connectivity
        self.edge_features = edge_features
        self.symmetric = symmetric
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
        return LatticeTopology(self.connectivity_, self.edge_features_, self.n_edge_features_)

    def _model_options(self):
        return super()._model_options() | {"symmetric": self.symmetric}

    def _fit_edge_features(self, examples):
        self.connectivity_ = self.connectivity
        super()._fit_edge_features(examples)

    @needs_marginals
    def predict_edge_proba(self, X, Y=None):
        """Compute the marginals of all pairs of neighbours.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        Y : sequence of array-like of shape (height, width), default=None
            Known labels, as for `predict_proba`.

        Returns
        -------
        P : sequence of ndarray of shape (height, width, n_directions, n_classes, n_classes)
            ``P[i][r, c, d, a, b]`` is the probability that pixel (r, c) of image i has class a and its
            neighbour in direction d (right, down, and with 8 neighbours down-right and down-left) has
            class b; nan where that neighbour is outside the image.
        """
        return self._infer(X, Y, arrange=ArrangeDirections(self.connectivity_ // 2))
