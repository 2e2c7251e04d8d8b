"""Junction trees against enumeration on factors of any arity, and their cost.

Imports private modules: no public name shows the order of elimination and the cache of trees.
"""

import time
from itertools import combinations

import fields
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import (
    Potentials,
    as_factors,
    chain,
    clamp,
    factor_potentials,
    from_factors,
    lattice,
    pack,
    select,
)
from skcrf.inference import Exact, Tree
from skcrf.inference._junction.order import eliminate
from skcrf.inference._junction.tree import junction_tree
from skcrf.inference.exact import induced_cost

FEW = 3 if config.DISABLE_JIT else 12


def draw_graph(rng, n_examples=3, n_nodes=5):
    """Draw examples with factors of all arities up to four, mixed cardinalities, and a shared table."""
    graphs = []
    for _ in range(n_examples):
        scopes = [rng.permutation(n_nodes)[:arity] for arity in rng.permutation([0, 1, 2, 2, 3, 4])]
        scopes.append(scopes[3])  # with the table of the factor that it doubles
        cards = rng.integers(1, 4, size=n_nodes)
        graphs.append(from_factors(cards, scopes, edge_table=[0, 1, 2, 3, 4, 5, 3]))
    return pack(graphs)


def draw_tau(task, n_nodes, rng):
    """Draw a temperature for a task."""
    return {"sum": np.ones(n_nodes), "max": np.zeros(n_nodes)}.get(task, rng.integers(2, size=n_nodes) * 1.0)


def check(graph, theta, tau, *, rtol=1e-10, atol=1e-10):
    """Compare beliefs with enumeration: best states of some nodes, and marginals of the others."""
    beliefs = Exact().forward(graph, theta, tau=tau, edges=True)
    values, choices = reference.marginal_map(graph, theta, tau == 0)
    assert_allclose(beliefs.log_z, values, rtol=rtol, atol=atol)
    x = beliefs.mu.argmax(axis=1)
    for best in choices:
        assert {i: x[i] for i in best[0]} in best
    mu, edge_mu = reference.marginals(graph, clamp(theta, np.where(tau == 0, x, -1)))
    assert_allclose(beliefs.mu, mu, rtol=0, atol=atol)
    assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=atol)
    return beliefs


@pytest.mark.parametrize("task", sorted(Exact.tasks))
def test_factors_agree_with_enumeration(task, seed):
    rng = np.random.default_rng(seed)
    for _ in range(FEW):
        graph = draw_graph(rng)
        check(graph, fields.forbidden(graph, None, rng), draw_tau(task, graph.n_nodes, rng))


@pytest.mark.parametrize("title", ["lattice_2x3", "complete", "mixed"])
def test_marginal_map_on_pairwise_graphs(title, seed):
    rng, graph = np.random.default_rng(seed), fields.GRAPHS[title]
    for draw in (fields.normal, fields.forbidden, fields.constant):
        check(graph, draw(graph, 2, rng), draw_tau("mixed", graph.n_nodes, rng))


@pytest.mark.parametrize("task", sorted(Exact.tasks))
def test_derivatives_on_factor_graphs(task, seed):
    rng = np.random.default_rng(seed)
    graph = draw_graph(rng, 2, n_nodes=4)
    theta, tau = fields.forbidden(graph, None, rng, share=0.2), draw_tau(task, graph.n_nodes, rng)
    beliefs = Exact().forward(graph, theta, tau=tau, edges=True)
    d_mu, d_edge_mu = rng.normal(size=beliefs.mu.shape), rng.normal(size=beliefs.edge_mu.shape)
    d_log_z = rng.normal(size=graph.n_examples)

    def value(graph, theta):
        copies = graph.n_examples // 2
        found = Exact().forward(graph, theta, tau=np.tile(tau, copies), edges=True)
        total = np.tile(d_log_z, copies) * found.log_z
        nodes = (np.tile(d_mu, (copies, 1)) * found.mu).sum(axis=1)
        factors = np.add.reduceat(np.tile(d_edge_mu, copies) * found.edge_mu, graph.belief_ptr[:-1])
        return (
            total
            + np.add.reduceat(nodes, graph.node_ptr[:-1])
            + np.add.reduceat(factors, graph.edge_ptr[:-1])
        )

    check_gradient(Exact().backward(beliefs, d_mu, d_edge_mu, d_log_z), value, graph, theta)


def test_statistics_are_the_derivative_of_log_z(seed):
    rng = np.random.default_rng(seed)
    graph = draw_graph(rng)
    beliefs = Exact().forward(graph, fields.forbidden(graph, None, rng), edges=True)
    expected = Exact().backward(beliefs, d_log_z=np.ones(graph.n_examples))
    for one, other in zip(Exact().statistics(graph, beliefs), expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-12)


