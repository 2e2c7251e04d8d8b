"""Labels in memory and labels that are loaded on access: validation, classes and class indices."""

from collections import deque

import numpy as np
import pandas as pd
import pytest
from lazy_sequences import LazyList
from messages import says
from numpy.testing import assert_array_equal

from skcrf.data.labels import Labels, check_shape, encode_labels, read_labels, sorted_classes

SHAPES = [(2, 3), (1, 2), (3, 1)]
NAMES = np.array(["sky", "grass", "road"])
STATES = [np.arange(np.prod(shape)).reshape(shape) % 3 for shape in SHAPES]
HIDDEN = [np.arange(np.prod(shape)).reshape(shape) % 4 == 1 for shape in SHAPES]


def each(function):
    return [function(y, hidden) for y, hidden in zip(STATES, HIDDEN, strict=True)]


#: Labels of three examples in all forms, and the missing label that goes with them.
FORMS = {
    "integers": (STATES, None),
    "negative integers": ([y - 1 for y in STATES], None),
    "booleans": ([y == 0 for y in STATES], None),
    "whole floats": ([y.astype(float) for y in STATES], None),
    "strings": ([NAMES[y] for y in STATES], None),
    "objects": ([NAMES[y].astype(object) for y in STATES], None),
    "lists": ([NAMES[y].tolist() for y in STATES], None),
    "masked": (each(np.ma.masked_array), None),
    "masked strings": (each(lambda y, hidden: np.ma.masked_array(NAMES[y], hidden)), None),
    "missing integer": (each(lambda y, hidden: np.where(hidden, -1, y)), -1),
    "missing nan": (each(lambda y, hidden: np.where(hidden, np.nan, y)), np.nan),
    "missing string": (each(lambda y, hidden: np.where(hidden, "?", NAMES[y])), "?"),
    "missing NA": (each(lambda y, hidden: np.where(hidden, pd.NA, y.astype(object))), pd.NA),
}

every_form = pytest.mark.parametrize("form", FORMS)


def make(container, Y, name="y", **options):
    return Labels(container(Y), SHAPES, name=name, keep=container is list, **options)


def labels_of(form, container=list):
    Y, missing_label = FORMS[form]
    return make(container, Y, missing_label=missing_label)


def is_hidden(form):
    return "masked" in form or "missing" in form


@every_form
def test_classes_are_sorted_and_leave_out_hidden_labels(form):
    classes = labels_of(form).classes()
    strings = {"strings", "objects", "lists", "masked strings", "missing string"}
    expected = {"negative integers": [-1, 0, 1], "booleans": [False, True]}
    default = ["grass", "road", "sky"] if form in strings else [0, 1, 2]
    assert classes.tolist() == expected.get(form, default)


@every_form
def test_class_indices_are_minus_one_where_hidden(form):
    labels = labels_of(form)
    classes = labels.classes()
    for y, hidden, index in zip(STATES, HIDDEN, labels.encode(classes), strict=True):
        assert index.shape == y.shape and index.dtype == np.int64
        assert_array_equal(index < 0, hidden if is_hidden(form) else False)
        value = {"negative integers": y - 1, "booleans": y == 0}.get(form, y)
        value = NAMES[y] if classes.dtype.kind == "U" else value
        assert_array_equal(classes[index][index >= 0], value[index >= 0])


@every_form
def test_counts_are_those_of_the_class_indices(form):
    labels = labels_of(form)
    classes = labels.classes()
    counts = labels.counts(classes)
    assert counts.shape == (3, len(classes))
    for y, count in zip(labels.encode(classes), counts, strict=True):
        assert_array_equal(count, np.bincount(y[y >= 0], minlength=len(classes)))


@every_form
def test_lazy_labels_agree_with_labels_in_memory(form):
    memory, lazy = labels_of(form), labels_of(form, LazyList)
    assert lazy.is_lazy and not memory.is_lazy
    classes = memory.classes()
    assert_array_equal(lazy.classes(), classes)
    assert lazy.classes().dtype == classes.dtype
    assert_array_equal(lazy.counts(classes), memory.counts(classes))
    indices, expected = lazy.encode(classes), memory.encode(classes)
    assert len(indices) == len(expected) == 3
    for i, shape in enumerate(SHAPES):
        found = indices.read(i, shape, f"X[{i}]")
        assert_array_equal(found, expected[i])
        assert found.dtype == expected[i].dtype
    some = indices.select([2, 0])
    assert_array_equal(some.read(0, SHAPES[2], "X[2]"), expected[2])
    assert_array_equal(some.select([1]).read(0, SHAPES[0], "X[0]"), expected[0])


