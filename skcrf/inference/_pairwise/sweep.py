"""Sweeps of messages on pairwise graphs, in the log domain: D13 Eq 18 and Algorithm 3.

Messages are rows by position, see `MessageSchedule`, with a maximum of 0. The loops use neither views nor
fields of tuples: counting references to these takes longer than the sums.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, vector_kernel
from skcrf.inference._pairwise.block import (
    block_sums,
    exponentials,
    gather,
    gather_vjp,
    log_sum,
    log_sum_vjp,
    logarithms,
    mark_safe,
    maxima_vjp,
    padded_size,
    restore_read,
    restore_sent,
    select_active,
    store,
    subtract_maxima,
    sums_of_one_table_vjp,
    sums_of_table_vjp,
)
from skcrf.inference._pairwise.entries import has_two_entries
from skcrf.inference._pairwise.hubs import (
    add_message,
    remove_message,
    shift_adjoint,
    spread_adjoints,
    total_messages,
)
from skcrf.inference._pairwise.potts import potts_sums_vjp
from skcrf.inference._pairwise.prefetch import AHEAD, MIN_BYTES
from skcrf.inference._pairwise.updates import BLOCK_SIZE, EXP_TABLE, MESSAGE, POSITION, TABLE


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
def sweep(schedule, graph, theta, hubs, damping, maximise, measure, messages, active):
    """Send every message of the active examples once, block by block; `hubs` is of `hubs_of`.

    If `measure`, returns the largest change of a message per example, relative to its exponential: with
    strong potentials, tiny messages matter elsewhere.
    """
    updates, example, block_ptr, block_table, _, weights, exp_tables, _, _ = schedule
    unary, tables = theta
    n_states = unary.shape[1]
    if hubs is not None:
        hub_at, totals = hubs.at, total_messages(hubs, graph.incident_ptr, unary, weights, messages)
    else:
        totals = None
    rows, top = np.ones((3, BLOCK_SIZE * n_states + 3)), np.empty(BLOCK_SIZE)
    cavities, scaled, new = rows[0], rows[1], rows[2]
    share, sent = np.empty((n_states, n_states)), np.empty(BLOCK_SIZE, np.int64)
    is_safe = np.zeros(BLOCK_SIZE, np.bool_)
    change, is_plain = np.zeros(len(active)), hubs is None and damping == 0.0 and not measure
    ahead = AHEAD if messages.nbytes > MIN_BYTES else 0
    for block in range(len(block_table)):
        n = select_active(active, example, block_ptr[block], block_ptr[block + 1], sent)
        if n == 0:
            continue
        gather(updates, sent, n, unary, weights, messages, hubs, totals, cavities, ahead)
        if not maximise:
            block_sums(updates, sent, n, block_table[block], exp_tables, n_states, cavities, scaled, new, top)
            mark_safe(new, n_states, n, is_safe)
            logarithms(new, padded_size(n, n_states))
        for at in range(n):
            if not is_safe[at]:
                p = sent[at]
                power, table, side = (
                    1.0 / weights[updates[p, POSITION]],
                    updates[p, TABLE],
                    updates[p, MESSAGE] & 1,
                )
                log_sum(tables, table, side, power, maximise, cavities, n, at, share, new)
        subtract_maxima(new, n_states, n, top)
        if is_plain:
            for at in range(n):
                position = updates[sent[at], POSITION]
                for x in range(n_states):
                    messages[position, x] = new[x * n + at]
            continue
        for at in range(n):
            p = sent[at]
            position = updates[p, POSITION]
            if hubs is not None:
                hub = hub_at[position]
                if hub >= 0:
                    remove_message(totals, hub, weights[position], messages, position)
            largest = change[example[p]]
            change[example[p]] = store(messages, position, new, n, at, damping, measure, largest)
            if hubs is not None:
                if hub >= 0:
                    add_message(totals, hub, weights[position], messages, position)
    return change


@vector_kernel
def sweep_vjp(schedule, graph, theta, hubs, damping, before, messages, active, d_messages, adjoint):
    """Reverse a sweep block by block, last first, changing `messages` (D13 Alg 3, step 8)."""
    updates, example, block_ptr, block_table, sent_at, weights, exp_tables, _, _ = schedule
    (unary, tables), (d_unary, d_tables, products) = theta, adjoint
    n_states = unary.shape[1]
    if hubs is not None:
        hub_at, totals = hubs.at, total_messages(hubs, graph.incident_ptr, unary, weights, messages)
        # Derivatives of the totals, which those of the messages to a hub lack until they are used.
        d_totals = np.zeros((len(hubs.node), n_states))
    else:
        totals, d_totals = None, None
    rows, top = np.ones((5, BLOCK_SIZE * n_states + 3)), np.empty(BLOCK_SIZE)
    cavities, scaled, sums, d_sums, d_cavities = rows[0], rows[1], rows[2], rows[3], rows[4]
    shares, sent = np.empty((BLOCK_SIZE, n_states, n_states)), np.empty(BLOCK_SIZE, np.int64)
    is_safe, best = np.empty(BLOCK_SIZE, np.bool_), np.empty(BLOCK_SIZE, np.int64)
    ahead = -BLOCK_SIZE if messages.nbytes > MIN_BYTES else 0
    for block in range(len(block_table) - 1, -1, -1):
        n = select_active(active, example, block_ptr[block], block_ptr[block + 1], sent)
        if n == 0:
            continue
        kind = block_table[block]
        if hubs is not None:
            restore_sent(hubs, totals, weights, updates, sent, n, before, messages)
        else:
            restore_read(updates, sent, n, sent_at, before, messages, ahead)
        gather(updates, sent, n, unary, weights, messages, hubs, totals, cavities, ahead)
        block_sums(updates, sent, n, kind, exp_tables, n_states, cavities, scaled, sums, top)
        all_safe = mark_safe(sums, n_states, n, is_safe)
        for at in range(n):
            p = sent[at]
            position, table, side = updates[p, POSITION], updates[p, TABLE], updates[p, MESSAGE] & 1
            if not is_safe[at]:
                power = 1.0 / weights[position]
                log_sum(tables, table, side, power, False, cavities, n, at, shares[at], sums)
            if hubs is not None:
                hub = hub_at[position]
                if hub >= 0:
                    shift_adjoint(d_totals, hub, weights[position], d_messages, position)
            for x in range(n_states):
                d_sums[x * n + at] = d_messages[position, x]
                d_messages[position, x] *= damping
            if hubs is not None:
                if hub >= 0:
                    shift_adjoint(d_totals, hub, -weights[position], d_messages, position)
        maxima_vjp(sums, is_safe, n_states, n, 1.0 - damping, top, best, d_sums)
        is_potts = has_two_entries(exp_tables)
        if is_potts:
            potts_sums_vjp(
                updates, sent, n, is_safe, exp_tables, n_states, scaled, d_sums, d_cavities, products
            )
        elif all_safe and kind >= 0:
            sums_of_one_table_vjp(exp_tables, kind, n_states, scaled, d_sums, d_cavities, products)
        if not all_safe or (kind < 0 and not is_potts):
            for at in range(n):
                p = sent[at]
                side = updates[p, MESSAGE] & 1
                if is_safe[at] and not is_potts:
                    exp_table = updates[p, EXP_TABLE]
                    sums_of_table_vjp(
                        exp_tables, exp_table, side, n_states, n, at, scaled, d_sums, d_cavities, products
                    )
                elif not is_safe[at]:
                    power, table = 1.0 / weights[updates[p, POSITION]], updates[p, TABLE]
                    log_sum_vjp(shares[at], side, power, d_sums, n, at, d_cavities, d_tables, table)
        gather_vjp(updates, sent, n, weights, hubs, d_totals, d_cavities, d_messages, d_unary, ahead)
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
