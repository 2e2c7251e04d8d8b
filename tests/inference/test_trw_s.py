"""Sequential TRW: monotonic chains, and a bound that always holds and never increases."""

import fields
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from engines import by_both_engines, monotonic_chains
from numba import config
from numpy.testing import assert_allclose, assert_array_equal
from test_many_fields import N_BATCHES, draw_batch

from skcrf.graph import Potentials, chain, clamp, from_edges, lattice, pack, score
from skcrf.inference import TRW, TRWS

# Uncompiled kernels are about a hundred times slower.
MANY = 2 if config.DISABLE_JIT else 20
EDGED = {name: graph for name, graph in fields.EVERY.items() if graph.n_edges}
DIFFERENTIATED = ["parallel", "lattice_2x2"]
if not config.DISABLE_JIT:
    DIFFERENTIATED += ["complete", "bridge", "mixed"]
DRAWS = {
    "weak": (fields.normal, 0.5),
    "strong": (fields.normal, 5.0),
    "very_strong": (fields.normal, 50.0),
    "attractive": (fields.attractive, 2.0),
    "repulsive": (fields.attractive, -2.0),
    "frozen": (fields.attractive, 30.0),
    "forbidden": (fields.forbidden, 2.0),
}


def each(argument, cases):
    return pytest.mark.parametrize(argument, list(cases.values()), ids=list(cases))


def shuffle_nodes(graph, rng):
    """Renumber the nodes at random."""
    return from_edges(graph.n_nodes, rng.permutation(graph.n_nodes)[graph.edges])


def ends(graph, inward):
    """Return the end of each edge from which its chain starts, and the other end."""
    at = np.arange(graph.n_edges)
    return graph.edges[at, inward & 1], graph.edges[at, 1 - (inward & 1)]


# Chains


@each("graph", EDGED)
def test_schedule_follows_an_order_of_nodes_and_back(graph):
    """A node sends to later neighbours after it has received from all earlier ones, and vice versa."""
    schedule, rho, inward = monotonic_chains(graph)
    assert_array_equal(np.sort(schedule), np.arange(2 * graph.n_edges))
    when = np.argsort(schedule)
    for example in range(graph.n_examples):
        first, last = graph.edge_ptr[example], graph.edge_ptr[example + 1]
        mine = schedule[2 * first : 2 * last]
        assert set(mine // 2) == set(range(first, last))
        half = len(mine) // 2
        forward, backward = mine[:half], mine[half:]
        assert set(forward ^ 1) == set(backward)
        for message in range(2 * first, 2 * last):
            source = graph.edges[message // 2, 1 - message % 2]
            into = graph.incident[graph.incident_ptr[source] : graph.incident_ptr[source + 1]]
            is_forward = message in forward
            # all messages of the same pass arrive before the node sends
            assert all(when[other] < when[message] for other in into if (other in forward) == is_forward)
        chained = rho[first:last] < 1
        assert_array_equal(np.isin(inward[first:last], backward)[chained], True)


@each("graph", EDGED)
def test_weights_of_chains_through_a_node_sum_to_at_most_one(graph):
    """Examples without cycles are one tree of weight 1."""
    _, rho, inward = monotonic_chains(graph)
    start, end = ends(graph, inward)
    chained = rho < 1
    n_after = np.bincount(start[chained], minlength=graph.n_nodes)
    n_before = np.bincount(end[chained], minlength=graph.n_nodes)
    weight = np.ones(graph.n_nodes)
    weight[start], weight[end] = rho, rho
    assert (weight * np.maximum(n_before, n_after) <= 1 + 1e-12).all()
    for part, _ in fields.split(graph, fields.constant(graph, 2, None)):
        assert (monotonic_chains(part)[1] == 1).all() == reference.is_forest(part)


@pytest.mark.parametrize(
    "graph, rho",
    [
        (chain(7), 1.0),
        (lattice(1, 5), 1.0),
        (lattice(5, 7), 0.5),
        (lattice(2, 2), 0.5),
        (lattice(5, 7, connectivity=8), 0.25),
        (from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]), 0.5),
        (fields.SINGLES["complete"], 1 / 3),
    ],
)
def test_weights_of_known_graphs(graph, rho):
    assert_array_equal(monotonic_chains(graph)[1], np.full(graph.n_edges, rho))


def test_weights_of_a_lattice_do_not_depend_on_node_numbers(seed):
    """Ordered by number, some nodes of a shuffled lattice come before or after all four neighbours."""
    graph = shuffle_nodes(lattice(6, 8), np.random.default_rng(seed))
    assert_array_equal(monotonic_chains(graph)[1], np.full(graph.n_edges, 0.5))


