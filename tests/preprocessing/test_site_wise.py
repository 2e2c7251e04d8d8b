"""SiteWise: scikit-learn's checks, results on sequences, graphs and tables, pipelines."""

import pickle

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.decomposition import PCA
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcrf import ChainCRFClassifier, DAGMClassifier, GraphCRFClassifier
from skcrf.preprocessing import PixelWise, SiteWise


@parametrize_with_checks(
    [
        SiteWise(),
        SiteWise(StandardScaler(), edge_transformer=StandardScaler()),
        SiteWise(PCA()),
    ]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


def make_sequences(lengths=(4, 1, 6), n_features=3, dtype=np.float64, seed=0):
    rng = np.random.RandomState(seed)
    return [rng.normal(3, 2, size=(n, n_features)).astype(dtype) for n in lengths]


def make_graphs(lengths=(4, 1, 6), seed=0):
    """Make chains as graphs with edge features and hidden nodes; one has a single node."""
    rng = np.random.RandomState(seed)
    return [
        (x, np.c_[: len(x) - 1, 1 : len(x)], rng.normal(5, 3, size=(len(x) - 1, 2)), rng.rand(len(x)) < 0.5)
        for x in make_sequences(lengths, seed=seed)
    ]


@pytest.mark.parametrize("inner", [StandardScaler(), PCA(2), PolynomialFeatures(2)], ids=repr)
def test_sitewise_equals_transformer_on_all_sites(inner):
    X = make_sequences()
    expected = clone(inner).fit_transform(np.concatenate(X))
    out = SiteWise(inner).fit_transform(X)
    assert [len(x) for x in out] == [len(x) for x in X]
    assert_allclose(np.concatenate(out), expected, rtol=1e-10, atol=1e-12)
    on_graphs = SiteWise(inner).fit_transform(make_graphs())
    assert_allclose(np.concatenate([nodes for nodes, *_ in on_graphs]), expected, rtol=1e-10, atol=1e-12)
    assert_allclose(SiteWise(inner).fit(X).transform(np.concatenate(X)), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n_parts", [2, 3, 4])
def test_other_parts_of_a_graph_are_unchanged(n_parts):
    X = [graph[:n_parts] for graph in make_graphs()]
    X.append((X[0][0], [], [])[:n_parts])
    for before, after in zip(X, SiteWise(StandardScaler()).fit_transform(X), strict=True):
        assert isinstance(after, tuple) and len(after) == len(before)
        assert all(a is b for a, b in zip(before[1:], after[1:], strict=True))
    marked = [(graph[0], graph[1], graph[3]) for graph in make_graphs()]
    assert all(a[2] is b[2] for a, b in zip(marked, SiteWise().fit_transform(marked), strict=True))
    assert isinstance(SiteWise().fit_transform([list(X[0])])[0], list)


def test_edge_transformer_transforms_edge_features():
    X = [(np.ones((2, 3)), [], []), *make_graphs()]
    est = SiteWise(StandardScaler(), edge_transformer=PCA(1)).fit(X)
    features = np.concatenate([graph[2] for graph in X[1:]])
    out = est.transform(X)
    expected = PCA(1).fit_transform(features)
    assert_allclose(np.concatenate([out[1][2], out[3][2]]), expected, rtol=1e-10)
    assert out[2][2].shape == (0, 0) and out[0][2] is X[0][2]  # there are no edges
    labels = [np.arange(len(x[0])) % 2 for x in X[:3]]
    visible = [graph[:3] for graph in out[:3]]
    assert GraphCRFClassifier().fit(visible, labels).n_edge_features_in_ == 1
    back = SiteWise(edge_transformer=StandardScaler()).fit(X)
    assert_allclose(back.inverse_transform(back.transform(X))[3][2], X[3][2], rtol=1e-10)
    with pytest.raises(ValueError, match=r"X\[0\] must have 2 features per edge, as in fit, got 1"):
        est.transform([(X[1][0], X[1][1], X[1][2][:, :1])])
    for none in (make_sequences(), [graph[:2] for graph in X], make_graphs(lengths=[1])):
        with pytest.raises(ValueError, match="edge_transformer must be None if X has no edge features"):
            est.fit(none)
    with pytest.raises(TypeError, match="edge_transformer must be a transformer"):
        SiteWise(edge_transformer=StandardScaler).fit(X)


def test_sparse_rows_stay_sparse():
    X = make_sequences()
    expected = SiteWise(MaxAbsScaler()).fit_transform(X)
    for convert in (sparse.csr_matrix, sparse.csc_array):
        out = SiteWise(MaxAbsScaler()).fit_transform([convert(x) for x in X])
        assert {x.format for x in out} == {"csr"}
        assert_allclose(sparse.vstack(out).toarray(), np.concatenate(expected), rtol=1e-12)
    ((nodes, _),) = SiteWise(MaxAbsScaler()).fit_transform([(sparse.csr_matrix(X[0]), [[0, 1]])])
    assert nodes.format == "csr"
    codes = [np.array([[0], [2]]), np.array([[1]])]
    assert all(map(sparse.issparse, SiteWise(OneHotEncoder()).fit_transform(codes)))
    # In one array, and in a table, rows are dense.
    stack = SiteWise(OneHotEncoder()).fit_transform(np.stack([codes[0], codes[0]]))
    assert_array_equal(stack, np.stack([np.eye(2)] * 2))
    assert_array_equal(SiteWise(OneHotEncoder()).fit_transform(codes[0]), np.eye(2))


def test_output_container_is_that_of_input():
    X = make_sequences()
    objects = np.empty(3, dtype=object)
    objects[:] = X
    est = SiteWise(StandardScaler()).fit(X)
    as_list, as_objects = est.transform(X), est.transform(objects)
    assert isinstance(as_list, list) and as_objects.dtype == object and as_objects.shape == (3,)
    for a, b in zip(as_list, as_objects, strict=True):
        assert_array_equal(a, b)
    equal = np.stack([X[0], X[0] + 1])
    assert_array_equal(est.transform(equal), np.stack(est.transform(list(equal))))
    assert isinstance(est.transform(equal), np.ndarray) and isinstance(est.transform(list(equal)), list)
    graphs = np.empty(3, dtype=object)
    graphs[:] = make_graphs()
    assert est.transform(graphs).shape == (3,)
    # Two rows of two numbers are a sequence, not a graph.
    (row_lists,) = SiteWise(StandardScaler()).fit_transform([[[1, 2], [3, 4]]])
    assert_array_equal(row_lists, [[-1, -1], [1, 1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_preserved(dtype):
    for est in (SiteWise(StandardScaler()), SiteWise()):
        assert {x.dtype for x in est.fit_transform(make_sequences(dtype=dtype))} == {np.dtype(dtype)}


NAMED = [[{"word": "the", "size": 3.0}, {"word": "dog"}], [{"word": "a", "size": 1.0}]]


def test_dictionaries_need_a_vectorizer():
    items = [item for sequence in NAMED for item in sequence]
    pipe = make_pipeline(DictVectorizer(), MaxAbsScaler())
    est = SiteWise(pipe).fit(NAMED)
    out = est.transform(NAMED)
    assert all(map(sparse.issparse, out)) and [x.shape[0] for x in out] == [2, 1]
    assert_allclose(sparse.vstack(out).toarray(), pipe.fit_transform(items).toarray(), rtol=1e-12)
    assert list(est.get_feature_names_out()) == ["size", "word=a", "word=dog", "word=the"]
    assert est.inverse_transform(out)[1] == [{"size": 1.0, "word=a": 1.0}]
    assert SiteWise().fit_transform(NAMED) == NAMED
    assert SiteWise(FeatureHasher(8)).fit_transform(NAMED)[0].shape == (2, 8)
    labels = [["D", "N"], ["D"]]
    ours = make_pipeline(SiteWise(DictVectorizer()), ChainCRFClassifier()).fit(NAMED, labels)
    assert_array_equal(ours[-1].coef_, ChainCRFClassifier().fit(NAMED, labels).coef_)
    with pytest.raises(TypeError, match=r"X\[0\] must be a list of dictionaries, as in fit, got an array"):
        est.transform(make_sequences())
    with pytest.raises(TypeError, match=r"X\[1\] must be an array, as in X\[0\], got dictionaries"):
        est.fit([make_sequences()[0], NAMED[0]])
    with pytest.raises(TypeError, match="Use DictVectorizer, or ChainCRFClassifier without SiteWise"):
        SiteWise(StandardScaler()).fit(NAMED)
    assert SiteWise(StandardScaler()).fit(make_sequences()).n_features_in_ == 3


def test_partial_fit_equals_fit_to_all_graphs():
    X = make_graphs()
    whole = SiteWise(StandardScaler(), edge_transformer=StandardScaler()).fit(X)
    parts = clone(whole)
    for part in (X[:1], X[1:2], X[2:]):  # the second has no edges
        parts.partial_fit(part)
    assert_allclose(parts.transformer_.var_, whole.transformer_.var_, rtol=1e-12)
    assert_allclose(parts.edge_transformer_.var_, whole.edge_transformer_.var_, rtol=1e-12)
    assert not hasattr(SiteWise(FunctionTransformer()), "partial_fit")


def test_inverse_transform_restores_sequences_and_graphs():
    X = make_sequences()
    est = SiteWise(MinMaxScaler()).fit(X)
    for a, b in zip(X, est.inverse_transform(est.transform(X)), strict=True):
        assert_allclose(a, b, rtol=1e-12)
    graphs = make_graphs()
    assert_allclose(est.inverse_transform(est.transform(graphs))[2][0], graphs[2][0], rtol=1e-12)


@pytest.mark.parametrize(
    "X, problem",
    [
        (
            [np.ones((2, 3)), np.ones((2, 2))],
            r"X\[1\] must have 3 features per site, as in X\[0\], got 2",
        ),
        ([np.ones((2, 3)), np.ones(3)], r"X\[1\] must have one row per site, .*, got shape \(3,\)"),
        ([np.ones((2, 3)), np.full((2, 3), np.nan)], r"X\[1\] contains NaN"),
        (
            [(np.ones((2, 3)), [[0, 5]])],
            r"X\[0\]\[1\] must hold nodes from 0 to 1, .* got \[0, 5\] in X\[0\]\[1\]\[0\]",
        ),
        (
            [(np.ones((2, 3)), [[0, 1]]), ([1.0, 2.0], [[0, 1]])],
            r"X\[1\]\[0\] must be node features .* graphs are tuples",
        ),
        ([[1.0, 2.0], [1.0]], r"got shape \(1,\) in X\[1\] .* sequences are \(length, n_features\)"),
        (NAMED[0], r"got {'word': 'the', .* in X\[0\]: sequences are \(length, n_features\)"),
        ([], "X must hold at least one sequence or graph, got none"),
    ],
)
def test_errors_give_the_index_of_the_example(X, problem):
    with pytest.raises((TypeError, ValueError), match=problem):
        SiteWise(StandardScaler()).fit(X)


@pytest.mark.parametrize("wise", [PixelWise, SiteWise])
def test_transformer_must_return_one_row_per_row(wise):
    with pytest.raises(ValueError, match=r"one row per input row, shape \(4, .*\), got shape \(1, 1\)"):
        wise(FunctionTransformer(lambda rows: rows[:1])).fit_transform([np.ones((4, 1))])


def test_set_output_applies_to_tables_only():
    pd = pytest.importorskip("pandas")
    X = make_sequences()
    frame = pd.DataFrame(np.concatenate(X), columns=["a", "b", "c"])
    est = SiteWise(StandardScaler()).set_output(transform="pandas").fit(frame)
    assert list(est.transform(frame).columns) == ["a", "b", "c"]
    assert all(type(x) is np.ndarray for x in est.transform(X))
    with sklearn.config_context(transform_output="pandas"):
        assert all(type(x) is np.ndarray for x in SiteWise(StandardScaler()).fit_transform(X))
    frames = [pd.DataFrame(x, columns=["a", "b", "c"]) for x in X]
    assert_array_equal(est.transform(frames)[0], est.transform(X)[0])


def test_pickle_and_html_representation():
    X = make_graphs()
    est = SiteWise(StandardScaler(), edge_transformer=MinMaxScaler()).fit(X)
    assert_array_equal(pickle.loads(pickle.dumps(est)).transform(X)[0][0], est.transform(X)[0][0])
    assert all(f"<div>{name}</div>" in est._repr_html_() for name in ("StandardScaler", "MinMaxScaler"))


def badly_scaled(n_examples=12, seed=0):
    """Make sequences whose labels depend on a tiny feature next to a large uninformative one."""
    rng = np.random.RandomState(seed)
    Y = [np.repeat(rng.randint(2, size=3), 2) for _ in range(n_examples)]
    X = [np.c_[1e-4 * (y - 0.5 + rng.normal(scale=0.3, size=6)), 50 + 5 * rng.normal(size=6)] for y in Y]
    return X, Y


@pytest.mark.parametrize("make", [ChainCRFClassifier, GraphCRFClassifier, DAGMClassifier])
def test_sitewise_in_pipeline_and_search(make):
    X, Y = badly_scaled()
    scaler = StandardScaler().fit(np.concatenate(X))
    by_hand = [scaler.transform(x) for x in X]
    if make is not ChainCRFClassifier:
        edges = np.c_[:5, 1:6]
        X, by_hand = [(x, edges) for x in X], [(x, edges) for x in by_hand]
    pipeline = make_pipeline(SiteWise(StandardScaler()), make(alpha=0.1)).fit(X, Y)
    assert_array_equal(pipeline[-1].coef_, make(alpha=0.1).fit(by_hand, Y).coef_)
    grid = {"sitewise__transformer": ["passthrough", StandardScaler()]}
    search = GridSearchCV(pipeline, grid, cv=KFold(3)).fit(X, Y)
    assert isinstance(search.best_params_["sitewise__transformer"], StandardScaler)
    assert search.best_score_ > 0.9
    nested = {"sitewise__transformer__with_mean": [True, False]}
    assert len(GridSearchCV(pipeline, nested, cv=KFold(2)).fit(X, Y).cv_results_["params"]) == 2


def test_progress_bar_shows_sitewise(capsys):
    pytest.importorskip("rich")
    X, Y = badly_scaled(3)
    make_pipeline(SiteWise(StandardScaler()), ChainCRFClassifier()).set_callbacks(ProgressBar()).fit(X, Y)
    assert "SiteWise" in capsys.readouterr().out


def test_methods_are_those_of_both_inner_transformers():
    for edge_transformer, available in ((None, True), (StandardScaler(), True), (Normalizer(), False)):
        wise = SiteWise(StandardScaler(), edge_transformer)
        assert hasattr(wise, "partial_fit") == hasattr(wise, "inverse_transform") == available
        assert hasattr(wise, "get_feature_names_out")


def test_failed_fit_leaves_transformer_unchanged():
    X = [np.arange(6.0).reshape(3, 2)]
    wise = SiteWise(PCA(2)).fit(X)
    before = wise.transform(X)[0]
    with pytest.raises(ValueError, match="n_components"):
        wise.fit([np.ones((1, 5))])
    np.testing.assert_array_equal(wise.transform(X)[0], before)


def test_failed_partial_fit_leaves_edge_transformer_unchanged():
    # The edge transformer is fitted before the transformer of nodes, which fails here.
    edges, rng = np.array([[0, 1], [1, 2]]), np.random.default_rng(0)
    X = [(rng.normal(size=(3, 2)), edges, rng.normal(size=(2, 2)))]
    wise = SiteWise(RefusesLargeValues(), StandardScaler()).partial_fit(X)
    mean, seen = wise.edge_transformer_.mean_.copy(), wise.edge_transformer_.n_samples_seen_
    with pytest.raises(ValueError, match="too large"):
        wise.partial_fit([(100.0 + X[0][0], edges, 5.0 + X[0][2])])
    assert_array_equal(wise.edge_transformer_.mean_, mean)
    assert wise.edge_transformer_.n_samples_seen_ == seen


class RefusesLargeValues(MaxAbsScaler):
    def partial_fit(self, X, y=None):
        if np.abs(X).max() > 50:
            raise ValueError("too large")
        return super().partial_fit(X, y)
