"""Blocks of messages that do not depend on each other, computed together.

Scratch arrays are flat: state x of message `at` of n is number ``x * n + at``, so that most loops run over
all messages of a block. Only the messages to a source are read one by one.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_exp, vector_kernel, vector_log
from skcrf.inference._lattice.vector import WIDTH, address, load, number, put
from skcrf.inference._lattice.vector import store as store_vector
from skcrf.inference._lattice.vector import total as total_of
from skcrf.inference._pairwise.entries import add_to_entry, entry, has_two_entries
from skcrf.inference._pairwise.hubs import MAX_DIRECT, add_message, hub_cavity, hub_cavity_vjp, remove_message
from skcrf.inference._pairwise.potts import potts_sums
from skcrf.inference._pairwise.prefetch import prefetch_row, prefetch_update
from skcrf.inference._pairwise.updates import BLOCK_SIZE, END, EXP_TABLE, FIRST, MESSAGE, NODE, OWN, POSITION

#: Sums of exponentials below this are computed again in the log domain: below 1e-304 exponentials are lost.
SMALL = 1e-200


@vector_kernel
def exponentials(values, n, out):
    for i in range(n):
        out[i] = vector_exp(values[i])


@vector_kernel
def logarithms(values, n):
    for i in range(n):
        values[i] = vector_log(values[i])


@inlined_kernel
def padded_size(n_rows, n_states):
    """Compute the number of values in some rows, rounded up to whole vectors."""
    return 4 * ((n_rows * n_states + 3) // 4)


@kernel
def _cavity_of_impossible(unary, weights, messages, node, first, end, own, n, at, out):
    """Compute a cavity where messages or potentials forbid states."""
    for x in range(unary.shape[1]):
        value = unary[node, x]
        for q in range(first, end):
            weight = weights[q] - (q == own)
            # Impossible states stay impossible, also where rho - 1 is negative; not where it is 0.
            if weight != 0.0:
                value += weight * messages[q, x] if messages[q, x] > -np.inf else -np.inf
        out[x * n + at] = value


@inlined_kernel
def _four_of_cavity(unary, weights, messages, node, first, end, own, x, out, at, n):
    """Compute four entries of a cavity in registers; returns nan if one is infinite, else 0."""
    v0, v1 = unary[node, x] - messages[own, x], unary[node, x + 1] - messages[own, x + 1]
    v2, v3 = unary[node, x + 2] - messages[own, x + 2], unary[node, x + 3] - messages[own, x + 3]
    for q in range(first, end):
        weight = weights[q]
        v0 += weight * messages[q, x]
        v1 += weight * messages[q, x + 1]
        v2 += weight * messages[q, x + 2]
        v3 += weight * messages[q, x + 3]
    out[x * n + at], out[(x + 1) * n + at], out[(x + 2) * n + at], out[(x + 3) * n + at] = v0, v1, v2, v3
    return (v0 - v0) + (v1 - v1) + (v2 - v2) + (v3 - v3)


@inlined_kernel
def _two_of_cavity(unary, weights, messages, node, first, end, own, x, out, at, n):
    """Compute two entries of a cavity as `_four_of_cavity` does."""
    v0, v1 = unary[node, x] - messages[own, x], unary[node, x + 1] - messages[own, x + 1]
    for q in range(first, end):
        weight = weights[q]
        v0 += weight * messages[q, x]
        v1 += weight * messages[q, x + 1]
    out[x * n + at], out[(x + 1) * n + at] = v0, v1
    return (v0 - v0) + (v1 - v1)


@inlined_kernel
def _one_of_cavity(unary, weights, messages, node, first, end, own, x, out, at, n):
    value = unary[node, x] - messages[own, x]
    for q in range(first, end):
        value += weights[q] * messages[q, x]
    out[x * n + at] = value
    return value - value


@vector_kernel
def gather(updates, sent, n, unary, weights, messages, hubs, totals, out, ahead):
    """Compute the cavities of a block, up to constants; prefetches those `ahead`, if not 0."""
    n_states = unary.shape[1]
    if hubs is not None:
        row = np.empty((1, n_states))
    for at in range(n):
        p = sent[at]
        if ahead != 0:
            prefetch_update(updates, p + ahead, unary, weights, messages)
        node, own = np.uint32(updates[p, NODE]), np.uint32(updates[p, OWN])
        first, end = np.uint32(updates[p, FIRST]), np.uint32(updates[p, END])
        is_hub = False
        if hubs is not None:
            is_hub = end - first > MAX_DIRECT
            if is_hub:
                hub_cavity(totals, hubs.at[first], weights[own], messages, own, row, 0)
                for x in range(n_states):
                    out[x * n + at] = row[0, x]
        if not is_hub:
            x, check = 0, 0.0
            while x + 3 < n_states:
                check += _four_of_cavity(unary, weights, messages, node, first, end, own, x, out, at, n)
                x += 4
            if x + 1 < n_states:
                check += _two_of_cavity(unary, weights, messages, node, first, end, own, x, out, at, n)
                x += 2
            if x < n_states:
                check += _one_of_cavity(unary, weights, messages, node, first, end, own, x, out, at, n)
            if check != 0.0:
                _cavity_of_impossible(unary, weights, messages, node, first, end, own, n, at, out)


@inlined_kernel
def _add_to_four(weights, node, first, end, own, x, d_cavities, at, n, d_messages, d_unary):
    d0, d1 = d_cavities[x * n + at], d_cavities[(x + 1) * n + at]
    d2, d3 = d_cavities[(x + 2) * n + at], d_cavities[(x + 3) * n + at]
    d_unary[node, x] += d0
    d_unary[node, x + 1] += d1
    d_unary[node, x + 2] += d2
    d_unary[node, x + 3] += d3
    d_messages[own, x] -= d0
    d_messages[own, x + 1] -= d1
    d_messages[own, x + 2] -= d2
    d_messages[own, x + 3] -= d3
    for q in range(first, end):
        weight = weights[q]
        d_messages[q, x] += weight * d0
        d_messages[q, x + 1] += weight * d1
        d_messages[q, x + 2] += weight * d2
        d_messages[q, x + 3] += weight * d3


@inlined_kernel
def _add_to_two(weights, node, first, end, own, x, d_cavities, at, n, d_messages, d_unary):
    d0, d1 = d_cavities[x * n + at], d_cavities[(x + 1) * n + at]
    d_unary[node, x] += d0
    d_unary[node, x + 1] += d1
    d_messages[own, x] -= d0
    d_messages[own, x + 1] -= d1
    for q in range(first, end):
        weight = weights[q]
        d_messages[q, x] += weight * d0
        d_messages[q, x + 1] += weight * d1


@inlined_kernel
def _add_to_one(weights, node, first, end, own, x, d_cavities, at, n, d_messages, d_unary):
    d = d_cavities[x * n + at]
    d_unary[node, x] += d
    d_messages[own, x] -= d
    for q in range(first, end):
        d_messages[q, x] += weights[q] * d


@vector_kernel
def gather_vjp(updates, sent, n, weights, hubs, d_totals, d_cavities, d_messages, d_unary, ahead):
    """Add the derivatives of cavities to those of messages and unary potentials."""
    n_states = d_unary.shape[1]
    if hubs is not None:
        row = np.empty((1, n_states))
    for at in range(n):
        p = sent[at]
        if ahead != 0:
            prefetch_update(updates, p + ahead, d_unary, weights, d_messages)
        node, own = np.uint32(updates[p, NODE]), np.uint32(updates[p, OWN])
        first, end = np.uint32(updates[p, FIRST]), np.uint32(updates[p, END])
        is_hub = False
        if hubs is not None:
            is_hub = end - first > MAX_DIRECT
            if is_hub:
                for x in range(n_states):
                    row[0, x] = d_cavities[x * n + at]
                hub_cavity_vjp(d_totals, hubs.at[first], own, row, 0, d_messages)
        if not is_hub:
            x = 0
            while x + 3 < n_states:
                _add_to_four(weights, node, first, end, own, x, d_cavities, at, n, d_messages, d_unary)
                x += 4
            if x + 1 < n_states:
                _add_to_two(weights, node, first, end, own, x, d_cavities, at, n, d_messages, d_unary)
                x += 2
            if x < n_states:
                _add_to_one(weights, node, first, end, own, x, d_cavities, at, n, d_messages, d_unary)


@vector_kernel
def subtract_maxima(values, n_states, n, top):
    """Subtract from each column its maximum, unless that is -inf."""
    for at in range(n):
        top[at] = values[at]
    for x in range(1, n_states):
        for at in range(n):
            top[at] = max(top[at], values[x * n + at])
    for at in range(n):
        top[at] = top[at] if top[at] > -np.inf else 0.0
    for x in range(n_states):
        for at in range(n):
            values[x * n + at] -= top[at]


@vector_kernel
def _sums_of_one_table(exp_tables, kind, n_states, scaled, sums):
    """Sum over the states of the sources of a full block, with the same table and side for all messages."""
    tables, values, out = address(exp_tables), address(scaled), address(sums)
    start = n_states * n_states * (kind >> 1)
    row, column = (n_states, 1) if kind & 1 == 0 else (1, n_states)
    for at in range(0, BLOCK_SIZE, WIDTH):
        for x in range(n_states):
            first = start + x * row
            result = number(tables, first) * load(values, at)
            for z in range(1, n_states):
                result = result + number(tables, first + z * column) * load(values, z * BLOCK_SIZE + at)
            store_vector(result, out, x * BLOCK_SIZE + at)


@vector_kernel
def sums_of_one_table_vjp(exp_tables, kind, n_states, scaled, d_sums, d_cavities, products):
    tables, values, d_values, out = address(exp_tables), address(scaled), address(d_sums), address(d_cavities)
    d_tables, start = address(products), n_states * n_states * (kind >> 1)
    row, column = (n_states, 1) if kind & 1 == 0 else (1, n_states)
    for at in range(0, BLOCK_SIZE, WIDTH):
        for z in range(n_states):
            first = start + z * column
            result = number(tables, first) * load(d_values, at)
            for x in range(1, n_states):
                result = result + number(tables, first + x * row) * load(d_values, x * BLOCK_SIZE + at)
            store_vector(result * load(values, z * BLOCK_SIZE + at), out, z * BLOCK_SIZE + at)
    for x in range(n_states):
        for z in range(n_states):
            entry = start + x * row + z * column
            product = load(d_values, x * BLOCK_SIZE) * load(values, z * BLOCK_SIZE)
            for at in range(WIDTH, BLOCK_SIZE, WIDTH):
                product = product + load(d_values, x * BLOCK_SIZE + at) * load(values, z * BLOCK_SIZE + at)
            put(number(d_tables, entry) + total_of(product), d_tables, entry)


@vector_kernel
def _sums_of_tables(updates, sent, n, exp_tables, scaled, sums):
    """Sum over the states of the sources; 0 for messages without an `EXP_TABLE`."""
    n_states = exp_tables.shape[1]
    for at in range(n):
        table, side = updates[sent[at], EXP_TABLE], updates[sent[at], MESSAGE] & 1
        if table < 0:
            for x in range(n_states):
                sums[x * n + at] = 0.0
        elif side == 0:
            for x in range(n_states):
                total = 0.0
                for z in range(n_states):
                    total += exp_tables[table, x, z] * scaled[z * n + at]
                sums[x * n + at] = total
        else:
            for x in range(n_states):
                total = 0.0
                for z in range(n_states):
                    total += exp_tables[table, z, x] * scaled[z * n + at]
                sums[x * n + at] = total


@vector_kernel
def mark_safe(sums, n_states, n, is_safe):
    """Find the messages without small sums; returns whether these are all."""
    least = sums[0]
    for i in range(n_states * n):
        least = min(least, sums[i])
    for at in range(n):
        is_safe[at] = least > SMALL
        if not is_safe[at]:
            least_of_one = sums[at]
            for x in range(n_states):
                least_of_one = min(least_of_one, sums[x * n + at])
            is_safe[at] = least_of_one > SMALL
    return least > SMALL


@vector_kernel
def block_sums(updates, sent, n, kind, exp_tables, n_states, cavities, scaled, sums, top):
    """Compute the sums of all messages of a block."""
    subtract_maxima(cavities, n_states, n, top)
    exponentials(cavities, padded_size(n, n_states), scaled)
    if has_two_entries(exp_tables):
        potts_sums(updates, sent, n, exp_tables, n_states, scaled, sums)
    elif kind >= 0 and n == BLOCK_SIZE:
        _sums_of_one_table(exp_tables, kind, n_states, scaled, sums)
    else:
        _sums_of_tables(updates, sent, n, exp_tables, scaled, sums)


@kernel
def log_sum(tables, table, side, power, maximise, cavities, n, at, share, out):
    """Compute one message in the log domain, and the share of each state of the source in it."""
    n_states = len(share)
    for x_target in range(n_states):
        best = 0
        for x in range(n_states):
            i, j = (x_target, x) if side == 0 else (x, x_target)
            theta = entry(tables, table, i, j)
            share[x_target, x] = power * theta + cavities[x * n + at]
            if share[x_target, x] > share[x_target, best]:
                best = x
        top = share[x_target, best]
        out[x_target * n + at] = top
        if not maximise and top > -np.inf:
            total = 1.0
            for x in range(n_states):
                if x == best:
                    share[x_target, x] = 1.0
                else:
                    share[x_target, x] = np.exp(share[x_target, x] - top)
                    total += share[x_target, x]
            out[x_target * n + at] += np.log(total)
            for x in range(n_states):
                share[x_target, x] /= total
        elif not maximise:
            share[x_target] = 0.0


@kernel
def log_sum_vjp(share, side, power, d_out, n, at, d_cavities, d_tables, table):
    for x in range(len(share)):
        d_cavities[x * n + at] = 0.0
    for x_target in range(len(share)):
        for x in range(len(share)):
            d_value = d_out[x_target * n + at] * share[x_target, x]
            d_cavities[x * n + at] += d_value
            i, j = (x_target, x) if side == 0 else (x, x_target)
            add_to_entry(d_tables, table, i, j, power * d_value)


@inlined_kernel
def sums_of_table_vjp(exp_tables, table, side, n_states, n, at, scaled, d_sums, d_cavities, products):
    for x in range(n_states):
        total, factor = 0.0, scaled[x * n + at]
        if side == 0:
            for z in range(n_states):
                d = d_sums[z * n + at]
                total += exp_tables[table, z, x] * d
                products[table, z, x] += d * factor
        else:
            for z in range(n_states):
                d = d_sums[z * n + at]
                total += exp_tables[table, x, z] * d
                products[table, x, z] += d * factor
        d_cavities[x * n + at] = total * factor


@inlined_kernel
def select_active(active, example, first, end, sent):
    """List the updates of a block that belong to active examples; returns their number."""
    n = 0
    for p in range(first, end):
        if active[example[p]]:
            sent[n] = p
            n += 1
    return n


@vector_kernel
def store(messages, position, new, n, at, damping, measure, largest):
    """Damp and store a message; returns the largest change if `measure`."""
    for x in range(messages.shape[1]):
        value = new[x * n + at]
        old = messages[position, x]
        # Before damping, which shortens the steps but not the distance to the fixed point.
        if measure and value != old and abs(value - old) > largest:
            largest = max(largest, 1.0 - np.exp(-abs(value - old)))
        messages[position, x] = (1.0 - damping) * value + damping * old if damping > 0 else value
    return largest


@vector_kernel
def maxima_vjp(sums, is_safe, n_states, n, scale, total, best, d_sums):
    """Pull the derivatives of messages back to their sums, or to their logarithms where these are not safe.

    In exact arithmetic the totals, the derivatives of subtracting the maximum, are 0, but rounding errors
    would grow from sweep to sweep. Overwrites the sums, which may be logarithms where they are not safe.
    """
    for at in range(n):
        total[at], best[at] = d_sums[at], 0
    for x in range(1, n_states):
        for at in range(n):
            total[at] += d_sums[x * n + at]
    for at in range(n):
        largest = sums[at]
        for x in range(1, n_states):
            best[at] = x if sums[x * n + at] > largest else best[at]
            largest = max(largest, sums[x * n + at])
        d_sums[best[at] * n + at] -= total[at]
        if not is_safe[at]:
            for x in range(n_states):
                sums[x * n + at] = 1.0
    for i in range(n_states * n):
        d_sums[i] = scale * d_sums[i] / sums[i]


@vector_kernel
def restore_read(updates, sent, n, sent_at, before, messages, ahead):
    """Replace the messages that a block reads by those before a sweep, where the sweep sent them later."""
    last = -1
    for at in range(n):
        p = sent[at]
        if ahead != 0 and p + ahead >= 0:
            prefetch_row(before, updates[p + ahead, FIRST])
            prefetch_row(before, updates[p + ahead, END] - 1)
        if updates[p, NODE] != last:
            last = updates[p, NODE]
            for q in range(updates[p, FIRST], updates[p, END]):
                if sent_at[q] > p:
                    for x in range(messages.shape[1]):
                        messages[q, x] = before[q, x]


@vector_kernel
def restore_sent(hubs, totals, weights, updates, sent, n, before, messages):
    """Replace the messages that a block sends by those before a sweep, also in the totals of hubs."""
    for at in range(n):
        position = updates[sent[at], POSITION]
        hub = hubs.at[position]
        if hub >= 0:
            remove_message(totals, hub, weights[position], messages, position)
            add_message(totals, hub, weights[position], before, position)
        for x in range(messages.shape[1]):
            messages[position, x] = before[position, x]


@vector_kernel
def add_products(graph, schedule, rho, products, d_tables):
    """Add the derivatives with respect to `exp_tables`, divided by these, to those of the tables."""
    exp_tables, first_edge = schedule.exp_tables, schedule.first_edge
    for row in range(len(exp_tables)):
        table, power = graph.edge_table[first_edge[row]], 1.0 / rho[first_edge[row]]
        for x in range(exp_tables.shape[1]):
            for z in range(exp_tables.shape[2]):
                d_tables[table, x, z] += power * exp_tables[row, x, z] * products[row, x, z]
