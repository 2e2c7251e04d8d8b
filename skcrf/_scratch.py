"""Scratch arrays whose memory is used again.

Memory that is new to a process is slow at first use, and every evaluation of an objective needs much of it.
Inside ``with reuse_memory():``, arrays are therefore made from a pool of memory blocks, one block per array.
A block returns to the pool by itself when the array and all views of it are gone.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from contextlib import contextmanager
from threading import Lock

import numpy as np

# Bytes that stay in the pool after its last user: one prediction often follows another.
_BYTES_LEFT = 2**26
# Numbers in an array that is worth the pool; malloc itself reuses smaller pieces of memory.
_SMALLEST = 1024
# Numbers in a cache line.
_LINE = 8


class _Pool:
    """The free blocks of this process, one-dimensional arrays of float64."""

    lock = Lock()  # for `users` and `free`
    users = 0
    free = []  # sorted by size
    # Blocks that came back and are not yet among the free ones. A block may come back at any time, even while
    # this thread holds the lock and the garbage collector runs, so it must not need the lock.
    returned = deque()

    @classmethod
    def sort(cls):
        """Put the blocks that came back among the free ones."""
        while cls.returned:
            insort(cls.free, cls.returned.popleft(), key=len)


class _Lease:
    """The owner of the memory of one array, which NumPy keeps as long as the array or a view of it exists."""

    __slots__ = ("__array_interface__", "block")

    def __init__(self, block, shape):
        self.block = block
        self.__array_interface__ = block.__array_interface__ | {"shape": shape}

    def __del__(self, pool=_Pool):
        if pool.users:
            pool.returned.append(self.block)


@contextmanager
def reuse_memory():
    """Take scratch arrays from the pool until the last concurrent user leaves; then keep little memory."""
    with _Pool.lock:
        _Pool.users += 1
    try:
        yield
    finally:
        with _Pool.lock:
            _Pool.users -= 1
            if _Pool.users == 0:
                _Pool.sort()
                while sum(block.nbytes for block in _Pool.free) > _BYTES_LEFT:
                    _Pool.free.pop()


def _aligned(size):
    """Make an array of float64 that starts where a cache line does, so that vectors are not split."""
    array = np.empty(size + _LINE)
    first = -array.ctypes.data // array.itemsize % _LINE
    return array[first : first + size]


def empty(shape):
    """Make a C-ordered array of float64 with arbitrary values."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    size = math.prod(shape)
    if not _Pool.users or size < _SMALLEST:
        return _aligned(size).reshape(shape)
    block = None
    with _Pool.lock:
        _Pool.sort()
        i = bisect_left(_Pool.free, size, key=len)
        if i < len(_Pool.free) and len(_Pool.free[i]) <= 2 * size:
            block = _Pool.free.pop(i)
        elif i > 0 and 2 * len(_Pool.free[i - 1]) >= size:
            del _Pool.free[i - 1]  # the new block replaces it, so that growing sizes do not fill the memory
    block = _aligned(size) if block is None else block
    return np.asarray(_Lease(block, shape))


def full(shape, value):
    """Make a C-ordered array of float64 filled with one value."""
    array = empty(shape)
    array.fill(value)
    return array


def copy(values):
    """Copy an array of float64 into a C-ordered scratch array."""
    array = empty(values.shape)
    np.copyto(array, values)
    return array
