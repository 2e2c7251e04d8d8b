"""Kernels: their compilation and scratch memory; small kernels and products that several packages use."""

import math
import operator
import warnings
import weakref
from bisect import bisect_left, insort
from collections import deque
from contextlib import contextmanager
from threading import Lock

import numpy as np
from numba import config, njit

from skcrf._kernel_cache import KernelCache
from skcrf._kernel_dispatcher import KernelDispatcher

# Vectorised loops need fused multiply-add and NumPy's division: a check for zero that could raise prevents
# vectorisation. Infinities and nan keep their meaning.
_VECTOR = {"fastmath": {"contract", "arcp", "nsz"}, "error_model": "numpy"}
# Sums may be reordered by the compiler, which chooses the same order in every run.
_REDUCTION = {"fastmath": {"contract", "arcp", "nsz", "reassoc"}, "error_model": "numpy"}

# Bytes of scratch memory that stay in the pool after its last user: one prediction often follows another.
_BYTES_LEFT = 2**26
# Numbers in an array that is worth the pool; malloc itself reuses smaller pieces of memory.
_SMALLEST = 1024
# Numbers in a cache line.
_LINE = 8
# Rows of narrow features that are multiplied at a time: few enough for the cache, and for sums in float32. A
# constant, so that results do not depend on n_jobs.
_FEATURE_ROWS = 2048


# Compilation


def kernel(function, **options):
    """Compile a module-level function of arrays and NamedTuples of arrays at its first call.

    The machine code is cached on disk, for other processes. Options are those of `numba.njit`. Kernels
    that only other kernels call have no machine code of their own, see `KernelDispatcher`.
    """
    if config.DISABLE_JIT:
        return njit(function)
    dispatcher = KernelDispatcher(function, {}, {"nopython": True, "nogil": True, **options})
    try:
        dispatcher._cache = KernelCache(function)
    except RuntimeError:  # neither the folder of the package nor that of the user is writable
        warnings.warn(
            "Compiled kernels cannot be cached, so every process compiles them again. Set the environment "
            "variable NUMBA_CACHE_DIR to a writable folder.",
            stacklevel=1,  # the same place for all kernels, so that the warning is shown once
        )
    return dispatcher


def inlined_kernel(function):
    """Compile a function into the kernels that call it, because calls with many arrays are slow."""
    return kernel(function, inline="always")


def vector_kernel(function):
    """Compile a function whose innermost loops run over contiguous numbers, to be vectorised.

    Put such loops into small functions of their own: the compiled code then checks at each call whether its
    arrays overlap, so that inputs and outputs may be parts of one array.
    """
    return kernel(function, **_VECTOR)


def reduction_kernel(function):
    """Compile a function like `vector_kernel` does, if its innermost loops are sums."""
    return kernel(function, **_REDUCTION)


def kernel_array(values):
    """Convert to the one kind of array that kernels are compiled for: float64, C-ordered and writable.

    Every other kind would need a compilation of its own. An array of this kind is returned as it is.
    """
    return np.require(values, np.float64, ["C", "W", "E"])


# Scratch memory


class _Pool:
    """The free memory blocks of this process, one-dimensional arrays of float64.

    Memory that is new to a process is slow at first use, and every evaluation of an objective needs much of
    it. Inside ``with reuse_memory():``, scratch arrays are therefore made from these blocks, one block per
    array. A block returns to the pool by itself when the array and all views of it are gone.
    """

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

    def __init__(self, block, shape, dtype):
        self.block = block
        self.__array_interface__ = block.__array_interface__ | {"shape": shape, "typestr": dtype.str}

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


