"""Every inference method is held to its claims, to enumeration, and to a naive twin."""

import numpy as np
import pytest
import reference
import zoo
from numba import config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skcrf.graph import Potentials, factor_potentials, from_edges, from_factors, lattice, pack, score
from skcrf.inference import INFERENCE
from skcrf.inference._pairwise.schedule import monotonic_chains
from skcrf.inference.trw import spanning_tree_weights

# Random models a check: plain Python is a hundred times slower than compiled kernels.
MANY = 2 if config.DISABLE_JIT else 20
FEWER = zoo.FEW if config.DISABLE_JIT else zoo.EVERY
compiled_only = pytest.mark.skipif(config.DISABLE_JIT, reason="too many iterations for plain Python")

CONVERGED = {"max_iter": 5000, "tol": 1e-13, "damping": 0.2}
ITERATIVE = {name: cls for name, cls in zoo.LEARNING.items() if "max_iter" in cls().get_params()}
BOUNDING = {name: cls for name, cls in INFERENCE.items() if cls.bound}

#: Graphs with cycles, on which bounds may be loose.
BOUNDED = ("cycle", "complete", "lattice_2x3", "lattice_2x2_diagonal", "cycle_of_triples", "four_and_pairs")


#: Every task, and temperatures of the nodes of a chain of four that ask for it.
TASKS = {
    "sum": 1.0,
    "max": 0.0,
    "mixed": np.array([0.0, 1.0, 1.0, 0.0]),
    "tempered": np.array([0.0, 0.5, 1.0, 0.5]),
}


def each(argument, registry):
    return pytest.mark.parametrize(argument, list(registry.values()), ids=list(registry))


#: By what a method claims, the graphs on which it must be exact; all are where nothing interacts.
EXACT_ON = {
    "any": zoo.ANY,
    "forest": {title: graph for title, graph in zoo.ANY.items() if reference.is_forest(graph)},
    None: {title: graph for title, graph in zoo.ANY.items() if graph.n_edges == 0},
}


def exact_cases(cls):
    """Graphs of the claimed layouts on which a method must be exact, with several numbers of states."""
    return zoo.with_states(zoo.asked(cls, EXACT_ON[cls.exact_on]), 1, 2, 3)


def assert_same(one, other):
    """Bit for bit, nan nowhere."""
    for field in ("mu", "edge_mu", "log_z", "n_iter", "converged"):
        assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


def assert_beliefs_are_sound(beliefs, graph, n_states):
    assert beliefs.mu.shape == (graph.n_nodes, n_states)
    in_pairs = graph.layout == "pairwise"
    shape = (graph.n_edges, n_states, n_states) if in_pairs else (graph.belief_ptr[-1],)
    assert beliefs.edge_mu.shape == shape
    assert beliefs.log_z.shape == beliefs.n_iter.shape == beliefs.converged.shape == (graph.n_examples,)
    assert beliefs.converged.dtype == bool
    assert np.isfinite(beliefs.log_z).all()
    assert beliefs.mu.min() >= 0
    assert beliefs.edge_mu.min(initial=0.0) >= 0
    assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
    for e in range(graph.n_edges):
        assert_allclose(reference.joint_of(graph, beliefs.edge_mu, e).sum(), 1, rtol=0, atol=1e-12)


# Exactness


@pytest.mark.parametrize("potentials", zoo.POTENTIALS)
@each("cls", zoo.LEARNING)
def test_exact_where_claimed(cls, potentials, seed):
    for title, graph, n_states in exact_cases(cls):
        with zoo.case(title, n_states):
            theta = zoo.POTENTIALS[potentials](graph, n_states, np.random.default_rng(seed))
            beliefs = cls().forward(graph, theta, edges=True)
            mu, edge_mu = reference.marginals(graph, theta)
            assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-10)
            assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=1e-10)
            assert_allclose(beliefs.log_z, reference.log_z(graph, theta), rtol=1e-10, atol=1e-10)
            assert beliefs.converged.all()


