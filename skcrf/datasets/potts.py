"""Samples of a conditional Potts model."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from skcrf.datasets._drawing import check_size


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
    """Sample label images from a conditional Potts model.

    Given standard normal features x of each pixel, the labels y of an image have probability proportional to
    ``exp(sum_i (coef[y_i] . x_i + intercept[y_i]) + coupling * #{neighbours i, j with y_i = y_j})``, where
    each pixel has four neighbours. Labels are drawn by Gibbs sampling that starts from independent labels.

    Parameters
    ----------
    n_images : int, default=10
        Number of images.
    shape : tuple of int, default=(16, 16)
        Height and width.
    n_classes : int, default=3
        Number of classes.
    coupling : float, default=1.0
        Potential of equal labels at neighbouring pixels; negative values favour different labels.
    n_features : int, default=2
        Number of features per pixel.
    signal : float, default=1.0
        Standard deviation of the true coefficients; with 0 labels do not depend on the features.
    n_sweeps : int, default=200
        Number of Gibbs sweeps per image.
    return_coef : bool, default=False
        Whether to return the parameters of the model as well.
    random_state : int, RandomState instance or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_images, height, width, n_features)
        Features.
    Y : ndarray of shape (n_images, height, width)
        Labels, int64, 0 to n_classes - 1.
    coef : ndarray of shape (n_classes, n_features)
        True coefficients, which sum to 0 over the classes, like those of a penalised fit. Only if
        `return_coef`.
    intercept : ndarray of shape (n_classes,)
        True intercepts, which sum to 0. Only if `return_coef`.
    edge_coef : ndarray of shape (2, n_classes, n_classes)
        True tables of horizontal and vertical edges. Only if `return_coef`.

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
    colour = np.add.outer(np.arange(height), np.arange(width)) % 2  # of a checkerboard
    # One-hot labels, with a border of zeros so that every pixel has four neighbours.
    one_hot = np.zeros((n_images, height + 2, width + 2, n_classes))
    inner = one_hot[:, 1:-1, 1:-1]
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
                one_hot[:, rows + down, columns + right]
                for down, right in ((0, 1), (2, 1), (1, 0), (1, 2))  # up, down, left, right
            )
            inner[:, rows, columns] = draw(own + coupling * agreeing)
    return inner.argmax(axis=-1)
