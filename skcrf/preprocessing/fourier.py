"""Fourier features of pixels."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from skcrf.data import ImageReader
from skcrf.preprocessing._base import BaseSiteTransformer, has_table_rows
from skcrf.preprocessing._image import pixel_positions


class FourierFeatures(BaseSiteTransformer):
    """Sines and cosines of the sums of the features of a pixel.

    The features s of a pixel become ``sin(c . s)`` and ``cos(c . s)`` for all binary vectors c, as in D13
    section 8.3: n features become 2 * 2**n. RGB and two positions make 64.

    Parameters
    ----------
    position : bool, default=True
        Whether the row and the column of the pixel, scaled to [0, 1], are two more features. Ignored for
        tables, which have no positions.
    scale : float, default=1.0
        Factor of features and positions; larger values give higher frequencies. Features should be of about
        unit size.
    max_features : int, default=4096
        Maximum number of output features. More raise an error, since each feature doubles their number.

    Attributes
    ----------
    position_ : bool
        Whether positions are used: `position`, or False after a fit to a table.
    n_features_in_ : int
        Number of features per pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.preprocessing import FourierFeatures
    >>> X = [np.ones((2, 4, 3)), np.zeros((3, 5, 3))]
    >>> [x.shape for x in FourierFeatures().fit_transform(X)]
    [(2, 4, 64), (3, 5, 64)]
    """

    _unfitted_reader = ImageReader()

    def __init__(self, position=True, scale=1.0, max_features=4096):
        self.position = position
        self.scale = scale
        self.max_features = max_features

    def _fit_examples(self, examples):
        check_scalar(self.scale, "scale", Real)
        check_scalar(self.max_features, "max_features", Integral, min_val=2)
        position = bool(self.position) and not has_table_rows(examples[0])
        n_features = self.n_features_in_ + 2 * position
        if n_features + 1 > np.log2(self.max_features):
            raise ValueError(
                f"max_features must be at least 2 * 2**{n_features} for {self.n_features_in_} features per "
                f"pixel{' and 2 positions' * position}, got {self.max_features}. Use fewer features."
            )
        self.position_ = position

    def _transform_rows(self, example):
        if self.position_ and has_table_rows(example):
            raise ValueError(
                "X must be images, as in fit, got a table without positions. Set position=False."
            )
        rows = example.X
        if self.position_:
            positions = pixel_positions(*example.shape).reshape(2, -1).T
            rows = np.concatenate([rows, positions.astype(rows.dtype)], axis=1)
        angles = rows @ (self.scale * _binary_vectors(rows.shape[1])).astype(rows.dtype)
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def get_feature_names_out(self, input_features=None):
        """Get the names of the output features.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the input features; None for those seen in fit, or x0, x1, ...

        Returns
        -------
        feature_names_out : ndarray of str
            One name per output feature, such as "sin(x0 + row)".
        """
        check_is_fitted(self)
        names = [*_check_feature_names_in(self, input_features), *["row", "column"] * self.position_]
        sums = [
            " + ".join(name for name, used in zip(names, c, strict=True) if used) or "0"
            for c in _binary_vectors(len(names)).T
        ]
        return np.array([f"{name}({total})" for name in ("sin", "cos") for total in sums], dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _binary_vectors(n):
    """Return all binary vectors of length n as the columns of a matrix (n, 2**n)."""
    return np.arange(2**n) >> np.arange(n)[:, None] & 1
