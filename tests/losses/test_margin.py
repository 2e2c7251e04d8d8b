"""Max-margin losses: limits, bounds, costs, and the two parts of the difference."""

from contextlib import nullcontext

import fields
import methods
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from loss_definitions import TEMPERATURES as OF_LOSSES
from loss_definitions import by_example, unified, wrapped
from numpy.testing import assert_allclose, assert_array_equal
from strategies import Resumed

from skcrf.graph import Potentials, augment, chain, lattice, pack
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES, Hinge, LatentHinge, Likelihood, MarginalHinge, Unified

EXACT = INFERENCE["bruteforce"]
BATCH = pack([fields.SINGLES[name] for name in ("lonely", "cycle", "pair", "chain")])
FOREST = pack([fields.SINGLES[name] for name in ("lonely", "chain")])
#: Temperatures of labels and hidden labels, in both orders and at both limits.
TEMPERATURES = [(0.0, 0.0), (0.0, 0.7), (0.4, 0.4), (0.3, 0.8), (1.0, 0.0), (0.9, 0.2), (1.0, 1.0)]


def problem(seed, *, hidden, n_states=2):
    rng = np.random.default_rng(seed)
    return fields.normal(BATCH, n_states, rng), fields.labels(BATCH, n_states, rng, hidden=hidden), rng


def value_of(loss, theta, y, **options):
    return loss(wrapped(EXACT), BATCH, theta, y, **options)[0]


@pytest.mark.parametrize("cost", [0.0, 2.0])
@pytest.mark.parametrize("eps_y, eps_h", TEMPERATURES)
def test_unified_loss_equals_the_definition(eps_y, eps_h, cost, seed):
    loss = Unified(eps_y, eps_h, cost)
    for hidden in (0.0, 0.5):
        theta, y, _ = problem(seed, hidden=hidden)
        expected = unified(BATCH, theta, y, eps_y, eps_h, cost)
        assert_allclose(value_of(loss, theta, y), expected, rtol=1e-9, atol=1e-10)
    gradient = loss(wrapped(EXACT), BATCH, theta, y)[1]

    def value(g, t):
        return loss(wrapped(EXACT), g, t, np.resize(y, g.n_nodes))[0]

    check_gradient(gradient, value, BATCH, theta, **({} if loss.is_smooth else {"step": 1e-5, "atol": 1e-8}))


@pytest.mark.parametrize(
    "warm, limit",
    [
        (Unified(1e-5, 1e-5), LatentHinge()),
        (Unified(1e-5, 1.0), MarginalHinge()),
        (Unified(0.0, 1.0), MarginalHinge()),
        (Unified(1.0, 1.0, cost=0.0), Likelihood()),
        (Unified(1.0 - 1e-6, 1.0, cost=0.0), Likelihood()),
        (Unified(1.0, 1e-5, cost=0.0), Unified.mllr()),
        (Unified(1e-5, 0.3), Unified(0.0, 0.3)),
        (Unified(0.5 - 1e-6, 0.5), Unified.epsilon_extension(0.5)),
    ],
    ids=repr,
)
def test_unified_loss_has_the_other_losses_as_limits(warm, limit, seed):
    """P16 Table 4.1."""
    theta, y, _ = problem(seed, hidden=0.5, n_states=3)
    assert_allclose(value_of(warm, theta, y), value_of(limit, theta, y), rtol=0, atol=1e-4)


@pytest.mark.parametrize("eps_y, eps_h", [(1.0, 0.0), (0.3, 0.8)])
def test_labels_are_enumerated_for_inferences_without_the_task_tempered(eps_y, eps_h, seed):
    rng = np.random.default_rng(seed)
    theta, y = fields.normal(FOREST, 2, rng), fields.labels(FOREST, 2, rng, hidden=0.5)
    ask = FOREST, theta, y
    found, expected = (Unified(eps_y, eps_h)(wrapped(cls), *ask) for cls in (INFERENCE["tree"], EXACT))
    assert_allclose(found[0], expected[0], rtol=1e-9, atol=1e-10)
    assert_allclose(found[1].tables, expected[1].tables, rtol=0, atol=1e-9)


def test_all_hinge_losses_are_equal_without_hidden_labels(seed):
    theta, y, _ = problem(seed, hidden=0.0)
    expected = value_of(Hinge(), theta, y)
    assert (expected > 0.1).any()
    for loss in (LatentHinge(), MarginalHinge(), Unified(0.0, 0.5)):
        assert_allclose(value_of(loss, theta, y), expected, rtol=1e-12, atol=1e-12)