def empty(shape, dtype=np.float64):
    """Make a C-ordered array with arbitrary values."""
    shape, dtype = shape if isinstance(shape, tuple) else (shape,), np.dtype(dtype)
    n_values = math.prod(shape)
    size = -(-n_values * dtype.itemsize // 8)  # of a block of float64
    if not _Pool.users or size < _SMALLEST:
        return _aligned(size).view(dtype)[:n_values].reshape(shape)
    block = None
    with _Pool.lock:
        _Pool.sort()
        i = bisect_left(_Pool.free, size, key=len)
        if i < len(_Pool.free) and len(_Pool.free[i]) <= 2 * size:
            block = _Pool.free.pop(i)
        elif i > 0 and 2 * len(_Pool.free[i - 1]) >= size:
            del _Pool.free[i - 1]  # the new block replaces it, so that growing sizes do not fill the memory
    block = _aligned(size) if block is None else block
    return np.asarray(_Lease(block, shape, dtype))


def full(shape, value, dtype=np.float64):
    """Make a C-ordered array filled with one value."""
    array = empty(shape, dtype)
    array.fill(value)
    return array


def copy(values):
    """Copy an array into a C-ordered scratch array."""
    array = empty(values.shape, values.dtype)
    np.copyto(array, values)
    return array


class GraphCache:
    """Values computed from the arrays of a graph, which do not change.

    A fit infers on the same graphs again and again, so that what depends on the structure alone is computed
    once. A value is kept as long as the array `schedule` of its graph, which it must not hold, or until that
    of another graph with the same schedule replaces it.
    """

    def __init__(self):
        self._entries = {}

    def get(self, graph):
        """Return the value kept for a graph of these very arrays; None for none."""
        entry = self._entries.get(id(graph.schedule))
        if entry is None or entry[0]() is not graph.schedule:
            return None
        others, value = entry[1:]
        return value if all(map(operator.is_, _without_schedule(graph), others)) else None

    def put(self, graph, value):
        """Keep a value; returns it."""
        key = id(graph.schedule)
        owner = weakref.ref(graph.schedule, lambda _: self._entries.pop(key, None))
        self._entries[key] = owner, _without_schedule(graph), value
        return value


def _without_schedule(graph):
    """List the other arrays of a graph."""
    return [array for array in graph if array is not graph.schedule]


# Kernels


@kernel
def log_normalise(values):
    """Subtract the log-sum-exp of the values, in place; at least one value must be finite."""
    top = values.max()
    total = 0.0
    for x in range(len(values)):
        values[x] -= top  # before anything else, so that large values lose no digits
        total += np.exp(values[x])
    log_total = np.log(total)
    for x in range(len(values)):
        values[x] -= log_total


@kernel
def softmax(values):
    """Replace values by their softmax, or zeros if all are -inf, and return their log-sum-exp."""
    top = values.max()
    if top == -np.inf:
        values[:] = 0.0
        return top
    total = 0.0
    for x in range(len(values)):
        values[x] = np.exp(values[x] - top)
        total += values[x]
    values /= total
    return top + np.log(total)


@kernel
def max_abs_by_part(values, ptr):
    """Find the largest absolute value in the rows ``ptr[p]`` to ``ptr[p + 1]`` of each part."""
    largest = np.zeros(len(ptr) - 1)
    for part in range(len(ptr) - 1):
        for row in range(ptr[part], ptr[part + 1]):
            for x in range(values.shape[1]):
                largest[part] = max(largest[part], abs(values[row, x]))
    return largest


# Adding this number rounds a small number to an integer, which is then in the lowest bits of the sum.
_ROUND = 1.5 * 2.0**52
_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_LN_2_HIGH, _LN_2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # their sum is ln 2
_MANTISSA, _ONE_BITS, _TWO_52_BITS = 2**52 - 1, 1023 << 52, 1075 << 52


@inlined_kernel
def vector_exp(x):
    """Compute exp(x) for x up to 700 by arithmetic that vectorises; 0 below -700."""
    rounded = max(x, -700.0) * _LOG2_E + _ROUND
    n = rounded - _ROUND
    r = (max(x, -700.0) - n * _LN_2_HIGH) - n * _LN_2_LOW  # |r| <= ln 2 / 2
    p = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
    p = 1.0 / 3628800.0 + r * (1.0 / 39916800.0 + r * p)
    p = 1.0 / 40320.0 + r * (1.0 / 362880.0 + r * p)
    p = 1.0 / 720.0 + r * (1.0 / 5040.0 + r * p)
    p = 1.0 / 24.0 + r * (1.0 / 120.0 + r * p)
    p = 0.5 + r * (1.0 / 6.0 + r * p)
    p = 1.0 + r * (1.0 + r * p)
    power_of_two = np.int64((np.float64(rounded).view(np.int64) + 1023) << 52).view(np.float64)
    return 0.0 if x <= -700.0 else p * power_of_two  # a nan stays nan


@inlined_kernel
def vector_log(x):
    """Compute log(x) for positive, normal x by arithmetic that vectorises."""
    bits = np.float64(x).view(np.int64)
    # x = 2^e m with m in [1, 2); where m is above sqrt 2, use e + 1 and m / 2.
    m = np.int64((bits & _MANTISSA) | _ONE_BITS).view(np.float64)
    e = np.int64((bits >> 52) | _TWO_52_BITS).view(np.float64) - (2.0**52 + 1023.0)
    large = m > 1.4142135623730951
    m = 0.5 * m if large else m
    e = e + 1.0 if large else e
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    p = 1.0 / 19.0 + s2 * (1.0 / 21.0)
    p = 1.0 / 15.0 + s2 * (1.0 / 17.0 + s2 * p)
    p = 1.0 / 11.0 + s2 * (1.0 / 13.0 + s2 * p)
    p = 1.0 / 7.0 + s2 * (1.0 / 9.0 + s2 * p)
    p = 1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 * p)
    return e * _LN_2 + 2.0 * (s + s * s2 * p)


