"""Every loss with every inference: values by the definition, derivatives by differences."""

import numpy as np
import pytest
import reference
import zoo
from derivatives import check_gradient
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, clamp, pack
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES

TRUNCATED = {"max_iter": 2}
FIXED_POINT = {"max_iter": 3000, "tol": 1e-13}


def wrapped(cls, **parameters):
    return GRADIENTS["backprop"]().wrap(zoo.build(cls, **parameters))


def cases(*titles):
    """Every loss with every inference on every graph that it does not refuse."""
    return [
        pytest.param(loss, cls, zoo.GRAPHS[title], id=f"{loss}-{name}-{title}")
        for loss in LOSSES
        for name, cls in INFERENCE.items()
        for title in titles
        if "max_iter" in cls().get_params() or cls.exact_on == "any" or reference.is_forest(zoo.GRAPHS[title])
    ]


def by_example(graph, terms):
    """Sum (node, value) pairs over examples."""
    total = np.zeros(graph.n_examples)
    for node, value in terms:
        total[np.searchsorted(graph.node_ptr, node, side="right") - 1] += value
    return total


def univariate_logistic(graph, mu, edge_mu, y):
    return by_example(graph, [(i, -np.log(mu[i, y[i]])) for i in range(graph.n_nodes) if y[i] >= 0])


def clique_logistic(graph, mu, edge_mu, y):
    terms = []
    for e, (i, j) in enumerate(graph.edges):
        rows = [y[i]] if y[i] >= 0 else range(mu.shape[1])
        columns = [y[j]] if y[j] >= 0 else range(mu.shape[1])
        terms.append((i, -np.log(sum(edge_mu[e, a, b] for a in rows for b in columns))))
    for i in set(range(graph.n_nodes)) - set(graph.edges.ravel().tolist()):
        if y[i] >= 0:
            terms.append((i, -np.log(mu[i, y[i]])))
    return by_example(graph, terms)


#: The losses that are functions of the marginals.
OF_MARGINALS = {"univariate_logistic": univariate_logistic, "clique_logistic": clique_logistic}
#: The losses that are differences of log-partition functions.
OF_LOG_Z = {"likelihood"}


def test_every_loss_has_a_definition():
    assert {*OF_MARGINALS, *OF_LOG_Z} == set(LOSSES)


@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize("loss, cls, graph", cases(*zoo.FEW, "chains", "lattices_untied"))
def test_value_is_the_definition(loss, cls, graph, hidden, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 3, rng)
    y = zoo.labels(graph, 3, rng, hidden=hidden)
    inference = zoo.build(cls, **TRUNCATED)
    value, _, converged = LOSSES[loss]()(wrapped(cls, **TRUNCATED), graph, theta, y)
    beliefs = inference.forward(graph, theta, edges=True)
    if loss in OF_LOG_Z:
        expected = beliefs.log_z - inference.forward(graph, clamp(theta, y)).log_z
    else:
        expected = OF_MARGINALS[loss](graph, beliefs.mu, beliefs.edge_mu, y)
    assert value.shape == converged.shape == (graph.n_examples,)
    assert_allclose(value, expected, rtol=1e-10, atol=1e-10)
    assert converged.all()


