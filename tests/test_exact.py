"""Junction trees are held to enumeration on factors of any arity, and to what they say they cost."""

import time
from itertools import combinations, product

import numpy as np
import pytest
import zoo
from derivatives import check_gradient
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials, chain, clamp, factor_potentials, from_factors, lattice, pack, select
from skcrf.inference import Exact, Tree
from skcrf.inference._elimination import eliminate
from skcrf.inference._junction import junction_tree
from skcrf.inference.exact import induced_cost

FEW = 3 if config.DISABLE_JIT else 12


def draw_model(rng, *, share=0.3, strength=1.0, n_nodes=5):
    """A factor graph with all arities up to four, mixed cardinalities, and a table that is shared; theta."""
    cards = rng.integers(1, 4, size=n_nodes)
    scopes = [rng.permutation(n_nodes)[:arity] for arity in rng.permutation([0, 1, 2, 2, 3, 4])]
    scopes.append(scopes[3])  # with the table of the factor that it doubles
    graph = from_factors(cards, scopes, edge_table=[0, 1, 2, 3, 4, 5, 3])
    theta = factor_potentials(
        graph,
        [strength * rng.normal(size=cards[scope].prod()) for scope in scopes[:6]],
        [strength * rng.normal(size=card) for card in cards],
    )
    off = Potentials(*(rng.random(part.shape) < share for part in theta))
    x = rng.integers(cards)  # a configuration that stays possible
    off.unary[np.arange(n_nodes), x] = False
    for factor, table in enumerate(graph.edge_table):
        off.tables[graph.entry_ptr[table] + _entry(graph, factor, x)] = False
    return graph, Potentials(*(np.where(o, -np.inf, t) for o, t in zip(off, theta, strict=True)))


def draw_batch(rng, n=3, **options):
    graphs, thetas = zip(*(draw_model(rng, **options) for _ in range(n)), strict=True)
    width = max(theta.unary.shape[1] for theta in thetas)
    pad = [np.pad(t.unary, ((0, 0), (0, width - t.unary.shape[1])), constant_values=-np.inf) for t in thetas]
    return pack(graphs), Potentials(np.concatenate(pad), np.concatenate([t.tables for t in thetas]))


def _entry(graph, factor, x):
    links = slice(graph.scope_ptr[factor], graph.scope_ptr[factor + 1])
    return int(x[graph.scope[links]] @ graph.stride[links])


def enumerate_all(graph, theta, tau):
    """mu, edge_mu and log_z by their definitions, with the best states of the nodes where tau is 0."""
    mu, edge_mu, log_z = np.zeros(theta.unary.shape), np.zeros(graph.belief_ptr[-1]), []
    for example in range(graph.n_examples):
        nodes = np.arange(graph.node_ptr[example], graph.node_ptr[example + 1])
        factors = range(graph.edge_ptr[example], graph.edge_ptr[example + 1])
        x = np.zeros(graph.n_nodes, dtype=int)
        groups = {}
        for states in product(*(range(card) for card in graph.cards[nodes])):
            x[nodes] = states
            score = theta.unary[nodes, states].sum()
            for f in factors:
                score += theta.tables[graph.entry_ptr[graph.edge_table[f]] + _entry(graph, f, x)]
            groups.setdefault(tuple(x[nodes][tau[nodes] == 0]), []).append((score, x.copy()))
        values = {key: np.logaddexp.reduce([score for score, _ in group]) for key, group in groups.items()}
        best = max(values, key=values.get)
        log_z.append(values[best])
        for score, x in groups[best]:
            p = np.exp(score - values[best])
            mu[nodes, x[nodes]] += p
            for f in factors:
                edge_mu[graph.belief_ptr[f] + _entry(graph, f, x)] += p
    return mu, edge_mu, np.array(log_z)


