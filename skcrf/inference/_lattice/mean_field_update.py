"""Mean-field updates of lines of one colour, and their derivatives, in vector arithmetic.

Arrays are (value, site), tables (value, value), with a third axis (site) where each edge has its own.
Neighbours in a direction are `after` a site, at the second ends of its edges, or `before` it.
"""

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, reduction_kernel, vector_exp, vector_kernel
from skcrf.inference._lattice.mean_field_binary import logistic, logistic_vjp, probability
from skcrf.inference._lattice.mean_field_layout import (
    ALL_LABELS,
    BINARY,
    array_of,
    colour_of,
    count_sites,
    line_sizes,
    neighbours,
    shifted_arrays_of,
    steps_of,
    tables_by_edge,
    tables_of,
)

# LLVM vectorises a loop only if at most eight comparisons show that its arrays do not overlap: eight terms.


@vector_kernel
def _add_means(kind, t, after0, before0, u, after1, before1, out):
    """Add the means of tables under the neighbours in two directions; `t` and `u` as in `Board.tables`."""
    n = len(out)
    # Labels of neighbours in the outer loop, so that they and `out` remain in the cache.
    for z in range(0, n - 1, 2):
        for x in range(n):
            t0, t1, t2, t3 = t[0, x, z], t[0, x, z + 1], t[1, x, z], t[1, x, z + 1]
            u0, u1, u2, u3 = u[0, x, z], u[0, x, z + 1], u[1, x, z], u[1, x, z + 1]
            for i in range(out.shape[1]):
                out[x, i] += (
                    (t0 * after0[z, i] + t1 * after0[z + 1, i])
                    + (t2 * before0[z, i] + t3 * before0[z + 1, i])
                ) + (
                    (u0 * after1[z, i] + u1 * after1[z + 1, i])
                    + (u2 * before1[z, i] + u3 * before1[z + 1, i])
                )
    if n % 2:
        z = n - 1
        for x in range(n):
            t0, t1, u0, u1 = t[0, x, z], t[1, x, z], u[0, x, z], u[1, x, z]
            for i in range(out.shape[1]):
                out[x, i] += (
                    t0 * probability(after0[z, i], kind) + t1 * probability(before0[z, i], kind)
                ) + (u0 * probability(after1[z, i], kind) + u1 * probability(before1[z, i], kind))


@vector_kernel
def _add_means_by_edge(kind, t_after, t_before, after, before, out):
    """Add the means of tables by edge under the neighbours in one direction."""
    n = len(out)
    for x in range(n):
        for z in range(n):
            for i in range(out.shape[1]):
                out[x, i] += t_after[x, z, i] * probability(after[z, i], kind) + t_before[
                    z, x, i
                ] * probability(before[z, i], kind)


@inlined_kernel
def _sum(a, b, c, d, x, z, i):
    return a[x, i] * d[z, i] + b[x, i] * c[z, i]


@reduction_kernel
def _table_vjp(d_own, own, d_after, after, sums, d_table):
    """Add the derivative of the means at both ends of edges with respect to their table.

    `own` and `after` are what the updates of the neighbours used.
    """
    n = len(own)
    # Nine sums at a time, so that each number read is used thrice; some are computed twice at the end.
    for first_x in range(0, n, 3):
        x0 = max(0, min(first_x, n - 3))
        x1, x2 = x0 + 1, min(x0 + 2, n - 1)
        for first_z in range(0, n, 3):
            z0 = max(0, min(first_z, n - 3))
            z1, z2 = z0 + 1, min(z0 + 2, n - 1)
            s00, s01, s02, s10, s11, s12, s20, s21, s22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(own.shape[1]):
                s00 += _sum(d_own, own, d_after, after, x0, z0, i)
                s01 += _sum(d_own, own, d_after, after, x0, z1, i)
                s02 += _sum(d_own, own, d_after, after, x0, z2, i)
                s10 += _sum(d_own, own, d_after, after, x1, z0, i)
                s11 += _sum(d_own, own, d_after, after, x1, z1, i)
                s12 += _sum(d_own, own, d_after, after, x1, z2, i)
                s20 += _sum(d_own, own, d_after, after, x2, z0, i)
                s21 += _sum(d_own, own, d_after, after, x2, z1, i)
                s22 += _sum(d_own, own, d_after, after, x2, z2, i)
            sums[x0, z0], sums[x0, z1], sums[x0, z2] = s00, s01, s02
            sums[x1, z0], sums[x1, z1], sums[x1, z2] = s10, s11, s12
            sums[x2, z0], sums[x2, z1], sums[x2, z2] = s20, s21, s22
    for x in range(n):
        for z in range(n):
            d_table[x, z] += sums[x, z]


@reduction_kernel
def _coupling_vjp(d_own, own, d_after, after, d_table):
    """Do what `_table_vjp` does where there are two labels."""
    total = 0.0
    for i in range(own.shape[1]):
        total += d_own[0, i] * probability(after[0, i], BINARY)
        total += probability(own[0, i], BINARY) * d_after[0, i]
    d_table[0, 0] += total


