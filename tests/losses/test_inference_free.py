"""Losses that call no inference: pseudolikelihoods, piecewise likelihood, contrastive divergence."""

import fields
import numpy as np
import pytest
import reference
from derivatives import check_gradient
from loss_definitions import (
    contrastive_divergence,
    patch_pseudolikelihood,
    piecewise,
    wrapped,
)
from numba import config
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.graph import Potentials, chain, lattice, pack
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES

# Plain Python is a hundred times slower than compiled kernels.
if config.DISABLE_JIT:
    SHAPES = ((3, 2), True), ((2, 3), False), ((1, 4), False)
else:
    SHAPES = ((3, 3), True), ((2, 5), False), ((4, 2), True), ((1, 6), False)
#: Lattices whose sides are not multiples of 2 and 3.
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
def test_patch_likelihood_equals_the_definition_for_all_sizes(title, size, hidden, seed):
    rng = np.random.default_rng(seed)
    graph = UNEVEN[title]
    for draw in (fields.normal, fields.forbidden):
        theta = draw(graph, 2, rng)
        y = fields.possible_labels(graph, theta, rng, hidden=hidden)
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
def test_patches_as_large_as_the_image_give_the_likelihood(title, hidden, seed):
    rng = np.random.default_rng(seed)
    graph = pack([UNEVEN[title], fields.SINGLES["lattice_2x2"]])
    theta, y = fields.normal(graph, 2, rng), fields.labels(graph, 2, rng, hidden=hidden)
    exact, d_exact, _ = LOSSES["likelihood"]()(wrapped(INFERENCE["bruteforce"]), graph, theta, y)
    gaps = []
    for size in (1, 2, 6):
        value, gradient, _ = patches(size)(None, graph, theta, y)
        gaps.append(np.abs(value - exact).max())
    assert gaps[0] > 1e-3 and gaps[-1] < 1e-12
    for one, other in zip(gradient, d_exact, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("title", ["complete", "parallel", "tree", "chains", "mixed", "diagonal_lattices"])
def test_patches_of_one_site_give_the_pseudolikelihood_of_any_graph(title, seed):
    rng = np.random.default_rng(seed)
    graph = fields.GRAPHS[title]
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng, hidden=0.3)
    expected = LOSSES["pseudolikelihood"]()(None, graph, theta, y)
    found = patches(1)(None, graph, theta, y)
    assert_allclose(found[0], expected[0], rtol=1e-12, atol=1e-12)
    for one, other in zip(found[1], expected[1], strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-12)


def test_patches_are_eliminated_along_the_short_side(seed):
    """Forty pixels with three labels could not be enumerated."""
    rng = np.random.default_rng(seed)
    for graph in (lattice(1, 40), lattice(40, 1)):
        theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng, hidden=0.3)
        expected = LOSSES["likelihood"]()(wrapped(INFERENCE["tree"]), graph, theta, y)
        found = patches(40)(None, graph, theta, y)
        assert_allclose(found[0], expected[0], rtol=1e-12)
        assert_allclose(found[1].tables, expected[1].tables, rtol=0, atol=1e-10)


def test_unsupported_patches_raise_an_error():
    graph = pack([lattice(3, 3), chain(4), lattice(2, 2)])
    y = np.zeros(graph.n_nodes, dtype=np.int64)
    with pytest.raises(
        ValueError, match=r"must be a lattice for size=2, got another graph in example 1\. Use size=1"
    ):
        patches(2)(None, graph, fields.constant(graph, 2, None), y)
    for connectivity, power in ((4, 6), (8, 7)):
        graph = lattice(6, 5, connectivity)
        message = (
            rf"got 25 nodes with 21 labels, 25 \* 21\*\*{power} = {25 * 21**power} steps\. Use a smaller size"
        )
        with pytest.raises(ValueError, match=message):
            patches(5)(None, graph, fields.constant(graph, 21, None), y=np.zeros(30, dtype=np.int64))


