"""Features of pairs of neighbouring pixels: indicators of thresholds, and unions."""

from abc import abstractmethod
from numbers import Integral

import numpy as np
from scipy import ndimage
from sklearn.pipeline import _name_estimators
from sklearn.utils.metaestimators import _BaseComposition

from skcrf.data import BaseEdgeFeatures, as_edge_features, choose_channels, compute_edge_features, contrast


class BaseThresholds(BaseEdgeFeatures):
    """Base class of indicators that a number per edge exceeds each of several thresholds.

    Parameters
    ----------
    thresholds : int or array-like of shape (n_thresholds,), default=10
        The thresholds, or their number: they are then quantiles of the training edges, equally spaced.
    channels : slice, array-like of int or bool, or None, default=None
        Features of a pixel that are used; None for all.
    """

    #: Name of the number in the names of features.
    _name = None

    def __init__(self, thresholds=10, channels=None):
        self.thresholds = thresholds
        self.channels = channels

    @abstractmethod
    def _values(self, image, edges):
        """Compute the number per edge, (n_edges,), of an image that has only the chosen channels."""

    def fit_edges(self, samples, n_features):
        choose_channels(self.channels, n_features)
        if isinstance(self.thresholds, Integral):
            self.thresholds_ = self._quantiles(samples)
            return self
        try:
            thresholds = np.array(self.thresholds, dtype=np.float64)
        except (TypeError, ValueError):
            thresholds = np.empty(0)
        if thresholds.ndim != 1 or len(thresholds) == 0 or not np.isfinite(thresholds).all():
            raise ValueError(
                f"thresholds must be an integer or a list of finite numbers, got {self.thresholds!r}."
            )
        self.thresholds_ = thresholds
        return self

    def _quantiles(self, samples):
        if self.thresholds < 1:
            raise ValueError(f"thresholds must be at least 1, got {self.thresholds}.")
        values = [self._values_of(image, edges) for image, edges, _ in samples]
        if not values:
            return np.empty(0)
        return np.quantile(np.concatenate(values), np.arange(1, self.thresholds + 1) / (self.thresholds + 1))

    def _values_of(self, image, edges):
        return self._values(image[:, :, choose_channels(self.channels, image.shape[2])], edges)

    def transform_edges(self, image, edges, offsets):
        return self._values_of(image, edges)[:, None] > self.thresholds_

    def get_feature_names_out(self, input_features=None):
        return np.array([f"{self._name}>{threshold:.4g}" for threshold in self.thresholds_], dtype=object)


class ContrastThresholds(BaseThresholds):
    """Indicators that the difference of two neighbouring pixels exceeds thresholds.

    The difference is the l2 norm over the channels. Indicators let the weights of an edge depend on it in
    any way, and take one byte each. With the constant that the classifiers add, ten thresholds in two
    directions are the 22 edge features of D13 section 8.4. The author's implementation takes the thresholds
    ``np.linspace(0.05, 0.5, 10)`` for colours in [0, 1].

    Parameters
    ----------
    thresholds : int or array-like of shape (n_thresholds,), default=10
        The thresholds, or their number: they are then quantiles of the training edges, equally spaced.
    channels : slice, array-like of int or bool, or None, default=None
        Features of a pixel that are used, such as ``slice(0, 3)`` for colours that come before other
        features; None for all.

    Attributes
    ----------
    thresholds_ : ndarray of shape (n_thresholds,)
        The thresholds; none if the training images have no edges.

    See Also
    --------
    Contrast : The difference itself.
    SobelThresholds : Indicators of edges of the image.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf import GridCRFClassifier
    >>> from skcrf.preprocessing import ContrastThresholds
    >>> X = [np.random.default_rng(0).random((6, 5, 3))]
    >>> Y = [(X[0].mean(axis=2) > 0.5).astype(int)]
    >>> crf = GridCRFClassifier(edge_features=ContrastThresholds(3), tol=0.1).fit(X, Y)
    >>> crf.edge_coef_.shape  # four features in each of two directions
    (8, 2, 2)
    >>> crf.edge_features_.get_feature_names_out().tolist()
    ['contrast>0.5524', 'contrast>0.6876', 'contrast>0.8082']
    """

    _name = "contrast"

    def _values(self, image, edges):
        return contrast(image, edges)


