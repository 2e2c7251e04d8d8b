"""Figures under noise, and labels drawn from a field."""

from numbers import Integral, Real

import numpy as np
from scipy import ndimage
from sklearn.utils import check_random_state, check_scalar

from skcrf.datasets._drawing import check_size, standardised, turned


def make_binary_denoising(n_images=32, shape=(64, 64), noise=1.25, ragged=False, random_state=None):
    """Draw binary images of smooth shapes, and noisy versions of them.

    The noise is that of D13 section 8.2: ``x = y (1 - t**n) + (1 - y) t**n`` with t uniform on [0, 1] at
    each pixel and n the noise level. At n = 1.25 a pixel alone is guessed wrongly 43 times in 100.

    Parameters
    ----------
    n_images : int, default=32
        Number of images.
    shape : tuple of int, default=(64, 64)
        Height and width.
    noise : float, default=1.25
        The noise level n, at least 1. Lower is noisier: at 1 the input tells nothing.
    ragged : bool, default=False
        Whether each side of each image is between 0.6 and 1.4 times that of `shape`.
    random_state : int, RandomState instance or None, default=None
        Seed.

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
        y = _draw(size, rng)
        t = rng.uniform(size=size) ** noise
        X.append(np.where(y == 1, 1 - t, t))
        Y.append(y)
    return (X, Y) if ragged else (np.stack(X), np.stack(Y))


def make_potts(
    n_images=10,
    shape=(16, 16),
    n_classes=3,
    coupling=1.0,
    n_features=2,
    signal=1.0,
    n_sweeps=200,
    return_coef=False,
    random_state=None,
):
    """Sample label images from a conditional Potts model that is known.

    Given standard normal features x of each pixel, the labels y of an image have probability proportional to
    ``exp(sum_i (coef[y_i] . x_i + intercept[y_i]) + coupling * #{neighbours i, j with y_i = y_j})``, the
    neighbours of a pixel being the four next to it. Labels are drawn by Gibbs sampling, from an independent
    start.

    Parameters
    ----------
    n_images : int, default=10
        Number of images.
    shape : tuple of int, default=(16, 16)
        Height and width.
    n_classes : int, default=3
        Number of labels.
    coupling : float, default=1.0
        How much neighbours want to agree; negative for to disagree.
    n_features : int, default=2
        Number of features a pixel.
    signal : float, default=1.0
        Standard deviation of the entries of the true coefficients, 0 for features that tell nothing.
    n_sweeps : int, default=200
        Sweeps of Gibbs sampling over each image.
    return_coef : bool, default=False
        Whether to return the parameters of the model.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    X : ndarray of shape (n_images, height, width, n_features)
        Features.
    Y : ndarray of shape (n_images, height, width)
        Labels, int64, 0 to n_classes - 1.
    coef : ndarray of shape (n_classes, n_features)
        True coefficients, only if `return_coef`. They sum to 0 over the classes, as the estimates of a
        penalised fit do.
    intercept : ndarray of shape (n_classes,)
        True intercepts, only if `return_coef`. They sum to 0.
    edge_coef : ndarray of shape (2, n_classes, n_classes)
        True tables of horizontal and vertical edges, only if `return_coef`.

    Examples
    --------
    >>> from skcrf.datasets import make_potts
    >>> X, Y, coef, intercept, edge_coef = make_potts(
    ...     n_images=2, n_sweeps=5, return_coef=True, random_state=0
    ... )
    >>> X.shape, Y.shape, coef.shape, edge_coef.shape
    ((2, 16, 16, 2), (2, 16, 16), (3, 2), (2, 3, 3))
    """
    height, width = check_size(n_images, shape)
    check_scalar(n_classes, "n_classes", Integral, min_val=2)
    check_scalar(n_features, "n_features", Integral, min_val=1)
    check_scalar(n_sweeps, "n_sweeps", Integral, min_val=1)
    check_scalar(coupling, "coupling", Real)
    check_scalar(signal, "signal", Real, min_val=0)
    rng = check_random_state(random_state)
    coef = signal * rng.normal(size=(n_classes, n_features))
    coef -= coef.mean(axis=0)
    intercept = 0.2 * rng.normal(size=n_classes)
    intercept -= intercept.mean()
    X = rng.normal(size=(n_images, height, width, n_features))
    Y = _gibbs(X @ coef.T + intercept, coupling, n_sweeps, rng)
    if not return_coef:
        return X, Y
    return X, Y, coef, intercept, coupling * np.stack([np.eye(n_classes)] * 2)


def _gibbs(theta, coupling, n_sweeps, rng):
    """Sample labels (n_images, height, width) given unary potentials (n_images, height, width, n_classes)."""
    n_images, height, width, n_classes = theta.shape
    colour = np.add.outer(np.arange(height), np.arange(width)) % 2
    # One row and column of no label at all around the images, so that every pixel has four neighbours.
    chosen = np.zeros((n_images, height + 2, width + 2, n_classes))
    inner = chosen[:, 1:-1, 1:-1]
    sites = [np.nonzero(colour == c) for c in (0, 1)]
    unary = [theta[:, rows, columns] for rows, columns in sites]

    def draw(logits):
        # The largest of logits + Gumbel noise has the distribution softmax(logits).
        label = np.argmax(logits + rng.gumbel(size=logits.shape), axis=-1)
        return label[..., None] == np.arange(n_classes)

    inner[:] = draw(theta)
    for _ in range(n_sweeps):
        # Pixels of one colour are independent given those of the other.
        for (rows, columns), own in zip(sites, unary, strict=True):
            agreeing = sum(
                chosen[:, rows + down, columns + right]
                for down, right in ((0, 1), (2, 1), (1, 0), (1, 2))  # up, down, left, right
            )
            inner[:, rows, columns] = draw(own + coupling * agreeing)
    return inner.argmax(axis=-1)


def _draw(size, rng):
    """Draw one binary image: a hilly landscape with figures raised or sunk, cut at its median height."""
    side = min(size)
    height = sum(
        strength * standardised(ndimage.gaussian_filter(rng.normal(size=size), side * blur, mode="reflect"))
        for strength, blur in ((1.0, 0.18), (0.12, 0.04))  # hills, and some detail
    )
    for _ in range(rng.randint(1, 3)):
        figure = _FIGURES[rng.randint(len(_FIGURES))](size, rng)
        # Raised in a valley and sunk in a hill, so that it is seen wherever it falls.
        height[figure] -= np.copysign(3.0, height[figure].sum())
    return (height > np.median(height)).astype(np.int64)


def _ellipse(size, rng):
    along, across = turned(size, rng)
    return np.hypot(along / rng.uniform(0.2, 0.4), across / rng.uniform(0.15, 0.3)) < 1


def _ring(size, rng):
    radius = np.hypot(*turned(size, rng))
    return np.abs(radius - rng.uniform(0.25, 0.35)) < rng.uniform(0.08, 0.14)


def _rectangle(size, rng):
    along, across = turned(size, rng)
    return (np.abs(along) < rng.uniform(0.2, 0.45)) & (np.abs(across) < rng.uniform(0.12, 0.25))


def _stripe(size, rng):
    along, across = turned(size, rng)
    bend = rng.uniform(0, 0.12) * np.sin(2 * np.pi * along * rng.uniform(0.5, 1.5))
    return np.abs(across - bend) < rng.uniform(0.07, 0.14)


_FIGURES = (_ellipse, _ring, _rectangle, _stripe)
