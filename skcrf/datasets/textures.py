"""Textures with defects and weak labels."""

from numbers import Real

import numpy as np
from scipy import ndimage
from sklearn.utils import check_random_state, check_scalar

from skcrf.datasets._drawing import check_size, rotated_coordinates, standardize


def make_texture_defects(
    n_images=24, shape=(64, 64), contrast=2.5, defective=0.75, slack=1.7, random_state=None
):
    """Generate textures with small defects and coarse ellipses around them as weak labels.

    The texture is oriented noise of the same orientation in all images. A defect is a curved scratch or a
    spot, alternately brighter and darker than the texture, and covers a small part of its ellipse.

    Parameters
    ----------
    n_images : int, default=24
        Number of images.
    shape : tuple of int, default=(64, 64)
        Height and width.
    contrast : float, default=2.5
        Brightness of defects in standard deviations of the texture.
    defective : float, default=0.75
        Fraction of images with a defect; images without come last.
    slack : float, default=1.7
        Size of an ellipse relative to the smallest one that contains the defect, at least 1.
    random_state : int, RandomState instance or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_images, height, width)
        Images; without the defects they have mean 0 and standard deviation 1.
    Y_weak : ndarray of shape (n_images, height, width)
        1 inside the ellipse of a defect, 0 elsewhere; int64.
    Y : ndarray of shape (n_images, height, width)
        1 on the defect itself, 0 elsewhere; int64.

    Examples
    --------
    >>> from skcrf.datasets import make_texture_defects
    >>> X, Y_weak, Y = make_texture_defects(n_images=4, shape=(32, 48), random_state=0)
    >>> X.shape, bool((Y_weak >= Y).all()), int(Y.any(axis=(1, 2)).sum())
    ((4, 32, 48), True, 3)
    """
    height, width = check_size(n_images, shape)
    check_scalar(contrast, "contrast", Real)
    check_scalar(defective, "defective", Real, min_val=0, max_val=1)
    check_scalar(slack, "slack", Real, min_val=1)
    rng = check_random_state(random_state)
    X = np.stack([_texture((height, width), rng) for _ in range(n_images)])
    weak, Y = np.zeros((2, n_images, height, width), dtype=np.int64)
    for i in range(round(defective * n_images)):
        along, across = rotated_coordinates((height, width), rng)
        reach, thickness = rng.uniform(0.12, 0.2), rng.uniform(0.02, 0.04)
        if rng.uniform() < 0.5:  # a scratch
            bend = rng.uniform(-2.0, 2.0) * (along**2 - reach**2 / 3)
            defect, extent = (np.abs(along) < reach) & (np.abs(across - bend) < thickness), 0.07
        else:  # a spot
            reach, extent = reach / 2, rng.uniform(0.05, 0.08)
            defect = np.hypot(along / reach, across / extent) < 1
        Y[i] = defect
        shift = rng.uniform(-0.25, 0.25, size=2) * (slack - 1)
        ellipse = np.hypot(along / reach - shift[0], across / extent - shift[1]) < np.sqrt(2.0) * slack
        weak[i] = ellipse | defect
        strength = ndimage.gaussian_filter(defect.astype(np.float64), 0.5)
        X[i] += contrast * (-1) ** i * strength
    return X, weak, Y


def _texture(size, rng):
    """Draw noise that is smoother in one direction, and add some white noise."""
    side = 3 * max(size) // 2 + 8  # covers the image after the rotation
    noise = rng.normal(size=(side, side))
    grain = ndimage.gaussian_filter(noise, (0.7, 2.0)) - ndimage.gaussian_filter(noise, (3.0, 5.0))
    top, left = ((side - length) // 2 for length in size)
    grain = ndimage.rotate(grain, 30, reshape=False)[top : top + size[0], left : left + size[1]]
    grain = standardize(grain)
    return standardize(grain + 0.3 * rng.normal(size=size))
