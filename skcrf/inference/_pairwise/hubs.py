"""Totals of the messages to hubs, the nodes of many edges.

A message from a node needs the product of all messages to it but one. Multiplying them for each message would
take time quadratic in the degree. At hubs the logarithm of the product of all is kept instead, and one of
them is taken out. The sum has the precision of two doubles, so that this loses no digits, however large a
message is. Impossible states, whose logarithm is -inf, are counted.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel

#: Nodes with more incoming messages are hubs. At other nodes it is faster to multiply.
MAX_DIRECT = 16
#: Columns of totals: the sum, its rounding error, and the number of terms that are -inf.
_SUM, _ERROR, _IMPOSSIBLE = range(3)


class Hubs(NamedTuple):
    """The hubs of a graph.

    Attributes
    ----------
    node : ndarray of shape (n_hubs,)
        The hubs.
    at : ndarray of shape (n_messages,), int32
        For each position in `graph.incident` the hub there, or -1; empty if there are no hubs.
    """

    node: np.ndarray
    at: np.ndarray


def has_hubs(graph):
    """Return which examples have hubs."""
    is_hub = np.diff(graph.incident_ptr) > MAX_DIRECT
    if not is_hub.any():
        return np.zeros(graph.n_examples, dtype=bool)
    return np.bincount(graph.node_example, weights=is_hub, minlength=graph.n_examples) > 0


def hubs_of(graph):
    """Find the hubs of a graph; None for none, so that sweeps are compiled without the code for hubs."""
    hubs = find_hubs(graph.incident_ptr)
    return hubs if len(hubs.node) else None


@kernel
def find_hubs(incident_ptr):
    """List the nodes with more than `MAX_DIRECT` incoming messages."""
    n_hubs = 0
    for node in range(len(incident_ptr) - 1):
        n_hubs += incident_ptr[node + 1] - incident_ptr[node] > MAX_DIRECT
    nodes, at = np.empty(n_hubs, np.int64), np.full(incident_ptr[-1] if n_hubs > 0 else 0, -1, np.int32)
    n_hubs = 0
    for node in range(len(incident_ptr) - 1):
        if incident_ptr[node + 1] - incident_ptr[node] > MAX_DIRECT:
            nodes[n_hubs] = node
            at[incident_ptr[node] : incident_ptr[node + 1]] = n_hubs
            n_hubs += 1
    return Hubs(nodes, at)


@kernel
def _add(totals, hub, x, value):
    """Add a number to a total, with the rounding error of the sum."""
    before = totals[hub, x, _SUM]
    after = before + value
    added = after - before
    totals[hub, x, _SUM] = after
    totals[hub, x, _ERROR] += (before - (after - added)) + (value - added)


@kernel
def add_message(totals, hub, weight, messages, q):
    """Add row `q` of the messages, times a weight, to the total of a hub."""
    for x in range(messages.shape[1]):
        if messages[q, x] > -np.inf:
            _add(totals, hub, x, weight * messages[q, x])
        else:
            totals[hub, x, _IMPOSSIBLE] += 1.0


@kernel
def remove_message(totals, hub, weight, messages, q):
    """Take row `q` of the messages out of the total of a hub."""
    for x in range(messages.shape[1]):
        if messages[q, x] > -np.inf:
            _add(totals, hub, x, -(weight * messages[q, x]))
        else:
            totals[hub, x, _IMPOSSIBLE] -= 1.0


@kernel
def new_totals(hubs, unary):
    """Make the totals of hubs without messages, (n_hubs, n_states, 3)."""
    totals = np.zeros((len(hubs.node), unary.shape[1], 3))
    for hub in range(len(totals)):
        for x in range(unary.shape[1]):
            if unary[hubs.node[hub], x] > -np.inf:
                totals[hub, x, _SUM] = unary[hubs.node[hub], x]
            else:
                totals[hub, x, _IMPOSSIBLE] = 1.0
    return totals


@kernel
def total_messages(hubs, incident_ptr, unary, weights, messages):
    """Compute the totals of all hubs from messages by position."""
    totals = new_totals(hubs, unary)
    for hub in range(len(totals)):
        for q in range(incident_ptr[hubs.node[hub]], incident_ptr[hubs.node[hub] + 1]):
            add_message(totals, hub, weights[q], messages, q)
    return totals


@kernel
def restore_messages(hubs, totals, weights, positions, before, messages):
    """Replace messages by those before a sweep, also in the totals of hubs; `hubs` may be None."""
    for position in positions:
        if hubs is not None:
            hub = hubs.at[position]
            if hub >= 0:
                remove_message(totals, hub, weights[position], messages, position)
                add_message(totals, hub, weights[position], before, position)
        for x in range(messages.shape[1]):
            messages[position, x] = before[position, x]


@inlined_kernel
def hub_product(totals, hub, weight, messages, own, out, at):
    """Compute the logarithm of the product at a hub without the message `own` of this weight; -1 for none."""
    for x in range(messages.shape[1]):
        total, error = totals[hub, x, _SUM], totals[hub, x, _ERROR]
        n_impossible = totals[hub, x, _IMPOSSIBLE]
        if own >= 0:
            value = messages[own, x]
            if value > -np.inf:
                removed = -(weight * value)
                rest = total + removed
                added = rest - total
                error += (total - (rest - added)) + (removed - added)
                total, error = rest, error + (weight - 1.0) * value
            elif weight == 1.0:  # else impossible states stay impossible
                n_impossible -= 1.0
        out[at, x] = total + error if n_impossible == 0 else -np.inf


@kernel
def hub_cavity(totals, hub, weight, messages, own, out, at):
    """Compute the product as `hub_product` does, up to a constant: the maximum is 0."""
    hub_product(totals, hub, weight, messages, own, out, at)
    top = -np.inf
    for x in range(out.shape[1]):
        top = max(top, out[at, x])
    if top > -np.inf:
        for x in range(out.shape[1]):
            out[at, x] -= top


@inlined_kernel
def hub_cavity_vjp(d_totals, hub, own, d_cavities, at, d_messages):
    """Pull the derivative of the cavity of a hub back, leaving the part of all messages in `d_totals`."""
    for x in range(d_totals.shape[1]):
        d_totals[hub, x] += d_cavities[at, x]
        if own >= 0:
            d_messages[own, x] -= d_cavities[at, x]


@kernel
def shift_adjoint(d_totals, hub, weight, d_messages, q):
    """Add `weight` times the derivative of the total of a hub to that of a message."""
    for x in range(d_totals.shape[1]):
        d_messages[q, x] += weight * d_totals[hub, x]


@kernel
def spread_adjoints(hubs, incident_ptr, weights, d_totals, d_messages, d_unary):
    """Add the derivatives of totals to those of messages by position and of unary potentials."""
    for hub in range(len(hubs.node)):
        node = hubs.node[hub]
        for x in range(d_totals.shape[1]):
            d_unary[node, x] += d_totals[hub, x]
        for q in range(incident_ptr[node], incident_ptr[node + 1]):
            shift_adjoint(d_totals, hub, weights[q], d_messages, q)
