"""Messages and mean field on factor graphs, against pairwise graphs and, for marginal MAP, enumeration."""

import gc
import weakref
from itertools import combinations

import fields
import methods
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from engines import assert_close_gradients, engines_of, mixed_product_states, only_plain_engines
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from skcrf.graph import (
    Potentials,
    as_factors,
    clamp,
    factor_potentials,
    from_edges,
    from_factors,
    lattice,
    outer,
    pack,
)
from skcrf.inference import BP, INFERENCE, Exact
from skcrf.inference.trw import spanning_tree_weights

BOTH = {name: cls for name, cls in methods.LEARNING.items() if cls.layouts >= {"pairwise", "factor"}}
MIXED = {name: cls for name, cls in methods.LEARNING.items() if "mixed" in cls.tasks}


def as_factor_layout(graph, theta):
    """Convert a batch to the factor layout."""
    return as_factors(graph, theta.unary.shape[1]), theta._replace(tables=theta.tables.reshape(-1))


def settings(cls, graph):
    """List settings: truncated with edge weights, damped, and to a fixed point."""
    if "max_iter" not in cls().get_params():
        return [cls()]
    rho = {"rho": spanning_tree_weights(graph)} if graph.n_edges else {}
    return [
        methods.build(cls, max_iter=2, **rho),
        methods.build(cls, max_iter=2, damping=0.3, **rho),
        methods.build(cls, max_iter=60, tol=1e-6, **rho),
    ]


@pytest.mark.parametrize("draw", [fields.normal, fields.forbidden, fields.extreme])
@pytest.mark.parametrize("name", BOTH)
def test_factors_of_two_nodes_equal_edges(name, draw, seed):
    rng, cls = np.random.default_rng(seed), BOTH[name]
    if draw is fields.forbidden and cls.exact_on is None:
        draw = fields.forbidden_unary  # the large potential of forbidden pairs leaves few digits
    for title, graph in fields.EVERY.items():
        theta = draw(graph, 3, rng)
        factors, flat = as_factor_layout(graph, theta)
        # Log-messages near 1e4 have few decimals, and many iterations lose more of them.
        for inference in settings(cls, graph)[: 2 if draw is fields.extreme else 3]:
            with methods.case(title, inference), only_plain_engines():
                one = inference.forward(graph, theta, edges=True, tape=True)
                other = inference.forward(factors, flat, edges=True, tape=True)
                assert_allclose(other.mu, one.mu, rtol=0, atol=1e-10)
                assert_allclose(other.edge_mu, one.edge_mu.reshape(-1), rtol=0, atol=1e-10)
                assert_allclose(other.log_z, one.log_z, rtol=1e-10, atol=1e-10)
                assert_array_equal(other.n_iter, one.n_iter)
                d_mu, d_log_z = rng.normal(size=one.mu.shape), rng.normal(size=one.log_z.shape)
                d_edge_mu = rng.normal(size=one.edge_mu.shape)
                expected = inference.backward(one, d_mu, d_edge_mu, d_log_z)
                found = inference.backward(other, d_mu, d_edge_mu.reshape(-1), d_log_z)
                found = found._replace(tables=found.tables.reshape(theta.tables.shape))
                assert_close_gradients(found, expected, atol=1e-9)
        if "max" in cls.tasks and reference.is_forest(graph):  # elsewhere decoding depends on the order
            one, other = cls().forward(graph, theta, 0.0), cls().forward(factors, flat, 0.0)
            assert_allclose(other.log_z, one.log_z, rtol=1e-12, atol=1e-9)


def draw_maximised(graph, rng, n=3):
    """Draw which nodes are maximised, at least one and not all."""
    for _ in range(n if graph.n_nodes > 1 else 0):
        maximised = rng.random(graph.n_nodes) < 0.5
        maximised[rng.permutation(graph.n_nodes)[:2]] = [True, False]
        yield maximised


