"""Responses of pixels to a bank of filters."""

import numpy as np
from scipy import ndimage

from skcrf.preprocessing._image import BaseImageFeatures

# Multiples of its standard deviation at which a Gaussian filter is cut off.
_TRUNCATE = 3.0


class FilterBank(BaseImageFeatures):
    """Responses of a bank of Gaussian filters at several scales.

    At each scale, every channel gives the smoothed intensity, the length of the gradient (edges) and the two
    eigenvalues of the matrix of second derivatives (texture), as in
    `skimage.feature.multiscale_basic_features`. Gradients and eigenvalues are multiplied by the scale and its
    square, so that scales can be compared.

    Parameters
    ----------
    sigmas : array-like of shape (n_scales,), default=(1.0, 2.0, 4.0, 8.0)
        Standard deviations of the filters, in pixels.
    intensity : bool, default=True
        Whether to include smoothed intensities.
    edges : bool, default=True
        Whether to include the lengths of gradients.
    texture : bool, default=True
        Whether to include the eigenvalues, the larger one first.

    Attributes
    ----------
    n_features_in_ : int
        Number of features per pixel.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if fitted to a table whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.preprocessing import FilterBank
    >>> X = [np.random.default_rng(0).random((20, 30, 3)), np.zeros((5, 4, 3))]
    >>> bank = FilterBank(sigmas=[1, 4])
    >>> [x.shape for x in bank.fit_transform(X)]
    [(20, 30, 24), (5, 4, 24)]
    >>> bank.get_feature_names_out()[:4].tolist()
    ['intensity(x0, 1)', 'edges(x0, 1)', 'texture0(x0, 1)', 'texture1(x0, 1)']
    """

    def __init__(self, sigmas=(1.0, 2.0, 4.0, 8.0), intensity=True, edges=True, texture=True):
        self.sigmas = sigmas
        self.intensity = intensity
        self.edges = edges
        self.texture = texture

    def _fit_examples(self, examples):
        try:
            sigmas = np.array(self.sigmas, dtype=np.float64)
        except (TypeError, ValueError):
            sigmas = np.empty(0)
        if sigmas.ndim != 1 or len(sigmas) == 0 or not (np.isfinite(sigmas) & (sigmas > 0)).all():
            raise ValueError(f"sigmas must be a list of numbers above 0, got {self.sigmas!r}.")
        if not (self.intensity or self.edges or self.texture):
            raise ValueError("intensity, edges or texture must be True, got False for all of them.")

    def _transform_image(self, image):
        features = [
            feature
            for channel in np.moveaxis(image, 2, 0)
            for sigma in self.sigmas
            for feature in self._responses(channel, sigma)
        ]
        return np.stack(features, axis=2)

    def _responses(self, channel, sigma):
        smooth = ndimage.gaussian_filter(channel, sigma, mode="nearest", truncate=_TRUNCATE)

        def slope(image, axis):
            return sigma * ndimage.correlate1d(image, [-0.5, 0, 0.5], axis=axis, mode="nearest")

        if self.intensity:
            yield smooth
        if self.edges:
            yield np.hypot(slope(smooth, 0), slope(smooth, 1))
        if self.texture:
            by_row = slope(smooth, 0)
            rows, mixed, columns = slope(by_row, 0), slope(by_row, 1), slope(slope(smooth, 1), 1)
            mean, spread = (rows + columns) / 2, np.hypot((rows - columns) / 2, mixed)
            yield mean + spread
            yield mean - spread

    def _names(self, channels):
        kinds = ["intensity"] * bool(self.intensity) + ["edges"] * bool(self.edges)
        kinds += ["texture0", "texture1"] * bool(self.texture)
        for channel in channels:
            for sigma in self.sigmas:
                yield from (f"{kind}({channel}, {sigma:g})" for kind in kinds)
