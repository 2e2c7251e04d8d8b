"""Arrays that are used again: memory that is new to the process is slow, and an evaluation needs much of it.

While someone wants memory to be kept, arrays that nobody refers to any longer are handed out anew. An array
is in use as long as it, or a view of it, is referred to, so that nobody has to give anything back.
"""

import sys
from contextlib import contextmanager
from threading import Lock

import numpy as np

# Bytes that stay when nobody wants memory to be kept: who predicts one image may soon predict another.
_LEFT = 2**26


class _Kept:
    """All arrays that were handed out, and how many want them to be kept now."""

    lock, users, arrays = Lock(), 0, []


@contextmanager
def kept():
    """Keep memory for later, until the last of those who want it has left; a little stays."""
    with _Kept.lock:
        _Kept.users += 1
    try:
        yield
    finally:
        with _Kept.lock:
            _Kept.users -= 1
            while _Kept.users == 0 and sum(array.nbytes for array in _Kept.arrays) > _LEFT:
                _Kept.arrays.pop()


def _first(arrays, shortest, longest):
    """Find the place of an array of such a length that nobody outside the list refers to; -1 if none."""
    for i, array in enumerate(arrays):
        if shortest <= len(array) <= longest and sys.getrefcount(array) <= _UNUSED:
            return i
    return -1


def _references(arrays):
    """Count the references to an array that is in a list only, as `_first` sees them."""
    for _, array in enumerate(arrays):
        return sys.getrefcount(array)


_UNUSED = _references([np.empty(0)])


def empty(shape):
    """Make an array without saying what is in it.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.

    Returns
    -------
    array : ndarray of float64
        C-ordered; perhaps with what was left in it.
    """
    size = int(np.prod(shape))
    if not _Kept.users:
        return np.empty(shape)
    with _Kept.lock:
        place = _first(_Kept.arrays, size, 2 * size)
        if place < 0:
            # In the place of one that is a little too short, so that sizes that grow do not fill the memory.
            place = _first(_Kept.arrays, (size + 1) // 2, size - 1)
            if place < 0:
                place = len(_Kept.arrays)
                _Kept.arrays.append(None)
            _Kept.arrays[place] = np.empty(size)
        return _Kept.arrays[place][:size].reshape(shape)


def full(shape, value):
    """Make an array of one value.

    Parameters
    ----------
    shape : int or tuple of int
        Its shape.
    value : float
        What to fill it with.

    Returns
    -------
    array : ndarray of float64
        C-ordered.
    """
    array = empty(shape)
    array.fill(value)
    return array


def copy(values):
    """Copy an array.

    Parameters
    ----------
    values : ndarray of float64
        What to copy.

    Returns
    -------
    array : ndarray of float64
        The copy, C-ordered.
    """
    array = empty(values.shape)
    np.copyto(array, values)
    return array