@pytest.mark.parametrize("task", sorted(Exact.tasks))
def test_factors_agree_with_enumeration(task, seed):
    rng = np.random.default_rng(seed)
    for _ in range(FEW):
        graph, theta = draw_batch(rng)
        tau = {"sum": np.ones, "max": np.zeros}.get(task, lambda n: rng.integers(2, size=n) * 1.0)(
            graph.n_nodes
        )
        beliefs = Exact().forward(graph, theta, tau=tau, edges=True)
        mu, edge_mu, log_z = enumerate_all(graph, theta, tau)
        assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-10)
        assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=1e-10)
        assert_allclose(beliefs.log_z, log_z, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("draw", [zoo.normal, zoo.forbidden])
@pytest.mark.parametrize("title", ["lattice_2x3", "complete"])
def test_marginal_map_of_pairs(title, draw, seed):
    """Nodes that are summed out, held to all states of the others: value, states, conditional marginals."""
    rng, graph = np.random.default_rng(seed), zoo.GRAPHS[title]
    for _ in range(FEW):
        theta, tau = draw(graph, 2, rng), rng.integers(2, size=graph.n_nodes) * 1.0
        beliefs = Exact().forward(graph, theta, tau=tau)
        x = np.where(tau == 0, beliefs.mu.argmax(axis=1), -1)
        given = Exact().forward(graph, clamp(theta, x))
        assert_allclose(beliefs.mu, given.mu, rtol=0, atol=1e-12)
        assert_allclose(beliefs.log_z, given.log_z, rtol=1e-12, atol=1e-12)
        for states in product(range(2), repeat=int((tau == 0).sum())):
            other = x.copy()
            other[tau == 0] = states
            try:
                value = Exact().forward(graph, clamp(theta, other)).log_z
            except ValueError:  # impossible
                continue
            assert value <= beliefs.log_z + 1e-10


@pytest.mark.parametrize("task", sorted(Exact.tasks))
def test_derivatives_on_factors(task, seed):
    rng = np.random.default_rng(seed)
    graph, theta = draw_batch(rng, 2, n_nodes=4)
    tau = {"sum": np.ones, "max": np.zeros}.get(task, lambda n: np.arange(n) % 2.0)(graph.n_nodes)
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


def test_derivatives_where_anything_may_be_asked_of_what_is_impossible(seed):
    """A loss may have an infinite derivative where a marginal is zero: it counts for nothing."""
    graph, theta = draw_batch(np.random.default_rng(seed), share=0.5)
    beliefs = Exact().forward(graph, theta, edges=True)
    plain = [np.where(part > 0, 1.0 + part, 0.0) for part in (beliefs.mu, beliefs.edge_mu)]
    wild = [np.where(part > 0, 1.0 + part, np.inf) for part in (beliefs.mu, beliefs.edge_mu)]
    for one, other in zip(Exact().backward(beliefs, *plain), Exact().backward(beliefs, *wild), strict=True):
        assert_allclose(other, one, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.0])
def test_large_potentials(tau, seed):
    rng = np.random.default_rng(seed)
    for _ in range(FEW):
        graph, theta = draw_batch(rng, strength=1e4)
        beliefs = Exact().forward(graph, theta, tau=tau, edges=True)
        expected = enumerate_all(graph, theta, np.full(graph.n_nodes, tau))
        for found, truth in zip(beliefs, expected, strict=False):
            assert_allclose(found, truth, rtol=1e-10, atol=1e-7)
        ones = np.ones_like(beliefs.mu), np.ones_like(beliefs.edge_mu), np.ones(graph.n_examples)
        assert all(np.isfinite(part).all() for part in Exact().backward(beliefs, *ones))


def test_batches_are_their_examples_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    graph, theta = draw_batch(rng, 4)
    tau = rng.integers(2, size=graph.n_nodes) * 1.0
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


def test_what_has_no_nodes_or_nothing_open():
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


