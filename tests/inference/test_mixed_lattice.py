"""Mixed-product messages on lattices: the same choices as on factor graphs."""

import fields
import numpy as np
import pytest
from engines import mixed_product_states, only_plain_engines
from numba import config
from numpy.testing import assert_array_equal

from skcrf.graph import Potentials, chain, clamp, from_edges, lattice, pack
from skcrf.inference import BP, TRW, TRWS

SMALL = config.DISABLE_JIT


def assert_same_choices(graph, theta, maximised, method=BP, **options):
    inference = method(**options)
    fast = mixed_product_states(inference, graph, theta, maximised)
    with only_plain_engines():
        plain = mixed_product_states(inference, graph, theta, maximised)
    assert_array_equal(fast, plain)
    assert_array_equal(fast < 0, ~maximised)


@pytest.mark.parametrize("tol", [0.0, 1e-6])
@pytest.mark.parametrize("n_states", [2, 3, 5])
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("tied", [True, False])
def test_choices_equal_those_on_factor_graphs(connectivity, tied, n_states, tol, seed):
    rng = np.random.default_rng(seed)
    for shape in [(3, 4)] if SMALL else [(2, 2), (5, 33), (40, 7), (1, 9)]:
        graph = lattice(*shape, connectivity=connectivity, tied=tied)
        theta = fields.normal(graph, n_states, rng)
        for share in (0.2, 0.8):
            maximised = rng.random(graph.n_nodes) < share
            assert_same_choices(graph, theta, maximised, max_iter=4, tol=tol)
            for rho in (0.4, "spanning_trees"):
                assert_same_choices(graph, theta, maximised, TRW, rho=rho, max_iter=4, tol=tol)


def test_choices_do_not_depend_on_the_batch(seed):
    rng = np.random.default_rng(seed)
    graphs = [lattice(3, 5), chain(4), lattice(4, 4, connectivity=8), lattice(2, 7, tied=False)]
    graphs.append(from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)]))
    parts = [fields.normal(graph, 3, rng) for graph in graphs]
    batch, theta = pack(graphs), Potentials(*map(np.concatenate, zip(*parts, strict=True)))
    maximised = rng.random(batch.n_nodes) < 0.5
    alone = [
        mixed_product_states(BP(), graph, part, maximised[first:end])
        for graph, part, first, end in zip(graphs, parts, batch.node_ptr, batch.node_ptr[1:], strict=False)
    ]
    assert_array_equal(mixed_product_states(BP(), batch, theta, maximised), np.concatenate(alone))


def test_choices_respect_forbidden_labels(seed):
    rng, graph = np.random.default_rng(seed), lattice(4, 6)
    for n_states in (2, 4):
        theta = fields.normal(graph, n_states, rng)
        y = np.where(rng.random(graph.n_nodes) < 0.3, rng.integers(n_states, size=graph.n_nodes), -1)
        maximised = rng.random(graph.n_nodes) < 0.5
        assert_same_choices(graph, clamp(theta, y), maximised)
        chosen = mixed_product_states(BP(), graph, clamp(theta, y), maximised)
        fixed = maximised & (y >= 0)
        assert_array_equal(chosen[fixed], y[fixed])


def test_damped_and_extreme_messages_are_those_of_factor_graphs(seed):
    rng, graph = np.random.default_rng(seed), lattice(3, 4)
    maximised = rng.random(graph.n_nodes) < 0.5
    assert_same_choices(graph, fields.normal(graph, 3, rng), maximised, damping=0.3)
    assert_same_choices(graph, fields.normal(graph, 3, rng, strength=1e4), maximised)
    assert_same_choices(graph, fields.forbidden(graph, 3, rng), maximised)


def test_chains_of_a_batch_with_hubs_are_those_of_its_examples(seed):
    """Examples with and without hubs run apart, each with the chains of its own edges."""
    rng = np.random.default_rng(seed)
    wheel = from_edges(41, [(0, leaf) for leaf in range(1, 41)] + [(leaf, leaf + 1) for leaf in range(1, 40)])
    graphs = [lattice(3, 3), wheel, from_edges(3, [(0, 1), (1, 2), (2, 0)])]
    parts = [fields.normal(graph, 2, rng) for graph in graphs]
    theta = Potentials(*map(np.concatenate, zip(*parts, strict=True)))
    for tau in (1.0, 0.0):
        together = TRWS(max_iter=3).forward(pack(graphs), theta, tau)
        apart = [TRWS(max_iter=3).forward(*pair, tau) for pair in zip(graphs, parts, strict=True)]
        assert_array_equal(together.log_z, np.concatenate([beliefs.log_z for beliefs in apart]))
