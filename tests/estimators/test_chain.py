"""ChainCRFClassifier: exact inference, and dense, sparse and dictionary features."""

import pickle
from itertools import product

import numpy as np
import pytest
from limits import set_limit
from messages import says
from reference import best_configurations, log_probability, marginals
from scipy import sparse
from sklearn.feature_extraction import DictVectorizer
from sklearn.model_selection import GridSearchCV, KFold

from skcrf import ChainCRFClassifier
from skcrf.graph import Potentials, chain
from skcrf.inference import INFERENCE
from skcrf.metrics import sequence_accuracy_score

LENGTHS = [5, 1, 4, 6, 2, 5, 3]


@pytest.fixture(scope="module")
def sequences():
    """Draw noisy sequences of three labels that follow one another."""
    rng = np.random.default_rng(0)
    Y = [(rng.integers(3) + np.arange(n)) % 3 for n in LENGTHS]
    return [np.eye(3)[y] + rng.normal(size=(len(y), 3)) for y in Y], Y


def quick(**params):
    return ChainCRFClassifier(**{"max_iter": 30, "tol": 1e-2, "alpha": 0.05, **params})


def problem(est, x):
    """Return the graph and the potentials of a sequence by the definition."""
    unary = np.array([est.coef_ @ row + est.intercept_ for row in x])
    return chain(len(x)), Potentials(unary, est.edge_coef_)


def test_predictions_agree_with_enumeration(sequences):
    X, Y = sequences
    est = quick().fit(X, Y)
    P, edges, best = (
        est.predict_proba(X),
        est.predict_edge_proba(X),
        quick(decoding="map").fit(X, Y).predict(X),
    )
    for x, p, edge_p, labels, shown in zip(X, P, edges, best, est.predict(X), strict=True):
        mu, edge_mu = marginals(*problem(est, x))
        np.testing.assert_allclose(p, mu, atol=1e-10)
        np.testing.assert_allclose(edge_p, edge_mu, atol=1e-10)
        assert best_configurations(*problem(est, x)) == [{tuple(labels)}]
        np.testing.assert_array_equal(shown, mu.argmax(axis=1))


def test_most_probable_labels_need_not_be_the_most_probable_sequence():
    est = quick().fit([np.eye(3)], [["a", "b", "c"]])
    est.coef_, est.intercept_ = np.zeros((3, 3)), np.zeros(3)
    est.edge_coef_ = np.log([[[0.3, 0.05, 0.02], [0.0501, 0.2, 0.2], [0.05, 0.0799, 0.05]]])
    X = [np.zeros((2, 3))]
    assert est.predict(X)[0].tolist() == ["b", "a"]
    assert est.set_params(decoding="map").predict(X)[0].tolist() == ["a", "a"]


@pytest.mark.parametrize("name", sorted(set(INFERENCE) - {"bruteforce"}))
def test_map_decoding_needs_an_inference_that_maximises(name, sequences):
    X, Y = sequences
    est = quick(inference=name, loss="pseudolikelihood", decoding="map", max_iter=2, tol=10.0)
    if "max" in INFERENCE[name].tasks:
        assert len(est.fit(X, Y).predict(X)) == len(X)
    else:
        with pytest.raises(
            ValueError, match=says("decoding='map'", "maximise", INFERENCE[name].__name__, "'tree'", "'auto'")
        ):
            est.fit(X, Y)


def test_fit_is_maximum_likelihood(sequences):
    """The derivative of the enumerated objective is zero, also with hidden labels."""
    X, Y = sequences
    Y = [np.ma.masked_array(y, np.arange(len(y)) % 4 == 3) for y in Y]
    est = ChainCRFClassifier(alpha=0.1, tol=1e-10, max_iter=500).fit(X, Y)

    def objective():
        found = [log_probability(*problem(est, x), y.filled(-1))[0] for x, y in zip(X, Y, strict=True)]
        penalty = (est.coef_**2).sum() + (est.edge_coef_**2).sum()
        return -sum(found) / sum(y.count() for y in Y) + 0.05 * penalty

    assert objective() == pytest.approx(est.loss_curve_[-1], rel=1e-9)
    for weights in (est.coef_, est.intercept_, est.edge_coef_):
        for place in product(*map(range, weights.shape)):
            start, values = weights[place], []
            for step in (1e-4, -1e-4):
                weights[place] = start + step
                values.append(objective())
            weights[place] = start
            assert abs(values[0] - values[1]) / 2e-4 < 1e-5