def test_connected_components_have_weights_of_their_own():
    triangle, tree = [(0, 1), (1, 2), (2, 0)], [(3, 4), (3, 5), (3, 6)]
    complete = [(i, j) for i in range(7, 11) for j in range(i)[-(i - 7) :] if i > 7]
    _, rho, _ = monotonic_chains(from_edges(12, triangle + tree + complete))
    assert_allclose(rho, np.repeat([1 / 2, 1, 1 / 3], [3, 3, 6]), rtol=1e-15)


def test_lattices_are_swept_by_rows(seed):
    """Pixel by pixel, by both engines."""
    rng = np.random.default_rng(seed)
    for connectivity in (4, 8):
        graph = lattice(4, 3, connectivity=connectivity)
        theta = fields.normal(graph, 3, rng)
        source, target = graph.edges[:, ::-1].ravel(), graph.edges.ravel()
        forward = [m for i in range(12) for m in np.flatnonzero((source == i) & (target > i))]
        backward = [m for i in range(11, -1, -1) for m in np.flatnonzero((source == i) & (target < i))]
        by_rows = graph._replace(schedule=np.array(forward + backward))
        mu, edge_mu, _ = reference.trw(by_rows, theta, {4: 0.5, 8: 0.25}[connectivity], 3)
        for beliefs in by_both_engines(TRWS(max_iter=3), graph, theta):
            assert_allclose(beliefs.mu, mu, rtol=1e-9, atol=1e-12)
            assert_allclose(beliefs.edge_mu, edge_mu, rtol=1e-9, atol=1e-12)


# The bound


@each("draw, strength", DRAWS)
@each("graph", fields.EVERY_SINGLE)
def test_bound_always_holds_and_never_increases(graph, draw, strength, seed):
    rng = np.random.default_rng(seed)
    batch = pack([graph] * MANY)
    n_states = 3 if graph.n_nodes < 5 else 2
    theta = draw(batch, n_states, rng, strength=strength)
    exact = reference.log_z(batch, theta)
    rounding = 1e-12 * (1 + np.abs(exact))
    last = np.inf
    for max_iter in (0, 1, 2, 5) if config.DISABLE_JIT else (0, 1, 2, 3, 5, 8, 20, 60):
        log_z = TRWS(max_iter=max_iter).forward(batch, theta).log_z
        assert (log_z >= exact - rounding).all()
        assert (log_z <= last + rounding).all()
        last = log_z


@each("graph", fields.FORESTS)
def test_one_iteration_is_exact_on_forests(graph, seed):
    theta = fields.normal(graph, 3, np.random.default_rng(seed), strength=2.0)
    exact = reference.log_z(graph, theta)
    assert (TRWS(max_iter=0).forward(graph, theta).log_z >= exact - 1e-12).all()
    for max_iter in (1, 2):
        beliefs = TRWS(max_iter=max_iter).forward(graph, theta)
        assert_allclose(beliefs.mu, reference.marginals(graph, theta)[0], rtol=0, atol=1e-12)
        assert_allclose(beliefs.log_z, exact, rtol=1e-12, atol=1e-12)


def test_bound_on_a_large_lattice_never_increases(seed):
    side = 4 if config.DISABLE_JIT else 30
    for connectivity in (4, 8):
        graph = lattice(side, side, connectivity=connectivity)
        for strength in (1.0, -3.0, 10.0):
            theta = fields.attractive(graph, 4, np.random.default_rng(seed), strength=strength)
            bounds = [TRWS(max_iter=n).forward(graph, theta).log_z.item() for n in range(12)]
            assert (np.diff(bounds) <= 1e-12 * np.abs(bounds[1:])).all()


@pytest.mark.parametrize("strength", [1.0] if config.DISABLE_JIT else [0.5, 1.0, 2.0])
@each("graph", fields.LOOPY)
def test_fixed_point_equals_that_of_trw(graph, strength, seed):
    theta = fields.normal(graph, 3, np.random.default_rng(seed), strength=strength)
    inference = TRWS(max_iter=20_000, tol=1e-11)
    beliefs = inference.forward(graph, theta, edges=True)
    _, rho, _ = monotonic_chains(graph)
    other = TRW(rho=rho, max_iter=50_000, tol=1e-11, damping=0.3).forward(graph, theta, edges=True)
    assert beliefs.converged.all() and other.converged.all()
    assert_allclose(beliefs.mu, other.mu, rtol=0, atol=1e-6)
    assert_allclose(beliefs.edge_mu, other.edge_mu, rtol=0, atol=1e-6)
    assert_allclose(beliefs.log_z, other.log_z, rtol=1e-6, atol=1e-6)
    free_energy = reference.free_energy(graph, theta, beliefs.mu, beliefs.edge_mu, rho)
    assert_allclose(beliefs.log_z, free_energy, rtol=1e-8, atol=1e-8)


