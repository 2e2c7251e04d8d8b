"""Every way of differentiating every inference is held to differences."""

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import reference
import zoo
from derivatives import check_gradient, numerical_gradient
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, pack, sum_by_edge, sum_by_example, sum_by_table
from skcrf.inference import INFERENCE

ITERATIVE = {name: cls for name, cls in zoo.LEARNING.items() if "max_iter" in cls().get_params()}
FIXED_POINT = {"max_iter": 3000, "tol": 1e-13}
#: Too large for differences in plain Python, which is a hundred times slower than compiled kernels.
LARGER = () if config.DISABLE_JIT else ("lattice_2x2_diagonal",)
#: Factors that are iterated to a fixed point for each difference.
BATCH = "triple" if config.DISABLE_JIT else "everything"


class Cotangent(NamedTuple):
    """The derivative of some value with respect to beliefs."""

    d_mu: np.ndarray | None = None
    d_edge_mu: np.ndarray | None = None
    d_log_z: np.ndarray | None = None


#: Which beliefs the value depends on.
KINDS = {
    "mu": {"d_mu"},
    "edge_mu": {"d_edge_mu"},
    "log_z": {"d_log_z"},
    "mu_and_log_z": {"d_mu", "d_log_z"},
    "all": {"d_mu", "d_edge_mu", "d_log_z"},
}


def draw_cotangent(graph, n_states, rng, kind="all"):
    unary, _ = zoo.shapes(graph, n_states)
    edges = (
        (graph.belief_rows[-1], n_states, n_states) if graph.layout == "pairwise" else graph.belief_rows[-1]
    )
    drawn = Cotangent(rng.normal(size=unary), rng.normal(size=edges), rng.normal(size=graph.n_examples))
    return Cotangent(**{name: getattr(drawn, name) for name in KINDS[kind]})


def inferred_once(inference_for):
    """Make `beliefs_of(graph, theta)` for differences of several values, which move theta alike."""
    known = []

    def beliefs_of(graph, theta):
        if not known:
            known.append((theta, inference_for(graph).forward(graph, theta, edges=True)))
        asked, beliefs = known[0]
        assert all(np.array_equal(one, other) for one, other in zip(asked, theta, strict=True))
        return beliefs

    return beliefs_of


def value_of(cotangent, beliefs_of):
    """Make the value whose derivative with respect to the beliefs is the cotangent."""

    def value(graph, theta):
        beliefs = beliefs_of(graph, theta)
        total = np.zeros(graph.n_examples)
        if cotangent.d_mu is not None:
            terms = np.resize(cotangent.d_mu, beliefs.mu.shape) * beliefs.mu
            total += sum_by_example(terms.sum(axis=1), graph.node_example, graph)
        if cotangent.d_edge_mu is not None and graph.n_edges:
            terms = np.resize(cotangent.d_edge_mu, beliefs.edge_mu.shape) * beliefs.edge_mu
            total += sum_by_example(sum_by_edge(graph, terms), graph.edge_example, graph)
        if cotangent.d_log_z is not None:
            total += np.resize(cotangent.d_log_z, graph.n_examples) * beliefs.log_z
        return total

    return value


def maker(cls, **parameters):
    """Make `inference_for(graph)`; an array is one value an edge, repeated for many copies of a graph."""

    def inference_for(graph):
        repeated = {
            name: np.resize(value, graph.n_edges) if isinstance(value, np.ndarray) else value
            for name, value in parameters.items()
        }
        return zoo.build(cls, **repeated)

    return inference_for


def check(
    inference_for, graph, theta, *cotangents, tape=True, wrap=lambda inference: inference, **tolerances
):
    """Hold `backward` of each cotangent to differences of `forward`."""
    inference, beliefs_of = wrap(inference_for(graph)), inferred_once(inference_for)
    beliefs = inference.forward(graph, theta, edges=True, tape=tape)
    assert beliefs.converged.all()
    for cotangent in cotangents:
        gradient = inference.backward(beliefs, **cotangent._asdict())
        with zoo.case([name for name, value in cotangent._asdict().items() if value is not None]):
            check_gradient(gradient, value_of(cotangent, beliefs_of), graph, theta, **tolerances)


def variants(methods):
    """Every setting of parameters that changes an iteration."""
    rho = np.array([0.9, 0.55, 0.7, 1.0, 0.35])
    settings = [{"damping": 0.3}, {"rho": 0.5}, {"rho": 1.0}, {"rho": rho}, {"rho": rho, "damping": 0.4}]
    return [
        pytest.param(cls, parameters, id="-".join([name, *parameters]) + str(i))
        for name, cls in methods.items()
        for i, parameters in enumerate(settings)
        if set(parameters) <= set(cls().get_params())
    ]


