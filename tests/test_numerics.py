"""Vectorised exponentials and logarithms against NumPy, and arrays and compilation of kernels."""

import numpy as np
import pytest
from numba import config
from numpy.testing import assert_array_equal

from skcrf._numerics import kernel, kernel_array, vector_exp, vector_kernel, vector_log


@vector_kernel
def _exponentials(values):
    for i in range(len(values)):
        values[i] = vector_exp(values[i])


@vector_kernel
def _logarithms(values):
    for i in range(len(values)):
        values[i] = vector_log(values[i])


def in_a_loop(kernel):
    def run(values):
        found = values.copy()
        kernel(found)
        return found

    return run


def one_by_one(function):
    plain = getattr(function, "py_func", function)  # without compilation the function itself
    return lambda values: np.array([plain(value) for value in values])


EXP = {"vectors": in_a_loop(_exponentials), "python": one_by_one(vector_exp)}
LOG = {"vectors": in_a_loop(_logarithms), "python": one_by_one(vector_log)}


def each(registry):
    return pytest.mark.parametrize("function", list(registry.values()), ids=list(registry))


def around(values):
    """Return numbers and their neighbours."""
    values = np.asarray(values, dtype=np.float64)
    return np.concatenate([np.nextafter(values, -np.inf), values, np.nextafter(values, np.inf)])


def assert_within_ulps(found, expected, *, ulps):
    error = np.abs(found - expected) / np.spacing(np.abs(expected))
    assert error.max() <= ulps, f"{error.max()} at {error.argmax()}"


@each(EXP)
def test_exponentials_agree_with_numpy(function, seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate(
        [
            rng.uniform(-699, 699, size=3000),
            rng.normal(size=1000),
            rng.choice([-1, 1], size=200) * 10.0 ** rng.uniform(-300, 0, size=200),
            around(np.log(2) / 2 * np.arange(-2000, 2000, 13)),  # where the power of two changes
            around([0.0, -1.0, 1.0, 600.0, -600.0]),
            [-0.0, np.nextafter(-700.0, 0), 700.0],
        ]
    )
    assert_within_ulps(function(x), np.exp(x), ulps=4)


@each(EXP)
def test_exponentials_of_small_values_are_zero(function):
    # as many values as fill vector registers
    x = np.tile([-np.inf, -700.0, np.nextafter(-700.0, -np.inf), -1e300, -745.2, -701.0, -1e4, -1e8], 4)
    assert_array_equal(function(x), 0.0)
    assert_array_equal(function(np.tile([0.0, -0.0], 16)), 1.0)
    assert np.isnan(function(np.full(32, np.nan))).all()


@each(EXP)
def test_exponential_does_not_depend_on_its_position(function, seed):
    """Loops process most values in vectors and the last ones one by one."""
    x = np.random.default_rng(seed).uniform(-50, 0, size=37)
    whole = function(x)
    for first in range(5):
        for last in range(20, 37):
            assert_array_equal(function(x[first:last]), whole[first:last])


@each(LOG)
def test_logarithms_agree_with_numpy(function, seed):
    rng = np.random.default_rng(seed)
    info = np.finfo(np.float64)
    x = np.concatenate(
        [
            np.exp(rng.uniform(-700, 700, size=3000)),
            rng.uniform(0, 2, size=2000),
            1 + rng.choice([-1, 1], size=200) * 10.0 ** rng.uniform(-15, -1, size=200),
            around(2.0 ** np.arange(-1020, 1020, 7)),
            around(np.sqrt(2) * 2.0 ** np.arange(-1000, 1000, 7)),
            [info.tiny, np.nextafter(info.tiny, 1), info.max],
        ]
    )
    x = x[x != 1]
    assert_within_ulps(function(x), np.log(x), ulps=4)
    assert_array_equal(function(np.ones(16)), 0.0)


def test_kernel_array_copies_only_if_needed(tmp_path):
    values = np.arange(6.0).reshape(2, 3)
    assert kernel_array(values) is values
    frozen = values.copy()
    frozen.flags.writeable = False
    mapped = np.memmap(tmp_path / "numbers", dtype=np.float64, mode="w+", shape=(2, 3))
    mapped[:] = values
    for given in (
        frozen,
        mapped,
        values.astype(np.float32),
        values.astype(np.int64),
        np.asfortranarray(values),
        np.repeat(values, 2, axis=1)[:, ::2],
        np.broadcast_to(values[:1], (2, 3)) + 3 * np.arange(2)[:, None],
        values.tolist(),
        np.ma.array(values),
    ):
        found = kernel_array(given)
        assert_array_equal(found, values)
        assert type(found) is np.ndarray
        assert found.dtype == np.float64
        assert found.flags.c_contiguous
        assert found.flags.writeable


def test_kernels_without_a_file_compile_with_a_warning():
    space = {}
    exec(compile("def double(x):\n    return 2 * x", "<nowhere>", "exec"), space)
    if config.DISABLE_JIT:
        assert kernel(space["double"])(3) == 6
        return
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR"):
        double = kernel(space["double"])
    assert double(3) == 6
