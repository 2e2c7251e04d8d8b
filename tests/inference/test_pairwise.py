"""The pairwise engine against one message at a time, and sums of exponentials against the log domain.

Imports private modules: no public name shows single messages.
"""

import math
import time

import fields
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from engines import only_plain_engines
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials, as_factors, chain, from_edges, lattice, mesh, pack, tables_of_edges
from skcrf.inference import BP, TRW, TRWS, Exact, MaxProduct, MeanField, Tree
from skcrf.inference._engine import Plan
from skcrf.inference._pairwise.engine import PairwiseEngine
from skcrf.inference._pairwise.schedule import message_schedule
from skcrf.inference._pairwise.updates import BLOCK_SIZE, EXP_TABLE, MESSAGE


def random_graph(rng, n_nodes, n_edges, **kwargs):
    ends = rng.integers(n_nodes, size=(n_edges, 2))  # some of them parallel
    return from_edges(n_nodes, ends[ends[:, 0] != ends[:, 1]], **kwargs)


def star(n_leaves, hub):
    leaves = np.delete(np.arange(n_leaves + 1), hub)
    return from_edges(n_leaves + 1, np.stack([leaves, np.full(n_leaves, hub)], axis=1))


def hub_graph(rng, n_nodes, hub):
    """Make a node of many edges, some of them parallel, with a few edges between its neighbours."""
    first = np.delete(np.arange(n_nodes), hub)
    spokes = np.stack([first, np.full(len(first), hub)], axis=1)
    spokes = np.concatenate([spokes, spokes[:2, ::-1]])
    chords = rng.permutation(first)[:8].reshape(4, 2)
    return from_edges(n_nodes, rng.permutation(np.concatenate([spokes, chords])))


GRAPHS = {
    "random": random_graph(np.random.default_rng(0), 12, 20),
    "tied": random_graph(np.random.default_rng(1), 9, 20, tied=True),
    "star": star(11, hub=0),
    "star, hub last": star(11, hub=11),
    "hub": hub_graph(np.random.default_rng(2), 22, hub=3),
    "two hubs": pack([hub_graph(np.random.default_rng(3), 20, hub=19), star(18, hub=5)]),
    "eight neighbours": lattice(3, 4, connectivity=8),
    "batch": pack([chain(4), lattice(2, 3), star(3, hub=2), from_edges(2, [])]),
}
any_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


def potentials(graph, n_states, rng, *, size=1.0, forbidden=0.0):
    shapes = (graph.n_nodes, n_states), (graph.n_tables, n_states, n_states)
    unary, tables = (size * rng.normal(size=shape) for shape in shapes)
    # That every node is in state 0 stays possible.
    unary[:, 1:][rng.random((graph.n_nodes, n_states - 1)) < forbidden] = -np.inf
    off = rng.random(tables.shape) < forbidden
    off[:, 0, 0] = False
    return Potentials(unary, np.where(off, -np.inf, tables))


def make_engine(graph, theta, rho, damping=0.0, maximise=False, log_domain=False):
    engine = PairwiseEngine(Plan(graph, rho, 1, 1e-9, damping, maximise=maximise), theta)
    if log_domain:
        updates, block_table = engine.schedule.updates.copy(), np.full_like(engine.schedule.block_table, -1)
        updates[:, EXP_TABLE] = -1
        engine.schedule = engine.schedule._replace(updates=updates, block_table=block_table)
    return engine


def sweep_one_by_one(graph, theta, rho, damping, maximise, messages):
    """Do one iteration message by message, on messages numbered as in Graph."""
    messages = messages.copy()
    for message in graph.schedule:
        edge, side = message >> 1, message & 1
        source = graph.edges[edge, 1 - side]
        cavity = theta.unary[source].copy()
        for other in graph.incident[graph.incident_ptr[source] : graph.incident_ptr[source + 1]]:
            weight = rho[other >> 1] - (other >> 1 == edge)
            possible = messages[other] > -np.inf
            if weight != 0:
                cavity += np.where(possible, weight * np.where(possible, messages[other], 0.0), -np.inf)
        table = theta.tables[graph.edge_table[edge]] / rho[edge]
        joint = (table if side == 0 else table.T) + cavity
        new = joint.max(axis=1) if maximise else np.logaddexp.reduce(joint, axis=1)
        messages[message] = (1 - damping) * (new - new.max()) + damping * messages[message]
    return messages


