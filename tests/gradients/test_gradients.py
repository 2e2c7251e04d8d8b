"""Every strategy and mode with every inference against finite differences."""

import fields
import methods
import numpy as np
import pytest
import reference
from derivatives import (
    KINDS,
    check_backward,
    check_gradient,
    draw_cotangent,
    maker,
    numerical_gradient,
    value_of,
)
from numba import config
from numpy.testing import assert_allclose, assert_array_equal
from strategies import loss_of

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, lattice, pack, sum_by_table
from skcrf.inference import BP
from skcrf.losses import LOSSES

ITERATIVE = {name: cls for name, cls in methods.LEARNING.items() if "max_iter" in cls().get_params()}
FIXED_POINT = {"max_iter": 3000, "tol": 1e-13}
#: Too large for differences in plain Python, which is a hundred times slower than compiled kernels.
LARGER = () if config.DISABLE_JIT else ("lattice_2x2_diagonal",)
#: Factor graph that is iterated to a fixed point for each difference.
BATCH = "triple" if config.DISABLE_JIT else "everything"


def variants(registry):
    """List all settings of parameters that change an iteration."""
    rho = np.array([0.9, 0.55, 0.7, 1.0, 0.35])
    settings = [{"damping": 0.3}, {"rho": 0.5}, {"rho": 1.0}, {"rho": rho}, {"rho": rho, "damping": 0.4}]
    return [
        pytest.param(cls, parameters, id="-".join([name, *parameters]) + str(i))
        for name, cls in registry.items()
        for i, parameters in enumerate(settings)
        if set(parameters) <= set(cls().get_params())
    ]


def sized(parameters, graph):
    """Cut arrays to one value per edge."""
    return {
        name: value[: graph.n_edges] if isinstance(value, np.ndarray) else value
        for name, value in parameters.items()
    }


def some(*titles):
    return {title: fields.ALL[title] for title in titles}


# Derivative checker


def test_checker_finds_the_derivative_of_enumeration(seed):
    rng = np.random.default_rng(seed)
    graph = fields.BATCHES["edgeless_inside"]
    theta = fields.forbidden(graph, 2, rng)
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
    graph = fields.SINGLES["single"]
    theta = Potentials(np.array([[0.3, -0.2]]), np.zeros((0, 2, 2)))
    error = [
        abs(
            numerical_gradient(lambda g, t: np.exp(t.unary[:, 0]), graph, theta, step=step).unary[0, 0]
            - np.exp(0.3)
        )
        for step in (0.1, 0.2)
    ]
    assert 15 < error[1] / error[0] < 17


# Truncated inference: the derivative of the iterations that were done


@pytest.mark.parametrize("max_iter", [1, 3])
@pytest.mark.parametrize(
    "cls, graph",
    methods.with_graphs(
        methods.LEARNING, some("single", "lonely", "star_tied", "cycle_tied", "lattice_2x2", "overlap")
    ),
)
def test_gradient_of_truncated_inference(cls, graph, max_iter, seed):
    if max_iter > 1 and "max_iter" not in cls().get_params():
        return
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng)
    kinds = (draw_cotangent(graph, 2, rng, kind) for kind in KINDS)
    check_backward(maker(cls, max_iter=max_iter), graph, theta, *kinds)


@pytest.mark.parametrize(
    "cls, graph",
    methods.with_graphs(
        methods.LEARNING, fields.EVERY_SINGLE | some("chains", "lattices_untied") | fields.EVERY_FACTOR
    ),
)
def test_gradient_of_truncated_inference_on_every_graph(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng)
    check_backward(maker(cls, max_iter=2), graph, theta, draw_cotangent(graph, 2, rng))


@pytest.mark.parametrize(
    "cls, graph", methods.with_graphs(methods.LEARNING, some("lonely", "cycle_tied", *LARGER))
)
def test_gradient_of_truncated_inference_with_strong_tables(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 3, rng, strength=3.0)
    check_backward(maker(cls, max_iter=2), graph, theta, draw_cotangent(graph, 3, rng))


@pytest.mark.parametrize("title", ["cycle_tied", "bridge", "lattice_2x2"])
@pytest.mark.parametrize("cls, parameters", variants(ITERATIVE))
def test_gradient_of_truncated_inference_with_other_parameters(cls, parameters, title, seed):
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES[title]
    theta = fields.normal(graph, 2, rng)
    check_backward(
        maker(cls, max_iter=3, **sized(parameters, graph)), graph, theta, draw_cotangent(graph, 2, rng)
    )