def sized(parameters, graph):
    """Cut arrays to one value an edge."""
    return {
        name: value[: graph.n_edges] if isinstance(value, np.ndarray) else value
        for name, value in parameters.items()
    }


def some(*titles):
    return {title: zoo.ALL[title] for title in titles}


# The checker itself


def test_checker_finds_the_derivative_of_enumeration(seed):
    rng = np.random.default_rng(seed)
    graph = zoo.BATCHES["edgeless_inside"]
    theta = zoo.forbidden(graph, 2, rng)
    mu, edge_mu = reference.marginals(graph, theta)
    tables = np.zeros_like(theta.tables)
    for e, table in enumerate(graph.edge_table):
        tables[table] += edge_mu[e]
    check_gradient(Potentials(mu, tables), reference.log_z, graph, theta)
    wrong = mu.copy()
    wrong[0, np.argmax(np.isfinite(theta.unary[0]))] += 1e-5
    with pytest.raises(AssertionError, match="unary"):
        check_gradient(Potentials(wrong, tables), reference.log_z, graph, theta)


def test_checker_is_of_fourth_order():
    graph = zoo.SINGLES["single"]
    theta = Potentials(np.array([[0.3, -0.2]]), np.zeros((0, 2, 2)))
    error = [
        abs(
            numerical_gradient(lambda g, t: np.exp(t.unary[:, 0]), graph, theta, step=step).unary[0, 0]
            - np.exp(0.3)
        )
        for step in (0.1, 0.2)
    ]
    assert 15 < error[1] / error[0] < 17


# Truncated: the derivative of the very iterations that were done


@pytest.mark.parametrize("max_iter", [1, 3])
@pytest.mark.parametrize(
    "cls, graph",
    zoo.askable(zoo.LEARNING, some("single", "lonely", "star_tied", "cycle_tied", "lattice_2x2", "overlap")),
)
def test_truncated(cls, graph, max_iter, seed):
    if max_iter > 1 and "max_iter" not in cls().get_params():
        return
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng)
    kinds = (draw_cotangent(graph, 2, rng, kind) for kind in KINDS)
    check(maker(cls, max_iter=max_iter), graph, theta, *kinds)


@pytest.mark.parametrize(
    "cls, graph",
    zoo.askable(zoo.LEARNING, zoo.EVERY_SINGLE | some("chains", "lattices_untied") | zoo.EVERY_FACTOR),
)
def test_truncated_on_every_graph(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng)
    check(maker(cls, max_iter=2), graph, theta, draw_cotangent(graph, 2, rng))


@pytest.mark.parametrize("cls, graph", zoo.askable(zoo.LEARNING, some("lonely", "cycle_tied", *LARGER)))
def test_truncated_with_three_states_and_strong_tables(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 3, rng, strength=3.0)
    check(maker(cls, max_iter=2), graph, theta, draw_cotangent(graph, 3, rng))


@pytest.mark.parametrize("title", ["cycle_tied", "bridge", "lattice_2x2"])
@pytest.mark.parametrize("cls, parameters", variants(ITERATIVE))
def test_truncated_with_other_parameters(cls, parameters, title, seed):
    rng = np.random.default_rng(seed)
    graph = zoo.SINGLES[title]
    theta = zoo.normal(graph, 2, rng)
    check(maker(cls, max_iter=3, **sized(parameters, graph)), graph, theta, draw_cotangent(graph, 2, rng))


@pytest.mark.parametrize("max_iter", [2] if config.DISABLE_JIT else [1, 3])
@pytest.mark.parametrize(
    "cls, graph",
    zoo.askable(
        zoo.LEARNING, some("chain_untied", "star_tied", "lonely_cycle", "lattice_2x2", "cycle_of_triples")
    ),
)
def test_truncated_with_forbidden_states(cls, graph, max_iter, seed):
    """The derivative is zero at what is forbidden; mean field may have to allow a forbidden pair."""
    rng = np.random.default_rng(seed)
    draw = zoo.forbidden if cls.exact_on else zoo.forbidden_unary
    theta = draw(graph, 3, rng)
    check(maker(cls, max_iter=max_iter), graph, theta, draw_cotangent(graph, 3, rng))


