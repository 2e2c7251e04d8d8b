"""Derivative checker by finite differences, used for every gradient of the package."""

from typing import NamedTuple

import fields
import methods
import numpy as np
from numpy.testing import assert_allclose

from skcrf.graph import Potentials, pack, sum_by_edge, sum_by_example

# Fourth-order central differences: f' = sum of weight * f(x + offset * step) / step.
_OFFSETS = np.array([-2.0, -1.0, 1.0, 2.0])
_WEIGHTS = np.array([1.0, -8.0, 8.0, -1.0]) / 12


def numerical_gradient(value, graph, theta, *, step=1e-3):
    """Differentiate the sum of a value over the examples with respect to every finite entry of theta.

    All shifted copies of theta are one batch, so that `value` is called once.

    Parameters
    ----------
    value : callable
        ``value(graph, theta)`` returns an array of shape (n_examples,). It is called with many copies of the
        given graph; `np.resize` repeats other arrays to that size.
    graph : Graph
        Structure.
    theta : Potentials
        Potentials at which to differentiate.
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
    """Compare a gradient with differences of a value.

    Parameters
    ----------
    gradient : Potentials
        Derivative of the sum of `value` over the examples.
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
    """Compare a gradient with a known one, with the tolerances of `check_gradient`."""
    largest = max([1.0, *(np.abs(part).max(initial=0.0) for part in expected)])
    for name, found, truth in zip(gradient._fields, gradient, expected, strict=True):
        assert found.shape == truth.shape, name
        assert_allclose(found, truth, rtol=rtol, atol=atol * largest, err_msg=name)


class Cotangent(NamedTuple):
    """Derivative of some value with respect to beliefs."""

    d_mu: np.ndarray | None = None
    d_edge_mu: np.ndarray | None = None
    d_log_z: np.ndarray | None = None


#: Beliefs that the value depends on.
KINDS = {
    "mu": {"d_mu"},
    "edge_mu": {"d_edge_mu"},
    "log_z": {"d_log_z"},
    "mu_and_log_z": {"d_mu", "d_log_z"},
    "all": {"d_mu", "d_edge_mu", "d_log_z"},
}


def draw_cotangent(graph, n_states, rng, kind="all"):
    unary, _ = fields.shapes(graph, n_states)
    edges = (
        (graph.belief_rows[-1], n_states, n_states) if graph.layout == "pairwise" else graph.belief_rows[-1]
    )
    drawn = Cotangent(rng.normal(size=unary), rng.normal(size=edges), rng.normal(size=graph.n_examples))
    return Cotangent(**{name: getattr(drawn, name) for name in KINDS[kind]})


def inferred_once(inference_for):
    """Make `beliefs_of(graph, theta)`, which infers once for the differences of several values."""
    known = []

    def beliefs_of(graph, theta):
        if not known:
            known.append((theta, inference_for(graph).forward(graph, theta, edges=True)))
        asked, beliefs = known[0]
        assert all(np.array_equal(one, other) for one, other in zip(asked, theta, strict=True))
        return beliefs

    return beliefs_of


def value_of(cotangent, beliefs_of):
    """Make the function whose derivative with respect to the beliefs is the cotangent."""

    def value(graph, theta):
        beliefs = beliefs_of(graph, theta)
        total = np.zeros(graph.n_examples)
        if cotangent.d_mu is not None:
            terms = np.resize(cotangent.d_mu, beliefs.mu.shape) * beliefs.mu
            total += sum_by_example(terms.sum(axis=1), graph.node_example, graph)
        if cotangent.d_edge_mu is not None and graph.n_edges:
            terms = np.resize(cotangent.d_edge_mu, beliefs.edge_mu.shape) * beliefs.edge_mu
            total += sum_by_example(sum_by_edge(graph, terms), graph.edge_example, graph)
        if cotangent.d_log_z is not None:
            total += np.resize(cotangent.d_log_z, graph.n_examples) * beliefs.log_z
        return total

    return value


def maker(cls, **parameters):
    """Make `inference_for(graph)`; arrays have one value per edge and are repeated for copies of a graph."""

    def inference_for(graph):
        repeated = {
            name: np.resize(value, graph.n_edges) if isinstance(value, np.ndarray) else value
            for name, value in parameters.items()
        }
        return methods.build(cls, **repeated)

    return inference_for


def check_backward(
    inference_for, graph, theta, *cotangents, tape=True, wrap=lambda inference: inference, **tolerances
):
    """Compare `backward` of each cotangent with differences of `forward`."""
    inference, beliefs_of = wrap(inference_for(graph)), inferred_once(inference_for)
    beliefs = inference.forward(graph, theta, edges=True, tape=tape)
    assert beliefs.converged.all()
    for cotangent in cotangents:
        gradient = inference.backward(beliefs, **cotangent._asdict())
        with methods.case([name for name, value in cotangent._asdict().items() if value is not None]):
            check_gradient(gradient, value_of(cotangent, beliefs_of), graph, theta, **tolerances)