@pytest.mark.parametrize("potentials", zoo.POTENTIALS)
@each("cls", zoo.MAXIMISING)
def test_exact_maximum_where_claimed(cls, potentials, seed):
    for title, graph, n_states in exact_cases(cls):
        with zoo.case(title, n_states):
            theta = zoo.POTENTIALS[potentials](graph, n_states, np.random.default_rng(seed))
            beliefs = cls().forward(graph, theta, tau=0.0, edges=True)
            assert_allclose(beliefs.log_z, reference.max_score(graph, theta), rtol=1e-10, atol=1e-10)
            x = beliefs.mu.argmax(axis=1)
            for example, best in enumerate(reference.best_configurations(graph, theta)):
                assert tuple(x[graph.node_ptr[example] : graph.node_ptr[example + 1]]) in best


@each("cls", zoo.MAXIMISING)
def test_maximum_is_one_configuration_when_many_are_best(cls, seed):
    """Whole numbers make ties; a state picked by each node for itself would mix the winners."""
    rng = np.random.default_rng(seed)
    for title, graph in zoo.asked(cls, EXACT_ON["forest" if cls.exact_on else None]).items():
        batch = pack([graph] * MANY)
        unary, tables = zoo.shapes(batch, 2)
        theta = Potentials(rng.integers(0, 2, size=unary) * 1.0, rng.integers(-1, 2, size=tables) * 1.0)
        theta = zoo.padded(batch, theta)
        with zoo.case(title):
            beliefs = cls().forward(batch, theta, tau=0.0)
            assert_allclose(beliefs.log_z, reference.max_score(batch, theta), rtol=0, atol=1e-10)
            x = beliefs.mu.argmax(axis=1)
            assert_allclose(score(batch, theta, x), beliefs.log_z, rtol=0, atol=1e-10)


@pytest.mark.parametrize("draw", [zoo.normal, zoo.attractive, zoo.constant])
@each("cls", zoo.MAXIMISING)
def test_maximum_is_one_hot_and_scored(cls, draw, seed):
    for title, graph, n_states in zoo.with_states(zoo.asked(cls, zoo.ANY), 3):
        with zoo.case(title):
            theta = draw(graph, n_states, np.random.default_rng(seed))
            beliefs = cls().forward(graph, theta, tau=np.zeros(graph.n_nodes), edges=True)
            assert_beliefs_are_sound(beliefs, graph, n_states)
            x = beliefs.mu.argmax(axis=1)
            assert_array_equal(beliefs.mu, np.eye(n_states)[x])
            assert_array_equal(beliefs.edge_mu, reference.products(graph, beliefs.mu))
            assert_allclose(beliefs.log_z, score(graph, theta, x), rtol=1e-12, atol=1e-12)
            assert (beliefs.log_z <= reference.max_score(graph, theta) + 1e-9).all()


# Claims


@each("cls", INFERENCE)
def test_claims_are_known_words(cls):
    assert cls.tasks and cls.tasks <= TASKS.keys()
    assert cls.exact_on in (None, "forest", "any")
    assert cls.bound in (None, "upper", "lower")
    assert cls.differentiates <= {"mu", "log_z"}
    assert cls.layouts <= {"pairwise", "factor"}


@each("cls", INFERENCE)
def test_refuses_layouts_it_does_not_claim(cls):
    factors = from_factors([2, 3, 1], [[0, 1], [2]])
    pairs = zoo.SINGLES["chain"]
    cases = {
        "factor": (factors, factor_potentials(factors, [np.zeros(6), np.zeros(1)])),
        "pairwise": (pairs, zoo.constant(pairs, 2, None)),
    }
    for layout, (graph, theta) in cases.items():
        if layout in cls.layouts:
            assert cls().forward(graph, theta).converged.all()
        else:
            with pytest.raises(ValueError, match=f"layout .* for {cls.__name__}, got {layout!r}"):
                cls().forward(graph, theta)


@each("cls", INFERENCE)
def test_refuses_tasks_it_does_not_claim(cls):
    graph = zoo.SINGLES["chain"]
    theta = zoo.constant(graph, 2, None)
    for task in TASKS.keys() - cls.tasks:
        with pytest.raises(ValueError, match=f"tau.*{cls.__name__}.*{task}"):
            cls().forward(graph, theta, tau=TASKS[task])
    for task in cls.tasks:
        cls().forward(graph, theta, tau=TASKS[task])
    for tau in (-0.5, 1.5, np.nan):
        with pytest.raises(ValueError, match=f"tau must be between 0 .*{tau}"):
            cls().forward(graph, theta, tau=tau)