@pytest.mark.parametrize(
    "cls, graph",
    zoo.askable(zoo.LEARNING, some("isolated", "chains", "equal_lattices", "mixed", "everything")),
)
def test_batch_is_its_examples_bit_for_bit(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng)
    cotangent = draw_cotangent(graph, 2, rng)
    for inference in (zoo.build(cls, max_iter=3), zoo.build(cls, max_iter=50, tol=1e-4)):
        whole = inference.backward(
            inference.forward(graph, theta, edges=True, tape=True), **cotangent._asdict()
        )
        for e, (one, potentials) in enumerate(zoo.split(graph, theta)):
            nodes, edges, tables = (
                slice(ptr[e], ptr[e + 1]) for ptr in (graph.node_ptr, graph.belief_rows, graph.entry_rows)
            )
            beliefs = inference.forward(one, potentials, edges=True, tape=True)
            alone = inference.backward(
                beliefs, cotangent.d_mu[nodes], cotangent.d_edge_mu[edges], cotangent.d_log_z[e : e + 1]
            )
            assert_array_equal(whole.unary[nodes], alone.unary)
            assert_array_equal(whole.tables[tables], alone.tables)


@pytest.mark.parametrize("name", ITERATIVE)
def test_tape_of_examples_that_stop_at_different_times(name, seed):
    """Each example is differentiated through as many iterations as it took."""
    rng = np.random.default_rng(seed)
    graph = pack([zoo.SINGLES[title] for title in ("lattice_2x2", "no_edges", "cycle", "pair")])
    theta = zoo.normal(graph, 2, rng, strength=0.7)
    cotangent = draw_cotangent(graph, 2, rng)
    inference = ITERATIVE[name](max_iter=500, tol=1e-3)
    beliefs = inference.forward(graph, theta, edges=True, tape=True)
    assert len(set(beliefs.n_iter.tolist())) > 1
    gradient = inference.backward(beliefs, **cotangent._asdict())
    for e, n_iter in enumerate(beliefs.n_iter.tolist()):
        truncated = ITERATIVE[name](max_iter=n_iter)
        all_alike = truncated.forward(graph, theta, edges=True, tape=True)
        expected = truncated.backward(all_alike, **cotangent._asdict())
        own_nodes, own_tables = graph.node_example == e, graph.table_example == e
        assert_allclose(gradient.unary[own_nodes], expected.unary[own_nodes], rtol=1e-10, atol=1e-12)
        assert_allclose(gradient.tables[own_tables], expected.tables[own_tables], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ITERATIVE)
def test_truncated_log_z_is_not_stationary(name, seed):
    """After one iteration the derivative of log_z is not mu, and a shortcut that says so is noticed."""
    graph = zoo.SINGLES["complete"]
    theta = zoo.normal(graph, 2, np.random.default_rng(seed), strength=2.0)
    inference = ITERATIVE[name](max_iter=1)
    beliefs = inference.forward(graph, theta, tape=True)
    gradient = inference.backward(beliefs, d_log_z=np.ones(1))
    assert np.abs(gradient.unary - beliefs.mu).max() > 1e-4
    check_gradient(gradient, lambda g, t: inference.forward(g, t).log_z, graph, theta)


@pytest.mark.parametrize("name", ITERATIVE)
def test_truncated_needs_a_tape(name):
    graph = zoo.SINGLES["cycle"]
    inference = ITERATIVE[name]()
    beliefs = inference.forward(graph, zoo.constant(graph, 2, None))
    with pytest.raises(RuntimeError, match="tape"):
        inference.backward(beliefs, d_mu=np.ones_like(beliefs.mu))


@pytest.mark.parametrize("cls, graph", zoo.askable(zoo.LEARNING, some("chain", "mixed")))
def test_backward_is_linear_and_leaves_no_trace(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng)
    cotangent = draw_cotangent(graph, 2, rng)
    kept, inference = [array.copy() for array in cotangent], zoo.build(cls, max_iter=2)
    beliefs = inference.forward(graph, theta, edges=True, tape=True)
    first = inference.backward(beliefs, **cotangent._asdict())
    second = inference.backward(beliefs, **cotangent._asdict())
    parts = [inference.backward(beliefs, **{name: array}) for name, array in cotangent._asdict().items()]
    nothing = inference.backward(beliefs)
    for field in Potentials._fields:
        assert_array_equal(getattr(first, field), getattr(second, field))
        assert_allclose(
            sum(getattr(part, field) for part in parts), getattr(first, field), rtol=1e-10, atol=1e-12
        )
        assert not getattr(nothing, field).any()
    for array, before in zip(cotangent, kept, strict=True):
        assert_array_equal(array, before)