@vector_kernel
def _means_by_edge_vjp(kind, d_own, own, d_after, after, d_tables):
    n = len(d_own)
    for x in range(n):
        for z in range(n):
            for i in range(d_own.shape[1]):
                d_tables[x, z, i] += (
                    d_own[x, i] * probability(after[z, i], kind)
                    + probability(own[x, i], kind) * d_after[z, i]
                )


@vector_kernel
def _subtract_maxima(values, top):
    for i in range(len(top)):
        top[i] = values[0, i]
    for x in range(1, len(values)):
        for i in range(len(top)):
            top[i] = max(top[i], values[x, i])
    for x in range(len(values)):
        for i in range(len(top)):
            values[x, i] -= top[i]


@vector_kernel
def _softmax(values, n_sites, total):
    """Replace values, whose exponentials must be finite and not all 0, by their softmax; pad with zeros."""
    for i in range(len(total)):
        total[i] = 0.0
    for x in range(len(values)):
        for i in range(len(total)):
            values[x, i] = vector_exp(values[x, i])
            total[i] += values[x, i]
    for i in range(len(total)):
        total[i] = 1.0 / total[i]
    for i in range(n_sites, len(total)):
        total[i] = 0.0
    for x in range(len(values)):
        for i in range(len(total)):
            values[x, i] *= total[i]


@vector_kernel
def _softmax_vjp(mu, d_mu, mean, d_energies):
    for i in range(len(mean)):
        mean[i] = 0.0
    for x in range(len(mu)):
        for i in range(len(mean)):
            mean[i] += mu[x, i] * d_mu[x, i]
    for x in range(len(mu)):
        for i in range(len(mean)):
            d_energies[x, i] = mu[x, i] * (d_mu[x, i] - mean[i])


@vector_kernel
def _copy(values, out):
    for x in range(len(out)):
        for i in range(out.shape[1]):
            out[x, i] = values[x, i]


@vector_kernel
def _add(values, out):
    for x in range(len(out)):
        for i in range(out.shape[1]):
            out[x, i] += values[x, i]


@kernel
def _clear(values, first):
    for x in range(len(values)):
        for i in range(first, values.shape[1]):
            values[x, i] = 0.0


@kernel
def _add_energies(kind, steps, flat, tables, arrays, line, parity, wanted, out):
    """Add the means of tables under the neighbours in all wanted directions; `tables` are those of `flat`."""
    for first in range(0, len(steps), 2):
        if not (wanted[first] or wanted[first + 1]):
            continue
        across0, along0 = steps[first]
        across1, along1 = steps[first + 1]
        after0 = neighbours(arrays, line, parity, across0, along0)
        before0 = neighbours(arrays, line, parity, -across0, -along0)
        after1 = neighbours(arrays, line, parity, across1, along1)
        before1 = neighbours(arrays, line, parity, -across1, -along1)
        if flat.ndim == 5:
            if wanted[first] and wanted[first + 1]:
                _add_means(kind, tables[first], after0, before0, tables[first + 1], after1, before1, out)
            elif wanted[first]:
                no_table = np.zeros_like(tables[first])
                _add_means(kind, tables[first], after0, before0, no_table, after1, before1, out)
            else:
                no_table = np.zeros_like(tables[first])
                _add_means(kind, no_table, after0, before0, tables[first + 1], after1, before1, out)
        else:
            if wanted[first]:
                own, other = tables_by_edge(tables, first, line, parity, across0, along0)
                _add_means_by_edge(kind, own, other, after0, before0, out)
            if wanted[first + 1]:
                own, other = tables_by_edge(tables, first + 1, line, parity, across1, along1)
                _add_means_by_edge(kind, own, other, after1, before1, out)


# Colours follow each other at a distance of one line, so that lines are still in the cache: the neighbours of
# a line have been updated if their colour is earlier, and not if it is later.


@kernel
def ascend(board, state, active):
    """Update all sites of the active examples, in the order of their colours."""
    wanted = np.ones(len(board.offsets), dtype=np.bool_)
    for example in range(len(active)):
        if active[example]:
            n_lines, length, turned = line_sizes(board, example)
            arrays = shifted_arrays_of(board, state, example)
            tables = tables_of(board, board.tables, example)
            steps = steps_of(board, turned)
            mu, unary = arrays[1], array_of(board, board.unary, example)
            scratch = np.empty(mu.shape[3])
            for front in range(n_lines + len(steps) - 1):
                for colour in range(max(0, front - n_lines + 1), min(front + 1, len(steps))):
                    line = front - colour
                    for parity in range(2):
                        if colour_of(len(steps), line, parity, turned) != colour:
                            continue
                        out, n_sites = mu[parity, 1 + line], count_sites(length, parity)
                        _copy(unary[parity, 1 + line], out)
                        _add_energies(
                            board.kind, steps, board.tables, tables, arrays, line, parity, wanted, out
                        )
                        if board.kind is BINARY:
                            logistic(out[0])
                            _clear(out, n_sites)
                        else:
                            if not board.is_narrow:
                                _subtract_maxima(out, scratch)
                            _softmax(out, n_sites, scratch)


