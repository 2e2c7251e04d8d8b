"""Conditional random fields on images."""

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Options, StrOptions

from skcrf.data import EDGE_FEATURES, ImageReader, LatticeTopology, edge_differences
from skcrf.estimators._base import BaseFieldClassifier
from skcrf.estimators._prediction import needs_marginals

# Numbers that a transformer of edge features is fitted to, about: 128 MB.
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


class BaseGridClassifier(BaseFieldClassifier):
    """Base class of the classifiers of images."""

    _parameter_constraints = {
        **BaseFieldClassifier._parameter_constraints,
        "edge_features": [StrOptions(set(EDGE_FEATURES)), HasMethods(["fit", "transform"])],
    }

    _reader = ImageReader()

    def _fit_edge_features(self, examples):
        named = isinstance(self.edge_features, str)
        transformer = EDGE_FEATURES[self.edge_features] if named else self.edge_features
        self.edge_transformer_, self.n_edge_features_ = None, 1
        if transformer is None:
            return
        transformer = clone(transformer)
        seen = [np.zeros((1, self.n_features_in_))]  # enough for a transformer that learns nothing
        if get_tags(transformer).requires_fit:
            seen = list(self._some_differences(examples))
            if not seen:
                return
        made = transformer.fit_transform(np.concatenate(seen))
        self.edge_transformer_, self.n_edge_features_ = transformer, 1 + made.shape[1]

    def _some_differences(self, examples):
        """Yield differences across the edges of images spread over all, as many as memory should hold."""
        topology = self._topology
        sizes = examples.sizes * (examples.sizes > 1) * topology.n_groups * self.n_features_in_
        every = max(1, math.ceil(sizes.sum() / _FITTED_NUMBERS))
        for i in np.flatnonzero(sizes)[::every]:
            X, _, outline = examples[i]
            yield edge_differences(topology.graph(outline), X)


class GridCRFClassifier(BaseGridClassifier):
    """Conditional random field on images.

    Every pixel has a label. The model is a pairwise field on the lattice of pixels whose potentials are
    linear in features of pixels and of pairs of neighbours. It is learned by how well the marginals that
    approximate inference predicts with it fit the labels, and `predict_proba` gives these marginals back.

    X is a sequence of images of shape (height, width) or (height, width, n_features), which may differ
    in size; y a sequence of label images of shape (height, width). Each may be a sequence that loads an
    image when asked for it, such as `skcrf.datasets.LazyImages`, for data larger than memory. A plain table X
    of shape (n_samples, n_features) with labels y of shape (n_samples,) means images of one pixel each, and
    the model is multinomial logistic regression.

    Parameters
    ----------
    inference : str or BaseInference, default="trw"
        How marginals are computed, in learning and in prediction alike. By default ten iterations of
        tree-reweighted belief propagation.
    loss : str or BaseLoss, default="univariate_logistic"
        What is minimised: a name in `skcrf.losses.LOSSES`, or an instance. Losses of the marginals, such as
        "univariate_logistic" and "clique_logistic", the "likelihood" and its surrogates, and losses that call
        no inference, such as "pseudolikelihood".
    gradient : str or BaseGradient, default="backprop"
        How the loss is differentiated through the inference.
    optimizer : "auto", str or BaseOptimizer, default="auto"
        How the loss is minimised: a name in `skcrf.optimizers.OPTIMIZERS`, or an instance. "auto" is what
        suits the loss and the inference: "lbfgs" where the loss is smooth.
    schedule : {"at_once", "doubling"} or BaseSchedule, default="at_once"
        What the optimizer sees of the training set. "doubling" starts with a few images, and then takes twice
        as many for half as many iterations until it has all: faster where there are many images.
    init : {"auto", "independent", "zeros"}, the name of a loss or a fitted estimator, default="auto"
        Where the optimizer starts: from the model without edges, from zeros, from the model that another loss
        finds, or from the weights of another estimator of fields. "auto" is what suits the loss: mostly the
        model without edges. A start that has to be fitted is fitted by `optimizer`, or by L-BFGS where that
        needs mini-batches. In the first call of `partial_fit` "auto" means zeros; other starts are fitted to
        the examples of that call.
    alpha : float, default=1e-3
        Strength of the ridge penalty ``alpha / 2 (||coef_||^2 + ||edge_coef_||^2)``, relative to the
        mean loss of a labelled pixel.
    fit_intercept : bool, default=True
        Whether each class has a constant.
    decoding : {"auto", "mpm", "map", "marginal_map"}, default="auto"
        What `predict` gives: "mpm" the label of the largest marginal at every pixel, "map" the most probable
        label image, "marginal_map" that of the labels with hidden variables summed out. For both the
        inference has to be able to maximise. "auto" is what suits the loss and the inference.
    connectivity : {4, 8}, default=4
        Number of neighbours of a pixel.
    edge_features : {"bias", "contrast"} or transformer, default="bias"
        Features of a pair of neighbours, which have their own weights in each direction. "bias" is a
        constant; "contrast" adds the norm of the difference of the two pixels' features; a transformer
        adds what it makes of the absolute differences, an array of shape (n_edges, n_features). It is
        fitted to the edges of images that are spread evenly over X, to all of them unless that takes
        more than about 2**24 numbers.
    symmetric : bool or "potts", default=False
        Whether the two pixels of a pair can be exchanged: ``edge_coef_[f, a, b] == edge_coef_[f, b, a]``;
        each direction still has weights of its own. With "potts" nothing counts but whether their labels are
        equal, in all directions alike: one weight for each feature of pairs. With two labels, and
        ``edge_features="contrast"``, that is the discriminative random field of Kumar and Hebert.
    max_iter : int, default=100
        Iterations of the optimizer at most, in each stage of a fit. A start that has to be fitted, see
        `init`, has as many of its own. With schedule "doubling" this is the first stage, and each later one
        has half as many as the one before, but at least one.
    tol : float, default=1e-4
        Tolerance of the optimizer.
    missing_label : object, default=None
        The value in y that stands for a hidden label. Masked entries of y are hidden in any case.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, for losses that are sums over pixels; with margins, what a class costs where
        it is predicted wrong.
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
        Seed of mini-batch optimizers, and of the images that schedule "doubling" draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features of a pixel.
    coef_ : ndarray of shape (n_classes, n_features_in_)
        Weights of the features of pixels.
    intercept_ : ndarray of shape (n_classes,)
        Constants.
    edge_coef_ : ndarray of shape (n_edge_features, n_classes, n_classes)
        Weights of the features of pairs: those for horizontal pairs, then vertical ones, then, with 8
        neighbours, those towards down-right and down-left. The first class is that of the left (upper) pixel.
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

    @property
    def _topology(self):
        return LatticeTopology(self.connectivity_, self.edge_transformer_, self.n_edge_features_)

    def _fit_edge_features(self, examples):
        self.connectivity_ = self.connectivity
        super()._fit_edge_features(examples)

    @needs_marginals
    def predict_edge_proba(self, X, Y=None):
        """Infer the marginals of all pairs of neighbours.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features)
            Images.
        Y : sequence of array-like of shape (height, width), default=None
            What is known, as for `predict_proba`.

        Returns
        -------
        P : sequence of ndarray of shape (height, width, n_directions, n_classes, n_classes)
            ``P[i][r, c, d, a, b]`` is the probability that pixel (r, c) of image i has class a and its
            neighbour in direction d (right, down, and with 8 neighbours down-right and down-left) has
            class b; nan where that neighbour is outside the image.
        """
        return self._infer(X, Y, arrange=ArrangeDirections(self.connectivity_ // 2))
