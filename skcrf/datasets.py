"""Labelled images: generators, which every example, test and benchmark can use, and lazy loading."""

from collections.abc import Mapping, Sequence, Set
from numbers import Integral, Real

import numpy as np
from scipy import ndimage
from sklearn.utils import check_random_state, check_scalar


class LazyImages(Sequence):
    """A sequence of images, or of label images, that loads an image each time it is asked for it.

    The estimators take it wherever they take a list, go through it as often as they need, and keep nothing:
    memory does not grow with the number of images. A part of it, such as a fold of a cross-validation, is
    lazy too, and costs no loading.

    Parameters
    ----------
    paths : sequence
        One entry an image: a path, or whatever else tells the loader which image it is.
    loader : callable
        ``loader(path)`` returns the image, an array, the same each time. An estimator calls it from one
        thread at a time, but not always the same one: in the background while it fits or predicts. Several
        estimators at work, or the threads of a cluster's worker, call it at once. To be sent to other
        processes it must be a function of a module.

    Examples
    --------
    >>> import numpy as np
    >>> from skcrf.datasets import LazyImages
    >>> images = LazyImages([3, 4, 5], np.eye)  # any function of one argument
    >>> images
    LazyImages(3 images by eye: 3, 4, 5)
    >>> images[1].shape
    (4, 4)
    >>> images[[2, 0]]
    LazyImages(2 images by eye: 5, 3)
    """

    def __init__(self, paths, loader):
        if isinstance(paths, (str, bytes, Set, Mapping)) or not hasattr(paths, "__len__"):
            raise TypeError(f"paths must be a sequence with one entry an image, got {type(paths).__name__}.")
        if not callable(loader):
            raise TypeError(f"loader must be a function of a path, got {type(loader).__name__}.")
        self.paths = list(paths)
        self.loader = loader

    @property
    def shape(self):
        """Tuple: the number of images. Where it is, scikit-learn cuts by arrays of indices."""
        return (len(self.paths),)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, key):
        if isinstance(key, Integral) and not isinstance(key, (bool, np.bool_)):
            return self._load(self.paths[key])
        key, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if rest not in ((), (Ellipsis,)):
            raise IndexError(f"LazyImages have one axis, that of the images; got the index {(key, *rest)!r}.")
        if isinstance(key, slice):
            return LazyImages(self.paths[key], self.loader)
        chosen = np.arange(len(self))[np.asarray(key, dtype=None if len(key) else np.int64)]
        return LazyImages([self.paths[i] for i in chosen], self.loader)

    def _load(self, path):
        try:
            return self.loader(path)
        except IndexError as error:  # which would end a loop over the images as if there were no more
            raise RuntimeError(f"the loader failed on {path!r}: IndexError: {error}") from error

    def __array__(self, dtype=None, copy=None):
        # What looks at labels only to see their kind, as scikit-learn's searches do, must not load them.
        unloaded = np.empty(len(self), dtype=object)
        for i in range(len(self)):
            unloaded[i] = self[i : i + 1]
        return unloaded

    def __repr__(self):
        some = [str(path) for path in self.paths[:3]]
        dots = [] if len(self) <= 4 else ["..."]
        some += [*dots, *(str(path) for path in self.paths[3:][-1:])]
        name = getattr(self.loader, "__name__", repr(self.loader))
        return f"LazyImages({len(self)} images by {name}: {', '.join(some)})"


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
    height, width = _check_size(n_images, shape)
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
    height, width = _check_size(n_images, shape)
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


