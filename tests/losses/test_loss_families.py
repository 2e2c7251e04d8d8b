"""What only some losses promise: bounds, limits, and the ways in which they are one another."""

import numpy as np
import pytest
import reference
import strategies
import zoo
from derivatives import check_gradient
from loss_definitions import (
    OF_LOG_Z,
    TRUNCATED,
    able,
    by_example,
    contrastive_divergence,
    patch_pseudolikelihood,
    piecewise,
    wrapped,
)
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, chain, lattice, pack
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES
from skcrf.training.objective import Resumed

# ---------------------------------------------------------------------------------------- marginals


@pytest.mark.parametrize("loss", ["smoothed_classification", "clique_smoothed"])
def test_a_steep_step_counts_errors(loss, seed):
    rng = np.random.default_rng(seed)
    graph = pack([zoo.SINGLES["complete"]] * 8)
    theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng)
    mu, edge_mu = reference.marginals(graph, theta)
    if loss == "smoothed_classification":
        wrong = by_example(graph, enumerate(mu.argmax(axis=1) != y))
    else:
        i, j = graph.edges.T
        wrong = by_example(
            graph, zip(i, edge_mu.reshape(-1, 9).argmax(axis=1) != 3 * y[i] + y[j], strict=True)
        )
    for alpha in (1e7, 1e12):
        value, _, _ = LOSSES[loss](alpha=alpha)(wrapped(INFERENCE["bruteforce"]), graph, theta, y)
        assert_allclose(value, wrong, rtol=0, atol=1e-6)


@pytest.mark.parametrize("alpha", [50.0] if config.DISABLE_JIT else [5.0, 50.0])
@pytest.mark.parametrize("loss", ["smoothed_classification", "clique_smoothed"])
def test_gradient_of_steps(loss, alpha, seed):
    rng = np.random.default_rng(seed)
    graph = zoo.SINGLES["lattice_2x2" if config.DISABLE_JIT else "lattice_2x3"]
    theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng, hidden=0.3)
    inference, smoothed = wrapped(INFERENCE["trw"], **TRUNCATED), LOSSES[loss](alpha=alpha)

    def value(g, t):
        return smoothed(inference, g, t, np.resize(y, g.n_nodes))[0]

    check_gradient(smoothed(inference, graph, theta, y)[1], value, graph, theta, step=1e-4)


# ---------------------------------------------------------------------------------------- likelihoods


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


@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize("name, rho", [("trw", 0.6), ("bp", 1.0), ("mean_field", None)])
def test_likelihood_without_an_iteration(name, rho, hidden, seed):
    """theta . (mu0 - f) + H(mu0), mu0 being what inference starts from: D13 7.3, with the sign put right."""
    rng = np.random.default_rng(seed)
    if config.DISABLE_JIT:
        graph = pack([zoo.SINGLES["lattice_2x2"], zoo.SINGLES["cycle_tied"]])
    else:
        graph = pack([zoo.SINGLES["lattice_2x3"], zoo.SINGLES["complete"]])
    theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng)
    if rho is None:
        mu = reference.mean_field(graph, theta, 0)
        edge_mu = np.array([np.outer(mu[i], mu[j]) for i, j in graph.edges])
    else:
        mu, edge_mu, *_ = reference.trw(graph, theta, rho, 0)
    entropy = reference.free_energy(
        graph, zoo.constant(graph, 3, None), mu, edge_mu, 1.0 if rho is None else rho
    )
    f = np.eye(3)[y]
    terms = [(i, theta.unary[i] @ (mu[i] - f[i])) for i in range(graph.n_nodes)]
    for e, (i, j) in enumerate(graph.edges):
        terms.append((i, (theta.tables[graph.edge_table[e]] * (edge_mu[e] - np.outer(f[i], f[j]))).sum()))
    inference, loss = wrapped(INFERENCE[name], max_iter=0, rho=rho), LOSSES["likelihood"]()
    assert_allclose(
        loss(inference, graph, theta, y)[0], by_example(graph, terms) + entropy, rtol=1e-12, atol=1e-12
    )

    y = np.where(rng.random(graph.n_nodes) < hidden, -1, y)
    gradient = loss(inference, graph, theta, y)[1]
    check_gradient(gradient, lambda g, t: loss(inference, g, t, np.resize(y, g.n_nodes))[0], graph, theta)
    if rho is None and hidden == 0:  # mu0 does not depend on theta, and there is nothing to keep it in bounds
        assert_allclose(gradient.unary, mu - f, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", [loss for loss in OF_LOG_Z if LOSSES[loss].hidden_labels])
def test_examples_with_all_labels_do_not_ask_who_else_is_in_the_batch(loss, seed):
    rng = np.random.default_rng(seed)
    graph = pack([zoo.SINGLES["complete"], zoo.SINGLES["lattice_2x3"], zoo.SINGLES["cycle"]])
    theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng)
    theta.unary[5, y[5]] -= 10.0  # so that it matters whether the label is hidden
    inference = wrapped(INFERENCE["trw" if able(loss, INFERENCE["trw"]) else "bp"], max_iter=7)
    alone = LOSSES[loss]()(inference, graph, theta, y)
    hidden = np.where(np.arange(graph.n_nodes) == 5, -1, y)
    together = LOSSES[loss]()(inference, graph, theta, hidden)
    for e in (0, 2):
        assert_array_equal(together[0][e], alone[0][e])
        for part, owner in enumerate((graph.node_example, graph.table_example)):
            assert_array_equal(together[1][part][owner == e], alone[1][part][owner == e])
    assert together[0][1] != alone[0][1]