@any_graph
@pytest.mark.parametrize("n_states", [1, 2, 5])
@pytest.mark.parametrize("forbidden", [0.0, 0.5])
@pytest.mark.parametrize("maximise", [False, True], ids=["sum", "max"])
def test_sweep_equals_messages_sent_one_by_one(graph, n_states, forbidden, maximise, seed):
    rng = np.random.default_rng(seed)
    theta = potentials(graph, n_states, rng, size=3.0, forbidden=forbidden)
    rho = rng.choice([0.4, 0.7, 1.0], size=graph.n_edges)
    engine = make_engine(graph, theta, rho, 0.3, maximise)
    state = engine.initial_state()
    expected = engine.messages(state)
    for _ in range(3):
        engine.step(state, np.ones(graph.n_examples, dtype=bool))
        expected = sweep_one_by_one(graph, theta, rho, 0.3, maximise, expected)
        assert_allclose(engine.messages(state), expected, rtol=0, atol=1e-12)
    assert_array_equal(engine.messages_vjp(engine.messages(state)), state)


@any_graph
def test_messages_of_a_block_do_not_depend_on_each_other(graph):
    theta = Potentials(np.zeros((graph.n_nodes, 2)), np.zeros((graph.n_tables, 2, 2)))
    schedule = message_schedule(graph, theta, np.ones(graph.n_edges), maximise=False)
    message = schedule.updates[:, MESSAGE]
    source, target = graph.edges.ravel()[message ^ 1], graph.edges.ravel()[message]
    sizes = np.diff(schedule.block_ptr)
    assert sizes.sum() == len(message) and sizes.max() <= BLOCK_SIZE
    for block in range(len(sizes)):
        part = slice(schedule.block_ptr[block], schedule.block_ptr[block + 1])
        assert not np.isin(source[part], target[part]).any()
        if schedule.block_table[block] >= 0:
            assert len(np.unique(schedule.example[part])) == 1 and sizes[block] == BLOCK_SIZE
            assert (
                2 * schedule.updates[part, EXP_TABLE] + message[part] % 2 == schedule.block_table[block]
            ).all()
    # Where one message is read or overwritten for the other, the order of the two is that of the graph.
    rank = np.empty(len(message), dtype=int)
    rank[graph.schedule] = np.arange(len(message))
    for p in range(len(message)):
        for later in range(p):
            if source[p] == target[later] or target[p] == source[later]:
                assert rank[message[later]] < rank[message[p]]
    example = np.repeat(np.arange(graph.n_examples), 2 * np.diff(graph.edge_ptr))
    assert_array_equal(schedule.example, example[rank[message]])


def test_large_graphs_give_the_same_messages_with_their_nodes_in_another_order(seed):
    rng = np.random.default_rng(seed)
    graphs = [
        chain(4, tied=False),
        random_graph(rng, 1500, 6000),
        random_graph(rng, 9, 20),
        random_graph(rng, 2000, 5000),
    ]
    graph = pack(graphs)
    theta, rho = potentials(graph, 3, rng, forbidden=0.1), rng.choice([0.4, 1.0], size=graph.n_edges)
    engine = make_engine(graph, theta, rho, 0.3)
    assert (engine.arrangement.graph.edges != graph.edges).any()
    state, active = engine.initial_state(), np.ones(graph.n_examples, dtype=bool)
    expected = engine.messages(state)
    for _ in range(2):
        engine.step(state, active)
        expected = sweep_one_by_one(graph, theta, rho, 0.3, False, expected)
        assert_allclose(engine.messages(state), expected, rtol=0, atol=1e-12)
    together = TRW(rho=rho, max_iter=2).forward(graph, theta).mu
    for example, one in enumerate(graphs):
        nodes, edges = (slice(*ptr[example : example + 2]) for ptr in (graph.node_ptr, graph.edge_ptr))
        alone = Potentials(theta.unary[nodes], theta.tables[edges])
        assert_array_equal(TRW(rho=rho[edges], max_iter=2).forward(one, alone).mu, together[nodes])