# Derivatives


@pytest.mark.parametrize("draw", [fields.normal, fields.forbidden])
@pytest.mark.parametrize("max_iter", [0, 2] if config.DISABLE_JIT else [0, 1, 4])
@each("graph", {name: EDGED[name] for name in DIFFERENTIATED})
def test_derivative_of_the_bound(graph, max_iter, draw, seed):
    rng = np.random.default_rng(seed)
    theta, inference = draw(graph, 3, rng), TRWS(max_iter=max_iter)
    d_log_z = rng.normal(size=graph.n_examples)
    gradient = inference.backward(inference.forward(graph, theta, tape=True), d_log_z=d_log_z)

    def value(g, t):
        return np.resize(d_log_z, g.n_examples) * inference.forward(g, t).log_z

    # without iterations log_z is a maximum over states, so that a shorter step is safer
    check_gradient(gradient, value, graph, theta, step=1e-3 if max_iter else 1e-4)


@pytest.mark.parametrize("tol", [1e-3, 1e-10])
def test_derivative_without_tape_equals_the_marginals(tol, seed):
    graph = lattice(2 if config.DISABLE_JIT else 3, 4, connectivity=8, tied=False)
    theta = fields.normal(graph, 3, np.random.default_rng(seed))
    inference = TRWS(max_iter=2000, tol=tol)
    beliefs = inference.forward(graph, theta, edges=True)
    gradient = inference.backward(beliefs, d_log_z=np.ones(1))
    assert_allclose(gradient.unary, beliefs.mu, rtol=0, atol=1e-12)
    assert_allclose(gradient.tables, beliefs.edge_mu, rtol=0, atol=1e-12)
    with_tape = inference.backward(inference.forward(graph, theta, tape=True), d_log_z=np.ones(1))
    for one, other in zip(gradient, with_tape, strict=True):
        assert_allclose(one, other, rtol=0, atol=50 * tol)


# Requirements on every method that the shared tests check only for some


def test_no_nan_in_ten_thousand_fields():
    """Checks values and, for every fifth batch, derivatives."""
    for number in range(N_BATCHES):
        graph, theta = draw_batch(number)
        for inference in (TRWS(max_iter=7), TRWS(max_iter=20, tol=1e-6), TRWS(max_iter=0)):
            differentiate = number % 5 == 0
            beliefs = inference.forward(graph, theta, tape=differentiate)
            assert np.isfinite(beliefs.mu).all()
            assert np.isfinite(beliefs.log_z).all()
            assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
            if differentiate:
                rng = np.random.default_rng(number)
                d_mu, d_log_z = rng.normal(size=beliefs.mu.shape), rng.normal(size=graph.n_examples)
                for part in inference.backward(beliefs, d_mu, None, d_log_z):
                    assert np.isfinite(part).all()


@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_resuming_changes_results_only_within_tolerance(tol, seed):
    rng = np.random.default_rng(seed)
    batch = pack([lattice(3, 4), chain(4), fields.SINGLES["bridge"]])
    for graph in (batch,) if config.DISABLE_JIT else (lattice(5, 6), batch, lattice(3, 3, 8)):
        theta, other = fields.attractive(graph, 2, rng), fields.attractive(graph, 2, rng)
        inference = TRWS(tol=tol, max_iter=5000)
        assert inference.resumes
        cold = inference.forward(graph, theta)
        start = inference.start_of(inference.forward(graph, other))
        warm = inference.forward(graph, theta, start=start)
        exact = TRWS(tol=1e-12, max_iter=50_000).forward(graph, theta)
        assert warm.converged.all()
        assert np.abs(warm.mu - exact.mu).max() < max(20 * tol, 2 * np.abs(cold.mu - exact.mu).max())
        # log_z is a bound from any start
        assert (warm.log_z >= exact.log_z - 1e-9).all()


