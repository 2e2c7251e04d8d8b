"""Every loss with every inference: values against definitions, derivatives against differences."""

from itertools import product

import fields
import methods
import numpy as np
import pytest
from derivatives import check_gradient
from loss_definitions import (
    FIXED_POINT,
    OF_LARGEST_MARGINALS,
    OF_LOG_Z,
    OF_MARGINALS,
    OF_ONE_CONFIGURATION,
    OF_THETA,
    TEMPERATURES,
    TRUNCATED,
    able,
    calls_inference,
    cases,
    cases_by_method,
    defined,
    exact,
    hidden_share,
    takes,
    wrapped,
)
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials, factor_potentials, from_factors, lattice, pack
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES, FreeLogPartition

# Plain Python is a hundred times slower than compiled kernels, and differences take many evaluations.
THREE_STATES = (
    ("lonely", "lattice_1x3_diagonal") if config.DISABLE_JIT else ("small", "lonely", "diagonal_lattices")
)
FORBIDDEN = (
    ("cycle_tied", "lattice_2x2") if config.DISABLE_JIT else ("chain_untied", "cycle_tied", "lattice_2x3")
)
#: Graphs with factors of several sizes, with hidden nodes in the middle of factors.
FACTORS = ("triple", "overlap") if config.DISABLE_JIT else ("hypertree", "four_and_pairs", "everything")


@pytest.mark.parametrize("loss", LOSSES)
def test_unsupported_layouts_raise_an_error(loss):
    graph = fields.FACTORS["triple"]
    ask = wrapped(INFERENCE["bp"]), graph, fields.constant(graph, None, None), np.zeros(3, dtype=np.int64)
    if takes(loss, graph):
        assert np.isfinite(LOSSES[loss]()(*ask)[0]).all()
    else:
        with pytest.raises(ValueError, match=f"layout 'pairwise' for {LOSSES[loss].__name__}, got 'factor'"):
            LOSSES[loss]()(*ask)


def test_every_loss_has_a_definition():
    without_derivative = OF_LARGEST_MARGINALS | OF_THETA
    for names, needs in ((OF_MARGINALS, {"mu"}), (OF_LOG_Z, {"log_z"}), (without_derivative, set())):
        assert set(names) == {name for name, cls in LOSSES.items() if cls.needs == needs}
    assert set(OF_THETA) == {name for name in LOSSES if not calls_inference(name)}


@pytest.mark.parametrize(
    "loss, cls, graphs", cases_by_method(*fields.FEW, "chains", "lattices_untied", *FACTORS)
)
def test_value_equals_the_definition(loss, cls, graphs, seed):
    rng = np.random.default_rng(seed)
    inference = methods.build(cls, **TRUNCATED)
    for (title, graph), hidden in product(graphs.items(), (0.0, 0.4)):
        theta = fields.normal(graph, 3, rng)
        y = fields.labels(graph, 3, rng, hidden=hidden_share(loss, hidden))
        with methods.case(title, hidden):
            value, _, converged = LOSSES[loss]()(wrapped(cls, **TRUNCATED), graph, theta, y)
            expected = defined(loss, inference, graph, theta, y)
            assert value.shape == converged.shape == (graph.n_examples,)
            assert_allclose(value, expected, rtol=1e-10, atol=1e-10)
            assert converged.all()


@pytest.mark.parametrize("potentials", ["normal", "attractive", "forbidden"])
@pytest.mark.parametrize(
    "loss, cls, graphs",
    [
        case
        for case in cases_by_method(*fields.FEW, "packed_twice", *FACTORS)
        if case.values[1].exact_on == "any"
    ]
    + [
        case
        for case in cases_by_method("chain", "star", "packed_twice", "hypertree")
        if case.values[1].exact_on == "forest"
    ],
)
def test_exact_inference_gives_the_enumerated_loss(loss, cls, graphs, potentials, seed):
    rng = np.random.default_rng(seed)
    for (title, graph), hidden in product(graphs.items(), (0.0, 0.4)):
        theta = fields.POTENTIALS[potentials](graph, 2, rng)
        y = fields.possible_labels(graph, theta, rng, hidden=hidden_share(loss, hidden))
        with methods.case(title, hidden):
            # a loss with a second inference is exact if both are
            value, _, _ = methods.build(LOSSES[loss], clamped=cls())(wrapped(cls), graph, theta, y)
            assert_allclose(value, exact(loss, graph, theta, y), rtol=1e-9, atol=1e-10)
            assert (value >= -1e-10).all() or loss in OF_ONE_CONFIGURATION