@pytest.mark.parametrize("max_iter", [2] if config.DISABLE_JIT else [1, 3])
@pytest.mark.parametrize(
    "cls, graph",
    methods.with_graphs(
        methods.LEARNING, some("chain_untied", "star_tied", "lonely_cycle", "lattice_2x2", "cycle_of_triples")
    ),
)
def test_gradient_of_truncated_inference_with_forbidden_states(cls, graph, max_iter, seed):
    """The derivative is zero at forbidden entries; mean field may not avoid a forbidden pair."""
    rng = np.random.default_rng(seed)
    draw = fields.forbidden if cls.exact_on else fields.forbidden_unary
    theta = draw(graph, 3, rng)
    check_backward(maker(cls, max_iter=max_iter), graph, theta, draw_cotangent(graph, 3, rng))


@pytest.mark.parametrize(
    "cls, graph",
    methods.with_graphs(
        methods.LEARNING, some("isolated", "chains", "equal_lattices", "mixed", "everything")
    ),
)
def test_batch_equals_its_examples_bit_for_bit(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng)
    cotangent = draw_cotangent(graph, 2, rng)
    for inference in (methods.build(cls, max_iter=3), methods.build(cls, max_iter=50, tol=1e-4)):
        whole = inference.backward(
            inference.forward(graph, theta, edges=True, tape=True), **cotangent._asdict()
        )
        for e, (one, potentials) in enumerate(fields.split(graph, theta)):
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
def test_tape_differentiates_as_many_iterations_as_each_example_took(name, seed):
    rng = np.random.default_rng(seed)
    graph = pack([fields.SINGLES[title] for title in ("lattice_2x2", "no_edges", "cycle", "pair")])
    theta = fields.normal(graph, 2, rng, strength=0.7)
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
def test_derivative_of_truncated_log_z_is_not_mu(name, seed):
    graph = fields.SINGLES["complete"]
    theta = fields.normal(graph, 2, np.random.default_rng(seed), strength=2.0)
    inference = ITERATIVE[name](max_iter=1)
    beliefs = inference.forward(graph, theta, tape=True)
    gradient = inference.backward(beliefs, d_log_z=np.ones(1))
    assert np.abs(gradient.unary - beliefs.mu).max() > 1e-4
    check_gradient(gradient, lambda g, t: inference.forward(g, t).log_z, graph, theta)


@pytest.mark.parametrize("name", ITERATIVE)
def test_backward_of_truncated_inference_needs_a_tape(name):
    graph = fields.SINGLES["cycle"]
    inference = ITERATIVE[name]()
    beliefs = inference.forward(graph, fields.constant(graph, 2, None))
    with pytest.raises(RuntimeError, match="tape"):
        inference.backward(beliefs, d_mu=np.ones_like(beliefs.mu))


@pytest.mark.parametrize("cls, graph", methods.with_graphs(methods.LEARNING, some("chain", "mixed")))
def test_backward_is_linear_and_changes_no_argument(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng)
    cotangent = draw_cotangent(graph, 2, rng)
    before, inference = [array.copy() for array in cotangent], methods.build(cls, max_iter=2)
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
    for array, copy in zip(cotangent, before, strict=True):
        assert_array_equal(array, copy)


# At the fixed point


@pytest.mark.parametrize("tape", [True, False], ids=["tape", "adjoint"])
@pytest.mark.parametrize(
    "cls, graph",
    methods.with_graphs(ITERATIVE, some("lonely", "star_tied", "cycle_tied", "lattice_2x2", "small", BATCH)),
)
def test_gradient_at_the_fixed_point(cls, graph, tape, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng, strength=0.4)
    kinds = (draw_cotangent(graph, 2, rng, kind) for kind in KINDS)
    check_backward(maker(cls, **FIXED_POINT), graph, theta, *kinds, tape=tape, atol=1e-8)


@pytest.mark.parametrize("cls, parameters", variants(ITERATIVE))
def test_gradient_at_the_fixed_point_with_other_parameters(cls, parameters, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph := fields.SINGLES["cycle_tied"], 2, rng, strength=0.4)
    inference_for = maker(cls, **FIXED_POINT, **sized(parameters, graph))
    check_backward(inference_for, graph, theta, draw_cotangent(graph, 2, rng), tape=False, atol=1e-8)