@pytest.mark.parametrize("name", ["bp", "trw"])
def test_factors_of_two_nodes_are_computed_as_edges(name, seed):
    """Examples differ in their numbers of states, and one has factors of one and three nodes."""
    rng = np.random.default_rng(seed)
    other = from_factors([2, 3, 2, 3], [[0, 1], [2], [1, 2, 3]])
    batch = pack([as_factors(lattice(4, 5), 2), as_factors(lattice(2, 3), 3), other])
    unary = np.where(np.arange(3) < batch.cards[:, None], rng.normal(size=(batch.n_nodes, 3)), -np.inf)
    theta = Potentials(unary, rng.normal(size=batch.entry_ptr[-1]))
    inference = methods.build(INFERENCE[name], max_iter=3, damping=0.2)
    found = inference.forward(batch, theta, edges=True, tape=True)
    with only_plain_engines():
        expected = inference.forward(batch, theta, edges=True, tape=True)
    assert engines_of(found) == {"FactorPairEngine", "FactorEngine"}
    assert engines_of(expected) == {"FactorEngine"}
    for values in zip(*((one.mu, one.edge_mu, one.log_z) for one in (found, expected)), strict=True):
        assert_allclose(*values, rtol=1e-12, atol=1e-13)
    d_mu, d_log_z = rng.normal(size=unary.shape), rng.normal(size=batch.n_examples)
    for given in ((d_mu, None, None), (d_mu, rng.normal(size=found.edge_mu.shape), d_log_z)):
        derivatives = (inference.backward(beliefs, *given) for beliefs in (found, expected))
        for values in zip(*derivatives, strict=True):
            assert_allclose(*values, rtol=1e-9, atol=1e-11)
    chosen = inference.forward(batch, theta, 0.0)
    with only_plain_engines():
        assert_array_equal(chosen.mu, inference.forward(batch, theta, 0.0).mu)


@pytest.mark.parametrize("potentials", fields.POTENTIALS)
@pytest.mark.parametrize("name", [name for name, cls in MIXED.items() if cls.exact_on == "any"])
def test_marginal_map_agrees_with_enumeration(name, potentials, seed):
    rng = np.random.default_rng(seed)
    for title, graph in methods.supported(MIXED[name], fields.ANY).items():
        theta = fields.POTENTIALS[potentials](graph, 2, rng)
        for maximised in draw_maximised(graph, rng):
            with methods.case(title, maximised):
                beliefs = MIXED[name]().forward(graph, theta, np.where(maximised, 0.0, 1.0), edges=True)
                assert_mixed(beliefs, graph, theta, maximised, exact=True)


def assert_mixed(beliefs, graph, theta, maximised, *, exact):
    """Check that beliefs are exact given the decoded states and, if `exact`, that these are optimal."""
    value, choices = reference.marginal_map(graph, theta, maximised)
    x = beliefs.mu.argmax(axis=1)
    one_hot = np.eye(beliefs.mu.shape[1])[x[maximised]]
    assert_allclose(beliefs.mu[maximised], one_hot, rtol=0, atol=1e-12)
    left = theta.unary.copy()
    left[maximised] = np.where(one_hot > 0, left[maximised], -np.inf)
    mu, edge_mu = reference.marginals(graph, theta._replace(unary=left))
    assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-10)
    assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=1e-10)
    assert_allclose(beliefs.log_z, reference.log_z(graph, theta._replace(unary=left)), rtol=1e-10, atol=1e-9)
    if exact:
        assert_allclose(beliefs.log_z, value, rtol=1e-10, atol=1e-9)
        for chosen in choices:
            assert any(all(x[i] == state for i, state in best.items()) for best in chosen)


#: Forests whose maximised nodes are connected, so that the summed nodes form subtrees.
CONNECTED = {
    "chain": (fields.SINGLES["chain"], [1, 2]),
    "star": (fields.SINGLES["star"], [0, 2]),
    "tree": (fields.SINGLES["tree"], [3, 1, 4]),
    "triple": (fields.FACTORS["triple"], [1, 2]),
    "hypertree": (fields.FACTORS["hypertree"], [1, 3, 5]),
    "four_at_once": (fields.FACTORS["four_at_once"], [0, 3]),
}