def check(loss, inference, graph, theta, y, **tolerances):
    """Compare the gradient of a loss with differences of its value."""

    def value(g, t):
        return LOSSES[loss]()(inference, g, t, np.resize(y, g.n_nodes))[0]

    _, gradient, converged = LOSSES[loss]()(inference, graph, theta, y)
    assert converged.all()
    if not LOSSES[loss]().is_smooth:  # small steps rarely cross a point without derivative, but lose digits
        tolerances |= {"step": 1e-5, "atol": 1e-8}
    check_gradient(gradient, value, graph, theta, **tolerances)


@pytest.mark.parametrize(
    "loss, cls, graphs",
    cases_by_method("single", "lonely", "star_tied", "cycle_tied", "lattice_2x2", *FACTORS),
)
def test_gradient_through_truncated_inference(loss, cls, graphs, seed):
    rng = np.random.default_rng(seed)
    for turn, (title, graph) in enumerate(graphs.items()):
        for hidden in (0.4 * (turn % 2),) if config.DISABLE_JIT else (0.0, 0.4):
            theta = fields.normal(graph, 2, rng)
            y = fields.labels(graph, 2, rng, hidden=hidden_share(loss, hidden))
            with methods.case(title, hidden):
                check(loss, wrapped(cls, **TRUNCATED), graph, theta, y)


@pytest.mark.parametrize("loss, cls, graphs", cases_by_method(*THREE_STATES))
def test_gradient_with_three_states(loss, cls, graphs, seed):
    rng = np.random.default_rng(seed)
    for title, graph in graphs.items():
        theta = fields.normal(graph, 3, rng)
        y = fields.labels(graph, 3, rng, hidden=hidden_share(loss, 0.3))
        with methods.case(title):
            check(loss, wrapped(cls, **TRUNCATED), graph, theta, y)


@pytest.mark.parametrize(
    "loss, cls, graph", cases("cycle_tied", "lonely", "lattice_1x3_diagonal", FACTORS[0])
)
def test_gradient_at_the_fixed_point(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng, strength=0.4)
    y = fields.labels(graph, 2, rng, hidden=hidden_share(loss, 0.3))
    check(loss, wrapped(cls, **FIXED_POINT), graph, theta, y, atol=1e-8)


