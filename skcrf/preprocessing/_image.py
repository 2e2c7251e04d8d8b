"""Base class of features of pixels that depend on the image; positions; interpolation between blocks."""

from abc import abstractmethod

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skcrf.data import ImageReader
from skcrf.preprocessing._base import BaseSiteTransformer, has_table_rows


class BaseImageFeatures(BaseSiteTransformer):
    """Base class of features of pixels that depend on the whole image.

    Conventions
    -----------
    - A row of a table is an image of one pixel.
    - float32 images give float32 features.
    """

    _unfitted_reader = ImageReader()

    def _fit_examples(self, examples):
        """Validate the parameters; nothing is learned."""

    @abstractmethod
    def _transform_image(self, image):
        """Compute the features (height, width, n_features_out) of an image (height, width, n_features)."""

    @abstractmethod
    def _names(self, channels):
        """Return the names of the features, given those of the channels."""

    def _transform_rows(self, example):
        X = example.X
        images = X[:, None, None] if has_table_rows(example) else [X.reshape(*example.shape, X.shape[1])]
        rows = [self._transform_image(image) for image in images]
        return np.concatenate([one.reshape(-1, one.shape[2]) for one in rows]).astype(X.dtype, copy=False)

    def get_feature_names_out(self, input_features=None):
        """Get the names of the output features.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input features; None for those seen in fit, or x0, x1, ...

        Returns
        -------
        feature_names_out : ndarray of str
            One name per output feature.
        """
        check_is_fitted(self)
        channels = _check_feature_names_in(self, input_features)
        return np.array(list(self._names(channels)), dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def import_skimage(user):
    """Import scikit-image, or raise an error that names the extra it comes with."""
    try:
        import skimage.feature
    except ImportError as error:
        raise ImportError(
            f"{user} requires scikit-image. Install it with `pip install skcrf[image]`."
        ) from error
    return skimage


def interpolate(values, centres, shape):
    """Interpolate linearly between values at the centres of blocks, and constantly outside them.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns, n_features)
        Values of blocks.
    centres : pair of ndarray
        Rows of the centres, (n_rows,), and columns, (n_columns,), in pixels, ascending.
    shape : pair of int
        Height and width of the result.

    Returns
    -------
    image : ndarray of shape (height, width, n_features)
        A value for each pixel.
    """
    for axis, (places, size) in enumerate(zip(centres, shape, strict=True)):
        place = np.interp(np.arange(size), places, np.arange(len(places)))
        low = place.astype(np.int64)
        high = np.minimum(low + 1, len(places) - 1)
        weight = (place - low).astype(values.dtype).reshape(-1, *[1] * (2 - axis))
        lower, upper = values.take(low, axis=axis), values.take(high, axis=axis)
        values = lower + weight * (upper - lower)
    return values


def pixel_positions(height, width):
    """Return the row and the column of each pixel, scaled to [0, 1]: (2, height, width)."""
    return np.stack(np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij"))
