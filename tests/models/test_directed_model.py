"""Directed models: factors, conditional probabilities, their derivative, samples and errors."""

import numpy as np
import pytest
from batching import batch_of
from derivatives import check_gradient
from messages import says
from numpy.testing import assert_allclose, assert_array_equal
from reference import configurations, logsumexp, parts

from skcrf.graph import (
    PARENTS,
    Potentials,
    from_edges,
    from_factors,
    mesh,
    pack,
    score,
    select,
    sum_by_example,
    topological_order,
)
from skcrf.models import DirectedModel, ancestral_samples, conditionals, conditionals_vjp, families

# Parents after their children by number, three parents of one node, a node alone.
EDGES = [[3, 0], [3, 1], [2, 0], [4, 0], [4, 2]]
N_STATES = 3


def draw(rng):
    graph = pack([from_edges(6, EDGES), mesh(2, 2, ["above", "left", "above_left"]), from_edges(1, [])])
    tables = rng.normal(size=(graph.n_tables, N_STATES, N_STATES))
    return graph, Potentials(rng.normal(size=(graph.n_nodes, N_STATES)), tables)


def log_probabilities(part, x):
    """By the definition: each node's scores given its parents' labels, normalised."""
    total = np.zeros(len(x))
    for i, unary in enumerate(part.unary):
        for row, states in enumerate(x):
            scores = unary.copy()
            for (parent, child), table in zip(part.edges, part.tables, strict=True):
                if child == i:
                    scores = scores + table[states[parent]]
            total[row] += scores[states[i]] - logsumexp(scores)
    return total


def test_conditionals_follow_the_definition_and_sum_to_one(seed):
    rng = np.random.default_rng(seed)
    graph, theta = draw(rng)
    factors = families(graph, N_STATES)
    log_p = conditionals(graph, factors, theta)
    rows = np.exp(log_p.tables).reshape(-1, N_STATES)
    assert_allclose(rows.sum(axis=1), 1, rtol=1e-12)
    x = rng.integers(N_STATES, size=graph.n_nodes)
    found = score(factors, log_p, x)
    for example, part in enumerate(parts(graph, theta)):
        own = x[graph.node_ptr[example] : graph.node_ptr[example + 1]]
        assert_allclose(found[example], log_probabilities(part, own[None])[0], rtol=1e-12)
        if len(own) <= 4:
            everything = log_probabilities(part, configurations(part))
            assert_allclose(np.exp(everything).sum(), 1, rtol=1e-12)


