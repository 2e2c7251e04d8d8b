"""Fits and predictions with hidden variables and hidden labels."""

from copy import copy

import numpy as np
import pytest
from margin_problems import quietly
from numpy.testing import assert_array_equal

from skcrf import GraphCRFClassifier, GridCRFClassifier
from skcrf.inference import Exact
from skcrf.optimizers import CCCP


@pytest.fixture(scope="module")
def latent():
    """Make graphs of two labelled leaves around a hidden node."""
    rng = np.random.RandomState(0)
    edges, hidden = np.array([[0, 2], [1, 2]]), np.array([False, False, True])
    X, Y = [], []
    for _ in range(40):
        y = rng.randint(2)
        features = np.zeros((3, 3))
        features[[0, 1], 0] = 2 * y - 1 + rng.normal(scale=1.0, size=2)
        features[:, 1], features[2, 2] = 1 - hidden, 1
        X.append((features, edges, hidden))
        Y.append(np.ma.masked_array([y, y, 0], hidden))
    return X, Y


@pytest.mark.parametrize(
    "loss, decoding", [("likelihood", "mpm"), ("latent_hinge", "map"), ("marginal_hinge", "marginal_map")]
)
def test_hidden_variables_are_learned_and_decoded_as_the_loss_suggests(latent, loss, decoding, monkeypatch):
    X, Y = latent
    est = GraphCRFClassifier("exact", loss, optimizer="subgradient", max_iter=30, random_state=0)
    quietly(est, X, Y)
    assert est.score(X, Y) > 0.8
    temperatures, forward = [], Exact.forward

    def recorded(self, graph, theta, tau=None, **options):
        temperatures.append(np.broadcast_to(tau, graph.n_nodes))
        return forward(self, graph, theta, tau, **options)

    monkeypatch.setattr(Exact, "forward", recorded)
    expected = {"mpm": [1.0, 1.0, 1.0], "map": [0.0, 0.0, 0.0], "marginal_map": [0.0, 0.0, 1.0]}[decoding]
    est.predict(X[:1])
    assert_array_equal(temperatures, [expected])


def test_hidden_variables_are_summed_out_in_prediction(latent):
    """The labels have the largest sum over the states of the hidden node."""
    X, Y = latent
    est = quietly(GraphCRFClassifier("exact", "likelihood", max_iter=1, decoding="marginal_map"), X, Y)
    est.coef_, est.intercept_ = np.array([[-0.5, 0.0, 0.0], [0.5, 0.0, -0.4]]), np.zeros(2)
    est.edge_coef_ = np.array([[[1.5, 0.0], [0.0, 1.6]]])
    table, n_differ = est.edge_coef_[0], 0
    for x, labels in zip(X, est.predict(X), strict=True):
        unary = x[0] @ est.coef_.T
        joint = unary[0][:, None, None] + unary[1][None, :, None] + unary[2] + table[:, None] + table[None]
        summed = np.log(np.exp(joint).sum(axis=2))
        assert tuple(labels[:2]) == np.unravel_index(summed.argmax(), (2, 2))
        n_differ += np.unravel_index(joint.argmax(), (2, 2, 2))[:2] != tuple(labels[:2])
    assert n_differ > 0
    visible = [x[:2] for x in X]  # without hidden nodes, all are maximised
    assert_array_equal(est.predict(visible), est.set_params(decoding="map").predict(X))


def test_hidden_variables_can_be_given_as_a_list(latent):
    X, Y = latent
    est = quietly(GraphCRFClassifier("exact", "marginal_hinge", optimizer="subgradient", max_iter=3), X, Y)
    assert_array_equal(est.predict([(*x[:2], x[2].tolist()) for x in X]), est.predict(X))


def test_predictions_with_hidden_variables_do_not_depend_on_the_batch(latent):
    X, Y = latent
    est = quietly(GraphCRFClassifier("bp", "marginal_hinge", optimizer="subgradient", max_iter=3), X, Y)
    some = [X[0][:2], *X[1:]]
    together = est.predict(some)
    for i in (0, 1):
        assert_array_equal(together[i], est.predict(some[i : i + 1])[0])


def test_invalid_hidden_variables_raise_an_error(latent):
    X, Y = latent
    est = GraphCRFClassifier("bp")
    with pytest.raises(ValueError, match=r"y\[1\]\[2\] must be masked, as X marks the node as a hidden"):
        est.fit(X, [Y[0], np.zeros(3, dtype=int), *Y[2:]])
    with pytest.raises(ValueError, match=r"X\[0\]\[2\] must have one boolean per node, .* got shape \(2,\)"):
        est.fit([(*X[0][:2], np.array([True, False]))], Y[:1])
    with pytest.raises(TypeError, match=r"X\[0\]\[3\] must be an array of booleans"):
        est.fit([(*X[0][:2], np.ones((2, 1)), np.ones(3))], Y[:1])
    with pytest.raises(ValueError, match="must have no hidden labels for Hinge"):
        est.set_params(loss="hinge").fit(X, Y)
    with pytest.raises(
        ValueError, match=r"inference must .*sum over others for decoding='marginal_map', got Tree"
    ):
        GraphCRFClassifier("tree", decoding="marginal_map").fit(X, Y)
    with pytest.raises(ValueError, match="'decoding' parameter") as error:
        GraphCRFClassifier("exact", decoding="nonsense").fit(X, Y)
    assert {
        name for name in ("auto", "mpm", "map", "marginal_map") if f"'{name}'" not in str(error.value)
    } == set()


@pytest.fixture(scope="module")
def bands():
    """Make images of three bands with strong noise and most labels hidden."""
    rng, truth = np.random.RandomState(0), np.repeat([0, 2, 1], 4)[None] + np.zeros((6, 1), dtype=int)
    X = [(truth + rng.normal(scale=1.2, size=truth.shape))[..., None] for _ in range(3)]
    return X, [np.ma.masked_array(truth, rng.rand(*truth.shape) < 0.6) for _ in X], truth


@pytest.mark.parametrize("loss", ["latent_hinge", "marginal_hinge"])
@pytest.mark.parametrize("inference", ["bp", "trw"])
def test_fits_with_hidden_labels_are_not_worse_than_the_start(bands, inference, loss):
    X, Y, truth = bands
    start = quietly(GridCRFClassifier(symmetric=True, alpha=0.01, max_iter=20), X, Y)
    est = GridCRFClassifier(inference, loss, optimizer=CCCP(inner_iter=30), symmetric=True, init=start)
    est = quietly(est.set_params(alpha=0.01, max_iter=2), X, Y)
    assert min(est.loss_curve_) >= 0
    begun = copy(est)
    begun.coef_, begun.intercept_, begun.edge_coef_ = start.coef_, start.intercept_, start.edge_coef_
    assert est.score(X, Y) >= begun.score(X, Y)
    if inference == "trw":
        assert est.score(X, [truth] * 3) > 0.85
