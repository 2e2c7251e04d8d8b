"""Graphs and potentials: the arrays of a batch, packing and selection, and functions of potentials."""

from itertools import pairwise

import fields
import numpy as np
import pytest
import reference
from numpy.testing import assert_array_equal

from skcrf.graph import (
    Graph,
    augment,
    chain,
    clamp,
    from_edges,
    isolated,
    lattice,
    mesh,
    pack,
    score,
    score_vjp,
    select,
    sum_by_example,
    without_edges,
)
from skcrf.inference.trw import forest_weights, spanning_tree_weights

every_graph = pytest.mark.parametrize("graph", fields.GRAPHS.values(), ids=fields.GRAPHS.keys())
every_batch = pytest.mark.parametrize("graph", fields.BATCHES.values(), ids=fields.BATCHES.keys())


def spans(ptr):
    return [range(start, stop) for start, stop in pairwise(ptr)]


@every_graph
def test_arrays_are_contiguous_integers(graph):
    for name, array in zip(Graph._fields, graph, strict=True):
        assert array.dtype == np.int64, name
        assert array.flags.c_contiguous, name


@every_graph
def test_pointers_cover_everything_in_order(graph):
    for ptr, total in [
        (graph.node_ptr, graph.n_nodes),
        (graph.edge_ptr, graph.n_edges),
        (graph.table_ptr, graph.n_tables),
    ]:
        assert ptr.shape == (graph.n_examples + 1,)
        assert ptr[0] == 0
        assert ptr[-1] == total
        assert (np.diff(ptr) >= 0).all()
    assert graph.edges.shape == (graph.n_edges, 2)
    assert graph.edge_table.shape == (graph.n_edges,)
    assert graph.shapes.shape == (graph.n_examples, 2)


@every_graph
def test_edges_and_tables_stay_within_their_example(graph):
    for example, (nodes, edges, tables) in enumerate(
        zip(spans(graph.node_ptr), spans(graph.edge_ptr), spans(graph.table_ptr), strict=True)
    ):
        assert {int(i) for e in edges for i in graph.edges[e]} <= set(nodes)
        # every table is used, by edges of its own example only
        assert {int(graph.edge_table[e]) for e in edges} == set(tables)
        assert_array_equal(graph.node_example[nodes.start : nodes.stop], example)
        assert_array_equal(graph.edge_example[edges.start : edges.stop], example)
        assert_array_equal(graph.table_example[tables.start : tables.stop], example)


@every_graph
def test_incident_lists_the_messages_to_each_node(graph):
    assert graph.incident_ptr.shape == (graph.n_nodes + 1,)
    assert graph.incident_ptr[0] == 0
    assert graph.incident_ptr[-1] == 2 * graph.n_edges
    for i in range(graph.n_nodes):
        listed = graph.incident[graph.incident_ptr[i] : graph.incident_ptr[i + 1]]
        arriving = [2 * e + s for e in range(graph.n_edges) for s in (0, 1) if graph.edges[e, s] == i]
        assert sorted(listed) == arriving


