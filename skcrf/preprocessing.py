"""Transformers of images: what scikit-learn does to rows, done to pixels."""

from abc import abstractmethod
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array, check_scalar, get_tags
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from skcrf._examples import as_images, is_table, like_container


class _PixelTransformer(CallbackSupportMixin, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """Base class of transformers of pixels.

    Conventions
    -----------
    - Rows are pixels: an image (height, width, n_features) is height * width rows in C order.
    - A plain table is rows already. It goes through as a table, and `set_output` is about tables only:
      images come out as images whatever it says.
    - What comes out is in the kind of container that went in.

    A subclass writes `_fit_images`, which learns from a list of images (a table comes as one image of one
    column), and `_transform_image`, which gives the rows of one image.
    """

    # auto_wrap_output_keys=None above keeps `transform` and `fit_transform` of this class, which also see
    # images, from being wrapped; subclasses are given `set_output` as usual.

    @with_callbacks
    def fit(self, X, y=None):
        """Learn from all pixels of all images.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features), or table
            Images, or rows of shape (n_samples, n_features).
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted transformer.
        """
        return self._learn(X, y, self._fit_images, reset=True)

    def _learn(self, X, y, learn, *, reset):
        context = self._init_callback_context()
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        learn(self._read(X, reset=reset), table=is_table(X))
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes={})
        return self

    def transform(self, X):
        """Transform the pixels of images.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features), or table
            Images, or rows of shape (n_samples, n_features).

        Returns
        -------
        X_out : sequence of ndarray of shape (height, width, n_features_out), or table
            Images in the kind of container that X is, or rows of shape (n_samples, n_features_out).
        """
        check_is_fitted(self)
        images = self._read(X, reset=False)
        if is_table(X):
            rows = _dense(self._transform_image(images[0], table=True))
            return _wrap_data_with_container("transform", rows, X, self)
        return like_container(
            X, [_as_image(self._transform_image(image, table=False), image) for image in images]
        )

    def fit_transform(self, X, y=None):
        """Learn from all pixels of all images, then transform them.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features), or table
            Images, or rows of shape (n_samples, n_features).
        y : None
            Ignored.

        Returns
        -------
        X_out : sequence of ndarray of shape (height, width, n_features_out), or table
            Images in the kind of container that X is, or rows of shape (n_samples, n_features_out).
        """
        return self.fit(X, y).transform(X)

    @abstractmethod
    def _fit_images(self, images, *, table):
        """Learn from a list of images of shape (height, width, n_features)."""

    @abstractmethod
    def _transform_image(self, image, *, table):
        """Compute the rows (height * width, n_features_out) of an image (height, width, n_features)."""

    def _read(self, X, *, reset):
        if is_table(X):
            rows = validate_data(self, X, reset=reset, dtype=(np.float64, np.float32))
            return [rows[:, None]]
        images = as_images(X, n_features=None if reset else self.n_features_in_)
        if reset:
            self.n_features_in_ = images[0].shape[2]
            if hasattr(self, "feature_names_in_"):  # of an earlier fit, to a table with names
                del self.feature_names_in_
        return images


def _rows(image):
    return image.reshape(-1, image.shape[2])


def _dense(rows):
    return rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


def _as_image(rows, image):
    rows = _dense(rows)
    return rows.reshape(*image.shape[:2], rows.shape[1])


def _inner_has(method):
    def check(self):
        # Raises the inner transformer's own AttributeError, which names what is missing.
        getattr(getattr(self, "transformer_", self._inner()), method)
        return True

    return check