@pytest.mark.parametrize("potentials", ["normal", "attractive", "forbidden"])
@pytest.mark.parametrize("name", MIXED)
def test_mixed_product_is_exact_if_maximised_nodes_are_connected(name, potentials, seed):
    rng = np.random.default_rng(seed)
    for title, (graph, nodes) in CONNECTED.items():
        maximised = np.isin(np.arange(graph.n_nodes), nodes)
        theta = fields.POTENTIALS[potentials](graph, 2, rng)
        with methods.case(title):
            beliefs = MIXED[name]().forward(graph, theta, np.where(maximised, 0.0, 1.0), edges=True)
            assert_mixed(beliefs, graph, theta, maximised, exact=True)


@pytest.mark.parametrize("name", [name for name, cls in MIXED.items() if cls.exact_on != "any"])
def test_marginal_map_is_no_worse_than_max_product(name, seed):
    rng, graph = np.random.default_rng(seed), pack([lattice(5, 6)] * 8)
    theta, maximised = fields.attractive(graph, 3, rng, strength=2.0), rng.random(graph.n_nodes) < 0.3
    inference = MIXED[name]()
    beliefs = inference.forward(graph, theta, 1.0 * ~maximised)
    both = (
        inference.forward(graph, theta, 0.0).mu.argmax(axis=1),
        mixed_product_states(inference, graph, theta, maximised),
    )
    choices = [inference.forward(graph, clamp(theta, np.where(maximised, x, -1)), 1.0).log_z for x in both]
    assert_allclose(beliefs.log_z, np.maximum(*choices), rtol=1e-12)
    assert (choices[0] > choices[1]).any()


def test_mixed_product_sums_over_best_states_only():
    """A maximised node sends messages for its best state, not for all states."""
    graph = from_factors([2, 2, 2], [(0, 1), (1, 2)])
    table = np.array([[1.0, 0.0], [0.0, 1.0]])
    theta = factor_potentials(graph, [2 * table, 2 * table], [[0.0, 0.1], [0.0, 0.0], [0.0, 0.2]])
    beliefs = INFERENCE["bp"]().forward(graph, theta, np.array([1.0, 0.0, 1.0]))
    assert_mixed(
        INFERENCE["bp"]().forward(graph, theta, np.array([1.0, 0.0, 1.0]), edges=True),
        graph, theta, np.array([False, True, False]), exact=True,
    )  # fmt: skip
    assert_array_equal(beliefs.mu[1], [0.0, 1.0])
    assert (beliefs.n_iter == 20).all()  # ten to decode, ten for the marginals


def acyclic_sets(graph):
    """Yield the sets of factors of an example that form a forest with their nodes."""
    scopes, n = reference.links(graph)[0], graph.n_nodes
    for size in range(len(scopes) + 1):
        for chosen in combinations(range(len(scopes)), size):
            joined = [(i, n + e) for e in chosen for i in scopes[e]]
            nodes = n + len(scopes)
            if len(joined) == nodes - reference.n_components(nodes, joined):
                yield chosen


def test_weights_are_probabilities_of_factors_in_acyclic_sets():
    """A linear program finds a distribution over acyclic sets with these probabilities."""
    for title, graph in fields.FACTOR_SINGLES.items():
        rho = spanning_tree_weights(graph)
        with methods.case(title, rho):
            assert ((rho > 0) & (rho <= 1)).all()
            if reference.is_forest(graph):
                assert_array_equal(rho, 1.0)
            sets = list(acyclic_sets(graph))
            holds = np.array([[e in chosen for chosen in sets] for e in range(graph.n_edges)], dtype=float)
            sides = np.vstack([holds.reshape(graph.n_edges, len(sets)), np.ones(len(sets))])
            assert linprog(np.zeros(len(sets)), A_eq=sides, b_eq=[*rho, 1.0]).status == 0
            assert_array_equal(spanning_tree_weights(pack([graph, graph])), [*rho, *rho])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # by uncompiled kernels
@pytest.mark.parametrize("name", BOTH)
def test_impossible_tables_raise_error(name):
    """Also that of a factor without nodes, which sends no message."""
    if INFERENCE[name].exact_on is None:
        return  # a factorised distribution may give forbidden configurations a probability
    for scope in ((), (1,), (0, 1)):
        graph = pack([fields.FACTORS["triple"], from_factors([2, 2], [scope])])
        theta = fields.constant(graph, None, None)
        theta.tables[graph.entry_ptr[1] :] = -np.inf
        with pytest.raises(ValueError, match=r"theta must allow .*, got none in example 1"):
            INFERENCE[name]().forward(graph, theta)


