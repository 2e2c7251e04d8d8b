"""Messages of many lines at once, computed and normalised in vector arithmetic: D13 Eq 18.

Arrays are (label, lane): a lane is one of several lines that a sweep crosses side by side, and every inner
loop runs over contiguous lanes. Messages are probabilities. For two labels one number is enough, the ratio of
the second to the first; then arrays have one row. Tables are exp(theta / rho): (target, source) where all
edges share one, (label, label, lane) where each edge has its own; there `flip` tells that the first label is
that of the source. Functions and their derivatives stand side by side; adjoints are those of logarithms.
`scratch` has one row more than there are labels, `work` three times as many and one more.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, reduction_kernel, vector_exp, vector_kernel, vector_log

# Divides instead of the zero of a forbidden state, which stays forbidden.
_TINY = 1e-300


#: Modes of messages. RATIO is None, so that a kernel is compiled either for ratios or for other messages.
SUM, MAX, RATIO = False, True, None


class Site(NamedTuple):
    """Inputs of a message to a neighbour, or their adjoints.

    Attributes
    ----------
    q : ndarray
        exp(theta) times the messages of other directions.
    f, b : ndarray
        Messages from the opposite neighbour, and from the neighbour that receives the message.
    """

    q: np.ndarray
    f: np.ndarray
    b: np.ndarray


@vector_kernel
def exponentiate(values):
    """Replace each number of a flat array by its exponential."""
    for i in range(len(values)):
        values[i] = vector_exp(values[i])


@inlined_kernel
def _power(value, rho, lane):
    """Compute value^rho; the compiler makes one loop for each case."""
    if rho.common == 1.0:
        return value
    elif rho.common == 0.5:
        return np.sqrt(value)
    return vector_exp(rho.by_lane[lane] * vector_log(value)) if value > 0 else value  # 0, or nan


@inlined_kernel
def _cavity(q, f, b, rho, lane):
    """Compute q f^rho b^(rho - 1): the belief of a site without the message b of the receiving neighbour."""
    return q * f if rho.common == 1.0 else q * _power(f * b, rho, lane) / max(b, _TINY)


@vector_kernel
def joint(f, b, rho, factor, first, out):
    """Compute (f b)^rho, the joint effect of two opposite messages, times a factor.

    Arrays are (position, labels and lanes); `out` has one row per position, from `first` on.
    """
    for i in range(len(out)):
        for j in range(f.shape[1]):
            out[i, j] = _power(f[first + i, j] * b[first + i, j], rho, j) * factor[first + i, j]


@vector_kernel
def joint_vjp(d_out, rho, d_message):
    """Pull the adjoint of a joint effect back to one of its messages; adds to `d_message`."""
    for i in range(len(d_out)):
        for j in range(d_out.shape[1]):
            d_message[i, j] += rho.by_lane[j] * d_out[i, j]


@inlined_kernel
def cavities(site, rho, out):
    """Compute the cavities of all labels and lanes."""
    for x in range(len(out)):
        for lane in range(out.shape[1]):
            out[x, lane] = _cavity(site.q[x, lane], site.f[x, lane], site.b[x, lane], rho, lane)


# Two labels: the ratio of a message is (t10 + t11 c) / (t00 + t01 c), with c that of the cavity.


@vector_kernel
def _ratio_of_one_table(t00, t01, t10, t11, site, rho, out):
    for lane in range(len(out)):
        c = _cavity(site.q[lane], site.f[lane], site.b[lane], rho, lane)
        out[lane] = (t10 + t11 * c) / (t00 + t01 * c)


@vector_kernel
def _ratio_of_many_tables(t00, t01, t10, t11, site, rho, out):
    for lane in range(len(out)):
        c = _cavity(site.q[lane], site.f[lane], site.b[lane], rho, lane)
        out[lane] = (t10[lane] + t11[lane] * c) / (t00[lane] + t01[lane] * c)


@vector_kernel
def _shares_of_one_table(t00, t01, t10, t11, c, d_message, of_top, of_bottom):
    """Compute the adjoint times the share of source 1 in numerator and denominator of the ratio."""
    for lane in range(len(c)):
        top, bottom = t11 * c[lane], t01 * c[lane]
        of_top[lane] = d_message[lane] * top / (t10 + top)
        of_bottom[lane] = d_message[lane] * bottom / (t00 + bottom)


@vector_kernel
def _shares_of_many_tables(t00, t01, t10, t11, c, d_message, of_top, of_bottom):
    for lane in range(len(c)):
        top, bottom = t11[lane] * c[lane], t01[lane] * c[lane]
        of_top[lane] = d_message[lane] * top / (t10[lane] + top)
        of_bottom[lane] = d_message[lane] * bottom / (t00[lane] + bottom)


@reduction_kernel
def _add_sums(of_top, of_bottom, of_all, d_table):
    top, bottom, total = 0.0, 0.0, 0.0
    for lane in range(len(of_all)):
        top += of_top[lane]
        bottom += of_bottom[lane]
        total += of_all[lane]
    d_table[0, 0] += bottom - total
    d_table[0, 1] -= bottom
    d_table[1, 0] += total - top
    d_table[1, 1] += top


@vector_kernel
def _cavities_of_ratios(site, rho, out):
    for lane in range(len(out)):
        out[lane] = _cavity(site.q[lane], site.f[lane], site.b[lane], rho, lane)


# LLVM vectorises a loop only if at most eight comparisons show that its arrays do not overlap. So there is
# one loop per array that is written.


@vector_kernel
def add_scaled(scale, values, out):
    """Add a multiple of a flat array."""
    for lane in range(len(out)):
        out[lane] += scale * values[lane]


@vector_kernel
def _add_weighted(rho, less, values, out):
    for lane in range(len(out)):
        out[lane] += (rho.by_lane[lane] - less) * values[lane]


@vector_kernel
def _add_difference(a, b, out):
    for lane in range(len(out)):
        out[lane] += a[lane] - b[lane]


# Any number of labels: out(x) = sum_z table(x, z) c(z)


@inlined_kernel
def _sums_of_one_table(table, c, out):
    n, lanes = len(table), c.shape[1]
    # Two targets and four sources at a time, as many numbers as fit the registers. With an odd number of
    # targets, the last but one is computed twice.
    for i in range(0, n, 2):
        x = min(i, n - 2)
        s, t = (table[x, 0], table[x + 1, 0]) if n % 4 else (0.0, 0.0)
        for lane in range(lanes):
            out[x, lane] = s * c[0, lane]
            out[x + 1, lane] = t * c[0, lane]
        for z in range(1, n % 4):
            s, t = table[x, z], table[x + 1, z]
            for lane in range(lanes):
                out[x, lane] += s * c[z, lane]
                out[x + 1, lane] += t * c[z, lane]
        for z in range(n % 4, n, 4):
            s0, s1, s2, s3 = table[x, z], table[x, z + 1], table[x, z + 2], table[x, z + 3]
            t0, t1, t2, t3 = table[x + 1, z], table[x + 1, z + 1], table[x + 1, z + 2], table[x + 1, z + 3]
            for lane in range(lanes):
                c0, c1, c2, c3 = c[z, lane], c[z + 1, lane], c[z + 2, lane], c[z + 3, lane]
                out[x, lane] += s0 * c0 + s1 * c1 + s2 * c2 + s3 * c3
                out[x + 1, lane] += t0 * c0 + t1 * c1 + t2 * c2 + t3 * c3


@inlined_kernel
def _sums_of_many_tables(table, flip, c, out):
    n, lanes = len(table), c.shape[1]
    for x in range(n):
        for lane in range(lanes):
            out[x, lane] = 0.0
        for z in range(n):
            i, j = (z, x) if flip else (x, z)
            for lane in range(lanes):
                out[x, lane] += table[i, j, lane] * c[z, lane]


@inlined_kernel
def _best_of_one_table(table, c, out):
    """Maximise instead of summing."""
    for x in range(len(table)):
        for lane in range(c.shape[1]):
            out[x, lane] = 0.0
        for z in range(len(table)):
            t = table[x, z]
            for lane in range(c.shape[1]):
                out[x, lane] = max(out[x, lane], t * c[z, lane])


@inlined_kernel
def _best_of_many_tables(table, flip, c, out):
    for x in range(len(table)):
        for lane in range(c.shape[1]):
            out[x, lane] = 0.0
        for z in range(len(table)):
            i, j = (z, x) if flip else (x, z)
            for lane in range(c.shape[1]):
                out[x, lane] = max(out[x, lane], table[i, j, lane] * c[z, lane])


@inlined_kernel
def _normalise(values, out):
    """Divide messages by their sum over labels; the last row of `values` is scratch."""
    n, lanes = out.shape
    for lane in range(lanes):
        values[n, lane] = 0.0
    for x in range(n):
        for lane in range(lanes):
            values[n, lane] += values[x, lane]
    for lane in range(lanes):
        values[n, lane] = 1.0 / values[n, lane]
    for x in range(n):
        for lane in range(lanes):
            out[x, lane] = values[x, lane] * values[n, lane]


@inlined_kernel
def _normalise_vjp(message, d_message, values):
    """Replace unnormalised messages by their adjoints; the last row of `values` is scratch."""
    n, lanes = message.shape
    for lane in range(lanes):
        values[n, lane] = 0.0
    for x in range(n):
        for lane in range(lanes):
            values[n, lane] += d_message[x, lane]
    for x in range(n):
        for lane in range(lanes):
            change = d_message[x, lane] - values[n, lane] * message[x, lane]
            values[x, lane] = change / max(values[x, lane], _TINY)


@reduction_kernel
def _add_outer(table, d_sum, c, d_table):
    """Add the adjoint of the logarithm of a table."""
    for x in range(len(c)):
        for z in range(len(c)):
            total = 0.0
            for lane in range(c.shape[1]):
                total += d_sum[x, lane] * c[z, lane]
            d_table[x, z] += table[x, z] * total


@inlined_kernel
def _add_outers(table, flip, d_sum, c, d_table):
    for x in range(len(c)):
        for z in range(len(c)):
            i, j = (z, x) if flip else (x, z)
            for lane in range(c.shape[1]):
                d_table[i, j, lane] += table[i, j, lane] * d_sum[x, lane] * c[z, lane]


# Messages


@vector_kernel
def send_ratio(table, flip, site, rho, out):
    """Compute the ratios of messages, for two labels; arrays are flat."""
    if table.ndim == 2:
        _ratio_of_one_table(table[0, 0], table[0, 1], table[1, 0], table[1, 1], site, rho, out)
    else:
        i, j = (1, 0) if flip else (0, 1)
        _ratio_of_many_tables(table[0, 0], table[i, j], table[j, i], table[1, 1], site, rho, out)


@vector_kernel
def send(table, flip, mode, site, rho, c, scratch, out):
    """Compute normalised messages; overwrites `c` and `scratch`."""
    cavities(site, rho, c)
    if mode == MAX:
        if table.ndim == 2:
            _best_of_one_table(table, c, scratch)
        else:
            _best_of_many_tables(table, flip, c, scratch)
    elif table.ndim == 2:
        _sums_of_one_table(table, c, scratch)
    else:
        _sums_of_many_tables(table, flip, c, scratch)
    _normalise(scratch, out)


@vector_kernel
def send_ratio_vjp(table, flip, site, rho, d_message, work, d_site, d_table):
    """Pull the adjoint of `send_ratio` back; adds to `d_site` and `d_table`."""
    c, of_top, of_bottom = work[0], work[1], work[2]
    _cavities_of_ratios(site, rho, c)
    if table.ndim == 2:
        _shares_of_one_table(
            table[0, 0], table[0, 1], table[1, 0], table[1, 1], c, d_message, of_top, of_bottom
        )
        _add_sums(of_top, of_bottom, d_message, d_table)
    else:
        i, j = (1, 0) if flip else (0, 1)
        _shares_of_many_tables(
            table[0, 0], table[i, j], table[j, i], table[1, 1], c, d_message, of_top, of_bottom
        )
        _add_difference(of_bottom, d_message, d_table[0, 0])
        add_scaled(-1.0, of_bottom, d_table[i, j])
        _add_difference(d_message, of_top, d_table[j, i])
        add_scaled(1.0, of_top, d_table[1, 1])
    add_scaled(-1.0, of_bottom, of_top)
    add_scaled(1.0, of_top, d_site.q)
    _add_weighted(rho, 0.0, of_top, d_site.f)
    if rho.common != 1.0:
        _add_weighted(rho, 1.0, of_top, d_site.b)


@vector_kernel
def send_vjp(table, back, flip, site, rho, message, d_message, work, d_site, d_table):
    """Pull the adjoint of `send` back; adds to `d_site` and `d_table`.

    `back` is the table of the opposite message; `work` is overwritten.
    """
    n = len(site.q)
    c, d_c, scratch = work[:n], work[n : 2 * n], work[2 * n :]
    cavities(site, rho, c)
    if table.ndim == 2:
        _sums_of_one_table(table, c, scratch)
        _normalise_vjp(message, d_message, scratch)
        _sums_of_one_table(back, scratch, d_c)
        _add_outer(table, scratch, c, d_table)
    else:
        _sums_of_many_tables(table, flip, c, scratch)
        _normalise_vjp(message, d_message, scratch)
        _sums_of_many_tables(table, not flip, scratch, d_c)
        _add_outers(table, flip, scratch, c, d_table)
    for x in range(len(c)):
        for lane in range(c.shape[1]):
            d_c[x, lane] *= c[x, lane]
        for lane in range(c.shape[1]):
            d_site.q[x, lane] += d_c[x, lane]
        for lane in range(c.shape[1]):
            d_site.f[x, lane] += rho.by_lane[lane] * d_c[x, lane]
        if rho.common != 1.0:
            for lane in range(c.shape[1]):
                d_site.b[x, lane] += (rho.by_lane[lane] - 1.0) * d_c[x, lane]