@pytest.mark.parametrize("n_chains", [3, 20])
def test_order_of_messages_of_an_example_does_not_depend_on_the_batch(n_chains):
    graphs = [chain(length) for length in np.random.default_rng(0).integers(1, 9, size=n_chains)]
    graphs += [lattice(6, 9, 8)._replace(shapes=np.zeros((1, 2), dtype=np.int64)), chain(5)]
    batch = pack(graphs)
    for example, graph in enumerate(graphs):
        alone, together = (
            message_schedule(
                one,
                Potentials(np.zeros((one.n_nodes, 2)), np.zeros((one.n_tables, 2, 2))),
                np.ones(one.n_edges),
                maximise=False,
            )
            for one in (graph, batch)
        )
        messages = together.updates[together.example == example, MESSAGE]
        assert_array_equal(messages - 2 * batch.edge_ptr[example], alone.updates[:, MESSAGE])


@any_graph
def test_change_is_relative_to_exponentials_of_messages(graph, seed):
    rng = np.random.default_rng(seed)
    engine = make_engine(graph, potentials(graph, 3, rng, forbidden=0.2), np.ones(graph.n_edges))
    state = engine.initial_state()
    for _ in range(3):
        before = np.exp(state)
        change = engine.step(state, np.ones(graph.n_examples, dtype=bool))
        after = np.exp(state)
        shares = np.abs(after - before) / np.where(after + before > 0, np.maximum(after, before), 1.0)
        largest = [
            shares[first:last].max(initial=0.0)
            for first, last in zip(engine.row_ptr[:-1], engine.row_ptr[1:], strict=True)
        ]
        assert_allclose(change, largest, rtol=0, atol=1e-14)


@any_graph
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("size", [1.0, 50.0, 400.0, 1e4])
def test_sums_of_exponentials_agree_with_log_domain(graph, size, forbidden, seed):
    """With potentials of size 400, sums are on both sides of the threshold between the two."""
    rng = np.random.default_rng(seed)
    theta = potentials(graph, 4, rng, size=size, forbidden=forbidden)
    rho = rng.choice([0.4, 0.5, 1.0], size=graph.n_edges)
    fast, safe = (make_engine(graph, theta, rho, 0.1, log_domain=log_domain) for log_domain in (False, True))
    active, before = np.ones(graph.n_examples, dtype=bool), fast.initial_state()
    for _ in range(3):
        after, expected = before.copy(), before.copy()
        assert_allclose(fast.step(after, active), safe.step(expected, active), rtol=0, atol=1e-10)
        assert_allclose(after, expected, rtol=1e-12, atol=1e-13 * size)
        adjoints = []
        d_after = rng.normal(size=after.shape)
        for engine in (fast, safe):
            d_messages, d_theta = d_after.copy(), engine.new_adjoint()
            engine.step_vjp(d_theta, (before, after), active, d_messages)
            adjoints.append((d_messages, *engine.to_potentials(d_theta)))
        for found, wanted in zip(*adjoints, strict=True):
            assert_allclose(found, wanted, rtol=0, atol=1e-11 * max(size, 100.0))
        before = after