@each("cls", zoo.SCORING)
def test_by_itself_a_method_sums_if_it_can(cls, seed):
    graph = zoo.SINGLES["chain"]
    theta = zoo.normal(graph, 2, np.random.default_rng(seed))
    tau = 1.0 if "sum" in cls.tasks else 0.0
    assert_same(cls().forward(graph, theta, edges=True), cls().forward(graph, theta, tau=tau, edges=True))


@each("cls", INFERENCE)
def test_parameters_are_kept_and_cloned(cls):
    parameters = cls().get_params()
    assert clone(cls()).get_params() == parameters
    # inference does not change them either
    inference = cls()
    inference.forward(zoo.SINGLES["pair"], zoo.constant(zoo.SINGLES["pair"], 2, None))
    assert inference.get_params() == parameters


@each("cls", {name: cls for name, cls in zoo.LEARNING.items() if name not in ITERATIVE})
def test_refuses_what_it_cannot_do_exactly(cls):
    """A cycle for a method that is exact on forests; too many states for enumeration."""
    if cls.exact_on == "forest":
        graph = pack([zoo.SINGLES["chain"], zoo.SINGLES["cycle"]])
        for loopy in (graph, *zoo.LOOPY.values()):
            with pytest.raises(ValueError, match="in example 1" if loopy is graph else "cycle"):
                cls().forward(loopy, zoo.constant(loopy, 2, None))
    elif "max_states" in cls().get_params():
        graph = pack([zoo.SINGLES["pair"], zoo.SINGLES["complete"]])
        assert cls(max_states=16).forward(graph, zoo.constant(graph, 2, None)).converged.all()
        with pytest.raises(ValueError, match=r"max_states must .*example 1, got 15"):
            cls(max_states=15).forward(graph, zoo.constant(graph, 2, None))
    else:
        graph = pack([zoo.SINGLES["pair"], zoo.SINGLES["complete"]])
        assert cls(max_memory=8 * (16 + 1 + 8)).forward(graph, zoo.constant(graph, 2, None)).converged.all()
        with pytest.raises(
            ValueError, match=r"max_memory must .*example 1, got 199: .* is 3,.*2\*\*4 entries"
        ):
            cls(max_memory=199).forward(graph, zoo.constant(graph, 2, None))


@pytest.mark.parametrize("rho", [0.0, -0.5, 1.5, np.nan])
def test_trw_refuses_weights_out_of_range(rho):
    with pytest.raises(ValueError, match="rho"):
        INFERENCE["trw"](rho=rho).forward(zoo.SINGLES["pair"], zoo.constant(zoo.SINGLES["pair"], 2, None))


@pytest.mark.parametrize(
    "draw, strength",
    [(zoo.normal, 2.0), (zoo.attractive, 1.0)]
    if config.DISABLE_JIT
    else [
        *((zoo.normal, strength) for strength in (0.5, 2.0, 5.0)),
        *((zoo.attractive, strength) for strength in (0.5, 1.0, 2.0)),
    ],
)
@pytest.mark.parametrize("cls, graph", zoo.askable(BOUNDING, {title: zoo.ALL[title] for title in BOUNDED}))
def test_bound_at_convergence(cls, graph, draw, strength, seed):
    batch = pack([graph] * MANY)
    theta = draw(batch, 2, np.random.default_rng(seed), strength=strength)
    beliefs = zoo.build(cls, max_iter=1000, tol=1e-8, damping=0.2).forward(batch, theta)
    excess = (beliefs.log_z - reference.log_z(batch, theta)) * {"upper": 1, "lower": -1}[cls.bound]
    assert beliefs.converged.mean() >= 0.5  # too few would prove nothing
    assert (excess[beliefs.converged] >= -1e-6).all()


@compiled_only
@pytest.mark.parametrize("connectivity, rho, bounds", [(4, 0.5, True), (8, 0.25, True), (8, 0.5, False)])
def test_equal_weights_bound_where_they_are_those_of_forests(connectivity, rho, bounds, seed):
    rng = np.random.default_rng(seed)
    graph = lattice(3, 3, connectivity)
    theta = Potentials(0.1 * rng.normal(size=(9, 2)), np.tile(2 * np.eye(2), (graph.n_tables, 1, 1)))
    beliefs = INFERENCE["trw"](rho=rho, max_iter=3000, tol=1e-8, damping=0.3).forward(graph, theta)
    assert (beliefs.log_z[0] >= reference.log_z(graph, theta)[0]) == bounds