def test_em_bounds_the_likelihood_of_what_is_known(seed):
    """From above: TRW is an upper bound of what is added, mean field a lower one of the rest (D13 4.1.2)."""
    rng = np.random.default_rng(seed)
    graph = pack([zoo.SINGLES["complete"]] * 8 + [zoo.SINGLES["lattice_2x3"]] * 8)
    strict = 0
    for strength in (0.5, 2.0):
        theta = zoo.normal(graph, 2, rng, strength=strength)
        y = zoo.labels(graph, 2, rng, hidden=0.6)
        value, _, converged = LOSSES["em"]()(
            wrapped(INFERENCE["trw"], max_iter=3000, tol=1e-9), graph, theta, y
        )
        assert converged.mean() > 0.8
        excess = (value + reference.log_probability(graph, theta, y))[converged]
        assert (excess >= -1e-7).all()
        strict += (excess > 1e-3).sum()
    assert strict > 10


def test_em_with_the_same_inference_is_the_likelihood(seed):
    rng = np.random.default_rng(seed)
    graph = zoo.GRAPHS["mixed"]
    theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng, hidden=0.4)
    for cls in (INFERENCE["bp"], INFERENCE["mean_field"]):
        method = cls(max_iter=3)
        expected = LOSSES["likelihood"]()(GRADIENTS["backprop"]().wrap(method), graph, theta, y)
        found = LOSSES["em"](clamped=method)(GRADIENTS["backprop"]().wrap(method), graph, theta, y)
        assert_array_equal(found[0], expected[0])
        for one, other in zip(found[1], expected[1], strict=True):
            assert_array_equal(one, other)


def test_em_wraps_its_inference_as_the_other_is_wrapped(seed):
    """By the same strategy, also around the one that resumes, which counts its own calls only."""
    rng = np.random.default_rng(seed)
    graph = zoo.SINGLES["lattice_2x3"]
    theta, y = zoo.normal(graph, 2, rng), np.array([0, 1, -1, -1, 0, -1])
    strategy = GRADIENTS["backprop"](mode="fixed_point")
    inference = strategy.wrap(INFERENCE["trw"](max_iter=500, tol=1e-10))
    with pytest.raises(ValueError, match=r"clamped.*MeanField has tol=0"):
        LOSSES["em"](clamped="mean_field")(inference, graph, theta, y)
    loss = LOSSES["em"](clamped=INFERENCE["mean_field"](max_iter=500, tol=1e-10))
    expected = loss(inference, graph, theta, y)
    starts = {}
    for _ in range(2):
        resumed = Resumed(inference, starts)
        found = loss(resumed, graph, theta, y)
        assert resumed.n_calls == len(starts) == 1
        assert_allclose(found[0], expected[0], rtol=0, atol=1e-7)
        assert_allclose(found[1].unary, expected[1].unary, rtol=0, atol=1e-6)
    assert loss.clamped.max_iter == 500


