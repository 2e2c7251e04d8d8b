"""Graphs and methods that compile all kernels of inference, in groups that share few of them."""

import fields
import methods
import numpy as np
from numba import config

from skcrf.graph import chain, lattice
from skcrf.inference import BP, TRW, MeanField

#: Groups of about equal compilation times: pairs of graphs and methods.
GROUPS = [
    [
        *((graph, TRW) for graph in (chain(3), lattice(3, 3), lattice(3, 3, tied=False))),
        (lattice(3, 3, connectivity=8), BP),
    ],
    [
        (lattice(3, 3, connectivity=8), TRW),
        *((lattice(3, 3, tied=tied), MeanField) for tied in (True, False)),
        *((chain(3), cls) for cls in methods.SCORING.values()),
    ],
]


def compile_share(number, count):
    """Compile the kernels of every `count`-th group, starting with group `number`."""
    if config.DISABLE_JIT:
        return
    rng = np.random.default_rng(0)
    for group in GROUPS[number::count]:
        for graph, cls in group:
            for n_states in (2, 3):
                inference = methods.build(cls, max_iter=1)
                beliefs = inference.forward(graph, fields.normal(graph, n_states, rng), edges=True, tape=True)
                inference.backward(beliefs, beliefs.mu, beliefs.edge_mu, beliefs.log_z)