@pytest.mark.parametrize("strength", [0.5, 5.0])
def test_mean_field_bounds_from_below_after_any_number_of_iterations(strength, seed):
    rng = np.random.default_rng(seed)
    for title, graph in zoo.ANY.items():
        theta = zoo.normal(graph, 3, rng, strength=strength)
        exact = reference.log_z(graph, theta)
        for max_iter in (1, 2, 3):
            with zoo.case(title, max_iter):
                log_z = INFERENCE["mean_field"](max_iter=max_iter).forward(graph, theta).log_z
                assert (log_z <= exact + 1e-10).all()


# Beliefs


@pytest.mark.parametrize("potentials", zoo.POTENTIALS)
@each("cls", zoo.SCORING)
def test_beliefs_are_sound(cls, potentials, seed):
    draw = zoo.POTENTIALS[potentials]
    if draw is zoo.forbidden and "sum" not in cls.tasks:
        draw = zoo.forbidden_unary  # to avoid forbidden pairs is as hard as any puzzle
    rng = np.random.default_rng(seed)
    inferences = zoo.build(cls, max_iter=3), zoo.build(cls, max_iter=1, damping=0.5)
    for title, graph, n_states in zoo.with_states(zoo.asked(cls, zoo.ANY), 1, 3):
        theta = draw(graph, n_states, rng)
        for inference in inferences if "max_iter" in cls().get_params() else inferences[:1]:
            with zoo.case(title, inference, n_states):
                beliefs = inference.forward(graph, theta, edges=True)
                assert_beliefs_are_sound(beliefs, graph, n_states)
                assert not beliefs.mu[theta.unary == -np.inf].any()


@each("cls", zoo.SCORING)
def test_edges_and_tape_change_nothing_else(cls, seed):
    graph = zoo.BATCHES["chains"]
    theta = zoo.normal(graph, 2, np.random.default_rng(seed))
    before = Potentials(theta.unary.copy(), theta.tables.copy())
    plain = cls().forward(graph, theta)
    assert plain.edge_mu is None
    tau = np.full(graph.n_nodes, float("sum" in cls.tasks))
    for options in ({"edges": True}, {"tape": True}, {"tau": tau}):
        other = cls().forward(graph, theta, **options)
        assert_same(other._replace(edge_mu=None), plain)
    assert_array_equal(theta.unary, before.unary)
    assert_array_equal(theta.tables, before.tables)


