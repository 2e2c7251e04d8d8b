"""All gradient strategies with all their modes, and helpers that their tests share."""

import methods
import numpy as np
from numpy.testing import assert_allclose

from skcrf.gradients import Backprop, Implicit, Perturbation
from skcrf.inference import MeanField
from skcrf.losses import LOSSES

FIXED_POINT = {"max_iter": 5000, "tol": 1e-13}
#: Every strategy with every solver.
STRATEGIES = {
    "backprop": Backprop(),
    "perturbation": Perturbation(),
    "perturbation_4": Perturbation(sides=4, multiplier=20.0),
    "implicit": Implicit(tol=1e-11),
    "implicit_direct": Implicit(solver="direct"),
}


def loss_of(name):
    """Build a loss; a second inference, if it has one, converges, as most strategies require."""
    parameters = {"clamped": MeanField(**FIXED_POINT)}
    return methods.build(LOSSES[name], **parameters)


def wrapped(inference, *names):
    """Wrap an inference by every strategy that supports it, or by those of the given names."""
    return {
        name: strategy.wrap(inference)
        for name, strategy in STRATEGIES.items()
        if methods.supports(strategy, inference) and (not names or name in names)
    }


def draw(graph, n_states, rng):
    """Draw a derivative with respect to all beliefs."""
    return {
        "d_mu": rng.normal(size=(graph.n_nodes, n_states)),
        "d_edge_mu": rng.normal(size=(graph.n_edges, n_states, n_states)),
        "d_log_z": rng.normal(size=graph.n_examples),
    }


def assert_agree(found, expected, *, rtol=1e-6, atol=1e-7, err_msg=""):
    """Compare gradients; the absolute tolerance grows with the largest entry."""
    largest = max([1.0, *(np.abs(part).max(initial=0.0) for part in expected)])
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=rtol, atol=atol * largest, err_msg=err_msg)


class Resumed:
    """Inference that starts every call of `forward` from where the same call ended before."""

    def __init__(self, inference, starts):
        self.inference, self.starts, self.n_calls = inference, starts, 0

    def __getattr__(self, name):
        return getattr(self.inference, name)

    def forward(self, *args, **options):
        beliefs = self.inference.forward(*args, **options, start=self.starts.get(self.n_calls))
        self.starts[self.n_calls] = self.inference.start_of(beliefs)
        self.n_calls += 1
        return beliefs