# Orders and trees


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
def test_order_is_that_of_min_fill(weighted, seed):
    rng = np.random.default_rng(seed)
    for n_nodes in (1, 4, 12, 25)[: 3 if config.DISABLE_JIT else 4]:
        scopes = [rng.permutation(n_nodes)[: rng.integers(1, 4)] for _ in range(2 * n_nodes)]
        ptr = np.cumsum([0, *(len(scope) for scope in scopes)])
        log_card = rng.integers(1, 4, size=n_nodes) * 1.0  # whole numbers: sums have no rounding
        late, cost = rng.integers(2, size=n_nodes), 2**log_card if weighted else np.ones(n_nodes)
        order, _, _ = eliminate(ptr, np.concatenate(scopes), late, log_card, cost, np.inf)
        neighbours = {i: set() for i in range(n_nodes)}
        for scope in scopes:
            for i in scope.tolist():
                neighbours[i] |= set(scope.tolist()) - {i}
        assert order.tolist() == naive_order(neighbours, late, log_card, cost)


def test_refusal_tells_width_entries_and_bytes():
    graph = lattice(4, 4)
    theta = zoo.constant(graph, 3, None)
    message = r"example 0 has an induced width of 4, with 2\*\*7.925 entries.*would take .* max_memory=1000"
    with pytest.raises(ValueError, match=message):
        Exact(max_memory=1000).forward(graph, theta)
    assert Exact(max_memory=3**5 * 16 * 8).forward(graph, theta).converged.all()
    if config.DISABLE_JIT:
        return  # to plan takes minutes
    wide = lattice(70, 70)
    with pytest.raises(ValueError, match=r"width of at least 6\d"):
        Exact().forward(wide, zoo.constant(wide, 2, None))


def test_known_nodes_make_a_graph_narrower():
    graph = lattice(9, 9)
    theta = zoo.constant(graph, 2, None)
    y = np.where(np.arange(81) % 9 == 4, 1, -1)  # a wall from top to bottom
    with pytest.raises(ValueError, match="max_memory"):
        Exact(max_memory=2e4).forward(graph, theta)
    beliefs = Exact(max_memory=2e4).forward(graph, clamp(theta, y))
    assert_allclose(beliefs.log_z, 72 * np.log(2), rtol=1e-12)


def test_cost_is_told_beforehand():
    graph = from_factors([2] * 6, [[i, (i + 1) % 6] for i in range(6)])
    cost = induced_cost(graph, factor_potentials(graph, [np.zeros(4)] * 6))
    assert (cost.width, cost.log2_largest, cost.is_whole) == (2, 3.0, True)
    beliefs = Exact(max_memory=cost.n_bytes).forward(graph, factor_potentials(graph, [np.zeros(4)] * 6))
    assert_allclose(beliefs.log_z, 6 * np.log(2))
    # the maximum over 0 and 3 comes last, which joins them
    tau = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    assert induced_cost(graph, factor_potentials(graph, [np.zeros(4)] * 6), tau).width == 2


def test_equal_structures_are_planned_once():
    graph = pack([chain(11)] * 50 + [chain(12)] * 50)
    theta = zoo.constant(graph, 2, None)
    junction_tree.cache_clear()
    Exact().forward(graph, theta)
    assert junction_tree.cache_info().misses == 2
    Exact().forward(graph, theta)
    assert junction_tree.cache_info().misses == 2


@pytest.mark.skipif(config.DISABLE_JIT, reason="speed is that of compiled kernels")
def test_long_chains_and_narrow_lattices(seed):
    rng = np.random.default_rng(seed)
    Exact().forward(chain(3), zoo.normal(chain(3), 3, rng))  # compiles
    long, narrow = chain(10_000), lattice(5, 500)
    for graph, limit in ((long, 1.0), (narrow, 1.0)):
        theta = zoo.normal(graph, 3, rng)
        start = time.process_time()
        beliefs = Exact().forward(graph, theta)
        assert time.process_time() - start < limit  # some hundredths of a second, on a machine of our days
        assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
    theta = zoo.normal(long, 3, rng)
    one, other = Exact().forward(long, theta), Tree().forward(long, theta)
    assert_allclose(one.mu, other.mu, rtol=0, atol=1e-10)
    assert_allclose(one.log_z, other.log_z, rtol=1e-12)