# At the fixed point


@pytest.mark.parametrize("tape", [True, False], ids=["tape", "adjoint"])
@pytest.mark.parametrize(
    "cls, graph",
    zoo.askable(ITERATIVE, some("lonely", "star_tied", "cycle_tied", "lattice_2x2", "small", BATCH)),
)
def test_fixed_point(cls, graph, tape, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng, strength=0.4)
    kinds = (draw_cotangent(graph, 2, rng, kind) for kind in KINDS)
    check(maker(cls, **FIXED_POINT), graph, theta, *kinds, tape=tape, atol=1e-8)


@pytest.mark.parametrize("cls, parameters", variants(ITERATIVE))
def test_fixed_point_with_other_parameters(cls, parameters, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph := zoo.SINGLES["cycle_tied"], 2, rng, strength=0.4)
    inference_for = maker(cls, **FIXED_POINT, **sized(parameters, graph))
    check(inference_for, graph, theta, draw_cotangent(graph, 2, rng), tape=False, atol=1e-8)


@pytest.mark.parametrize("cls, graph", zoo.askable(ITERATIVE, some("cycle_tied", "chain", "hypertree")))
def test_fixed_point_with_forbidden_states(cls, graph, seed):
    rng = np.random.default_rng(seed)
    draw = zoo.forbidden if cls.exact_on else zoo.forbidden_unary
    theta = draw(graph, 3, rng, strength=0.4)
    check(maker(cls, **FIXED_POINT), graph, theta, draw_cotangent(graph, 3, rng), tape=False, atol=1e-8)


@pytest.mark.parametrize("tape", [True, False], ids=["tape", "adjoint"])
@pytest.mark.parametrize("cls, graph", zoo.askable(zoo.LEARNING, zoo.FEW | some("markov_mesh", "everything")))
def test_derivative_of_log_z_is_mu_where_it_is_stationary(cls, graph, tape, seed):
    theta = zoo.normal(graph, 2, np.random.default_rng(seed), strength=0.4)
    inference = zoo.build(cls, **FIXED_POINT)
    beliefs = inference.forward(graph, theta, edges=True, tape=tape)
    d_log_z = np.arange(1.0, graph.n_examples + 1)
    gradient = inference.backward(beliefs, d_log_z=d_log_z)
    weight = np.zeros(len(beliefs.edge_mu))
    for e in range(graph.n_examples):
        weight[graph.belief_rows[e] : graph.belief_rows[e + 1]] = d_log_z[e]
    tables = sum_by_table(graph, (beliefs.edge_mu.T * weight).T)
    assert_allclose(gradient.unary, beliefs.mu * d_log_z[graph.node_example, None], rtol=0, atol=1e-9)
    assert_allclose(gradient.tables, tables, rtol=0, atol=1e-9)


# Where the inference maximises


