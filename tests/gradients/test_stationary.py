"""Gradients at a stationary point: expected statistics, differences, a linear system."""

from functools import partial
from itertools import pairwise, product

import fields
import methods
import numpy as np
import pytest
from derivatives import check_gradient
from engines import edge_weights
from loss_definitions import hidden_share
from numba import config
from numpy.testing import assert_allclose, assert_array_equal
from strategies import FIXED_POINT, assert_agree, draw, loss_of, wrapped

from skcrf.gradients import Backprop, Implicit, Perturbation
from skcrf.graph import Potentials, from_edges, lattice, pack, sum_by_table
from skcrf.inference import BP, TRW, BaseInference, Exact, Gibbs, GraphCut, MeanField
from skcrf.losses import LOSSES

# Expected statistics


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("cls", methods.LEARNING.values(), ids=methods.LEARNING)
def test_statistics_are_sums_of_marginals(cls, n_states, seed):
    draw_theta = fields.forbidden if cls.exact_on else fields.forbidden_unary
    inference = methods.build(cls, max_iter=3)
    for (title, graph), make in product(
        methods.supported(cls, fields.EVERY).items(), (fields.normal, draw_theta)
    ):
        theta = make(graph, n_states, np.random.default_rng(seed))
        with methods.case(title, make.__name__):
            beliefs = inference.forward(graph, theta, edges=True)
            found = inference.statistics(graph, beliefs)
            assert_allclose(found.unary, beliefs.mu, rtol=0, atol=1e-12)
            assert_allclose(found.tables, sum_by_table(graph, beliefs.edge_mu), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", methods.MAXIMISING.values(), ids=methods.MAXIMISING)
def test_statistics_of_a_maximum_are_indicators(cls, seed):
    for title, graph in methods.supported(cls, fields.FEW).items():
        theta = fields.normal(graph, 3, np.random.default_rng(seed))
        with methods.case(title):
            beliefs = cls().forward(graph, theta, tau=0.0, edges=True)
            found = cls().statistics(graph, beliefs)
            assert_array_equal(found.unary, beliefs.mu)
            assert_array_equal(found.tables, sum_by_table(graph, beliefs.edge_mu))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("inference", [BP(max_iter=2), TRW(max_iter=2), TRW(rho=0.5, max_iter=2)], ids=str)
def test_statistics_of_lattices_with_incomplete_tiles(inference, tied, seed):
    for n_states, shape in product((2, 3, 5), ((9, 5), (1, 7))):
        graph = pack([lattice(*shape, tied=tied), lattice(3, 4, tied=tied)])
        theta = fields.normal(graph, n_states, np.random.default_rng(seed), strength=3.0)
        beliefs = inference.forward(graph, theta, edges=True)
        expected = sum_by_table(graph, beliefs.edge_mu)
        assert_allclose(inference.statistics(graph, beliefs).tables, expected, rtol=1e-10, atol=1e-13)


def test_statistics_of_nearly_certain_neighbours():
    """Messages that contradict each other: each is close to 0 at the state that the other prefers."""
    graph = lattice(2, 6)
    for n_states in (2, 3):
        unary = np.zeros((12, n_states))
        unary[:, 0] = 100.0 * (-1.0) ** np.arange(12)
        theta = Potentials(unary, np.tile(-50.0 * np.eye(n_states), (2, 1, 1)))
        beliefs = BP(max_iter=3).forward(graph, theta, edges=True)
        expected = sum_by_table(graph, beliefs.edge_mu)
        assert_allclose(BP().statistics(graph, beliefs).tables, expected, rtol=1e-9, atol=1e-13)


# Perturbation


class Undifferentiated(BaseInference):
    """TRW without derivatives, as users may write an inference."""

    tasks = frozenset({"sum", "max"})
    differentiates = frozenset()

    def __init__(self, max_iter=500, tol=1e-8):
        self.max_iter = max_iter
        self.tol = tol

    def forward(self, graph, theta, tau=None, *, edges=False, tape=False, start=None, inner=None):
        tau = 1.0 if tau is None else tau
        return TRW(max_iter=self.max_iter, tol=self.tol).forward(graph, theta, tau, edges=edges)

    def backward(self, beliefs, d_mu=None, d_edge_mu=None, d_log_z=None):
        raise NotImplementedError


def test_strategies_claim_the_beliefs_that_they_differentiate():
    plain, both = Undifferentiated(), frozenset({"mu", "log_z"})
    assert Backprop().differentiable(plain) == frozenset() == Backprop().wrap(plain).differentiates
    assert Backprop().differentiable(TRW()) == both
    assert Backprop().differentiable(GraphCut()) == GraphCut.differentiates == frozenset({"log_z"})
    assert Perturbation().differentiable(plain) == both == Perturbation().wrap(plain).differentiates
    assert Perturbation().differentiable(Gibbs()) == frozenset()  # differences of samples are noise
    assert Implicit().differentiable(plain) == frozenset()
    assert Implicit().differentiable(TRW(tol=1e-6)) == both
    with pytest.raises(ValueError, match="must have a curvature for Implicit, got Undifferentiated"):
        Implicit().wrap(plain)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if LOSSES[loss]().tasks <= Undifferentiated.tasks])
