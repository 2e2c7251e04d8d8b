"""Likelihood and EM: bounds, gradients, and the second inference of EM."""

import fields
import methods
import numpy as np
import pytest
import reference
import strategies
from derivatives import check_gradient
from loss_definitions import (
    OF_LOG_Z,
    able,
    by_example,
    wrapped,
)
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, pack
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES


def test_likelihood_converged_if_both_parts_did():
    class Doubtful(INFERENCE["bruteforce"]):
        """Inference that does not converge on the second example if labels are clamped."""

        def forward(self, graph, theta, tau=1.0, **options):
            beliefs = super().forward(graph, theta, tau, **options)
            clamped = np.isinf(theta.unary).any()
            return beliefs._replace(converged=np.array([True, not clamped]))

    graph = pack([fields.SINGLES["pair"], fields.SINGLES["pair"]])
    y = np.array([0, 1, 1, -1])
    _, _, converged = LOSSES["likelihood"]()(Doubtful(), graph, fields.constant(graph, 2, None), y)
    assert_array_equal(converged, [True, False])


def test_bound_of_log_z_bounds_the_likelihood(seed):
    """If all labels are known (D13 4.1.1)."""
    rng = np.random.default_rng(seed)
    graph = pack([fields.SINGLES["complete"]] * 5)
    theta = fields.normal(graph, 2, rng)
    y = fields.labels(graph, 2, rng)
    exact = -reference.log_probability(graph, theta, y)
    for cls in (cls for cls in INFERENCE.values() if cls.bound):
        value, _, converged = LOSSES["likelihood"]()(wrapped(cls, max_iter=2000, tol=1e-9), graph, theta, y)
        assert converged.any()
        excess = (value - exact) * {"upper": 1, "lower": -1}[cls.bound]
        assert (excess[converged] >= -1e-6).all()


def test_gradient_of_the_exact_likelihood_is_a_moment_difference(seed):
    """mu(theta) - f(y), D13 Eq 20."""
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES["lattice_2x3"]
    theta = fields.normal(graph, 2, rng)
    y = fields.labels(graph, 2, rng)
    _, gradient, _ = LOSSES["likelihood"]()(wrapped(INFERENCE["bruteforce"]), graph, theta, y)
    mu, edge_mu = reference.marginals(graph, theta)
    expected = Potentials(mu.copy(), np.zeros_like(theta.tables))
    for i in range(graph.n_nodes):
        expected.unary[i, y[i]] -= 1
    for e, (i, j) in enumerate(graph.edges):
        expected.tables[graph.edge_table[e]] += edge_mu[e]
        expected.tables[graph.edge_table[e], y[i], y[j]] -= 1
    assert_allclose(gradient.unary, expected.unary, rtol=0, atol=1e-10)
    assert_allclose(gradient.tables, expected.tables, rtol=0, atol=1e-10)


@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize("name, rho", [("trw", 0.6), ("bp", 1.0), ("mean_field", None)])
def test_likelihood_without_an_iteration(name, rho, hidden, seed):
    """theta . (mu0 - f) + H(mu0) with the initial marginals mu0: D13 7.3, with the sign corrected."""
    rng = np.random.default_rng(seed)
    if config.DISABLE_JIT:
        graph = pack([fields.SINGLES["lattice_2x2"], fields.SINGLES["cycle_tied"]])
    else:
        graph = pack([fields.SINGLES["lattice_2x3"], fields.SINGLES["complete"]])
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng)
    if rho is None:
        mu = reference.mean_field(graph, theta, 0)
        edge_mu = np.array([np.outer(mu[i], mu[j]) for i, j in graph.edges])
    else:
        mu, edge_mu, *_ = reference.trw(graph, theta, rho, 0)
    entropy = reference.free_energy(
        graph, fields.constant(graph, 3, None), mu, edge_mu, 1.0 if rho is None else rho
    )
    f = np.eye(3)[y]
    terms = [(i, theta.unary[i] @ (mu[i] - f[i])) for i in range(graph.n_nodes)]
    for e, (i, j) in enumerate(graph.edges):
        terms.append((i, (theta.tables[graph.edge_table[e]] * (edge_mu[e] - np.outer(f[i], f[j]))).sum()))
    inference, loss = wrapped(INFERENCE[name], max_iter=0, rho=rho), LOSSES["likelihood"]()
    assert_allclose(
        loss(inference, graph, theta, y)[0], by_example(graph, terms) + entropy, rtol=1e-12, atol=1e-12
    )

    y = np.where(rng.random(graph.n_nodes) < hidden, -1, y)
    gradient = loss(inference, graph, theta, y)[1]
    check_gradient(gradient, lambda g, t: loss(inference, g, t, np.resize(y, g.n_nodes))[0], graph, theta)
    if rho is None and hidden == 0:  # mu0 does not depend on theta
        assert_allclose(gradient.unary, mu - f, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", [loss for loss in OF_LOG_Z if LOSSES[loss]().takes_hidden_labels])
def test_fully_labelled_examples_do_not_depend_on_the_batch(loss, seed):
    rng = np.random.default_rng(seed)
    graph = pack([fields.SINGLES["complete"], fields.SINGLES["lattice_2x3"], fields.SINGLES["cycle"]])
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng)
    theta.unary[5, y[5]] -= 10.0  # so that it matters whether the label is hidden
    inference = wrapped(INFERENCE["trw" if able(loss, INFERENCE["trw"]) else "bp"], max_iter=7)
    alone = LOSSES[loss]()(inference, graph, theta, y)
    hidden = np.where(np.arange(graph.n_nodes) == 5, -1, y)
    together = LOSSES[loss]()(inference, graph, theta, hidden)
    for e in (0, 2):
        assert_array_equal(together[0][e], alone[0][e])
        for part, owner in enumerate((graph.node_example, graph.table_example)):
            assert_array_equal(together[1][part][owner == e], alone[1][part][owner == e])
    assert together[0][1] != alone[0][1]


