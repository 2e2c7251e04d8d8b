"""Gibbs sampling against enumeration, within its standard errors."""

import fields
import methods
import numpy as np
import pytest
import reference
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials, chain, lattice, pack
from skcrf.inference import Gibbs
from skcrf.inference.gibbs import colour_nodes
from skcrf.losses import LOSSES

SWEEPS = {"n_samples": 20, "burn_in": 5} if config.DISABLE_JIT else {"n_samples": 1000, "burn_in": 50}


def test_marginals_are_within_standard_errors(seed):
    rng = np.random.default_rng(seed)
    gibbs = Gibbs(**SWEEPS, n_chains=16, random_state=seed)
    for title, graph in fields.FEW.items():
        theta = fields.forbidden_unary(graph, 3, rng)
        with methods.case(title):
            beliefs = gibbs.forward(graph, theta, edges=True)
            mu, edge_mu = reference.marginals(graph, theta)
            errors = gibbs.standard_errors(beliefs)
            assert (np.abs(beliefs.mu - mu) <= 5 * errors + 1e-9).all()
            assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=6 / np.sqrt(16 * SWEEPS["n_samples"]))
            assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
            assert not beliefs.mu[theta.unary == -np.inf].any()


def test_standard_errors_match_errors(seed):
    """Averaged over many fields; more samples reduce both."""
    rng, sizes = np.random.default_rng(seed), []
    graph = pack([lattice(2, 2)] * (5 if config.DISABLE_JIT else 200))
    theta = fields.normal(graph, 2, rng)
    mu, _ = reference.marginals(graph, theta)
    for n_samples in (5, 80):
        gibbs = Gibbs(n_samples, burn_in=20, n_chains=8, random_state=seed)
        beliefs = gibbs.forward(graph, theta)
        errors = gibbs.standard_errors(beliefs)
        ratio = np.sqrt(np.mean((beliefs.mu - mu) ** 2) / np.mean(errors**2))
        assert 0.5 < ratio < 2.0
        sizes.append(errors.mean())
    assert sizes[1] < 0.5 * sizes[0]
    assert np.isnan(gibbs.set_params(n_chains=1).standard_errors(gibbs.forward(graph, theta))).all()


def test_neighbours_have_different_colours():
    for title, graph in fields.EVERY.items():
        colours, order = colour_nodes(graph)
        with methods.case(title):
            first, second = graph.edges.T
            assert (colours[first] != colours[second]).all()
            assert_array_equal(graph.node_example[order], graph.node_example)
            for nodes in np.split(order, graph.node_ptr[1:-1]):
                assert (np.diff(colours[nodes]) >= 0).all()
    assert colour_nodes(lattice(4, 5))[0].max() == 1
    assert colour_nodes(lattice(4, 5, connectivity=8))[0].max() == 3


def test_results_depend_on_seed_but_not_on_batch(seed):
    graph = fields.BATCHES["mixed"]
    theta = fields.normal(graph, 3, np.random.default_rng(seed))
    gibbs = Gibbs(n_samples=5, burn_in=2, random_state=seed)
    whole = gibbs.forward(graph, theta, edges=True)
    for field in ("mu", "edge_mu"):
        again = getattr(gibbs.forward(graph, theta, edges=True), field)
        assert_array_equal(getattr(whole, field), again)
        alone = [getattr(gibbs.forward(*one, edges=True), field) for one in fields.split(graph, theta)]
        assert_array_equal(getattr(whole, field), np.concatenate(alone))
    other = Gibbs(n_samples=5, burn_in=2, random_state=seed + 1).forward(graph, theta)
    assert (other.mu != whole.mu).any()
    # a generator is not advanced, so that the order of batches does not matter
    gibbs.set_params(random_state=np.random.RandomState(seed))
    for _ in range(2):
        assert_array_equal(gibbs.forward(graph, theta).mu, whole.mu)


def test_samples_have_the_marginals_and_start_at_init(seed):
    graph = pack([chain(3)] * (50 if config.DISABLE_JIT else 4000))
    one = fields.normal(chain(3), 2, np.random.default_rng(seed))
    theta = Potentials(
        np.tile(one.unary, (graph.n_examples, 1)), np.tile(one.tables, (graph.n_examples, 1, 1))
    )
    seeds = seed + np.arange(graph.n_examples)
    x = Gibbs().sample(graph, theta, 20, seeds=seeds).reshape(-1, 3)
    mu, _ = reference.marginals(chain(3), one)
    assert_allclose(x.mean(axis=0), mu[:, 1], rtol=0, atol=3 / np.sqrt(len(x)))
    init = np.tile([0, 1, -1], graph.n_examples)
    still = Gibbs().sample(graph, theta, 0, init, seeds)
    assert_array_equal(still[init >= 0], init[init >= 0])
    assert (still >= 0).all()


@pytest.mark.parametrize("draw", [fields.extreme, fields.forbidden])
def test_strong_and_forbidden_potentials_without_nan(draw, seed):
    for title, graph in fields.FEW.items():
        with methods.case(title):
            theta = draw(graph, 3, np.random.default_rng(seed))
            beliefs = Gibbs(n_samples=3, burn_in=1).forward(graph, theta, edges=True)
            assert np.isfinite(beliefs.mu).all()
            assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)


def test_log_z_and_derivatives_raise_error():
    graph = fields.SINGLES["chain"]
    theta = fields.constant(graph, 2, None)
    beliefs = Gibbs(n_samples=1).forward(graph, theta)
    with pytest.raises(ValueError, match="must estimate log_z, got Gibbs"):
        _ = beliefs.log_z
    with pytest.raises(ValueError, match="must have a derivative, got Gibbs"):
        Gibbs().backward(beliefs, d_mu=beliefs.mu)
    for loss in ("likelihood", "univariate_logistic"):
        with pytest.raises(ValueError, match="Gibbs"):
            LOSSES[loss]()(Gibbs(n_samples=1), graph, theta, np.zeros(4, dtype=np.int64))
