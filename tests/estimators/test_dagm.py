"""Directed models as estimators: exact likelihoods and samples, hidden labels, errors."""

import pickle
import warnings
from itertools import product
from threading import Barrier

import numpy as np
import pytest
from lazy_sequences import LazyList
from messages import says
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from skcrf import DAGMClassifier, GridDAGMClassifier
from skcrf.inference import INFERENCE, Exact
from skcrf.losses import LOSSES
from skcrf.metrics import SCORERS
from skcrf.models import DirectedModel

EDGES = np.array([[2, 0], [2, 1], [0, 1]])


def graphs(rng, n=40, n_features=2):
    """Draw graphs of three nodes with labels that depend on features and parents."""
    X, Y = [], []
    for _ in range(n):
        x = rng.normal(size=(3, n_features))
        y = np.zeros(3, dtype=int)
        for node in (2, 0, 1):
            parents = EDGES[EDGES[:, 1] == node, 0]
            score = x[node, 0] + sum(1.5 * y[p] - 0.75 for p in parents) + rng.logistic()
            y[node] = int(score > 0) + int(score > 1.5)
        X.append((x, EDGES))
        Y.append(y)
    return X, Y


def images(rng, n=3, shape=(4, 5)):
    Y = rng.integers(2, size=(n, *shape))
    return Y[..., None] + rng.normal(size=(n, *shape, 2)), Y


def test_likelihood_decouples_into_logistic_regressions(seed):
    rng = np.random.default_rng(seed)
    X, Y = graphs(rng)
    alpha = 0.05
    est = DAGMClassifier(alpha=alpha, tol=1e-8, max_iter=500).fit(X, Y)
    # Regress the label of every node on its features and the counts of its parents' labels.
    rows, labels = [], []
    for (x, edges), y in zip(X, Y, strict=True):
        for node in range(3):
            counts = np.bincount(y[edges[edges[:, 1] == node, 0]], minlength=3)
            rows.append(np.concatenate([x[node], counts]))
            labels.append(y[node])
    expected = LogisticRegression(C=1 / (alpha * len(rows)), tol=1e-10, max_iter=5000).fit(rows, labels)
    assert_allclose(est.coef_, expected.coef_[:, :2], atol=1e-5, rtol=0)
    assert_allclose(est.edge_coef_[0].T, expected.coef_[:, 2:], atol=1e-5, rtol=0)
    shift = est.intercept_.mean() - expected.intercept_.mean()
    assert_allclose(est.intercept_ - shift, expected.intercept_, atol=1e-5, rtol=0)


