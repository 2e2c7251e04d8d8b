"""Sweeps of messages on factor graphs, in the log domain: D13 Eq 18 and Algorithm 3 for cliques of any size.

Messages are rows by position, see `FactorSchedule`, with a maximum of 0, and 0 for states that a node lacks.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_kernel
from skcrf.inference._factor.contract import (
    Axis,
    contract,
    contract_exponentials_vjp,
    contract_logs,
    contract_logs_vjp,
    contract_vjp,
)
from skcrf.inference._factor.schedule import (
    CARD,
    END_SOURCE,
    FACTOR,
    FIRST_SOURCE,
    INNER,
    MAXIMUM,
    OPERATION,
    OUTER,
    POSITION,
    SIZE,
    SUM_OF_BEST,
    TARGET_CARD,
)
from skcrf.inference._pairwise.block import SMALL, exponentials, logarithms, padded_size
from skcrf.inference._pairwise.hubs import (
    MAX_DIRECT,
    add_message,
    hub_cavity,
    hub_cavity_vjp,
    remove_message,
    restore_messages,
    shift_adjoint,
    spread_adjoints,
    total_messages,
)
from skcrf.inference._pairwise.sweep import cavity, cavity_vjp
from skcrf.inference._pairwise.updates import BLOCK_SIZE, END, FIRST, NODE, OWN


@inlined_kernel
def _replace_message(messages, position, new, at, n_states, damping, measure, largest):
    """Shift a new message to a maximum of 0, damp and store it; returns the largest change if `measure`."""
    top = new[at, 0]
    for x in range(1, n_states):
        top = max(top, new[at, x])
    for x in range(n_states):
        value = new[at, x] - top
        old = messages[position, x]
        # Before damping, which shortens the steps but not the distance to the fixed point.
        if measure and value != old and abs(value - old) > largest:
            largest = max(largest, 1.0 - np.exp(-abs(value - old)))
        messages[position, x] = (1.0 - damping) * value + damping * old if damping > 0 else value
    return largest


class Message(NamedTuple):
    """Where the inputs of one message stand.

    Attributes
    ----------
    first, end : int
        The range of its sources.
    row : int
        The row of the cavity of its first source.
    size : int
        Number of entries of the factor.
    table, exp_table : int
        Where the table of the factor starts in theta, and in `FactorSchedule.exp_tables`.
    """

    first: int
    end: int
    row: int
    size: int
    table: int
    exp_table: int


@inlined_kernel
def _axis(sources, s, row):
    return Axis(sources[s, OUTER], sources[s, CARD], sources[s, INNER], row)


@inlined_kernel
def _sum(exp_tables, sources, message, scaled, work, at):
    """Sum over the states of all sources, of which there is at least one; returns where the sums start.

    Intermediate results are stored from ``work[at]`` on, in the order in which they are computed.
    """
    found = at
    for s in range(message.first, message.end):
        axis = _axis(sources, s, message.row + s - message.first)
        if s == message.first:
            contract(exp_tables, message.exp_table, axis, scaled, work, at)
        else:
            contract(work, found, axis, scaled, work, at)
        found, at = at, at + axis.outer * axis.inner
    return found


@inlined_kernel
def _sum_vjp(exp_tables, sources, message, power, scaled, work, d_work, found, d_cavities, d_tables):
    """Pull the derivatives of the sums, in `d_work` from `found` on, back to cavities and theta."""
    at = found
    for s in range(message.end - 1, message.first, -1):
        axis = _axis(sources, s, message.row + s - message.first)
        before = at - axis.outer * axis.card * axis.inner
        contract_vjp(work, d_work, before, axis, scaled, d_cavities, at)
        at = before
        for x in range(axis.card):
            d_cavities[axis.row, x] *= scaled[axis.row, x]
    axis = _axis(sources, message.first, message.row)
    contract_exponentials_vjp(
        exp_tables, message.exp_table, axis, scaled, d_work, at, power, d_cavities, d_tables, message.table
    )


@kernel
def log_sum(sources, message, cavities, power, tables, work):
    """Compute one message in the log domain; returns where it starts in `work`."""
    for entry in range(message.size):
        work[entry] = power * tables[message.table + entry]
    found, at = 0, message.size
    for s in range(message.first, message.end):
        axis = _axis(sources, s, message.row + s - message.first)
        contract_logs(work, found, axis, sources[s, OPERATION] == MAXIMUM, cavities, at)
        found, at = at, at + axis.outer * axis.inner
    return found


@kernel
def _log_sum_vjp(sources, message, cavities, power, work, d_work, found, d_cavities, d_tables):
    at = found
    for s in range(message.end - 1, message.first - 1, -1):
        axis = _axis(sources, s, message.row + s - message.first)
        before = at - axis.outer * axis.card * axis.inner
        contract_logs_vjp(work, d_work, before, axis, cavities, d_cavities, at)
        at = before
    for entry in range(message.size):
        d_tables[message.table + entry] += power * d_work[entry]


@kernel
def restrict_to_best(belief, cavities, row):
    """Forbid all states in a cavity that are not best by the belief of the node, whose maximum is 0."""
    for x in range(belief.shape[1]):
        if belief[0, x] < 0.0:
            cavities[row, x] = -np.inf


@inlined_kernel
def _message(updates, p, base, table, exp_table):
    """Describe the message of an update; the cavity of source `base` is in the first row."""
    first = updates[p, FIRST_SOURCE]
    return Message(first, updates[p, END_SOURCE], first - base, updates[p, SIZE], table, exp_table)


@inlined_kernel
def _sum_message(updates, p, base, sources, exp_tables, exp_table, scaled, work, new, at):
    """Compute the exponentials of a message, 1 beyond its states; returns the least, 0 without a sum."""
    card, least = updates[p, TARGET_CARD], 0.0
    for x in range(card, new.shape[1]):
        new[at, x] = 1.0
    message = _message(updates, p, base, 0, exp_table)
    is_sum = exp_table >= 0
    for s in range(message.first, message.end):
        if sources[s, OPERATION] == MAXIMUM:  # needs the log domain
            is_sum = False
    if is_sum:
        found, least = 0, np.inf
        if message.first == message.end:
            for x in range(card):
                work[x] = exp_tables[exp_table + x]
        else:
            found = _sum(exp_tables, sources, message, scaled, work, 0)
        for x in range(card):
            new[at, x] = work[found + x]
            least = min(least, work[found + x])
    return least


@vector_kernel
def _source_cavities(sources, base, stop, unary, weights, messages, hubs, totals, out, belief):
    """Compute the cavities of some sources of messages; overwrites `belief`."""
    for s in range(base, stop):
        row = s - base
        node, first, end, own = sources[s, NODE], sources[s, FIRST], sources[s, END], sources[s, OWN]
        is_hub = False
        if hubs is not None:
            is_hub = end - first > MAX_DIRECT
            if is_hub:
                hub_cavity(totals, hubs.at[first], weights[own], messages, own, out, row)
        if not is_hub:
            cavity(unary, weights, messages, node, first, end, own, out, row)
        if sources[s, OPERATION] == SUM_OF_BEST:
            if hubs is not None:
                if is_hub:
                    hub_cavity(totals, hubs.at[first], 1.0, messages, -1, belief, 0)
            if not is_hub:
                cavity(unary, weights, messages, node, first, end, -1, belief, 0)
            restrict_to_best(belief, out, row)


@vector_kernel
def sweep(schedule, graph, theta, hubs, damping, measure, messages, active):
    """Send every message of the active examples once, block by block.

    If `measure`, returns the largest change of a message per example, as on pairwise graphs.
    """
    updates, sources, _, _, block_ptr, example_ptr, weights, exp_tables, exp_start, sizes = schedule
    (unary, tables), entry_ptr, edge_table = theta, graph.entry_ptr, graph.edge_table
    n_states, any_sum = unary.shape[1], len(exp_tables) > 0
    if hubs is not None:
        hub_at, totals = hubs.at, total_messages(hubs, graph.incident_ptr, unary, weights, messages)
    else:
        totals = None
    cavities, scaled = np.ones((sizes[0] + 3, n_states)), np.ones((sizes[0] + 3, n_states))
    new, belief, work = np.ones((BLOCK_SIZE + 3, n_states)), np.empty((1, n_states)), np.empty(sizes[1])
    cavities_flat, scaled_flat, new_flat = cavities.reshape(-1), scaled.reshape(-1), new.reshape(-1)
    is_safe, change = np.zeros(BLOCK_SIZE, np.bool_), np.zeros(len(active))
    for example in range(len(active)):
        if not active[example]:
            continue
        largest = 0.0
        for block in range(example_ptr[example], example_ptr[example + 1]):
            start, n_sent = block_ptr[block], block_ptr[block + 1] - block_ptr[block]
            base, stop = updates[start, FIRST_SOURCE], updates[start + n_sent - 1, END_SOURCE]
            _source_cavities(sources, base, stop, unary, weights, messages, hubs, totals, cavities, belief)
            if any_sum:
                exponentials(cavities_flat, padded_size(stop - base, n_states), scaled_flat)
                for at in range(n_sent):
                    p = start + at
                    exp_table = exp_start[updates[p, FACTOR]]
                    least = _sum_message(
                        updates, p, base, sources, exp_tables, exp_table, scaled, work, new, at
                    )
                    is_safe[at] = least > SMALL
                logarithms(new_flat, padded_size(n_sent, n_states))
            for at in range(n_sent):
                p = start + at
                position, factor, card = updates[p, POSITION], updates[p, FACTOR], updates[p, TARGET_CARD]
                if not is_safe[at]:
                    message = _message(updates, p, base, entry_ptr[edge_table[factor]], -1)
                    found = log_sum(sources, message, cavities, 1.0 / weights[position], tables, work)
                    for x in range(card):
                        new[at, x] = work[found + x]
                if hubs is not None:
                    hub = hub_at[position]
                    if hub >= 0:
                        remove_message(totals, hub, weights[position], messages, position)
                largest = _replace_message(messages, position, new, at, card, damping, measure, largest)
                if hubs is not None:
                    if hub >= 0:
                        add_message(totals, hub, weights[position], messages, position)
        change[example] = largest
    return change


@vector_kernel
def sweep_vjp(schedule, graph, theta, hubs, damping, before, messages, active, d_messages, d_theta):
    """Reverse a sweep block by block, last first; `messages` ends as `before` (D13 Alg 3, step 8)."""
    updates, sources, _, _, block_ptr, example_ptr, weights, exp_tables, exp_start, sizes = schedule
    (unary, tables), (d_unary, d_tables) = theta, d_theta
    n_states, entry_ptr, edge_table = unary.shape[1], graph.entry_ptr, graph.edge_table
    if hubs is not None:
        hub_at, totals = hubs.at, total_messages(hubs, graph.incident_ptr, unary, weights, messages)
        d_totals = np.zeros((len(hubs.node), n_states))  # as on pairwise graphs
    else:
        totals = None
    rows = np.ones((3, sizes[0] + 3, n_states))
    cavities, scaled, d_cavities = rows[0], rows[1], rows[2]
    cavities_flat, scaled_flat = cavities.reshape(-1), scaled.reshape(-1)
    work, d_work, belief = np.empty(sizes[1]), np.empty(sizes[1]), np.empty((1, n_states))
    for example in range(len(active)):
        if not active[example]:
            continue
        for block in range(example_ptr[example + 1] - 1, example_ptr[example] - 1, -1):
            start, n_sent = block_ptr[block], block_ptr[block + 1] - block_ptr[block]
            base, stop = updates[start, FIRST_SOURCE], updates[start + n_sent - 1, END_SOURCE]
            restore_messages(
                hubs, totals, weights, updates[start : start + n_sent, POSITION], before, messages
            )
            _source_cavities(sources, base, stop, unary, weights, messages, hubs, totals, cavities, belief)
            d_cavities[: stop - base] = 0.0
            exponentials(cavities_flat, padded_size(stop - base, n_states), scaled_flat)
            # Last first also within a block: a message may depend on the old value of a later one.
            for p in range(start + n_sent - 1, start - 1, -1):
                position, factor, card = updates[p, POSITION], updates[p, FACTOR], updates[p, TARGET_CARD]
                exp_table, power = exp_start[factor], 1.0 / weights[position]
                message = _message(updates, p, base, entry_ptr[edge_table[factor]], exp_table)
                found, is_safe = 0, exp_table >= 0 and message.first < message.end
                if is_safe:
                    found = _sum(exp_tables, sources, message, scaled, work, message.size)
                    for x in range(card):
                        is_safe &= work[found + x] > SMALL
                if not is_safe:
                    found = log_sum(sources, message, cavities, power, tables, work)
                # The derivative of subtracting the maximum, as on pairwise graphs.
                if hubs is not None:
                    hub = hub_at[position]
                    if hub >= 0:
                        shift_adjoint(d_totals, hub, weights[position], d_messages, position)
                total, top = 0.0, 0
                for x in range(card):
                    total += d_messages[position, x]
                    top = x if work[found + x] > work[found + top] else top
                for x in range(card):
                    d_new = (1.0 - damping) * (d_messages[position, x] - (total if x == top else 0.0))
                    d_work[found + x] = d_new / work[found + x] if is_safe else d_new
                    d_messages[position, x] *= damping
                if hubs is not None:
                    if hub >= 0:
                        shift_adjoint(d_totals, hub, -weights[position], d_messages, position)
                if is_safe:
                    _sum_vjp(
                        exp_tables, sources, message, power, scaled, work, d_work, found, d_cavities, d_tables
                    )
                else:
                    _log_sum_vjp(sources, message, cavities, power, work, d_work, found, d_cavities, d_tables)
                for s in range(message.first, message.end):
                    node, first, end = sources[s, NODE], sources[s, FIRST], sources[s, END]
                    own, row = sources[s, OWN], s - base
                    is_hub = False
                    if hubs is not None:
                        is_hub = end - first > MAX_DIRECT
                        if is_hub:
                            hub_cavity_vjp(d_totals, hub_at[first], own, d_cavities, row, d_messages)
                    if not is_hub:
                        cavity_vjp(weights, node, first, end, own, d_cavities, row, d_messages, d_unary)
    if hubs is not None:
        spread_adjoints(hubs, graph.incident_ptr, weights, d_totals, d_messages, d_unary)
