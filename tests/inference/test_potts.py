"""Potts tables, two numbers each: the results of full tables, and derivatives by both numbers."""

import fields
import methods
import numpy as np
import pytest
from derivatives import KINDS, check_backward, draw_cotangent, maker
from engines import (
    FAST,
    assert_close_beliefs,
    assert_close_gradients,
    assert_same_bits,
    cotangents,
    engines_of,
    only_plain_engines,
)
from loss_definitions import able, takes
from numba import config
from numpy.testing import assert_allclose

from skcrf.gradients import Backprop
from skcrf.graph import Potentials, full_tables, full_tables_vjp, lattice, pack, score, score_vjp
from skcrf.inference import BP, INFERENCE, TRW, Exact
from skcrf.losses import LOSSES
from skcrf.training import takes_compact

#: Methods that take Potts tables.
POTTS = {name: cls for name, cls in INFERENCE.items() if "potts" in cls.layouts}
SUMMING = {name: cls for name, cls in POTTS.items() if name in methods.LEARNING}
LABELS = (2, 3, 5) if config.DISABLE_JIT else (2, 3, 5, 21)
compiled_only = pytest.mark.skipif(config.DISABLE_JIT, reason="too large for plain Python")


def draw(graph, n_states, rng, *, strength=1.0, size=1.0):
    """Draw potentials with attractive and repulsive Potts tables."""
    shapes = (graph.n_nodes, n_states), (graph.n_tables, 2)
    unary, tables = (rng.normal(size=shape) for shape in shapes)
    return Potentials(size * unary, size * strength * tables)


def forbid(graph, theta, rng, share=0.4):
    """Forbid states, and pairs of unequal or of equal states, such that a configuration stays possible."""
    n_states = theta.unary.shape[1]
    x = rng.integers(n_states, size=graph.n_nodes)
    unary, tables = (rng.random(part.shape) < share for part in theta)
    unary[np.arange(graph.n_nodes), x] = False
    i, j = graph.edges.T
    tables[graph.edge_table, (x[i] == x[j]).astype(int)] = False
    return Potentials(np.where(unary, -np.inf, theta.unary), np.where(tables, -np.inf, theta.tables))


def assert_same(inference, graph, theta, rng, **options):
    """Compare the results with those of full tables."""
    whole = inference.forward(graph, full_tables(theta), edges=True, tape=True, **options)
    potts = inference.forward(graph, theta, edges=True, tape=True, **options)
    assert_close_beliefs(potts, whole)
    for title, given in cotangents(whole, rng).items():
        found, expected = (inference.backward(beliefs, *given) for beliefs in (potts, whole))
        assert found.tables.shape == theta.tables.shape
        assert_close_gradients(found, full_tables_vjp(expected), err_msg=title)
    found, expected = (inference.statistics(graph, beliefs) for beliefs in (potts, whole))
    assert_close_gradients(found, full_tables_vjp(expected))


def test_full_tables_have_one_number_on_their_diagonal_and_another_beside_it():
    theta = Potentials(np.zeros((2, 3)), np.array([[1.0, 2.0], [0.0, -np.inf]]))
    expected = np.array([1.0 + np.eye(3), np.where(np.eye(3), -np.inf, 0.0)])
    assert_allclose(full_tables(theta).tables, expected)
    assert full_tables(full_tables(theta)).tables.shape == (2, 3, 3)


def test_the_adjoint_of_full_tables_sums_their_entries(seed):
    rng = np.random.default_rng(seed)
    theta = Potentials(np.zeros((2, 4)), rng.normal(size=(3, 2)))
    d_theta = Potentials(theta.unary, rng.normal(size=(3, 4, 4)))
    product = (full_tables_vjp(d_theta).tables * theta.tables).sum()
    assert_allclose(product, (d_theta.tables * full_tables(theta).tables).sum(), rtol=1e-12)


@pytest.mark.parametrize("graph", fields.EVERY.values(), ids=fields.EVERY)
def test_scores_and_their_derivatives(graph, seed):
    rng = np.random.default_rng(seed)
    theta, x = draw(graph, 3, rng), rng.integers(3, size=graph.n_nodes)
    assert_allclose(score(graph, theta, x), score(graph, full_tables(theta), x), rtol=1e-12, atol=1e-12)
    d_score = rng.normal(size=graph.n_examples)
    found, expected = (score_vjp(graph, one, np.eye(3)[x], d_score) for one in (theta, full_tables(theta)))
    assert_close_gradients(found, full_tables_vjp(expected))


