"""Readers: validated examples of images, sequences, graphs and DAGs, in memory or loaded on access."""

import numpy as np
import pytest
from lazy_sequences import LazyList
from messages import says
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer

from skcrf.data import (
    BaseReader,
    DAGReader,
    GraphReader,
    ImageReader,
    SequenceReader,
    read_examples,
)

EDGES = np.array([[0, 1], [2, 1]])


def images(dtype=np.float64):
    rng = np.random.default_rng(0)
    return [(100 * rng.random(shape)).astype(dtype) for shape in ((3, 4, 2), (1, 5, 2), (2, 2, 2))]


def sequences(dtype=np.float64):
    return [image.reshape(-1, 2) for image in images(dtype)]


def graphs(dtype=np.float64, edges=EDGES, n_edge_features=3):
    features = np.arange(float(len(edges) * n_edge_features)).reshape(len(edges), -1)
    return [(rows, edges, features) for rows in sequences(dtype)]


#: Readers with a function that makes examples of some dtype.
READERS = {
    "images": (ImageReader(), images),
    "sequences": (SequenceReader(), sequences),
    "graphs": (GraphReader(), graphs),
    "DAGs": (DAGReader(), graphs),
}
every_reader = pytest.mark.parametrize("kind", READERS)


def features_of(example):
    return np.asarray(example[0] if isinstance(example, tuple) else example)


@every_reader
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.uint16, np.float16, np.int32, np.float64])
def test_features_are_float32_if_that_is_exact(kind, dtype):
    reader, make = READERS[kind]
    exact = np.dtype(dtype).itemsize < 4
    for i, given in enumerate(make(dtype)):
        example = reader(given, f"X[{i}]")
        assert example.X.dtype == (np.float32 if exact else np.float64)
        assert_array_equal(example.X, features_of(given).reshape(-1, 2).astype(np.float64))


@every_reader
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_not_copied(kind, dtype):
    reader, make = READERS[kind]
    for given in make(dtype):
        assert np.shares_memory(reader(given, "X[0]").X, features_of(given))


@every_reader
@pytest.mark.parametrize("container", [list, tuple, LazyList])
def test_examples_have_shapes_and_sizes(kind, container):
    reader, make = READERS[kind]
    examples = read_examples(container(make()), reader)
    shapes = [(3, 4), (1, 5), (2, 2)] if kind == "images" else [(12,), (5,), (4,)]
    assert len(examples) == 3
    assert list(examples.shapes) == shapes
    assert examples.sizes.tolist() == [12, 5, 4]
    assert examples.is_lazy == (container is LazyList) and not examples.is_table
    assert examples.reader.n_features == 2
    assert [examples.name_of(i) for i in range(3)] == ["X[0]", "X[1]", "X[2]"]


def assert_same_example(found, expected):
    assert found.shape == expected.shape
    assert_array_equal(found.X, expected.X)
    assert found.X.dtype == expected.X.dtype
    if isinstance(expected.outline, tuple):
        assert found.outline == expected.outline
    else:
        for name, value in vars(expected.outline).items():
            assert_array_equal(vars(found.outline)[name], value)


@every_reader
def test_lazy_examples_are_those_in_memory(kind):
    reader, make = READERS[kind]
    memory, lazy = (read_examples(container(make()), reader) for container in (list, LazyList))
    for i in range(3):
        assert_same_example(lazy[i], memory[i])
    for examples in (memory, lazy):
        some = examples.select(np.array([2, 0]))
        assert [some.name_of(i) for i in range(2)] == ["X[2]", "X[0]"]
        assert some.sizes.tolist() == [4, 12]
        assert_same_example(some[0], memory[2])
        assert some.select(np.array([1])).name_of(0) == "X[0]"


def test_lazy_examples_are_loaded_once_to_be_read_and_on_access():
    X = LazyList(images())
    examples = read_examples(X, ImageReader())
    assert X.loaded.tolist() == [1, 1, 1]
    examples[1]
    assert X.loaded.tolist() == [1, 2, 1]


@every_reader
@pytest.mark.parametrize("container", [list, LazyList])
def test_examples_must_have_the_features_of_the_first(kind, container):
    reader, make = READERS[kind]
    wrong = make()
    wrong[2] = (wrong[2][0][:, :1], *wrong[2][1:]) if isinstance(wrong[2], tuple) else wrong[2][..., :1]
    with pytest.raises(ValueError, match=says(r"X\[2\]", "2 features per", r"as in X\[0\]", "got 1")):
        read_examples(container(wrong), reader)
    with pytest.raises(ValueError, match=says(r"X\[0\]", "5 features per", "as in fit", "got 2")):
        read_examples(container(make()), type(reader)(5))


@every_reader
def test_there_must_be_an_example(kind):
    reader, _ = READERS[kind]
    with pytest.raises(ValueError, match=f"X must hold at least one {reader.one}, got none"):
        read_examples([], reader)


@every_reader
def test_lazy_examples_must_not_change(kind):
    reader, make = READERS[kind]
    X = LazyList(make())
    examples = read_examples(X, reader)
    larger = np.zeros((4, 4, 2))
    rows = larger.reshape(-1, 2)
    X.examples[1] = {"images": larger, "sequences": rows}.get(kind, (rows, *X.examples[1][1:]))
    shapes = (r"\(1, 5\)", r"\(4, 4\)") if kind == "images" else (r"\(5,\)", r"\(16,\)")
    with pytest.raises(ValueError, match=says(r"X\[1\]", *shapes, "first loaded")):
        examples[1]


