"""Tables of factors, axis by axis: what messages, mean field and marginals have in common.

A table is flat, a part of a longer array. Summing an axis out is a *contraction*: with `outer` entries before
it and `inner` behind it, ``out[o, i] = sum_x values[o, x, i] row[x]``. All axes but one are contracted in
turn, each time with a smaller table, so that a message takes little more than a step for each entry. In the
log domain the product is a sum and the sum is that of exponentials, or a maximum.
"""

import numpy as np

from skcrf._numerics import kernel, reduction_kernel


@reduction_kernel
def contract(values, start, outer, card, inner, rows, row, out, at):
    """Sum an axis out of ``values[start:]``, weighed by ``rows[row]``, into ``out[at:]``."""
    if inner == 1:
        for o in range(outer):
            total = 0.0
            for x in range(card):
                total += values[start + o * card + x] * rows[row, x]
            out[at + o] = total
    else:
        for o in range(outer):
            for i in range(inner):
                out[at + o * inner + i] = 0.0
            for x in range(card):
                weight, first = rows[row, x], start + (o * card + x) * inner
                for i in range(inner):
                    out[at + o * inner + i] += values[first + i] * weight


@kernel
def contract_vjp(values, start, outer, card, inner, rows, row, d_out, at, d_rows, d_row, d_values, d_start):
    """Add to the adjoint of the row, and fill in that of the values."""
    for o in range(outer):
        for x in range(card):
            weight, first = rows[row, x], (o * card + x) * inner
            for i in range(inner):
                d = d_out[at + o * inner + i]
                d_rows[d_row, x] += d * values[start + first + i]
                d_values[d_start + first + i] = d * weight


@reduction_kernel
def contract_exponentials_vjp(
    values, start, outer, card, inner, rows, row, d_out, at, power, d_rows, d_tables, d_start
):  # fmt: skip
    """Add to the adjoints of logarithms: those of the row, and those of values, which are times `power`."""
    if inner == 1:
        for o in range(outer):
            d, first = d_out[at + o], o * card
            for x in range(card):
                d_value = d * values[start + first + x] * rows[row, x]
                d_rows[row, x] += d_value
                d_tables[d_start + first + x] += power * d_value
    else:
        for o in range(outer):
            for x in range(card):
                weight, first, total = rows[row, x], (o * card + x) * inner, 0.0
                for i in range(inner):
                    d_value = weight * values[start + first + i] * d_out[at + o * inner + i]
                    total += d_value
                    d_tables[d_start + first + i] += power * d_value
                d_rows[row, x] += total


@kernel
def contract_logs(work, start, outer, card, inner, maximise, rows, row, at):
    """The same in the log domain, by the logarithm of the sum of exponentials or by the maximum."""
    for o in range(outer):
        for i in range(inner):
            top = -np.inf
            for x in range(card):
                top = max(top, work[start + (o * card + x) * inner + i] + rows[row, x])
            if not maximise and top > -np.inf:
                total = 0.0
                for x in range(card):
                    total += np.exp(work[start + (o * card + x) * inner + i] + rows[row, x] - top)
                top += np.log(total)
            work[at + o * inner + i] = top


@kernel
def contract_logs_vjp(work, start, outer, card, inner, rows, row, at, d_work, d_rows, d_row):
    """The adjoint of sums: each state has a share in them."""
    for o in range(outer):
        for x in range(card):
            for i in range(inner):
                entry, sum_at = start + (o * card + x) * inner + i, at + o * inner + i
                share = 0.0
                if work[sum_at] > -np.inf:
                    share = np.exp(work[entry] + rows[row, x] - work[sum_at])
                d_work[entry] = share * d_work[sum_at]
                d_rows[d_row, x] += d_work[entry]


@kernel
def spread(rows, row, card, stride, size, out):
    """Add a number for each state of one axis to all entries of a table that have it."""
    for block in range(0, size, card * stride):
        for x in range(card):
            for entry in range(block + x * stride, block + (x + 1) * stride):
                out[entry] += rows[row, x]


@kernel
def collect(values, card, stride, size, weight, rows, row):
    """Add what the entries of a table sum to for each state of one axis: the adjoint of `spread`."""
    for block in range(0, size, card * stride):
        for x in range(card):
            for entry in range(block + x * stride, block + (x + 1) * stride):
                rows[row, x] += weight * values[entry]