@pytest.mark.parametrize("cls, graph", methods.with_graphs(SUMMING, fields.EVERY))
def test_results_are_those_of_full_tables(cls, graph, seed):
    rng = np.random.default_rng(seed)
    for n_states in (2, 3, 5):
        with methods.case(n_states):
            theta = draw(graph, n_states, rng)
            assert_same(methods.build(cls, max_iter=4), graph, theta, rng)
            assert_same(methods.build(cls, max_iter=4), graph, forbid(graph, theta, rng), rng)


@pytest.mark.parametrize("cls, graph", methods.with_graphs(SUMMING, fields.FEW))
@pytest.mark.parametrize("kind", KINDS)
def test_backward_agrees_with_differences(cls, graph, kind, seed):
    rng = np.random.default_rng(seed)
    theta = draw(graph, 3, rng, strength=0.5)
    cotangent = draw_cotangent(graph, 3, rng, kind)
    check_backward(maker(cls, max_iter=3), graph, theta, cotangent)


@pytest.mark.parametrize("name", [name for name, cls in POTTS.items() if "max" in cls.tasks])
@pytest.mark.parametrize("title", fields.EVERY)
def test_maxima_are_those_of_full_tables(name, title, seed):
    graph, rng = fields.EVERY[title], np.random.default_rng(seed)
    if title not in methods.supported(POTTS[name], fields.EVERY):
        return
    inference = methods.build(POTTS[name], max_iter=5)
    for n_states in (2, 3, 5):
        theta = draw(graph, n_states, rng)
        for given in (theta, forbid(graph, theta, rng)):
            potts, whole = (inference.forward(graph, one, 0.0) for one in (given, full_tables(given)))
            assert_allclose(potts.mu, whole.mu)
            assert_allclose(potts.log_z, whole.log_z, rtol=1e-10)
            d_log_z = rng.normal(size=graph.n_examples)
            found, expected = (inference.backward(one, d_log_z=d_log_z) for one in (potts, whole))
            assert_close_gradients(found, full_tables_vjp(expected))


@pytest.mark.parametrize("name", [name for name, cls in POTTS.items() if "mixed" in cls.tasks])
def test_marginal_map_is_that_of_full_tables(name, seed):
    rng, graph = np.random.default_rng(seed), lattice(3, 3)
    inference, theta = methods.build(POTTS[name], max_iter=5), draw(graph, 3, rng)
    tau = (rng.random(graph.n_nodes) < 0.5).astype(float)
    potts, whole = (inference.forward(graph, one, tau) for one in (theta, full_tables(theta)))
    assert_close_beliefs(
        *(one._replace(edge_mu=np.zeros(0)) for one in (potts, whole)),
    )


@pytest.mark.parametrize("n_states", LABELS)
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("rho", [1.0, 0.5, "spanning_trees", 0.7])
def test_lattices_use_their_own_engine(n_states, connectivity, rho, seed):
    rng = np.random.default_rng(seed)
    shapes = [(3, 4), (1, 5)] if config.DISABLE_JIT else [(3, 4), (1, 5), (18, 3), (7, 17)]
    for tied in (True, False):
        graph = pack([lattice(*shape, connectivity=connectivity, tied=tied) for shape in shapes])
        theta = draw(graph, n_states, rng)
        inference = TRW(rho=rho, max_iter=3)
        assert engines_of(inference.forward(graph, theta)) <= FAST
        with methods.case(tied):
            assert_same(inference, graph, theta, rng)
            unary = forbid(graph, theta, rng).unary
            assert_same(inference, graph, theta._replace(unary=unary), rng)


@pytest.mark.parametrize("n_states", LABELS)
def test_lattice_and_plain_engines_find_the_same_maxima(n_states, seed):
    rng, graph = np.random.default_rng(seed), lattice(4, 6, connectivity=8)
    theta = draw(graph, n_states, rng)
    fast = BP(max_iter=4).forward(graph, theta, 0.0)
    with only_plain_engines():
        plain = BP(max_iter=4).forward(graph, full_tables(theta), 0.0)
    assert_allclose(fast.mu, plain.mu)