def test_table_shared_by_edges_of_many_weights(seed):
    """Exponentials are stored for some weights only; results are those of tables that are not shared."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(30, size=(100, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    tied, own = (from_edges(30, ends, tied=tied) for tied in (True, False))
    theta = potentials(tied, 3, rng)
    inference = TRW(rho=rng.uniform(0.2, 1.0, size=len(ends)), max_iter=4)
    d_mu = rng.normal(size=theta.unary.shape)
    schedule = message_schedule(tied, theta, inference.rho, maximise=False)
    assert (schedule.edge_exp_table < 0).any() and (schedule.edge_exp_table >= 0).any()
    shared = inference.forward(tied, theta, tape=True)
    single = inference.forward(own, Potentials(theta.unary, theta.tables[own.n_tables * [0]]), tape=True)
    assert_allclose(shared.mu, single.mu, rtol=0, atol=1e-13)
    d_shared, d_single = (inference.backward(beliefs, d_mu) for beliefs in (shared, single))
    assert_allclose(d_shared.unary, d_single.unary, rtol=0, atol=1e-12)
    assert_allclose(d_shared.tables, d_single.tables.sum(axis=0, keepdims=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gap", [300.0, 455.0, 460.0, 465.0, 690.0, 710.0, 750.0, 1500.0])
def test_exact_on_both_sides_of_the_threshold_for_the_log_domain(gap, seed):
    """The likely state of the source hardly allows the likely state of the target."""
    rng = np.random.default_rng(seed)
    graph = chain(4)
    table = rng.normal(size=(2, 2)) - gap * np.array([[0, 1], [1, 0]])
    unary = rng.normal(size=(4, 2)) + np.array([[0, 0], [gap, 0], [0, gap + 1], [0, 0]])
    theta = Potentials(unary, table[None])
    mu, edge_mu = reference.marginals(graph, theta)
    beliefs = Tree().forward(graph, theta, edges=True)
    assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-11)
    assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=1e-11)
    assert_allclose(beliefs.log_z, reference.log_z(graph, theta), rtol=1e-13, atol=0)


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (4, 3), (3, 4), (4, 4), (2, 6)], ids=str)
def test_gradient_through_messages_that_are_replaced_later_in_a_block(shape, seed):
    """Between sweeps of diagonals, a message depends on the old value of a later message of its block."""
    rng = np.random.default_rng(seed)
    graph = lattice(*shape, connectivity=8)
    theta = fields.normal(graph, 2, rng)
    d_mu = rng.normal(size=theta.unary.shape)
    inference = TRW(rho=0.7, max_iter=2)

    def value(graph, theta):
        mu = inference.forward(graph, theta).mu
        return np.add.reduceat((np.resize(d_mu, mu.shape) * mu).sum(axis=1), graph.node_ptr[:-1])

    with only_plain_engines():
        gradient = inference.backward(inference.forward(graph, theta, tape=True), d_mu)
        check_gradient(gradient, value, graph, theta)


def star_marginals(theta, n_leaves, hub):
    """Compute log_z and the marginals of a star by summing out the leaves one by one."""
    leaves = np.delete(np.arange(n_leaves + 1), hub)
    joint = theta.tables + theta.unary[leaves][:, :, None]  # of leaf and hub
    messages = np.logaddexp.reduce(joint, axis=1)
    belief = theta.unary[hub] + np.array([math.fsum(column) for column in messages.T.tolist()])
    log_z, mu = np.logaddexp.reduce(belief), np.empty(theta.unary.shape)
    mu[hub] = np.exp(belief - log_z)
    with np.errstate(invalid="ignore"):
        given_hub = np.where(np.isneginf(messages[:, None]), 0.0, np.exp(joint - messages[:, None]))
    edge_mu = given_hub * mu[hub]
    mu[leaves] = edge_mu.sum(axis=2)
    return log_z, mu, edge_mu


HUB_METHODS = {
    "tree": Tree(),
    "bp": BP(max_iter=2),
    "trw": TRW(max_iter=40),
    "trw_s": TRWS(max_iter=2),
}


@pytest.mark.parametrize("name", HUB_METHODS)
@pytest.mark.parametrize("hub", [0, 7, 30])
@pytest.mark.parametrize(("size", "forbidden"), [(1.0, 0.0), (1.0, 0.3), (30.0, 0.0), (1e4, 0.2)])
def test_star_agrees_with_enumeration(name, hub, size, forbidden, seed):
    rng, graph = np.random.default_rng(seed), star(30, hub)
    theta = potentials(graph, 3, rng, size=size, forbidden=forbidden)
    log_z, mu, edge_mu = star_marginals(theta, 30, hub)
    atol = 1e-10 if size < 1e4 else 1e-9  # a sum of 30 terms of 1e4 is rounded at 1e-11
    beliefs = HUB_METHODS[name].forward(graph, theta, edges=True, tape=True)
    assert_allclose(beliefs.mu, mu, rtol=0, atol=atol)
    assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=atol)
    assert_allclose(beliefs.log_z, log_z, rtol=1e-12, atol=1e-10)
    d_theta = HUB_METHODS[name].backward(beliefs, d_log_z=np.ones(1))
    assert_allclose(d_theta.unary, mu, rtol=0, atol=atol)
    assert_allclose(d_theta.tables, edge_mu, rtol=0, atol=atol)


def test_large_message_to_a_hub_leaves_no_rounding_errors(seed):
    """The message of one leaf is huge; what the hub sends to this leaf does not depend on it."""
    rng, graph = np.random.default_rng(seed), star(40, hub=0)
    theta = potentials(graph, 2, rng)
    theta.unary[7] = [1e12, 0.0]
    theta.tables[6] = [[0.0, -np.inf], [-np.inf, 0.0]]  # the state of leaf 7 is that of the hub
    engine = make_engine(graph, theta, np.ones(graph.n_edges))
    state, small = engine.initial_state(), theta._replace(unary=theta.unary.copy())
    small.unary[7] = 0.0
    other = make_engine(graph, small, np.ones(graph.n_edges))
    expected = other.initial_state()
    for _ in range(2):
        engine.step(state, np.ones(1, dtype=bool))
        other.step(expected, np.ones(1, dtype=bool))
    to_leaf = 2 * 6 + int(graph.edges[6, 1] == 7)
    found, wanted = (engine.messages(messages)[to_leaf] for messages in (state, expected))
    assert_allclose(found, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("rho", [1.0, 0.6])
@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_gradient_through_hubs(rho, forbidden, seed):
    rng, graph = np.random.default_rng(seed), GRAPHS["hub"]
    theta = potentials(graph, 2, rng, forbidden=forbidden)
    inference = TRW(rho=rho, max_iter=3, damping=0.2)
    d_mu = rng.normal(size=theta.unary.shape)
    d_edge_mu, d_log_z = rng.normal(size=(graph.n_edges, 2, 2)), rng.normal(size=1)

    def value(graph, theta):
        beliefs = inference.forward(graph, theta, edges=True)
        nodes = (np.resize(d_mu, beliefs.mu.shape) * beliefs.mu).sum(axis=1)
        edges = (np.resize(d_edge_mu, beliefs.edge_mu.shape) * beliefs.edge_mu).sum(axis=(1, 2))
        nodes, edges = (
            np.add.reduceat(*pair) for pair in ((nodes, graph.node_ptr[:-1]), (edges, graph.edge_ptr[:-1]))
        )
        return nodes + edges + np.resize(d_log_z, graph.n_examples) * beliefs.log_z

    beliefs = inference.forward(graph, theta, edges=True, tape=True)
    check_gradient(inference.backward(beliefs, d_mu, d_edge_mu, d_log_z), value, graph, theta)


def test_maximising_on_hubs_is_exact_on_forests(seed):
    rng, graph = np.random.default_rng(seed), star(30, hub=4)
    theta = potentials(graph, 3, rng, forbidden=0.2)
    expected = Exact().forward(graph, theta, 0.0).log_z
    for method in (Tree(), BP(max_iter=2), MaxProduct(), TRWS(max_iter=2)):
        beliefs = method.forward(graph, theta, 0.0)
        assert_allclose(beliefs.log_z, expected, rtol=1e-12)
        if beliefs.bound is not None:
            assert_allclose(beliefs.bound, expected, rtol=1e-10)


@pytest.mark.skipif(config.DISABLE_JIT, reason="measures compiled kernels")
@pytest.mark.parametrize("name", HUB_METHODS)
def test_time_is_linear_in_the_degree(name, seed):
    rng, times = np.random.default_rng(seed), []
    for n_leaves in (2_000, 40_000):
        graph = star(n_leaves, hub=0)
        theta, d_mu = potentials(graph, 2, rng), np.ones((graph.n_nodes, 2))

        def run(graph=graph, theta=theta, d_mu=d_mu):
            start = time.process_time()
            beliefs = HUB_METHODS[name].forward(graph, theta, edges=True, tape=True)
            HUB_METHODS[name].backward(beliefs, d_mu, beliefs.edge_mu, beliefs.log_z)
            return time.process_time() - start

        run()  # compiles
        times.append(min(run() for _ in range(3)) / n_leaves)
    assert times[1] < 5 * times[0]  # 20 times as large where it is quadratic


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "parents", [["above"], ["left"], ["above", "left"], ["left", "above", "above_left"], ["left", "above"]]
)
@pytest.mark.parametrize("cls", [BP, TRW, MeanField])
def test_meshes_are_graphs_with_any_order_of_the_edges(cls, parents, tied, seed):
    graph = mesh(3, 3, parents, tied=tied)
    theta = fields.normal(graph, 3, np.random.default_rng(seed), strength=0.3)
    options = {"max_iter": 500, "tol": 1e-12}
    if cls is TRW and parents == ["left", "above"]:
        options["rho"] = 0.6  # the spanning trees of lattices are different ones
    found = cls(**options).forward(graph, theta, edges=True)
    plain = from_edges(9, graph.edges), Potentials(theta.unary, tables_of_edges(graph, theta.tables))
    expected = cls(**options).forward(*plain, edges=True)
    assert found.converged.all() and expected.converged.all()
    assert_allclose(found.mu, expected.mu, rtol=0, atol=1e-9)
    assert_allclose(found.edge_mu, expected.edge_mu, rtol=0, atol=1e-9)
    assert_allclose(found.log_z, expected.log_z, rtol=0, atol=1e-9)


@any_graph
@pytest.mark.parametrize("rho", [1.0, 0.5, 0.7])
@pytest.mark.parametrize("layout", ["pairwise", "factor"])
def test_single_precision_is_close_to_double(graph, rho, layout, seed):
    rng = np.random.default_rng(seed)
    theta = potentials(graph, 3, rng, forbidden=0.1)
    d_mu, d_log_z = rng.normal(size=theta.unary.shape), rng.normal(size=graph.n_examples)
    if layout == "factor":
        graph, theta = as_factors(graph, 3), Potentials(theta.unary, theta.tables.reshape(-1))
    results = []
    for dtype in ("float32", "float64"):
        method = TRW(rho=rho, max_iter=5, dtype=dtype)
        beliefs = method.forward(graph, theta, tape=True, edges=True)
        d_edge_mu = np.cos(np.arange(beliefs.edge_mu.size)).reshape(beliefs.edge_mu.shape)
        results.append((beliefs.mu, beliefs.edge_mu, beliefs.log_z))
        for given in ((d_mu, None, None), (d_mu, d_edge_mu, d_log_z)):
            results[-1] += method.backward(beliefs, *given)
    for i, (single, double) in enumerate(zip(*results, strict=True)):
        assert single.dtype == np.float64
        size = 1e-5 if i < 3 else 1e-4 * np.abs(double).max()
        assert_allclose(single, double, rtol=1e-5, atol=size)


@pytest.mark.parametrize("layout", ["pairwise", "factor"])
@pytest.mark.parametrize("size", [50.0, 400.0, 1e4])
def test_single_precision_takes_extreme_potentials(layout, size, seed):
    rng = np.random.default_rng(seed)
    for graph in GRAPHS.values():
        theta = potentials(graph, 3, rng, size=size, forbidden=0.2)
        d_mu = rng.normal(size=theta.unary.shape)
        if layout == "factor":
            graph, theta = as_factors(graph, 3), Potentials(theta.unary, theta.tables.reshape(-1))
        method = TRW(rho=0.5, max_iter=5, dtype="float32")
        beliefs = method.forward(graph, theta, tape=True)
        assert_allclose(beliefs.mu.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        assert np.isfinite(beliefs.log_z).all()
        for derivative in method.backward(beliefs, d_mu):
            assert np.isfinite(derivative).all()