class SobelThresholds(BaseThresholds):
    """Indicators that the response of a Sobel filter at either pixel exceeds thresholds.

    The response is the length of the gradient of the mean over the channels, per pixel; the larger one of the
    two pixels counts. D13 section 8.3 uses ten thresholds along with `ContrastThresholds`: with the constant
    and two directions, ``make_edge_union(ContrastThresholds(), SobelThresholds())`` makes its 42 edge
    features. The author's implementation takes the thresholds ``np.linspace(0.02, 0.2, 10)`` for colours in
    [0, 1].

    Parameters
    ----------
    thresholds : int or array-like of shape (n_thresholds,), default=10
        The thresholds, or their number: they are then quantiles of the training edges, equally spaced.
    channels : slice, array-like of int or bool, or None, default=None
        Features of a pixel that are used, such as ``slice(0, 3)`` for colours that come before other
        features; None for all.

    Attributes
    ----------
    thresholds_ : ndarray of shape (n_thresholds,)
        The thresholds; none if the training images have no edges.

    See Also
    --------
    ContrastThresholds : Indicators of the difference of the two pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.preprocessing import SobelThresholds
    >>> image = np.zeros((4, 4, 1))
    >>> image[:, 2:] = 1.0
    >>> sobel = SobelThresholds([0.1, 0.9]).fit_edges([], n_features=1)
    >>> sobel.transform_edges(image, np.array([[0, 1]]), np.array([[0, 1]]))
    array([[ True, False]])
    """

    _name = "sobel"

    def _values(self, image, edges):
        grey = image.mean(axis=2)
        # The weights of the filter sum to 8, so that a ramp of slope 1 has the response 1.
        gradient = [ndimage.sobel(grey, axis=axis, mode="nearest") / 8 for axis in (0, 1)]
        response = np.hypot(*gradient).ravel()
        return np.maximum(response[edges[:, 0]], response[edges[:, 1]])


class EdgeUnion(_BaseComposition, BaseEdgeFeatures):
    """Union of several features of pairs of neighbouring pixels.

    Parameters
    ----------
    features : list of tuple
        Pairs of a name and features: BaseEdgeFeatures, a name such as "contrast", or a transformer of
        absolute differences. Their parameters can be set as ``name__parameter``.

    Attributes
    ----------
    features_ : list of BaseEdgeFeatures
        Fitted features.

    See Also
    --------
    make_edge_union : The same with automatic names.

    Examples
    --------
    >>> from skcrf.preprocessing import ContrastThresholds, EdgeUnion, SobelThresholds
    >>> union = EdgeUnion([("contrast", ContrastThresholds([0.1])), ("sobel", SobelThresholds([0.2]))])
    >>> union.set_params(sobel__thresholds=[0.3]).fit_edges([], n_features=3).get_feature_names_out()
    array(['contrast__contrast>0.1', 'sobel__sobel>0.3'], dtype=object)
    """

    def __init__(self, features):
        self.features = features

    def get_params(self, deep=True):
        """Get the parameters.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return the parameters of the features too.

        Returns
        -------
        params : dict
            Parameters.
        """
        return self._get_params("features", deep=deep)

    def set_params(self, **params):
        """Set parameters.

        Parameters
        ----------
        **params : dict
            Parameters of the union, features by name, or parameters of features as ``name__parameter``.

        Returns
        -------
        self : object
            The union.
        """
        self._set_params("features", **params)
        return self

    def fit_edges(self, samples, n_features):
        pairs = self.features
        is_list = isinstance(pairs, (list, tuple)) and len(pairs) > 0
        if not is_list or any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pairs):
            raise ValueError(f"features must be pairs of a name and features, got {pairs!r}.")
        self._validate_names([name for name, _ in pairs])
        self.features_ = [as_edge_features(choice).fit_edges(samples, n_features) for _, choice in pairs]
        return self

    def transform_edges(self, image, edges, offsets):
        found = [compute_edge_features(one, image, edges, offsets) for one in self.features_]
        return np.hstack([part for part in found if part.shape[1]] or found)

    def get_feature_names_out(self, input_features=None):
        return np.array(
            [
                f"{name}__{feature}"
                for (name, _), one in zip(self.features, self.features_, strict=True)
                for feature in one.get_feature_names_out(input_features)
            ],
            dtype=object,
        )


def make_edge_union(*features):
    """Make an `EdgeUnion` with names that are the lower-case names of the classes.

    Parameters
    ----------
    *features : BaseEdgeFeatures, str or transformer
        Features of pairs of neighbouring pixels.

    Returns
    -------
    union : EdgeUnion
        Their union.

    Examples
    --------
    >>> from skcrf.preprocessing import ContrastThresholds, SobelThresholds, make_edge_union
    >>> union = make_edge_union(ContrastThresholds(), SobelThresholds())  # D13 section 8.3
    >>> [name for name, _ in union.features]
    ['contrastthresholds', 'sobelthresholds']
    """
    return EdgeUnion(_name_estimators(features))
