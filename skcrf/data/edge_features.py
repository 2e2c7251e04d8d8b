"""Features of the edges of images that have names, and those that a scikit-learn transformer computes."""

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import get_tags

from skcrf.data.readers import BaseEdgeFeatures, Bias, float_type


class Contrast(BaseEdgeFeatures):
    """Norm of the difference of the two pixels' features.

    Parameters
    ----------
    channels : slice, array-like of int or bool, or None, default=None
        Features of a pixel that are used; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.preprocessing import Contrast
    >>> image = np.array([[[0.0, 0.0], [3.0, 4.0]]])
    >>> Contrast().transform_edges(image, np.array([[0, 1]]), np.array([[0, 1]]))
    array([[5.]])
    >>> Contrast(channels=[0]).transform_edges(image, np.array([[0, 1]]), np.array([[0, 1]]))
    array([[3.]])
    """

    def __init__(self, channels=None):
        self.channels = channels

    def fit_edges(self, samples, n_features):
        choose_channels(self.channels, n_features)
        return self

    def transform_edges(self, image, edges, offsets):
        image = image[:, :, choose_channels(self.channels, image.shape[2])]
        return contrast(image, edges)[:, None]

    def get_feature_names_out(self, input_features=None):
        return np.array(["contrast"], dtype=object)


class Differences(BaseEdgeFeatures):
    """Output of a scikit-learn transformer for the absolute differences of the two pixels' features.

    Parameters
    ----------
    transformer : transformer
        Transformer of arrays of shape (n_edges, n_features).

    Attributes
    ----------
    transformer_ : transformer or None
        Its fitted clone; None if it has to be fitted and there were no edges.
    """

    def __init__(self, transformer):
        self.transformer = transformer

    def fit_edges(self, samples, n_features):
        transformer, seen = clone(self.transformer), [np.zeros((1, n_features))]
        if get_tags(transformer).requires_fit:
            seen = [edge_differences(edges, _rows(image)) for image, edges, _ in samples]
        if seen:
            transformer.fit(np.concatenate(seen))
        self.transformer_ = transformer if seen else None
        return self

    def transform_edges(self, image, edges, offsets):
        if self.transformer_ is None:
            return np.zeros((len(edges), 0))
        features = self.transformer_.transform(edge_differences(edges, _rows(image)))
        features = features.toarray() if sparse.issparse(features) else np.asarray(features)
        # Indicators of a transformer are widened, as its output always was: the sums have the same bits.
        return features.astype(float_type(features.dtype), copy=False)

    def get_feature_names_out(self, input_features=None):
        if self.transformer_ is None:
            return np.array([], dtype=object)
        return self.transformer_.get_feature_names_out(input_features)


#: Features of edges by name.
EDGE_FEATURES = {"bias": Bias, "contrast": Contrast}


def as_edge_features(choice):
    """Make unfitted BaseEdgeFeatures from a name, an instance, or a transformer of differences."""
    if isinstance(choice, str):
        if choice not in EDGE_FEATURES:
            raise ValueError(
                f"edge_features must be one of {sorted(EDGE_FEATURES)}, BaseEdgeFeatures or a transformer, "
                f"got {choice!r}."
            )
        return EDGE_FEATURES[choice]()
    return clone(choice) if isinstance(choice, BaseEdgeFeatures) else Differences(choice)


def choose_channels(channels, n_features, name="channels"):
    """Return the indices of some features of a pixel.

    Parameters
    ----------
    channels : slice, array-like of int or bool, or None
        The choice; None for all.
    n_features : int
        Number of features of a pixel.
    name : str, default="channels"
        Name of the parameter in messages.

    Returns
    -------
    index : slice or ndarray of int
        Their positions; a slice where possible, which makes no copy.
    """
    if channels is None:
        return slice(None)
    try:
        chosen = np.arange(n_features)[channels if isinstance(channels, slice) else np.asarray(channels)]
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a slice or positions of the {n_features} features of a pixel, got {channels!r}."
        ) from error
    if chosen.ndim != 1 or len(chosen) == 0:
        raise ValueError(
            f"{name} must choose at least one of the {n_features} features of a pixel, got {channels!r}."
        )
    return channels if isinstance(channels, slice) else chosen


def contrast(image, edges):
    """Compute the norm of the difference of the features of the two pixels of each edge, (n_edges,)."""
    return np.linalg.norm(edge_differences(edges, _rows(image)), axis=1)


def edge_differences(edges, X):
    """Compute the absolute differences of features across each edge, (n_edges, n_features)."""
    return np.abs(X[edges[:, 0]] - X[edges[:, 1]])


def _rows(image):
    return image.reshape(-1, image.shape[2])
