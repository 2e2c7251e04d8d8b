"""Batches: the same bits in memory and on access, small pickles, no copies of features, partitions."""

import pickle

import numpy as np
import pytest
from batching import LATTICE, batches_of, read, run_in_order
from lazy_sequences import ArrayOnDisk, LazyList
from messages import says
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.feature_extraction import DictVectorizer

from skcrf.data import (
    Batch,
    BatchLoader,
    ChainTopology,
    Contrast,
    DAGReader,
    GraphReader,
    GraphTopology,
    ImageReader,
    LatticeTopology,
    MeshTopology,
    SequenceReader,
    check_unlabelled,
    make_batches,
    partition,
)
from skcrf.datasets import LazyImages, make_potts

CONTRAST = LatticeTopology(4, Contrast(), 2)


def hide(y):
    return np.ma.masked_array(y, np.arange(y.size).reshape(y.shape) % 5 == 1)


def images():
    """Images of several sizes: the small ones are packed together, the large ones are batches."""
    rng = np.random.default_rng(0)
    Y = [hide(rng.integers(3, size=shape)) for shape in [(6, 5), (48, 50), (3, 7), (1, 1), (47, 44)]]
    return [rng.normal(size=(*y.shape, 2)) for y in Y], Y


def sequences():
    rng = np.random.default_rng(0)
    Y = [hide(rng.integers(3, size=n)) for n in (5, 2100, 1, 9)]
    return [rng.normal(size=(len(y), 2)) for y in Y], Y


def sparse_sequences():
    X, Y = sequences()
    return [sparse.csr_array(np.where(x > 0.5, x, 0.0)) for x in X], Y


NAMED = [[{"a": 1.0, "b": "x"}, {"b": "y"}], [{"a": 2.0}]]


def graphs(hidden=False):
    rng = np.random.default_rng(0)
    X, Y = [], []
    for n in (4, 6, 1, 3):
        edges = np.array([[i, i + 1] for i in range(n - 1)], dtype=int).reshape(-1, 2)
        marks = [np.arange(n) % 3 == 2] if hidden else []
        X.append((rng.normal(size=(n, 2)), edges, rng.normal(size=(n - 1, 3)), *marks))
        y = rng.integers(3, size=n)
        Y.append(np.ma.masked_array(y, marks[0]) if hidden else y)
    return X, Y