def test_perturbation_needs_no_derivatives_of_the_inference(loss, seed):
    """Value and derivative of every loss whose tasks the inference has; EM has a second inference."""
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES["lattice_2x2"]
    theta = fields.normal(graph, 2, rng, strength=0.4)
    y = fields.labels(graph, 2, rng, hidden=hidden_share(loss, 0.3))
    parameters = {"max_iter": 500, "tol": 1e-12}
    inference = Perturbation().wrap(Undifferentiated(**parameters))
    found, d_theta, converged = loss_of(loss)(inference, graph, theta, y)
    assert converged.all()
    plain = Backprop().wrap(TRW(**parameters))
    expected, _, _ = loss_of(loss)(plain, graph, theta, y)
    assert_array_equal(found, expected)

    def value(g, t):
        return loss_of(loss)(inference, g, t, np.resize(y, g.n_nodes))[0]

    steps = {} if LOSSES[loss]().is_smooth else {"step": 1e-5}
    check_gradient(d_theta, value, graph, theta, atol=1e-7, **steps)


def test_marginals_of_mixed_tasks_are_not_differentiated_by_perturbation(seed):
    class Mixed(Exact):
        """Exact inference without derivatives."""

        differentiates = frozenset()

        def backward(self, *args, **options):
            raise NotImplementedError

    rng, graph = np.random.default_rng(seed), fields.SINGLES["cycle"]
    theta, tau, d_log_z = fields.normal(graph, 2, rng), np.array([1.0, 0.0, 1.0, 0.0]), rng.normal(size=1)
    inference = Perturbation().wrap(Mixed())
    beliefs, expected = (one.forward(graph, theta, tau) for one in (inference, Exact()))
    assert_agree(
        inference.backward(beliefs, d_log_z=d_log_z), Exact().backward(expected, d_log_z=d_log_z), atol=1e-12
    )
    with pytest.raises(
        NotImplementedError, match=r"for the task 'mixed' of Mixed.*differentiates only log_z"
    ):
        inference.backward(beliefs, d_mu=rng.normal(size=theta.unary.shape))


@pytest.mark.parametrize("sides", [1, 2, 4])
def test_perturbation_calls_no_backward_of_the_inference(sides, seed):
    rng = np.random.default_rng(seed)
    graph = pack([lattice(3, 4), lattice(2, 2)])
    theta = fields.normal(graph, 3, rng, strength=0.5)
    given = draw(graph, 3, rng)
    found, expected = [], []
    for cls, gradients in ((Undifferentiated, found), (TRW, expected)):
        inference = Perturbation(sides=sides).wrap(cls(max_iter=500, tol=1e-8))
        for chosen in (given, {"d_mu": given["d_mu"]}, {"d_log_z": given["d_log_z"]}):
            beliefs = inference.forward(graph, theta, edges=True)
            gradients.append(inference.backward(beliefs, **chosen))
    for one, other in zip(found, expected, strict=True):
        assert_agree(one, other)