@pytest.mark.parametrize(
    "cls, graph", methods.with_graphs(ITERATIVE, some("cycle_tied", "chain", "hypertree"))
)
def test_gradient_at_the_fixed_point_with_forbidden_states(cls, graph, seed):
    rng = np.random.default_rng(seed)
    draw = fields.forbidden if cls.exact_on else fields.forbidden_unary
    theta = draw(graph, 3, rng, strength=0.4)
    check_backward(
        maker(cls, **FIXED_POINT), graph, theta, draw_cotangent(graph, 3, rng), tape=False, atol=1e-8
    )


@pytest.mark.parametrize("tape", [True, False], ids=["tape", "adjoint"])
@pytest.mark.parametrize(
    "cls, graph", methods.with_graphs(methods.LEARNING, fields.FEW | some("markov_mesh", "everything"))
)
def test_derivative_of_log_z_at_the_fixed_point_is_mu(cls, graph, tape, seed):
    theta = fields.normal(graph, 2, np.random.default_rng(seed), strength=0.4)
    inference = methods.build(cls, **FIXED_POINT)
    beliefs = inference.forward(graph, theta, edges=True, tape=tape)
    d_log_z = np.arange(1.0, graph.n_examples + 1)
    gradient = inference.backward(beliefs, d_log_z=d_log_z)
    weight = np.zeros(len(beliefs.edge_mu))
    for e in range(graph.n_examples):
        weight[graph.belief_rows[e] : graph.belief_rows[e + 1]] = d_log_z[e]
    tables = sum_by_table(graph, (beliefs.edge_mu.T * weight).T)
    assert_allclose(gradient.unary, beliefs.mu * d_log_z[graph.node_example, None], rtol=0, atol=1e-9)
    assert_allclose(gradient.tables, tables, rtol=0, atol=1e-9)


# Maximisation


@pytest.mark.parametrize("potentials", ["normal", "constant"])
@pytest.mark.parametrize(
    "cls, graph", methods.with_graphs(methods.MAXIMISING, fields.FEW | some("everything"))
)
def test_derivative_of_a_maximum_is_its_indicator(cls, graph, potentials, seed):
    rng = np.random.default_rng(seed)
    theta = fields.POTENTIALS[potentials](graph, 3, rng)
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


# Mixed tasks


@pytest.mark.parametrize(
    "cls, graph",
    methods.with_graphs(
        {name: cls for name, cls in methods.LEARNING.items() if "mixed" in cls.tasks},
        some("lonely", "cycle_tied", "hypertree", BATCH),
    ),
)
def test_gradient_of_mixed_tasks_is_at_fixed_maxima(cls, graph, seed):
    """Maximised nodes do not change; the others are differentiated as by sum-product inference."""
    rng = np.random.default_rng(seed)
    theta, cotangent = fields.normal(graph, 2, rng), draw_cotangent(graph, 2, rng)
    tau = np.arange(graph.n_nodes) % 2 * 1.0
    inference = methods.build(cls, max_iter=3)
    beliefs = inference.forward(graph, theta, tau, edges=True, tape=True)
    gradient = inference.backward(beliefs, **cotangent._asdict())

    def value(g, t):
        found = inference.forward(g, t, np.resize(tau, g.n_nodes), edges=True)
        return value_of(cotangent, lambda *_: found)(g, t)

    check_gradient(gradient, value, graph, theta)


# No convergence


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_are_bounded_without_convergence(loss, gradient):
    # Tables are frustrated and strong: BP does not converge, and the series of the adjoint would diverge.
    rng = np.random.default_rng(0)
    side, n_fields, max_iter = (3, 4, 50) if config.DISABLE_JIT else (4, 6, 300)
    graph = pack([lattice(side, side, 8, tied=False)] * n_fields)
    coupling = 4 * rng.normal(size=(graph.n_tables, 1, 1))
    theta = Potentials(rng.normal(size=(graph.n_nodes, 2)), coupling * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    wrapped = GRADIENTS[gradient]().wrap(BP(tol=1e-6, max_iter=max_iter))
    value, d_theta, converged = loss_of(loss)(wrapped, graph, theta, rng.integers(2, size=graph.n_nodes))
    assert np.isfinite(value).all()
    assert max(np.abs(part).max() for part in d_theta) < 1e6
    assert converged.all() != bool(LOSSES[loss]().needs | LOSSES[loss]().tasks)