# Images


def test_images_without_a_feature_axis_have_one_feature():
    example = ImageReader()(np.zeros((3, 4)), "X[0]")
    assert example.X.shape == (12, 1) and example.shape == (3, 4)


def test_images_must_have_the_features_of_the_first():
    with pytest.raises(ValueError, match=says(r"X\[1\]", "1 features per pixel", r"X\[0\]", "got 2")):
        read_examples([np.zeros((2, 3)), np.zeros((2, 3, 2))], ImageReader())
    with pytest.raises(ValueError, match=says("X", "at least one image", "none")):
        read_examples([], ImageReader())


# Sequences


def test_sparse_sequences_stay_sparse():
    dense = sequences()[0]
    for form in (sparse.csr_matrix, sparse.csr_array, sparse.coo_array):
        example = SequenceReader()(form(dense), "X[0]")
        assert sparse.issparse(example.X) and example.X.format == "csr"
        assert_array_equal(example.X.toarray(), dense)
        assert example.shape == (12,)


def test_dictionaries_become_the_rows_of_the_vectorizer():
    sequence = [{"a": 1.0, "b": "x"}, {"a": 2.0}]
    vectorizer = DictVectorizer().fit(sequence)
    example = SequenceReader(vectorizer=vectorizer)(sequence, "X[0]")
    assert_array_equal(example.X.toarray(), [[1, 1], [2, 0]])


def test_items_of_lists_are_examples_or_rows():
    for reader, item, expected in [
        (ImageReader(), np.zeros((2, 2)), True),
        (ImageReader(), np.zeros(2), False),
        (SequenceReader(), [{"a": 1}], True),
        (SequenceReader(), [["name"], ["other"]], True),
        (SequenceReader(), [1.0, 2.0], False),
        (GraphReader(), (np.zeros((2, 1)), [[0, 1]]), True),
        (GraphReader(), [1.0, 2.0, 3.0], False),
    ]:
        assert isinstance(reader, BaseReader)
        assert reader.is_example(item) == expected


# Graphs


def test_graphs_keep_edges_features_and_hidden_variables():
    rows, features, hidden = np.zeros((3, 2)), np.ones((2, 1)), np.array([True, False, False])
    for parts, has_features, has_hidden in [
        ((), False, False),
        ((features,), True, False),
        ((hidden,), False, True),
        ((hidden.tolist(),), False, True),
        ((features, hidden), True, True),
    ]:
        outline = GraphReader()((rows, EDGES, *parts), "X[0]").outline
        assert outline.n_nodes == 3 and outline.n_edge_features == (1 if has_features else 0)
        assert_array_equal(outline.edges, EDGES)
        assert (outline.edge_features is not None) == has_features
        assert_array_equal(outline.hidden, hidden if has_hidden else None)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.float16, np.float32])
def test_narrow_edge_features_keep_their_type(dtype):
    features = np.ones((2, 3), dtype)
    outline = GraphReader()((np.zeros((3, 2)), EDGES, features, np.zeros(3, bool)), "X[0]").outline
    assert outline.edge_features is features
    wide = GraphReader()((np.zeros((3, 2)), EDGES, np.ones((2, 3), np.int32)), "X[0]").outline
    assert wide.edge_features.dtype == np.float64


def test_hidden_variables_must_be_booleans_one_per_node():
    rows, features = np.zeros((3, 2)), np.ones((2, 1))
    with pytest.raises(ValueError, match=says(r"X\[4\]\[2\]", r"\(3,\)", "one boolean per node", r"\(2,\)")):
        GraphReader()((rows, EDGES, np.array([True, False])), "X[4]")
    with pytest.raises(TypeError, match=says(r"X\[4\]\[3\]", "booleans", "graphs are tuples")):
        GraphReader()((rows, EDGES, features, [0, 0, 1]), "X[4]")


def test_graphs_without_edges_go_with_any_edge_features():
    rows = np.zeros((3, 2))
    examples = read_examples([(rows, []), (rows, EDGES, np.ones((2, 4))), (rows, [], [])], GraphReader())
    assert examples.reader.n_edge_features == 4
    assert examples[0].outline.n_edge_features is None
    with pytest.raises(ValueError, match=says(r"X\[2\]", "4 features per edge", r"as in X\[1\]", "got none")):
        read_examples([(rows, []), (rows, EDGES, np.ones((2, 4))), (rows, EDGES)], GraphReader())
    with pytest.raises(ValueError, match=says(r"X\[1\]", "no features per edge", r"as in X\[0\]", "got 4")):
        read_examples([(rows, EDGES), (rows, EDGES, np.ones((2, 4)))], GraphReader())


def test_dags_must_have_no_cycle():
    rows = np.zeros((3, 1))
    DAGReader()((rows, [[2, 0], [0, 1], [2, 1]]), "X[0]")
    with pytest.raises(ValueError, match=says(r"X\[0\]\[1\]", "cycle", "0 -> 1", "parents to children")):
        DAGReader()((rows, [[0, 1], [1, 2], [2, 0]]), "X[0]")
    GraphReader()((rows, [[0, 1], [1, 2], [2, 0]]), "X[0]")
