"""Promises that hold for any potentials: no nan, sums to one, finite derivatives."""

from itertools import product

import numpy as np
import pytest
import reference
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_definitions import able
from numba import config
from numpy.testing import assert_allclose

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, chain, from_edges, lattice, pack, score
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES

#: The same examples in every run, in whatever time they take.
steady = settings(
    derandomize=True, deadline=None, database=None, max_examples=10 if config.DISABLE_JIT else 30
)

FORESTS_ONLY = {
    name
    for name, cls in INFERENCE.items()
    if cls.exact_on == "forest" and "max_iter" not in cls().get_params()
}
PARAMETERS = [
    {"max_iter": 1},
    {"max_iter": 7},
    {"max_iter": 25, "tol": 1e-6},
    {"max_iter": 4, "damping": 0.5},
]


#: The kinds of graphs that a loss claims to take.
KINDS = {kind: ["lattice", "chain", "edges"] for kind in ("any", "pairwise")} | {"lattice": ["lattice"]}


@st.composite
def single_graphs(draw, kinds):
    kind = draw(st.sampled_from(kinds))
    tied = draw(st.booleans())
    if kind == "lattice":
        height, width = draw(st.sampled_from([(1, 1), (1, 3), (3, 1), (2, 2), (2, 3)]))
        return lattice(height, width, connectivity=draw(st.sampled_from([4, 8])), tied=tied)
    n_nodes = draw(st.integers(1, 5))
    if kind == "chain":
        return chain(n_nodes, tied=tied)
    pairs = [(i, j) for i in range(n_nodes) for j in range(n_nodes) if i != j]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=7)) if pairs else []
    unique = {frozenset(pair): pair for pair in chosen}
    return from_edges(n_nodes, list(unique.values()), tied=tied)


sizes = st.sampled_from([1e4, 1e3, 30.0, 1.0, 0.0])