def test_zero_iterations_ignore_edges(seed):
    graph = lattice(3, 3)
    theta = fields.normal(graph, 3, np.random.default_rng(seed))
    beliefs = TRWS(max_iter=0).forward(graph, theta)
    alone = np.exp(theta.unary)
    assert_allclose(beliefs.mu, alone / alone.sum(axis=1, keepdims=True), rtol=1e-12)
    best = [
        0.5 * np.log((np.exp(2 * theta.tables[t]) @ np.exp(theta.unary[j])).max())
        for t, (_, j) in zip(graph.edge_table, graph.edges, strict=True)
    ]
    n_before = np.bincount(graph.edges[:, 1], minlength=9)
    expected = sum(best) + ((1 - 0.5 * n_before) * np.log(alone.sum(axis=1))).sum()
    assert_allclose(beliefs.log_z, expected, rtol=1e-12)


@pytest.mark.parametrize("max_iter", [0, 1, 3])
def test_log_z_of_a_single_possible_configuration_is_its_score(max_iter, seed):
    rng = np.random.default_rng(seed)
    for graph in fields.EVERY.values():
        theta, y = fields.normal(graph, 3, rng, strength=3.0), fields.labels(graph, 3, rng)
        beliefs = TRWS(max_iter=max_iter).forward(graph, clamp(theta, y))
        assert_array_equal(beliefs.mu, np.eye(3)[y])
        assert_allclose(beliefs.log_z, score(graph, theta, y), rtol=1e-12, atol=1e-12)


def test_batch_without_edges():
    graph = from_edges(2, [])
    theta = Potentials(np.zeros((2, 3)), np.zeros((0, 3, 3)))
    assert_allclose(TRWS().forward(graph, theta).log_z, 2 * np.log(3), rtol=1e-14)


def test_optimal_configuration_counts_as_converged():
    """Once the score reaches the bound, iterations stop although messages still change."""
    rng = np.random.default_rng(0)
    graph = lattice(5, 5)
    tables = 0.3 * np.eye(2) * np.ones((graph.n_tables, 1, 1))
    theta = Potentials(rng.normal(size=(25, 2)), tables)
    beliefs = TRWS(max_iter=40, tol=1e-14).forward(graph, theta, tau=0.0)
    gaps = [
        (found.bound - found.log_z)[0]
        for n in range(12)
        for found in [TRWS(max_iter=n).forward(graph, theta, tau=0.0)]
    ]
    first = int(np.argmax(np.array(gaps) < 1e-11))
    assert 0 < first < 10
    assert beliefs.n_iter[0] == first
    assert beliefs.converged.all()


def test_impossible_configuration_does_not_count_as_optimal():
    """A first configuration with a forbidden pair does not end the iterations."""
    rng, found = np.random.default_rng(0), 0
    graph = from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)])
    for _ in range(60):
        theta = fields.forbidden(graph, 3, rng)
        answers = [TRWS(max_iter=n, tol=1e-6).forward(graph, theta, tau=0.0) for n in (0, 50)]
        if answers[0].log_z[0] == -np.inf:
            found += 1
            assert answers[1].n_iter[0] > 1 or answers[1].log_z[0] > -np.inf
    assert found >= 5


@pytest.mark.parametrize("scale", [1e-13, 1e-6, 1.0, 1e4])
def test_bound_is_reached_at_any_scale_of_potentials(scale):
    rng, graph = np.random.default_rng(1), lattice(4, 4)
    theta = Potentials(
        scale * rng.normal(size=(16, 2)), scale * 0.5 * np.ones((graph.n_tables, 1, 1)) * np.eye(2)
    )
    beliefs = TRWS(max_iter=100, tol=0.0).forward(graph, theta, tau=0.0)
    stopped = TRWS(max_iter=100, tol=1e-300).forward(graph, theta, tau=0.0)
    assert_allclose(stopped.log_z, beliefs.log_z, rtol=1e-11)
    assert stopped.n_iter[0] < 100


def test_bound_is_reached_if_scores_cancel():
    """Shift potentials so that the best score is 0."""
    rng, graph = np.random.default_rng(2), lattice(5, 5)
    for _ in range(10):
        theta = Potentials(rng.normal(size=(25, 3)), 0.3 * np.ones((graph.n_tables, 1, 1)) * np.eye(3))
        first = TRWS(max_iter=200, tol=1e-9).forward(graph, theta, tau=0.0)
        moved = theta._replace(unary=theta.unary - first.log_z[0] / 25)
        second = TRWS(max_iter=200, tol=1e-9).forward(graph, moved, tau=0.0)
        assert abs(second.log_z[0]) < 1e-12
        assert abs(int(second.n_iter[0]) - int(first.n_iter[0])) <= 2
