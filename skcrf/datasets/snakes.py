"""Images of snakes."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state, check_scalar


def make_snakes(n_images=20, length=10, *, random_state=None):
    """Generate images of snakes, whose labels depend on distant pixels.

    A snake is a path of `length` cells on a grid that never crosses itself. Each cell shows the direction to
    the next cell; the last one shows a random direction. The labels number the cells. Only the first and the
    last cells can be labelled from their neighbours; for the others a model has to count along edges whose
    weights depend on the features of both ends. After Nowozin et al., "Decision Tree Fields", ICCV 2011.

    Parameters
    ----------
    n_images : int, default=20
        Number of images.
    length : int, default=10
        Number of cells per snake.
    random_state : int, RandomState instance or None, default=None
        Seed of the random numbers.

    Returns
    -------
    X : list of ndarray of shape (height, width, 5)
        Direction shown by each cell, one-hot: right, down, left, up, or none. Images differ in size, and have
        one empty row or column on each side of the snake.
    Y : list of ndarray of shape (height, width)
        1 to `length` along the snake, 0 elsewhere, int64.

    Examples
    --------
    >>> from skcrf.datasets import make_snakes
    >>> X, Y = make_snakes(n_images=2, length=4, random_state=0)
    >>> Y[0]
    array([[0, 0, 0, 0],
           [0, 0, 4, 0],
           [0, 0, 3, 0],
           [0, 1, 2, 0],
           [0, 0, 0, 0]])
    """
    check_scalar(n_images, "n_images", Integral, min_val=1)
    check_scalar(length, "length", Integral, min_val=1)
    rng = check_random_state(random_state)
    X, Y = [], []
    for _ in range(n_images):
        steps = _walk(length, rng)
        cells = np.concatenate([[[0, 0]], np.cumsum(_STEPS[steps[:-1]], axis=0)])
        cells -= cells.min(axis=0) - 1
        size = cells.max(axis=0) + 2
        shown, labels = np.full(size, len(_STEPS)), np.zeros(size, dtype=np.int64)
        shown[tuple(cells.T)], labels[tuple(cells.T)] = steps, np.arange(1, length + 1)
        X.append((shown[..., None] == np.arange(len(_STEPS) + 1)).astype(np.float64))
        Y.append(labels)
    return X, Y


# Right, down, left, up, as (down, right).
_STEPS = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])


def _walk(length, rng):
    """Draw the steps of a self-avoiding walk; the last step is shown but not taken."""
    while True:
        steps = rng.randint(len(_STEPS), size=length)
        # Replacing steps back by steps ahead leaves few walks that cross themselves.
        for i in range(1, length - 1):
            steps[i] = steps[i - 1] if steps[i] == (steps[i - 1] + 2) % len(_STEPS) else steps[i]
        cells = np.cumsum(_STEPS[steps[:-1]], axis=0)
        if len({(0, 0), *map(tuple, cells.tolist())}) == length:
            return steps
