"""Sums over states along edges with Potts tables, in as many steps as there are states.

A sum runs over all states but the receiver's own. It is made of the states before and behind that one, as a
difference of large sums would lose digits. Arrays are those of `block`. Messages are computed a vector at a
time; the last vector overlaps the one before, which gives the same results once more.
"""

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.vector import WIDTH, address, load, store, zeros_like
from skcrf.inference._pairwise.updates import EXP_TABLE


@kernel
def _tables_of_block(updates, sent, n, exp_tables, rows):
    """Copy the entries of unequal and of equal states for each message; 0 without an `EXP_TABLE`."""
    for at in range(n):
        table = updates[sent[at], EXP_TABLE]
        if table >= 0:
            rows[0, at], rows[1, at] = exp_tables[table, 0, 0], exp_tables[table, 1, 0]


@vector_kernel
def _sums_of_vector(rows, scaled, at, n, n_states, sums):
    values, out = address(scaled), address(sums)
    unequal, equal = load(address(rows[0]), at), load(address(rows[1]), at)
    before = behind = zeros_like(unequal)
    for x in range(n_states - 1, -1, -1):
        store(behind, out, x * n + at)
        behind = behind + load(values, x * n + at)
    for x in range(n_states):
        value = load(values, x * n + at)
        store(unequal * (load(out, x * n + at) + before) + equal * value, out, x * n + at)
        before = before + value


@vector_kernel
def _sums_of_vector_vjp(rows, scaled, d_sums, at, n, n_states, d_cavities):
    values, d_values, out = address(scaled), address(d_sums), address(d_cavities)
    unequal, equal = load(address(rows[0]), at), load(address(rows[1]), at)
    before = behind = d_unequal = d_equal = zeros_like(unequal)
    for x in range(n_states - 1, -1, -1):
        store(behind, out, x * n + at)
        behind = behind + load(d_values, x * n + at)
    for x in range(n_states):
        value, d = load(values, x * n + at), load(d_values, x * n + at)
        others = load(out, x * n + at) + before
        before = before + d
        store(value * (unequal * others + equal * d), out, x * n + at)
        d_unequal, d_equal = d_unequal + value * others, d_equal + value * d
    store(d_unequal, address(rows[2]), at)
    store(d_equal, address(rows[3]), at)


@kernel
def _padded(values, n, n_states):
    """Copy the values of less than a vector of messages to vectors."""
    out = np.zeros(n_states * WIDTH)
    for x in range(n_states):
        for at in range(n):
            out[x * WIDTH + at] = values[x * n + at]
    return out


@kernel
def _unpad(values, n, n_states, out):
    for x in range(n_states):
        for at in range(n):
            out[x * n + at] = values[x * WIDTH + at]


# All messages are computed by the same instructions, so that results do not depend on the other examples.


@kernel
def potts_sums(updates, sent, n, exp_tables, n_states, scaled, sums):
    """Sum over the states of the sources; 0 for messages without an `EXP_TABLE`."""
    size = max(n, WIDTH)
    rows, values, out = np.zeros((2, size)), scaled, sums
    _tables_of_block(updates, sent, n, exp_tables, rows)
    if n < WIDTH:
        values, out = _padded(scaled, n, n_states), np.empty(n_states * WIDTH)
    for at in range(0, n, WIDTH):
        _sums_of_vector(rows, values, min(at, size - WIDTH), size, n_states, out)
    if n < WIDTH:
        _unpad(out, n, n_states, sums)


@kernel
def potts_sums_vjp(updates, sent, n, is_safe, exp_tables, n_states, scaled, d_sums, d_cavities, products):
    """Pull derivatives back to cavities and, of messages that are safe, to tables."""
    size = max(n, WIDTH)
    rows, values, d_values, out = np.zeros((4, size)), scaled, d_sums, d_cavities
    _tables_of_block(updates, sent, n, exp_tables, rows)
    if n < WIDTH:
        values, d_values = _padded(scaled, n, n_states), _padded(d_sums, n, n_states)
        out = np.empty(n_states * WIDTH)
    for at in range(0, n, WIDTH):
        _sums_of_vector_vjp(rows, values, d_values, min(at, size - WIDTH), size, n_states, out)
    if n < WIDTH:
        _unpad(out, n, n_states, d_cavities)
    for at in range(n):
        if is_safe[at]:
            table = updates[sent[at], EXP_TABLE]
            products[table, 0, 0] += rows[2, at]
            products[table, 1, 0] += rows[3, at]
