"""Engines for lattices of four neighbours: the results of the plain engines, in batches and in threads."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import fields
import numpy as np
import pytest
from engines import (
    FAST,
    FIELDS,
    LARGEST_RANGE,
    PLAIN,
    assert_close_beliefs,
    assert_close_gradients,
    assert_same_bits,
    by_both_engines,
    cotangents,
    engines_of,
    messages_of_both_engines,
)
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials, chain, from_edges, isolated, lattice, pack, without_edges
from skcrf.inference import BP, TRW, MeanField

METHODS = {
    "bp": BP,
    "trw_half": partial(TRW, rho=0.5),
    "trw_auto": TRW,
    "trw_other": partial(TRW, rho=0.7),
    "mean_field": MeanField,
}
PASSING = {name: method for name, method in METHODS.items() if name != "mean_field"}

# Plain Python is a hundred times slower than compiled kernels.
LABELS = (2, 3, 5) if config.DISABLE_JIT else (2, 3, 4, 5, 8, 9)
compiled_only = pytest.mark.skipif(config.DISABLE_JIT, reason="too large for plain Python")

SMALL = [(1, 2), (2, 1), (1, 5), (5, 1), (2, 2), (3, 4)]
if not config.DISABLE_JIT:
    SMALL += [(4, 3), (5, 6)]
#: Sizes around the numbers of lanes of vectors, of tiles of probabilities and of tiles of ratios.
LARGE = [
    *((1, 200), (300, 1), (3, 4), (7, 8), (8, 9), (63, 2), (2, 64), (64, 65), (65, 3), (3, 66)),
    *((127, 3), (2, 127), (128, 2), (5, 128), (129, 2), (2, 129), (130, 131), (193, 2), (2, 257)),
]


def each(registry):
    return pytest.mark.parametrize("method", list(registry.values()), ids=list(registry))


tied_or_not = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def lattices(shapes, tied):
    return pack([lattice(*shape, tied=tied) for shape in shapes])


def clamped(graph, n_states, rng, **options):
    """Draw potentials with one state at half of the nodes, and without one state at some others."""
    theta = fields.normal(graph, n_states, rng, **options)
    x = rng.integers(n_states, size=(graph.n_nodes, 1))
    off = (np.arange(n_states) != x) & (rng.random((graph.n_nodes, 1)) < 0.5)
    off |= (np.arange(n_states) == (x + 1) % n_states) & (rng.random((graph.n_nodes, 1)) < 0.2)
    return theta._replace(unary=np.where(off, -np.inf, theta.unary))


# Comparison with the plain engines


@pytest.mark.parametrize("draw", [clamped] if config.DISABLE_JIT else [fields.normal, clamped])
@pytest.mark.parametrize("n_states", LABELS)
@tied_or_not
@each(METHODS)
def test_truncated_inference_equals_that_of_the_plain_engine(method, tied, n_states, draw, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(SMALL, tied)
    theta = draw(graph, n_states, rng)
    inference = method(max_iter=3)
    fast, plain = by_both_engines(inference, graph, theta, tape=True)
    assert_close_beliefs(fast, plain)
    for title, given in cotangents(fast, rng).items():
        gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
        assert_close_gradients(*gradients, err_msg=title)


@compiled_only
@pytest.mark.parametrize("n_states", [2, 3])
@tied_or_not
@each(METHODS)
def test_sizes_around_the_size_of_a_tile(method, tied, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(LARGE, tied)
    theta = fields.normal(graph, n_states, rng)
    inference = method(max_iter=3)
    fast, plain = by_both_engines(inference, graph, theta, tape=True)
    assert_close_beliefs(fast, plain)
    for title, given in cotangents(fast, rng).items():
        gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
        assert_close_gradients(*gradients, err_msg=title)


@pytest.mark.parametrize("n_states", [2, 3])
@tied_or_not
@each(METHODS)
def test_fixed_point_equals_that_of_the_plain_engine(method, tied, n_states, seed):
    """Gradients are compared with a small `tol`, as adjoints stop at different numbers of terms."""
    rng = np.random.default_rng(seed)
    graph = lattices(SMALL[:6], tied)
    theta = clamped(graph, n_states, rng, strength=0.5)
    assert_close_beliefs(*by_both_engines(method(max_iter=3, tol=1e-6), graph, theta))
    assert_close_beliefs(*by_both_engines(method(max_iter=200, tol=1e-6), graph, theta))
    inference = method(max_iter=1000, tol=1e-13)
    fast, plain = by_both_engines(inference, graph, theta)
    assert fast.converged.all()
    for title, given in cotangents(fast, rng).items():
        gradients = (inference.backward(beliefs, *given) for beliefs in (fast, plain))
        assert_close_gradients(*gradients, err_msg=title)


@pytest.mark.parametrize("n_states", [2, 3])
@each(METHODS)
def test_empty_lines_of_a_tile_do_not_delay_convergence(method, n_states, seed):
    """Nodes that are almost certain converge at once; empty lines would take many iterations."""
    rng = np.random.default_rng(seed)
    graph = lattice(5, 5)
    theta = Potentials(
        40 * np.eye(n_states)[rng.integers(n_states, size=25)] + rng.normal(size=(25, n_states)),
        2 * rng.normal(size=(2, n_states, n_states)),
    )
    assert_close_beliefs(*by_both_engines(method(max_iter=50, tol=1e-9), graph, theta))


@each(METHODS)
def test_zero_iterations(method, seed):
    rng = np.random.default_rng(seed)
    graph = lattices(SMALL, True)
    for n_states in (2, 3):
        theta = fields.normal(graph, n_states, rng)
        fast, plain = by_both_engines(method(max_iter=0), graph, theta, tape=True)
        assert_close_beliefs(fast, plain)
        d_mu = rng.normal(size=fast.mu.shape)
        gradients = (method(max_iter=0).backward(beliefs, d_mu) for beliefs in (fast, plain))
        assert_close_gradients(*gradients)


@pytest.mark.parametrize("n_states", LABELS)
@tied_or_not
def test_maximum_equals_that_of_the_plain_engine(tied, n_states, seed):
    """Only on chains: on cycles, configurations that differ by rounding errors may be equally good."""
    graph = lattices([(1, 2), (2, 1), (1, 7), (7, 1)], tied)
    theta = fields.normal(graph, n_states, np.random.default_rng(seed))
    fast, plain = by_both_engines(BP(max_iter=5), graph, theta, tau=0.0)
    assert_allclose(fast.log_z, plain.log_z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("draw", [fields.normal, clamped])
@pytest.mark.parametrize("n_states", LABELS)
@tied_or_not
def test_max_product_messages_equal_those_of_the_plain_engine(tied, n_states, draw, seed):
    graph = lattices(SMALL[2:] if config.DISABLE_JIT else SMALL[2:] + LARGE, tied)
    theta = draw(graph, n_states, np.random.default_rng(seed))
    sent = messages_of_both_engines(BP(), graph, theta, maximise=True)
    assert_allclose(*sent, rtol=0, atol=1e-12)


@each(METHODS)
def test_single_pixels_use_the_plain_engine(method, seed):
    graph = lattice(1, 1)
    theta = fields.normal(graph, 3, np.random.default_rng(seed))
    beliefs = method().forward(graph, theta)
    assert engines_of(beliefs) <= PLAIN
    weights = np.exp(theta.unary)
    assert_allclose(beliefs.mu, weights / weights.sum(), rtol=1e-12)


@each(METHODS)
def test_tables_may_be_shared_or_in_any_order(method, seed):
    """A graph with as many tables as edges need not have one table per edge in the order of the edges."""
    rng = np.random.default_rng(seed)
    graph = lattice(3, 4, tied=False)
    theta = fields.normal(graph, 2, rng)
    inference = method(max_iter=3)
    for edge_table in (rng.permutation(graph.n_edges), rng.integers(graph.n_edges, size=graph.n_edges)):
        other = graph._replace(edge_table=edge_table)
        found = inference.forward(other, theta, edges=True)
        expected = inference.forward(
            graph, theta._replace(tables=theta.tables[edge_table]), edges=True, tape=True
        )
        assert engines_of(expected) <= FAST
        assert_close_beliefs(found, expected)


@each(METHODS)
def test_lattice_without_edges_in_a_batch_with_a_lattice(method, seed):
    graph = pack([lattice(2, 2), without_edges(lattice(3, 3))])
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    mu = method(max_iter=3).forward(graph, theta).mu
    alone = [method(max_iter=3).forward(*example).mu for example in fields.split(graph, theta)]
    assert_array_equal(mu, np.concatenate(alone))


@pytest.mark.parametrize("part", ["unary", "tables"])
@tied_or_not
def test_nan_is_refused(tied, part, seed):
    """An exponential of 0 would turn nan into a forbidden state."""
    graph = lattice(3, 5, tied=tied)
    for n_states in (2, 3):
        theta = fields.normal(graph, n_states, np.random.default_rng(seed))
        getattr(theta, part)[1].flat[-1] = np.nan
        for method in METHODS.values():
            with pytest.raises(ValueError, match=r"theta must allow .*, got none in example 0"):
                method(max_iter=2).forward(graph, theta)


@each(METHODS)
def test_nodes_without_a_possible_state_are_refused(method, seed):
    graph = pack([lattice(2, 3), lattice(3, 3)])
    for n_states in (2, 3):
        theta = fields.normal(graph, n_states, np.random.default_rng(seed))
        theta.unary[8] = -np.inf
        with (
            np.errstate(invalid="ignore"),
            pytest.raises(ValueError, match="got none in example 1"),
        ):
            method(max_iter=2).forward(graph, theta)


# The range of potentials from which on the plain engine is used


def span(graph, theta, rho):
    """Compute the range of potentials that is compared with `LARGEST_RANGE`, for one example."""
    unary = np.where(theta.unary > -np.inf, theta.unary, np.nan)
    unary_range = (np.nanmax(unary, axis=1) - np.nanmin(unary, axis=1)).max()
    return unary_range + 5 * np.ptp(theta.tables, axis=(1, 2)).max() / rho


def aligned(graph, n_states, rng):
    """Make potentials that all prefer the last state, so that products are as large as possible."""
    x = np.arange(n_states) / (n_states - 1)
    tables = np.stack([np.add.outer(x, 0 * x), np.add.outer(0 * x, x)])
    return Potentials(np.tile(x, (graph.n_nodes, 1)), tables[rng.integers(2, size=graph.n_tables)])


def opposed(graph, n_states, rng):
    """Make potentials of nodes that prefer the last state, and of edges that prefer the first."""
    theta = aligned(graph, n_states, rng)
    return theta._replace(tables=-theta.tables)


@pytest.mark.parametrize("draw", [fields.normal, clamped, aligned, opposed])
@pytest.mark.parametrize("share", [0.5] if config.DISABLE_JIT else [0.0, 0.5, 1.0])
@tied_or_not
@pytest.mark.parametrize("rho", [1.0, 0.5, 0.7])
def test_results_are_continuous_at_the_largest_range(rho, tied, share, draw, seed):
    """The potentials of nodes have the given share of the range."""
    rng = np.random.default_rng(seed)
    graph = lattice(2, 3, tied=tied) if config.DISABLE_JIT else lattice(3, 5, tied=tied)
    inference = TRW(rho=rho, max_iter=3)
    for n_states in LABELS[:2] if config.DISABLE_JIT else LABELS[:4]:
        theta = draw(graph, n_states, rng)
        no_tables = theta._replace(tables=0 * theta.tables)
        unary = span(graph, no_tables, rho)
        scaled = Potentials(
            LARGEST_RANGE * (share / unary if share else 1e-3) * theta.unary,
            LARGEST_RANGE * (1 - share) / (span(graph, theta, rho) - unary) * theta.tables,
        )
        exact = LARGEST_RANGE / span(graph, scaled, rho)
        sides = []
        for factor, engine in ((1 - 1e-13, "LatticeEngine"), (1 + 1e-13, "PairwiseEngine")):
            moved = Potentials(*(exact * factor * part for part in scaled))
            beliefs = inference.forward(graph, moved, edges=True, tape=True)
            assert engines_of(beliefs) == {engine}
            sides.append(beliefs)
        assert_close_beliefs(*sides, atol=1e-9, rtol=1e-10)
        for title, given in cotangents(sides[0], rng).items():
            gradients = (inference.backward(beliefs, *given) for beliefs in sides)
            assert_close_gradients(*gradients, atol=1e-9, err_msg=title)


@pytest.mark.parametrize("n_states", [2, 3])
@tied_or_not
@each(PASSING)
def test_lattices_with_forbidden_pairs_use_the_plain_engine(method, tied, n_states, seed):
    graph = lattice(2, 3, tied=tied)
    theta = fields.normal(graph, n_states, np.random.default_rng(seed))
    assert engines_of(method().forward(graph, theta)) == {"LatticeEngine"}
    theta.tables[-1, 0, 1] = -np.inf
    beliefs = method().forward(graph, theta, edges=True)
    assert engines_of(beliefs) == {"PairwiseEngine"}
    assert not beliefs.edge_mu[graph.edge_table == graph.n_tables - 1, 0, 1].any()


# Batches of different examples


def mixed_batch(tied, rng, n_states):
    """Make a batch of all kinds of graphs, some extreme, clamped or with a forbidden pair."""
    large = [] if config.DISABLE_JIT else [lattice(7, 70), lattice(66, 5, tied=False), lattice(9, 9)]
    graph = pack(
        [
            lattice(3, 4, tied=tied),
            lattice(2, 3, connectivity=8),
            lattice(3, 3, tied=not tied),  # extreme
            chain(4),
            lattice(1, 5),
            isolated(2),
            lattice(3, 4, tied=tied),  # clamped
            lattice(4, 1, tied=False),
            from_edges(3, [(2, 0), (1, 2), (0, 1)]),
            lattice(2, 5, tied=tied),  # a forbidden pair
            lattice(2, 2, connectivity=8, tied=False),
            *large,
            lattice(3, 5, tied=not tied),
        ]
    )
    theta = fields.normal(graph, n_states, rng)
    nodes, tables = graph.node_example, graph.table_example
    theta.unary[nodes == 2] *= 1e4
    theta.tables[tables == 2] *= 1e3
    theta.unary[np.flatnonzero(nodes == 7)[::2], 1] = -np.inf
    theta.tables[np.flatnonzero(tables == 10)[0], 0, 1] = -np.inf
    return graph, theta


@pytest.mark.parametrize("options", [{"max_iter": 2}, {"max_iter": 5, "tol": 1e-4}], ids=str)
@pytest.mark.parametrize("n_states", [2, 3])
@tied_or_not
@each(METHODS)
def test_batch_equals_its_examples_bit_for_bit(method, tied, n_states, options, seed):
    rng = np.random.default_rng(seed)
    graph, theta = mixed_batch(tied, rng, n_states)
    inference, tape = method(**options), "tol" not in options
    whole = inference.forward(graph, theta, edges=True, tape=tape)
    assert engines_of(whole) & FAST
    assert engines_of(whole) & PLAIN
    alone = [inference.forward(*one, edges=True, tape=tape) for one in fields.split(graph, theta)]
    assert engines_of(alone[0]) <= FAST
    for field in FIELDS:
        joined = np.concatenate([getattr(beliefs, field) for beliefs in alone])
        assert_array_equal(getattr(whole, field), joined, err_msg=field)
    for title, given in cotangents(whole, rng).items():
        ptrs = graph.node_ptr, graph.edge_ptr, np.arange(graph.n_examples + 1)
        parts = (
            inference.backward(
                beliefs,
                *(
                    None if value is None else value[ptr[example] : ptr[example + 1]]
                    for value, ptr in zip(given, ptrs, strict=False)
                ),
            )
            for example, beliefs in enumerate(alone)
        )
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        assert_same_bits(inference.backward(whole, *given), joined, err_msg=title)


@pytest.mark.parametrize("n_states", [2, 3])
@each(METHODS)
def test_extreme_example_does_not_change_the_others(method, n_states, seed):
    rng = np.random.default_rng(seed)
    graph = pack([lattice(3, 3), lattice(2, 3), lattice(3, 2)])
    theta = fields.normal(graph, n_states, rng)
    inference = method(max_iter=3)
    d_mu = rng.normal(size=theta.unary.shape)
    results = []
    for size in (1.0, 1e4):
        moved = Potentials(theta.unary.copy(), theta.tables.copy())
        moved.unary[graph.node_example == 1] *= size
        moved.tables[graph.table_example == 1] *= size
        beliefs = inference.forward(graph, moved, tape=True)
        d_theta = inference.backward(beliefs, d_mu)
        others = graph.node_example != 1, graph.table_example != 1
        results.append((beliefs.mu[others[0]], d_theta.unary[others[0]], d_theta.tables[others[1]]))
        if method is not MeanField:
            plain = {"PairwiseEngine"} if size > 1 else set()
            assert engines_of(beliefs) == {"LatticeEngine"} | plain
    assert_same_bits(*results)


# Threads


@pytest.mark.parametrize("n_states", [2, 3])
@each(METHODS)
def test_threads_do_not_share_memory(method, n_states, seed):
    """Threads that infer on their own, and threads that differentiate the same beliefs."""
    rng = np.random.default_rng(seed)
    graph = lattice(2, 3) if config.DISABLE_JIT else pack([lattice(40, 50), lattice(30, 70), lattice(3, 3)])
    theta = fields.normal(graph, n_states, rng)
    inference = method(max_iter=5)
    alone = inference.forward(graph, theta, edges=True, tape=True)
    given = cotangents(alone, rng)["all"]
    expected = inference.backward(alone, *given), inference.backward(alone, given[0])

    def work(_):
        beliefs = inference.forward(graph, theta, edges=True, tape=True)
        results = []
        for mine in (beliefs, alone, alone, alone):
            results.append((mine.mu, mine.edge_mu, mine.log_z))
            results.append(inference.backward(mine, *given))
            results.append(inference.backward(mine, given[0]))
        return results

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(work, range(4)):
            for i, result in enumerate(results):
                right = (alone.mu, alone.edge_mu, alone.log_z) if i % 3 == 0 else expected[i % 3 - 1]
                assert_same_bits(result, right)