def test_likelihood_of_known_labels_needs_no_inference(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    X, Y = images(rng)

    def forward(*args, **options):
        raise AssertionError("inference was called")

    monkeypatch.setattr(Exact, "forward", forward)
    est = GridDAGMClassifier(inference="exact").fit(X, Y)
    assert est.log_likelihood(X, Y).shape == (3,)
    with pytest.raises(AssertionError, match="inference was called"):
        est.predict(X)


def test_likelihoods_sum_to_one_and_have_the_predicted_marginals(seed):
    rng = np.random.default_rng(seed)
    X, Y = graphs(rng, n=20)
    est = DAGMClassifier(inference="exact").fit(X, Y)
    everything = np.array(list(product(range(3), repeat=3)))
    log_p = est.log_likelihood([X[0]] * len(everything), list(everything))
    p = np.exp(log_p)
    assert_allclose(p.sum(), 1, rtol=1e-12)
    mu = np.stack([[p[everything[:, i] == a].sum() for a in range(3)] for i in range(3)])
    assert_allclose(est.predict_proba(X[:1])[0], mu, atol=1e-10, rtol=0)
    # Hidden labels are summed out, here exactly; without known labels the probability is 1.
    known = np.ma.masked_array([1, 0, 2], mask=[False, True, False])
    nothing = np.ma.masked_array([0, 0, 0], mask=True)
    both = p[(everything[:, 0] == 1) & (everything[:, 2] == 2)].sum()
    assert_allclose(est.log_likelihood([X[0]] * 2, [known, nothing]), [np.log(both), 0.0], atol=1e-10)


def test_samples_have_the_predicted_marginals_and_depend_on_the_seed_only(seed):
    rng = np.random.default_rng(seed)
    X, Y = graphs(rng, n=30)
    Y = [np.array(["a", "b", "c"])[y] for y in Y]
    est = DAGMClassifier(inference="exact").fit(X, Y)
    n = 20_000
    drawn = est.sample(X[:2], n, random_state=seed)
    assert isinstance(drawn, list) and drawn[0].shape == (n, 3)
    shares = (drawn[0][..., None] == est.classes_).mean(axis=0)
    assert_allclose(shares, est.predict_proba(X[:1])[0], atol=5 * np.sqrt(0.25 / n), rtol=0)
    assert (drawn[0] != est.sample([X[0]], n, random_state=seed + 1)[0]).any()
    again = est.set_params(n_jobs=2).sample(X, 3, random_state=seed)
    assert_array_equal(again[0], est.sample(X[:1], 3, random_state=seed)[0])


def test_fit_with_hidden_labels_maximises_their_marginal_likelihood(seed):
    rng = np.random.default_rng(seed)
    X, Y = graphs(rng, n=60)
    hidden = [np.ma.masked_array(y, mask=rng.uniform(size=3) < 0.4) for y in Y]
    est = DAGMClassifier(inference="exact", alpha=1e-3, tol=1e-7, max_iter=500).fit(X, hidden)
    # The objective is the mean log-likelihood of the known labels, and the penalty.
    n_labels = sum((~y.mask).sum() for y in hidden)
    penalty = 0.5 * est.alpha * ((est.coef_**2).sum() + (est.edge_coef_**2).sum())
    expected = -est.log_likelihood(X, hidden).sum() / n_labels + penalty
    assert_allclose(est.loss_curve_[-1], expected, rtol=1e-8)
    for name in ("coef_", "edge_coef_", "intercept_"):
        moved = clone(est).fit(X[:3], hidden[:3])
        vars(moved).update({key: value for key, value in vars(est).items() if key.endswith("_")})
        setattr(moved, name, getattr(est, name) + 0.05 * rng.normal(size=getattr(est, name).shape))
        penalty = 0.5 * est.alpha * ((moved.coef_**2).sum() + (moved.edge_coef_**2).sum())
        assert -moved.log_likelihood(X, hidden).sum() / n_labels + penalty > expected


def test_each_parent_in_a_mesh_has_its_own_weights(seed):
    rng = np.random.default_rng(seed)
    X, Y = images(rng)
    options = {"inference": "exact", "parents": ("above", "left", "above_left"), "edge_features": "contrast"}
    est = GridDAGMClassifier(**options).fit(X, Y)
    assert est.edge_coef_.shape == (6, 2, 2)
    assert est.predict_proba(X).shape == (3, 4, 5, 2)
    assert est.sample(X, 2).shape == (3, 2, 4, 5)
    assert_array_equal(clone(est).set_params(n_jobs=2).fit(X, Y).coef_, est.coef_)
    again = pickle.loads(pickle.dumps(est))
    assert_array_equal(again.predict(X), est.predict(X))
    # In vertical stripes a pixel has the label of the pixel above.
    stripes = np.tile([[0, 1, 1, 0, 1]], (4, 1))
    above = GridDAGMClassifier(parents=["above"]).fit(np.zeros((1, 4, 5, 1)), stripes[None])
    assert above.edge_coef_[0, 0, 0] > above.edge_coef_[0, 0, 1]
    left = GridDAGMClassifier(parents=["left"]).fit(np.zeros((1, 5, 4, 1)), stripes.T[None])
    assert_allclose(left.edge_coef_, above.edge_coef_, atol=1e-6)


def test_rows_of_a_table_are_logistic_regression(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] + rng.logistic(size=60) > 0).astype(int)
    est = DAGMClassifier(alpha=0.01, tol=1e-8, inference="exact").fit(X, y)
    expected = LogisticRegression(C=1 / (0.01 * 60), tol=1e-10, max_iter=1000).fit(X, y)
    found = est.predict_proba(X)
    # Two classes have two rows of weights with a penalty, each half of the difference.
    assert found.shape == (60, 2)
    assert_allclose(est.log_likelihood(X, y), np.log(found[np.arange(60), y]), atol=1e-12)
    assert (est.predict(X) == expected.predict(X)).mean() > 0.9
    assert est.sample(X, 4, random_state=0).shape == (60, 4)


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if "mu" in loss.needs])
def test_losses_of_marginals_can_be_fitted(loss, seed):
    rng = np.random.default_rng(seed)
    X, Y = images(rng, n=2, shape=(2, 3))
    est = GridDAGMClassifier(loss=loss, inference="exact", max_iter=5).set_params(tol=10.0).fit(X, Y)
    assert np.isfinite(est.loss_curve_).all()


@pytest.mark.parametrize(
    "X, message",
    [
        ([(np.zeros((3, 1)), [[0, 1], [1, 2], [2, 0]])], says(r"X\[0\]\[1\]", "cycle", "0 -> 1", "parents")),
        ([(np.zeros((2, 1)), [[0, 1], [1, 0]])], says(r"X\[0\]\[1\]", "cycle (0 -> 1 -> 0|1 -> 0 -> 1)")),
        ([(np.zeros((2, 1)), [[1, 1]])], says(r"X\[0\]\[1\]", "cycle 1 -> 1")),
        ([(np.zeros((2, 1)), [[0, 1], [0, 1]])], says(r"X\[0\]\[1\]\[1\]", r"\[0, 1\]", r"\[1\]\[0\]")),
    ],
)
def test_errors_name_cycles_and_repeated_edges(X, message):
    with pytest.raises(ValueError, match=message):
        DAGMClassifier().fit(X, [np.arange(len(X[0][0])) % 2])