@pytest.mark.parametrize("tol", [0.0, 1e-6])
@pytest.mark.parametrize("name", zoo.LEARNING)
def test_em_by_default_iterates_as_the_other_does(name, tol, seed):
    """Every strategy that takes the inference takes the mean field that stands beside it."""
    rng = np.random.default_rng(seed)
    graph = zoo.GRAPHS["chains"]
    theta, y = zoo.normal(graph, 2, rng), zoo.labels(graph, 2, rng, hidden=0.6)
    inference = zoo.build(INFERENCE[name], max_iter=50, tol=tol)
    beside = {"max_iter": 1000, "tol": 1e-8} | inference.get_params()
    explicit = LOSSES["em"](clamped=zoo.build(INFERENCE["mean_field"], **beside))
    for strategy in strategies.wrapped(inference).values():
        found, expected = (loss(strategy, graph, theta, y) for loss in (LOSSES["em"](), explicit))
        assert_array_equal(found[0], expected[0])
        assert_array_equal(found[1].tables, expected[1].tables)
        assert found[2].all()


# ---------------------------------------------------------------------------------------- no inference

# Plain Python is a hundred times slower than compiled kernels.
if config.DISABLE_JIT:
    SHAPES = ((3, 2), True), ((2, 3), False), ((1, 4), False)
else:
    SHAPES = ((3, 3), True), ((2, 5), False), ((4, 2), True), ((1, 6), False)
#: Lattices that patches of 2 and 3 do not fit into.
UNEVEN = {
    f"{height}x{width}-{connectivity}": lattice(height, width, connectivity, tied)
    for (height, width), tied in SHAPES
    for connectivity in (4, 8)
}


def patches(size):
    return LOSSES["patch_pseudolikelihood"](size=size)


@pytest.mark.parametrize("hidden", [0.4] if config.DISABLE_JIT else [0.0, 0.4])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("title", UNEVEN)
def test_patches_of_any_size(title, size, hidden, seed):
    rng = np.random.default_rng(seed)
    graph = UNEVEN[title]
    for draw in (zoo.normal, zoo.forbidden):
        theta = draw(graph, 2, rng)
        y = zoo.possible_labels(graph, theta, rng, hidden=hidden)
        value, gradient, _ = patches(size)(None, graph, theta, y)
        expected = patch_pseudolikelihood(graph, theta, y, size=size)
        assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
        check_gradient(
            gradient,
            lambda g, t, y=y: patches(size)(None, g, t, np.resize(y, g.n_nodes))[0],
            graph,
            theta,
        )


@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize("title", UNEVEN)
def test_patches_as_large_as_the_image_are_the_likelihood(title, hidden, seed):
    rng = np.random.default_rng(seed)
    graph = pack([UNEVEN[title], zoo.SINGLES["lattice_2x2"]])
    theta, y = zoo.normal(graph, 2, rng), zoo.labels(graph, 2, rng, hidden=hidden)
    exact, d_exact, _ = LOSSES["likelihood"]()(wrapped(INFERENCE["bruteforce"]), graph, theta, y)
    gaps = []
    for size in (1, 2, 6):
        value, gradient, _ = patches(size)(None, graph, theta, y)
        gaps.append(np.abs(value - exact).max())
    assert gaps[0] > 1e-3 and gaps[-1] < 1e-12
    for one, other in zip(gradient, d_exact, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("title", ["complete", "parallel", "tree", "chains", "mixed", "diagonal_lattices"])
def test_patches_of_one_site_are_the_pseudolikelihood_of_any_graph(title, seed):
    rng = np.random.default_rng(seed)
    graph = zoo.GRAPHS[title]
    theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng, hidden=0.3)
    expected = LOSSES["pseudolikelihood"]()(None, graph, theta, y)
    found = patches(1)(None, graph, theta, y)
    assert_allclose(found[0], expected[0], rtol=1e-12, atol=1e-12)
    for one, other in zip(found[1], expected[1], strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-12)


def test_a_long_strip_is_eliminated_along_its_short_side(seed):
    """Forty pixels with three labels could not be enumerated; a chain of them is a tree."""
    rng = np.random.default_rng(seed)
    for graph in (lattice(1, 40), lattice(40, 1)):
        theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng, hidden=0.3)
        expected = LOSSES["likelihood"]()(wrapped(INFERENCE["tree"]), graph, theta, y)
        found = patches(40)(None, graph, theta, y)
        assert_allclose(found[0], expected[0], rtol=1e-12)
        assert_allclose(found[1].tables, expected[1].tables, rtol=0, atol=1e-10)