def test_infinite_derivatives_at_zero_marginals_are_ignored(seed):
    """A loss may have an infinite derivative where a marginal is zero."""
    rng = np.random.default_rng(seed)
    graph = draw_graph(rng)
    beliefs = Exact().forward(graph, fields.forbidden(graph, None, rng, share=0.5), edges=True)
    plain = [np.where(part > 0, 1.0 + part, 0.0) for part in (beliefs.mu, beliefs.edge_mu)]
    wild = [np.where(part > 0, 1.0 + part, np.inf) for part in (beliefs.mu, beliefs.edge_mu)]
    for one, other in zip(Exact().backward(beliefs, *plain), Exact().backward(beliefs, *wild), strict=True):
        assert_allclose(other, one, rtol=0, atol=1e-12)


@pytest.mark.parametrize("task", sorted(Exact.tasks))
def test_large_potentials(task, seed):
    rng = np.random.default_rng(seed)
    for _ in range(FEW):
        graph = draw_graph(rng)
        theta = fields.extreme(graph, None, rng)
        # rounding errors of 1e4 are about 1e-12
        beliefs = check(graph, theta, draw_tau(task, graph.n_nodes, rng), atol=1e-8)
        ones = np.ones_like(beliefs.mu), np.ones_like(beliefs.edge_mu), np.ones(graph.n_examples)
        assert all(np.isfinite(part).all() for part in Exact().backward(beliefs, *ones))


def test_batch_equals_its_examples_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    graph = draw_graph(rng, 4)
    theta, tau = fields.forbidden(graph, None, rng), draw_tau("mixed", graph.n_nodes, rng)
    whole = Exact().forward(graph, theta, tau=tau, edges=True)
    d_theta = Exact().backward(whole, whole.mu, whole.edge_mu, whole.log_z)
    for example in range(graph.n_examples):
        one, part = select(graph, np.arange(graph.n_examples) == example)
        alone = Potentials(theta.unary[part.nodes], theta.tables[part.entries])
        beliefs = Exact().forward(one, alone, tau=tau[part.nodes], edges=True)
        assert_array_equal(beliefs.mu, whole.mu[part.nodes])
        assert_array_equal(beliefs.edge_mu, whole.edge_mu[part.beliefs])
        assert_array_equal(beliefs.log_z, whole.log_z[part.examples])
        gradient = Exact().backward(beliefs, beliefs.mu, beliefs.edge_mu, beliefs.log_z)
        assert_array_equal(gradient.unary, d_theta.unary[part.nodes])
        assert_array_equal(gradient.tables, d_theta.tables[part.entries])


def test_no_nodes_and_no_free_nodes():
    nothing = from_factors([], [[]])
    assert Exact().forward(nothing, factor_potentials(nothing, [2.5])).log_z == 2.5
    graph, theta = from_factors([3, 2], [[0, 1], []]), [np.arange(6.0), 0.5]
    known = clamp(factor_potentials(graph, theta), np.array([2, 1]))
    beliefs = Exact().forward(graph, known, edges=True)
    assert beliefs.log_z == 5.5
    assert_array_equal(beliefs.edge_mu, [0, 0, 0, 0, 0, 1, 1])
    gradient = Exact().backward(beliefs, d_log_z=np.array([3.0]))
    assert_array_equal(gradient.tables, [0, 0, 0, 0, 0, 3, 3])
    assert_array_equal(gradient.unary, [[0, 0, 3], [0, 3, 0]])


# Elimination orders and trees


def naive_order(neighbours, late, log_card, cost):
    """Greedy elimination by its definition."""
    left, order = set(range(len(late))), []

    def key(i):
        around = neighbours[i] & left
        fill = sum(cost[a] * cost[b] for a, b in combinations(sorted(around), 2) if b not in neighbours[a])
        return late[i], fill, round(log_card[i] + sum(log_card[j] for j in around), 9), i

    while left:
        i = min(left, key=key)
        for a in neighbours[i] & left:
            neighbours[a] |= (neighbours[i] & left) - {a}
        left.remove(i)
        order.append(i)
    return order


@pytest.mark.parametrize("weighted", [False, True])
def test_order_is_min_fill(weighted, seed):
    rng = np.random.default_rng(seed)
    for n_nodes in (1, 4, 12, 25)[: 3 if config.DISABLE_JIT else 4]:
        scopes = [rng.permutation(n_nodes)[: rng.integers(1, 4)] for _ in range(2 * n_nodes)]
        ptr = np.cumsum([0, *(len(scope) for scope in scopes)])
        log_card = rng.integers(1, 4, size=n_nodes) * 1.0  # integers: sums without rounding
        late, cost = rng.integers(2, size=n_nodes), 2**log_card if weighted else np.ones(n_nodes)
        order, _, _ = eliminate(ptr, np.concatenate(scopes), late, log_card, cost, np.inf)
        neighbours = {i: set() for i in range(n_nodes)}
        for scope in scopes:
            for i in scope.tolist():
                neighbours[i] |= set(scope.tolist()) - {i}
        assert order.tolist() == naive_order(neighbours, late, log_card, cost)


