"""Inference methods by their claims, and the graphs and gradient strategies that suit them."""

from contextlib import contextmanager

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import is_forest, joint_of

from skcrf.inference import INFERENCE

#: Methods that differentiate marginals, without those that only change the defaults of another.
LEARNING = {
    name: cls
    for name, cls in INFERENCE.items()
    if "mu" in cls.differentiates and not issubclass(cls.__base__, tuple(INFERENCE.values()))
}
#: Methods that differentiate log_z, which may be a score.
SCORING = {name: cls for name, cls in INFERENCE.items() if "log_z" in cls.differentiates}
MAXIMISING = {name: cls for name, cls in INFERENCE.items() if "max" in cls.tasks}


def supported(cls, graphs):
    """Select the graphs that a method supports."""
    graphs = {title: graph for title, graph in graphs.items() if graph.layout in cls.layouts}
    if "max_iter" in cls().get_params() or cls.exact_on != "forest":
        return graphs
    return {title: graph for title, graph in graphs.items() if is_forest(graph)}


def with_graphs(methods, graphs):
    """Pair every method with every graph that it supports, for `pytest.mark.parametrize`."""
    return [
        pytest.param(cls, graph, id=f"{name}-{title}")
        for name, cls in methods.items()
        for title, graph in supported(cls, graphs).items()
    ]


@contextmanager
def case(*words):
    """Add the name of the case to an exception, in a test of many cases."""
    try:
        yield
    except Exception as error:
        error.add_note(f"In the case of {', '.join(map(str, words))}.")
        raise


def build(cls, **parameters):
    """Make an instance of a class with the given parameters, ignoring those that it does not have."""
    return cls(**{name: value for name, value in parameters.items() if name in cls().get_params()})


def supports(strategy, inference, layout="pairwise"):
    """Return whether a gradient strategy, or its class, claims to differentiate an inference."""
    if layout not in strategy.layouts:
        return False
    if inference.tol == 0 and not strategy.takes_truncated:
        return False
    return inference.has_curvature or not strategy.needs_curvature


def assert_valid_beliefs(beliefs, graph, n_states):
    """Check the shapes of beliefs, and that marginals are distributions."""
    assert beliefs.mu.shape == (graph.n_nodes, n_states)
    in_pairs = graph.layout == "pairwise"
    shape = (graph.n_edges, n_states, n_states) if in_pairs else (graph.belief_ptr[-1],)
    assert beliefs.edge_mu.shape == shape
    assert beliefs.log_z.shape == beliefs.n_iter.shape == beliefs.converged.shape == (graph.n_examples,)
    assert beliefs.converged.dtype == bool
    assert np.isfinite(beliefs.log_z).all()
    assert beliefs.mu.min() >= 0
    assert beliefs.edge_mu.min(initial=0.0) >= 0
    assert_allclose(beliefs.mu.sum(axis=1), 1, rtol=0, atol=1e-12)
    for e in range(graph.n_edges):
        assert_allclose(joint_of(graph, beliefs.edge_mu, e).sum(), 1, rtol=0, atol=1e-12)