@pytest.mark.parametrize("name", BOTH)
def test_states_beyond_cardinality_have_probability_zero(name, seed):
    rng = np.random.default_rng(seed)
    graph = fields.FACTORS["everything"]
    theta = fields.normal(graph, None, rng)
    missing = np.arange(3) >= graph.cards[:, None]
    inference = methods.build(BOTH[name], max_iter=3)
    beliefs = inference.forward(graph, theta, edges=True, tape=True)
    assert not beliefs.mu[missing].any()
    gradient = inference.backward(beliefs, rng.normal(size=beliefs.mu.shape), None, np.ones(graph.n_examples))
    assert not gradient.unary[missing].any()


def test_outer_multiplies_node_marginals(seed):
    rng = np.random.default_rng(seed)
    for graph in fields.EVERY_FACTOR.values():
        mu = rng.random((graph.n_nodes, int(graph.cards.max())))
        assert_allclose(outer(graph, mu), reference.products(graph, mu), rtol=1e-12)
        assert isinstance(fields.constant(graph, None, rng), Potentials)


HUB = from_factors(
    [2] * 22, [(0, i) for i in range(1, 12)] + [(i, 0, i + 10) for i in range(3, 11)] + [(21, 20)] + [(0,)]
)


@pytest.mark.parametrize("draw", [fields.normal, fields.forbidden])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_hub_of_factors_agrees_with_enumeration_of_messages(draw, damping, seed):
    """A node of 20 factors of one, two and three nodes; enumeration is too long, so messages are."""
    rng = np.random.default_rng(seed)
    theta, d_mu = draw(HUB, 2, rng), rng.normal(size=(HUB.n_nodes, 2))
    rho = rng.choice([0.5, 0.8, 1.0], size=HUB.n_edges)
    mu, factor_mu, _ = reference.trw(HUB, theta, rho, 3, damping=damping)
    inference = INFERENCE["trw"](rho=rho, max_iter=3, damping=damping)
    beliefs = inference.forward(HUB, theta, edges=True, tape=True)
    assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-10)
    assert_allclose(beliefs.edge_mu, factor_mu, rtol=0, atol=1e-10)
    d_factor_mu, d_log_z = rng.normal(size=factor_mu.shape), rng.normal(size=1)

    def value(graph, theta):
        copies = INFERENCE["trw"](rho=np.tile(rho, graph.n_examples), max_iter=3, damping=damping)
        found = copies.forward(graph, theta, edges=True)
        nodes = (np.resize(d_mu, found.mu.shape) * found.mu).sum(axis=1)
        factors = np.resize(d_factor_mu, found.edge_mu.shape) * found.edge_mu
        sums = np.add.reduceat(nodes, graph.node_ptr[:-1]) + np.add.reduceat(
            factors, graph.belief_ptr[graph.edge_ptr[:-1]]
        )
        return sums + d_log_z * found.log_z

    check_gradient(inference.backward(beliefs, d_mu, d_factor_mu, d_log_z), value, HUB, theta)


def test_sum_over_best_states_with_a_hub_is_exact(seed):
    rng = np.random.default_rng(seed)
    graph = from_factors([2] * 31, [(0, i) for i in range(1, 31)])
    theta, tau = fields.normal(graph, 2, rng), np.where(np.arange(31) == 0, 0.0, 1.0)
    one, other = (method.forward(graph, theta, tau) for method in (BP(max_iter=3), Exact()))
    assert_allclose(one.mu, other.mu, rtol=0, atol=1e-10)
    assert_allclose(one.log_z, other.log_z, rtol=1e-12)


def test_graphs_are_released_with_what_is_computed_from_them():
    factors = as_factors(from_edges(3, np.array([[0, 1], [1, 2], [2, 0]])), 2)
    BP().forward(factors, Potentials(np.zeros((3, 2)), np.zeros(12)))
    schedule = weakref.ref(factors.schedule)
    del factors
    gc.collect()
    assert schedule() is None