def relative_error(inference, graph, theta, d_mu, truth, **parameters):
    wrapped = Perturbation(**parameters).wrap(inference)
    found = wrapped.backward(wrapped.forward(graph, theta), d_mu=d_mu)
    difference = [np.abs(one - other).sum() for one, other in zip(found, truth, strict=True)]
    return sum(difference) / sum(np.abs(part).sum() for part in truth)


@pytest.mark.skipif(config.DISABLE_JIT, reason="too many iterations for plain Python")
@pytest.mark.parametrize("cls", [TRW, MeanField])
def test_error_of_perturbation_decreases_with_sides(cls, seed):
    """D13 Fig 3: the error grows with the first, second and fourth power of large steps."""
    rng = np.random.default_rng(seed)
    theta = fields.normal(graph := lattice(4, 4, tied=False), 2, rng, strength=0.5)
    inference = cls(max_iter=10_000, tol=1e-15)
    exact = Backprop().wrap(inference)
    beliefs = exact.forward(graph, theta)
    y = fields.labels(graph, 2, rng)
    d_mu = -np.eye(2)[y] / beliefs.mu
    truth = exact.backward(beliefs, d_mu=d_mu)
    error = partial(relative_error, inference, graph, theta, d_mu, truth)
    best = [min(error(sides=sides, multiplier=10.0**i) for i in range(-4, 6)) for sides in (1, 2, 4)]
    assert all(more < 0.2 * less for less, more in pairwise(best))
    assert error(sides=2) < 1e-8
    for sides, multiplier in ((1, 10.0), (2, 500.0), (4, 2000.0)):
        grown = error(sides=sides, multiplier=2 * multiplier) / error(sides=sides, multiplier=multiplier)
        assert 0.7 * 2**sides < grown < 1.4 * 2**sides


@pytest.mark.parametrize("sides", [1, 2, 4])
def test_perturbed_runs_repeat_the_iterations_of_the_first(sides, monkeypatch, seed):
    """As many runs as sides; none if only log_z has a derivative."""
    rng = np.random.default_rng(seed)
    graph = pack([lattice(3, 4), fields.SINGLES["no_edges"], lattice(3, 4), fields.SINGLES["cycle"]])
    theta, given = fields.normal(graph, 3, rng), draw(graph, 3, rng)
    calls, forward = [], TRW.forward

    def counted(self, graph, theta, tau=1.0, *, edges=False, **options):
        beliefs = forward(self, graph, theta, tau, edges=edges, **options)
        calls.append((graph.n_nodes, edges, beliefs.n_iter))
        return beliefs

    monkeypatch.setattr(TRW, "forward", counted)
    inference = Perturbation(sides=sides).wrap(TRW(tol=1e-6, max_iter=1000))
    beliefs = inference.forward(graph, theta)
    calls.clear()
    inference.backward(beliefs, d_log_z=given["d_log_z"])
    assert not calls
    d_mu = given["d_mu"] * (graph.node_example != 2)[:, None]
    found = inference.backward(beliefs, d_mu=d_mu)
    assert sum(n_nodes for n_nodes, _, _ in calls) == sides * (12 + 3 + 4)
    assert not any(edges for _, edges, _ in calls)
    assert {int(n) for _, _, done in calls for n in done} == set(np.delete(beliefs.n_iter, 2).tolist())
    assert not found.unary[graph.node_example == 2].any()