@pytest.mark.parametrize("loss, cls, graph", cases(*FORBIDDEN))
def test_gradient_with_forbidden_states(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    possible = cls.exact_on and "clamped" not in LOSSES[loss]().get_params()  # which is mean field
    if not LOSSES[loss]().is_smooth:  # the chosen configuration need not be possible
        possible = cls.exact_on == "any" and loss not in OF_ONE_CONFIGURATION
    theta = (fields.forbidden if possible else fields.forbidden_unary)(graph, 3, rng)
    y = fields.possible_labels(graph, theta, rng, hidden=hidden_share(loss, 0.3))
    check(loss, wrapped(cls, **TRUNCATED), graph, theta, y)


@pytest.mark.parametrize("loss, cls, graph", cases("mixed", "chains", "lattices", "forests"))
def test_examples_without_labels_have_no_loss(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 3, rng)
    y = fields.labels(graph, 3, rng)
    y[graph.node_example == 1] = -1
    value, gradient, _ = LOSSES[loss]()(wrapped(cls, **TRUNCATED), graph, theta, y)
    assert abs(value[1]) < 1e-12
    assert (np.abs(np.delete(value, 1)) > 1e-3).all() or not LOSSES[loss]().is_smooth
    assert_allclose(gradient.unary[graph.node_example == 1], 0, rtol=0, atol=1e-12)
    assert_allclose(gradient.tables[graph.examples_of["entry"] == 1], 0, rtol=0, atol=1e-12)
    nothing, gradient, _ = LOSSES[loss]()(wrapped(cls, **TRUNCATED), graph, theta, np.full_like(y, -1))
    assert_allclose(nothing, 0, rtol=0, atol=1e-12)
    for part in gradient:
        assert_allclose(part, 0, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "loss, cls, graph", cases("mixed", "chains", "equal_lattices", "lattices", "everything")
)
def test_batch_equals_its_examples_bit_for_bit(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng)
    y = fields.labels(graph, 2, rng, hidden=hidden_share(loss, 0.3))
    for parameters in (TRUNCATED, {"max_iter": 40, "tol": 1e-4}):
        inference = wrapped(cls, **parameters)
        value, gradient, converged = LOSSES[loss]()(inference, graph, theta, y)
        for e, (one, potentials) in enumerate(fields.split(graph, theta)):
            own = LOSSES[loss]()(inference, one, potentials, y[graph.node_example == e])
            assert_array_equal(own[0], value[e : e + 1])
            assert_array_equal(own[1].unary, gradient.unary[graph.node_example == e])
            assert_array_equal(own[1].tables, gradient.tables[graph.examples_of["entry"] == e])
            assert_array_equal(own[2], converged[e : e + 1])


@pytest.mark.parametrize(
    "loss, cls, graph",
    [
        case
        for case in cases("mixed", "chains", "everything")
        if LOSSES[case.values[0]]().site_weighted and case.values[0] not in TEMPERATURES
    ],
)
def test_loss_is_linear_in_site_weights(loss, cls, graph, seed):
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph, 2, rng)
    y = fields.labels(graph, 2, rng, hidden=0.3)
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
    if not LOSSES[loss].needs:  # sites without weight are still conditioned on
        return
    # sites without weight are equivalent to hidden sites
    weight = (np.arange(graph.n_nodes) % 2).astype(float)
    value, gradient, _ = LOSSES[loss]()(inference, graph, theta, np.where(weight > 0, y, -1))
    for one, other in zip(weighted(weight), [value, *gradient], strict=True):
        assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", [name for name, cls in LOSSES.items() if not cls().site_weighted])
def test_unsupported_site_weights_raise_an_error(loss):
    graph = fields.SINGLES["chain"]
    with pytest.raises(ValueError, match=f"site_weight must be None for {LOSSES[loss].__name__}.*'hinge'"):
        LOSSES[loss]()(
            wrapped(INFERENCE["tree"]),
            graph,
            fields.constant(graph, 2, None),
            np.zeros(graph.n_nodes, dtype=np.int64),
            site_weight=np.ones(graph.n_nodes),
        )


@pytest.mark.parametrize("labelled", [1, 6])
@pytest.mark.parametrize(
    "name, loss",
    [
        (name, loss)
        for name, cls in methods.LEARNING.items()
        for loss in LOSSES
        if "tol" in cls().get_params() and able(loss, cls)
    ],
)
def test_convergence_is_reported_per_example(loss, name, labelled, seed):
    """Also if all labels are known, so that the clamped part of a likelihood does not iterate.

    Both cycles of the second example are frustrated, by more than the costs, so that no inference reaches a
    bound of the best score.
    """
    graph = pack([fields.SINGLES["no_edges"], lattice(2, 3, tied=False)])
    assert takes(loss, graph)
    theta = fields.attractive(graph, 2, np.random.default_rng(seed), strength=10.0)
    (middle,) = np.flatnonzero((graph.edges == [4, 7]).all(axis=1))  # after three nodes without edges
    theta.tables[graph.edge_table[middle]] *= -1
    y = np.full(graph.n_nodes, -1)
    y[: 3 + (labelled if LOSSES[loss]().takes_hidden_labels else 6)] = 1
    value, gradient, converged = LOSSES[loss]()(
        wrapped(INFERENCE[name], max_iter=2, tol=1e-13), graph, theta, y
    )
    assert_array_equal(converged, [True, not calls_inference(loss)])
    assert np.isfinite(value).all()
    assert all(np.isfinite(part).all() for part in gradient)