#: Examples, labels, the reader and the topology, by name.
KINDS = {
    "images": (*images(), ImageReader(), LATTICE),
    "images with contrast": (*images(), ImageReader(), CONTRAST),
    "images on a mesh": (*images(), ImageReader(), MeshTopology(("left", "above"), None, 1)),
    "sequences": (*sequences(), SequenceReader(), ChainTopology()),
    "sparse sequences": (*sparse_sequences(), SequenceReader(), ChainTopology()),
    "dictionaries": (
        NAMED,
        [np.array([0, 1]), np.array([2])],
        SequenceReader(vectorizer=DictVectorizer().fit([item for x in NAMED for item in x])),
        ChainTopology(),
    ),
    "graphs": (*graphs(), GraphReader(), GraphTopology(3)),
    "graphs with hidden variables": (*graphs(hidden=True), GraphReader(), GraphTopology(3)),
    "DAGs": (*graphs(), DAGReader(), GraphTopology(3)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def dense(array):
    return array.toarray() if sparse.issparse(array) else array


def assert_same_batch(found, expected):
    """Compare two batches bit by bit."""
    for name in ("X", "V", "y", "weight", "site_weight", "index", "hidden"):
        one, other = (dense(getattr(batch, name)) for batch in (found, expected))
        assert_array_equal(one, other, err_msg=name)
        assert one is None or one.dtype == other.dtype, name
    for name, one, other in zip(expected.graph._fields, found.graph, expected.graph, strict=True):
        assert_array_equal(one, other, err_msg=name)
    assert found.n_labels == expected.n_labels
    assert found.n_examples == expected.n_examples and found.n_sites == expected.n_sites


def built(batch):
    """Load a batch, as workers do."""
    return batch.build(batch.fetch()) if batch.is_lazy else batch


@every_kind
@pytest.mark.parametrize("lazy", ["X", "Y", "X and Y"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_lazy_batches_have_the_bits_of_batches_in_memory(kind, lazy, class_weight):
    X, Y, reader, topology = KINDS[kind]
    options = {"sample_weight": np.linspace(0.5, 1.5, len(X)), "class_weight": class_weight, "batch_size": 3}
    memory = batches_of(X, Y, reader, topology, **options)
    given = (LazyList(X) if "X" in lazy else X), (LazyList(Y) if "Y" in lazy else Y)
    loaders = batches_of(*given, reader, topology, **options)
    assert len(loaders) == len(memory) >= 1
    for loader, batch in zip(loaders, memory, strict=True):
        assert isinstance(batch, Batch) and isinstance(loader, BatchLoader)
        assert loader.is_lazy and not batch.is_lazy
        assert loader.nbytes == 0 < batch.nbytes
        assert loader.n_examples == batch.n_examples
        assert loader.n_sites == batch.n_sites
        assert loader.n_labels == pytest.approx(batch.n_labels, rel=1e-15)
        assert_same_batch(built(loader), batch)


@every_kind
def test_batches_for_prediction_have_hidden_labels_in_memory_and_on_access(kind):
    X, _, reader, topology = KINDS[kind]
    parts, weight = [np.array([0, 1])], np.ones(len(X))
    memory, lazy = (
        make_batches(read(given, reader), None, topology, parts, weight)[0] for given in (X, LazyList(X))
    )
    assert (memory.y == -1).all()
    assert_same_batch(built(lazy), memory)


@every_kind
def test_pickled_batches_have_the_same_bits(kind):
    X, Y, reader, topology = KINDS[kind]
    for batch in batches_of(X, Y, reader, topology, class_weight="balanced"):
        assert_same_batch(pickle.loads(pickle.dumps(batch)), batch)
    for batch, loader in zip(
        batches_of(X, Y, reader, topology), batches_of(LazyList(X), Y, reader, topology), strict=True
    ):
        assert_same_batch(built(pickle.loads(pickle.dumps(loader))), batch)


def test_pickled_batches_hold_no_graphs():
    X, Y = make_potts(n_images=3, shape=(50, 50), random_state=0)
    for topology in (LATTICE, CONTRAST):
        batch = batches_of(X, Y, topology=topology)[0]
        before = len(pickle.dumps(batch))
        assert before < batch.X.nbytes + batch.y.nbytes + 4000
        batch.n_labels, batch.groups, batch.without_edges  # noqa: B018
        batch.derived["structure"] = batch.messages["start"] = np.zeros(10_000)
        assert len(pickle.dumps(batch)) == before


def test_pickled_loaders_hold_no_other_examples():
    paths = [f"a-rather-long-name-of-an-image-{i}.png" for i in range(200)]
    labels = [np.arange(900).reshape(30, 30) % 2] * 200
    loaders = batches_of(LazyImages(paths, load_any), labels)
    assert sum(len(pickle.dumps(loader)) for loader in loaders) < 3000 * len(loaders) + 8 * 900 * 200
    memory = batches_of(LazyList([np.zeros((30, 30))] * 200), labels)
    assert len(memory) > 50


def load_any(path):
    return np.full((30, 30), float(len(path)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("topology", [LATTICE, CONTRAST], ids=["bias", "contrast"])
@pytest.mark.parametrize("container", [list, np.array, tuple])
def test_features_of_large_images_are_never_copied(dtype, topology, container):
    X, Y = make_potts(n_images=3, shape=(50, 50), random_state=0)
    X = container([np.ascontiguousarray(x, dtype=dtype) for x in X])
    batches = batches_of(X, Y, topology=topology, sample_weight=[1.0, 2.0, 1.0])
    assert len(batches) == 3
    for batch, x in zip(batches, X, strict=True):
        assert batch.X.dtype == dtype
        assert np.shares_memory(batch.X, x)
        assert np.shares_memory(batch.without_edges.X, x)
    assert batches[0].graph is batches[2].graph


def test_rows_of_a_table_are_never_copied():
    X = np.random.default_rng(0).normal(size=(5000, 2))
    batches = batches_of(X, np.arange(5000) % 2)
    assert len(batches) > 1
    assert all(np.shares_memory(batch.X, X) for batch in batches)
    assert sum(batch.n_examples for batch in batches) == 5000
    assert all(batch.graph.n_edges == 0 and batch.hidden is None for batch in batches)


def test_sparse_features_stay_sparse():
    X, Y, reader, topology = KINDS["sparse sequences"]
    assert all(sparse.issparse(batch.X) for batch in batches_of(X, Y, reader, topology))
    mixed = [x.toarray() if i % 2 else x for i, x in enumerate(X)]
    for found, expected in zip(
        batches_of(mixed, Y, reader, topology), batches_of(X, Y, reader, topology), strict=True
    ):
        assert_array_equal(dense(found.X), dense(expected.X))


def test_examples_of_one_shape_share_their_graphs_with_and_without_edges():
    X, Y = make_potts(n_images=4, shape=(50, 50), random_state=0)
    first, *others = batches_of(list(X), list(Y))
    assert len(others) == 3
    for batch in others:
        assert batch.graph is first.graph
        assert batch.without_edges.graph is first.without_edges.graph
        assert batch.without_edges.X is batch.X


def test_columns_of_sparse_features_without_entries_are_left_out():
    X, Y, reader, topology = KINDS["sparse sequences"]
    wide = [sparse.csr_array((x.data, 7 * x.indices + 3, x.indptr), shape=(x.shape[0], 40)) for x in X]
    for batch in batches_of(wide, Y, reader, topology):
        columns, features = batch.stored_columns
        assert set(columns) <= {3, 10}
        assert_array_equal(features.toarray(), batch.X.toarray()[:, columns])
        assert np.shares_memory(features.data, batch.X.data)


def test_arrays_on_disk_are_never_read_whole():
    X, Y = make_potts(n_images=4, shape=(20, 20), random_state=0)
    disk = ArrayOnDisk(X)
    for loader, batch in zip(batches_of(disk, Y), batches_of(X, Y), strict=True):
        assert_same_batch(built(loader), batch)
    assert disk.read_whole == 0


def test_site_weights_are_the_weights_of_the_classes():
    X, Y, reader, topology = KINDS["graphs with hidden variables"]
    (batch,) = batches_of(X, Y, reader, topology, class_weight={0: 2.0, 1: 0.5})
    expected = np.where(batch.y >= 0, np.array([2.0, 0.5, 1.0])[batch.y], 0.0)
    assert_array_equal(batch.site_weight, expected)
    assert batches_of(X, Y, reader, topology)[0].site_weight is None


@pytest.mark.parametrize("n_classes, dtype", [(2, np.int8), (128, np.int8), (129, np.int16), (200, np.int16)])
def test_class_indices_take_few_bytes(n_classes, dtype, seed):
    y = np.ma.masked_array(np.random.default_rng(seed).permutation(n_classes + 1))
    y[y == n_classes] = np.ma.masked
    images = batches_of(np.zeros((1, 1, len(y), 1)), y.reshape(1, 1, -1))
    rows = batches_of(np.zeros((len(y), 1)), y)  # leaves out the row without a label
    for (batch,), expected in ((images, y.filled(-1)), (rows, y.compressed())):
        assert batch.y.dtype == dtype and batch.labels.dtype == np.int64
        assert_array_equal(batch.y, expected)
        assert_array_equal(batch.labels, expected)


def test_rows_are_split_into_the_shapes_of_labels():
    X, Y, reader, topology = KINDS["images"]
    for batch in batches_of(X, Y, reader, topology):
        rows = np.arange(3 * batch.n_sites).reshape(-1, 3)
        parts = batch.split(rows)
        assert [part.shape for part in parts] == [(*Y[i].shape, 3) for i in batch.index]
        assert_array_equal(np.concatenate([part.reshape(-1, 3) for part in parts]), rows)


def test_groups_are_the_tables_of_each_direction():
    X, Y, reader, _ = KINDS["images"]
    for topology in (LATTICE, CONTRAST):
        for batch in batches_of(X, Y, reader, topology):
            for group, tables in enumerate(batch.groups):
                tables = np.arange(batch.graph.n_tables)[tables]
                assert_array_equal(tables, np.flatnonzero(batch.graph.table_group == group))


def test_batch_without_edges_has_the_same_nodes():
    X, Y, reader, topology = KINDS["images with contrast"]
    for batch in batches_of(X, Y, reader, topology):
        alone = batch.without_edges
        assert alone.graph.n_edges == 0 and alone.V.shape == (0, 2)
        assert alone.X is batch.X and alone.y is batch.y and alone.weight is batch.weight
        assert_array_equal(alone.graph.node_ptr, batch.graph.node_ptr)
        assert batch.without_edges is alone


# Partitions


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_partitions_hold_every_example_once(batch_size, seed):
    rng = np.random.RandomState(seed)
    sizes = rng.randint(1, 1500, size=60)
    keep = np.flatnonzero(rng.uniform(size=60) < 0.7)
    parts = list(partition(keep, sizes, batch_size, rng))
    together = np.concatenate(parts)
    assert_array_equal(np.sort(together), keep)
    assert (together == keep).all() == (batch_size is None)
    for part in parts:
        assert len(part) == 1 or sizes[part].sum() <= 2048
        assert batch_size is None or len(part) <= batch_size
    assert list(partition(keep[:0], sizes, batch_size, rng)) == []


def test_mini_batches_mix_sorted_examples():
    X, y = load_iris(return_X_y=True)  # sorted by class
    batches = batches_of(X, y, batch_size=10)
    assert max(batch.n_examples for batch in batches) == 10
    assert np.mean([len(np.unique(batch.y)) for batch in batches]) > 2.5


def test_examples_without_labels_or_weight_are_left_out():
    X, Y = [np.zeros((2, 2))] * 4, [np.full((2, 2), i % 2) for i in range(4)]
    Y[1] = np.ma.masked_all((2, 2), int)
    (batch,) = batches_of(X, Y, sample_weight=[1.0, 1.0, 0.0, 2.0])
    assert batch.index.tolist() == [0, 3]
    assert batch.weight.tolist() == [1.0, 2.0]
    assert batch.n_labels == 12.0


# Hidden variables


def test_hidden_variables_are_marked():
    X, Y, reader, topology = KINDS["graphs with hidden variables"]
    (batch,) = batches_of(X, Y, reader, topology)
    assert_array_equal(batch.hidden, np.concatenate([x[3] for x in X]))
    assert batches_of(*KINDS["graphs"])[0].hidden is None


def test_labels_of_hidden_variables_are_refused():
    X, _, reader, topology = KINDS["graphs with hidden variables"]
    message = says(r"y\[1\]\[2\]", "masked", "hidden variable", "label", "np.ma.masked_array")
    example = reader(X[1], "X[1]")
    check_unlabelled(topology, example, np.array([0, 1, -1, 0, 1, -1]), "y[1]")
    with pytest.raises(ValueError, match=message):
        check_unlabelled(topology, example, np.array([0, 1, 2, 0, 1, -1]), "y[1]")
    labels = [np.zeros(len(x[0]), dtype=int) for x in X]
    labels[0] = np.ma.masked_array(labels[0], X[0][3])
    loaders = batches_of(LazyList(X), labels, reader, topology, batch_size=1)
    with pytest.raises(ValueError, match=message):
        run_in_order(built, sorted(loaders, key=lambda loader: loader.name))
