"""GraphCRFClassifier: graphs of any shape, symmetric or directed weights, errors."""

import numpy as np
import pytest
from lazy_sequences import LazyList
from limits import set_limit
from messages import says
from reference import best_configurations, marginals
from scipy import sparse

from skcrf import ChainCRFClassifier, DAGMClassifier, GraphCRFClassifier, GridCRFClassifier
from skcrf.datasets import make_potts
from skcrf.graph import Potentials, chain, from_edges, lattice
from skcrf.inference import BP, TRW, BruteForce, Tree

TRIANGLE = np.array([[0, 1], [1, 2], [2, 0]])


def make_graphs(n_edge_features=0, seed=0):
    """Make a cycle with a tail, graphs with an isolated node, without edges, and with one node."""
    rng = np.random.default_rng(seed)
    edges = [[*TRIANGLE, [3, 2]], [[4, 0], [1, 3]], np.zeros((0, 2)), [], [[1, 0]]]
    sizes = [4, 5, 3, 1, 2]
    X, Y = [], []
    for n, pairs in zip(sizes, edges, strict=True):
        y = rng.integers(3) * np.ones(n, dtype=int)
        y[-1] = rng.integers(3)
        x = np.eye(3)[y] + rng.normal(size=(n, 3))
        features = [rng.normal(size=(len(pairs), n_edge_features))] if n_edge_features else []
        X.append((x, np.array(pairs), *features))
        Y.append(y)
    return X, Y


def quick(**params):
    return GraphCRFClassifier(**{"max_iter": 40, "tol": 1e-2, "alpha": 0.05, **params})


def problem(est, x):
    """Return the graph and the potentials of an example by the definition, with one table per edge."""
    nodes, edges, *features = x
    values = features[0] if features else np.ones((len(edges), 1))
    unary = np.array([est.coef_ @ row + est.intercept_ for row in nodes])
    tables = np.array([np.tensordot(v, est.edge_coef_, axes=1) for v in values]).reshape(-1, 3, 3)
    return from_edges(len(nodes), np.array(edges, dtype=int).reshape(-1, 2)), Potentials(unary, tables)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("n_edge_features", [0, 2])
def test_predictions_agree_with_enumeration(n_edge_features, directed):
    X, Y = make_graphs(n_edge_features)
    est = quick(symmetric=not directed, inference=BruteForce(), loss="likelihood").fit(X, Y)
    assert est.edge_coef_.shape == (max(1, n_edge_features), 3, 3)
    assert est.n_edge_features_in_ == n_edge_features
    best = est.set_params(decoding="map").predict(X)
    for x, p, edge_p, labels in zip(X, est.predict_proba(X), est.predict_edge_proba(X), best, strict=True):
        mu, edge_mu = marginals(*problem(est, x))
        np.testing.assert_allclose(p, mu, atol=1e-10)
        np.testing.assert_allclose(edge_p, edge_mu, atol=1e-10)
        assert best_configurations(*problem(est, x)) == [{tuple(labels)}]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_symmetric_weights_ignore_the_direction_of_edges(optimizer):
    X, Y = make_graphs()
    turned = [(x, np.array(edges)[:, ::-1] if len(edges) else edges) for x, edges in X]
    params = {"optimizer": optimizer, "max_iter": 10, "random_state": 0}
    est = quick(**params).fit(X, Y)
    np.testing.assert_array_equal(est.edge_coef_, est.edge_coef_.transpose(0, 2, 1))
    assert est.edge_coef_.any()
    for p, q in zip(est.predict_proba(X), quick(**params).fit(turned, Y).predict_proba(turned), strict=True):
        np.testing.assert_allclose(p, q, atol=1e-9)
    directed = quick(symmetric=False, **params).fit(X, Y)
    assert np.abs(directed.edge_coef_ - directed.edge_coef_.transpose(0, 2, 1)).max() > 1e-3
    start = quick(init=directed, max_iter=1).fit(X, Y)  # from weights that are not symmetric
    np.testing.assert_array_equal(start.edge_coef_, start.edge_coef_.transpose(0, 2, 1))