@pytest.mark.parametrize(
    "loss", [loss for loss in OF_LOG_Z if isinstance(LOSSES[loss]().difference[0], FreeLogPartition)]
)
def test_normalised_fields_need_no_inference(loss, seed):
    """Their free log-partition function is 0; other fields in the batch do not matter."""
    rng = np.random.default_rng(seed)
    parent, child = rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(3), size=2)
    directed, y = from_factors([2, 3], [(0,), (0, 1)], normalised=True), np.array([1, 2])
    theta = factor_potentials(directed, [np.log(parent), np.log(child)])

    class Failing(INFERENCE["trw"]):
        """Inference that must not be called."""

        def forward(self, *args, **options):
            raise AssertionError("The inference was called.")

    value, gradient, converged = LOSSES[loss]()(wrapped(Failing), directed, theta, y)
    assert_allclose(value, -np.log(parent[1] * child[1, 2]), rtol=1e-12)
    assert_allclose(gradient.tables, [0, -1, 0, 0, 0, 0, 0, -1], rtol=0, atol=1e-12)
    assert converged.all()

    inference, other = wrapped(INFERENCE["trw"], max_iter=2), fields.FACTORS["overlap"]
    other_theta, other_y = fields.normal(other, None, rng), np.array([0, -1, 1])
    alone = LOSSES[loss]()(inference, other, other_theta, other_y)
    padded = np.pad(other_theta.unary, [(0, 0), (0, 1)], constant_values=-np.inf)
    both = Potentials(np.vstack([theta.unary, padded]), np.append(theta.tables, other_theta.tables))
    values, gradients, _ = LOSSES[loss]()(inference, pack([directed, other]), both, np.append(y, other_y))
    assert_allclose(values, [*value, *alone[0]], rtol=1e-12)
    assert_allclose(gradients.tables, np.append(gradient.tables, alone[1].tables), rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------- claims


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_differentiates_its_needs_and_calls_no_other_inference(loss, seed):
    asked = set()

    class Recording(INFERENCE["bruteforce"]):
        """Inference that records how it is called."""

        def forward(self, *args, **options):
            asked.add("forward")
            return super().forward(*args, **options)

        def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
            asked.update({"mu"} if d_mu is not None or d_edge_mu is not None else set())
            asked.update({"log_z"} if d_log_z is not None else set())
            return super().backward(beliefs, d_mu, d_edge_mu, d_log_z)

    rng = np.random.default_rng(seed)
    graph = fields.GRAPHS["lattices"]
    y = fields.labels(graph, 2, rng, hidden=hidden_share(loss, 0.3))
    LOSSES[loss]()(Recording(), graph, fields.normal(graph, 2, rng), y)
    assert asked == LOSSES[loss].needs | ({"forward"} if calls_inference(loss) else set())


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_is_zero_with_a_single_class(loss, seed):
    rng = np.random.default_rng(seed)
    for graph in (fields.GRAPHS["lattices"], fields.GRAPHS["isolated"]):
        theta, y = fields.normal(graph, 1, rng), fields.labels(graph, 1, rng, hidden=hidden_share(loss, 0.3))
        name = "trw" if able(loss, INFERENCE["trw"]) else "bp"
        value, gradient, converged = LOSSES[loss]()(wrapped(INFERENCE[name]), graph, theta, y)
        assert_allclose(value, 0, rtol=0, atol=1e-12)
        for part in gradient:
            assert_allclose(part, 0, rtol=0, atol=1e-12)
        assert converged.all()


@pytest.mark.parametrize("loss", sorted(set(OF_THETA) - OF_ONE_CONFIGURATION))
def test_impossible_labels_have_an_infinite_loss_and_no_nan(loss):
    graph = pack([fields.SINGLES["lattice_2x2"], fields.SINGLES["lattice_2x2"]])
    theta = fields.constant(graph, 2, None)
    theta.unary[5, 1] = -np.inf
    value, gradient, _ = LOSSES[loss]()(None, graph, theta, np.ones(8, dtype=np.int64))
    assert np.isfinite(value[0]) and value[1] == np.inf
    theta.unary[5] = -np.inf
    for one in (gradient, LOSSES[loss]()(None, graph, theta, np.ones(8, dtype=np.int64))[1]):
        assert not any(np.isnan(part).any() for part in one)