def test_em_is_an_upper_bound_of_the_loss_of_known_labels(seed):
    """TRW bounds the added part from above, mean field the subtracted part from below (D13 4.1.2)."""
    rng = np.random.default_rng(seed)
    graph = pack([fields.SINGLES["complete"]] * 8 + [fields.SINGLES["lattice_2x3"]] * 8)
    strict = 0
    for strength in (0.5, 2.0):
        theta = fields.normal(graph, 2, rng, strength=strength)
        y = fields.labels(graph, 2, rng, hidden=0.6)
        value, _, converged = LOSSES["em"]()(
            wrapped(INFERENCE["trw"], max_iter=3000, tol=1e-9), graph, theta, y
        )
        assert converged.mean() > 0.8
        excess = (value + reference.log_probability(graph, theta, y))[converged]
        assert (excess >= -1e-7).all()
        strict += (excess > 1e-3).sum()
    assert strict > 10


def test_em_with_the_same_inference_equals_the_likelihood(seed):
    rng = np.random.default_rng(seed)
    graph = fields.GRAPHS["mixed"]
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng, hidden=0.4)
    for cls in (INFERENCE["bp"], INFERENCE["mean_field"]):
        method = cls(max_iter=3)
        expected = LOSSES["likelihood"]()(GRADIENTS["backprop"]().wrap(method), graph, theta, y)
        found = LOSSES["em"](clamped=method)(GRADIENTS["backprop"]().wrap(method), graph, theta, y)
        assert_array_equal(found[0], expected[0])
        for one, other in zip(found[1], expected[1], strict=True):
            assert_array_equal(one, other)


def test_em_wraps_its_second_inference_by_the_strategy_of_the_first(seed):
    """Also with a proxy around the first, which sees only the calls of the first."""
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES["lattice_2x3"]
    theta, y = fields.normal(graph, 2, rng), np.array([0, 1, -1, -1, 0, -1])
    strategy = GRADIENTS["backprop"](mode="fixed_point")
    inference = strategy.wrap(INFERENCE["trw"](max_iter=500, tol=1e-10))
    with pytest.raises(ValueError, match=r"clamped.*got MeanField with tol=0"):
        LOSSES["em"](clamped="mean_field")(inference, graph, theta, y)
    loss = LOSSES["em"](clamped=INFERENCE["mean_field"](max_iter=500, tol=1e-10))
    expected = loss(inference, graph, theta, y)
    starts = {}
    for _ in range(2):  # the second time from where the first ended
        resumed = strategies.Resumed(inference, starts)
        found = loss(resumed, graph, theta, y)
        assert resumed.n_calls == len(starts) == 1
        assert_allclose(found[0], expected[0], rtol=0, atol=1e-7)
        assert_allclose(found[1].unary, expected[1].unary, rtol=0, atol=1e-6)
    assert loss.clamped.max_iter == 500


@pytest.mark.parametrize("tol", [0.0, 1e-6])
@pytest.mark.parametrize("name", methods.LEARNING)
def test_em_by_default_iterates_as_the_first_inference_does(name, tol, seed):
    """Every strategy that supports the inference supports the default mean field of EM."""
    rng = np.random.default_rng(seed)
    graph = fields.GRAPHS["chains"]
    theta, y = fields.normal(graph, 2, rng), fields.labels(graph, 2, rng, hidden=0.6)
    inference = methods.build(INFERENCE[name], max_iter=50, tol=tol)
    beside = {"max_iter": 1000, "tol": 1e-8} | inference.get_params()
    explicit = LOSSES["em"](clamped=methods.build(INFERENCE["mean_field"], **beside))
    for strategy in strategies.wrapped(inference).values():
        found, expected = (loss(strategy, graph, theta, y) for loss in (LOSSES["em"](), explicit))
        assert_array_equal(found[0], expected[0])
        assert_array_equal(found[1].tables, expected[1].tables)
        assert found[2].all()