@pytest.mark.parametrize("known", [0.0, 0.5, 1.0])
def test_derivative_of_conditionals_agrees_with_differences(seed, known):
    rng = np.random.default_rng(seed)
    graph, theta = draw(rng)
    given = np.where(rng.uniform(size=graph.n_nodes) < known, rng.integers(N_STATES, size=graph.n_nodes), -1)
    factors = families(graph, N_STATES, given)
    direction = rng.normal(size=factors.entry_ptr[-1])
    direction[: len(direction) // 2][rng.uniform(size=len(direction) // 2) < 0.8] = 0.0
    entry_example = factors.examples_of["entry"]

    def value(graph, theta):
        y = np.resize(given, graph.n_nodes)
        many = families(graph, N_STATES, y)
        moved = conditionals(graph, many, theta, y).tables * np.resize(direction, many.entry_ptr[-1])
        return sum_by_example(moved, many.examples_of["entry"], many)

    assert len(entry_example) == len(direction)
    log_p = conditionals(graph, factors, theta, given)
    d_theta = conditionals_vjp(graph, factors, log_p, log_p._replace(tables=direction), given)
    check_gradient(d_theta, value, graph, theta)


def test_factors_leave_out_parents_with_known_labels(seed):
    rng = np.random.default_rng(seed)
    graph, theta = draw(rng)
    x = rng.integers(N_STATES, size=graph.n_nodes)
    given = np.where(rng.uniform(size=graph.n_nodes) < 0.5, x, -1)
    whole, part = families(graph, N_STATES), families(graph, N_STATES, given)
    assert not (
        given[part.scope[np.setdiff1d(np.arange(len(part.scope)), part.scope_ptr[1:] - 1)]] >= 0
    ).any()
    assert_allclose(
        score(part, conditionals(graph, part, theta, given), x),
        score(whole, conditionals(graph, whole, theta), x),
        rtol=1e-12,
    )
    assert len(families(graph, N_STATES, x).scope) == graph.n_nodes


def test_factors_of_a_batch_are_the_factors_of_its_examples():
    graphs = [from_edges(6, EDGES), mesh(2, 3, ["left", "above"])]
    together = families(pack(graphs), 2)
    for name, found, expected in zip(
        together._fields, together, pack([families(graph, 2) for graph in graphs]), strict=True
    ):
        assert_array_equal(found, expected, err_msg=name)
    alone, _ = select(together, np.array([True, False]))
    scopes = np.split(alone.scope, alone.scope_ptr[1:-1])
    assert [scope.tolist() for scope in scopes] == [[3, 2, 4, 0], [3, 1], [4, 2], [3], [4], [5]]
    made = from_factors([2] * 6, scopes, normalised=True)
    for name, found, expected in zip(alone._fields, alone, made, strict=True):
        if name not in ("schedule", "node_order"):
            assert_array_equal(found, expected, err_msg=name)
    # Every message once: down to children after the messages to their parents, then up.
    assert_array_equal(np.sort(alone.schedule), np.arange(len(alone.scope)))
    assert_array_equal(alone.scope[alone.schedule[:6]], alone.node_order)


def test_samples_have_the_probabilities_of_the_model(seed):
    rng = np.random.default_rng(seed)
    graph = from_edges(3, [[2, 0], [2, 1], [0, 1]])
    theta = Potentials(rng.normal(size=(3, 2)), rng.normal(size=(3, 2, 2)))
    n = 20_000
    x = ancestral_samples(graph, families(graph, 2), theta, rng.uniform(size=(3, n)))
    part = parts(graph, theta)[0]
    everything = configurations(part)
    p = np.exp(log_probabilities(part, everything))
    found = np.bincount(x.T @ [4, 2, 1], minlength=8) / n
    assert_allclose(found, p, atol=5 * np.sqrt(0.25 / n), rtol=0)


def test_edges_of_a_mesh_lead_from_the_named_parents():
    for name, (down, right) in PARENTS.items():
        graph = mesh(3, 4, [name])
        (parent_row, parent_column), (row, column) = (np.divmod(end, 4) for end in graph.edges.T)
        assert_array_equal(row - parent_row, down)
        assert_array_equal(column - parent_column, right)
        assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
        assert graph.n_edges == (3 - down) * (4 - abs(right))


@pytest.mark.parametrize(
    "edges, message",
    [
        (
            [[0, 1], [1, 2], [2, 0]],
            says("cycle (0 -> 1 -> 2 -> 0|1 -> 2 -> 0 -> 1|2 -> 0 -> 1 -> 2)", "parents"),
        ),
        ([[3, 0], [0, 2], [2, 0], [2, 1]], says("cycle (0 -> 2 -> 0|2 -> 0 -> 2)", "parents")),
        ([[0, 1], [2, 3], [0, 1]], says("edges", "0 -> 1 twice", "once")),
    ],
)
def test_errors_name_cycles_and_repeated_parents(edges, message):
    with pytest.raises(ValueError, match=message):
        families(from_edges(4, edges), 2)


def test_error_for_too_many_parents_names_the_node():
    edges = [[parent, 16] for parent in range(16)]
    families(from_edges(17, edges[:15]), 2)
    with pytest.raises(
        ValueError,
        match=says("[Nn]ode 16 of example 0", "(16 parents|got 16)", "2 classes", r"2\*\*17", "at most 15"),
    ):
        families(from_edges(17, edges), 2)


def test_topological_order_of_a_long_line():
    length = 2000
    nodes = np.arange(length)[::-1]
    order = topological_order(length, np.stack([nodes[:-1], nodes[1:]], axis=1))
    assert_array_equal(order, nodes)


def model_and_batch(rng, hidden=0.5):
    """Draw a directed model, its parameters, and a batch with some hidden labels."""
    graph, _ = draw(rng)
    model = DirectedModel(N_STATES, 2, 1, int(graph.table_group.max()) + 1)
    params = {name: rng.normal(size=shape) for name, shape in model.shapes.items()}
    y = rng.integers(N_STATES, size=graph.n_nodes)
    y = np.where(rng.uniform(size=graph.n_nodes) < hidden, -1, y)
    return (
        model,
        params,
        batch_of(graph, rng.normal(size=(graph.n_nodes, 2)), np.ones((graph.n_tables, 1)), y),
    )


def test_potentials_of_the_model_are_the_conditionals_of_its_scores(seed):
    model, params, batch = model_and_batch(np.random.default_rng(seed))
    factors, theta = model.potentials(params, batch)
    scores = model.scores(params, batch)
    expected = conditionals(batch.graph, families(batch.graph, N_STATES), scores)
    assert factors.normalised.all()
    assert_array_equal(theta.tables, expected.tables)
    assert not theta.unary.any()


def test_model_given_labels_scores_configurations_with_these_labels_alike(seed):
    rng = np.random.default_rng(seed)
    model, params, batch = model_and_batch(rng)
    x = np.where(batch.y >= 0, batch.y, rng.integers(N_STATES, size=batch.n_sites))
    whole, given = model.potentials(params, batch), model.given_labels().potentials(params, batch)
    assert len(given[1].tables) < len(whole[1].tables)
    assert_allclose(score(*given, x), score(*whole, x), rtol=1e-12)


def test_model_given_no_labels_has_all_parents(seed):
    model, params, batch = model_and_batch(np.random.default_rng(seed), hidden=1.0)
    found, expected = (one.potentials(params, batch)[1] for one in (model.given_labels(), model))
    assert_array_equal(found.tables, expected.tables)


def test_factors_are_shared_by_batches_of_one_graph(seed):
    model, _, batch = model_and_batch(np.random.default_rng(seed))
    again = batch_of(batch.graph, batch.X, batch.V)
    assert model.structure(again) is model.structure(batch)
    assert model.given_labels().structure(batch) is not model.structure(batch)


def test_samples_of_the_model_are_ancestral_samples_of_its_scores(seed):
    rng = np.random.default_rng(seed)
    model, params, batch = model_and_batch(rng)
    uniforms = rng.uniform(size=(batch.n_sites, 5))
    scores = model.scores(params, batch)
    expected = ancestral_samples(batch.graph, families(batch.graph, N_STATES), scores, uniforms)
    assert_array_equal(model.sample(params, batch, uniforms), expected)
