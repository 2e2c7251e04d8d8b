"""Generators of images: shapes, seeds, noise, and the Gibbs sampler against enumeration."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage
from scipy.special import softmax

from skcrf.datasets import make_binary_denoising, make_potts, make_snakes, make_texture_defects


def test_denoising_shapes_and_values():
    X, Y = make_binary_denoising(n_images=5, shape=(20, 31), random_state=0)
    assert X.shape == Y.shape == (5, 20, 31)
    assert X.dtype == np.float64 and Y.dtype == np.int64
    assert X.min() >= 0 and X.max() <= 1
    assert_array_equal(np.unique(Y), [0, 1])
    assert_allclose(Y.mean(axis=(1, 2)), 0.5, atol=0.01)


def test_ragged_denoising_images_differ_in_size():
    X, Y = make_binary_denoising(n_images=30, shape=(20, 40), ragged=True, random_state=0)
    assert isinstance(X, list) and isinstance(Y, list)
    assert [x.shape for x in X] == [y.shape for y in Y]
    sides = np.array([x.shape for x in X]) / (20, 40)
    assert sides.min() >= 0.6 and sides.max() <= 1.4
    assert sides.min() < 0.75 and sides.max() > 1.25


@pytest.mark.parametrize("make", [make_binary_denoising, make_potts])
def test_equal_seeds_give_equal_images(make):
    first, again, other = (make(n_images=2, shape=(8, 9), random_state=seed) for seed in (3, 3, 4))
    for a, b, c in zip(first, again, other, strict=True):
        assert_array_equal(a, b)
        assert not np.array_equal(a, c)


@pytest.mark.parametrize("noise", [1.25, 1.5, 5.0])
def test_denoising_noise_has_its_distribution(noise):
    X, Y = make_binary_denoising(n_images=10, noise=noise, random_state=0)
    # t**n is above 1/2 with probability 1 - 2**(-1/n), the error of the best threshold.
    error = np.mean((X > 0.5) != Y)
    assert_allclose(error, 1 - 0.5 ** (1 / noise), atol=0.01)
    # Quantiles of the input given each label, from the distribution function P(t**n < q) = q**(1/n).
    q = np.array([0.1, 0.5, 0.9])
    assert_allclose(np.mean(X[Y == 0][:, None] < q, axis=0), q ** (1 / noise), atol=0.02)
    assert_allclose(np.mean(X[Y == 1][:, None] > 1 - q, axis=0), q ** (1 / noise), atol=0.02)


def test_denoising_images_are_smooth():
    _, Y = make_binary_denoising(n_images=20, random_state=0)
    changes = np.mean([np.mean(np.diff(Y, axis=1) != 0), np.mean(np.diff(Y, axis=2) != 0)])
    assert 0.01 < changes < 0.1
    sizes = np.concatenate([np.bincount(ndimage.label(y)[0].ravel())[1:] for y in Y])
    # Most pixels of class 1 are in large connected areas.
    assert sizes[sizes > 200].sum() > 0.9 * sizes.sum()


def test_denoising_improves_with_neighbours():
    X, Y = make_binary_denoising(n_images=10, random_state=0)
    blurred = ndimage.gaussian_filter(X, (0, 2.5, 2.5))
    assert np.mean((blurred > 0.5) != Y) < 0.2


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1)])
@pytest.mark.parametrize("make", [make_binary_denoising, make_potts])
def test_images_of_one_row_or_column(make, shape):
    X, Y = make(n_images=2, shape=shape, random_state=0)
    assert Y.shape == (2, *shape)
    assert np.isfinite(X).all()


def test_potts_returns_its_parameters():
    X, Y, coef, intercept, edge_coef = make_potts(
        n_images=3, shape=(4, 5), n_classes=4, coupling=0.7, n_features=3, return_coef=True, random_state=0
    )
    assert X.shape == (3, 4, 5, 3) and Y.shape == (3, 4, 5)
    assert Y.dtype == np.int64 and set(np.unique(Y)) <= set(range(4))
    assert coef.shape == (4, 3) and intercept.shape == (4,)
    assert_allclose(edge_coef, [0.7 * np.eye(4)] * 2, rtol=1e-15)
    assert_allclose(coef.sum(axis=0), 0, atol=1e-12)
    assert_allclose(intercept.sum(), 0, atol=1e-12)
    X_only, Y_only = make_potts(
        n_images=3, shape=(4, 5), n_classes=4, coupling=0.7, n_features=3, random_state=0
    )
    assert_array_equal(X, X_only)
    assert_array_equal(Y, Y_only)


def z_scores(X, Y, coef, intercept, edge_coef):
    """Compute deviations of statistics from their exact expectations given X, in standard errors."""
    height, width = X.shape[1:3]
    n_classes = len(intercept)
    states = np.array(list(product(range(n_classes), repeat=height * width))).reshape(-1, height, width)
    theta = X @ coef.T + intercept
    unary = sum(
        theta[:, r, c][:, states[:, r, c]] for r in range(height) for c in range(width)
    )  # (n_images, n_states)
    pairs = edge_coef[0][states[:, :, :-1], states[:, :, 1:]].sum(axis=(1, 2))
    pairs = pairs + edge_coef[1][states[:, :-1], states[:, 1:]].sum(axis=(1, 2))
    p = softmax(unary + pairs, axis=1)

    def statistics(y):  # (n, height, width) -> (n, n_statistics)
        one_hot = (y[..., None] == np.arange(n_classes)).reshape(len(y), -1)
        agree = [(y[:, :, :-1] == y[:, :, 1:]).sum((1, 2)), (y[:, :-1] == y[:, 1:]).sum((1, 2))]
        return np.column_stack([one_hot, *agree])

    f = statistics(states).astype(float)
    mean, variance = p @ f, p @ f**2 - (p @ f) ** 2
    residual = statistics(Y) - mean
    free = variance.sum(axis=0) > 1e-9  # an image of one row or column has no edges in one direction
    z = residual.sum(axis=0)[free] / np.sqrt(variance.sum(axis=0)[free])
    # The unary score: labels must depend on the features of their own image.
    score = np.take_along_axis(theta, Y[..., None], axis=-1).sum(axis=(1, 2, 3))
    mean_score = (p * unary).sum(axis=1)
    z_score = (score - mean_score).sum() / np.sqrt(((p * unary**2).sum(axis=1) - mean_score**2).sum())
    return np.append(z, z_score)


@pytest.mark.parametrize(
    "shape, n_classes", [((2, 2), 3), ((1, 4), 3), ((4, 1), 2), ((2, 3), 2), ((3, 3), 2)]
)
@pytest.mark.parametrize("coupling", [0.8, -0.6])
def test_potts_samples_agree_with_enumeration(shape, n_classes, coupling):
    X, Y, coef, intercept, edge_coef = make_potts(
        n_images=4000,
        shape=shape,
        n_classes=n_classes,
        coupling=coupling,
        n_sweeps=40,
        return_coef=True,
        random_state=0,
    )
    assert np.abs(z_scores(X, Y, coef, intercept, edge_coef)).max() < 4.5
    # The test has power: it rejects models with other parameters.
    assert np.abs(z_scores(X, Y, coef, intercept, 0.5 * edge_coef)).max() > 6
    assert np.abs(z_scores(X, Y, 0.5 * coef, intercept, edge_coef)).max() > 6


def test_potts_without_signal_has_zero_coefficients():
    _, _, coef, _, _ = make_potts(n_images=1, signal=0, n_sweeps=1, return_coef=True, random_state=0)
    assert_array_equal(coef, 0)


@pytest.mark.parametrize(
    "make, params, message",
    [
        (make_binary_denoising, {"noise": 0.9}, "noise == 0.9, must be >= 1"),
        (make_binary_denoising, {"n_images": 0}, "n_images == 0"),
        (make_binary_denoising, {"shape": (4,)}, r"shape must be \(height, width\), got \(4,\)"),
        (make_binary_denoising, {"shape": (4, 0)}, r"shape\[1\] == 0"),
        (make_potts, {"n_classes": 1}, "n_classes == 1"),
        (make_potts, {"n_features": 0}, "n_features == 0"),
        (make_potts, {"n_sweeps": 0}, "n_sweeps == 0"),
        (make_potts, {"signal": -1.0}, "signal == -1.0"),
    ],
)
def test_invalid_parameters_are_refused(make, params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)


def test_snakes_follow_the_shown_directions(seed):
    X, Y = make_snakes(n_images=10, length=8, random_state=seed)
    steps = {0: (0, 1), 1: (1, 0), 2: (0, -1), 3: (-1, 0)}
    for x, y in zip(X, Y, strict=True):
        assert_array_equal(np.bincount(y.ravel())[1:], np.ones(8))  # every label once
        assert_array_equal(x.sum(axis=2), np.ones(y.shape))
        assert_array_equal(x[..., 4] == 1, y == 0)
        assert not any(side.any() for side in (y[0], y[-1], y[:, 0], y[:, -1]))
        for part in range(1, 8):
            here, there = (np.argwhere(y == p)[0] for p in (part, part + 1))
            assert tuple(there - here) == steps[int(np.argmax(x[tuple(here)]))]
    again = make_snakes(n_images=10, length=8, random_state=seed)
    assert all(np.array_equal(a, b) for a, b in zip(Y, again[1], strict=True))
    with pytest.raises(ValueError, match="length == 0, must be >= 1"):
        make_snakes(length=0)


def test_texture_defects_are_inside_their_ellipses():
    first, again, other = (
        make_texture_defects(n_images=8, shape=(40, 56), random_state=seed) for seed in (0, 0, 1)
    )
    for a, b, c in zip(first, again, other, strict=True):
        assert_array_equal(a, b)
        assert not np.array_equal(a, c)
    X, weak, Y = first
    assert X.shape == weak.shape == Y.shape == (8, 40, 56)
    assert_array_equal(Y.any(axis=(1, 2)), np.arange(8) < 6)
    assert (weak >= Y).all()
    assert weak[:6].sum() > 3 * Y.sum()
    assert_allclose(X[6:].std(), 1, atol=1e-6)
    bright = [X[i][Y[i] == 1].mean() - X[i][Y[i] == 0].mean() for i in range(6)]
    assert_array_equal(np.sign(bright), [1, -1] * 3)
    assert np.abs(bright).min() > 0.8
    plain, marked, _ = make_texture_defects(n_images=2, defective=0.0, random_state=0)
    assert not marked.any() and np.isfinite(plain).all()
