"""Inference methods: their claims, exactness and bounds against enumeration, and properties of beliefs."""

import fields
import methods
import numpy as np
import pytest
import reference
from numba import config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skcrf.graph import Potentials, chain, factor_potentials, from_edges, from_factors, lattice, pack, score
from skcrf.inference import INFERENCE, TRW, BruteForce

# Number of random models per check. Plain Python is a hundred times slower than compiled kernels.
MANY = 2 if config.DISABLE_JIT else 20
compiled_only = pytest.mark.skipif(config.DISABLE_JIT, reason="too many iterations for plain Python")

ITERATIVE = {name: cls for name, cls in methods.LEARNING.items() if "max_iter" in cls().get_params()}
BOUNDING = {name: cls for name, cls in INFERENCE.items() if cls.bound}

#: Graphs with cycles, on which bounds may be loose.
BOUNDED = ("cycle", "complete", "lattice_2x3", "lattice_2x2_diagonal", "cycle_of_triples", "four_and_pairs")


#: The temperatures of a chain of four nodes for each task.
TASKS = {
    "sum": 1.0,
    "max": 0.0,
    "mixed": np.array([0.0, 1.0, 1.0, 0.0]),
    "tempered": np.array([0.0, 0.5, 1.0, 0.5]),
}


def each(argument, registry):
    return pytest.mark.parametrize(argument, list(registry.values()), ids=list(registry))


#: The graphs on which a method must be exact, by its claim. Without edges every method is exact.
EXACT_ON = {
    "any": fields.ANY,
    "forest": {title: graph for title, graph in fields.ANY.items() if reference.is_forest(graph)},
    None: {title: graph for title, graph in fields.ANY.items() if graph.n_edges == 0},
}


def exact_cases(cls):
    """List the graphs on which a method must be exact, each with several numbers of states."""
    return fields.with_states(methods.supported(cls, EXACT_ON[cls.exact_on]), 1, 2, 3)


def assert_same(one, other):
    """Check that two beliefs are equal bit for bit."""
    for field in ("mu", "edge_mu", "log_z", "n_iter", "converged"):
        assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


# Exactness


@pytest.mark.parametrize("potentials", fields.POTENTIALS)
@each("cls", methods.LEARNING)
def test_marginals_are_exact_where_claimed(cls, potentials, seed):
    for title, graph, n_states in exact_cases(cls):
        with methods.case(title, n_states):
            theta = fields.POTENTIALS[potentials](graph, n_states, np.random.default_rng(seed))
            beliefs = cls().forward(graph, theta, edges=True)
            mu, edge_mu = reference.marginals(graph, theta)
            assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-10)
            assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=1e-10)
            assert_allclose(beliefs.log_z, reference.log_z(graph, theta), rtol=1e-10, atol=1e-10)
            assert beliefs.converged.all()


@pytest.mark.parametrize("potentials", fields.POTENTIALS)
@each("cls", methods.MAXIMISING)
def test_maximum_is_exact_where_claimed(cls, potentials, seed):
    for title, graph, n_states in exact_cases(cls):
        with methods.case(title, n_states):
            theta = fields.POTENTIALS[potentials](graph, n_states, np.random.default_rng(seed))
            beliefs = cls().forward(graph, theta, tau=0.0, edges=True)
            assert_allclose(beliefs.log_z, reference.max_score(graph, theta), rtol=1e-10, atol=1e-10)
            x = beliefs.mu.argmax(axis=1)
            for example, best in enumerate(reference.best_configurations(graph, theta)):
                assert tuple(x[graph.node_ptr[example] : graph.node_ptr[example + 1]]) in best


@each("cls", methods.MAXIMISING)
def test_maximum_is_one_configuration_if_several_are_best(cls, seed):
    """Integer potentials make ties; states chosen node by node could mix several best configurations."""
    rng = np.random.default_rng(seed)
    for title, graph in methods.supported(cls, EXACT_ON["forest" if cls.exact_on else None]).items():
        batch = pack([graph] * MANY)
        unary, tables = fields.shapes(batch, 2)
        theta = Potentials(rng.integers(0, 2, size=unary) * 1.0, rng.integers(-1, 2, size=tables) * 1.0)
        theta = fields.padded(batch, theta)
        with methods.case(title):
            beliefs = cls().forward(batch, theta, tau=0.0)
            assert_allclose(beliefs.log_z, reference.max_score(batch, theta), rtol=0, atol=1e-10)
            x = beliefs.mu.argmax(axis=1)
            assert_allclose(score(batch, theta, x), beliefs.log_z, rtol=0, atol=1e-10)


