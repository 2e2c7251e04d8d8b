"""Losses of marginals, convexity and smoothness, and losses that users add."""

import fields
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from loss_definitions import (
    TRUNCATED,
    by_example,
    wrapped,
)
from numba import config
from numpy.testing import assert_allclose

from skcrf.graph import Potentials, pack
from skcrf.inference import INFERENCE
from skcrf.losses import (
    LOSSES,
    AugmentedLogPartition,
    ClampedLogPartition,
    CliqueLoss,
    DifferenceLoss,
    FreeLogPartition,
    Hinge,
    Unified,
    UnivariateLoss,
)


@pytest.mark.parametrize("loss", ["smoothed_classification", "clique_smoothed"])
def test_steep_smoothed_loss_counts_errors(loss, seed):
    rng = np.random.default_rng(seed)
    graph = pack([fields.SINGLES["complete"]] * 8)
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng)
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
def test_gradient_of_smoothed_losses(loss, alpha, seed):
    rng = np.random.default_rng(seed)
    graph = fields.SINGLES["lattice_2x2" if config.DISABLE_JIT else "lattice_2x3"]
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng, hidden=0.3)
    inference, smoothed = wrapped(INFERENCE["trw"], **TRUNCATED), LOSSES[loss](alpha=alpha)

    def value(g, t):
        return smoothed(inference, g, t, np.resize(y, g.n_nodes))[0]

    check_gradient(smoothed(inference, graph, theta, y)[1], value, graph, theta, step=1e-4)


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.is_convex])
def test_convex_losses_are_below_their_chords(loss, seed):
    """Between random potentials, with all labels known."""
    rng, graph = np.random.default_rng(seed), fields.GRAPHS["lattice_2x3"]
    inference = wrapped(INFERENCE["bruteforce"])
    for _ in range(20):
        y = fields.labels(graph, 2, rng)
        ends = [fields.normal(graph, 2, rng, strength=3.0) for _ in range(2)]
        middle = Potentials(*(0.5 * (one + other) for one, other in zip(*ends, strict=True)))
        one, other, between = (LOSSES[loss]()(inference, graph, theta, y)[0][0] for theta in (*ends, middle))
        assert between <= 0.5 * (one + other) + 1e-9


def test_claims_of_differences_follow_from_their_parts():
    class HalfHinge(DifferenceLoss):
        difference = AugmentedLogPartition(0.0, 0.0, 0.5), ClampedLogPartition(0.0)

    class Free(DifferenceLoss):
        difference = FreeLogPartition(), ClampedLogPartition()

    for loss, expected in ((HalfHinge(), Hinge()), (Free(), LOSSES["likelihood"]())):
        for claim in ("needs", "tasks", "is_smooth", "is_convex", "site_weighted", "conditions_on_labels"):
            assert getattr(loss, claim) == getattr(expected, claim), claim


@pytest.mark.parametrize("eps_h", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("eps_y", [0.0, 0.5, 1.0])
def test_claims_of_the_unified_loss_follow_from_its_temperatures(eps_y, eps_h):
    loss = Unified(eps_y, eps_h)
    assert ("max" in loss.tasks) == (0.0 in (eps_y, eps_h)) == (not loss.is_smooth)
    assert ("sum" in loss.tasks) == (max(eps_y, eps_h) > 0)
    assert ("mixed" in loss.tasks) == (eps_y == 0 < eps_h)


@pytest.mark.parametrize(
    "old, new",
    [
        ("subgradient", "is_smooth"),
        ("site_costs", "site_weighted"),
        ("hidden_labels", "takes_hidden_labels"),
        ("convex", "difference"),
        ("concave", "difference"),
    ],
)
def test_losses_with_old_names_of_attributes_are_refused(old, new):
    with pytest.raises(TypeError, match=rf"Custom must set {new}, got {old}"):
        type("Custom", (UnivariateLoss,), {old: True})


def test_losses_of_marginals_need_an_inference_that_sums():
    class Marginal(UnivariateLoss):
        def pointwise(self, p, target):
            raise AssertionError("must not be called")

    assert Marginal().tasks == {"sum"} and Marginal().takes_hidden_labels
    assert LOSSES["piecewise"]().tasks == frozenset()


def test_deprecated_has_kinks_counts_losses_that_only_ask_for_a_task():
    class TaskOnly(LOSSES["maximum_marginal"]):
        is_smooth = True

    with pytest.warns(FutureWarning):
        from skcrf.losses import has_kinks
    loss = TaskOnly()
    assert loss.tasks and not loss.needs
    assert has_kinks(loss, INFERENCE["icm"]()) and not has_kinks(loss, INFERENCE["tree"]())


def test_has_kinks_is_deprecated():
    with pytest.warns(FutureWarning, match=r"has_kinks is deprecated; use `not skcrf\.training\.is_smooth"):
        from skcrf.losses import has_kinks
    tree, icm = INFERENCE["tree"](), INFERENCE["icm"]()
    for loss, inference, expected in (
        ("likelihood", tree, False),
        ("likelihood", icm, True),
        ("hinge", tree, True),
        ("pseudolikelihood", icm, False),
        ("maximum_marginal", tree, True),
    ):
        assert has_kinks(LOSSES[loss](), inference) == expected


class CrossEntropyOfErrors:
    """Pointwise loss that no loss of the package has: -log(1 - p(others) / 2)."""

    def pointwise(self, p, target):
        rows = np.arange(len(p))
        half = 0.5 * (1.0 + p[rows, target])
        d_p = np.zeros_like(p)
        d_p[rows, target] = -0.5 / half
        return -np.log(half), d_p


@pytest.mark.parametrize("base", [UnivariateLoss, CliqueLoss])
def test_pointwise_function_is_all_that_a_new_loss_needs(base, seed):
    loss = type("UserLoss", (CrossEntropyOfErrors, base), {})()
    rng, graph = np.random.default_rng(seed), fields.SINGLES["cycle_tied"]
    theta, y = fields.normal(graph, 2, rng), fields.labels(graph, 2, rng, hidden=0.3)
    inference = wrapped(INFERENCE["trw"], **TRUNCATED)
    _, gradient, converged = loss(inference, graph, theta, y)
    assert converged.all()
    check_gradient(gradient, lambda g, t: loss(inference, g, t, np.resize(y, g.n_nodes))[0], graph, theta)
