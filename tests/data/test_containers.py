"""Containers: tables, sequences of examples, sequences that load on access, and containers of results."""

from collections import deque
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lazy_sequences import ArrayOnDisk, LazyList
from messages import says
from numpy.testing import assert_array_equal
from scipy import sparse

from skcrf.data import Source, any_lazy, is_lazy, is_table, like_container, user_index
from skcrf.datasets import LazyImages
from skcrf.graph import ExampleError

IMAGES = np.zeros((3, 4, 5))
ROWS = np.zeros((3, 2))


def objects(examples):
    array = np.empty(len(examples), dtype=object)
    array[:] = examples
    return array


#: Containers, and whether they are tables and whether they are lazy.
CONTAINERS = {
    "array of images": (IMAGES, False, False),
    "list of images": (list(IMAGES), False, False),
    "tuple of images": (tuple(IMAGES), False, False),
    "object array of images": (objects([*IMAGES]), False, False),
    "series of images": (pd.Series([*IMAGES]), False, False),
    "empty list": ([], False, False),
    "lazy list": (LazyList(IMAGES), False, True),
    "lazy images": (LazyImages(range(3), lambda i: IMAGES[i]), False, True),
    "images on disk": (ArrayOnDisk(IMAGES), False, True),
    "deque": (deque(IMAGES), False, True),
    "array of rows": (ROWS, True, False),
    "list of rows": (ROWS.tolist(), True, False),
    "data frame": (pd.DataFrame(ROWS), True, False),
    "sparse rows": (sparse.csr_array(ROWS), True, False),
    "rows on disk": (ArrayOnDisk(ROWS), True, False),
    "vector": (np.zeros(3), True, False),
    "number": (3, True, False),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_tables_and_lazy_sequences_are_distinguished(case):
    X, table, lazy = CONTAINERS[case]
    assert is_table(X) == table
    assert is_lazy(X) == lazy
    assert any_lazy(X, None) == lazy


def test_lazy_labels_of_a_table_are_not_lazy():
    assert any_lazy([*IMAGES], LazyList([0, 1, 1]))
    assert not any_lazy(ROWS, deque([0, 1, 1]))


@pytest.mark.parametrize(
    "X, message",
    [
        ((x for x in IMAGES), says("X must be a sequence of images", "list", "got generator")),
        (dict(enumerate(IMAGES)), says("X must be a sequence of images", "list", "got dict")),
        ({1, 2}, says("X must be a sequence of images", "list", "got set")),
        (["a.png", Path("b.png")], says("X must be a sequence of images", r"X\[0\]", "a.png", "LazyImages")),
    ],
    ids=["generator", "dict", "set", "paths"],
)
def test_iterators_mappings_sets_and_paths_are_refused(X, message):
    with pytest.raises(TypeError, match=message):
        is_table(X)


def test_results_have_the_container_of_the_examples():
    results = [np.full((4, 5), i) for i in range(3)]
    assert isinstance(like_container([*IMAGES], results), list)
    assert isinstance(like_container(LazyList(IMAGES), results), list)
    stacked = like_container(IMAGES, results)
    assert stacked.shape == (3, 4, 5) and stacked.dtype != object
    found = like_container(objects([*IMAGES]), results)
    assert found.dtype == object and found.shape == (3,)
    dense = like_container(IMAGES, [sparse.csr_array(result) for result in results])
    assert_array_equal(dense, stacked)


def test_parts_of_a_source_keep_the_indices_of_the_user():
    for sequence in (IMAGES, [*IMAGES], LazyList(IMAGES), ArrayOnDisk(IMAGES), pd.Series([*IMAGES])):
        source = Source(sequence, "X")
        part = Source(Source(source, "X", [2, 0]), "X", [1])
        assert len(source) == 3 and len(part) == 1
        assert part.name_of(0) == "X[0]" and Source(source, "X", [2, 0]).name_of(0) == "X[2]"
        assert_array_equal(part[0], IMAGES[0])


def test_source_names_the_example_that_cannot_be_loaded():
    def load(path):
        raise OSError("the disk is gone")

    with pytest.raises(RuntimeError, match=r"y\[1\] could not be loaded: OSError: the disk is gone"):
        Source(LazyImages(range(3), load), "y", [2, 1])[1]


def test_example_errors_are_raised_again_with_the_index_of_the_user():
    with pytest.raises(ExampleError, match="example 7 is bad"), user_index(np.array([5, 7])):
        raise ExampleError("{example} is bad", 1)
