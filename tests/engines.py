"""Which engine did what, and how to have everything done by the plain ones."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skcrf.inference._engine import engines_of, plain_engines
from skcrf.inference._lattice.engine import LatticeEngine
from skcrf.inference._lattice.mean_field import LatticeMeanField
from skcrf.inference._message_passing import EdgelessEngine
from skcrf.inference._pairwise.engine import ChainEngine, PairwiseEngine
from skcrf.inference._pairwise.mean_field import PairwiseMeanField

#: Engines for lattices, and engines for any graph or for none.
FAST = {LatticeEngine, LatticeMeanField}
PLAIN = {PairwiseEngine, ChainEngine, PairwiseMeanField, EdgelessEngine}

FIELDS = ("mu", "edge_mu", "log_z", "n_iter", "converged")


def both(inference, graph, theta, **options):
    """Infer by a fast engine and by a plain one, which is made sure of."""
    fast = inference.forward(graph, theta, edges=True, **options)
    assert engines_of(fast) <= FAST
    with plain_engines():
        plain = inference.forward(graph, theta, edges=True, **options)
    assert engines_of(plain) <= PLAIN
    return fast, plain


def cotangents(beliefs, rng):
    """Draw what `backward` takes: of nodes alone, of everything, of log_z alone."""
    d_mu, d_edge_mu, d_log_z = (
        rng.normal(size=part.shape) for part in (beliefs.mu, beliefs.edge_mu, beliefs.log_z)
    )
    return {"nodes": (d_mu,), "all": (d_mu, d_edge_mu, d_log_z), "log_z": (None, None, d_log_z)}


def assert_close_beliefs(one, other, *, atol=1e-10, rtol=1e-10):
    """Hold beliefs to others; iterations must be as many."""
    assert_allclose(one.mu, other.mu, rtol=0, atol=atol, err_msg="mu")
    assert_allclose(one.edge_mu, other.edge_mu, rtol=0, atol=atol, err_msg="edge_mu")
    assert_allclose(one.log_z, other.log_z, rtol=rtol, atol=atol, err_msg="log_z")
    assert_array_equal(one.n_iter, other.n_iter, err_msg="n_iter")
    assert_array_equal(one.converged, other.converged, err_msg="converged")


def assert_close_gradients(one, other, *, atol=1e-10, err_msg=""):
    """Hold a gradient to another; `atol` is relative to its largest entry, if that is above 1."""
    largest = max(1.0, *(np.abs(part).max(initial=0.0) for part in other))
    for name, found, expected in zip(one._fields, one, other, strict=True):
        assert_allclose(found, expected, rtol=0, atol=atol * largest, err_msg=f"{err_msg} {name}")


def assert_same_bits(one, other, *, err_msg=""):
    """Hold arrays of one tuple to those of another, nan nowhere."""
    for found, expected in zip(one, other, strict=True):
        assert not np.isnan(expected).any(), err_msg
        assert_array_equal(found, expected, err_msg=err_msg)
