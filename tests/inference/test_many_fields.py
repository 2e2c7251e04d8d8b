"""Ten thousand random fields, of potentials up to 1e4 and with forbidden states."""

from functools import cache

import numpy as np
import pytest
from engines import FAST, PLAIN, are_lattices, engines_of, lattice_options
from numba import config
from numpy.testing import assert_allclose

from skcrf.graph import Potentials, chain, lattice, pack
from skcrf.inference import BP, TRW, MeanField

N_BATCHES, N_FIELDS = (2, 30) if config.DISABLE_JIT else (20, 500)
#: Sizes of potentials of nodes and of edges; above a sum of 600 the plain engine is used.
SIZES = np.array([0.0, 0.1, 1.0, 10.0, 50.0, 100.0, 300.0, 1e3, 1e4])

METHODS = {
    "bp": BP(max_iter=7),
    "bp_tol": BP(max_iter=20, tol=1e-6),
    "trw": TRW(max_iter=7),
    "trw_half": TRW(rho=0.5, max_iter=20, tol=1e-6),
    "mean_field": MeanField(max_iter=7),
    "mean_field_tol": MeanField(max_iter=20, tol=1e-6),
}


@cache
def structure(height, width, connectivity, tied):
    """Make a lattice, or a chain for the connectivity 0."""
    if connectivity == 0:
        return chain(height + width, tied=tied)
    return lattice(height, width, connectivity=connectivity, tied=tied)


@cache
def draw_batch(number):
    """Draw a batch, and potentials that allow at least one configuration of each field."""
    rng = np.random.default_rng(number)
    n_states = 2 + number % 4
    graph = pack(
        [
            structure(*rng.integers(1, 6, size=2).tolist(), int(rng.choice([4, 4, 4, 8, 0])), bool(tied))
            for tied in rng.integers(2, size=N_FIELDS)
        ]
    )
    parts = []
    owners = graph.node_example, graph.table_example
    x = rng.integers(n_states, size=graph.n_nodes)
    for owner, shape in zip(owners, ((n_states,), (n_states, n_states)), strict=True):
        across = (len(owner), *(1 for _ in shape))
        size = rng.choice(SIZES, size=N_FIELDS)[owner].reshape(across)
        # integers make ties, which small noise may break
        noise = rng.choice([0.0, 1.0], size=N_FIELDS)[owner].reshape(across)
        values = np.where(
            rng.random(N_FIELDS)[owner].reshape(across) < 0.7,
            size * rng.uniform(-1, 1, size=(len(owner), *shape)),
            size * rng.integers(-1, 2, size=(len(owner), *shape)) + noise * rng.normal(size=across),
        )
        share = rng.choice([0.0, 0.0, 0.3, 0.9], size=N_FIELDS)[owner].reshape(across)
        parts.append((values.clip(-1e4, 1e4), rng.random(values.shape) < share))
    (unary, unary_off), (tables, tables_off) = parts
    unary_off[np.arange(graph.n_nodes), x] = False
    i, j = graph.edges.T
    tables_off[graph.edge_table, x[i], x[j]] = False
    return graph, Potentials(np.where(unary_off, -np.inf, unary), np.where(tables_off, -np.inf, tables))


@pytest.mark.parametrize("name", METHODS)
def test_results_are_finite_and_marginals_sum_to_one(name):
    """Also the derivatives, for every fifth batch."""
    inference, done = METHODS[name], 0
    for number in range(N_BATCHES):
        graph, theta = draw_batch(number)
        differentiate = number % 5 == 0
        beliefs = inference.forward(graph, theta, tape=differentiate and inference.tol == 0)
        assert engines_of(beliefs) & FAST
        assert engines_of(beliefs) & PLAIN
        assert np.isfinite(beliefs.mu).all()
        assert np.isfinite(beliefs.log_z).all()
        assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert not beliefs.mu[theta.unary == -np.inf].any()
        done += graph.n_examples
        if differentiate:
            rng = np.random.default_rng(number)
            d_mu, d_log_z = rng.normal(size=beliefs.mu.shape), rng.normal(size=graph.n_examples)
            for given in ({"d_mu": d_mu}, {"d_mu": d_mu, "d_log_z": d_log_z}):
                for part in inference.backward(beliefs, **given):
                    assert np.isfinite(part).all()
    assert done == N_BATCHES * N_FIELDS


def test_many_lattices_use_each_engine():
    """Many lattices without forbidden pairs have small potentials, and many have large ones."""
    fast, slow = 0, 0
    for number in range(N_BATCHES):
        graph, theta = draw_batch(number)
        allowed = np.bincount(graph.table_example, (theta.tables == -np.inf).any(axis=(1, 2)), N_FIELDS) == 0
        candidates = are_lattices(graph) & allowed
        supported = np.array([options is not None for options in lattice_options(BP(), graph, theta)])
        assert not supported[~candidates].any()
        fast += supported[candidates].sum()
        slow += (~supported[candidates]).sum()
    assert min(fast, slow) > 0.1 * N_BATCHES * N_FIELDS