def make_texture_defects(
    n_images=24, shape=(64, 64), contrast=2.5, defective=0.75, slack=1.7, random_state=None
):
    """Draw textures with small defects, and coarse ellipses around these.

    The texture is noise with a direction and a grain, the same in all images. A defect is a curved scratch or a
    blot, brighter than the texture in one half of the images and darker in the other, and takes a small part
    of its ellipse. The ellipses are what a hasty expert draws: somewhere in here.

    Parameters
    ----------
    n_images : int, default=24
        Number of images.
    shape : tuple of int, default=(64, 64)
        Height and width.
    contrast : float, default=2.5
        By how many standard deviations of the texture a defect differs from it.
    defective : float, default=0.75
        Share of the images that have a defect; those without come last.
    slack : float, default=1.7
        How much larger an ellipse is than one that just holds its defect, at least 1.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    X : ndarray of shape (n_images, height, width)
        Images, of mean 0 and standard deviation 1 but for the defects.
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
    height, width = _check_size(n_images, shape)
    check_scalar(contrast, "contrast", Real)
    check_scalar(defective, "defective", Real, min_val=0, max_val=1)
    check_scalar(slack, "slack", Real, min_val=1)
    rng = check_random_state(random_state)
    X = np.stack([_texture((height, width), rng) for _ in range(n_images)])
    weak, Y = np.zeros((2, n_images, height, width), dtype=np.int64)
    for i in range(round(defective * n_images)):
        along, across = _turned((height, width), rng)
        reach, thickness = rng.uniform(0.12, 0.2), rng.uniform(0.02, 0.04)
        if rng.uniform() < 0.5:  # a scratch
            bend = rng.uniform(-2.0, 2.0) * (along**2 - reach**2 / 3)
            defect, extent = (np.abs(along) < reach) & (np.abs(across - bend) < thickness), 0.07
        else:  # a blot
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
    """Draw noise with grains that are longer in one direction, and some fine noise on top."""
    around = 3 * max(size) // 2 + 8  # all that an image can see when it is turned
    noise = rng.normal(size=(around, around))
    grain = ndimage.gaussian_filter(noise, (0.7, 2.0)) - ndimage.gaussian_filter(noise, (3.0, 5.0))
    top, left = ((around - side) // 2 for side in size)
    grain = ndimage.rotate(grain, 30, reshape=False)[top : top + size[0], left : left + size[1]]
    grain = _standardised(grain)
    return _standardised(grain + 0.3 * rng.normal(size=size))


def _check_size(n_images, shape):
    check_scalar(n_images, "n_images", Integral, min_val=1)
    if np.shape(shape) != (2,):
        raise ValueError(f"shape must be (height, width), got {shape!r}.")
    for side, name in zip(shape, ("shape[0]", "shape[1]"), strict=True):
        check_scalar(side, name, Integral, min_val=1)
    return shape


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
        strength * _standardised(ndimage.gaussian_filter(rng.normal(size=size), side * blur, mode="reflect"))
        for strength, blur in ((1.0, 0.18), (0.12, 0.04))  # hills, and some detail
    )
    for _ in range(rng.randint(1, 3)):
        figure = _FIGURES[rng.randint(len(_FIGURES))](size, rng)
        # Raised in a valley and sunk in a hill, so that it is seen wherever it falls.
        height[figure] -= np.copysign(3.0, height[figure].sum())
    return (height > np.median(height)).astype(np.int64)


def _standardised(field):
    return (field - field.mean()) / (field.std() or 1.0)


def _turned(size, rng):
    """Coordinates (along, across), in units of the shorter side, about a random centre and direction."""
    height, width = size
    down, right = np.mgrid[:height, :width] + 0.5
    down, right = down - rng.uniform(0.15, 0.85) * height, right - rng.uniform(0.15, 0.85) * width
    angle = rng.uniform(0, np.pi)
    along = np.cos(angle) * right + np.sin(angle) * down
    across = np.cos(angle) * down - np.sin(angle) * right
    return along / min(size), across / min(size)


def _ellipse(size, rng):
    along, across = _turned(size, rng)
    return np.hypot(along / rng.uniform(0.2, 0.4), across / rng.uniform(0.15, 0.3)) < 1


def _ring(size, rng):
    radius = np.hypot(*_turned(size, rng))
    return np.abs(radius - rng.uniform(0.25, 0.35)) < rng.uniform(0.08, 0.14)


def _rectangle(size, rng):
    along, across = _turned(size, rng)
    return (np.abs(along) < rng.uniform(0.2, 0.45)) & (np.abs(across) < rng.uniform(0.12, 0.25))


def _stripe(size, rng):
    along, across = _turned(size, rng)
    bend = rng.uniform(0, 0.12) * np.sin(2 * np.pi * along * rng.uniform(0.5, 1.5))
    return np.abs(across - bend) < rng.uniform(0.07, 0.14)


_FIGURES = (_ellipse, _ring, _rectangle, _stripe)
