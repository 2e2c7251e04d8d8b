"""Random numbers and states in kernels: a stream an example, so that a batch does not change what it draws.

The combined generator of L'Ecuyer, "Efficient and portable combined random number generators", 1988: its
products fit into 64 bits with their sign, compiled or not.
"""

from copy import deepcopy

import numpy as np
from sklearn.utils import check_random_state

from skcrf._numerics import inlined_kernel, kernel

_MODULI = 2147483563, 2147483399
_FACTORS = 40014, 40692


def streams(random_state, n_streams):
    """Make the states of some streams.

    Parameters
    ----------
    random_state : int, RandomState instance or None
        Where they start. An instance is left as it is: batches that are done at once must not take turns.
    n_streams : int
        Number of streams.

    Returns
    -------
    states : ndarray of shape (n_streams, 2)
        To be passed to `uniform`, which changes them.
    """
    rng = check_random_state(None if random_state is None else deepcopy(random_state))
    draw = rng.randint(1, _MODULI[1], size=(n_streams, 2))
    return draw.astype(np.int64)


def streams_of(seeds):
    """Make the states of streams from numbers, of which similar ones give streams that are not.

    Parameters
    ----------
    seeds : ndarray of shape (n_streams,)
        Whole numbers.

    Returns
    -------
    states : ndarray of shape (n_streams, 2)
        To be passed to `uniform`, which changes them.
    """
    bits, states = seeds.astype(np.int64).astype(np.uint64), []
    for _ in range(2):  # a round of splitmix64
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
        states.append((mixed % np.uint64(_MODULI[1] - 1)).astype(np.int64) + 1)
    return np.stack(states, axis=1)


@inlined_kernel
def uniform(stream):
    """Draw a number between 0 and 1; changes the state of the stream, of shape (2,)."""
    stream[0] = _FACTORS[0] * stream[0] % _MODULI[0]
    stream[1] = _FACTORS[1] * stream[1] % _MODULI[1]
    return ((stream[0] - stream[1]) % (_MODULI[0] - 1) + 0.5) / _MODULI[0]


@inlined_kernel
def arrays_of(graph, theta):
    """What `local_scores` reads: taken out of its tuples for every node, that would be most of the work."""
    return graph.edges, graph.incident, graph.incident_ptr, graph.edge_table, theta.unary, theta.tables


@inlined_kernel
def local_scores(arrays, node, x, out):
    """The scores of a node's states, given those of its neighbours."""
    edges, incident, incident_ptr, edge_table, unary, tables = arrays
    for state in range(len(out)):
        out[state] = unary[node, state]
    for p in range(incident_ptr[node], incident_ptr[node + 1]):
        edge, side = incident[p] >> 1, incident[p] & 1
        table, other = edge_table[edge], x[edges[edge, 1 - side]]
        for state in range(len(out)):
            out[state] += tables[table, state, other] if side == 0 else tables[table, other, state]


@inlined_kernel
def draw_state(scores, stream):
    """Draw a state by its score, and leave the probabilities in `scores`."""
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
            # The last possible one, if rounding leaves something.
            drawn = state if scores[state] > 0.0 else drawn
            left -= scores[state]
    return drawn


@kernel
def draw_states(graph, theta, starts):
    """Draw a state for every node by its unary potentials."""
    x, scores = np.empty(len(theta.unary), np.int64), np.empty(theta.unary.shape[1])
    for example in range(len(starts)):
        stream = starts[example]
        for node in range(graph.node_ptr[example], graph.node_ptr[example + 1]):
            scores[:] = theta.unary[node]
            x[node] = draw_state(scores, stream)
    return x
