"""Sweeps of messages on pairwise graphs, in the log domain: D13 Eq 18 and Algorithm 3.

Messages are rows by position, see `MessageSchedule`, with a maximum of 0. The loops use neither views nor
fields of tuples: counting references to these takes longer than the sums.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_exp, vector_kernel, vector_log
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
from skcrf.inference._pairwise.schedule import BLOCK_SIZE, END, FIRST, MESSAGE, NODE, OWN, POSITION

#: Sums of exponentials below this are computed again in the log domain: below 1e-304 exponentials are lost.
SMALL = 1e-200


@inlined_kernel
def cavity(unary, weights, messages, node, first, end, own, out, at):
    """log e^theta(x_j) prod_d m_d(x_j)^rho_d / m_own(x_j) for node j, up to a constant; own = -1 for none.

    The maximum is 0, but all values are -inf where no state is possible.
    """
    n_states = unary.shape[1]
    for x in range(n_states):
        out[at, x] = unary[node, x]
    for q in range(first, end):
        weight = weights[q] - (q == own)
        # Impossible states stay impossible, also where the exponent rho - 1 is negative; not where it is 0.
        impossible = -np.inf if weight != 0 else 0.0
        for x in range(n_states):
            value = messages[q, x]
            out[at, x] += weight * value if value > -np.inf else impossible
    top = out[at, 0]
    for x in range(1, n_states):
        top = max(top, out[at, x])
    if top > -np.inf:
        for x in range(n_states):
            out[at, x] -= top


@inlined_kernel
def cavity_vjp(weights, node, first, end, own, d_cavities, at, d_messages, d_unary):
    for x in range(d_cavities.shape[1]):
        d_unary[node, x] += d_cavities[at, x]
    for q in range(first, end):
        weight = weights[q] - (q == own)
        for x in range(d_cavities.shape[1]):
            d_messages[q, x] += weight * d_cavities[at, x]


@vector_kernel
def exponentials(values, n, out):
    for i in range(n):
        out[i] = vector_exp(values[i])


@vector_kernel
def logarithms(values, n):
    for i in range(n):
        values[i] = vector_log(values[i])


@inlined_kernel
def _sum(exp_tables, exp_table, side, scaled, sums, at):
    """Sum over the states of the other end than `side`; returns the least sum, 0 without an `exp_table`."""
    if exp_table < 0:
        return 0.0
    least = np.inf
    for x in range(sums.shape[1]):
        total = 0.0
        if side == 0:
            for z in range(sums.shape[1]):
                total += exp_tables[exp_table, x, z] * scaled[at, z]
        else:
            for z in range(sums.shape[1]):
                total += exp_tables[exp_table, z, x] * scaled[at, z]
        sums[at, x] = total
        least = min(least, total)
    return least


@inlined_kernel
def _sum_vjp(exp_tables, exp_table, side, power, scaled, d_log, at, d_cavity, d_tables, table):
    """Pull derivatives back to cavity and theta; `d_log` is that of the logarithms, divided by the sums."""
    n_states = scaled.shape[1]
    for x in range(n_states):
        d_cavity[at, x] = 0.0
    for x in range(n_states):
        if side == 0:
            scale = d_log[at, x]
            for z in range(n_states):
                d_value = scale * exp_tables[exp_table, x, z] * scaled[at, z]
                d_cavity[at, z] += d_value
                d_tables[table, x, z] += power * d_value
        else:
            scale, total = scaled[at, x], 0.0
            for z in range(n_states):
                d_value = scale * exp_tables[exp_table, x, z] * d_log[at, z]
                total += d_value
                d_tables[table, x, z] += power * d_value
            d_cavity[at, x] = total


@kernel
def _log_sum(tables, table, side, power, maximise, cavities, at, share, out):
    """Compute one message in the log domain, and the share of each state of the source in it."""
    n_states = len(share)
    for x_target in range(n_states):
        best = 0
        for x in range(n_states):
            theta = tables[table, x_target, x] if side == 0 else tables[table, x, x_target]
            share[x_target, x] = power * theta + cavities[at, x]
            if share[x_target, x] > share[x_target, best]:
                best = x
        top = share[x_target, best]
        out[at, x_target] = top
        if not maximise and top > -np.inf:
            total = 1.0
            for x in range(n_states):
                if x == best:
                    share[x_target, x] = 1.0
                else:
                    share[x_target, x] = np.exp(share[x_target, x] - top)
                    total += share[x_target, x]
            out[at, x_target] += np.log(total)
            for x in range(n_states):
                share[x_target, x] /= total
        elif not maximise:
            share[x_target] = 0.0


@kernel
def _log_sum_vjp(share, side, power, d_out, at, d_cavity, d_tables, table):
    d_cavity[at] = 0.0
    for x_target in range(len(share)):
        for x in range(len(share)):
            d_value = d_out[at, x_target] * share[x_target, x]
            d_cavity[at, x] += d_value
            if side == 0:
                d_tables[table, x_target, x] += power * d_value
            else:
                d_tables[table, x, x_target] += power * d_value


@inlined_kernel
def replace_message(messages, position, new, at, n_states, damping, measure, largest):
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


@inlined_kernel
def padded_size(n_rows, n_states):
    """Compute the number of values in some rows, rounded up to whole vectors."""
    return 4 * ((n_rows * n_states + 3) // 4)


@vector_kernel
def _block_cavities(updates, start, n_sent, unary, weights, messages, hubs, totals, out):
    """Compute the cavities of the messages of a block."""
    for at in range(n_sent):
        p = start + at
        node, first, end, own = updates[p, NODE], updates[p, FIRST], updates[p, END], updates[p, OWN]
        is_hub = False
        if hubs is not None:
            is_hub = end - first > MAX_DIRECT
            if is_hub:
                hub_cavity(totals, hubs.at[first], weights[own], messages, own, out, at)
        if not is_hub:
            cavity(unary, weights, messages, node, first, end, own, out, at)


@vector_kernel
def sweep(schedule, graph, theta, hubs, damping, maximise, measure, messages, active):
    """Send every message of the active examples once, block by block; `hubs` is of `hubs_of`.

    If `measure`, returns the largest change of a message per example, relative to its exponential: with
    strong potentials, tiny messages matter elsewhere.
    """
    updates, block_ptr, example_ptr, weights, exp_tables, edge_exp_table = schedule
    unary, tables = theta
    edge_table, n_states = graph.edge_table, unary.shape[1]
    if hubs is not None:
        hub_at, totals = hubs.at, total_messages(hubs, graph.incident_ptr, unary, weights, messages)
    else:
        totals = None
    rows = np.ones((3, BLOCK_SIZE + 3, n_states))
    cavities, scaled, new = rows[0], rows[1], rows[2]
    cavities_flat, scaled_flat, new_flat = cavities.reshape(-1), scaled.reshape(-1), new.reshape(-1)
    share, is_safe = np.empty((n_states, n_states)), np.zeros(BLOCK_SIZE, np.bool_)
    change = np.zeros(len(active))
    for example in range(len(active)):
        if not active[example]:
            continue
        largest = 0.0
        for block in range(example_ptr[example], example_ptr[example + 1]):
            start, n_sent = block_ptr[block], block_ptr[block + 1] - block_ptr[block]
            _block_cavities(updates, start, n_sent, unary, weights, messages, hubs, totals, cavities)
            if not maximise:
                exponentials(cavities_flat, padded_size(n_sent, n_states), scaled_flat)
                for at in range(n_sent):
                    message = updates[start + at, MESSAGE]
                    least = _sum(exp_tables, edge_exp_table[message >> 1], message & 1, scaled, new, at)
                    is_safe[at] = least > SMALL
                logarithms(new_flat, padded_size(n_sent, n_states))
            for at in range(n_sent):
                position, message = updates[start + at, POSITION], updates[start + at, MESSAGE]
                if not is_safe[at]:
                    table, power = edge_table[message >> 1], 1.0 / weights[position]
                    _log_sum(tables, table, message & 1, power, maximise, cavities, at, share, new)
                if hubs is not None:
                    hub = hub_at[position]
                    if hub >= 0:
                        remove_message(totals, hub, weights[position], messages, position)
                largest = replace_message(messages, position, new, at, n_states, damping, measure, largest)
                if hubs is not None:
                    if hub >= 0:
                        add_message(totals, hub, weights[position], messages, position)
        change[example] = largest
    return change


@vector_kernel
def sweep_vjp(schedule, graph, theta, hubs, damping, before, messages, active, d_messages, d_theta):
    """Reverse a sweep block by block, last first; `messages` ends as `before` (D13 Alg 3, step 8)."""
    updates, block_ptr, example_ptr, weights, exp_tables, edge_exp_table = schedule
    (unary, tables), (d_unary, d_tables) = theta, d_theta
    edge_table, n_states = graph.edge_table, unary.shape[1]
    if hubs is not None:
        hub_at, totals = hubs.at, total_messages(hubs, graph.incident_ptr, unary, weights, messages)
        # Derivatives of the totals, which those of the messages to a hub lack until they are used.
        d_totals = np.zeros((len(hubs.node), n_states))
    else:
        totals = None
    rows = np.ones((5, BLOCK_SIZE + 3, n_states))
    cavities, scaled, sums, d_new, d_cavity = rows[0], rows[1], rows[2], rows[3], rows[4]
    cavities_flat, scaled_flat = cavities.reshape(-1), scaled.reshape(-1)
    share = np.empty((n_states, n_states))
    for example in range(len(active)):
        if not active[example]:
            continue
        for block in range(example_ptr[example + 1] - 1, example_ptr[example] - 1, -1):
            start, n_sent = block_ptr[block], block_ptr[block + 1] - block_ptr[block]
            restore_messages(
                hubs, totals, weights, updates[start : start + n_sent, POSITION], before, messages
            )
            _block_cavities(updates, start, n_sent, unary, weights, messages, hubs, totals, cavities)
            exponentials(cavities_flat, padded_size(n_sent, n_states), scaled_flat)
            # Last first also within a block: a message may depend on the old value of a later one.
            for at in range(n_sent - 1, -1, -1):
                p = start + at
                node, first, end, own = updates[p, NODE], updates[p, FIRST], updates[p, END], updates[p, OWN]
                position, edge, side = updates[p, POSITION], updates[p, MESSAGE] >> 1, updates[p, MESSAGE] & 1
                table, exp_table, power = edge_table[edge], edge_exp_table[edge], 1.0 / weights[position]
                is_safe = _sum(exp_tables, exp_table, side, scaled, sums, at) > SMALL
                if not is_safe:
                    _log_sum(tables, table, side, power, False, cavities, at, share, sums)
                # The derivative of subtracting the maximum. In exact arithmetic the total is 0, but rounding
                # errors would grow from sweep to sweep.
                if hubs is not None:
                    hub = hub_at[position]
                    if hub >= 0:
                        shift_adjoint(d_totals, hub, weights[position], d_messages, position)
                total, top = 0.0, 0
                for x in range(n_states):
                    total += d_messages[position, x]
                    top = x if sums[at, x] > sums[at, top] else top
                for x in range(n_states):
                    d_new[at, x] = (1.0 - damping) * (d_messages[position, x] - (total if x == top else 0.0))
                    d_messages[position, x] *= damping
                if hubs is not None:
                    if hub >= 0:
                        shift_adjoint(d_totals, hub, -weights[position], d_messages, position)
                if is_safe:
                    for x in range(n_states):
                        d_new[at, x] /= sums[at, x]
                    _sum_vjp(exp_tables, exp_table, side, power, scaled, d_new, at, d_cavity, d_tables, table)
                else:
                    _log_sum_vjp(share, side, power, d_new, at, d_cavity, d_tables, table)
                is_hub = False
                if hubs is not None:
                    is_hub = end - first > MAX_DIRECT
                    if is_hub:
                        hub_cavity_vjp(d_totals, hub_at[first], own, d_cavity, at, d_messages)
                if not is_hub:
                    cavity_vjp(weights, node, first, end, own, d_cavity, at, d_messages, d_unary)
    if hubs is not None:
        spread_adjoints(hubs, graph.incident_ptr, weights, d_totals, d_messages, d_unary)


@vector_kernel
def marginals(graph, theta, weights, messages):
    """Compute the node marginals, D13 Eq 17; nan where no state is possible."""
    unary, incident_ptr = theta.unary, graph.incident_ptr
    beliefs, mu = np.empty_like(unary), np.empty_like(unary)
    for node in range(len(mu)):
        first, end = incident_ptr[node], incident_ptr[node + 1]
        cavity(unary, weights, messages, node, first, end, -1, beliefs, node)
    exponentials(beliefs.reshape(-1), beliefs.size, mu.reshape(-1))
    for node in range(len(mu)):
        total = 0.0
        for x in range(mu.shape[1]):
            total += mu[node, x]
        scale = 1.0 / total if total > 0 else np.nan
        for x in range(mu.shape[1]):
            mu[node, x] *= scale
    return mu


@vector_kernel
def marginals_vjp(graph, weights, mu, d_mu, d_messages, d_theta):
    incident_ptr, d_unary, d_belief = graph.incident_ptr, d_theta.unary, np.empty(mu.shape[1])
    for node in range(len(mu)):
        mean = 0.0
        for x in range(mu.shape[1]):
            mean += mu[node, x] * d_mu[node, x]
        for x in range(mu.shape[1]):
            d_belief[x] = mu[node, x] * (d_mu[node, x] - mean)
            d_unary[node, x] += d_belief[x]
        for q in range(incident_ptr[node], incident_ptr[node + 1]):
            for x in range(mu.shape[1]):
                d_messages[q, x] += weights[q] * d_belief[x]
