"""Scratch arrays whose memory is used again."""

import gc
import threading

import numpy as np
import pytest
from numpy.testing import assert_array_equal

# Scratch memory is internal: no public name shows whose memory an array has.
from skcrf import _numerics
from skcrf._numerics import copy, empty, full, reuse_memory


def address(array):
    return array.__array_interface__["data"][0]


def bytes_in_pool():
    return sum(block.nbytes for block in [*_numerics._Pool.free, *_numerics._Pool.returned])


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch):
    """Let each test start without blocks of others."""
    monkeypatch.setattr(_numerics._Pool, "free", [])


def test_memory_is_reused_after_the_last_view_is_gone():
    with reuse_memory():
        first = full((1000, 3), 1.0)
        view = first[10:20]
        where = address(first)
        del first
        other = full((1000, 3), 2.0)
        assert address(other) != where  # the view still needs it
        assert_array_equal(view, 1.0)
        view = view[2:5].reshape(-1)[::2]
        third = empty(2900)
        assert address(third) != where
        del view
        assert address(empty(2900)) == where


def test_blocks_are_reused_only_for_arrays_of_similar_size():
    with reuse_memory():
        where = address(empty(10_000))
        assert address(empty(4000)) != where
        assert address(empty(6000)) == where


def test_smallest_sufficient_block_is_reused():
    with reuse_memory():
        arrays = [empty(size) for size in (3000, 2500, 4000, 2000)]
        where = {len(array): address(array) for array in arrays}
        del arrays
        assert address(empty(2400)) == where[2500]


def test_growing_sizes_do_not_fill_the_memory():
    with reuse_memory():
        for size in range(10_001, 19_000, 7):
            empty(size)
        assert bytes_in_pool() <= 2 * 8 * 19_000


def test_arrays_are_ordinary():
    for small in (0, 5, (0, 3), (2, 5), ()):
        with reuse_memory():
            assert empty(small).shape == np.empty(small).shape
    with reuse_memory():
        array = full((20, 30, 40), 3.0)
        assert type(array) is np.ndarray
        assert array.dtype == np.float64
        assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
        assert array.ctypes.data % 64 == 0
        assert_array_equal(copy(array.T), array.T)


def test_arrays_are_new_outside_the_context():
    a = full((40, 50), 3.0)
    assert type(a.base) is np.ndarray  # not a block of the pool
    b = copy(a)
    assert_array_equal(a, b)
    assert not np.shares_memory(a, b)


def test_little_memory_is_left_after_the_last_user(monkeypatch):
    monkeypatch.setattr(_numerics, "_BYTES_LEFT", 20_000)
    with reuse_memory():
        arrays = [full(2000, float(i)) for i in range(4)]
        del arrays[2:]
        with reuse_memory():
            pass
        assert bytes_in_pool() == 32_000
    assert bytes_in_pool() == 16_000
    for i, array in enumerate(arrays):
        assert_array_equal(array, float(i))
    del arrays, array  # these blocks stay in the pool
    assert bytes_in_pool() == 16_000


def test_threads_get_separate_arrays():
    wrong = []

    def work(number):
        for _ in range(200):
            mine = full(5000, float(number))
            other = full(5000, -1.0)
            if not (mine == number).all() or np.shares_memory(mine, other):
                wrong.append(number)
            del mine, other  # at most two arrays per thread at a time

    with reuse_memory():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bytes_in_pool() <= 8 * 8 * 5000
    assert not wrong


def test_arrays_may_be_collected_while_the_pool_is_locked():
    with reuse_memory():
        cycle = [full(2000, 0.0)]
        where = address(cycle[0])
        cycle.append(cycle)
        with _numerics._Pool.lock:
            del cycle
            gc.collect()
        assert address(empty(2000)) == where


def test_memory_returns_from_other_threads():
    with reuse_memory():
        held = [full(2000, 0.0)]
        where = address(held[0])
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert address(empty(2000)) == where