def test_memory_error_names_width_entries_and_bytes():
    graph = lattice(4, 4)
    theta = fields.constant(graph, 3, None)
    message = r"max_memory must .* bytes .*example 0, got 1000: .* width is 4, .* 2\*\*7.925 entries"
    with pytest.raises(ValueError, match=message):
        Exact(max_memory=1000).forward(graph, theta)
    assert Exact(max_memory=3**5 * 16 * 8).forward(graph, theta).converged.all()
    if config.DISABLE_JIT:
        return  # planning takes minutes
    wide = lattice(70, 70)
    with pytest.raises(ValueError, match=r"width is at least 6\d"):
        Exact().forward(wide, fields.constant(wide, 2, None))


@pytest.mark.skipif(config.DISABLE_JIT, reason="planning takes minutes")
@pytest.mark.parametrize("shape", [(15, 100), (100, 15)], ids=str)
def test_lattices_have_the_width_of_their_shorter_side(shape):
    graph = lattice(*shape)
    theta = fields.constant(graph, 2, None)
    cost = induced_cost(as_factors(graph, 2), theta._replace(tables=theta.tables.ravel()))
    assert cost.width == 15


@pytest.mark.skipif(config.DISABLE_JIT, reason="planning takes minutes")
@pytest.mark.parametrize("connectivity", [4, 8])
def test_long_lattice_agrees_with_one_of_its_transpose(connectivity, seed):
    """Large enough for an order along the longer side; a tree of another order has the same marginals."""
    rng = np.random.default_rng(seed)
    graph, other = (lattice(*shape, connectivity, tied=False) for shape in ((9, 24), (24, 9)))
    theta = fields.normal(graph, 2, rng)
    place = np.arange(9 * 24).reshape(9, 24).T.ravel()  # the pixel of each pixel of the transpose
    pairs = {tuple(edge): e for e, edge in enumerate(graph.edges.tolist())}
    edges = place[other.edges].tolist()
    tables = [theta.tables[pairs[i, j]] if (i, j) in pairs else theta.tables[pairs[j, i]].T for i, j in edges]
    one = Exact().forward(graph, theta)
    turned = Exact().forward(other, Potentials(theta.unary[place], np.array(tables)))
    assert_allclose(turned.mu, one.mu[place], rtol=0, atol=1e-10)
    assert_allclose(turned.log_z, one.log_z, rtol=1e-12)


def test_known_labels_reduce_the_width():
    graph = lattice(9, 9)
    theta = fields.constant(graph, 2, None)
    y = np.where(np.arange(81) % 9 == 4, 1, -1)  # a column that separates the image
    with pytest.raises(ValueError, match="max_memory"):
        Exact(max_memory=2e4).forward(graph, theta)
    beliefs = Exact(max_memory=2e4).forward(graph, clamp(theta, y))
    assert_allclose(beliefs.log_z, 72 * np.log(2), rtol=1e-12)


def test_induced_cost_predicts_memory():
    graph = from_factors([2] * 6, [[i, (i + 1) % 6] for i in range(6)])
    cost = induced_cost(graph, factor_potentials(graph, [np.zeros(4)] * 6))
    assert (cost.width, cost.log2_largest, cost.is_whole) == (2, 3.0, True)
    beliefs = Exact(max_memory=cost.n_bytes).forward(graph, factor_potentials(graph, [np.zeros(4)] * 6))
    assert_allclose(beliefs.log_z, 6 * np.log(2))
    # nodes 0 and 3 are maximised last, which connects them
    tau = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    assert induced_cost(graph, factor_potentials(graph, [np.zeros(4)] * 6), tau).width == 2


def test_equal_structures_are_planned_once():
    graph = pack([chain(11)] * 50 + [chain(12)] * 50)
    theta = fields.constant(graph, 2, None)
    junction_tree.cache_clear()
    Exact().forward(graph, theta)
    assert junction_tree.cache_info().misses == 2
    Exact().forward(graph, theta)
    assert junction_tree.cache_info().misses == 2


@pytest.mark.skipif(config.DISABLE_JIT, reason="measures compiled kernels")
def test_long_chains_and_narrow_lattices_are_fast(seed):
    rng = np.random.default_rng(seed)
    Exact().forward(chain(3), fields.normal(chain(3), 3, rng))  # compiles
    long, narrow = chain(10_000), lattice(5, 500)
    for graph, limit in ((long, 1.0), (narrow, 1.0)):
        theta = fields.normal(graph, 3, rng)
        start = time.process_time()
        beliefs = Exact().forward(graph, theta)
        assert time.process_time() - start < limit  # about 0.05 s on a laptop
        assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
    theta = fields.normal(long, 3, rng)
    one, other = Exact().forward(long, theta), Tree().forward(long, theta)
    assert_allclose(one.mu, other.mu, rtol=0, atol=1e-10)
    assert_allclose(one.log_z, other.log_z, rtol=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.0, np.array([0.0, 1.0, 1.0])], ids=["sum", "max", "mixed"])
def test_impossible_tables_raise_error(tau):
    graph = from_factors([2, 2, 2], [[0, 1], [1, 2]])
    theta = factor_potentials(graph, [np.full((2, 2), -np.inf), np.zeros((2, 2))])
    with pytest.raises(ValueError, match=r"theta must allow .*, got none in example 0"):
        Exact().forward(graph, theta, tau)
