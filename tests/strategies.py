"""The gradient strategies in every way of working, and what their tests share."""

import numpy as np
import zoo
from numpy.testing import assert_allclose

from skcrf.gradients import Backprop, Implicit, Perturbation
from skcrf.inference import MeanField
from skcrf.losses import LOSSES

FIXED_POINT = {"max_iter": 5000, "tol": 1e-13}
#: Every strategy in every way of working.
STRATEGIES = {
    "backprop": Backprop(),
    "perturbation": Perturbation(),
    "perturbation_4": Perturbation(sides=4, multiplier=20.0),
    "implicit": Implicit(tol=1e-11),
    "implicit_direct": Implicit(solver="direct"),
}


def loss_of(name):
    """A loss; where it brings an inference of its own, that converges, as most strategies ask."""
    parameters = {"clamped": MeanField(**FIXED_POINT)}
    return zoo.build(LOSSES[name], **parameters)


def wrapped(inference, *names):
    """Every strategy that claims the inference, around it; all of them if no names are given."""
    return {
        name: strategy.wrap(inference)
        for name, strategy in STRATEGIES.items()
        if zoo.claimed(strategy, inference) and (not names or name in names)
    }


def draw(graph, n_states, rng):
    """A derivative with respect to everything."""
    return {
        "d_mu": rng.normal(size=(graph.n_nodes, n_states)),
        "d_edge_mu": rng.normal(size=(graph.n_edges, n_states, n_states)),
        "d_log_z": rng.normal(size=graph.n_examples),
    }


def assert_agree(found, expected, *, rtol=1e-6, atol=1e-7, err_msg=""):
    largest = max([1.0, *(np.abs(part).max(initial=0.0) for part in expected)])
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=rtol, atol=atol * largest, err_msg=err_msg)