def test_chains_and_lattices_have_the_weights_of_their_graphs():
    rng = np.random.default_rng(0)
    Y = [(rng.integers(2) + np.arange(n)) % 2 for n in (4, 3, 5)]
    X = [y[:, None] + rng.normal(size=(len(y), 1)) for y in Y]
    params = {"inference": Tree(), "loss": "likelihood", "alpha": 0.1, "tol": 1e-8}
    sequence = ChainCRFClassifier(**params).fit(X, Y)
    graph = GraphCRFClassifier(symmetric=False, **params).fit([(x, chain(len(x)).edges) for x in X], Y)
    np.testing.assert_allclose(graph.edge_coef_, sequence.edge_coef_, atol=1e-6)
    X, Y = make_potts(n_images=3, shape=(3, 4), n_classes=2, random_state=0)
    # The default edge weights of general graphs are not those of lattices.
    params = {"inference": TRW(rho=0.5, max_iter=200, tol=1e-10), "alpha": 0.1, "tol": 1e-8}
    grid = GridCRFClassifier(**params).fit(X, Y)
    field = lattice(3, 4)
    direction = np.eye(2)[field.table_group[field.edge_table]]
    pixels = [(x.reshape(12, -1), field.edges, direction) for x in X]
    graph = GraphCRFClassifier(symmetric=False, **params).fit(pixels, [y.ravel() for y in Y])
    np.testing.assert_allclose(graph.edge_coef_, grid.edge_coef_, atol=1e-5)


def test_hidden_labels_are_left_out_and_inferred_from_known_ones():
    X, Y = make_graphs()
    hidden = [np.arange(len(y)) == 0 for y in Y]
    masked = [np.ma.masked_array(y, h) for y, h in zip(Y, hidden, strict=True)]
    marked = [np.where(h, -7, y) for y, h in zip(Y, hidden, strict=True)]
    est = quick().fit(X, masked)
    np.testing.assert_array_equal(est.coef_, quick(missing_label=-7).fit(X, marked).coef_)
    for p, y, h in zip(est.predict_proba(X, masked), Y, hidden, strict=True):
        np.testing.assert_allclose(p[~h], np.eye(3)[y[~h]], atol=1e-12)
    free, given = est.predict_proba(X)[0][0], est.predict_proba(X, masked)[0][0]
    assert np.abs(free - given).max() > 1e-3


def test_results_do_not_depend_on_n_jobs_or_batches(monkeypatch):
    X, Y = make_graphs(2)
    est = quick(symmetric=False).fit(X, Y)
    for x, p in zip(X, est.predict_proba(X), strict=True):
        np.testing.assert_array_equal(est.predict_proba([x])[0], p)
    set_limit(monkeypatch, "sites per batch", 20)
    fits = [quick(n_jobs=n).fit(X * 20, Y * 20) for n in (1, 2)]
    np.testing.assert_array_equal(fits[0].edge_coef_, fits[1].edge_coef_)
    assert fits[0].edge_coef_.any()


@pytest.mark.parametrize("n_edge_features", [0, 2])
def test_graphs_may_be_in_any_container(n_edge_features):
    X, Y = make_graphs(n_edge_features)
    est = quick().fit(X, Y)
    P = est.predict(X)
    assert isinstance(P, list)
    array = np.empty(len(X), dtype=object)
    array[:] = X
    rows = np.array([[*x] for x in X], dtype=object)  # as NumPy converts ragged tuples
    for given in (array, rows, LazyList(X), [list(x) for x in X], tuple(X)):
        assert type(est.predict(given)) is (np.ndarray if isinstance(given, np.ndarray) else list)
        np.testing.assert_array_equal(np.concatenate(est.predict(given)), np.concatenate(P))
    np.testing.assert_allclose(
        quick().fit(LazyList(X), LazyList(Y)).edge_coef_, est.edge_coef_, rtol=1e-6, atol=1e-9
    )
    some = [(sparse.csr_array(nodes), *rest) for nodes, *rest in X]
    np.testing.assert_allclose(quick().fit(some, Y).coef_, est.coef_, atol=1e-6)
    assert est.score(X, Y) > 0.5
    assert 0 < GraphCRFClassifier(inference=BP(max_iter=3), tol=0.1).fit(X, Y).score(X, Y) <= 1