@pytest.mark.parametrize(
    "tables", [(0.0, -1e4), (1e4, 0.0), (0.0, 100.0), (100.0, 0.0), (-np.inf, 0.0), (0.0, -np.inf)]
)
def test_extreme_tables(tables, seed):
    """Much weaker and much stronger than the unary potentials, in the range of lattice engines and beyond."""
    rng = np.random.default_rng(seed)
    for graph in (lattice(3, 3), lattice(1, 4, tied=False)):
        unary = rng.normal(size=(graph.n_nodes, 4))
        theta = Potentials(unary, np.tile(tables, (graph.n_tables, 1)))
        inference = TRW(rho=1.0 if len(graph.edges) == 3 else 0.5, max_iter=5)
        assert_same(inference, graph, theta, rng)
        if len(graph.edges) == 3:
            exact = Exact().forward(graph, full_tables(theta), edges=True)
            beliefs = inference.forward(graph, theta, edges=True)
            assert_allclose(beliefs.mu, exact.mu, rtol=0, atol=1e-10)
            assert_allclose(beliefs.edge_mu, exact.edge_mu, rtol=0, atol=1e-10)


@compiled_only
def test_large_potentials_give_finite_beliefs_and_derivatives(seed):
    rng = np.random.default_rng(seed)
    for size in (1e4, 300.0, 30.0):
        for graph in (lattice(4, 5, tied=False), lattice(3, 3, connectivity=8), fields.GRAPHS["complete"]):
            theta = draw(graph, 5, rng, size=size)
            for given in (theta, forbid(graph, theta, rng)):
                beliefs = TRW(max_iter=4).forward(graph, given, edges=True, tape=True)
                assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
                assert_allclose(beliefs.edge_mu.sum(axis=(1, 2)), 1, rtol=0, atol=1e-12)
                assert np.isfinite(beliefs.log_z).all()
                for cotangent in cotangents(beliefs, rng).values():
                    for part in TRW().backward(beliefs, *cotangent):
                        assert np.isfinite(part).all()


def test_results_of_an_example_do_not_depend_on_its_batch(seed):
    rng = np.random.default_rng(seed)
    graphs = [lattice(3, 5), fields.SINGLES["cycle"], lattice(4, 2, tied=False), fields.SINGLES["no_edges"]]
    thetas = [draw(graph, 3, rng) for graph in graphs]
    together = Potentials(*(np.concatenate(parts) for parts in zip(*thetas, strict=True)))
    whole, inference = pack(graphs), TRW(max_iter=3)
    beliefs = inference.forward(whole, together, tape=True)
    gradient = inference.backward(beliefs, beliefs.mu)
    nodes = tables = 0
    for graph, theta in zip(graphs, thetas, strict=True):
        alone = inference.forward(graph, theta, tape=True)
        own = slice(nodes, nodes + graph.n_nodes), slice(tables, tables + graph.n_tables)
        assert_same_bits([beliefs.mu[own[0]]], [alone.mu])
        found = inference.backward(alone, alone.mu)
        assert_same_bits(found, [part[rows] for part, rows in zip(gradient, own, strict=True)])
        nodes, tables = own[0].stop, own[1].stop


@pytest.mark.parametrize("loss", [name for name in LOSSES if not LOSSES[name]().reads_tables])
@pytest.mark.parametrize("title", ["mixed", "lattices_untied", "chain"])
def test_losses_are_those_of_full_tables(loss, title, seed):
    graph, rng = fields.GRAPHS[title], np.random.default_rng(seed)
    theta, y = draw(graph, 3, rng), fields.labels(graph, 3, rng)
    for name, cls in POTTS.items():
        if not (able(loss, cls) and takes(loss, graph) and title in methods.supported(cls, fields.GRAPHS)):
            continue
        inference = Backprop().wrap(methods.build(cls, max_iter=5))
        if not takes_compact(LOSSES[loss](), inference):
            continue
        with methods.case(name):
            potts, whole = (LOSSES[loss]()(inference, graph, one, y) for one in (theta, full_tables(theta)))
            assert_allclose(potts[0], whole[0], rtol=1e-10, atol=1e-10)
            assert_close_gradients(potts[1], full_tables_vjp(whole[1]))
