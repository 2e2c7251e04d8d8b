"""Images that are loaded when asked for."""

from collections.abc import Mapping, Sequence, Set
from numbers import Integral

import numpy as np


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