@pytest.mark.parametrize("pieces", ["cliques", "shared"])
@pytest.mark.parametrize(
    "title",
    ["lonely", "parallel"]
    if config.DISABLE_JIT
    else ["lonely", "parallel", "complete", "lattice_2x3", "mixed"],
)
def test_piecewise_loss_equals_the_definition_and_bounds_the_likelihood(title, pieces, seed):
    """A <= A~, D13 4.1.5."""
    rng = np.random.default_rng(seed)
    graph, loss = fields.GRAPHS[title], LOSSES["piecewise"](pieces=pieces)
    for draw, hidden in (
        (fields.normal, 0.4),
        (fields.forbidden, 0.4),
        (fields.normal, 0.0),
        (fields.forbidden, 0.0),
    ):
        theta = draw(graph, 3, rng)
        y = fields.possible_labels(graph, theta, rng, hidden=hidden)
        value, gradient, _ = loss(None, graph, theta, y)
        assert_allclose(value, piecewise(graph, theta, y, pieces=pieces), rtol=1e-12, atol=1e-12)
        check_gradient(gradient, lambda g, t, y=y: loss(None, g, t, np.resize(y, g.n_nodes))[0], graph, theta)
    # all labels are known in the last case: the loss is A~ - theta . f, the exact one A - theta . f
    assert (value >= -reference.log_probability(graph, theta, y) - 1e-12).all()


def test_pseudolikelihood_leaves_hidden_sites_out(seed):
    rng = np.random.default_rng(seed)
    graph, smaller = chain(5, tied=False), pack([chain(2, tied=False), chain(2, tied=False)])
    theta = fields.normal(graph, 3, rng)
    y = fields.labels(graph, 3, rng)
    y[2] = -1
    value, gradient, _ = LOSSES["pseudolikelihood"]()(None, graph, theta, y)
    kept = Potentials(theta.unary[[0, 1, 3, 4]], theta.tables[[0, 3]])
    expected, _, _ = LOSSES["pseudolikelihood"]()(None, smaller, kept, y[[0, 1, 3, 4]])
    assert_allclose(value, expected.sum(), rtol=1e-12)
    assert not gradient.unary[2].any() and not gradient.tables[1:3].any()


def test_samples_depend_on_random_state(seed):
    rng, graph = np.random.default_rng(seed), pack([lattice(5, 6)] * 3)
    theta, y = fields.normal(graph, 3, rng), fields.labels(graph, 3, rng, hidden=0.3)

    def value(**random_state):
        return LOSSES["contrastive_divergence"](**random_state)(None, graph, theta, y)[0]

    assert_allclose(
        value(random_state=7), contrastive_divergence(graph, theta, y, random_state=7), rtol=1e-10
    )
    assert_array_equal(value(random_state=0), value())
    assert (value(random_state=7) != value()).all()


def test_examples_with_equal_labels_draw_different_samples(seed):
    rng, graph = np.random.default_rng(seed), pack([lattice(5, 6)] * 3)
    one = fields.normal(lattice(5, 6), 3, rng)
    theta = Potentials(np.tile(one.unary, (3, 1)), np.tile(one.tables, (3, 1, 1)))
    y, loss = np.tile(fields.labels(lattice(5, 6), 3, rng, hidden=0.3), 3), LOSSES["contrastive_divergence"]()
    equal = loss(None, graph, theta, y)[0]
    assert_array_equal(equal, equal[0])
    numbered = loss.for_batch(np.array([0, 1, 0]))
    value = numbered(None, graph, theta, y)[0]
    assert value[0] == value[2] == equal[0] != value[1]
    assert_array_equal(loss(None, graph, theta, y)[0], equal)  # the loss itself has not changed


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "contrastive_divergence"])
def test_losses_without_samples_do_not_depend_on_example_numbers(loss):
    loss = LOSSES[loss]()
    for function in (loss, *(loss.difference or ())):
        assert function.for_batch(np.arange(3)) is function
