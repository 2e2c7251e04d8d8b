"""The derivative checker: every gradient of the package is compared with differences by it."""

import numpy as np
from numpy.testing import assert_allclose

from skcrf.graph import Potentials, pack

# Fourth-order central differences: f' = sum of weight * f(x + offset * step) / step.
_OFFSETS = np.array([-2.0, -1.0, 1.0, 2.0])
_WEIGHTS = np.array([1.0, -8.0, 8.0, -1.0]) / 12


def numerical_gradient(value, graph, theta, *, step=1e-3):
    """Differentiate the sum of a value over the examples, in every finite entry of theta.

    All the shifted copies of theta are one batch, so `value` is called once.

    Parameters
    ----------
    value : callable
        ``value(graph, theta)`` gives an array of shape (n_examples,). The graph it is called with
        is the given one many times over; `np.resize` makes other arrays as long.
    graph : Graph
        Structure.
    theta : Potentials
        Where to differentiate.
    step : float, default=1e-3
        Step of the differences.

    Returns
    -------
    gradient : Potentials
        The derivative; zero where theta is -inf.
    """
    entries = np.concatenate([theta.unary.ravel(), theta.tables.ravel()])
    finite = np.flatnonzero(np.isfinite(entries))
    copies = np.tile(entries, (len(finite), len(_OFFSETS), 1))
    copies[np.arange(len(finite)), :, finite] += step * _OFFSETS
    n_unary = theta.unary.size
    shifted = Potentials(
        unary=np.ascontiguousarray(copies[..., :n_unary]).reshape(-1, theta.unary.shape[1]),
        tables=np.ascontiguousarray(copies[..., n_unary:]).reshape(-1, *theta.tables.shape[1:]),
    )
    values = value(pack([graph] * (len(finite) * len(_OFFSETS))), shifted)
    values = values.reshape(len(finite), len(_OFFSETS), graph.n_examples)
    gradient = np.zeros_like(entries)
    gradient[finite] = np.einsum("foe,o->f", values, _WEIGHTS) / step
    return Potentials(
        unary=gradient[:n_unary].reshape(theta.unary.shape),
        tables=gradient[n_unary:].reshape(theta.tables.shape),
    )


def check_gradient(gradient, value, graph, theta, *, step=1e-3, rtol=1e-6, atol=1e-9):
    """Hold a gradient to the differences of a value.

    Parameters
    ----------
    gradient : Potentials
        What is claimed to be the derivative of the sum of `value` over the examples.
    value, graph, theta, step
        As in `numerical_gradient`.
    rtol : float, default=1e-6
        Relative tolerance.
    atol : float, default=1e-9
        Absolute tolerance for a gradient of size one; it grows with the largest entry.
    """
    assert_gradient(gradient, numerical_gradient(value, graph, theta, step=step), rtol=rtol, atol=atol)


def check_weight_gradient(gradient, value, w, *, step=1e-3, rtol=1e-6, atol=1e-9):
    """Compare a gradient with respect to a weight vector with the differences of ``value(w)``."""
    shifts = step * _OFFSETS[:, None, None] * np.eye(len(w))
    values = np.array([[value(w + shift) for shift in shifted] for shifted in shifts])
    expected = _WEIGHTS @ values / step
    assert gradient.shape == w.shape
    assert_allclose(gradient, expected, rtol=rtol, atol=atol * max(1.0, np.abs(expected).max()))


def assert_gradient(gradient, expected, *, rtol=1e-6, atol=1e-9):
    """Hold a gradient to one that is known, with the tolerances of `check_gradient`."""
    largest = max([1.0, *(np.abs(part).max(initial=0.0) for part in expected)])
    for name, found, truth in zip(gradient._fields, gradient, expected, strict=True):
        assert found.shape == truth.shape, name
        assert_allclose(found, truth, rtol=rtol, atol=atol * largest, err_msg=name)