@pytest.mark.parametrize("draw", [fields.normal, fields.attractive, fields.constant])
@each("cls", methods.MAXIMISING)
def test_maximum_is_one_hot_and_log_z_is_its_score(cls, draw, seed):
    for title, graph, n_states in fields.with_states(methods.supported(cls, fields.ANY), 3):
        with methods.case(title):
            theta = draw(graph, n_states, np.random.default_rng(seed))
            beliefs = cls().forward(graph, theta, tau=np.zeros(graph.n_nodes), edges=True)
            methods.assert_valid_beliefs(beliefs, graph, n_states)
            x = beliefs.mu.argmax(axis=1)
            assert_array_equal(beliefs.mu, np.eye(n_states)[x])
            assert_array_equal(beliefs.edge_mu, reference.products(graph, beliefs.mu))
            assert_allclose(beliefs.log_z, score(graph, theta, x), rtol=1e-12, atol=1e-12)
            assert (beliefs.log_z <= reference.max_score(graph, theta) + 1e-9).all()


def test_enumeration_of_one_state_has_no_limit_of_nodes():
    beliefs = BruteForce().forward(chain(100), Potentials(np.ones((100, 1)), np.zeros((1, 1, 1))))
    assert_allclose(beliefs.log_z, 100.0)


# Claims


@each("cls", INFERENCE)
def test_claims_have_allowed_values(cls):
    assert cls.tasks and cls.tasks <= TASKS.keys()
    assert cls.exact_on in (None, "forest", "any")
    assert cls.bound in (None, "upper", "lower")
    assert cls.differentiates <= {"mu", "log_z"}
    assert cls.layouts <= {"pairwise", "factor", "potts"}


@each("cls", INFERENCE)
def test_layouts_that_are_not_claimed_are_refused(cls):
    factors = from_factors([2, 3, 1], [[0, 1], [2]])
    pairs = fields.SINGLES["chain"]
    cases = {
        "factor": (factors, factor_potentials(factors, [np.zeros(6), np.zeros(1)])),
        "pairwise": (pairs, fields.constant(pairs, 2, None)),
    }
    for layout, (graph, theta) in cases.items():
        if layout in cls.layouts:
            assert cls().forward(graph, theta).converged.all()
        else:
            with pytest.raises(ValueError, match=f"layout .* for {cls.__name__}, got {layout!r}"):
                cls().forward(graph, theta)


@each("cls", INFERENCE)
def test_tasks_that_are_not_claimed_are_refused(cls):
    graph = fields.SINGLES["chain"]
    theta = fields.constant(graph, 2, None)
    for task in TASKS.keys() - cls.tasks:
        with pytest.raises(ValueError, match=f"tau.*{cls.__name__}.*{task}"):
            cls().forward(graph, theta, tau=TASKS[task])
    for task in cls.tasks:
        cls().forward(graph, theta, tau=TASKS[task])
    for tau in (-0.5, 1.5, np.nan):
        with pytest.raises(ValueError, match=f"tau must be between 0 .*{tau}"):
            cls().forward(graph, theta, tau=tau)


@each("cls", methods.SCORING)
def test_default_task_is_to_sum_if_possible(cls, seed):
    graph = fields.SINGLES["chain"]
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    tau = 1.0 if "sum" in cls.tasks else 0.0
    assert_same(cls().forward(graph, theta, edges=True), cls().forward(graph, theta, tau=tau, edges=True))


@each("cls", INFERENCE)
def test_parameters_are_cloned_and_not_changed(cls):
    parameters = cls().get_params()
    assert clone(cls()).get_params() == parameters
    inference = cls()
    inference.forward(fields.SINGLES["pair"], fields.constant(fields.SINGLES["pair"], 2, None))
    assert inference.get_params() == parameters


@each("cls", {name: cls for name, cls in methods.LEARNING.items() if name not in ITERATIVE})
def test_exact_methods_refuse_problems_that_they_cannot_solve(cls):
    """Cycles, if the method is exact on forests; too many configurations or too large tables."""
    if cls.exact_on == "forest":
        graph = pack([fields.SINGLES["chain"], fields.SINGLES["cycle"]])
        for loopy in (graph, *fields.LOOPY.values()):
            with pytest.raises(ValueError, match="in example 1" if loopy is graph else "cycle"):
                cls().forward(loopy, fields.constant(loopy, 2, None))
    elif "max_states" in cls().get_params():
        graph = pack([fields.SINGLES["pair"], fields.SINGLES["complete"]])
        assert cls(max_states=16).forward(graph, fields.constant(graph, 2, None)).converged.all()
        with pytest.raises(ValueError, match=r"max_states must .*example 1, got 15"):
            cls(max_states=15).forward(graph, fields.constant(graph, 2, None))
    else:
        graph = pack([fields.SINGLES["pair"], fields.SINGLES["complete"]])
        theta = fields.constant(graph, 2, None)
        assert cls(max_memory=8 * (16 + 1 + 8)).forward(graph, theta).converged.all()
        with pytest.raises(
            ValueError, match=r"max_memory must .*example 1, got 199: .* is 3,.*2\*\*4 entries"
        ):
            cls(max_memory=199).forward(graph, theta)