def test_patches_that_are_refused():
    graph = pack([lattice(3, 3), chain(4), lattice(2, 2)])
    y = np.zeros(graph.n_nodes, dtype=np.int64)
    with pytest.raises(
        ValueError, match="size=2 cuts lattices into patches, but example 1 is a graph of anoth"
    ):
        patches(2)(None, graph, zoo.constant(graph, 2, None), y)
    for connectivity, power in ((4, 6), (8, 7)):
        graph = lattice(6, 5, connectivity)
        message = (
            rf"A patch of 25 nodes with 21 labels takes 25 \* 21\*\*{power} = {25 * 21**power} steps, more"
        )
        with pytest.raises(ValueError, match=message):
            patches(5)(None, graph, zoo.constant(graph, 21, None), y=np.zeros(30, dtype=np.int64))


@pytest.mark.parametrize("pieces", ["cliques", "shared"])
@pytest.mark.parametrize(
    "title",
    ["lonely", "parallel"]
    if config.DISABLE_JIT
    else ["lonely", "parallel", "complete", "lattice_2x3", "mixed"],
)
def test_pieces(title, pieces, seed):
    """The definition, the derivative, and the bound A <= A~ (D13 4.1.5)."""
    rng = np.random.default_rng(seed)
    graph, loss = zoo.GRAPHS[title], LOSSES["piecewise"](pieces=pieces)
    for draw, hidden in ((zoo.normal, 0.4), (zoo.forbidden, 0.4), (zoo.normal, 0.0), (zoo.forbidden, 0.0)):
        theta = draw(graph, 3, rng)
        y = zoo.possible_labels(graph, theta, rng, hidden=hidden)
        value, gradient, _ = loss(None, graph, theta, y)
        assert_allclose(value, piecewise(graph, theta, y, pieces=pieces), rtol=1e-12, atol=1e-12)
        check_gradient(gradient, lambda g, t, y=y: loss(None, g, t, np.resize(y, g.n_nodes))[0], graph, theta)
    # all labels are known here, so that the loss is A~ - theta . f and the exact one A - theta . f
    assert (value >= -reference.log_probability(graph, theta, y) - 1e-12).all()


def test_hidden_sites_drop_out_of_the_pseudolikelihood(seed):
    rng = np.random.default_rng(seed)
    graph, smaller = chain(5, tied=False), pack([chain(2, tied=False), chain(2, tied=False)])
    theta = zoo.normal(graph, 3, rng)
    y = zoo.labels(graph, 3, rng)
    y[2] = -1
    value, gradient, _ = LOSSES["pseudolikelihood"]()(None, graph, theta, y)
    kept = Potentials(theta.unary[[0, 1, 3, 4]], theta.tables[[0, 3]])
    expected, _, _ = LOSSES["pseudolikelihood"]()(None, smaller, kept, y[[0, 1, 3, 4]])
    assert_allclose(value, expected.sum(), rtol=1e-12)
    assert not gradient.unary[2].any() and not gradient.tables[1:3].any()


# ---------------------------------------------------------------------------------------- samples


def test_what_is_drawn_depends_on_random_state(seed):
    rng, graph = np.random.default_rng(seed), pack([lattice(5, 6)] * 3)
    theta, y = zoo.normal(graph, 3, rng), zoo.labels(graph, 3, rng, hidden=0.3)

    def value(**random_state):
        return LOSSES["contrastive_divergence"](**random_state)(None, graph, theta, y)[0]

    assert_allclose(
        value(random_state=7), contrastive_divergence(graph, theta, y, random_state=7), rtol=1e-10
    )
    assert_array_equal(value(random_state=0), value())
    assert (value(random_state=7) != value()).all()


# ------------------------------------------------------------------------------------------------- convexity


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.is_convex])
def test_convex_where_it_is_said(loss, seed):
    """Nowhere above a chord between random potentials, all labels known."""
    rng, graph = np.random.default_rng(seed), zoo.GRAPHS["lattice_2x3"]
    inference = wrapped(INFERENCE["bruteforce"])
    for _ in range(20):
        y = zoo.labels(graph, 2, rng)
        ends = [zoo.normal(graph, 2, rng, strength=3.0) for _ in range(2)]
        middle = Potentials(*(0.5 * (one + other) for one, other in zip(*ends, strict=True)))
        one, other, between = (LOSSES[loss]()(inference, graph, theta, y)[0][0] for theta in (*ends, middle))
        assert between <= 0.5 * (one + other) + 1e-9
