"""Engines of the inference methods: which of them computed beliefs, and comparisons between them.

Engines have no public names. The private ones that several tests need are imported here only.
"""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.inference import TRWS, _engine, _fixed_point
from skcrf.inference._lattice import engine as lattice_engine
from skcrf.inference._lattice import mean_field as lattice_mean_field
from skcrf.inference._pairwise.engine import PairwiseEngine
from skcrf.inference.trw import EDGE_WEIGHTS

#: Names of the engines for lattices, and of those for any pairwise graph or for graphs without edges.
FAST = {"LatticeEngine", "LatticeMeanField", "SequentialLatticeEngine"}
PLAIN = {"PairwiseEngine", "ChainEngine", "PairwiseMeanField", "EdgelessEngine"}

FIELDS = ("mu", "edge_mu", "log_z", "n_iter", "converged")

#: Largest range of logarithms of which lattice engines multiply the exponentials.
LARGEST_RANGE = lattice_engine._RANGE
#: Largest range of potentials of which mean field on lattices exponentiates without subtracting maxima.
LARGEST_MEAN_FIELD_RANGE = lattice_mean_field._RANGE


# Choice of engines


def engines_of(beliefs):
    """Return the names of the engines that computed beliefs."""
    return {engine.__name__ for engine in _engine.engines_of(beliefs)}


def only_plain_engines():
    """Return a context in which methods use no engines for lattices."""
    return _engine.plain_engines()


def lattice_options(inference, graph, theta):
    """List the options of `LatticeEngine` for each example, None for examples that it does not support."""
    numbers = lattice_engine.LatticeEngine.options(inference._plan(graph), theta).tolist()
    return [lattice_engine.Options.decode(number) if number else None for number in numbers]


def mean_field_options(graph, theta):
    """Return the number of the options of `LatticeMeanField` for each example, 0 if it is not supported."""
    return lattice_mean_field.LatticeMeanField.options(_engine.Plan(graph, None, 3, 0.0), theta)


def are_lattices(graph):
    """Return which examples have a structure that `LatticeEngine` supports."""
    return lattice_engine.lattice_options(graph)[0]


def by_both_engines(inference, graph, theta, **options):
    """Infer with the engine for lattices and with a plain engine; return the beliefs of both."""
    fast = inference.forward(graph, theta, edges=True, **options)
    assert engines_of(fast) <= FAST
    with only_plain_engines():
        plain = inference.forward(graph, theta, edges=True, **options)
    assert engines_of(plain) <= PLAIN
    return fast, plain


# Iterations


def messages_of_both_engines(inference, graph, theta, *, maximise, n_iter=3):
    """Return the log-messages of the lattice engine and of the pairwise engine, each with maximum 0."""
    plan = inference._plan(graph)
    options = lattice_engine.LatticeEngine.options(plan, theta)
    assert (options > 0).all()
    plan, sent = plan._replace(maximise=maximise), []
    for engine in (
        lattice_engine.LatticeEngine(plan, theta, options.max()),
        PairwiseEngine(plan, theta),
    ):
        state = engine.initial_state()
        for _ in range(n_iter):
            engine.step(state, np.ones(graph.n_examples, dtype=bool))
        messages = engine.messages(state)
        sent.append(messages - messages.max(axis=1, keepdims=True))
    return sent


def monotonic_chains(graph):
    """Return the schedule, the edge weights and the message of each edge towards the start of its chain."""
    plan = TRWS()._plan(graph)
    return plan.graph.schedule, plan.rho, plan.inward


def edge_weights(inference, graph):
    """Return the edge weights of a method that passes messages, by the definition of the method."""
    if isinstance(inference, TRWS):
        return monotonic_chains(graph)[1]
    rho = inference.get_params().get("rho", 1.0)
    return EDGE_WEIGHTS[rho](graph) if isinstance(rho, str) else np.broadcast_to(rho, graph.n_edges)


def mixed_product_states(inference, graph, theta, maximised):
    """Decode the maximised nodes from mixed-product messages, -1 at the others."""
    return inference._choose(graph, theta, maximised)[0]


# Tapes


def tape_strides(monkeypatch):
    """Return a list to which every new tape appends its stride."""
    strides, init = [], _fixed_point.Tape.__init__

    def recorded(self, *args):
        init(self, *args)
        strides.append(self.stride)

    monkeypatch.setattr(_fixed_point.Tape, "__init__", recorded)
    return strides


class CountingEngine:
    """An engine that adds 1 in every step, and lists the states before."""

    recorded_step = _engine.Engine.recorded_step

    def __init__(self):
        self.done = []

    def step(self, state, active):
        self.done.append(state.item())
        state += 1.0


def record_tape(engine, n_iter, *, max_bytes):
    """Iterate on a state of one number, from 0 on; return the tape."""
    settings = {"max_iter": n_iter, "tol": 0.0, "tape": max_bytes}
    return _fixed_point.iterate(engine, np.zeros((1, 1)), 1, **settings).tape


# Comparisons


def cotangents(beliefs, rng):
    """Draw arguments of `backward`: for the nodes only, for all beliefs, and for log_z only."""
    d_mu, d_edge_mu, d_log_z = (
        rng.normal(size=part.shape) for part in (beliefs.mu, beliefs.edge_mu, beliefs.log_z)
    )
    return {"nodes": (d_mu,), "all": (d_mu, d_edge_mu, d_log_z), "log_z": (None, None, d_log_z)}


def assert_close_beliefs(one, other, *, atol=1e-10, rtol=1e-10):
    """Compare beliefs; numbers of iterations must be equal."""
    assert_allclose(one.mu, other.mu, rtol=0, atol=atol, err_msg="mu")
    assert_allclose(one.edge_mu, other.edge_mu, rtol=0, atol=atol, err_msg="edge_mu")
    assert_allclose(one.log_z, other.log_z, rtol=rtol, atol=atol, err_msg="log_z")
    assert_array_equal(one.n_iter, other.n_iter, err_msg="n_iter")
    assert_array_equal(one.converged, other.converged, err_msg="converged")


def assert_close_gradients(one, other, *, atol=1e-10, err_msg=""):
    """Compare gradients; `atol` is relative to the largest entry if that is above 1."""
    largest = max(1.0, *(np.abs(part).max(initial=0.0) for part in other))
    for name, found, expected in zip(one._fields, one, other, strict=True):
        assert_allclose(found, expected, rtol=0, atol=atol * largest, err_msg=f"{err_msg} {name}")


def assert_same_bits(one, other, *, err_msg=""):
    """Check that two tuples hold equal arrays without nan."""
    for found, expected in zip(one, other, strict=True):
        assert not np.isnan(expected).any(), err_msg
        assert_array_equal(found, expected, err_msg=err_msg)