@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize("potentials", ["normal", "attractive", "forbidden"])
@pytest.mark.parametrize(
    "loss, cls, graph",
    [case for case in cases(*zoo.FEW, "packed_twice") if case.values[1].exact_on == "any"]
    + [case for case in cases("chain", "star", "packed_twice") if case.values[1].exact_on == "forest"],
)
def test_exact_inference_gives_the_exact_loss(loss, cls, graph, potentials, hidden, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.POTENTIALS[potentials](graph, 2, rng)
    y = zoo.possible_labels(graph, theta, rng, hidden=hidden)
    value, _, _ = LOSSES[loss]()(wrapped(cls), graph, theta, y)
    if loss in OF_LOG_Z:
        expected = -reference.log_probability(graph, theta, y)
    else:
        expected = OF_MARGINALS[loss](graph, *reference.marginals(graph, theta), y)
    assert_allclose(value, expected, rtol=1e-9, atol=1e-10)
    assert (value >= -1e-10).all()


@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize(
    "loss, cls, graph", cases("single", "lonely", "star_tied", "cycle_tied", "lattice_2x2")
)
def test_gradient_through_truncated_inference(loss, cls, graph, hidden, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng)
    y = zoo.labels(graph, 2, rng, hidden=hidden)
    inference = wrapped(cls, **TRUNCATED)

    def value(g, t):
        return LOSSES[loss]()(inference, g, t, np.resize(y, g.n_nodes))[0]

    check_gradient(LOSSES[loss]()(inference, graph, theta, y)[1], value, graph, theta)


@pytest.mark.parametrize("loss, cls, graph", cases("small", "lonely"))
def test_gradient_of_a_batch_with_three_states(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 3, rng)
    y = zoo.labels(graph, 3, rng, hidden=0.3)
    inference = wrapped(cls, **TRUNCATED)

    def value(g, t):
        return LOSSES[loss]()(inference, g, t, np.resize(y, g.n_nodes))[0]

    check_gradient(LOSSES[loss]()(inference, graph, theta, y)[1], value, graph, theta)


@pytest.mark.parametrize("loss, cls, graph", cases("cycle_tied", "lonely"))
def test_gradient_at_the_fixed_point(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng, strength=0.4)
    y = zoo.labels(graph, 2, rng, hidden=0.3)
    inference = wrapped(cls, **FIXED_POINT)
    _, gradient, converged = LOSSES[loss]()(inference, graph, theta, y)
    assert converged.all()

    def value(g, t):
        return LOSSES[loss]()(inference, g, t, np.resize(y, g.n_nodes))[0]

    check_gradient(gradient, value, graph, theta, atol=1e-8)


@pytest.mark.parametrize("loss, cls, graph", cases("chain_untied", "cycle_tied"))
def test_gradient_with_forbidden_states(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = (zoo.forbidden if cls.exact_on else zoo.forbidden_unary)(graph, 3, rng)
    y = zoo.possible_labels(graph, theta, rng, hidden=0.3)
    inference = wrapped(cls, **TRUNCATED)

    def value(g, t):
        return LOSSES[loss]()(inference, g, t, np.resize(y, g.n_nodes))[0]

    check_gradient(LOSSES[loss]()(inference, graph, theta, y)[1], value, graph, theta)


@pytest.mark.parametrize("loss, cls, graph", cases("mixed", "chains"))
def test_hidden_examples_cost_nothing(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 3, rng)
    y = zoo.labels(graph, 3, rng)
    y[graph.node_example == 1] = -1
    value, gradient, _ = LOSSES[loss]()(wrapped(cls, **TRUNCATED), graph, theta, y)
    assert abs(value[1]) < 1e-12
    assert (np.abs(np.delete(value, 1)) > 1e-3).all()
    assert_allclose(gradient.unary[graph.node_example == 1], 0, rtol=0, atol=1e-12)
    assert_allclose(gradient.tables[graph.table_example == 1], 0, rtol=0, atol=1e-12)
    nothing, gradient, _ = LOSSES[loss]()(wrapped(cls, **TRUNCATED), graph, theta, np.full_like(y, -1))
    assert_allclose(nothing, 0, rtol=0, atol=1e-12)
    for part in gradient:
        assert_allclose(part, 0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss, cls, graph", cases("mixed", "chains", "equal_lattices"))
def test_batch_is_its_examples_bit_for_bit(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng)
    y = zoo.labels(graph, 2, rng, hidden=0.3)
    for parameters in (TRUNCATED, {"max_iter": 40, "tol": 1e-4}):
        inference = wrapped(cls, **parameters)
        value, gradient, converged = LOSSES[loss]()(inference, graph, theta, y)
        for e, (one, potentials) in enumerate(zoo.split(graph, theta)):
            own = LOSSES[loss]()(inference, one, potentials, y[graph.node_example == e])
            assert_array_equal(own[0], value[e : e + 1])
            assert_array_equal(own[1].unary, gradient.unary[graph.node_example == e])
            assert_array_equal(own[1].tables, gradient.tables[graph.table_example == e])
            assert_array_equal(own[2], converged[e : e + 1])


@pytest.mark.parametrize(
    "loss, cls, graph", [case for case in cases("mixed", "chains") if LOSSES[case.values[0]].site_weighted]
)
def test_site_weights_are_linear(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng)
    y = zoo.labels(graph, 2, rng, hidden=0.3)
    inference = wrapped(cls, **TRUNCATED)
    first, second = rng.uniform(0, 3, size=(2, graph.n_nodes))

    def weighted(weight):
        value, gradient, _ = LOSSES[loss]()(inference, graph, theta, y, site_weight=weight)
        return [value, *gradient]

    for one, both in zip(weighted(np.ones(graph.n_nodes)), weighted(None), strict=True):
        assert_array_equal(one, both)
    parts = zip(weighted(first), weighted(second), weighted(first + 2 * second), strict=True)
    for one, other, both in parts:
        assert_allclose(one + 2 * other, both, rtol=1e-10, atol=1e-12)
    # a site without weight might as well be hidden
    weight = (np.arange(graph.n_nodes) % 2).astype(float)
    value, gradient, _ = LOSSES[loss]()(inference, graph, theta, np.where(weight > 0, y, -1))
    for one, other in zip(weighted(weight), [value, *gradient], strict=True):
        assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", [name for name, cls in LOSSES.items() if not cls.site_weighted])
def test_site_weights_are_refused_where_they_mean_nothing(loss):
    graph = zoo.SINGLES["chain"]
    with pytest.raises(ValueError, match=LOSSES[loss].__name__):
        LOSSES[loss]()(
            wrapped(INFERENCE["tree"]),
            graph,
            zoo.constant(graph, 2, None),
            np.zeros(graph.n_nodes, dtype=np.int64),
            site_weight=np.ones(graph.n_nodes),
        )


@pytest.mark.parametrize("labelled", [1, 6])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", [name for name, cls in INFERENCE.items() if "tol" in cls().get_params()])
def test_not_converging_is_told_by_example(loss, name, labelled, seed):
    """Also where all labels are known, so that the clamped half of a likelihood has nothing to iterate."""
    graph = pack([zoo.SINGLES["no_edges"], zoo.SINGLES["lattice_2x3"]])
    theta = zoo.attractive(graph, 2, np.random.default_rng(seed), strength=3.0)
    y = np.full(graph.n_nodes, -1)
    y[: 3 + labelled] = 1
    value, gradient, converged = LOSSES[loss]()(
        wrapped(INFERENCE[name], max_iter=2, tol=1e-13), graph, theta, y
    )
    assert_array_equal(converged, [True, False])
    assert np.isfinite(value).all()
    assert all(np.isfinite(part).all() for part in gradient)


def test_likelihood_converges_where_both_its_halves_do():
    class Doubtful(INFERENCE["bruteforce"]):
        """Does not converge on the second example once labels are clamped."""

        def forward(self, graph, theta, tau=1.0, *, edges=False, tape=False):
            beliefs = super().forward(graph, theta, tau, edges=edges, tape=tape)
            clamped = np.isinf(theta.unary).any()
            return beliefs._replace(converged=np.array([True, not clamped]))

    graph = pack([zoo.SINGLES["pair"], zoo.SINGLES["pair"]])
    y = np.array([0, 1, 1, -1])
    _, _, converged = LOSSES["likelihood"]()(Doubtful(), graph, zoo.constant(graph, 2, None), y)
    assert_array_equal(converged, [True, False])


def test_likelihood_bounds(seed):
    """A bound on log_z is one on the likelihood where all labels are known (D13 4.1.1)."""
    rng = np.random.default_rng(seed)
    graph = pack([zoo.SINGLES["complete"]] * 5)
    theta = zoo.normal(graph, 2, rng)
    y = zoo.labels(graph, 2, rng)
    exact = -reference.log_probability(graph, theta, y)
    for cls in (cls for cls in INFERENCE.values() if cls.bound):
        value, _, converged = LOSSES["likelihood"]()(wrapped(cls, max_iter=2000, tol=1e-9), graph, theta, y)
        assert converged.any()
        excess = (value - exact) * {"upper": 1, "lower": -1}[cls.bound]
        assert (excess[converged] >= -1e-6).all()


def test_gradient_of_the_exact_likelihood(seed):
    """mu(theta) - f(y), D13 Eq 20."""
    rng = np.random.default_rng(seed)
    graph = zoo.SINGLES["lattice_2x3"]
    theta = zoo.normal(graph, 2, rng)
    y = zoo.labels(graph, 2, rng)
    _, gradient, _ = LOSSES["likelihood"]()(wrapped(INFERENCE["bruteforce"]), graph, theta, y)
    mu, edge_mu = reference.marginals(graph, theta)
    expected = Potentials(mu.copy(), np.zeros_like(theta.tables))
    for i in range(graph.n_nodes):
        expected.unary[i, y[i]] -= 1
    for e, (i, j) in enumerate(graph.edges):
        expected.tables[graph.edge_table[e]] += edge_mu[e]
        expected.tables[graph.edge_table[e], y[i], y[j]] -= 1
    assert_allclose(gradient.unary, expected.unary, rtol=0, atol=1e-10)
    assert_allclose(gradient.tables, expected.tables, rtol=0, atol=1e-10)
