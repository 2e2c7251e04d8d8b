"""Iterative methods: each iteration against a reference implementation, fixed points and convergence."""

import fields
import methods
import numpy as np
import pytest
import reference
from engines import edge_weights, monotonic_chains
from numba import config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skcrf.graph import Potentials, lattice, pack
from skcrf.inference import INFERENCE, TRW

# Plain Python is a hundred times slower than compiled kernels.
FEWER = fields.FEW if config.DISABLE_JIT else fields.EVERY
compiled_only = pytest.mark.skipif(config.DISABLE_JIT, reason="too many iterations for plain Python")

CONVERGED = {"max_iter": 5000, "tol": 1e-13, "damping": 0.2}
ITERATIVE = {name: cls for name, cls in methods.LEARNING.items() if "max_iter" in cls().get_params()}

each_method = pytest.mark.parametrize("cls", ITERATIVE.values(), ids=ITERATIVE)


def reference_messages(inference, graph, theta):
    rho = edge_weights(inference, graph)
    mu, edge_mu, _ = reference.trw(graph, theta, rho, inference.max_iter, damping=inference.damping)
    return mu, edge_mu, reference.free_energy(graph, theta, mu, edge_mu, rho)


def reference_chains(inference, graph, theta):
    """Use the schedule and the weights that test_trw_s.py compares with their definition."""
    schedule, rho, inward = monotonic_chains(graph)
    mu, edge_mu, messages = reference.trw(graph._replace(schedule=schedule), theta, rho, inference.max_iter)
    later = graph.edges[np.arange(graph.n_edges), 1 - (inward & 1)]
    return mu, edge_mu, reference.dual(graph, theta, rho, messages, later)


def reference_mean_field(inference, graph, theta):
    mu = reference.mean_field(graph, theta, inference.max_iter)
    return mu, reference.products(graph, mu), reference.mean_field_objective(graph, theta, mu)


#: Marginals and log_z of each method after `max_iter` iterations, by the reference implementations.
REFERENCES = {
    "bp": reference_messages,
    "trw": reference_messages,
    "trw_s": reference_chains,
    "mean_field": reference_mean_field,
}


def free_energy(name, inference, graph, theta, beliefs):
    """Compute log_z from the marginals by its definition."""
    if name == "mean_field":
        return reference.mean_field_objective(graph, theta, beliefs.mu)
    return reference.free_energy(graph, theta, beliefs.mu, beliefs.edge_mu, edge_weights(inference, graph))


def test_every_iterative_method_has_a_reference():
    assert set(REFERENCES) == set(ITERATIVE)


def variants(cls, graph, rng):
    """Yield settings of the parameters that change an iteration."""
    yield {}
    if "damping" in cls().get_params():
        yield {"damping": 0.3}
    if "rho" in cls().get_params():
        yield {"rho": 0.5}
        yield {"rho": 1.0}
        yield {"rho": rng.uniform(0.3, 1.0, size=graph.n_edges)}
        yield {"rho": rng.uniform(0.3, 1.0, size=graph.n_edges), "damping": 0.4}


@pytest.mark.parametrize("draw", [fields.normal, fields.forbidden_unary, fields.forbidden])
@pytest.mark.parametrize("name", ITERATIVE)
def test_truncated_inference_equals_the_reference(name, draw, seed):
    if draw is fields.forbidden and name == "mean_field":
        return  # a factorised distribution need not avoid a forbidden pair
    rng = np.random.default_rng(seed)
    graphs = methods.supported(INFERENCE[name], fields.ANY)
    chosen = fields.with_states(graphs, 2) + fields.with_states(FEWER, 3)
    for title, graph, n_states in chosen:
        theta = draw(graph, n_states, rng)
        for parameters in variants(INFERENCE[name], graph, rng):
            for max_iter in (1, 2, 3) if not parameters else (3,):
                inference = INFERENCE[name](max_iter=max_iter, **parameters)
                with methods.case(title, inference, n_states):
                    beliefs = inference.forward(graph, theta, edges=True)
                    mu, edge_mu, log_z = REFERENCES[name](inference, graph, theta)
                    assert_allclose(beliefs.mu, mu, rtol=1e-9, atol=1e-12)
                    assert_allclose(beliefs.edge_mu, edge_mu, rtol=1e-9, atol=1e-12)
                    assert_allclose(beliefs.log_z, log_z, rtol=1e-9, atol=1e-10)
                    assert_array_equal(beliefs.n_iter, max_iter)
                    assert beliefs.converged.all()