def test_perturbation_selects_the_edge_weights_of_its_examples(seed):
    """An array with one rho per edge of the batch, and examples that take different numbers of iterations."""
    rng = np.random.default_rng(seed)
    graph = pack([lattice(3, 3), fields.SINGLES["cycle"], fields.SINGLES["pair"]])
    theta, given = fields.normal(graph, 2, rng), draw(graph, 2, rng)
    inference = TRW(rho=rng.uniform(0.4, 0.9, size=graph.n_edges), tol=1e-13, max_iter=5000)
    found = {}
    for name, strategy in wrapped(inference).items():
        beliefs = strategy.forward(graph, theta, edges=True)
        assert len(set(beliefs.n_iter.tolist())) > 1
        found[name] = strategy.backward(beliefs, **given)
    for name, gradient in found.items():
        assert_agree(gradient, found["backprop"], err_msg=name)


@pytest.mark.parametrize("improbable", [1e-4, 1e-12, 1e-100])
def test_improbable_label_does_not_spoil_the_gradient_of_others(improbable, seed):
    rng = np.random.default_rng(seed)
    graph = lattice(6, 6)
    theta = fields.attractive(graph, 2, rng, strength=0.5)
    theta.unary[0, 1] = theta.unary[0, 0] + np.log(improbable)
    y = fields.labels(graph, 2, rng)
    y[0] = 1
    expected, found = (
        LOSSES["univariate_logistic"]()(strategy.wrap(TRW(tol=1e-12, max_iter=2000)), graph, theta, y)[1]
        for strategy in (Backprop(), Perturbation())
    )
    far = np.indices((6, 6)).sum(axis=0).ravel() > 5
    assert_allclose(found.unary[far], expected.unary[far], rtol=0, atol=0.02)
    assert_allclose(found.unary[0], expected.unary[0], rtol=0.01)


# Implicit differentiation


def conditions(graph, rho, mu, edge_mu):
    """Build D and B of D13 section 5 with all constraints, and the indices of nodes and edges."""
    n, k, m = *mu.shape, graph.n_edges
    nodes, edges = np.arange(n * k).reshape(n, k), n * k + np.arange(m * k * k).reshape(m, k, k)
    left = np.ones(n)
    for e, (i, j) in enumerate(graph.edges):
        left[i] -= rho[e]
        left[j] -= rho[e]
    d = np.concatenate([(-left[:, None] / mu).ravel(), (-rho[:, None, None] / edge_mu).ravel()])
    rows = []
    for i in range(n):
        rows.append(np.isin(np.arange(len(d)), nodes[i]).astype(float))
    for e, ends in enumerate(graph.edges):
        for side, x in product((0, 1), range(k)):
            row = np.zeros(len(d))
            row[np.take(edges[e], x, axis=side)] = 1.0
            row[nodes[ends[side], x]] = -1.0
            rows.append(row)
    return np.diag(d), np.array(rows), nodes, edges