def test_sparse_features_give_the_weights_of_dense_ones(sequences):
    X, Y = sequences
    X = [np.where(x > 0.5, x, 0.0) for x in X]
    dense = quick(n_jobs=2).fit(X, Y)
    for form in (sparse.csr_matrix, sparse.csr_array, sparse.coo_array):
        S = [form(x) for x in X]
        est = quick().fit(S, Y)
        np.testing.assert_allclose(est.coef_, dense.coef_, atol=1e-8)
        np.testing.assert_allclose(
            np.concatenate(est.predict_proba(S)), np.concatenate(dense.predict_proba(X))
        )
    mixed = [sparse.csr_array(x) if i % 2 else x for i, x in enumerate(X)]
    np.testing.assert_allclose(quick().fit(mixed, Y).coef_, dense.coef_, atol=1e-8)


def named(x):
    return [{"a": a, "big": bool(b > 1), "sign": "+" if c > 0 else "-"} for a, b, c in x]


def test_dictionaries_give_the_weights_of_a_vectorizer(sequences):
    """Names that the fit has not seen are left out."""
    X, Y = sequences
    X, Y = [named(x) for x in X], [np.array(["x", "y", "zz"])[y].tolist() for y in Y]
    vectorizer = DictVectorizer().fit([item for x in X for item in x])
    est = quick().fit(X, Y)
    before = quick().fit([vectorizer.transform(x) for x in X], Y)
    np.testing.assert_array_equal(est.coef_, before.coef_)
    assert est.vectorizer_.get_feature_names_out().tolist() == ["a", "big", "sign=+", "sign=-"]
    assert before.vectorizer_ is None
    np.testing.assert_array_equal(
        est.predict([[{"never": 1.0}] * 3])[0], before.predict([np.zeros((3, 4))])[0]
    )
    assert set(np.concatenate(est.predict(X))) <= {"x", "y", "zz"}
    assert 0 <= sequence_accuracy_score(Y, est.predict(X)) <= est.score(X, Y) <= 1
    copy = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(np.concatenate(copy.predict(X)), np.concatenate(est.predict(X)))
    search = GridSearchCV(quick(), {"alpha": [0.01, 1.0]}, cv=KFold(2)).fit(X, Y)
    assert search.best_score_ > 1 / 3


def test_dictionaries_may_be_in_arrays_and_have_numpy_values():
    X = [
        [{"a": np.bool_(True), "w": ["x", "y"]}, {"a": False}],
        [{"a": np.float32(2)}, {"w": np.array(["x"])}],
    ]
    plain = [[{"a": True, "w": ["x", "y"]}, {"a": False}], [{"a": 2.0}, {"w": ["x"]}]]
    Y = [["A", "B"], ["B", "A"]]
    expected = quick().fit(plain, Y)
    est = quick().fit(np.array(X, dtype=object), Y)
    np.testing.assert_array_equal(est.coef_, expected.coef_)
    np.testing.assert_array_equal(np.stack(est.predict(np.array(X, dtype=object))), np.stack(est.predict(X)))


def test_names_alone_have_the_value_one():
    X, Y = [[["w=a", "cap"], ["w=b"]], [["w=b"], ["cap"]]], [["A", "B"], ["B", "A"]]
    ones = [[dict.fromkeys(item, 1) for item in x] for x in X]
    np.testing.assert_array_equal(quick().fit(X, Y).coef_, quick().fit(ones, Y).coef_)


