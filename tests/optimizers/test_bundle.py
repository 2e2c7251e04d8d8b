"""Proximal bundle method."""

from itertools import product

import numpy as np
import pytest
from margin_problems import chains, minimum_of_the_svm, options, svm
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.optimizers import Bundle
from skcrf.optimizers.bundle import simplex_minimum


def test_bundle_does_not_stop_because_scales_differ():
    """A steep direction makes the penalty large, so that the predicted decrease along a flat one is small."""

    def value(w):
        steep, flat = 30 * w[0] - 1, (w[1] - 1) / 30
        return abs(steep) + abs(flat), np.array([30 * np.sign(steep), np.sign(flat) / 30])

    how = options(max_iter=200, tol=1e-4)
    assert Bundle().minimize(value, np.zeros(2), **how).fun < 1e-4
    at_minimum = Bundle().minimize(lambda w: (0.0, np.zeros(2)), np.ones(2), **how)
    assert at_minimum.success and at_minimum.nit == 0


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0])
def test_bundle_reaches_the_minimum_of_badly_scaled_objectives(scale, seed):
    """Hinge losses of features of different sizes, compared with the same features of one size."""
    rng, scales = np.random.default_rng(seed), np.array([scale, 1.0, 1.0, 1.0, 1 / scale])
    X = rng.normal(size=(100, 5))
    yX = np.sign(X @ rng.normal(size=5) + 0.7 * rng.normal(size=100))[:, None] * X

    def objective(w, scales=scales):  # the penalty is on the weights of features of one size
        margins, v = 1 - yX @ (scales * w), scales * w
        slope = 1e-3 * v - (margins > 0) @ yX / 100
        return np.maximum(margins, 0).mean() + 0.5e-3 * (v @ v), scales * slope

    how = options(max_iter=150, tol=1e-4)
    found = Bundle().minimize(objective, np.zeros(5), **how)
    expected = Bundle().minimize(lambda v: objective(v, np.ones(5)), np.zeros(5), **how)
    assert found.success and expected.success
    assert found.fun == pytest.approx(expected.fun, abs=2e-4)


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_bundle_fits_features_of_any_size(alpha):
    """Without a warning, and to the minimum that another solver finds."""
    X, Y = chains()
    X, Y = [x * [1e3, 1e-3] for x in X[:4]], Y[:4]
    est = svm("bundle", alpha=alpha, max_iter=200, tol=1e-4, init="zeros").fit(X, Y)
    lowest, _ = minimum_of_the_svm(X, Y, alpha, np.ones(2))
    assert est.converged_ and -1e-6 <= min(est.loss_curve_) - lowest <= 2e-4


def test_bundle_prefers_planes_to_values_that_are_too_low():
    """An evaluation that misses the maximal plane finds it at other weights."""
    slopes, heights = np.array([[1.0, 0.5], [-1.0, 0.5], [0.0, -2.0]]), np.array([0.0, 0.2, 0.1])

    def value(w, missed=()):
        planes = slopes @ w + heights
        best = max(set(range(3)) - set(missed), key=planes.__getitem__)
        return planes[best], slopes[best]

    def careless(w):
        return value(w, missed=(2,) if w[1] > -0.5 else ())

    how = options(max_iter=100, tol=1e-6)
    expected = Bundle().minimize(value, np.ones(2), **how)
    found = Bundle(memory=3).minimize(careless, np.ones(2), **how)
    assert expected.success and expected.fun == pytest.approx(0.1, abs=1e-5)
    assert found.success and found.fun == pytest.approx(0.1, abs=1e-5)
    assert_allclose(found.x, expected.x, atol=1e-4)


def test_simplex_minimum_satisfies_the_optimality_conditions(seed):
    """Also if slopes differ in size, are linearly dependent, equal, or zero."""
    rng = np.random.default_rng(seed)
    for n, scales in product((1, 2, 12, 50), (np.ones(4), 10.0 ** np.arange(-3, 4), np.zeros(3))):
        slopes = rng.normal(size=(n, len(scales))) * scales
        slopes[n // 2 :: 3] = slopes[0]
        linear, start = rng.exponential(size=n) * rng.choice([0.0, 1e-3, 1.0], size=n), np.ones(n)
        for penalty in (1.0, 1e-4):
            products = slopes @ slopes.T / penalty
            x = simplex_minimum(products, linear, start)
            slope = products @ x + linear
            assert x.min() >= 0 and x.sum() == pytest.approx(1.0)
            # the tangent is nowhere lower by more
            assert x @ slope - slope.min() <= 1.001e-3 * (x @ slope) + 1e-9 * products.max(initial=1.0)


def test_simplex_minimum_if_the_quadratic_part_is_tiny():
    """A linear system with such small slopes would lose the constraint that entries sum to 1."""
    assert_array_equal(simplex_minimum(np.array([[1e-16]]), np.array([1.0]), np.ones(1)), [1.0])
    products = 1e-16 * np.array([[1.0, 0.5], [0.5, 1.0]])
    assert_array_equal(simplex_minimum(products, np.array([1.0, 3.0]), np.ones(2)), [1.0, 0.0])
