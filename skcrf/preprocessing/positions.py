"""Positions of pixels."""

from itertools import combinations_with_replacement
from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar

from skcrf.preprocessing._image import BaseImageFeatures, pixel_positions


class PixelPositions(BaseImageFeatures):
    """Row and column of each pixel, scaled to [0, 1], and their powers and products.

    The features of the pixels are left out: use `FeatureStack` to keep them.

    Parameters
    ----------
    degree : int, default=1
        Highest degree of powers and products: 2 gives row, column, row^2, row column and column^2.

    Attributes
    ----------
    n_features_in_ : int
        Number of features per pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.preprocessing import PixelPositions
    >>> (positions,) = PixelPositions().fit_transform([np.zeros((2, 3))])
    >>> positions[:, :, 1]
    array([[0. , 0.5, 1. ],
           [0. , 0.5, 1. ]])
    >>> PixelPositions(degree=2).fit([np.zeros((2, 3))]).get_feature_names_out().tolist()
    ['row', 'column', 'row^2', 'row column', 'column^2']
    """

    def __init__(self, degree=1):
        self.degree = degree

    def _fit_examples(self, examples):
        check_scalar(self.degree, "degree", Integral, min_val=1)

    def _powers(self):
        """Yield the powers of row and column of each feature."""
        for degree in range(1, self.degree + 1):
            for axes in combinations_with_replacement((0, 1), degree):
                yield axes.count(0), axes.count(1)

    def _transform_image(self, image):
        row, column = pixel_positions(*image.shape[:2])
        return np.stack([row**a * column**b for a, b in self._powers()], axis=2)

    def _names(self, channels):
        for powers in self._powers():
            parts = [
                name + f"^{power}" * (power > 1)
                for name, power in zip(("row", "column"), powers, strict=True)
                if power
            ]
            yield " ".join(parts)