@st.composite
def models(draw, kinds=KINDS["any"]):
    """A graph, potentials of up to 1e4 in size, some of them -inf, and labels that are possible."""
    graph = draw(st.lists(single_graphs(kinds), min_size=1, max_size=4).map(pack))
    n_states = draw(st.sampled_from([2, 3, 1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shapes = (graph.n_nodes, n_states), (graph.n_tables, n_states, n_states)
    if draw(st.booleans()):
        unary, tables = (draw(sizes) * rng.uniform(-1, 1, size=shape) for shape in shapes)
    else:  # ties of large numbers, broken by small ones: nothing is certain, and digits are few
        noise = draw(st.sampled_from([1.0, 0.0]))
        unary, tables = (
            draw(sizes) * rng.integers(-1, 2, size=shape) + noise * rng.normal(size=shape) for shape in shapes
        )
    x = rng.integers(n_states, size=graph.n_nodes)  # a configuration that stays possible
    share = draw(st.sampled_from([0.3, 0.0, 0.9]))
    unary_off = rng.random(unary.shape) < share
    unary_off[np.arange(graph.n_nodes), x] = False
    tables_off = rng.random(tables.shape) < share
    tables_off[graph.edge_table, x[graph.edges[:, 0]], x[graph.edges[:, 1]]] = False
    theta = Potentials(np.where(unary_off, -np.inf, unary), np.where(tables_off, -np.inf, tables))
    y = np.where(rng.random(graph.n_nodes) < draw(st.sampled_from([0.0, 0.5])), -1, x)
    return graph, theta, y, rng


def assert_finite(*arrays):
    for array in arrays:
        assert np.isfinite(array).all()


def accepts(name, graph):
    return name not in FORESTS_ONLY or reference.is_forest(graph)


@pytest.mark.parametrize("name", zoo.LEARNING)
@steady
@given(model=models())
def test_marginals_and_their_derivatives(name, model):
    graph, theta, _, rng = model
    if not accepts(name, graph):
        return
    for parameters in PARAMETERS if "max_iter" in INFERENCE[name]().get_params() else PARAMETERS[:1]:
        inference = zoo.build(INFERENCE[name], **parameters)
        for tape in (True, False) if "tol" in parameters else (True,):
            with zoo.case(inference, tape):
                beliefs = inference.forward(graph, theta, edges=True, tape=tape)
                answers = beliefs.mu, beliefs.edge_mu, beliefs.log_z
                assert_finite(*answers)
                assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
                assert_allclose(beliefs.edge_mu.sum(axis=(1, 2)), 1, rtol=0, atol=1e-12)
                assert not beliefs.mu[theta.unary == -np.inf].any()
                cotangent = (rng.normal(size=array.shape) for array in answers)
                assert_finite(*inference.backward(beliefs, *cotangent))


@pytest.mark.parametrize("name", [name for name, cls in zoo.LEARNING.items() if cls.exact_on])
@steady
@given(model=models())
def test_exact_to_the_last_digits_that_there_are(name, model):
    """Terms of 1e4 are rounded at 1e-12, so marginals are; log_z is a sum of their products."""
    graph, theta, _, _ = model
    if INFERENCE[name].exact_on == "forest" and not reference.is_forest(graph):
        return
    beliefs = INFERENCE[name]().forward(graph, theta, edges=True)
    mu, edge_mu = reference.marginals(graph, theta)
    assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-9)
    assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=1e-9)
    assert_allclose(beliefs.log_z, reference.log_z(graph, theta), rtol=1e-11, atol=1e-7)


@pytest.mark.parametrize("name", zoo.MAXIMISING)
@steady
@given(model=models())
def test_maxima(name, model):
    graph, theta, _, _ = model
    if not accepts(name, graph):
        return
    inference = INFERENCE[name]()
    beliefs = inference.forward(graph, theta, tau=0.0, edges=True)
    assert_finite(beliefs.mu, beliefs.edge_mu)
    assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=0)
    # -inf where something forbidden was chosen, and nothing else
    assert_allclose(beliefs.log_z, score(graph, theta, beliefs.mu.argmax(axis=1)), rtol=1e-12, atol=1e-9)
    assert_finite(*inference.backward(beliefs, d_log_z=np.ones(graph.n_examples)))
    # on a graph with cycles, to avoid what is forbidden is as hard as any puzzle
    exact_on = INFERENCE[name].exact_on
    if exact_on == "any" or (exact_on and reference.is_forest(graph)):
        assert_allclose(beliefs.log_z, reference.max_score(graph, theta), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@steady
@given(data=st.data())
def test_losses(loss, data):
    """With every inference, of the same models: to draw one takes longer than to try it."""
    graph, theta, y, _ = data.draw(models(KINDS[LOSSES[loss].graphs]))
    for name, parameters in product(zoo.LEARNING, ({"max_iter": 3}, {"max_iter": 25, "tol": 1e-6})):
        known = LOSSES[loss]().takes_hidden_labels or (y >= 0).all()
        if known and accepts(name, graph) and able(loss, INFERENCE[name]):
            inference = GRADIENTS["backprop"]().wrap(zoo.build(INFERENCE[name], **parameters))
            with zoo.case(inference):
                value, gradient, converged = LOSSES[loss]()(inference, graph, theta, y)
                # one configuration of an approximation need not be possible
                assert_finite(*gradient, *([value] if LOSSES[loss]().is_smooth else []))
                assert not np.isnan(value).any()
                assert converged.shape == (graph.n_examples,)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", INFERENCE)
def test_what_is_no_potential_is_refused(name, value):
    """Not searched among for ever, nor taken for a number: a fit that diverges has such potentials."""
    graph = pack([chain(3, tied=False), chain(2, tied=False), chain(3, tied=False)])
    for part, at in (("unary", (4, 1)), ("tables", (2, 0, 1))):
        theta = zoo.constant(graph, 2, None)
        getattr(theta, part)[at] = value
        with zoo.case(part), pytest.raises(ValueError, match=r"got none in example 1.*too large"):
            INFERENCE[name]().forward(graph, theta)


@pytest.mark.parametrize("size", [1e2, 1e4])
@pytest.mark.parametrize("name", zoo.SCORING)
def test_strong_and_frustrated(name, size, seed):
    """All zoo graphs at the largest size that is promised to work, with a fixed point asked for."""
    rng = np.random.default_rng(seed)
    for graph in zoo.asked(INFERENCE[name], zoo.ANY).values():
        theta = zoo.extreme(graph, 2, rng, size=size)
        inference = zoo.build(INFERENCE[name], max_iter=20, tol=1e-9)
        for tape in (True, False):
            beliefs = inference.forward(graph, theta, edges=True, tape=tape)
            assert_finite(beliefs.mu, beliefs.edge_mu, beliefs.log_z)
            assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
            assert_finite(
                *inference.backward(
                    beliefs,
                    np.ones_like(beliefs.mu),
                    np.ones_like(beliefs.edge_mu),
                    np.ones(graph.n_examples),
                )
            )