def test_callbacks_see_every_iteration(seed):
    X, Y = images(np.random.default_rng(seed))
    monitor = ScoringMonitor(scoring=SCORERS["accuracy"])
    est = GridDAGMClassifier(tol=1e-2).set_callbacks(monitor).fit(X, Y)
    iterations = [row for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(iterations) == est.n_iter_ > 0


def test_lazy_examples_give_the_fit_samples_and_likelihoods_of_examples_in_memory(seed):
    X, Y = images(np.random.default_rng(seed))
    est = GridDAGMClassifier(tol=1e-2).fit(X, Y)
    lazy = clone(est).fit(LazyList(list(X)), LazyList(list(Y)))
    assert_allclose(lazy.coef_, est.coef_, atol=1e-12)
    assert_array_equal(lazy.sample(LazyList(list(X)), 2, random_state=0), est.sample(X, 2, random_state=0))
    assert_allclose(lazy.log_likelihood(LazyList(list(X)), Y), est.log_likelihood(X, Y), rtol=1e-12)


def test_partial_fit_lowers_the_objective(seed):
    X, Y = images(np.random.default_rng(seed))
    est = GridDAGMClassifier(optimizer="adam").partial_fit(X, Y).partial_fit(X, Y)
    assert est.loss_curve_[1] < est.loss_curve_[0]


@pytest.mark.parametrize("parents", [[], ["below"], ["left", "left"]])
def test_parents_must_be_known_and_distinct(parents):
    with pytest.raises(ValueError, match=says("parents must be some of", "'above_left'", "got")):
        GridDAGMClassifier(parents=parents).fit(np.zeros((1, 2, 2)), [[[0, 1], [0, 1]]])


@pytest.mark.parametrize("inference", ["tree", "trw_s"])
def test_inferences_without_factors_are_refused_before_the_fit(inference):
    X, Y = np.zeros((2, 3, 3)), np.indices((2, 3, 3)).sum(axis=0) % 2
    with pytest.raises(ValueError, match=says("'pairwise'", "'factor'", INFERENCE[inference].__name__)):
        GridDAGMClassifier(inference=inference).fit(X, Y)


@pytest.mark.parametrize("parents", [("above", "left"), ("left", "above"), ("above",)])
def test_factors_of_meshes_have_the_shapes_of_their_images(parents):
    """From these, exact inference derives an order of elimination."""
    X, Y = images(np.random.default_rng(0))
    est = GridDAGMClassifier(parents=parents, max_iter=2, tol=10.0).fit(X, Y)
    for given in (None, np.ma.masked_array(Y, Y == 0)):
        for factors, _ in est.potentials(X, given):
            assert_array_equal(factors.shapes, [[4, 5]])


class NeverConverges(Exact):
    """Exact inference that reports not to have converged."""

    def forward(self, *args, **options):
        beliefs = super().forward(*args, **options)
        return beliefs._replace(converged=np.zeros_like(beliefs.converged))


def test_likelihoods_warn_only_if_inference_is_needed_and_does_not_converge(seed):
    """In a batch with other examples, too."""
    X, Y = graphs(np.random.default_rng(seed))
    est = DAGMClassifier(NeverConverges(), tol=10.0).fit(X, Y)
    complete, nothing = np.ma.masked_array(Y[0], mask=False), np.ma.masked_array(Y[0], mask=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert est.log_likelihood(X[:2], [complete, nothing])[1] == 0.0
    partly = np.ma.masked_array(Y[0], mask=[True, False, False])
    with pytest.warns(ConvergenceWarning, match="NeverConverges did not converge"):
        est.log_likelihood(X[:2], [complete, partly])


def test_threads_share_the_batches_of_a_sample(monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = images(rng, n=3, shape=(46, 46))  # larger than half a batch
    est = GridDAGMClassifier(max_iter=2).set_params(tol=10.0).fit(X, Y)
    drawn = est.sample(X, 2, random_state=0)
    assert_array_equal(est.sample(X[:1], 2, random_state=0), drawn[:1])
    together, draw = Barrier(3), DirectedModel.sample

    def waiting(self, *args):
        together.wait(timeout=60)
        return draw(self, *args)

    monkeypatch.setattr(DirectedModel, "sample", waiting)
    assert_array_equal(est.set_params(n_jobs=3).sample(X, 2, random_state=0), drawn)
