"""Gradients on graphs whose nodes are swept in another order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcrf.graph import Potentials, from_edges
from skcrf.inference import TRW


def draw_potentials(graph, rng):
    return Potentials(rng.normal(size=(graph.n_nodes, 3)), rng.normal(size=(graph.n_tables, 3, 3)))


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_gradient_of_large_graphs_agrees_with_differences(damping, seed):
    rng = np.random.default_rng(seed)
    ends = rng.integers(1500, size=(6000, 2))
    graph = from_edges(1500, ends[ends[:, 0] != ends[:, 1]])
    theta, along = (draw_potentials(graph, rng) for _ in range(2))
    inference = TRW(rho=0.3, max_iter=3, damping=damping)
    d_mu = rng.normal(size=theta.unary.shape)

    def value(step):
        moved = Potentials(*(here + step * by for here, by in zip(theta, along, strict=True)))
        return (inference.forward(graph, moved).mu * d_mu).sum()

    h = 1e-3
    difference = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    d_theta = inference.backward(inference.forward(graph, theta, tape=True), d_mu)
    found = sum((d * by).sum() for d, by in zip(d_theta, along, strict=True))
    assert_allclose(found, difference, rtol=1e-7)