@pytest.mark.parametrize("title", ["chain", "star_tied", "cycle", "complete", "lattice_2x3", "parallel"])
@pytest.mark.parametrize(
    "inference", [BP(**FIXED_POINT), TRW(**FIXED_POINT), TRW(rho=0.45, **FIXED_POINT)], ids=str
)
def test_implicit_solves_the_lagrange_conditions(inference, title, seed):
    """Also if D is singular: at the ends of a chain, 1 - sum rho is 0 for BP."""
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES[title]
    theta, given = fields.normal(graph, 3, rng, strength=0.5), draw(graph, 3, rng)
    strategy = Implicit(solver="direct").wrap(inference)
    beliefs = strategy.forward(graph, theta, edges=True)
    d, b, nodes, edges = conditions(graph, edge_weights(inference, graph), beliefs.mu, beliefs.edge_mu)
    matrix = np.block([[d, b.T], [b, np.zeros((len(b), len(b)))]])
    right = np.zeros(len(matrix))
    right[nodes], right[edges] = -given["d_mu"], -given["d_edge_mu"]
    x = np.linalg.lstsq(matrix, right, rcond=1e-12)[0]  # constraints are redundant, x is not
    found = strategy.backward(beliefs, given["d_mu"], given["d_edge_mu"])
    assert_allclose(found.unary, x[nodes], rtol=1e-6, atol=1e-8)
    assert_allclose(found.tables, sum_by_table(graph, x[edges]), rtol=1e-6, atol=1e-8)
    if title == "cycle" and inference.get_params().get("rho") == 0.45:  # the theorem itself: D is regular
        inverse = np.diag(1 / np.diag(d))
        middle = np.linalg.pinv(b @ inverse @ b.T, rcond=1e-12)
        x = (inverse @ b.T @ middle @ b @ inverse - inverse) @ -right[: len(d)]
        assert_allclose(found.unary, x[nodes], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", ["direct", "iterative"])
def test_error_of_a_singular_system_names_the_example(solver):
    """BP on a complete graph of four nodes is critical if the tanh of the coupling is 1 / 2."""
    one = from_edges(4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], tied=True)
    graph = pack([one, one])
    coupling = np.array([0.1, np.arctanh(0.5)])[:, None, None]
    theta = Potentials(np.zeros((8, 2)), coupling * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    inference = Implicit(solver=solver).wrap(BP(max_iter=10, tol=1e-6))
    beliefs = inference.forward(graph, theta)
    d_mu = np.tile([1.0, -1.0], (8, 1))
    with pytest.raises(ValueError, match=r"example 1 (is singular.*TRW|was not solved.*direct)"):
        inference.backward(beliefs, d_mu=d_mu)
    fine = inference.backward(beliefs, d_mu=d_mu * (graph.node_example == 0)[:, None])
    assert np.isfinite(fine.unary).all()


def test_error_of_too_few_steps_names_the_example(seed):
    rng = np.random.default_rng(seed)
    graph = pack([fields.SINGLES["single"], lattice(5, 5)])
    theta, given = fields.normal(graph, 2, rng), draw(graph, 2, rng)
    inference = Implicit(max_iter=2).wrap(TRW(tol=1e-6, max_iter=500))
    beliefs = inference.forward(graph, theta)
    with pytest.raises(ValueError, match=r"example 1 was not solved to tol=1e-08 in 2 steps \(max_iter=2\)"):
        inference.backward(beliefs, d_mu=given["d_mu"])


@pytest.mark.parametrize("cls", [BP, TRW, MeanField])
def test_solvers_agree_on_larger_lattices(cls, seed):
    rng = np.random.default_rng(seed)
    graph, n_states = (lattice(3, 4), 3) if config.DISABLE_JIT else (lattice(12, 9), 4)
    theta = fields.attractive(graph, n_states, rng, strength=1.0)
    d_mu = draw(graph, n_states, rng)["d_mu"]
    found = {}
    for name, inference in wrapped(cls(tol=1e-10, max_iter=5000)).items():
        beliefs = inference.forward(graph, theta)
        assert beliefs.converged.all()
        found[name] = inference.backward(beliefs, d_mu=d_mu)
    for name, gradient in found.items():
        assert_agree(gradient, found["backprop"], rtol=1e-5, atol=1e-7, err_msg=name)


def test_gradient_if_all_labels_of_a_cycle_must_be_equal(seed):
    """Tables that forbid different labels make constraints redundant."""
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES["cycle"]
    unary = rng.normal(size=(4, 3))
    theta = Potentials(unary, np.tile(np.where(np.eye(3), 0.0, -np.inf), (graph.n_tables, 1, 1)))
    d_mu = rng.normal(size=(4, 3))
    mu = np.exp(unary.sum(axis=0))
    mu /= mu.sum()
    total = d_mu.sum(axis=0)
    method = TRW(rho=0.75, tol=1e-12, max_iter=2000)  # all spanning trees of a cycle are equally probable
    for inference in wrapped(method).values():
        beliefs = inference.forward(graph, theta)
        assert_allclose(beliefs.mu, np.tile(mu, (4, 1)), rtol=0, atol=1e-9)
        found = inference.backward(beliefs, d_mu=d_mu)
        assert_allclose(found.unary, np.tile(mu * (total - mu @ total), (4, 1)), rtol=0, atol=1e-6)