@pytest.mark.parametrize("graph", fields.FEW.values(), ids=fields.FEW)
@pytest.mark.parametrize("name", ITERATIVE)
def test_fixed_point_is_consistent_and_has_its_free_energy(name, graph, seed):
    theta = fields.normal(graph, 2, np.random.default_rng(seed), strength=0.5)
    inference = methods.build(INFERENCE[name], **CONVERGED)
    beliefs = inference.forward(graph, theta, edges=True)
    assert beliefs.converged.all()
    assert (beliefs.n_iter < CONVERGED["max_iter"]).all()
    first, second = graph.edges.T
    assert_allclose(beliefs.edge_mu.sum(axis=2), beliefs.mu[first], rtol=0, atol=1e-10)
    assert_allclose(beliefs.edge_mu.sum(axis=1), beliefs.mu[second], rtol=0, atol=1e-10)
    assert_allclose(
        beliefs.log_z, free_energy(name, inference, graph, theta, beliefs), rtol=1e-11, atol=1e-11
    )
    # truncated inference with more iterations has the same marginals
    again = clone(inference).set_params(max_iter=int(beliefs.n_iter.max()) + 1, tol=0.0)
    assert_allclose(again.forward(graph, theta).mu, beliefs.mu, rtol=0, atol=1e-10)


@each_method
def test_results_without_convergence_are_valid_and_marked(cls, seed):
    graph = pack([fields.SINGLES["no_edges"], fields.SINGLES["complete"], fields.SINGLES["lattice_2x3"]])
    theta = fields.attractive(graph, 2, np.random.default_rng(seed), strength=3.0)
    beliefs = cls(max_iter=2, tol=1e-13).forward(graph, theta, edges=True)
    methods.assert_valid_beliefs(beliefs, graph, 2)
    assert_array_equal(beliefs.converged, [True, False, False])
    assert_array_equal(beliefs.n_iter[1:], 2)
    # the iterations are those of truncated inference
    truncated = cls(max_iter=2).forward(graph, theta, edges=True)
    assert_allclose(beliefs.mu, truncated.mu, rtol=0, atol=1e-12)
    assert_allclose(beliefs.log_z, truncated.log_z, rtol=1e-12, atol=1e-12)


@each_method
def test_larger_tolerance_stops_earlier(cls, seed):
    graph = fields.SINGLES["complete"]
    theta = fields.normal(graph, 2, np.random.default_rng(seed), strength=0.5)
    loose, tight = (methods.build(cls, max_iter=5000, tol=tol).forward(graph, theta) for tol in (1e-3, 1e-12))
    assert loose.converged.all()
    assert tight.converged.all()
    assert loose.n_iter[0] < tight.n_iter[0]
    assert_allclose(loose.mu, tight.mu, rtol=0, atol=1e-1)


@compiled_only
@pytest.mark.parametrize("damping", [0.0, 0.5])
@pytest.mark.parametrize("shape, strength, seed", [((3, 3, 8), 10, 7), ((3, 3, 4), 30, 5)])
def test_results_for_strong_potentials_have_converged_where_marked(shape, strength, seed, damping):
    """Small changes of messages may have a large effect on their product."""
    rng, graph = np.random.RandomState(seed), lattice(*shape)
    theta = Potentials(strength * rng.randn(graph.n_nodes, 2), strength * rng.randn(graph.n_tables, 2, 2))
    beliefs = INFERENCE["trw"](max_iter=100_000, tol=1e-3, damping=damping).forward(graph, theta)
    assert beliefs.converged.all()
    assert beliefs.log_z[0] > reference.log_z(graph, theta)[0]


def test_damping_does_not_reduce_accuracy(seed):
    graph = lattice(4, 4)
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    exact = TRW(tol=1e-12, max_iter=10_000).forward(graph, theta).mu
    for damping in (0.0, 0.5, 0.9):
        beliefs = TRW(tol=1e-4, max_iter=10_000, damping=damping).forward(graph, theta)
        assert beliefs.converged.all()
        assert_allclose(beliefs.mu, exact, atol=1e-3)
