"""Messages along junction trees, and their derivatives.

Towards the roots, a clique's table is the sum of its summands in the log domain. Sending the message leaves
the conditional distribution of the nodes eliminated there given the separator; where a clique maximises, it
is one at the best states and zero elsewhere. Back from the roots, the marginals of a clique are its
conditional distribution times the marginals of its separator. So there are no differences of large numbers,
and sums, maxima and temperatures in between differ in one function only.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_exp, vector_kernel


class Offsets(NamedTuple):
    """Where the entries of each example start in flat arrays.

    Attributes
    ----------
    node_ptr, edge_ptr : ndarray of shape (n_examples + 1,)
        Where nodes and factors start.
    theta : ndarray of shape (n_nodes + n_edges,)
        Where the potentials of each node and factor start, given the states of nodes with one possible state.
    mu : ndarray of shape (n_nodes + n_edges,)
        Where the marginals of each node and factor start, likewise.
    tables, seps : ndarray of shape (n_examples,)
        Where the tables and separators of the cliques start.
    """

    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    theta: np.ndarray
    mu: np.ndarray
    tables: np.ndarray
    seps: np.ndarray


@kernel
def pass_messages(tree, offsets, examples, temperature, theta, tables, seps, log_z, mu):
    """Send messages to the roots and back in the given examples.

    `temperature` has one value per elimination group. The derivative needs `tables` and `seps`.
    """
    work = _workspace(tree)
    for example in examples:
        log_z[example] = 0.0
        for q in range(len(tree.group)):
            table, message = _table(tree, offsets, example, q, tables), _sep(tree, offsets, example, q, seps)
            _add_summands(tree, offsets, example, q, offsets.theta, theta, seps, table, work)
            tau = temperature[tree.group[q]]
            if tau == 0.0:
                _maximise(table, message)
            else:
                _sum_out(table, message, tau)
            if tree.is_root[q]:
                log_z[example] += message[0]
                message[0] = 1.0
        if log_z[example] == -np.inf:
            continue  # no configuration is possible
        for q in range(len(tree.group) - 1, -1, -1):
            table, p = _table(tree, offsets, example, q, tables), _sep(tree, offsets, example, q, seps)
            _normalise(p)
            _sum_to_summands(tree, offsets, example, q, offsets.mu, mu, seps, table, p, work)


@kernel
def pass_messages_vjp(tree, offsets, examples, temperature, tables, seps, d_mu, d_log_z, d_theta):
    """Add the vector-Jacobian product of `pass_messages` to `d_theta`.

    Marginals are the derivative of log_z, so their Jacobian is symmetric: the product is the change of the
    marginals along `d_mu`, for which derivatives are propagated in the order of the messages.
    """
    work = _workspace(tree)
    d_tables, d_seps = np.empty(tree.table_ptr[-1]), np.empty(tree.sep_ptr[-1])
    one, zeros = np.ones(1), np.zeros_like(offsets.tables)
    here = Offsets(offsets.node_ptr, offsets.edge_ptr, offsets.theta, offsets.mu, zeros, zeros)
    for example in examples:
        for q in range(len(tree.group)):
            table = _table(tree, offsets, example, q, tables)
            d_table = _table(tree, here, example, q, d_tables)
            d_message = _sep(tree, here, example, q, d_seps)
            _add_summands(tree, here, example, q, offsets.mu, d_mu, d_seps, d_table, work)
            _sum_out_vjp(table, temperature[tree.group[q]], d_table, d_message)
            if tree.is_root[q]:
                d_message[0] = d_log_z[example]  # from here on, d_seps holds the change of the marginals
        for q in range(len(tree.group) - 1, -1, -1):
            table, p = _table(tree, offsets, example, q, tables), _sep(tree, offsets, example, q, seps)
            d_table, d_p = _table(tree, here, example, q, d_tables), _sep(tree, here, example, q, d_seps)
            _scale_rows_vjp(table, p, d_table, d_p)
            _sum_to_summands(tree, here, example, q, offsets.theta, d_theta, d_seps, d_table, one, work)


@kernel
def _workspace(tree):
    """Allocate offsets and states of outer axes, the number one, a block, and a table without an axis."""
    longest, largest = 1, 1
    for q in range(len(tree.group)):
        inner = 1
        for axis in range(tree.axis_ptr[q] + tree.n_outer[q], tree.axis_ptr[q + 1]):
            inner *= tree.axis_card[axis]
        longest = max(longest, inner + tree.n_outer[q])
        if tree.axis_ptr[q] < tree.axis_ptr[q + 1]:
            size = tree.table_ptr[q + 1] - tree.table_ptr[q]
            largest = max(largest, size // tree.axis_card[tree.axis_ptr[q]])
    return np.empty(longest, np.int64), np.ones(1), np.empty(longest), np.empty(largest)


@inlined_kernel
def _table(tree, offsets, example, q, tables):
    first = offsets.tables[example]
    return tables[first + tree.table_ptr[q] : first + tree.table_ptr[q + 1]]


@inlined_kernel
def _sep(tree, offsets, example, q, seps):
    first = offsets.seps[example]
    return seps[first + tree.sep_ptr[q] : first + tree.sep_ptr[q + 1]]


# Summands of tables. A summand does not depend on the axes before its level, so it is added before the table
# is repeated along them, and read after the table is summed over them.


@inlined_kernel
def _add_summands(tree, offsets, example, q, start, values, seps, table, work):
    """Compute a table as the sum of its summands."""
    first_axis, axis, size = tree.axis_ptr[q], tree.axis_ptr[q + 1], 1
    table[0] = 0.0
    for index in range(tree.summand_ptr[q], tree.summand_ptr[q + 1]):
        while axis > first_axis + tree.level[index]:
            axis -= 1
            size = _repeat(table, size, tree.axis_card[axis])
        is_term, at = _find(tree, offsets, example, tree.summand[index], start)
        strides = tree.stride[tree.stride_ptr[index] + axis - first_axis : tree.stride_ptr[index + 1]]
        cards = tree.axis_card[axis : tree.axis_ptr[q + 1]]
        n_outer = max(tree.n_outer[q] - (axis - first_axis), 0)
        _add_broadcast(cards, n_outer, strides, values if is_term else seps, at, table[:size], work[0])
    while axis > first_axis:
        axis -= 1
        size = _repeat(table, size, tree.axis_card[axis])


@inlined_kernel
def _sum_to_summands(tree, offsets, example, q, start, values, seps, table, p, work):
    """Add a table, its rows multiplied by `p`, to its summands, summing over the axes that they lack."""
    offset, one, block, scratch = work
    first_axis, axis, weights = tree.axis_ptr[q], tree.axis_ptr[q], p
    for index in range(tree.summand_ptr[q + 1] - 1, tree.summand_ptr[q] - 1, -1):
        is_term, at = _find(tree, offsets, example, tree.summand[index], start)
        if is_term and at >= len(values):
            continue  # edge marginals, which are not wanted
        while axis < first_axis + tree.level[index]:
            size = len(table) // tree.axis_card[axis]
            if axis == first_axis:
                _sum_first_axis(table, p, scratch[:size], block)
                weights = one
            else:
                _sum_first_axis_in_place(table, size)
            table = scratch[:size]
            axis += 1
        if not is_term:
            child = tree.summand[index] - _n_terms(tree, offsets, example)
            seps[at : at + tree.sep_ptr[child + 1] - tree.sep_ptr[child]] = 0.0
        strides = tree.stride[tree.stride_ptr[index] + axis - first_axis : tree.stride_ptr[index + 1]]
        cards = tree.axis_card[axis : tree.axis_ptr[q + 1]]
        n_outer = max(tree.n_outer[q] - (axis - first_axis), 0)
        _add_reduced(cards, n_outer, strides, values if is_term else seps, at, table, weights, offset, block)


@vector_kernel
def _repeat(table, size, times):
    """Repeat the first entries of a table; returns the new size."""
    for x in range(1, times):
        for i in range(size):
            table[x * size + i] = table[i]
    return size * times


@vector_kernel
def _sum_first_axis(table, p, out, block):
    """Sum a table, its rows multiplied by `p`, over its first axis."""
    out[:] = 0.0
    for start in range(0, len(table), len(out)):
        for first in range(0, len(out), len(block)):
            part = block[: min(len(block), len(out) - first)]
            _scale_rows(table, p, start + first, part)
            for i in range(len(part)):
                out[first + i] += part[i]


@vector_kernel
def _sum_first_axis_in_place(table, size):
    """Sum a table over its first axis, in place."""
    for start in range(size, len(table), size):
        for i in range(size):
            table[i] += table[start + i]


@inlined_kernel
def _n_terms(tree, offsets, example):
    return tree.n_nodes[0] + offsets.edge_ptr[example + 1] - offsets.edge_ptr[example]


@inlined_kernel
def _find(tree, offsets, example, summand, start):
    """Return whether a summand is a term, and where it starts."""
    n_nodes, n_terms = tree.n_nodes[0], _n_terms(tree, offsets, example)
    if summand < n_nodes:
        at = start[offsets.node_ptr[example] + summand]
    elif summand < n_terms:
        at = start[offsets.node_ptr[-1] + offsets.edge_ptr[example] + summand - n_nodes]
    else:
        at = offsets.seps[example] + tree.sep_ptr[summand - n_terms]
    return summand < n_terms, at


@kernel
def _add_broadcast(cards, n_outer, strides, values, at, table, offset):
    """Add a smaller table, which starts at `at`, to a table that has more axes."""
    inner = _list_offsets(cards, n_outer, strides, offset)
    state = offset[inner : inner + n_outer]
    for axis in range(n_outer):
        state[axis] = 0
    for first in range(0, len(table), inner):
        for i in range(inner):
            table[first + i] += values[at + offset[i]]
        at = _advance(cards, strides, state, at)


@kernel
def _add_reduced(cards, n_outer, strides, values, at, table, p, offset, block):
    """Add a table, its rows multiplied by `p`, to a smaller one, which starts at `at`, with fewer axes."""
    inner = _list_offsets(cards, n_outer, strides, offset)
    state = offset[inner : inner + n_outer]
    for axis in range(n_outer):
        state[axis] = 0
    for first in range(0, len(table), inner):
        _scale_rows(table, p, first, block[:inner])
        for i in range(inner):
            values[at + offset[i]] += block[i]
        at = _advance(cards, strides, state, at)


@kernel
def _list_offsets(cards, n_outer, strides, offset):
    """List the offsets in a smaller table of the entries along the inner axes; returns their number."""
    offset[0], count = 0, 1
    for axis in range(len(cards) - 1, n_outer - 1, -1):
        for i in range(count, count * cards[axis]):
            offset[i] = offset[i - count] + strides[axis]
        count *= cards[axis]
    return count


@kernel
def _advance(cards, strides, state, at):
    """Go to the next state of the outer axes, the last one fastest; returns its place in a smaller table."""
    for axis in range(len(state) - 1, -1, -1):
        state[axis] += 1
        at += strides[axis]
        if state[axis] < cards[axis]:
            break
        at -= strides[axis] * cards[axis]
        state[axis] = 0
    return at


# Tables have one row per state of the separator.


@kernel
def _maximise(table, message):
    """Send the maximum of each row, and leave one at its first maximum and zeros elsewhere."""
    size = len(table) // len(message)
    for s in range(len(message)):
        best = s * size
        for i in range(s * size + 1, (s + 1) * size):
            if table[i] > table[best]:
                best = i
        message[s] = table[best]
        table[s * size : (s + 1) * size] = 0.0
        table[best] = 1.0


@vector_kernel
def _sum_out(table, message, tau):
    """Send tau log sum exp(. / tau) of each row, and leave its softmax, or zeros."""
    size, scale = len(table) // len(message), 1.0 / tau
    for s in range(len(message)):
        row = table[s * size : (s + 1) * size]
        top = -np.inf
        for i in range(size):
            top = max(top, row[i])
        shift, total = top if top > -np.inf else 0.0, 0.0
        for i in range(size):
            row[i] = vector_exp((row[i] - shift) * scale)
        for i in range(size):
            total += row[i]
        message[s] = top + tau * np.log(total) if total > 0.0 else -np.inf
        share = 1.0 / total if total > 0.0 else 0.0
        for i in range(size):
            row[i] *= share


@kernel
def _sum_out_vjp(table, tau, d_table, d_message):
    """Send the derivative of messages, and leave that of the log-probabilities; 0 for maxima."""
    size, scale = len(table) // len(d_message), 1.0 / tau if tau > 0.0 else 0.0
    for s in range(len(d_message)):
        mean = 0.0
        for i in range(s * size, (s + 1) * size):
            if table[i] != 0.0:  # elsewhere d_table may be infinite
                mean += table[i] * d_table[i]
        d_message[s] = mean
        for i in range(s * size, (s + 1) * size):
            d_table[i] = (d_table[i] - mean) * scale if table[i] != 0.0 else 0.0


@kernel
def _normalise(p):
    """Normalise to a sum of 1, so that rounding errors do not grow along long chains."""
    total = p.sum()
    for s in range(len(p)):
        p[s] = p[s] / total if total > 0.0 else 0.0


@vector_kernel
def _scale_rows(table, p, first, out):
    """Copy entries of a table, from the first on, each row multiplied by its value of `p`."""
    size = len(table) // len(p)
    s, i = first // size, 0
    while i < len(out):
        end = min((s + 1) * size - first, len(out))
        for j in range(i, end):
            out[j] = table[first + j] * p[s]
        s, i = s + 1, end


@vector_kernel
def _scale_rows_vjp(table, p, d_table, d_p):
    """Turn derivatives of log-probabilities into derivatives of marginals."""
    size = len(table) // len(p)
    for s in range(len(p)):
        if p[s] == 0.0:  # derivatives of impossible states may be infinite
            d_table[s * size : (s + 1) * size] = 0.0
            continue
        for i in range(s * size, (s + 1) * size):
            d_table[i] = table[i] * (d_p[s] + p[s] * d_table[i])
