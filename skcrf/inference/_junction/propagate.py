"""Messages along junction trees, and their derivatives.

Towards the roots, tables are sums of potentials and messages, in the log domain; what is left of a table when
its message has been sent is the conditional distribution of the nodes that are eliminated there, given the
separator. Where a clique maximises, that is one at the best states and zero elsewhere. Back from the roots, a
clique's marginals are its conditional distribution times the marginals of its separator. So there are no
differences of large numbers, and sums, maxima and what is between them differ in one place alone.

All arrays of a batch are flat: `source` and `target` say where each term's potentials and marginals start.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_exp, vector_kernel


class Places(NamedTuple):
    """Where the things of each example of a batch stand.

    Attributes
    ----------
    node_ptr, edge_ptr : ndarray of shape (n_examples + 1,)
        Where nodes and factors start.
    source : ndarray of shape (n_nodes + n_edges,)
        Where the potentials of each node and of each factor start, given the nodes of one possible state.
    target : ndarray of shape (n_nodes + n_edges,)
        Where their marginals start.
    tables, seps : ndarray of shape (n_examples,)
        Where the tables and the separators start.
    """

    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    source: np.ndarray
    target: np.ndarray
    tables: np.ndarray
    seps: np.ndarray


@kernel
def pass_messages(tree, places, examples, temperature, theta, tables, seps, log_z, mu):
    """Send messages to the roots and back, in each of some examples; leaves what the derivative needs.

    `temperature` has that of each kind of node.
    """
    offset, space = _workspace(tree)
    for example in examples:
        log_z[example] = 0.0
        for q in range(len(tree.rest)):
            table, message = _table(tree, places, example, q, tables), _sep(tree, places, example, q, seps)
            _lay_parts(tree, places, example, q, places.source, theta, seps, table, offset)
            tau = temperature[tree.kind[q]]
            if tau == 0.0:
                _maximise(table, message)
            else:
                _sum_out(table, message, tau)
            if tree.is_root[q]:
                log_z[example] += message[0]
                message[0] = 1.0
        if log_z[example] == -np.inf:
            continue  # nothing is possible, and there are no marginals
        for q in range(len(tree.rest) - 1, -1, -1):
            table, p = _table(tree, places, example, q, tables), _sep(tree, places, example, q, seps)
            _normalise(p)
            _sum_parts(tree, places, example, q, places.target, mu, seps, table, p, offset, space)


@kernel
def pass_messages_vjp(tree, places, examples, temperature, tables, seps, d_mu, d_log_z, d_theta):
    """Add the vector-Jacobian product of `pass_messages` to `d_theta`.

    Marginals are the derivative of log_z, so that theirs is symmetric: the product is how much marginals
    change along `d_mu`, for which derivatives go the way of the messages.
    """
    offset, space = _workspace(tree)
    d_tables, d_seps = np.empty(tree.table_ptr[-1]), np.empty(tree.sep_ptr[-1])
    one, zeros = np.ones(1), np.zeros_like(places.tables)
    here = Places(places.node_ptr, places.edge_ptr, places.source, places.target, zeros, zeros)
    for example in examples:
        for q in range(len(tree.rest)):
            table = _table(tree, places, example, q, tables)
            d_table = _table(tree, here, example, q, d_tables)
            d_message = _sep(tree, here, example, q, d_seps)
            _lay_parts(tree, here, example, q, places.target, d_mu, d_seps, d_table, offset)
            _sum_out_vjp(table, temperature[tree.kind[q]], d_table, d_message)
            if tree.is_root[q]:
                d_message[0] = d_log_z[example]  # from here on, d_seps has what marginals change by
        for q in range(len(tree.rest) - 1, -1, -1):
            table, p = _table(tree, places, example, q, tables), _sep(tree, places, example, q, seps)
            d_table, d_p = _table(tree, here, example, q, d_tables), _sep(tree, here, example, q, d_seps)
            _weigh_vjp(table, p, d_table, d_p)
            _sum_parts(tree, here, example, q, places.source, d_theta, d_seps, d_table, one, offset, space)


@kernel
def _workspace(tree):
    """Room for a list of what stands where and the states of outer axes; a one, and two parts of a table."""
    longest, largest = 1, 1
    for q in range(len(tree.rest)):
        inner = 1
        for axis in range(tree.axis_ptr[q] + tree.n_outer[q], tree.axis_ptr[q + 1]):
            inner *= tree.axis_card[axis]
        longest = max(longest, inner + tree.n_outer[q])
        if tree.axis_ptr[q] < tree.axis_ptr[q + 1]:
            size = tree.table_ptr[q + 1] - tree.table_ptr[q]
            largest = max(largest, size // tree.axis_card[tree.axis_ptr[q]])
    return np.empty(longest, np.int64), (np.ones(1), np.empty(longest), np.empty(largest))


@inlined_kernel
def _table(tree, places, example, q, tables):
    first = places.tables[example]
    return tables[first + tree.table_ptr[q] : first + tree.table_ptr[q + 1]]


@inlined_kernel
def _sep(tree, places, example, q, seps):
    first = places.seps[example]
    return seps[first + tree.sep_ptr[q] : first + tree.sep_ptr[q + 1]]


# Parts of tables. A part does not depend on the axes before the first that it has, so that it is added, or
# read, where the table is still, or again, without them.


@inlined_kernel
def _lay_parts(tree, places, example, q, start, values, seps, table, offset):
    """Make a table of the terms and messages of its clique."""
    first_axis, axis, size = tree.axis_ptr[q], tree.axis_ptr[q + 1], 1
    table[0] = 0.0
    for number in range(tree.part_ptr[q], tree.part_ptr[q + 1]):
        while axis > first_axis + tree.level[number]:
            axis -= 1
            size = _repeat(table, size, tree.axis_card[axis])
        is_term, at = _find(tree, places, example, tree.part[number], start)
        strides = tree.stride[tree.stride_ptr[number] + axis - first_axis : tree.stride_ptr[number + 1]]
        cards = tree.axis_card[axis : tree.axis_ptr[q + 1]]
        n_outer = max(tree.n_outer[q] - (axis - first_axis), 0)
        _lay(cards, n_outer, strides, values if is_term else seps, at, table[:size], offset)
    while axis > first_axis:
        axis -= 1
        size = _repeat(table, size, tree.axis_card[axis])


@inlined_kernel
def _sum_parts(tree, places, example, q, start, values, seps, table, p, offset, space):
    """Sum a table, its rows multiplied by `p`, into the terms and messages of its clique."""
    one, block, scratch = space
    first_axis, axis, weights = tree.axis_ptr[q], tree.axis_ptr[q], p
    for number in range(tree.part_ptr[q + 1] - 1, tree.part_ptr[q] - 1, -1):
        is_term, at = _find(tree, places, example, tree.part[number], start)
        if is_term and at >= len(values):
            continue  # marginals that were not asked for
        while axis < first_axis + tree.level[number]:
            size = len(table) // tree.axis_card[axis]
            if axis == first_axis:
                _fold(table, p, scratch[:size], block)
                weights = one
            else:
                _fold_again(table, size)
            table = scratch[:size]
            axis += 1
        if not is_term:
            child = tree.part[number] - _n_terms(tree, places, example)
            seps[at : at + tree.sep_ptr[child + 1] - tree.sep_ptr[child]] = 0.0
        strides = tree.stride[tree.stride_ptr[number] + axis - first_axis : tree.stride_ptr[number + 1]]
        cards = tree.axis_card[axis : tree.axis_ptr[q + 1]]
        n_outer = max(tree.n_outer[q] - (axis - first_axis), 0)
        _sum(cards, n_outer, strides, values if is_term else seps, at, table, weights, offset, block)


@vector_kernel
def _repeat(table, size, times):
    """Repeat the start of a table; returns how long it is then."""
    for x in range(1, times):
        for i in range(size):
            table[x * size + i] = table[i]
    return size * times


@vector_kernel
def _fold(table, p, out, block):
    """Sum a table, its rows multiplied by `p`, over its first axis."""
    out[:] = 0.0
    for start in range(0, len(table), len(out)):
        for first in range(0, len(out), len(block)):
            part = block[: min(len(block), len(out) - first)]
            _weigh(table, p, start + first, part)
            for i in range(len(part)):
                out[first + i] += part[i]


@vector_kernel
def _fold_again(table, size):
    """Sum a table over its first axis, in place."""
    for start in range(size, len(table), size):
        for i in range(size):
            table[i] += table[start + i]


@inlined_kernel
def _n_terms(tree, places, example):
    return tree.n_nodes[0] + places.edge_ptr[example + 1] - places.edge_ptr[example]


@inlined_kernel
def _find(tree, places, example, part, start):
    """Whether a part is a term, and where it starts."""
    n_nodes, n_terms = tree.n_nodes[0], _n_terms(tree, places, example)
    if part < n_nodes:
        at = start[places.node_ptr[example] + part]
    elif part < n_terms:
        at = start[places.node_ptr[-1] + places.edge_ptr[example] + part - n_nodes]
    else:
        at = places.seps[example] + tree.sep_ptr[part - n_terms]
    return part < n_terms, at


@kernel
def _lay(cards, n_outer, strides, values, at, table, offset):
    """Add to each entry of a table the entry of a smaller one that it agrees with."""
    inner = _list_offsets(cards, n_outer, strides, offset)
    state = offset[inner : inner + n_outer]
    for axis in range(n_outer):
        state[axis] = 0
    for first in range(0, len(table), inner):
        for i in range(inner):
            table[first + i] += values[at + offset[i]]
        at = _step(cards, strides, state, at)


@kernel
def _sum(cards, n_outer, strides, values, at, table, p, offset, block):
    """Add each entry of a table, multiplied by `p`, to the entry of a smaller one that it agrees with."""
    inner = _list_offsets(cards, n_outer, strides, offset)
    state = offset[inner : inner + n_outer]
    for axis in range(n_outer):
        state[axis] = 0
    for first in range(0, len(table), inner):
        _weigh(table, p, first, block[:inner])
        for i in range(inner):
            values[at + offset[i]] += block[i]
        at = _step(cards, strides, state, at)


@kernel
def _list_offsets(cards, n_outer, strides, offset):
    """List where the entries along the inner axes stand in a smaller table; returns how many there are."""
    offset[0], count = 0, 1
    for axis in range(len(cards) - 1, n_outer - 1, -1):
        for i in range(count, count * cards[axis]):
            offset[i] = offset[i - count] + strides[axis]
        count *= cards[axis]
    return count


@kernel
def _step(cards, strides, state, at):
    """Count one further along some axes, the last one fastest; returns where that is in a smaller table."""
    for axis in range(len(state) - 1, -1, -1):
        state[axis] += 1
        at += strides[axis]
        if state[axis] < cards[axis]:
            break
        at -= strides[axis] * cards[axis]
        state[axis] = 0
    return at


# Tables: a row for each state of the separator


@kernel
def _maximise(table, message):
    """Send the largest entries of each row, and leave one at the first of them."""
    rest = len(table) // len(message)
    for s in range(len(message)):
        best = s * rest
        for i in range(s * rest + 1, (s + 1) * rest):
            if table[i] > table[best]:
                best = i
        message[s] = table[best]
        table[s * rest : (s + 1) * rest] = 0.0
        table[best] = 1.0


@vector_kernel
def _sum_out(table, message, tau):
    """Send tau log sum exp(. / tau) of each row, and leave its distribution, or zeros."""
    rest, scale = len(table) // len(message), 1.0 / tau
    for s in range(len(message)):
        row = table[s * rest : (s + 1) * rest]
        top = -np.inf
        for i in range(rest):
            top = max(top, row[i])
        shift, total = top if top > -np.inf else 0.0, 0.0
        for i in range(rest):
            row[i] = vector_exp((row[i] - shift) * scale)
        for i in range(rest):
            total += row[i]
        message[s] = top + tau * np.log(total) if total > 0.0 else -np.inf
        share = 1.0 / total if total > 0.0 else 0.0
        for i in range(rest):
            row[i] *= share


@kernel
def _sum_out_vjp(table, tau, d_table, d_message):
    """Send the derivative of messages, and leave that of the logs of distributions; 0 for maxima."""
    rest, scale = len(table) // len(d_message), 1.0 / tau if tau > 0.0 else 0.0
    for s in range(len(d_message)):
        mean = 0.0
        for i in range(s * rest, (s + 1) * rest):
            if table[i] != 0.0:  # elsewhere the derivative may be anything
                mean += table[i] * d_table[i]
        d_message[s] = mean
        for i in range(s * rest, (s + 1) * rest):
            d_table[i] = (d_table[i] - mean) * scale if table[i] != 0.0 else 0.0


@kernel
def _normalise(p):
    """Take back what rounding has added, before it adds up along long chains."""
    total = p.sum()
    for s in range(len(p)):
        p[s] = p[s] / total if total > 0.0 else 0.0  # where nothing is possible, which is told later


@vector_kernel
def _weigh(table, p, first, out):
    """Take entries of a table, from the first on, and multiply each row by its number."""
    rest = len(table) // len(p)
    s, i = first // rest, 0
    while i < len(out):
        end = min((s + 1) * rest - first, len(out))
        for j in range(i, end):
            out[j] = table[first + j] * p[s]
        s, i = s + 1, end


@vector_kernel
def _weigh_vjp(table, p, d_table, d_p):
    """Make the derivative of logs of distributions that of marginals."""
    rest = len(table) // len(p)
    for s in range(len(p)):
        if p[s] == 0.0:  # what is below such a state may have any derivative
            d_table[s * rest : (s + 1) * rest] = 0.0
            continue
        for i in range(s * rest, (s + 1) * rest):
            d_table[i] = table[i] * (d_p[s] + p[s] * d_table[i])