A = np.zeros((3, 2))
E = TRIANGLE[:2]
TUPLES = r"graphs are tuples .*one graph is \[graph\]"

#: Graphs that are refused, with the error and its message.
BAD = {
    "turned": (
        (A, TRIANGLE.T),
        ValueError,
        says(r"X\[0\]\[1\]", r"\(n_edges, 2\)", r"\(2, 3\)", r"edges\.T\?"),
    ),
    "flat": ((A, [0, 1]), ValueError, says(r"X\[0\]\[1\]", "two nodes per edge", r"\(2,\)")),
    "outside": ((A, [[0, 3]]), ValueError, says(r"X\[0\]\[1\]\[0\]", r"\[0, 3\]", "3 nodes", "0 to 2")),
    "negative": ((A, [[0, -1]]), ValueError, says(r"X\[0\]\[1\]\[0\]", r"\[0, -1\]", "3 nodes", "0 to 2")),
    "floats": (
        (A, [[0.0, 1.0]]),
        TypeError,
        says(r"X\[0\]\[1\]", "integers", "float64", r"\(node_features, edges, edge_features\)"),
    ),
    "loop": ((A, [[0, 1], [2, 2]]), ValueError, says(r"X\[0\]\[1\]\[1\]", "node 2", "Drop self-loops")),
    "twice": (
        (A, [[0, 1], [1, 2], [0, 1]]),
        ValueError,
        says(r"X\[0\]\[1\]\[2\]", r"\[0, 1\]", r"same two nodes as .*X\[0\]\[1\]\[0\]", "np.unique"),
    ),
    "both ways": (
        (A, [[0, 1], [1, 2], [2, 1]]),
        ValueError,
        says(r"X\[0\]\[1\]\[2\]", r"\[2, 1\]", r"same two nodes as .*X\[0\]\[1\]\[1\]", "np.unique"),
    ),
    "edge features": (
        (A, E, np.zeros((3, 1))),
        ValueError,
        says(r"X\[0\]\[2\]", r"\(2, n_edge_features\)", r"\(3, 1\)"),
    ),
    "one feature": (
        (A, E, np.zeros(2)),
        ValueError,
        says(r"X\[0\]\[2\]", r"\(2,\)", r"Did you mean edge_features\[:, None\]\?"),
    ),
    "nan on edges": ((A, E, np.full((2, 1), np.nan)), ValueError, r"X\[0\]\[2\] contains NaN"),
    "nan": ((A + np.nan, E), ValueError, r"X\[0\]\[0\] contains NaN"),
    "no nodes": ((A[:0], []), ValueError, says(r"X\[0\]\[0\]", "at least one site", r"\(0, 2\)")),
    "an array": (A, TypeError, says(r"X\[0\]", r"\(3, 2\)", TUPLES)),
    "five parts": ((A, E, np.zeros((2, 1)), 1, 1), TypeError, says(r"X\[0\]", "tuple of 5", TUPLES)),
    "1-D nodes": (
        (A[:, 0], E),
        TypeError,
        says(r"X\[0\]\[0\]", r"\(3,\)", r"node features \(n_nodes, n_features\)", TUPLES),
    ),
    "dictionaries": (([{"a": 1}] * 3, E), TypeError, says(r"X\[0\]\[0\]", "array of numbers")),
    "sparse edges": (
        (A, sparse.eye_array(3)),
        TypeError,
        says(r"X\[0\]\[1\]", "sparse matrix", "two nodes per edge", "nonzero"),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_fit_refuses_bad_graphs(case):
    example, error, message = BAD[case]
    with pytest.raises(error, match=message):
        quick().fit([example, (A, E)], [[0, 1, 0]] * 2)
    if isinstance(example, tuple) and len(example) < 5:
        with pytest.raises(error, match=message):
            quick().fit([example], [[0, 1, 0]])


@pytest.mark.parametrize("estimator", [GraphCRFClassifier, DAGMClassifier])
def test_graphs_without_edges_need_no_edge_features(estimator):
    X, Y = make_graphs(2)
    X = [(x, edges[[0]], features[[0]]) if len(edges) else (x, edges, features) for x, edges, features in X]
    expected = estimator(tol=1e-2).fit(X, Y)
    order = [2, 3, 0, 1, 4]  # those without edges first
    for rest in ([[]], [[], []], [np.zeros((0, 2)), np.zeros((0, 2))]):
        some = [x if len(x[1]) else (x[0], *rest) for x in X]
        est = estimator(tol=1e-2).fit([some[i] for i in order], [Y[i] for i in order])
        assert est.n_edge_features_in_ == 2
        np.testing.assert_allclose(est.edge_coef_, expected.edge_coef_, atol=1e-6)
        np.testing.assert_array_equal(
            np.concatenate(expected.predict(some)), np.concatenate(expected.predict(X))
        )
    with pytest.raises(ValueError, match=says(r"X\[2\]", "2 features per edge", r"in X\[1\]", "got none")):
        estimator().fit([(A, []), (A, E, np.zeros((2, 2))), (A, E)], [[0, 1, 0]] * 3)


def test_n_samples_may_be_a_numpy_integer():
    est = DAGMClassifier(tol=1e-2).fit([(A, E)], [[0, 1, 0]])
    assert est.sample([(A, E)], np.int64(2), random_state=0)[0].shape == (2, 3)


def test_graphs_must_have_the_same_features():
    with_features = (A, E, np.zeros((2, 4)))
    with pytest.raises(ValueError, match=says(r"X\[1\]\[0\]", "2 features per site", r"in X\[0\]", "got 1")):
        quick().fit([(A, E), (A[:, :1], E)], [[0, 1, 0]] * 2)
    with pytest.raises(ValueError, match=says(r"X\[1\]", "no features per edge", r"in X\[0\]", "got 4")):
        quick().fit([(A, E), with_features], [[0, 1, 0]] * 2)
    est = quick().fit([with_features], [[0, 1, 0]])
    with pytest.raises(ValueError, match=says(r"X\[0\]", "4 features per edge", "in fit", "got none")):
        est.predict([(A, E)])
    with pytest.raises(ValueError, match=says(r"y\[0\]", r"\(3,\)", r"X\[0\]", r"got \(2,\)", TUPLES)):
        quick().fit([(A, E)], [[0, 1]])
    with pytest.raises(TypeError, match=says(r"X\[0\]", r"\(3, 2\)", TUPLES)):
        quick().fit((A, E), [[0, 1, 0]])


def test_errors_of_inference_name_the_index_of_the_example():
    rng = np.random.default_rng(0)
    path = np.stack([np.arange(14), np.arange(1, 15)], axis=1)
    X = [(rng.normal(size=(15, 2)), path) for _ in range(200)]
    X[150] = (X[150][0], np.concatenate([path, [[0, 14]]]))  # in the second batch
    Y = [rng.integers(2, size=15) for _ in X]
    crf = GraphCRFClassifier(inference="tree", n_jobs=2)
    with pytest.raises(ValueError, match=says("Tree", "example 150", "cycle")):
        crf.fit(X, Y)
    crf.fit(X[:150], Y[:150])
    with pytest.raises(ValueError, match=says("Tree", "example 149", "cycle")):
        crf.predict_proba(X[1:])


def test_hidden_variables_must_be_booleans():
    graph = np.zeros((3, 1)), np.array([[0, 2], [1, 2]]), [0, 0, 1]
    with pytest.raises(ValueError, match=says(r"X\[0\]\[2\]", r"\(3,\)", "booleans, one per node")):
        GraphCRFClassifier().fit([graph], [[0, 1, 0]])