def test_loss_is_an_upper_bound_of_the_cost_of_predictions(seed):
    """P16 Lemma B.1.1, with class weights as costs."""
    rng = np.random.default_rng(seed)
    cost = rng.uniform(0.2, 3.0, size=BATCH.n_nodes)
    cases = (Hinge(), 0.0, 0.0), (LatentHinge(), 0.5, 0.0), (MarginalHinge(), 0.5, 1.0)
    tight = 0
    for strength in (0.3, 3.0, 30.0):
        for loss, hidden, tau in cases:
            theta, y, _ = problem(rng.integers(1000), hidden=hidden)
            theta = Potentials(*(strength * part for part in theta))
            value = value_of(loss, theta, y, site_weight=cost)
            predicted = EXACT().forward(BATCH, theta, np.where(y < 0, tau, 0.0)).mu.argmax(axis=1)
            wrong = by_example(BATCH, enumerate(cost * ((y >= 0) & (predicted != y))))
            assert (value >= wrong - 1e-10).all()
            tight += (value < wrong + 1.0).sum()
    assert tight > 3


def test_site_weights_are_costs_of_wrong_labels(seed):
    theta, y, rng = problem(seed, hidden=0.0)
    cost = rng.uniform(0.0, 3.0, size=BATCH.n_nodes)
    expected = unified(BATCH, theta, y, 0.0, 0.0, cost)
    assert_allclose(value_of(Hinge(), theta, y, site_weight=cost), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OF_LOSSES)
def test_costs_may_depend_on_the_predicted_label(name, seed):
    """Ordered labels, whose cost is their distance."""
    loss = LOSSES[name](cost=10 * np.abs(np.subtract.outer(range(3), range(3))))
    theta, y, rng = problem(seed, hidden=0.5 if loss.takes_hidden_labels else 0.0, n_states=3)
    expected = unified(BATCH, theta, y, *OF_LOSSES[name], loss.cost)
    assert_allclose(value_of(loss, theta, y), expected, rtol=1e-12, atol=1e-12)
    assert (np.abs(expected - value_of(LOSSES[name](cost=10.0), theta, y)) > 0.1).any()
    weight = rng.uniform(0.2, 3.0, size=BATCH.n_nodes)
    heavier = augmented(theta, weight[:, None] * loss.cost[y], y)
    expected = unified(BATCH, heavier, y, *OF_LOSSES[name], 0.0)
    assert_allclose(value_of(loss, theta, y, site_weight=weight), expected, rtol=1e-12, atol=1e-12)


def augmented(theta, cost, y):
    return theta._replace(unary=theta.unary + np.where(y[:, None] >= 0, cost, 0.0))


@pytest.mark.parametrize(
    "cost, message",
    [
        (np.zeros((3, 3)), r"cost must be .* of shape \(2, 2\), with one row .*, got shape \(3, 3\)"),
        ([[0.0, 1.0], [-1.0, 0.0]], r"cost must be at least 0, .* got a minimum of -1"),
        ([[0.0, np.nan], [1.0, 0.0]], r"cost must be .*: Input cost contains NaN"),
        ([0.0, 1.0], r"cost must be .* of shape \(2, 2\), .*, got shape \(2,\)"),
        (np.ones((2, 2)), r"0 on the diagonal, got .* the diagonal \[1.0, 1.0\]"),
        ({(0, 1): 1.0}, r"cost must be .* of shape \(2, 2\), with one row per correct label"),
        ([[0.0, 1.0], [1.0]], r"cost must be .*: .*(inhomogeneous|sequence)"),
    ],
)
def test_invalid_costs_raise_an_error(cost, message, seed):
    theta, y, _ = problem(seed, hidden=0.0)
    with pytest.raises(ValueError, match=message):
        value_of(Hinge(cost=cost), theta, y)
    with pytest.raises(ValueError, match=message):  # also before there are potentials
        Hinge(cost=cost).check(EXACT(), np.array([3]), np.array([3]), 2)


def test_hinge_gradient_is_the_difference_of_two_configurations(seed):
    theta, y, _ = problem(seed, hidden=0.0)
    _, gradient, _ = Hinge()(wrapped(EXACT), BATCH, theta, y)
    wrong = np.array([y[:, None] != np.arange(2)], dtype=float)[0]
    best = reference.best_configurations(BATCH, theta._replace(unary=theta.unary + wrong))
    x = np.concatenate([next(iter(one)) for one in best])
    assert_allclose(gradient.unary, np.eye(2)[x] - np.eye(2)[y], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, cls in LOSSES.items() if cls().difference is not None])
def test_loss_is_the_difference_of_two_convex_functions(name, seed):
    loss = LOSSES[name]()
    theta, y, rng = problem(seed, hidden=0.5 if loss.takes_hidden_labels else 0.0)
    other = fields.normal(BATCH, 2, rng)
    middle = Potentials(*((a + b) / 2 for a, b in zip(theta, other, strict=True)))
    inference = wrapped(EXACT)
    convex, concave = (part(inference, BATCH, theta, y) for part in loss.difference)
    labelled = by_example(BATCH, enumerate(y >= 0)) > 0
    assert_allclose(np.where(labelled, convex[0] - concave[0], 0.0), value_of(loss, theta, y), atol=1e-12)
    for part in loss.difference if name != "em" else loss.difference[:1]:  # mean field is not exact
        ends = [part(inference, BATCH, t, y)[0] for t in (theta, other)]
        assert (part(inference, BATCH, middle, y)[0] <= np.mean(ends, axis=0) + 1e-9).all()