# Products of features with weights, and with derivatives. Features of a narrow type, such as float32, are not
# copied as a whole to float64: that would need much memory, and half of the time of an evaluation with many
# features.


def multiply(features, coef, out):
    """Compute ``out = features @ coef.T`` in float64.

    The sums of narrow features are in float64 too, since line searches would see errors of float32.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        Features of any type.
    coef : ndarray of shape (n_outputs, n_features)
        Weights.
    out : ndarray of shape (n_rows, n_outputs)
        Result.
    """
    if features.dtype == np.float64:
        _multiply_rows(features, np.ascontiguousarray(coef.T), out)
    elif features.dtype == np.float32 and len(coef) <= features.shape[1]:
        _multiply_single(np.ascontiguousarray(features), np.ascontiguousarray(coef), out)
    else:
        weights = np.ascontiguousarray(coef.T)
        for rows, block in blocks(features, np.float64):
            _multiply_rows(block, weights, out[rows])


def _multiply_rows(a, b, out):
    """Compute ``out = a @ b`` so that a row does not depend on the number of rows."""
    if len(a) == 1:  # BLAS multiplies a vector in another order
        out[:] = (np.repeat(a, 2, axis=0) @ b)[:1]
    else:
        np.matmul(a, b, out=out)


def transposed_product(a, b):
    """Compute ``a.T @ b``, such as the derivative of weights from features and the derivative of `multiply`.

    Where one of both is narrow, blocks of rows are multiplied in float32, and added in float64.
    """
    if a.dtype == b.dtype == np.float64:
        return a.T @ b
    product = np.zeros((a.shape[1], b.shape[1]))
    for (_, rows_of_a), (_, rows_of_b) in zip(blocks(a, np.float32), blocks(b, np.float32), strict=True):
        product += rows_of_a.T @ rows_of_b
    return product


def blocks(features, dtype):
    """Yield slices of rows, and the features there converted to a type."""
    converted = np.empty((min(_FEATURE_ROWS, len(features)), features.shape[1]), dtype)
    for start in range(0, len(features), _FEATURE_ROWS):
        rows = slice(start, min(start + _FEATURE_ROWS, len(features)))
        block = features[rows]
        if features.dtype != dtype:
            np.copyto(converted[: len(block)], block, casting="same_kind")
            block = converted[: len(block)]
        yield rows, block


@kernel
def _multiply_single(features, coef, out):
    for i in range(len(features)):
        for x in range(len(coef)):
            out[i, x] = _dot(features[i], coef[x])


@reduction_kernel
def _dot(row, coef):
    total = 0.0
    for f in range(len(coef)):
        total += row[f] * coef[f]  # in float64, as coef is
    return total