class PixelWise(_PixelTransformer):
    """Apply a scikit-learn transformer to the pixels of images.

    The transformer is fitted to all pixels of all images, as rows, and then applied to each image. Images may
    differ in size. A plain table goes through as rows.

    Parameters
    ----------
    transformer : transformer or "passthrough", default="passthrough"
        What to apply to the rows of features. It must give one row a row, and it is not shown the labels:
        supervised transformers are of no use here. "passthrough" leaves the features alone.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone of `transformer`.
    n_features_in_ : int
        Number of features of a pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skcrf.preprocessing import PixelWise
    >>> X = [np.ones((2, 3, 4)), np.zeros((3, 5, 4))]
    >>> [x.shape for x in PixelWise(StandardScaler()).fit_transform(X)]
    [(2, 3, 4), (3, 5, 4)]
    """

    def __init__(self, transformer="passthrough"):
        self.transformer = transformer

    def _inner(self):
        if isinstance(self.transformer, str) and self.transformer == "passthrough":
            return FunctionTransformer(feature_names_out="one-to-one")
        return self.transformer

    def _unfitted(self):
        inner = self._inner()
        if isinstance(inner, type) or not (hasattr(inner, "fit") and hasattr(inner, "transform")):
            raise TypeError(f"transformer must be a transformer or 'passthrough', got {inner!r}.")
        return clone(inner)

    def _fit_images(self, images, *, table):
        self.transformer_ = self._unfitted().fit(np.concatenate([_rows(image) for image in images]))

    def _partial_fit_images(self, images, *, table):
        transformer = self.transformer_ if hasattr(self, "transformer_") else self._unfitted()
        self.transformer_ = transformer.partial_fit(np.concatenate([_rows(image) for image in images]))

    def _transform_image(self, image, *, table):
        return self.transformer_.transform(_rows(image))

    @available_if(_inner_has("partial_fit"))
    @with_callbacks
    def partial_fit(self, X, y=None):
        """Learn from more images; only if the inner transformer can.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width) or (height, width, n_features), or table
            Images, or rows of shape (n_samples, n_features).
        y : None
            Ignored.

        Returns
        -------
        self : object
            The transformer.
        """
        return self._learn(X, y, self._partial_fit_images, reset=not hasattr(self, "transformer_"))

    @available_if(_inner_has("inverse_transform"))
    def inverse_transform(self, X):
        """Undo `transform`; only if the inner transformer can.

        Parameters
        ----------
        X : sequence of array-like of shape (height, width, n_features_out), or table
            Transformed images, or rows of shape (n_samples, n_features_out).

        Returns
        -------
        X_original : sequence of ndarray of shape (height, width, n_features), or table
            Images in the kind of container that X is, or rows of shape (n_samples, n_features).
        """
        check_is_fitted(self)
        if is_table(X):
            return _dense(self.transformer_.inverse_transform(check_array(X, dtype=(np.float64, np.float32))))
        images = as_images(X)
        results = [_as_image(self.transformer_.inverse_transform(_rows(image)), image) for image in images]
        return like_container(X, results)

    @available_if(_inner_has("get_feature_names_out"))
    def get_feature_names_out(self, input_features=None):
        """Name the features of a transformed pixel.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; None for those seen in fit, or x0, x1, ...

        Returns
        -------
        names : ndarray of str
            One name a feature.
        """
        check_is_fitted(self)
        return self.transformer_.get_feature_names_out(_check_feature_names_in(self, input_features))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if hasattr(self._inner(), "__sklearn_tags__"):
            inner = get_tags(self._inner())
            tags.input_tags.positive_only = inner.input_tags.positive_only
            tags.non_deterministic = inner.non_deterministic
            tags.transformer_tags = inner.transformer_tags or tags.transformer_tags
        return tags


class FourierFeatures(_PixelTransformer):
    """Expand the features of a pixel by sines and cosines of their sums.

    For the features s of a pixel, these are ``sin(c . s)`` and ``cos(c . s)`` for all binary vectors c, as in
    D13 section 8.3: from n features to 2 * 2**n. RGB and two positions make 64.

    Parameters
    ----------
    position : bool, default=True
        Whether the vertical and the horizontal position of the pixel, from 0 to 1, are two more features.
        Rows of a table have none.
    scale : float, default=1.0
        What features and positions are multiplied by: the larger, the finer the waves. They should be of
        about unit size before.
    max_features : int, default=4096
        Largest number of features to make. More is refused, for they double with each feature.

    Attributes
    ----------
    position_ : bool
        Whether positions are used: `position`, but False after a fit to a table.
    n_features_in_ : int
        Number of features of a pixel.
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

    def __init__(self, position=True, scale=1.0, max_features=4096):
        self.position = position
        self.scale = scale
        self.max_features = max_features

    def _fit_images(self, images, *, table):
        check_scalar(self.scale, "scale", Real)
        check_scalar(self.max_features, "max_features", Integral, min_val=2)
        position = bool(self.position) and not table
        n_features = self.n_features_in_ + 2 * position
        if n_features + 1 > np.log2(self.max_features):
            raise ValueError(
                f"X has {self.n_features_in_} features a pixel{', and 2 positions' * position}, which would "
                f"make 2 * 2**{n_features} features, more than max_features={self.max_features}."
            )
        self.position_ = position

    def _transform_image(self, image, *, table):
        if table and self.position_:
            raise ValueError("X is a table, without positions, but fit saw images: set position=False.")
        if self.position_:
            image = np.concatenate([image, _positions(image)], axis=2)
        rows = _rows(image)
        angles = rows @ (self.scale * _binary_vectors(rows.shape[1])).astype(rows.dtype)
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def get_feature_names_out(self, input_features=None):
        """Name the features of a transformed pixel.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; None for those seen in fit, or x0, x1, ...

        Returns
        -------
        names : ndarray of str
            One name a feature, such as "sin(x0 + row)".
        """
        check_is_fitted(self)
        names = [*_check_feature_names_in(self, input_features), *["row", "column"] * self.position_]
        sums = [
            " + ".join(name for name, used in zip(names, c, strict=True) if used) or "0"
            for c in _binary_vectors(len(names)).T
        ]
        return np.array([f"{wave}({total})" for wave in ("sin", "cos") for total in sums], dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _binary_vectors(n):
    """All binary vectors of length n, as the columns of a matrix (n, 2**n)."""
    return np.arange(2**n) >> np.arange(n)[:, None] & 1


def _positions(image):
    """Vertical and horizontal position of each pixel, from 0 to 1: (height, width, 2)."""
    height, width = image.shape[:2]
    grid = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
    return np.stack(grid, axis=2).astype(image.dtype)