def test_labels_may_be_pandas_series(sequences):
    pd = pytest.importorskip("pandas")
    X, Y = sequences
    names = [np.array(["x", "y", "zz"])[y] for y in Y]
    for labels, kinds in ((names, ("str", "string", "category", object)), (Y, ("Int64", "category"))):
        expected = quick().fit(X, labels)
        for kind in kinds:
            series = [pd.Series(y, dtype=kind) for y in labels]
            est = quick().fit(X, series)
            np.testing.assert_array_equal(est.coef_, expected.coef_)
            assert est.score(X, series) == expected.score(X, labels)
    masked = [np.ma.masked_array(y, y == 2) for y in Y]
    expected = quick().fit(X, masked).coef_
    for missing, dtype in ((pd.NA, "Int64"), (np.nan, object), (pd.NA, object)):
        hidden = [pd.Series([missing if label == 2 else label for label in y], dtype=dtype) for y in Y]
        np.testing.assert_array_equal(quick(missing_label=missing).fit(X, hidden).coef_, expected)
    with pytest.raises(TypeError, match=says(r"y\[0\]", "label <NA>", "all numbers or all strings")):
        quick().fit(X, hidden)


def test_results_do_not_depend_on_n_jobs_or_batches(sequences, monkeypatch):
    X, Y = sequences
    est = quick().fit(X, Y)
    P = est.predict_proba(X)
    for one, x in zip(P, X, strict=True):
        np.testing.assert_array_equal(est.predict_proba([x])[0], one)
    many = [X * 40, Y * 40]
    set_limit(monkeypatch, "sites per batch", 50)
    fits = [quick(n_jobs=n).fit(*many) for n in (1, 2)]
    np.testing.assert_array_equal(fits[0].edge_coef_, fits[1].edge_coef_)
    assert fits[0].edge_coef_.any()


def test_arrays_lists_and_tables_are_accepted(sequences):
    X, Y = sequences
    X, Y = np.stack([x[:2] for x in X if len(x) > 1]), np.stack([y[:2] for y in Y if len(y) > 1])
    est = quick().fit(X, Y)
    assert est.predict_proba(X).shape == (6, 2, 3)
    assert isinstance(est.predict(list(X)), list)
    assert est.predict(X[:, 0]).shape == (6,)  # a table: sequences of one item
    known = np.ma.masked_array(Y, [[False, True]] * 6)
    np.testing.assert_array_equal(est.predict(X, known)[:, 0], Y[:, 0])


def test_class_weights_need_a_loss_that_is_a_sum_over_sites(sequences):
    X, Y = sequences
    with pytest.raises(
        ValueError,
        match=says("class_weight='balanced'", "sum over sites", "Likelihood", "univariate_logistic"),
    ):
        quick(class_weight="balanced").fit(X, Y)
    quick(class_weight="balanced", loss="univariate_logistic").fit(X, Y)


A = np.zeros((3, 2))
DICTS = [[{"a": 1}, {"b": 2}], [{"a": 1}]]
SEQUENCES = r"sequences are \(length, n_features\) .*one sequence is \[sequence\]"
VALUE = "a number, a bool, a string or a list of strings"