def test_lazy_labels_are_loaded_once_and_again_when_encoded():
    Y = LazyList(STATES)
    labels = Labels(Y, SHAPES, keep=False)
    indices = labels.encode(labels.classes())
    assert Y.loaded.tolist() == [1, 1, 1]
    indices.read(1, SHAPES[1], "X[1]")
    assert Y.loaded.tolist() == [1, 2, 1]


BAD = {
    "shape": ([*STATES[:2], STATES[2].T], ValueError, says(r"y\[2\]", r"\(3, 1\)", r"X\[2\]", r"\(1, 3\)")),
    "ragged": ([STATES[0], [[0, 1], [0]], STATES[2]], ValueError, says(r"y\[1\]", "array of labels")),
    "nan": ([y * np.nan if i == 1 else y for i, y in enumerate(STATES)], ValueError, r"y\[1\] contains NaN"),
    "None": (
        [STATES[0], np.array([[None, 1]]), STATES[2]],
        TypeError,
        says(r"y\[1\]", "label None", "all numbers or all strings", "masked array", "missing_label"),
    ),
    "both in one": (
        [STATES[0], [["a", 1]], STATES[2]],
        TypeError,
        says(r"y\[1\]", "all numbers or all strings", "both"),
    ),
    "both in two": (
        [STATES[0], [["a", "b"]], STATES[2]],
        TypeError,
        says("y ", "numbers", "strings", "both"),
    ),
    "continuous": ([y + 0.5 for y in STATES], ValueError, says("y ", "0.5", "Unknown label type")),
    "all hidden": (
        [np.ma.masked_all(shape, int) for shape in SHAPES],
        ValueError,
        says("y ", "at least one label", "hidden"),
    ),
    "too few": (STATES[:2], ValueError, says("y ", "2", "X ", "3")),
}


@pytest.mark.parametrize("container", [list, LazyList])
@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_example_and_the_label(case, container):
    Y, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make(container, Y).classes()


@pytest.mark.parametrize("case", BAD)
def test_errors_for_lazy_labels_are_those_for_labels_in_memory(case):
    Y, error, _ = BAD[case]
    messages = []
    for container in (list, LazyList):
        with pytest.raises(error) as info:
            make(container, Y).classes()
        messages.append(str(info.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("container", [list, LazyList])
def test_error_for_an_unseen_label_names_label_and_classes(container):
    labels = make(container, STATES, "Y")
    with pytest.raises(ValueError, match=says(r"Y\[0\]", r"\[0, 5\]", "got 1")):
        labels.counts(np.array([0, 5]))
    with pytest.raises(ValueError, match=says(r"Y\[0\]", r"\['a', 'b'\]", "got 0")):
        encode_labels(STATES[0], np.zeros(SHAPES[0], bool), np.array(["a", "b"]), "Y[0]")


def test_labels_must_be_a_sequence():
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        Labels(None, SHAPES)
    for wrong, name in ((3, "int"), ("abc", "str")):
        with pytest.raises(TypeError, match=says("Y must be a sequence of arrays of labels", f"got {name}")):
            Labels(wrong, SHAPES)


def test_missing_label_must_be_one_value():
    with pytest.raises(TypeError, match=r"missing_label must be one value, got \[0, 1\]"):
        read_labels(STATES[0], [0, 1], "y[0]")


def test_labels_of_a_table_have_one_entry_per_row():
    rows = [()] * 6
    y = np.array([0, 1, 1, 2, 0, 1])
    (expected,) = Labels(y, rows).encode(np.arange(3))
    assert_array_equal(expected, y)
    for same in (y.tolist(), deque(y.tolist()), pd.Series(y)):
        labels = Labels(same, rows, keep=False)  # read at once whatever `keep` is
        assert not labels.is_lazy
        assert_array_equal(labels.encode(labels.classes())[0], y)
    (hidden,) = Labels(np.ma.masked_array(y, y == 1), rows).encode(np.arange(3))
    assert_array_equal(hidden, np.where(y == 1, -1, y))
    with pytest.raises(ValueError, match=says(r"\(2, 3\)", "table", r"\[X\] and \[y\]", r"x\[:, None\]")):
        Labels(y.reshape(2, 3), rows)


def test_advice_ends_the_error_for_a_wrong_shape():
    with pytest.raises(ValueError, match=r"\(2,\), as X\[4\] needs, got \(3,\): one image is \[image\]\.$"):
        check_shape(np.zeros(3), (2,), "y[4]", "X[4]", "one image is [image].")


def test_sorted_classes_merge_lists_of_labels():
    assert sorted_classes([[2, 0], np.array([1, 2])], name="classes").tolist() == [0, 1, 2]
    assert sorted_classes([["b"], ["a"]], name="classes").tolist() == ["a", "b"]
    with pytest.raises(TypeError, match=says("classes", "numbers", "strings")):
        sorted_classes([[0], ["a"]], name="classes")