@pytest.mark.parametrize("potentials", ["normal", "constant"])
@pytest.mark.parametrize("cls, graph", zoo.askable(zoo.MAXIMISING, zoo.FEW | some("everything")))
def test_maximum_has_the_indicator_for_derivative(cls, graph, potentials, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.POTENTIALS[potentials](graph, 3, rng)
    cotangent = draw_cotangent(graph, 3, rng)
    inference = cls()
    beliefs = inference.forward(graph, theta, tau=0.0)
    gradient = inference.backward(beliefs, d_log_z=cotangent.d_log_z)
    x = beliefs.mu.argmax(axis=1)
    expected = Potentials(np.zeros_like(theta.unary), np.zeros_like(theta.tables))
    for i, example in enumerate(graph.node_example):
        expected.unary[i, x[i]] += cotangent.d_log_z[example]
    for e, scope in enumerate(reference.links(graph)[0]):
        table = reference.table_of(graph, expected, e)
        table[tuple(x[i] for i in scope)] += cotangent.d_log_z[graph.edge_example[e]]
    assert_allclose(gradient.unary, expected.unary, rtol=0, atol=1e-12)
    assert_allclose(gradient.tables, expected.tables, rtol=0, atol=1e-12)
    for part in inference.backward(beliefs, d_mu=cotangent.d_mu):
        assert not part.any()


# Strategies


def strategies(*titles):
    """Every strategy in every mode with every inference that it claims, on graphs that are not refused."""
    truncated, fixed_point, listed = {"max_iter": 2}, FIXED_POINT, []
    for name, cls in GRADIENTS.items():
        modes = [("auto", truncated), ("auto", fixed_point)]
        if "mode" in cls().get_params():
            modes += [("truncated", truncated), ("truncated", fixed_point), ("fixed_point", fixed_point)]
        for (mode, parameters), case in product(modes, zoo.askable(zoo.LEARNING, some(*titles))):
            layout = case.values[1].layout
            if zoo.claimed(cls, zoo.build(case.values[0], **parameters), layout):
                stops = "truncated" if parameters is truncated else "converged"
                title = f"{name}-{mode}-{stops}-{case.id}"
                strategy = zoo.build(cls, mode=mode, tol=1e-10)
                listed.append(pytest.param(*case.values, strategy, parameters, id=title))
    return listed


@pytest.mark.parametrize(
    "cls, graph, strategy, parameters",
    strategies("cycle_tied", "overlap")
    if config.DISABLE_JIT
    else strategies("lonely", "cycle_tied", "small", "everything"),
)
def test_strategy(cls, graph, strategy, parameters, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 2, rng, strength=0.4)
    cotangent = draw_cotangent(graph, 2, rng)
    # no tape is asked for: the strategy knows whether it needs one
    check(maker(cls, **parameters), graph, theta, cotangent, tape=False, wrap=strategy.wrap, atol=1e-8)


@pytest.mark.parametrize("name", ITERATIVE)
def test_adjoint_of_a_truncated_inference_is_refused(name):
    with pytest.raises(ValueError, match=rf"fixed_point.*{ITERATIVE[name].__name__}.*tol"):
        GRADIENTS["backprop"](mode="fixed_point").wrap(ITERATIVE[name](tol=0.0))


@pytest.mark.parametrize("name", GRADIENTS)
def test_strategy_refuses_layouts_it_does_not_claim(name):
    graph = zoo.FACTORS["triple"]
    wrapped = GRADIENTS[name]().wrap(INFERENCE["trw"](max_iter=200, tol=1e-6))
    if "factor" in GRADIENTS[name].layouts:
        assert wrapped.forward(graph, zoo.constant(graph, None, None)).converged.all()
    else:
        with pytest.raises(
            ValueError, match=f"{GRADIENTS[name].__name__} takes .*'pairwise'.*take 'backprop'"
        ):
            wrapped.forward(graph, zoo.constant(graph, None, None))


# Some nodes maximised, others summed out


@pytest.mark.parametrize(
    "cls, graph",
    zoo.askable(
        {name: cls for name, cls in zoo.LEARNING.items() if "mixed" in cls.tasks},
        some("lonely", "cycle_tied", "hypertree", BATCH),
    ),
)
def test_mixed_is_differentiated_at_its_choice(cls, graph, seed):
    """What was chosen does not move; the rest is the sum-product inference that is left."""
    rng = np.random.default_rng(seed)
    theta, cotangent = zoo.normal(graph, 2, rng), draw_cotangent(graph, 2, rng)
    tau = np.arange(graph.n_nodes) % 2 * 1.0
    inference = zoo.build(cls, max_iter=3)
    beliefs = inference.forward(graph, theta, tau, edges=True, tape=True)
    gradient = inference.backward(beliefs, **cotangent._asdict())

    def value(g, t):
        found = inference.forward(g, t, np.resize(tau, g.n_nodes), edges=True)
        return value_of(cotangent, lambda *_: found)(g, t)

    check_gradient(gradient, value, graph, theta)


@pytest.mark.parametrize("cls, graph, strategy, parameters", strategies("lonely", "lattice_2x2"))
def test_strategy_has_the_beliefs_of_its_inference(cls, graph, strategy, parameters, seed):
    theta = zoo.normal(graph, 2, np.random.default_rng(seed))
    inference = zoo.build(cls, **parameters)
    wrapped = strategy.wrap(inference)
    assert (wrapped.tasks, wrapped.exact_on, wrapped.bound) == (cls.tasks, cls.exact_on, cls.bound)
    for tau in (1.0, 0.0) if "max" in cls.tasks else (1.0,):
        plain = inference.forward(graph, theta, tau=tau, edges=True)
        other = wrapped.forward(graph, theta, tau=tau, edges=True)
        for field in ("mu", "edge_mu", "log_z", "n_iter", "converged"):
            assert_array_equal(getattr(other, field), getattr(plain, field), err_msg=field)
