"""Transformation of the pixels of images by a scikit-learn transformer."""

from skcrf.data import ImageReader
from skcrf.preprocessing._row_wise import BaseRowWise


class PixelWise(BaseRowWise):
    """Pixel-wise application of a scikit-learn transformer to images.

    The transformer is fitted to the pixels of all images as the rows of one table, and then applied to each
    image. Images may differ in size. X may also be a table of shape (n_samples, n_features).

    Parameters
    ----------
    transformer : transformer or "passthrough", default="passthrough"
        The transformer of the rows of features. It must return one row per input row, and is fitted without
        labels. "passthrough" leaves the features unchanged.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone of `transformer`.
    n_features_in_ : int
        Number of features per pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    See Also
    --------
    SiteWise : The same for sequences and graphs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skcrf.preprocessing import PixelWise
    >>> X = [np.ones((2, 3, 4)), np.zeros((3, 5, 4))]
    >>> [x.shape for x in PixelWise(StandardScaler()).fit_transform(X)]
    [(2, 3, 4), (3, 5, 4)]
    """

    _unfitted_reader = ImageReader()