@kernel
def _directions_to(steps, line, parity, turned, later, wanted):
    """Find the directions in which neighbours have a later colour, or an earlier one."""
    colour = colour_of(len(steps), line, parity, turned)
    for direction in range(len(wanted)):
        across, along = steps[direction]
        other = colour_of(len(steps), line + across, (parity + along) & 1, turned)
        wanted[direction] = (other > colour) == later


@kernel
def _tables_vjp(kind, steps, turned, old, new, d_arrays, line, parity, flat, d_tables):
    """Add the derivatives with respect to the tables of edges whose first ends are in a line.

    Updates used the new values of earlier colours and the old ones of others. `d_tables` are those of `flat`.
    """
    colour, own_new, own_old = colour_of(len(steps), line, parity, turned), new[1], old[1]
    d_own = d_arrays[1][parity, 1 + line]
    for direction in range(len(steps)):
        across, along = steps[direction]
        d_other = neighbours(d_arrays, line, parity, across, along)
        if colour_of(len(steps), line + across, (parity + along) & 1, turned) > colour:
            own, other = own_new[parity, 1 + line], neighbours(old, line, parity, across, along)
        else:
            own, other = own_old[parity, 1 + line], neighbours(new, line, parity, across, along)
        if flat.ndim == 1:
            _means_by_edge_vjp(kind, d_own, own, d_other, other, d_tables[1][direction, parity, 1 + line])
        elif kind is BINARY:
            _coupling_vjp(d_own, own, d_other, other, d_tables[direction, 0])
        else:
            sums = np.empty((len(own), len(own)))
            _table_vjp(d_own, own, d_other, other, sums, d_tables[direction, 0])


@kernel
def _undo(board, example, before, after, d_state, d_unary, d_tables, d_energies):
    """Undo an iteration of one example: the last colour first, and then the inputs of all colours."""
    n_lines, length, turned = line_sizes(board, example)
    old, new = shifted_arrays_of(board, before, example), shifted_arrays_of(board, after, example)
    arrays, steps = shifted_arrays_of(board, d_energies, example), steps_of(board, turned)
    tables, d_inside = tables_of(board, board.tables, example), tables_of(board, d_tables, example)
    d_mu, d_theta = array_of(board, d_state, example), array_of(board, d_unary, example)
    wanted, scratch = np.empty(len(steps), dtype=np.bool_), np.empty(d_mu.shape[3])
    for front in range(n_lines + len(steps)):
        for distance in range(max(0, front - n_lines + 1), min(front + 1, len(steps))):
            line = front - distance
            for parity in range(2):
                if colour_of(len(steps), line, parity, turned) != len(steps) - 1 - distance:
                    continue
                d_out, d_line = d_mu[parity, 1 + line], arrays[1][parity, 1 + line]
                _directions_to(steps, line, parity, turned, True, wanted)
                _add_energies(ALL_LABELS, steps, board.tables, tables, arrays, line, parity, wanted, d_out)
                if board.kind is BINARY:
                    logistic_vjp(new[1][parity, 1 + line, 0], d_out[0], d_line[0])
                else:
                    _softmax_vjp(new[1][parity, 1 + line], d_out, scratch, d_line)
        line = front - len(steps)
        for parity in range(2 if line >= 0 else 0):
            d_out = d_mu[parity, 1 + line]
            _clear(d_out, 0)
            # The values before were used by the updates of earlier colours.
            _directions_to(steps, line, parity, turned, False, wanted)
            _add_energies(ALL_LABELS, steps, board.tables, tables, arrays, line, parity, wanted, d_out)
            _clear(d_out, count_sites(length, parity))
            _add(arrays[1][parity, 1 + line], d_theta[parity, 1 + line])
            _tables_vjp(board.kind, steps, turned, old, new, arrays, line, parity, d_tables, d_inside)


@kernel
def ascend_vjp(board, before, after, active, d_state, d_unary, d_tables, d_energies):
    """Undo an iteration; adds to the adjoints of the potentials. `d_energies` is scratch memory of zeros."""
    for example in range(len(active)):
        if active[example]:
            _undo(board, example, before, after, d_state, d_unary, d_tables, d_energies)


@kernel
def changes(board, before, after):
    """Find the largest change of a probability in each example."""
    largest = np.zeros(len(board.shapes))
    for example in range(len(largest)):
        for i in range(board.start[example], board.start[example + 1]):
            change = probability(after[i], board.kind) - probability(before[i], board.kind)
            largest[example] = max(largest[example], abs(change))
    return largest
