"""Binary images with noise."""

from numbers import Real

import numpy as np
from scipy import ndimage
from sklearn.utils import check_random_state, check_scalar

from skcrf.datasets._drawing import check_size, rotated_coordinates, standardize


def make_binary_denoising(n_images=32, shape=(64, 64), noise=1.25, ragged=False, random_state=None):
    """Generate binary images of smooth shapes with noise.

    The noise is that of D13 section 8.2: ``x = y (1 - t**n) + (1 - y) t**n`` with t uniform on [0, 1] at
    each pixel and n the noise level. At n = 1.25 the best threshold mislabels 43 % of the pixels.

    Parameters
    ----------
    n_images : int, default=32
        Number of images.
    shape : tuple of int, default=(64, 64)
        Height and width.
    noise : float, default=1.25
        Noise level n, at least 1. Lower is noisier; at 1 the input does not depend on the labels.
    ragged : bool, default=False
        Whether images differ in size, with sides between 0.6 and 1.4 times those of `shape`.
    random_state : int, RandomState instance or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_images, height, width), or list of ndarray of shape (height, width)
        Noisy images, float64 in [0, 1]; a list if `ragged`.
    Y : ndarray of shape (n_images, height, width), or list of ndarray of shape (height, width)
        Clean images, int64, 0 or 1; a list if `ragged`.

    Examples
    --------
    >>> from skcrf.datasets import make_binary_denoising
    >>> X, Y = make_binary_denoising(n_images=4, shape=(20, 30), random_state=0)
    >>> X.shape, Y.shape
    ((4, 20, 30), (4, 20, 30))
    """
    height, width = check_size(n_images, shape)
    check_scalar(noise, "noise", Real, min_val=1)
    rng = check_random_state(random_state)
    X, Y = [], []
    for _ in range(n_images):
        size = (height, width)
        if ragged:
            size = tuple(max(1, round(side * rng.uniform(0.6, 1.4))) for side in size)
        y = _draw_image(size, rng)
        X.append(add_noise(y, noise, rng))
        Y.append(y)
    return (X, Y) if ragged else (np.stack(X), np.stack(Y))


def add_noise(y, noise, rng):
    """Return binary labels with the noise of D13 section 8.2.

    Parameters
    ----------
    y : ndarray of shape (height, width)
        Labels, 0 or 1.
    noise : float
        Noise level.
    rng : RandomState
        Random numbers.

    Returns
    -------
    x : ndarray of shape (height, width)
        Noisy image, float64 in [0, 1].
    """
    t = rng.uniform(size=y.shape) ** noise
    return np.where(y == 1, 1 - t, t)


def _draw_image(size, rng):
    """Draw one binary image: a smooth random surface with a few shapes added, cut at its median."""
    side = min(size)
    height = sum(
        strength * standardize(ndimage.gaussian_filter(rng.normal(size=size), side * blur, mode="reflect"))
        for strength, blur in ((1.0, 0.18), (0.12, 0.04))  # large shapes, and some detail
    )
    for _ in range(rng.randint(1, 3)):
        shape = _SHAPES[rng.randint(len(_SHAPES))](size, rng)
        # The opposite sign of the surface makes the shape visible everywhere.
        height[shape] -= np.copysign(3.0, height[shape].sum())
    return (height > np.median(height)).astype(np.int64)


def _ellipse(size, rng):
    along, across = rotated_coordinates(size, rng)
    return np.hypot(along / rng.uniform(0.2, 0.4), across / rng.uniform(0.15, 0.3)) < 1


def _ring(size, rng):
    radius = np.hypot(*rotated_coordinates(size, rng))
    return np.abs(radius - rng.uniform(0.25, 0.35)) < rng.uniform(0.08, 0.14)


def _rectangle(size, rng):
    along, across = rotated_coordinates(size, rng)
    return (np.abs(along) < rng.uniform(0.2, 0.45)) & (np.abs(across) < rng.uniform(0.12, 0.25))


def _stripe(size, rng):
    along, across = rotated_coordinates(size, rng)
    bend = rng.uniform(0, 0.12) * np.sin(2 * np.pi * along * rng.uniform(0.5, 1.5))
    return np.abs(across - bend) < rng.uniform(0.07, 0.14)


_SHAPES = (_ellipse, _ring, _rectangle, _stripe)
