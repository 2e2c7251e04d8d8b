"""Potentials of any size: results without nan, marginals that sum to one, finite derivatives."""

from itertools import product

import fields
import methods
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_definitions import able
from numba import config
from numpy.testing import assert_allclose

from skcrf.gradients import GRADIENTS
from skcrf.graph import Potentials, chain, from_edges, lattice, pack, score
from skcrf.inference import INFERENCE
from skcrf.losses import LOSSES

#: Draw the same examples in every run, without a limit of time.
repeatable = settings(
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


#: The kinds of graphs that a loss supports, by its claim.
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
    """Draw a graph, potentials of up to 1e4 in size, some of them -inf, and possible labels."""
    graph = draw(st.lists(single_graphs(kinds), min_size=1, max_size=4).map(pack))
    n_states = draw(st.sampled_from([2, 3, 1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shapes = (graph.n_nodes, n_states), (graph.n_tables, n_states, n_states)
    if draw(st.booleans()):
        unary, tables = (draw(sizes) * rng.uniform(-1, 1, size=shape) for shape in shapes)
    else:  # ties of large potentials with small noise: marginals are not certain, and few digits are left
        noise = draw(st.sampled_from([1.0, 0.0]))
        unary, tables = (
            draw(sizes) * rng.integers(-1, 2, size=shape) + noise * rng.normal(size=shape) for shape in shapes
        )
    x = rng.integers(n_states, size=graph.n_nodes)  # this configuration stays possible
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


@pytest.mark.parametrize("name", methods.LEARNING)
@repeatable
@given(model=models())
def test_marginals_and_their_derivatives_are_finite(name, model):
    graph, theta, _, rng = model
    if not accepts(name, graph):
        return
    for parameters in PARAMETERS if "max_iter" in INFERENCE[name]().get_params() else PARAMETERS[:1]:
        inference = methods.build(INFERENCE[name], **parameters)
        for tape in (True, False) if "tol" in parameters else (True,):
            with methods.case(inference, tape):
                beliefs = inference.forward(graph, theta, edges=True, tape=tape)
                results = beliefs.mu, beliefs.edge_mu, beliefs.log_z
                assert_finite(*results)
                assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
                assert_allclose(beliefs.edge_mu.sum(axis=(1, 2)), 1, rtol=0, atol=1e-12)
                assert not beliefs.mu[theta.unary == -np.inf].any()
                cotangent = (rng.normal(size=array.shape) for array in results)
                assert_finite(*inference.backward(beliefs, *cotangent))


@pytest.mark.parametrize("name", [name for name, cls in methods.LEARNING.items() if cls.exact_on])
@repeatable
@given(model=models())
def test_marginals_are_exact_up_to_rounding_errors_of_potentials(name, model):
    """Potentials of 1e4 have rounding errors of 1e-12."""
    graph, theta, _, _ = model
    if INFERENCE[name].exact_on == "forest" and not reference.is_forest(graph):
        return
    beliefs = INFERENCE[name]().forward(graph, theta, edges=True)
    mu, edge_mu = reference.marginals(graph, theta)
    assert_allclose(beliefs.mu, mu, rtol=0, atol=1e-9)
    assert_allclose(beliefs.edge_mu, edge_mu, rtol=0, atol=1e-9)
    assert_allclose(beliefs.log_z, reference.log_z(graph, theta), rtol=1e-11, atol=1e-7)


@pytest.mark.parametrize("name", methods.MAXIMISING)
@repeatable
@given(model=models())
def test_scores_of_maxima(name, model):
    graph, theta, _, _ = model
    if not accepts(name, graph):
        return
    inference = INFERENCE[name]()
    beliefs = inference.forward(graph, theta, tau=0.0, edges=True)
    assert_finite(beliefs.mu, beliefs.edge_mu)
    assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=0)
    # also -inf, if the configuration is forbidden
    assert_allclose(beliefs.log_z, score(graph, theta, beliefs.mu.argmax(axis=1)), rtol=1e-12, atol=1e-9)
    assert_finite(*inference.backward(beliefs, d_log_z=np.ones(graph.n_examples)))
    # avoiding forbidden pairs on graphs with cycles is NP-hard
    exact_on = INFERENCE[name].exact_on
    if exact_on == "any" or (exact_on and reference.is_forest(graph)):
        assert_allclose(beliefs.log_z, reference.max_score(graph, theta), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@repeatable
@given(data=st.data())
def test_losses_and_their_derivatives_are_finite(loss, data):
    """All inferences share the models, since drawing a model takes longer than evaluating a loss."""
    graph, theta, y, _ = data.draw(models(KINDS[LOSSES[loss].graphs]))
    for name, parameters in product(methods.LEARNING, ({"max_iter": 3}, {"max_iter": 25, "tol": 1e-6})):
        known = LOSSES[loss]().takes_hidden_labels or (y >= 0).all()
        if known and accepts(name, graph) and able(loss, INFERENCE[name]):
            inference = GRADIENTS["backprop"]().wrap(methods.build(INFERENCE[name], **parameters))
            with methods.case(inference):
                value, gradient, converged = LOSSES[loss]()(inference, graph, theta, y)
                # the decoded configuration of an approximate method may be impossible
                assert_finite(*gradient, *([value] if LOSSES[loss]().is_smooth else []))
                assert not np.isnan(value).any()
                assert converged.shape == (graph.n_examples,)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # by uncompiled kernels
@pytest.mark.parametrize("name", INFERENCE)
def test_impossible_potentials_are_refused(name):
    graph = pack([chain(2), chain(2)])
    theta = Potentials(np.zeros((4, 2)), np.zeros((2, 2, 2)))
    theta.unary[2] = -np.inf
    with pytest.raises(ValueError, match=r"theta must allow .*, got none in example 1"):
        INFERENCE[name]().forward(graph, theta)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", INFERENCE)
def test_nan_and_infinite_potentials_are_refused(name, value):
    """Fits that diverge have such potentials."""
    graph = pack([chain(3, tied=False), chain(2, tied=False), chain(3, tied=False)])
    for part, at in (("unary", (4, 1)), ("tables", (2, 0, 1))):
        theta = fields.constant(graph, 2, None)
        getattr(theta, part)[at] = value
        with methods.case(part), pytest.raises(ValueError, match=r"got none in example 1.*too large"):
            INFERENCE[name]().forward(graph, theta)


@pytest.mark.parametrize("size", [1e2, 1e4])
@pytest.mark.parametrize("name", methods.SCORING)
def test_strong_potentials_with_a_tolerance(name, size, seed):
    """Results are finite whether or not the iterations converge."""
    rng = np.random.default_rng(seed)
    for graph in methods.supported(INFERENCE[name], fields.ANY).values():
        theta = fields.extreme(graph, 2, rng, size=size)
        inference = methods.build(INFERENCE[name], max_iter=20, tol=1e-9)
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