#: Sequences and labels that are refused, with the error and its message.
BAD = {
    "no items": (
        [A, []],
        [[0, 1, 0], []],
        ValueError,
        says(r"X\[1\]", "one row per site", r"\(n_sites, n_features\)", r"\(0,\)"),
    ),
    "features": (
        [A, A[:, :1]],
        [[0, 1, 0]] * 2,
        ValueError,
        says(r"X\[1\]", "2 features per site", r"in X\[0\]", "got 1"),
    ),
    "labels": (
        [A, A],
        [[0, 1, 0], [0, 1]],
        ValueError,
        says(r"y\[1\]", r"\(3,\)", r"X\[1\]", r"got \(2,\)", SEQUENCES),
    ),
    "nan": ([A, A + np.nan], [[0, 1, 0]] * 2, ValueError, r"X\[1\] contains NaN"),
    "sparse nan": ([sparse.csr_array(A + np.nan)], [[0, 1, 0]], ValueError, r"X\[0\] contains NaN"),
    "images": (
        [A[None]],
        [[0, 1, 0]],
        ValueError,
        says(r"X\[0\]", "one row per site", r"\(1, 3, 2\)", "PixelWise"),
    ),
    "mixed": (
        [DICTS[0], A],
        [[0, 1], [0, 1, 0]],
        TypeError,
        says(r"X\[1\]", "list of dictionaries", r"in X\[0\]", "got an array"),
    ),
    "mixed the other way": (
        [A, DICTS[0]],
        [[0, 1, 0], [0, 1]],
        TypeError,
        says(r"X\[1\]", "an array", r"in X\[0\]", "got dictionaries"),
    ),
    "nested": (
        [[{"a": {"b": 1}}]],
        [[0]],
        TypeError,
        says(r"X\[0\]\[0\]\['a'\]", VALUE, "a dictionary", "'a:b'"),
    ),
    "no number": ([[{"a": 1}, {"a": None}]], [[0, 1]], TypeError, says(r"X\[0\]\[1\]\['a'\]", VALUE, "None")),
    "numbers": ([[{"a": [1, 2]}]], [[0]], TypeError, says(r"X\[0\]\[0\]\['a'\]", VALUE, r"\[1, 2\]")),
    "complex": ([[{"a": 1j}]], [[0]], TypeError, says(r"X\[0\]\[0\]\['a'\]", VALUE, "1j")),
    "bytes": ([[{"a": b"w"}]], [[0]], TypeError, says(r"X\[0\]\[0\]\['a'\]", VALUE, "b'w'")),
    "nan in one": (
        [[{"a": np.nan}]],
        [[0]],
        ValueError,
        says(r"X\[0\]\[0\]\['a'\]", "finite", "nan", "[Ll]eave out"),
    ),
    "name": ([[{"a": 1, 3: 1}]], [[0]], TypeError, says(r"X\[0\]\[0\]", "strings", "names of features", "3")),
    "no items named": (
        [DICTS[0], []],
        [[0, 1], []],
        TypeError,
        says(r"X\[1\]", "list of dictionaries", r"in X\[0\]", "empty"),
    ),
    "one sequence": (DICTS[0], [0, 1], TypeError, says(r"X\[0\]", "{'a': 1}", SEQUENCES)),
    "one array": (A, [[0, 1, 0]], ValueError, says("y ", r"\(1, 3\)", "table", r"pass \[X\] and \[y\]")),
    "words": ([["the", "dog"]], [[0, 1]], TypeError, says(r"X\[0\]", r"\['the', 'dog'\]", SEQUENCES)),
    "1-D": (
        [A[:, 0], A[:2, 0]],
        [[0, 1, 0], [0, 1]],
        ValueError,
        says(r"X\[1\]", r"\(2,\)", r"X\[0\]", r"\(3,\)", SEQUENCES),
    ),
    "no dictionary": (
        [[{"a": 1}, 3]],
        [[0, 1]],
        TypeError,
        says(r"X\[0\]\[1\]", "dictionary of features", "3"),
    ),
    "sequences of text": (
        ["the dog"],
        [[0, 1]],
        TypeError,
        says(r"X\[0\]", "'the dog'", "sequence of sequences"),
    ),
    "nothing": ([], [], ValueError, says("X ", "at least one sequence")),
    "a generator": (
        (x for x in [A]),
        [[0]],
        TypeError,
        says("X must be a sequence of sequences", "generator"),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_fit_refuses_bad_sequences(case):
    X, Y, error, message = BAD[case]
    with pytest.raises(error, match=message):
        quick().fit(X, Y)


def test_predict_needs_the_kind_of_features_of_the_fit():
    est = quick().fit(DICTS, [["x", "y"], ["x"]])
    with pytest.raises(TypeError, match=says(r"X\[0\]", "list of dictionaries", "in fit", "got an array")):
        est.predict([A])
