"""Histograms of oriented gradients around pixels."""

from itertools import product
from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar

from skcrf.preprocessing._image import BaseImageFeatures, import_skimage, interpolate


class HOGFeatures(BaseImageFeatures):
    """Histograms of oriented gradients around each pixel.

    The image is divided into square cells, and every block of cells has a normalised histogram of the
    orientations of gradients (`skimage.feature.hog`). The features of a pixel are interpolated between the
    centres of the blocks, so that by default there are 2 * 2 * 9 = 36 of them, as many as in D13 section 8.3.
    Of several channels, the one with the largest gradient counts. Images are extended at their borders to
    whole cells and to one block at least. Requires scikit-image.

    Parameters
    ----------
    orientations : int, default=9
        Number of bins of a histogram.
    pixels_per_cell : int, default=8
        Height and width of a cell. Larger cells see more context.
    cells_per_block : int, default=2
        Height and width of a block, in cells.
    block_norm : {"L2-Hys", "L2", "L1", "L1-sqrt"}, default="L2-Hys"
        Normalisation of a block.

    Attributes
    ----------
    n_features_in_ : int
        Number of features per pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    References
    ----------
    N. Dalal and B. Triggs, "Histograms of Oriented Gradients for Human Detection", CVPR 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.preprocessing import HOGFeatures
    >>> X = [np.random.default_rng(0).random((20, 30, 3)), np.zeros((5, 4, 3))]
    >>> [x.shape for x in HOGFeatures().fit_transform(X)]
    [(20, 30, 36), (5, 4, 36)]
    """

    def __init__(self, orientations=9, pixels_per_cell=8, cells_per_block=2, block_norm="L2-Hys"):
        self.orientations = orientations
        self.pixels_per_cell = pixels_per_cell
        self.cells_per_block = cells_per_block
        self.block_norm = block_norm

    def _fit_examples(self, examples):
        for name in ("orientations", "pixels_per_cell", "cells_per_block"):
            check_scalar(vars(self)[name], name, Integral, min_val=1)
        norms = ("L2-Hys", "L2", "L1", "L1-sqrt")
        if self.block_norm not in norms:
            raise ValueError(f"block_norm must be one of {list(norms)}, got {self.block_norm!r}.")
        import_skimage(type(self).__name__)

    def _transform_image(self, image):
        cell, cells = self.pixels_per_cell, self.cells_per_block
        shape = image.shape[:2]
        missing = [max(-size % cell, cell * cells - size) for size in shape]
        extended = np.pad(image, [(0, missing[0]), (0, missing[1]), (0, 0)], mode="edge")
        blocks = import_skimage(type(self).__name__).feature.hog(
            extended,
            orientations=self.orientations,
            pixels_per_cell=(cell, cell),
            cells_per_block=(cells, cells),
            block_norm=self.block_norm,
            feature_vector=False,
            channel_axis=2,
        )
        blocks = blocks.reshape(*blocks.shape[:2], -1)
        centres = [cell * np.arange(n) + (cell * cells - 1) / 2 for n in blocks.shape[:2]]
        return interpolate(blocks, centres, shape)

    def _names(self, channels):
        cells = range(self.cells_per_block)
        for row, column, orientation in product(cells, cells, range(self.orientations)):
            yield f"hog({row}, {column}, {orientation})"
