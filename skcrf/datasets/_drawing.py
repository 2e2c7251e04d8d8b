"""Helpers of the generators of images."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar


def check_size(n_images, shape):
    check_scalar(n_images, "n_images", Integral, min_val=1)
    if np.shape(shape) != (2,):
        raise ValueError(f"shape must be (height, width), got {shape!r}.")
    for side, name in zip(shape, ("shape[0]", "shape[1]"), strict=True):
        check_scalar(side, name, Integral, min_val=1)
    return shape


def standardize(values):
    return (values - values.mean()) / (values.std() or 1.0)


def rotated_coordinates(size, rng):
    """Return pixel coordinates relative to a random centre and axis, in units of the shorter side."""
    height, width = size
    down, right = np.mgrid[:height, :width] + 0.5
    down, right = down - rng.uniform(0.15, 0.85) * height, right - rng.uniform(0.15, 0.85) * width
    angle = rng.uniform(0, np.pi)
    along = np.cos(angle) * right + np.sin(angle) * down
    across = np.cos(angle) * down - np.sin(angle) * right
    return along / min(size), across / min(size)