@pytest.mark.parametrize("cls, graph", zoo.askable(zoo.SCORING, zoo.FEW))
def test_a_constant_moves_log_z_and_nothing_else(cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = zoo.normal(graph, 3, rng)
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


@each("cls", zoo.SCORING)
def test_direction_of_an_edge_is_only_a_transpose(cls, seed):
    edges = np.array([(0, 1), (1, 2), (3, 1)])
    theta = zoo.normal(from_edges(4, edges), 3, np.random.default_rng(seed))
    turned = Potentials(theta.unary, np.ascontiguousarray(theta.tables.transpose(0, 2, 1)))
    one = cls().forward(from_edges(4, edges), theta, edges=True)
    other = cls().forward(from_edges(4, edges[:, ::-1]), turned, edges=True)
    assert_allclose(other.mu, one.mu, rtol=0, atol=1e-12)
    assert_allclose(other.edge_mu, one.edge_mu.transpose(0, 2, 1), rtol=0, atol=1e-12)
    assert_allclose(other.log_z, one.log_z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls, graph", zoo.askable(zoo.SCORING, zoo.FEW))
def test_shared_tables_are_a_table_an_edge(cls, graph, seed):
    theta = zoo.normal(graph, 3, np.random.default_rng(seed))
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
@each("cls", zoo.SCORING)
def test_a_batch_is_its_examples_bit_for_bit(cls, tau, seed):
    if {0.0: "max", 1.0: "sum"}[tau] not in cls.tasks:
        return
    batches = {name: zoo.FACTORS[name] for name in zoo.FACTOR_PARTS}
    for title, graph in zoo.asked(cls, zoo.EVERY_BATCH | batches).items():
        theta = zoo.normal(graph, 3, np.random.default_rng(seed))
        for inference in (cls(), zoo.build(cls, max_iter=30, tol=1e-5)):
            with zoo.case(title, inference):
                whole = inference.forward(graph, theta, tau=tau, edges=True)
                assert_same(whole, inference.forward(graph, theta, tau=tau, edges=True))
                examples = zoo.split(graph, theta)
                singles = [inference.forward(*example, tau=tau, edges=True) for example in examples]
                for field in ("mu", "edge_mu", "log_z", "n_iter", "converged"):
                    joined = np.concatenate([getattr(single, field) for single in singles])
                    assert_array_equal(getattr(whole, field), joined, err_msg=field)


# Iterations


def weights(inference, graph):
    """Edge weights of a method that passes messages: 1 where it has no such parameter."""
    if isinstance(inference, INFERENCE["trw_s"]):
        return monotonic_chains(graph).rho
    rho = getattr(inference, "rho", 1.0)
    return spanning_tree_weights(graph) if isinstance(rho, str) else rho


def naive_messages(inference, graph, theta):
    rho = weights(inference, graph)
    mu, edge_mu, _ = reference.trw(graph, theta, rho, inference.max_iter, damping=inference.damping)
    return mu, edge_mu, reference.free_energy(graph, theta, mu, edge_mu, rho)


def naive_chains(inference, graph, theta):
    """The schedule and the weights are held to their definition in test_trw_s.py."""
    schedule, rho, inward = monotonic_chains(graph)
    mu, edge_mu, messages = reference.trw(graph._replace(schedule=schedule), theta, rho, inference.max_iter)
    later = graph.edges[np.arange(graph.n_edges), 1 - (inward & 1)]
    return mu, edge_mu, reference.dual(graph, theta, rho, messages, later)


def naive_mean_field(inference, graph, theta):
    mu = reference.mean_field(graph, theta, inference.max_iter)
    return mu, reference.products(graph, mu), reference.mean_field_objective(graph, theta, mu)


#: The twin of each method that iterates: what `max_iter` iterations are, and what they make of log_z.
NAIVE = {
    "bp": naive_messages,
    "trw": naive_messages,
    "trw_s": naive_chains,
    "mean_field": naive_mean_field,
}


def free_energy(name, inference, graph, theta, beliefs):
    """What log_z has to be for the marginals at hand."""
    if name == "mean_field":
        return reference.mean_field_objective(graph, theta, beliefs.mu)
    return reference.free_energy(graph, theta, beliefs.mu, beliefs.edge_mu, weights(inference, graph))


def test_every_iterative_method_has_a_naive_twin():
    assert set(NAIVE) == set(ITERATIVE)


def variants(cls, graph, rng):
    """Settings of the parameters that change what an iteration is."""
    yield {}
    if "damping" in cls().get_params():
        yield {"damping": 0.3}
    if "rho" in cls().get_params():
        yield {"rho": 0.5}
        yield {"rho": 1.0}
        yield {"rho": rng.uniform(0.3, 1.0, size=graph.n_edges)}
        yield {"rho": rng.uniform(0.3, 1.0, size=graph.n_edges), "damping": 0.4}


@pytest.mark.parametrize("draw", [zoo.normal, zoo.forbidden_unary, zoo.forbidden])
@pytest.mark.parametrize("name", ITERATIVE)
def test_truncated_is_the_naive_iteration(name, draw, seed):
    if draw is zoo.forbidden and name == "mean_field":
        return  # no factorised distribution need avoid a forbidden pair
    rng = np.random.default_rng(seed)
    graphs = zoo.asked(INFERENCE[name], zoo.ANY)
    chosen = zoo.with_states(graphs, 2) + zoo.with_states(FEWER, 3)
    for title, graph, n_states in chosen:
        theta = draw(graph, n_states, rng)
        for parameters in variants(INFERENCE[name], graph, rng):
            for max_iter in (1, 2, 3) if not parameters else (3,):
                inference = INFERENCE[name](max_iter=max_iter, **parameters)
                with zoo.case(title, inference, n_states):
                    beliefs = inference.forward(graph, theta, edges=True)
                    mu, edge_mu, log_z = NAIVE[name](inference, graph, theta)
                    assert_allclose(beliefs.mu, mu, rtol=1e-9, atol=1e-12)
                    assert_allclose(beliefs.edge_mu, edge_mu, rtol=1e-9, atol=1e-12)
                    assert_allclose(beliefs.log_z, log_z, rtol=1e-9, atol=1e-10)
                    assert_array_equal(beliefs.n_iter, max_iter)
                    assert beliefs.converged.all()


@each("graph", zoo.FEW)
@pytest.mark.parametrize("name", ITERATIVE)
def test_fixed_point_is_consistent_and_has_its_free_energy(name, graph, seed):
    theta = zoo.normal(graph, 2, np.random.default_rng(seed), strength=0.5)
    inference = zoo.build(INFERENCE[name], **CONVERGED)
    beliefs = inference.forward(graph, theta, edges=True)
    assert beliefs.converged.all()
    assert (beliefs.n_iter < CONVERGED["max_iter"]).all()
    first, second = graph.edges.T
    assert_allclose(beliefs.edge_mu.sum(axis=2), beliefs.mu[first], rtol=0, atol=1e-10)
    assert_allclose(beliefs.edge_mu.sum(axis=1), beliefs.mu[second], rtol=0, atol=1e-10)
    assert_allclose(
        beliefs.log_z, free_energy(name, inference, graph, theta, beliefs), rtol=1e-11, atol=1e-11
    )
    # the truncated inference of more iterations lands in the same place
    again = clone(inference).set_params(max_iter=int(beliefs.n_iter.max()) + 1, tol=0.0)
    assert_allclose(again.forward(graph, theta).mu, beliefs.mu, rtol=0, atol=1e-10)


@each("cls", ITERATIVE)
def test_too_few_iterations_are_admitted_and_usable(cls, seed):
    graph = pack([zoo.SINGLES["no_edges"], zoo.SINGLES["complete"], zoo.SINGLES["lattice_2x3"]])
    theta = zoo.attractive(graph, 2, np.random.default_rng(seed), strength=3.0)
    beliefs = cls(max_iter=2, tol=1e-13).forward(graph, theta, edges=True)
    assert_beliefs_are_sound(beliefs, graph, 2)
    assert_array_equal(beliefs.converged, [True, False, False])
    assert_array_equal(beliefs.n_iter[1:], 2)
    # the iterations done are those of the truncated inference
    truncated = cls(max_iter=2).forward(graph, theta, edges=True)
    assert_allclose(beliefs.mu, truncated.mu, rtol=0, atol=1e-12)
    assert_allclose(beliefs.log_z, truncated.log_z, rtol=1e-12, atol=1e-12)


@each("cls", ITERATIVE)
def test_a_looser_tolerance_stops_earlier(cls, seed):
    graph = zoo.SINGLES["complete"]
    theta = zoo.normal(graph, 2, np.random.default_rng(seed), strength=0.5)
    loose, tight = (zoo.build(cls, max_iter=5000, tol=tol).forward(graph, theta) for tol in (1e-3, 1e-12))
    assert loose.converged.all()
    assert tight.converged.all()
    assert loose.n_iter[0] < tight.n_iter[0]
    assert_allclose(loose.mu, tight.mu, rtol=0, atol=1e-1)


@compiled_only
@pytest.mark.parametrize("damping", [0.0, 0.5])
@pytest.mark.parametrize("shape, strength, seed", [((3, 3, 8), 10, 7), ((3, 3, 4), 30, 5)])
def test_strong_potentials_converge_where_they_say(shape, strength, seed, damping):
    """Messages that hardly change as probabilities may still decide, once they are multiplied."""
    rng, graph = np.random.RandomState(seed), lattice(*shape)
    theta = Potentials(strength * rng.randn(graph.n_nodes, 2), strength * rng.randn(graph.n_tables, 2, 2))
    beliefs = INFERENCE["trw"](max_iter=100_000, tol=1e-3, damping=damping).forward(graph, theta)
    assert beliefs.converged.all()
    assert beliefs.log_z[0] > reference.log_z(graph, theta)[0]
