"""Arrays that are used again."""

import threading

import numpy as np
from numpy.testing import assert_array_equal

from skcrf import _scratch
from skcrf._scratch import copy, empty, full, kept


def address(array):
    return array.__array_interface__["data"][0]


def test_what_nobody_refers_to_is_used_again():
    with kept():
        first = full((1000, 3), 1.0)
        view = first[10:20]
        where = address(first)
        del first
        other = full((1000, 3), 2.0)
        assert address(other) != where  # the view still refers to it
        assert_array_equal(view, 1.0)
        del view
        assert address(empty(2900)) == where
        del other


def test_only_what_is_of_about_the_size():
    with kept():
        large = empty(10_000)
        where = address(large)
        del large
        assert address(empty(1000)) != where


def test_sizes_that_grow_do_not_fill_the_scratch():
    with kept():
        before = len(_scratch._Kept.arrays)
        for n in range(10_001, 19_000, 7):
            empty(n)
        assert len(_scratch._Kept.arrays) <= before + 2


def test_without_anyone_who_wants_it_arrays_are_new():
    a = full((4, 5), 3.0)
    assert a.base is None
    b = copy(a)
    assert_array_equal(a, b)
    assert not np.shares_memory(a, b)


def test_little_is_left_in_the_end(monkeypatch):
    monkeypatch.setattr(_scratch, "_LEFT", 10_000)
    with kept():
        arrays = [empty(2000) for _ in range(4)]
        assert sum(array.nbytes for array in _scratch._Kept.arrays) >= 64_000
        with kept():
            pass
        assert sum(array.nbytes for array in _scratch._Kept.arrays) >= 64_000
    assert sum(array.nbytes for array in _scratch._Kept.arrays) <= 10_000
    assert all(len(array) == 2000 for array in arrays)


def test_threads_get_arrays_of_their_own():
    wrong = []

    def work(number):
        for _ in range(200):
            mine = full(5000, float(number))
            other = full(5000, -1.0)
            if not (mine == number).all() or np.shares_memory(mine, other):
                wrong.append(number)

    with kept():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(_scratch._Kept.arrays) < 50
    assert not wrong