@pytest.mark.parametrize("rho", [0.0, -0.5, 1.5, np.nan])
def test_trw_refuses_weights_out_of_range(rho):
    with pytest.raises(ValueError, match="rho"):
        INFERENCE["trw"](rho=rho).forward(
            fields.SINGLES["pair"], fields.constant(fields.SINGLES["pair"], 2, None)
        )


def test_trw_repeats_weights_of_one_example_for_all():
    one = from_edges(3, [[0, 1], [1, 2], [0, 2]])
    graph = pack([one, one])
    theta = fields.normal(graph, 2, np.random.default_rng(0))
    rho = [0.5, 0.6, 0.9]
    short = TRW(rho=rho).forward(graph, theta)
    assert_array_equal(short.mu, TRW(rho=rho * 2).forward(graph, theta).mu)
    other = pack([one, chain(3, tied=False)])
    with pytest.raises(ValueError, match="one value per edge, 2 in example 1, got 3 values"):
        TRW(rho=rho).forward(other, fields.normal(other, 2, np.random.default_rng(0)))


# Bounds


@pytest.mark.parametrize(
    "draw, strength",
    [(fields.normal, 2.0), (fields.attractive, 1.0)]
    if config.DISABLE_JIT
    else [
        *((fields.normal, strength) for strength in (0.5, 2.0, 5.0)),
        *((fields.attractive, strength) for strength in (0.5, 1.0, 2.0)),
    ],
)
@pytest.mark.parametrize(
    "cls, graph", methods.with_graphs(BOUNDING, {title: fields.ALL[title] for title in BOUNDED})
)
def test_log_z_is_a_bound_at_convergence(cls, graph, draw, strength, seed):
    batch = pack([graph] * MANY)
    theta = draw(batch, 2, np.random.default_rng(seed), strength=strength)
    beliefs = methods.build(cls, max_iter=1000, tol=1e-8, damping=0.2).forward(batch, theta)
    excess = (beliefs.log_z - reference.log_z(batch, theta)) * {"upper": 1, "lower": -1}[cls.bound]
    assert beliefs.converged.mean() >= 0.5  # otherwise the check would be empty
    assert (excess[beliefs.converged] >= -1e-6).all()


@compiled_only
@pytest.mark.parametrize("connectivity, rho, bounds", [(4, 0.5, True), (8, 0.25, True), (8, 0.5, False)])
def test_equal_weights_bound_log_z_if_they_are_probabilities_of_forests(connectivity, rho, bounds, seed):
    rng = np.random.default_rng(seed)
    graph = lattice(3, 3, connectivity)
    theta = Potentials(0.1 * rng.normal(size=(9, 2)), np.tile(2 * np.eye(2), (graph.n_tables, 1, 1)))
    beliefs = INFERENCE["trw"](rho=rho, max_iter=3000, tol=1e-8, damping=0.3).forward(graph, theta)
    assert (beliefs.log_z[0] >= reference.log_z(graph, theta)[0]) == bounds


@pytest.mark.parametrize("strength", [0.5, 5.0])
def test_mean_field_is_a_lower_bound_after_any_number_of_iterations(strength, seed):
    rng = np.random.default_rng(seed)
    for title, graph in fields.ANY.items():
        theta = fields.normal(graph, 3, rng, strength=strength)
        exact = reference.log_z(graph, theta)
        for max_iter in (1, 2, 3):
            with methods.case(title, max_iter):
                log_z = INFERENCE["mean_field"](max_iter=max_iter).forward(graph, theta).log_z
                assert (log_z <= exact + 1e-10).all()


# Beliefs


@pytest.mark.parametrize("potentials", fields.POTENTIALS)
@each("cls", methods.SCORING)
def test_beliefs_are_valid(cls, potentials, seed):
    draw = fields.POTENTIALS[potentials]
    if draw is fields.forbidden and "sum" not in cls.tasks:
        draw = fields.forbidden_unary  # avoiding forbidden pairs is NP-hard
    rng = np.random.default_rng(seed)
    inferences = methods.build(cls, max_iter=3), methods.build(cls, max_iter=1, damping=0.5)
    for title, graph, n_states in fields.with_states(methods.supported(cls, fields.ANY), 1, 3):
        theta = draw(graph, n_states, rng)
        for inference in inferences if "max_iter" in cls().get_params() else inferences[:1]:
            with methods.case(title, inference, n_states):
                beliefs = inference.forward(graph, theta, edges=True)
                methods.assert_valid_beliefs(beliefs, graph, n_states)
                assert not beliefs.mu[theta.unary == -np.inf].any()


