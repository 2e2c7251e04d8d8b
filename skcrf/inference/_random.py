"""Random numbers and states in kernels, from one stream per example so that batches do not change results.

The combined generator of L'Ecuyer, "Efficient and portable combined random number generators", 1988: its
products fit into signed 64-bit integers, compiled or not.
"""

from copy import deepcopy

import numpy as np
from sklearn.utils import check_random_state

from skcrf._numerics import inlined_kernel, kernel

_MODULI = 2147483563, 2147483399
_FACTORS = 40014, 40692


def random_streams(random_state, n_streams):
    """Make random streams.

    Parameters
    ----------
    random_state : int, RandomState instance or None
        Seed. An instance is not advanced: concurrent batches must not depend on each other.
    n_streams : int
        Number of streams.

    Returns
    -------
    streams : ndarray of shape (n_streams, 2)
        The states of the streams, which `uniform` updates.
    """
    rng = check_random_state(None if random_state is None else deepcopy(random_state))
    draw = rng.randint(1, _MODULI[1], size=(n_streams, 2))
    return draw.astype(np.int64)


def streams_from_seeds(seeds):
    """Make unrelated random streams from integers, which may be similar.

    Parameters
    ----------
    seeds : ndarray of shape (n_streams,)
        Integers.

    Returns
    -------
    streams : ndarray of shape (n_streams, 2)
        The states of the streams, which `uniform` updates.
    """
    bits, states = seeds.astype(np.int64).astype(np.uint64), []
    for _ in range(2):  # one round of splitmix64 each
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
        states.append((mixed % np.uint64(_MODULI[1] - 1)).astype(np.int64) + 1)
    return np.stack(states, axis=1)


@inlined_kernel
def uniform(stream):
    """Draw a number between 0 and 1, and update the stream, of shape (2,)."""
    stream[0] = _FACTORS[0] * stream[0] % _MODULI[0]
    stream[1] = _FACTORS[1] * stream[1] % _MODULI[1]
    return ((stream[0] - stream[1]) % (_MODULI[0] - 1) + 0.5) / _MODULI[0]


@inlined_kernel
def conditional_arrays(graph, theta):
    """List the arrays for `conditional_scores`: reading fields of tuples per node would dominate its cost."""
    return graph.edges, graph.incident, graph.incident_ptr, graph.edge_table, theta.unary, theta.tables


@inlined_kernel
def conditional_scores(arrays, node, x, out):
    """Compute the scores of a node's states given the states of its neighbours."""
    edges, incident, incident_ptr, edge_table, unary, tables = arrays
    for state in range(len(out)):
        out[state] = unary[node, state]
    for p in range(incident_ptr[node], incident_ptr[node + 1]):
        edge, side = incident[p] >> 1, incident[p] & 1
        table, other = edge_table[edge], x[edges[edge, 1 - side]]
        for state in range(len(out)):
            out[state] += tables[table, state, other] if side == 0 else tables[table, other, state]


@inlined_kernel
def sample_state(scores, stream):
    """Sample a state with probabilities softmax(scores), which replace the scores."""
    top, total = -np.inf, 0.0
    for state in range(len(scores)):
        top = max(top, scores[state])
    for state in range(len(scores)):
        scores[state] = np.exp(scores[state] - top)
        total += scores[state]
    left, drawn = uniform(stream), -1
    for state in range(len(scores)):
        scores[state] /= total
        if drawn < 0 or left >= 0.0:
            # The last possible state, if rounding leaves a remainder.
            drawn = state if scores[state] > 0.0 else drawn
            left -= scores[state]
    return drawn


@kernel
def sample_independent(graph, theta, streams):
    """Sample a state for every node from its unary potentials."""
    x, scores = np.empty(len(theta.unary), np.int64), np.empty(theta.unary.shape[1])
    for example in range(len(streams)):
        stream = streams[example]
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            scores[:] = theta.unary[node]
            x[node] = sample_state(scores, stream)
    return x
