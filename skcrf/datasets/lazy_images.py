"""Images loaded on access."""

from collections.abc import Mapping, Sequence, Set
from numbers import Integral

import numpy as np


class LazyImages(Sequence):
    """Sequence of images, or of label images, that loads each image on access.

    The estimators accept it instead of a list. They load the images as often as needed and do not store them,
    so that memory does not grow with the number of images. Slices and subsets, such as the folds of a
    cross-validation, are lazy as well.

    Parameters
    ----------
    paths : sequence
        One entry per image: a path, or any other argument of the loader.
    loader : callable
        ``loader(path)`` returns the image as an array, the same on each call. An estimator calls it from a
        background thread, one call at a time, but several estimators, or the threads of a cluster's worker,
        may call it concurrently. Other processes need a loader that can be pickled, such as a function of a
        module.

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
            raise TypeError(f"paths must be a sequence with one entry per image, got {type(paths).__name__}.")
        if not callable(loader):
            raise TypeError(f"loader must be a function of a path, got {type(loader).__name__}.")
        self.paths = list(paths)
        self.loader = loader

    @property
    def shape(self):
        """Tuple (n_images,); with it scikit-learn selects images by arrays of indices."""
        return (len(self.paths),)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, key):
        if isinstance(key, Integral) and not isinstance(key, (bool, np.bool_)):
            return self._load(self.paths[key])
        key, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if rest not in ((), (Ellipsis,)):
            raise IndexError(f"The index must have one axis, that of the images, got {(key, *rest)!r}.")
        if isinstance(key, slice):
            return LazyImages(self.paths[key], self.loader)
        chosen = np.arange(len(self))[np.asarray(key, dtype=None if len(key) else np.int64)]
        return LazyImages([self.paths[i] for i in chosen], self.loader)

    def _load(self, path):
        try:
            return self.loader(path)
        except IndexError as error:  # would silently end a loop over the images
            raise RuntimeError(f"The loader failed on {path!r}: IndexError: {error}") from error

    def __array__(self, dtype=None, copy=None):
        # scikit-learn's searches inspect the type of labels, which must not load them.
        unloaded = np.empty(len(self), dtype=object)
        for i in range(len(self)):
            unloaded[i] = self[i : i + 1]
        return unloaded

    def __repr__(self):
        shown = [str(path) for path in self.paths[:3]]
        dots = [] if len(self) <= 4 else ["..."]
        shown += [*dots, *(str(path) for path in self.paths[3:][-1:])]
        name = getattr(self.loader, "__name__", repr(self.loader))
        return f"LazyImages({len(self)} images by {name}: {', '.join(shown)})"