@each("cls", methods.SCORING)
def test_edges_and_tape_do_not_change_results_or_potentials(cls, seed):
    graph = fields.BATCHES["chains"]
    theta = fields.normal(graph, 2, np.random.default_rng(seed))
    before = Potentials(theta.unary.copy(), theta.tables.copy())
    plain = cls().forward(graph, theta)
    assert plain.edge_mu is None
    tau = np.full(graph.n_nodes, float("sum" in cls.tasks))
    for options in ({"edges": True}, {"tape": True}, {"tau": tau}):
        other = cls().forward(graph, theta, **options)
        assert_same(other._replace(edge_mu=None), plain)
    assert_array_equal(theta.unary, before.unary)
    assert_array_equal(theta.tables, before.tables)


@pytest.mark.parametrize("cls, graph", methods.with_graphs(methods.SCORING, fields.FEW))
def test_constants_added_to_potentials_change_log_z_only(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 3, rng)
    shift, table_shift = rng.normal(size=(graph.n_nodes, 1)), rng.normal(size=(graph.n_tables, 1, 1))
    moved = Potentials(theta.unary + shift, theta.tables + table_shift)
    one, other = (cls().forward(graph, potentials, edges=True) for potentials in (theta, moved))
    by_example = [
        shift[graph.node_example == example].sum()
        + table_shift[graph.edge_table[graph.edge_example == example]].sum()
        for example in range(graph.n_examples)
    ]
    assert_allclose(other.mu, one.mu, rtol=0, atol=1e-12)
    assert_allclose(other.edge_mu, one.edge_mu, rtol=0, atol=1e-12)
    assert_allclose(other.log_z, one.log_z + by_example, rtol=1e-11, atol=1e-11)


@each("cls", methods.SCORING)
def test_reversed_edges_have_transposed_marginals(cls, seed):
    edges = np.array([(0, 1), (1, 2), (3, 1)])
    theta = fields.normal(from_edges(4, edges), 3, np.random.default_rng(seed))
    turned = Potentials(theta.unary, np.ascontiguousarray(theta.tables.transpose(0, 2, 1)))
    one = cls().forward(from_edges(4, edges), theta, edges=True)
    other = cls().forward(from_edges(4, edges[:, ::-1]), turned, edges=True)
    assert_allclose(other.mu, one.mu, rtol=0, atol=1e-12)
    assert_allclose(other.edge_mu, one.edge_mu.transpose(0, 2, 1), rtol=0, atol=1e-12)
    assert_allclose(other.log_z, one.log_z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls, graph", methods.with_graphs(methods.SCORING, fields.FEW))
def test_shared_tables_equal_one_table_per_edge(cls, graph, seed):
    theta = fields.normal(graph, 3, np.random.default_rng(seed))
    own = graph._replace(
        edge_table=np.arange(graph.n_edges),
        table_ptr=graph.edge_ptr,
        table_group=np.ascontiguousarray(graph.table_group[graph.edge_table]),
    )
    one = cls().forward(graph, theta, edges=True)
    other = cls().forward(own, Potentials(theta.unary, theta.tables[graph.edge_table]), edges=True)
    assert_allclose(other.mu, one.mu, rtol=0, atol=1e-12)
    assert_allclose(other.edge_mu, one.edge_mu, rtol=0, atol=1e-12)
    assert_allclose(other.log_z, one.log_z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.0])
@each("cls", methods.SCORING)
def test_batch_equals_its_examples_bit_for_bit(cls, tau, seed):
    if {0.0: "max", 1.0: "sum"}[tau] not in cls.tasks:
        return
    batches = {name: fields.FACTORS[name] for name in fields.FACTOR_PARTS}
    for title, graph in methods.supported(cls, fields.EVERY_BATCH | batches).items():
        theta = fields.normal(graph, 3, np.random.default_rng(seed))
        for inference in (cls(), methods.build(cls, max_iter=30, tol=1e-5)):
            with methods.case(title, inference):
                whole = inference.forward(graph, theta, tau=tau, edges=True)
                assert_same(whole, inference.forward(graph, theta, tau=tau, edges=True))
                examples = fields.split(graph, theta)
                singles = [inference.forward(*example, tau=tau, edges=True) for example in examples]
                for field in ("mu", "edge_mu", "log_z", "n_iter", "converged"):
                    joined = np.concatenate([getattr(single, field) for single in singles])
                    assert_array_equal(getattr(whole, field), joined, err_msg=field)
