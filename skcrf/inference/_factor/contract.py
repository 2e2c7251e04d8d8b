"""Contractions of the flat tables of factors, one axis at a time.

Contracting an axis with `outer` entries before it and `inner` entries behind it computes
``out[o, i] = sum_x values[o, x, i] row[x]``. A message contracts all axes but one in turn, each time with a
smaller table, so that its cost is little more than one operation per entry. In the log domain the product is
a sum, and the sum a log-sum-exp or a maximum.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, reduction_kernel


class Axis(NamedTuple):
    """An axis to contract.

    Attributes
    ----------
    outer, card, inner : int
        Number of entries before the axis, along it and behind it.
    row : int
        The row, of an array of rows, to contract it with.
    """

    outer: int
    card: int
    inner: int
    row: int


@reduction_kernel
def contract(values, start, axis, rows, out, at):
    """Contract an axis of ``values[start:]`` into ``out[at:]``."""
    outer, card, inner, row = axis
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
def contract_vjp(work, d_work, start, axis, rows, d_rows, at):
    """Pull ``d_work[at:]`` back: add to the derivative of the row, and set ``d_work[start:]``."""
    outer, card, inner, row = axis
    for o in range(outer):
        for x in range(card):
            weight, first = rows[row, x], start + (o * card + x) * inner
            for i in range(inner):
                d = d_work[at + o * inner + i]
                d_rows[row, x] += d * work[first + i]
                d_work[first + i] = d * weight


@reduction_kernel
def contract_exponentials_vjp(values, start, axis, rows, d_out, at, power, d_rows, d_tables, d_start):
    """Add the derivatives with respect to the logarithms of row and values, the latter times `power`."""
    outer, card, inner, row = axis
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
def contract_logs(work, start, axis, maximise, rows, at):
    """Contract an axis in the log domain, by log-sum-exp or by the maximum."""
    outer, card, inner, row = axis
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
def contract_logs_vjp(work, d_work, start, axis, rows, d_rows, at):
    """Pull ``d_work[at:]`` back through a log-sum-exp, as `contract_vjp` does."""
    outer, card, inner, row = axis
    for o in range(outer):
        for x in range(card):
            for i in range(inner):
                entry, sum_at = start + (o * card + x) * inner + i, at + o * inner + i
                share = 0.0
                if work[sum_at] > -np.inf:
                    share = np.exp(work[entry] + rows[row, x] - work[sum_at])
                d_work[entry] = share * d_work[sum_at]
                d_rows[row, x] += d_work[entry]


@kernel
def add_along_axis(rows, row, card, stride, size, out):
    """Add a row to a table along one axis."""
    for block in range(0, size, card * stride):
        for x in range(card):
            for entry in range(block + x * stride, block + (x + 1) * stride):
                out[entry] += rows[row, x]


@kernel
def sum_to_axis(values, card, stride, size, weight, rows, row):
    """Add the sums of a table over all axes but one, times `weight`, to a row."""
    for block in range(0, size, card * stride):
        for x in range(card):
            for entry in range(block + x * stride, block + (x + 1) * stride):
                rows[row, x] += weight * values[entry]