def test_unsupported_labels_raise_an_error():
    graph = pack([chain(2), chain(14)])
    theta = fields.constant(graph, 2, None)
    y = np.zeros(16, dtype=np.int64)
    y[5] = -1
    with pytest.raises(ValueError, match=r"Hinge, got 1 hidden of 14 labels in example 1.*'marginal_hinge'"):
        Hinge()(wrapped(INFERENCE["tree"]), graph, theta, y)
    for loss in (Unified.mllr(), Unified(0.5, 1.0)):
        with pytest.raises(
            ValueError, match=rf"eps_y={loss.eps_y} .*13 labels of 2 states in example 1.*'exact'"
        ):
            loss(wrapped(INFERENCE["bp"]), graph, theta, y)
    y[2:] = -1  # an example without labels does not count
    assert Hinge()(wrapped(INFERENCE["tree"]), graph, theta, y)[0][1] == 0.0


def test_at_most_4096_configurations_are_enumerated():
    """Only in examples with hidden labels, and only by inferences without the task "tempered"."""
    mllr, other, sizes = Unified.mllr(), INFERENCE["bp"](), np.array([50, 2000, 3])
    for n_labels, n_states, refused in (
        ([12, 2000, 3], 2, False),
        ([13, 2000, 3], 2, True),
        ([6, 2000, 0], 4, False),
        ([7, 0, 0], 4, True),
        ([0, 1999, 0], 2, True),  # a number of configurations that no float holds
        ([0, 1999, 0], 1, False),
    ):
        asked = np.array(n_labels), sizes, n_states
        with methods.case(n_labels, n_states):
            with pytest.raises(ValueError, match="configurations") if refused else nullcontext():
                mllr.check(other, *asked)
            for loss, inference in ((mllr, EXACT()), (Unified(0.4, 0.4), other), (Unified(0.0, 1.0), other)):
                loss.check(inference, *asked)


@pytest.mark.parametrize(
    "name, loss",
    [
        ("bp", Hinge()),
        ("bp", LatentHinge()),
        ("bp", MarginalHinge()),
        ("icm", LatentHinge()),
        ("trw", MarginalHinge()),
    ],
)
def test_loss_is_not_negative_with_approximate_maxima(name, loss, seed):
    """An inference with too few iterations finds scores below that of the correct labels."""
    rng, graph = np.random.default_rng(seed), pack([lattice(6, 7)] * 6)
    theta = fields.attractive(graph, 3, rng, strength=2.0)
    best = INFERENCE["trw_s"](max_iter=100).forward(graph, theta, 0.0).mu.argmax(axis=1)
    y = np.where((rng.random(len(best)) < 0.8) & loss.takes_hidden_labels, -1, best)
    inference = wrapped(INFERENCE[name], **({} if name == "icm" else {"max_iter": 1}))
    value, gradient, _ = loss(inference, graph, theta, y, site_weight=np.full(len(y), 0.1))
    nothing = value == 0
    assert (value >= 0).all() and nothing.any()
    assert_allclose(gradient.unary[nothing[graph.node_example]], 0.0, rtol=0, atol=1e-12)
    tau = np.where(y < 0, 1.0 if "mixed" in loss.tasks else 0.0, 0.0)
    inferred = inference.forward(graph, augment(theta, y, 0.1), tau).log_z
    assert (inferred < loss.difference[1](inference, graph, theta, y)[0]).any()


@pytest.mark.parametrize("loss", [LatentHinge(), MarginalHinge(), Unified(0.0, 0.6)])
def test_clamped_part_is_inferred_once(loss, seed):
    """It is subtracted, and bounds the other part from below. Alone, the other part infers it as well."""
    rng, graph = np.random.default_rng(seed), pack([lattice(4, 5), chain(6)])
    theta, y = fields.attractive(graph, 3, rng, strength=2.0), fields.labels(graph, 3, rng, hidden=0.7)
    functions, starts = (loss, *loss.difference), ({}, {}, {})
    for _ in range(2):  # the second time from where the first ended
        results, n_calls = [], []
        for function, start in zip(functions, starts, strict=True):
            inference = Resumed(wrapped(INFERENCE["bp"], max_iter=1), start)
            results.append(function(inference, graph, theta, y))
            n_calls.append(inference.n_calls)
        assert n_calls == [2, 2, 1] == [len(start) for start in starts]
        whole, convex, concave = results
        assert_array_equal(whole[0], convex[0] - concave[0])
        for found, one, other in zip(whole[1], convex[1], concave[1], strict=True):
            assert_array_equal(found, one - other)