@every_graph
def test_schedule_sends_each_message_once_and_examples_in_turn(graph):
    assert_array_equal(np.sort(graph.schedule), np.arange(2 * graph.n_edges))
    for edges in spans(graph.edge_ptr):
        sent = graph.schedule[2 * edges.start : 2 * edges.stop]
        assert {int(message) // 2 for message in sent} == set(edges)


@every_graph
def test_node_order_visits_each_node_once_and_examples_in_turn(graph):
    assert_array_equal(np.sort(graph.node_order), np.arange(graph.n_nodes))
    for nodes in spans(graph.node_ptr):
        assert set(graph.node_order[nodes.start : nodes.stop].tolist()) == set(nodes)


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("height, width", [(1, 1), (1, 4), (4, 1), (2, 2), (2, 3), (3, 3)])
@pytest.mark.parametrize("tied", [True, False])
def test_lattice_joins_neighbours(height, width, connectivity, tied):
    graph = lattice(height, width, connectivity=connectivity, tied=tied)
    assert graph.n_nodes == height * width
    assert_array_equal(graph.shapes, [[height, width]])
    reach = 1 if connectivity == 4 else 2  # largest squared distance
    pixels = [(r, c) for r in range(height) for c in range(width)]
    expected = {
        (i, j)
        for i, (r, c) in enumerate(pixels)
        for j, (s, d) in enumerate(pixels)
        if i < j and (r - s) ** 2 + (c - d) ** 2 <= reach
    }
    found = [(int(i), int(j)) for i, j in graph.edges]
    assert set(found) == expected
    assert len(found) == len(expected)
    directions = {}
    for e, (i, j) in enumerate(found):
        offset = np.subtract(pixels[j], pixels[i])
        directions.setdefault(int(graph.table_group[graph.edge_table[e]]), set()).add(tuple(offset.tolist()))
    # one direction per group, one group per direction
    assert all(len(offsets) == 1 for offsets in directions.values())
    assert len({*map(tuple, directions.values())}) == len(directions)
    assert graph.n_tables == (len(directions) if tied else graph.n_edges)


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("height, width", [(1, 1), (1, 4), (4, 1), (2, 3), (3, 3), (4, 5)])
def test_node_order_of_a_lattice_goes_colour_by_colour(height, width, connectivity):
    graph = lattice(height, width, connectivity=connectivity)
    neighbours = {frozenset(edge) for edge in graph.edges.tolist()}
    runs, current = 1, []
    for node in graph.node_order.tolist():  # greedy: start a new colour when a neighbour is met
        if any(frozenset((node, other)) in neighbours for other in current):
            runs, current = runs + 1, []
        current.append(node)
    assert runs <= (2 if connectivity == 4 else 4)


def test_sweeps_of_a_lattice_are_sequential():
    """Messages along a row follow one another, first to the right and then to the left."""
    graph = lattice(2, 4)
    place = np.argsort(graph.schedule)
    for e, (i, j) in enumerate(graph.edges.tolist()):
        for f, (k, m) in enumerate(graph.edges.tolist()):
            same_direction = j - i == m - k
            if same_direction and j == k:
                assert place[2 * e + 1] < place[2 * f + 1]  # towards higher nodes
                assert place[2 * f] < place[2 * e]  # and back
            if same_direction:
                assert place[2 * e + 1] < place[2 * f]
            if j - i == 1 and m - k == 4:
                assert max(place[2 * e], place[2 * e + 1]) < min(place[2 * f], place[2 * f + 1])


def test_chain_and_edges_given_in_any_direction():
    assert_array_equal(chain(4).edges, [(0, 1), (1, 2), (2, 3)])
    assert chain(4).n_tables == 1
    assert chain(4, tied=False).n_tables == 3
    assert chain(1).n_edges == chain(1).n_tables == 0
    edges = [(3, 0), (1, 2), (0, 2)]
    graph = from_edges(4, edges)
    assert_array_equal(graph.edges, edges)
    assert_array_equal(graph.edge_table, [0, 1, 2])
    assert_array_equal(from_edges(4, edges, tied=True).edge_table, [0, 0, 0])


@pytest.mark.parametrize(
    "make, args, others",
    [
        (lattice, (3, 4, 8), [(4, 3, 8), (3, 4, 4), (3, 4, 8, False)]),
        (mesh, (3, 4, ["left", "above"]), [(4, 3, ["left", "above"]), (3, 4, ["above", "left"])]),
        (chain, (5,), [(6,), (5, False)]),
    ],
)
def test_calls_with_equal_arguments_share_the_graph(make, args, others):
    graph = make(*args)
    assert make(*args) is graph
    assert all(make(*other) is not graph for other in others)


@pytest.mark.parametrize(
    "parents, is_lattice",
    [
        (["left", "above"], True),
        (["left", "above", "above_left", "above_right"], True),
        (["above", "left"], False),
        (["above"], False),
        (["left", "above", "above_left"], False),
    ],
)
def test_meshes_have_the_shape_of_a_lattice_only_with_its_edges(parents, is_lattice):
    graph = mesh(3, 4, parents)
    assert_array_equal(graph.shapes, [[3, 4] if is_lattice else [0, 0]])
    if is_lattice:
        assert_array_equal(graph.edges, lattice(3, 4, 2 * len(parents)).edges)


def test_messages_of_a_chain_are_sent_forwards_and_backwards():
    """One iteration of belief propagation is then exact."""
    graph = chain(5)
    assert_array_equal(graph.schedule, [1, 3, 5, 7, 6, 4, 2, 0])


@pytest.mark.parametrize("edge", [[0, 3], [-1, 0], [1, 1]])
def test_edges_must_join_two_nodes(edge):
    with pytest.raises(ValueError, match=r"edges\[1\] must be two distinct nodes below 3, got \["):
        from_edges(3, [[0, 1], edge])


@every_batch
def test_pack_is_the_inverse_of_split(graph, seed):
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    singles = [one for one, _ in fields.split(graph, theta)]
    again = pack(singles)
    for name, expected, found in zip(Graph._fields, graph, again, strict=True):
        assert_array_equal(found, expected, err_msg=name)
        assert found.dtype == np.int64
    for one in singles:
        assert one.n_examples == 1


def test_pack_of_single_graphs_and_of_batches():
    parts = [
        fields.SINGLES["cycle"],
        fields.SINGLES["single"],
        fields.SINGLES["lattice_2x3"],
        fields.SINGLES["tree"],
    ]
    flat = pack(parts)
    assert flat.n_examples == 4
    for nested in (pack([pack(parts[:2]), pack(parts[2:])]), pack([pack([parts[0]]), pack(parts[1:])])):
        for name, expected, found in zip(Graph._fields, flat, nested, strict=True):
            assert_array_equal(found, expected, err_msg=name)


def test_select_is_the_inverse_of_pack(seed):
    rng = np.random.default_rng(seed)
    graphs = [*fields.SINGLES.values(), lattice(3, 4), lattice(4, 3, connectivity=8, tied=False)]
    whole = pack(graphs)
    theta = fields.normal(whole, 2, rng)
    singles = fields.split(whole, theta)
    one = np.arange(len(graphs)) == 3
    for chosen in (one, ~one, one | ~one, *(rng.random((10, len(graphs))) < 0.4)):
        part, where = select(whole, chosen)
        kept = np.flatnonzero(chosen)
        for name, found, expected in zip(part._fields, part, pack([graphs[i] for i in kept]), strict=True):
            assert_array_equal(found, expected, err_msg=name)
            assert found.dtype == np.int64, name
            assert found.flags.c_contiguous, name
        assert_array_equal(where.examples, kept)
        assert_array_equal(where.edges, np.flatnonzero(chosen[whole.edge_example]))
        assert_array_equal(theta.unary[where.nodes], np.concatenate([singles[i][1].unary for i in kept]))
        assert_array_equal(theta.tables[where.tables], np.concatenate([singles[i][1].tables for i in kept]))


def test_select_from_a_batch_of_batches(seed):
    whole = pack(
        [fields.BATCHES["isolated"], fields.BATCHES["mixed"], fields.BATCHES["isolated"], lattice(2, 3)]
    )
    chosen = np.isin(np.arange(whole.n_examples), [1, 3, 6, 9, 10])
    mixed = fields.BATCHES["mixed"]
    first, _ = select(mixed, np.isin(np.arange(mixed.n_examples), [0, 3]))
    part, _ = select(whole, chosen)
    expected = pack([isolated(1), first, isolated(1), lattice(2, 3)])
    for name, found, array in zip(part._fields, part, expected, strict=True):
        assert_array_equal(found, array, err_msg=name)


def test_isolated_and_without_edges():
    graph = isolated(4)
    assert (graph.n_examples, graph.n_nodes, graph.n_edges, graph.n_tables) == (4, 4, 0, 0)
    assert_array_equal(graph.node_ptr, np.arange(5))
    for before in fields.GRAPHS.values():
        after = without_edges(before)
        assert_array_equal(after.node_ptr, before.node_ptr)
        assert_array_equal(after.shapes, before.shapes)
        assert_array_equal(after.node_order, before.node_order)
        assert after.n_edges == after.n_tables == 0
        assert after.incident_ptr.shape == (before.n_nodes + 1,)
        assert not after.incident_ptr.any()


@every_graph
@pytest.mark.parametrize("n_states", [1, 2, 3])
def test_score_is_theta_dot_f(graph, n_states, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, n_states, rng)
    x = fields.labels(graph, n_states, rng)
    expected = [
        reference.scores(part, x[None, nodes.start : nodes.stop])[0]
        for part, nodes in zip(reference.parts(graph, theta), spans(graph.node_ptr), strict=True)
    ]
    np.testing.assert_allclose(score(graph, theta, x), expected, rtol=1e-12, atol=1e-12)


@every_graph
def test_clamp_leaves_one_state_at_labelled_nodes(graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 3, rng)
    y = fields.labels(graph, 3, rng, hidden=0.5)
    before = theta.unary.copy()
    clamped = clamp(theta, y)
    assert_array_equal(theta.unary, before)
    assert_array_equal(clamped.tables, theta.tables)
    for i, label in enumerate(y):
        possible = range(3) if label == -1 else [label]
        assert_array_equal(np.isfinite(clamped.unary[i]), np.isin(range(3), possible))
        assert_array_equal(clamped.unary[i, possible], theta.unary[i, possible])


@every_graph
def test_clamped_log_z_is_the_log_probability_of_the_labels(graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng)
    y = fields.labels(graph, 2, rng, hidden=0.5)
    found = reference.log_z(graph, clamp(theta, y)) - reference.log_z(graph, theta)
    np.testing.assert_allclose(found, reference.log_probability(graph, theta, y), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("per_node", [False, True])
def test_augment_adds_the_hamming_loss(per_node, seed):
    rng = np.random.default_rng(seed)
    graph = fields.BATCHES["mixed"]
    theta = fields.forbidden_unary(graph, 3, rng)
    y = fields.labels(graph, 3, rng, hidden=0.3)
    cost = rng.uniform(0.5, 2.0, size=graph.n_nodes) if per_node else 0.7
    more = augment(theta, y, cost)
    assert_array_equal(more.tables, theta.tables)
    costs = np.broadcast_to(cost, graph.n_nodes)
    for i in range(graph.n_nodes):
        for state in range(3):
            added = costs[i] if y[i] not in (-1, state) else 0.0
            assert more.unary[i, state] == theta.unary[i, state] + added


def test_augment_costs_one_by_default():
    graph = chain(2)
    theta = fields.constant(graph, 2, None)
    assert_array_equal(augment(theta, np.array([1, -1])).unary, [[1, 0], [0, 0]])


@every_graph
def test_score_vjp_counts_the_pairs_of_a_configuration(graph, seed):
    rng = np.random.default_rng(seed)
    theta, x = fields.forbidden_unary(graph, 3, rng), rng.integers(3, size=graph.n_nodes)
    d_score = rng.normal(size=graph.n_examples)
    expected = np.zeros_like(theta.tables)
    for e, (i, j) in enumerate(graph.edges):
        expected[graph.edge_table[e], x[i], x[j]] += d_score[graph.edge_example[e]]
    found = score_vjp(graph, theta, np.eye(3)[x], d_score)
    np.testing.assert_allclose(found.tables, expected, rtol=1e-12, atol=1e-12)
    assert_array_equal(found.unary, np.eye(3)[x] * d_score[graph.node_example, None])


@every_batch
def test_sum_by_example_equals_a_loop(graph, seed):
    rng = np.random.default_rng(seed)
    for ptr, example in [(graph.node_ptr, graph.node_example), (graph.edge_ptr, graph.edge_example)]:
        values = rng.normal(size=ptr[-1])
        expected = [sum(values[i] for i in span) for span in spans(ptr)]
        found = sum_by_example(values, example, graph)
        assert found.shape == (graph.n_examples,)
        assert found.dtype == np.float64  # also without entries
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


# Edge weights of TRW


@every_graph
def test_weights_are_a_distribution_over_spanning_trees(graph):
    rho = spanning_tree_weights(graph)
    assert rho.shape == (graph.n_edges,)
    assert (rho > 0).all()
    theta = fields.constant(graph, 2, None)
    for example, part in enumerate(reference.parts(graph, theta)):
        own = rho[graph.edge_ptr[example] : graph.edge_ptr[example + 1]]
        assert reference.tree_distribution_slack(part, own) < 1e-12
    if reference.is_forest(graph):
        assert_array_equal(rho, 1.0)


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("height, width", [(3, 3), (2, 4), (4, 2), (1, 5), (5, 1)])
def test_weights_of_lattices_are_a_distribution_over_spanning_trees(height, width, connectivity):
    graph = lattice(height, width, connectivity=connectivity)
    part = reference.parts(graph, fields.constant(graph, 2, None))[0]
    assert reference.tree_distribution_slack(part, spanning_tree_weights(graph)) < 1e-12


@pytest.mark.parametrize(("connectivity", "weight"), [(4, 0.5), (8, 0.25)])
def test_forest_weights_are_equal_on_large_lattices_only(connectivity, weight):
    small, large = lattice(63, 64, connectivity=connectivity), lattice(64, 65, connectivity=connectivity)
    rho = forest_weights(pack([small, large]))
    assert_array_equal(rho[: small.n_edges], spanning_tree_weights(small))
    assert_array_equal(rho[small.n_edges :], weight)
    assert abs(spanning_tree_weights(large) - weight).min() <= weight / 64 + 1e-12
    for graph in fields.EVERY.values():  # all of them are small
        assert_array_equal(forest_weights(graph), spanning_tree_weights(graph))


def test_weights_of_random_graphs_are_a_distribution_over_spanning_trees(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        pairs = [(i, j) for i in range(6) for j in range(6) if i != j and rng.random() < 0.25]
        graph = from_edges(6, pairs)
        part = reference.parts(graph, fields.constant(graph, 2, None))[0]
        assert reference.tree_distribution_slack(part, spanning_tree_weights(graph)) < 1e-12


def test_slack_of_weights_outside_the_spanning_tree_polytope():
    part = reference.parts(fields.SINGLES["cycle"], fields.constant(fields.SINGLES["cycle"], 2, None))[0]
    assert reference.tree_distribution_slack(part, [0.75] * 4) < 1e-12
    assert reference.tree_distribution_slack(part, [1.0] * 4) > 0.5
    assert reference.tree_distribution_slack(part, [0.5] * 4) > 0.5
    assert reference.tree_distribution_slack(part, [1.2, 0.6, 0.6, 0.6]) > 0.1
