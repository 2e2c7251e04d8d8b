"""Factor graphs: packing and selection, scores and statistics, conversion of pairwise graphs, errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import (
    Potentials,
    as_factors,
    factor_potentials,
    from_factors,
    lattice,
    outer,
    pack,
    scaled,
    score,
    score_vjp,
    select,
    sum_by_table,
    without_edges,
)

CARDS = [2, 3, 2, 1]
SCOPES = [[0, 1], [1, 2, 0], [2], [], [1, 0, 3]]


def one(rng):
    """Draw a graph with factors of zero to three nodes, and its potentials as arrays."""
    graph = from_factors(CARDS, SCOPES)
    tables = [rng.normal(size=[CARDS[node] for node in scope]) for scope in SCOPES]
    unary = [rng.normal(size=card) for card in CARDS]
    return graph, tables, unary


def test_scores_are_sums_of_table_entries(seed):
    rng = np.random.default_rng(seed)
    examples = [one(rng), one(rng)]
    graph = pack([example[0] for example in examples])
    thetas = [factor_potentials(*example) for example in examples]
    theta = Potentials(*(np.concatenate(parts) for parts in zip(*thetas, strict=True)))
    x = rng.integers(graph.cards)
    expected = []
    for (_, tables, unary), states in zip(examples, np.split(x, 2), strict=True):
        value = sum(values[state] for values, state in zip(unary, states, strict=True))
        value += sum(
            table[tuple(states[scope])] for table, scope in zip(tables, SCOPES, strict=True) if scope
        )
        expected.append(value + tables[3])
    assert_allclose(score(graph, theta, x), np.ravel(expected), rtol=0, atol=1e-12)

    one_hot = np.eye(3)[x]
    d_theta = score_vjp(graph, theta, one_hot, np.array([1.0, 2.0]))
    allowed = theta.unary > -np.inf
    value = (d_theta.unary * np.where(allowed, theta.unary, 0.0)).sum() + d_theta.tables @ theta.tables
    assert_allclose(value, expected[0] + 2 * expected[1], rtol=1e-12)
    assert_array_equal(d_theta.unary[~allowed], 0)
    statistics = score_vjp(graph, theta, one_hot, np.ones(2))
    assert_array_equal(sum_by_table(graph, outer(graph, one_hot)), statistics.tables)
    assert_array_equal(scaled(graph, statistics, np.array([1.0, 2.0])).tables, d_theta.tables)


def test_select_is_the_inverse_of_pack():
    graph, other = from_factors(CARDS, SCOPES), from_factors([2, 2], [[1, 0]], shape=(1, 2), normalised=True)
    batch = pack([graph, other, graph])
    part, at = select(batch, np.array([True, False, True]))
    for name, found, expected in zip(part._fields, part, pack([graph, graph]), strict=True):
        assert_array_equal(found, expected, err_msg=name)
        assert found.dtype == np.int64, name
    assert_array_equal(at.nodes, [0, 1, 2, 3, 6, 7, 8, 9])
    assert_array_equal(at.entries, np.r_[0:27, 31:58])
    alone, _ = select(batch, np.array([False, True, False]))
    for name, found, expected in zip(alone._fields, alone, other, strict=True):
        assert_array_equal(found, expected, err_msg=name)
    assert without_edges(batch).sizes | {"node": 0, "example": 0} == dict.fromkeys(batch.sizes, 0)


def test_pairs_are_factors_of_two_nodes(seed):
    rng = np.random.default_rng(seed)
    graph = pack([lattice(2, 3), lattice(1, 2)])
    theta = Potentials(rng.normal(size=(8, 3)), rng.normal(size=(graph.n_tables, 3, 3)))
    factors, flat = as_factors(graph, 3), theta._replace(tables=theta.tables.ravel())
    x = rng.integers(3, size=8)
    assert_allclose(score(factors, flat, x), score(graph, theta, x), rtol=0, atol=1e-12)
    mu = rng.dirichlet(np.ones(3), size=8)
    pairs = outer(graph, mu)
    assert_allclose(outer(factors, mu), pairs.ravel(), rtol=0, atol=1e-15)
    assert_allclose(
        sum_by_table(factors, pairs.ravel()), sum_by_table(graph, pairs).ravel(), rtol=0, atol=1e-14
    )
    again = from_factors(factors.cards[:6], graph.edges[:7], edge_table=graph.edge_table[:7])
    for name in ("stride", "incident", "incident_ptr", "entry_ptr", "belief_ptr"):
        assert_array_equal(getattr(again, name), getattr(as_factors(lattice(2, 3), 3), name), err_msg=name)


@pytest.mark.parametrize(
    "cards, scopes, options, message",
    [
        ([2, 0], [], {}, r"cards\[1\] must be at least 1, got 0"),
        ([2, 2.5], [], {}, r"cards\[1\] must be an integer, got 2.5"),
        ([2] * 64, [range(64)], {}, r"scopes\[0\] must have .* got 64 nodes and 2\*\*64 entries"),
        ([2, 2], [[0], [0, 2]], {}, r"scopes\[1\] must be distinct nodes below 2, got \[0, 2\]"),
        ([2, 2], [[0], [1, 1]], {}, r"scopes\[1\] must be distinct nodes below 2, got \[1, 1\]"),
        ([2, 2], [[0], [0, 0.5]], {}, r"scopes\[1\] must be distinct nodes below 2, got \[0, 0.5\]"),
        (
            [2, 3],
            [[0], [1]],
            {"edge_table": [0, 0]},
            r"scopes\[1\] must have the shape \[2\] of its table, got \[3\]",
        ),
        (
            [2, 2],
            [[0], [1]],
            {"edge_table": [0, 2]},
            "edge_table .* 2 distinct values from 0 to 2",
        ),
    ],
)
def test_bad_structure_is_refused(cards, scopes, options, message):
    with pytest.raises(ValueError, match=message):
        from_factors(cards, scopes, **options)


@pytest.mark.parametrize(
    "tables, unary, message",
    [
        ([np.zeros(5)], None, r"tables\[0\] must have shape \(2, 3\) or \(6,\), got shape \(5,\)"),
        ([np.zeros((3, 2))], None, r"tables\[0\] must have shape \(2, 3\) or \(6,\), got shape \(3, 2\)"),
        ([np.zeros((2, 3))] * 2, None, "tables must hold 1 arrays, got 2"),
        ([np.zeros((2, 3))], [[0.0]], "unary must hold 2 arrays, got 1"),
        (
            [np.zeros((2, 3))],
            [[0.0], [0.0, 1.0, 2.0]],
            r"unary\[0\] must have shape \(2,\), got shape \(1,\)",
        ),
    ],
)
def test_potentials_of_another_shape_are_refused(tables, unary, message):
    with pytest.raises(ValueError, match=message):
        factor_potentials(from_factors([2, 3], [[0, 1]]), tables, unary)
