"""Methods that maximise, and temperatures between sum and maximum, against enumeration."""

import itertools

import fields
import methods
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, chain, from_edges, lattice, pack, score
from skcrf.inference import ICM, INFERENCE, TRWS, BruteForce, GraphCut
from skcrf.losses import LOSSES

MANY, SIDE = (8, 3) if config.DISABLE_JIT else (1000, 4)
TEMPERED = {name: cls for name, cls in INFERENCE.items() if "tempered" in cls.tasks}


def submodular(graph, rng, *, strength=1.0):
    """Draw potentials of two labels with submodular tables."""
    theta = fields.normal(graph, 2, rng, strength=strength)
    excess = np.einsum("txz,xz->t", theta.tables, [[1, -1], [-1, 1]])
    return theta._replace(tables=theta.tables * np.sign(excess)[:, None, None])


def best_of_two(graph, theta):
    """Compute the best score of each of many equal graphs of two labels by enumeration."""
    x = (np.arange(2**graph.n_nodes) >> np.arange(graph.n_nodes)[:, None] & 1) * 1.0
    first, second = graph.edges.T
    terms = np.concatenate([np.ones_like(x[:1]), x, x[first], x[second], x[first] * x[second]])
    unary, tables = theta.unary.reshape(-1, graph.n_nodes, 2), theta.tables.reshape(-1, graph.n_edges, 2, 2)
    t00, t01, t10, t11 = (tables[:, :, i, j] for i in (0, 1) for j in (0, 1))
    constant = unary[:, :, 0].sum(axis=1, keepdims=True) + t00.sum(axis=1, keepdims=True)
    edges = t10 - t00, t01 - t00, t00 - t01 - t10 + t11
    weights = np.concatenate([constant, unary[:, :, 1] - unary[:, :, 0], *edges], axis=1)
    parts = np.array_split(weights, max(len(weights) // 10, 1))  # all scores at once would take 0.5 GB
    return np.concatenate([(part @ terms).max(axis=1) for part in parts])


# Graph cuts


def test_graph_cut_is_exact_for_submodular_tables(seed):
    rng = np.random.default_rng(seed)
    graph = lattice(SIDE, SIDE, tied=False)
    for strength in (0.5, 1.0, 2.0, 4.0):
        batch = pack([graph] * (MANY // 4))
        theta = submodular(batch, rng, strength=strength)
        best = best_of_two(graph, theta)
        for moves in ("expansion", "swap"):
            beliefs = GraphCut(moves, non_submodular="error").forward(batch, theta)
            assert_allclose(beliefs.log_z, best, rtol=0, atol=1e-10)
            assert_array_equal(beliefs.bound, beliefs.log_z)
            assert beliefs.converged.all()


def test_graph_cut_is_exact_with_known_labels(seed):
    """Nodes with known labels have no choice, whatever the tables of their edges are."""
    rng = np.random.default_rng(seed)
    for title, graph in fields.EVERY.items():
        theta = submodular(graph, rng, strength=2.0)
        for given in (theta, theta._replace(unary=fields.forbidden(graph, 2, rng).unary)):
            with methods.case(title):
                beliefs = GraphCut(non_submodular="error").forward(graph, given)
                assert_allclose(beliefs.log_z, reference.max_score(graph, given), rtol=0, atol=1e-10)


@pytest.mark.parametrize("moves", ["expansion", "swap"])
@pytest.mark.parametrize("draw", [fields.normal, fields.attractive, fields.extreme])
def test_moves_end_where_no_change_of_one_node_is_better(moves, draw, seed):
    """Moves start from the unary potentials and never decrease the score, truncated or not.

    After truncated moves single nodes change, so that fewer moves may end at a better score.
    """
    rng = np.random.default_rng(seed)
    for title, graph in fields.FEW.items():
        batch = pack([graph] * 5)
        theta = draw(batch, 3, rng)
        with methods.case(title):
            start, *values = scores_by_sweeps(moves, batch, theta)
            for value in values:
                assert (value >= start).all()
            beliefs = assert_local(GraphCut(moves), batch, theta)
            assert not np.isfinite(beliefs.bound[np.diff(batch.edge_ptr) > 0]).any()
            # Potts potentials are submodular in every move
            potts = theta._replace(tables=np.abs(theta.tables[:, :1, :1]) * np.eye(3))
            assert_local(GraphCut(moves, non_submodular="error"), batch, potts)
            for lower, higher in itertools.pairwise(scores_by_sweeps(moves, batch, potts)):
                assert (higher >= lower - 1e-9 * np.abs(lower)).all()


def scores_by_sweeps(moves, graph, theta):
    """Compute the scores of the start, and after 1, 2 and 20 sweeps."""
    cuts = [GraphCut(moves, max_sweeps=n) for n in (1, 2, 20)]
    start = score(graph, theta, theta.unary.argmax(axis=1))
    return [start, *(cut.forward(graph, theta).log_z for cut in cuts)]


def test_non_submodular_table_raises_error_with_edge():
    graph = pack([fields.SINGLES["pair"], fields.SINGLES["chain_untied"]])
    theta = fields.constant(graph, 2, None)
    theta.tables[2] = [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match=r"edge \(1, 2\) of example 1.*truncate"):
        GraphCut(non_submodular="error").forward(graph, theta)
    assert_array_equal(GraphCut().forward(graph, theta).bound, [0.0, np.inf])


def test_impossible_configurations():
    """GraphCut proves that no configuration is possible, ICM returns a score of -inf."""
    graph = pack([fields.SINGLES["pair"], fields.SINGLES["pair"]])
    theta = fields.constant(graph, 2, None)
    theta.tables[1] = -np.inf
    with pytest.raises(ValueError, match=r"theta must allow .*, got none in example 1"):
        GraphCut().forward(graph, theta)
    assert_array_equal(ICM().forward(graph, theta).log_z, [0.0, -np.inf])


# Local search


def assert_local(inference, graph, theta):
    """Check that no change of a single node increases the score."""
    beliefs = inference.forward(graph, theta)
    x = beliefs.mu.argmax(axis=1)
    assert beliefs.converged.all()
    for node in range(graph.n_nodes):
        for state in range(theta.unary.shape[1]):
            other = x.copy()
            other[node] = state
            assert (score(graph, theta, other) <= beliefs.log_z + 1e-9).all()
    return beliefs


def test_icm_ends_at_a_local_maximum(seed):
    rng = np.random.default_rng(seed)
    for title, graph in fields.FEW.items():
        theta = fields.normal(graph, 3, rng, strength=2.0)
        with methods.case(title):
            assert_local(ICM(), graph, theta)
            found = [ICM(n_restarts=n).forward(graph, theta).log_z for n in (0, 3, 30)]
            assert (np.diff(found, axis=0) >= 0).all()
            assert_array_equal(ICM(n_restarts=3).forward(graph, theta).log_z, found[1])
    assert_allclose(found[-1], reference.max_score(graph, theta), rtol=1e-12)


# Bounds


@pytest.mark.parametrize("strength", [0.5, 3.0])
def test_trw_s_bounds_the_best_score_after_any_iteration(strength, seed):
    rng = np.random.default_rng(seed)
    for title, graph in fields.EVERY.items():
        batch = pack([graph] * (1 if config.DISABLE_JIT else 5))
        theta = fields.normal(batch, 3, rng, strength=strength)
        truth, bound, value = reference.max_score(batch, theta), np.inf, -np.inf
        for max_iter in (0, 1, 2, 4):
            with methods.case(title, max_iter):
                beliefs = TRWS(max_iter=max_iter).forward(batch, theta, tau=0.0)
                assert (beliefs.bound >= truth - 1e-9).all()
                assert (beliefs.bound <= bound + 1e-9).all()
                assert (beliefs.log_z >= value).all()
                bound, value = beliefs.bound, beliefs.log_z
        if reference.is_forest(graph):
            assert_allclose(bound, value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in methods.MAXIMISING if INFERENCE[name].exact_on])
def test_bound_of_exact_methods_equals_the_score(name, seed):
    cls, rng = INFERENCE[name], np.random.default_rng(seed)
    for title, graph in methods.supported(cls, fields.FORESTS).items():
        theta = fields.normal(graph, 3, rng)
        with methods.case(title):
            beliefs = cls().forward(graph, theta, tau=0.0)
            if beliefs.bound is not None or "max_iter" not in cls().get_params():
                assert_allclose(beliefs.bound, beliefs.log_z, rtol=0, atol=1e-10)
            assert cls().forward(graph, theta).bound is None or "sum" not in cls.tasks


# Temperatures


def power_sums(graph, theta, tau, inner):
    """Eliminate one node after another from the table of all scores, P16 Eq 4.6."""
    n_nodes, n_states = theta.unary.shape
    x = np.indices((n_states,) * n_nodes).reshape(n_nodes, -1).T
    value = np.array([score(graph, theta, one)[0] for one in x]).reshape((n_states,) * n_nodes)
    for node in sorted(range(n_nodes), key=lambda node: (not inner[node], -tau[node])):
        top = value.max(axis=node, keepdims=True)
        if tau[node] > 0:
            total = np.exp((value - top) / tau[node]).sum(axis=node, keepdims=True)
            top = top + tau[node] * np.log(total)
        value = top
    return value.item()


@pytest.mark.parametrize("title", ["chain", "cycle"])
@pytest.mark.parametrize("cls", TEMPERED.values(), ids=TEMPERED)
def test_tempered_log_z_is_nested_power_sums(cls, title, seed):
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES[title]
    theta = fields.normal(graph, 2, rng, strength=2.0)
    inference = GRADIENTS["backprop"]().wrap(cls())
    for taus in ([0.5], [0.0, 0.3, 1.0], [0.25, 1.0], [0.0, 1.0]):
        tau = rng.choice(taus, size=graph.n_nodes)
        for inner in (np.zeros(4, dtype=bool), np.array([False, True, True, False])):

            def value(graph, theta, tau=tau, inner=inner):
                many = (np.resize(part, graph.n_nodes) for part in (tau, inner))
                found = inference.forward(graph, theta, next(many), inner=next(many))
                return found.log_z + found.mu[:, 1].reshape(graph.n_examples, -1)[:, 2]

            with methods.case(tau, inner):
                beliefs = inference.forward(graph, theta, tau, inner=inner)
                expected = power_sums(graph, theta, tau, inner)
                assert_allclose(beliefs.log_z, expected, rtol=0, atol=1e-10)
                d_mu = np.zeros_like(beliefs.mu)
                d_mu[2, 1] = 1.0
                gradient = inference.backward(beliefs, d_mu=d_mu, d_log_z=np.ones(1))
                check_gradient(gradient, value, graph, theta)
                expected = inference.backward(beliefs, d_log_z=np.ones(1)).unary
                assert_allclose(beliefs.mu, expected, rtol=0, atol=1e-12)


# Learning


@pytest.mark.parametrize("name", [name for name in methods.SCORING if "sum" not in INFERENCE[name].tasks])
def test_likelihood_with_maximiser_is_difference_of_scores(name, seed):
    """K05's saddle point approximation: the score of the decoded configuration minus that of the labels."""
    rng = np.random.default_rng(seed)
    graph = fields.BATCHES["chains"]
    theta, y = fields.attractive(graph, 2, rng), fields.labels(graph, 2, rng)
    inference = GRADIENTS["backprop"]().wrap(INFERENCE[name]())
    value, d_theta, _ = LOSSES["likelihood"]()(inference, graph, theta, y)
    x = inference.forward(graph, theta).mu.argmax(axis=1)
    assert_allclose(value, score(graph, theta, x) - score(graph, theta, y), rtol=0, atol=1e-12)
    assert_array_equal(d_theta.unary, np.eye(2)[x] - np.eye(2)[y])
    assert (score(graph, theta, x) <= BruteForce().forward(graph, theta, 0.0).log_z + 1e-12).all()


def test_graph_cut_claims_no_wrong_maximum_with_forbidden_pairs():
    """Small potentials beside forbidden rows and columns of tables."""
    graph, rng = from_edges(4, np.array([[0, 1], [1, 2], [2, 3], [3, 0]])), np.random.default_rng(0)
    configurations, claimed = np.array(list(itertools.product(range(2), repeat=4))), 0
    for trial in range(400):
        theta = Potentials(1e-4 * rng.normal(size=(4, 2)), 1e-4 * rng.normal(size=(4, 2, 2)))
        for table in theta.tables:
            kind, state, other = rng.integers([4, 2, 2])
            where = [(state,), (slice(None), state), (state, other), ()][kind]
            if where:
                table[where] = -np.inf
        best = max(score(graph, theta, x)[0] for x in configurations)
        if best == -np.inf:
            continue
        beliefs = GraphCut().forward(graph, theta)
        with methods.case(trial):
            assert beliefs.bound[0] >= best - 1e-16
            assert beliefs.log_z[0] <= best + 1e-16
        claimed += np.isfinite(beliefs.bound[0])
    assert claimed > 10


def test_forbidden_pair_costs_more_than_everything_else_gains():
    """Half of a long chain would gain much by one forbidden pair."""
    n = 12001
    wants = np.where(np.arange(n) <= n // 2, 1e4, -1e4)
    theta = Potentials(np.column_stack([wants, -wants]), np.array([[[0.0, -np.inf], [-np.inf, 0.0]]]))
    beliefs = GraphCut().forward(chain(n), theta)
    assert_allclose([beliefs.log_z, beliefs.bound], 1e4, rtol=1e-9)
    assert (beliefs.mu[:, 0] == 1).all()


@pytest.mark.parametrize("name", ["graph_cut", "icm"])
def test_forbidden_pairs_are_avoided_with_tiny_differences(name):
    """Unary potentials differ by a rounding error, beside a table of larger ones."""
    unary = np.array([[0.1 + 0.2, 0.3], [0.3, 0.1 + 0.2]])
    for size in (0.0, 5.0, 1e6):
        theta = Potentials(unary, np.array([[[size, -np.inf], [-np.inf, size]]]))
        assert_allclose(INFERENCE[name]().forward(chain(2), theta, 0.0).log_z, 0.6 + size, rtol=1e-12)


@pytest.mark.parametrize("name", INFERENCE)
def test_tau_of_wrong_shape_raises_error(name):
    graph = chain(4)
    theta, tau = Potentials(np.zeros((4, 2)), np.zeros((1, 2, 2))), float("sum" in INFERENCE[name].tasks)
    for shape in ((3,), (5,), (4, 1)):
        with pytest.raises(ValueError, match=r"tau must have shape \(\) or \(4,\), got \(.*\)"):
            INFERENCE[name]().forward(graph, theta, np.full(shape, tau))
