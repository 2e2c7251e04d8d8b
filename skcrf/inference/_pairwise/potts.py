"""Sums over states along edges with Potts tables, in as many steps as there are states.

A sum runs over all states but the receiver's own. It is made of the states before and behind that one, as a
difference of large sums would lose digits. Arrays are those of `block`.
"""

import numpy as np

from skcrf._numerics import vector_kernel
from skcrf.inference._pairwise.updates import EXP_TABLE


@vector_kernel
def _tables_of_block(updates, sent, n, exp_tables, unequal, equal):
    for at in range(n):
        table = updates[sent[at], EXP_TABLE]
        unequal[at] = exp_tables[table, 0, 0] if table >= 0 else 0.0
        equal[at] = exp_tables[table, 1, 0] if table >= 0 else 0.0


@vector_kernel
def potts_sums(updates, sent, n, exp_tables, n_states, scaled, sums):
    """Sum over the states of the sources; 0 for messages without an `EXP_TABLE`."""
    rows = np.zeros((4, n))
    unequal, equal, before, behind = rows[0], rows[1], rows[2], rows[3]
    _tables_of_block(updates, sent, n, exp_tables, unequal, equal)
    for x in range(n_states - 1, -1, -1):
        for at in range(n):
            sums[x * n + at] = behind[at]
            behind[at] += scaled[x * n + at]
    for x in range(n_states):
        for at in range(n):
            value, others = scaled[x * n + at], sums[x * n + at] + before[at]
            sums[x * n + at] = unequal[at] * others + equal[at] * value
            before[at] += value


@vector_kernel
def potts_sums_vjp(updates, sent, n, is_safe, exp_tables, n_states, scaled, d_sums, d_cavities, products):
    """Pull derivatives back to cavities and, of messages that are safe, to tables."""
    rows = np.zeros((6, n))
    unequal, equal, before, behind, d_unequal, d_equal = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
    _tables_of_block(updates, sent, n, exp_tables, unequal, equal)
    for x in range(n_states - 1, -1, -1):
        for at in range(n):
            d_cavities[x * n + at] = behind[at]
            behind[at] += d_sums[x * n + at]
    for x in range(n_states):
        for at in range(n):
            value, d = scaled[x * n + at], d_sums[x * n + at]
            others = d_cavities[x * n + at] + before[at]
            before[at] += d
            d_cavities[x * n + at] = value * (unequal[at] * others + equal[at] * d)
            d_unequal[at] += value * others
            d_equal[at] += value * d
    for at in range(n):
        if is_safe[at]:
            table = updates[sent[at], EXP_TABLE]
            products[table, 0, 0] += d_unequal[at]
            products[table, 1, 0] += d_equal[at]
