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

from skcrf._numerics import inlined_kernel, kernel, vector_exp, vector_kernel, vector_log
from skcrf.inference._lattice.vector import (
    LANES,
    WIDTH,
    address,
    at_least,
    load,
    number,
    put,
    sqrt,
    store,
    zeros_like,
)

#: Divides instead of the zero of a forbidden state, which stays forbidden.
TINY = 1e-300


#: Modes of messages. RATIO is None, so that a kernel is compiled either for ratios or for other messages.
SUM, MAX, RATIO = False, True, None


class Work(NamedTuple):
    """Addresses of scratch memory for messages, and their size.

    These are cavities, powers of messages, adjoints of cavities, and of sums.
    """

    size: int
    c: np.ndarray
    powers: np.ndarray
    d_c: np.ndarray
    d_sum: np.ndarray


@kernel
def work_in(memory):
    """Divide memory of shape (4, size)."""
    return Work(
        memory.shape[1], address(memory[0]), address(memory[1]), address(memory[2]), address(memory[3])
    )


class Site(NamedTuple):
    """Inputs of a message to a neighbour, or their adjoints.

    Attributes
    ----------
    q : ndarray or its address
        exp(theta) times the messages of other directions.
    f, b : ndarray or its address
        Messages from the opposite neighbour, and from the neighbour that receives the message.
    """

    q: np.ndarray
    f: np.ndarray
    b: np.ndarray


class SharedTable(NamedTuple):
    """Address of a table (target, source) that edges share."""

    place: np.ndarray


class OwnTables(NamedTuple):
    """Address of tables by lane, and where (label, label, lane) starts; `flip` if the source is first."""

    place: np.ndarray
    start: int


@vector_kernel
def exponentiate(values):
    """Replace each number of a flat array by its exponential."""
    for i in range(len(values)):
        values[i] = vector_exp(values[i])


@inlined_kernel
def _power(value, common, rho):
    """Compute value^rho; `common` is rho, or nan. The compiler makes one loop for each case."""
    if common == 1.0:
        return value
    elif common == 0.5:
        return np.sqrt(value)
    return vector_exp(rho * vector_log(value)) if value > 0 else value  # 0, or nan


@inlined_kernel
def _cavity_of(q, f, b, rho, lane):
    """Compute q f^rho b^(rho - 1): the belief of a site without the message b of the receiving neighbour."""
    return q * f if rho.common == 1.0 else q * _power(f * b, rho.common, rho.by_lane[lane]) / max(b, TINY)


@vector_kernel
def joint(f, b, rho, factor, first, out):
    """Compute (f b)^rho, the joint effect of two opposite messages, times a factor.

    Arrays are (position, labels and lanes); `out` has one row per position, from `first` on.
    """
    for i in range(len(out)):
        for j in range(f.shape[1]):
            value = f[first + i, j] * b[first + i, j]
            out[i, j] = _power(value, rho.common, rho.by_lane[j]) * factor[first + i, j]


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
            out[x, lane] = _cavity_of(site.q[x, lane], site.f[x, lane], site.b[x, lane], rho, lane)


@vector_kernel
def _prepare(site, at, rho, work):
    """Compute the powers of messages that `_cavity` needs, where there is no simpler way."""
    if rho.common != 1.0 and rho.common != 0.5:
        for i in range(work.size):
            value = number(site.f, at + i) * number(site.b, at + i)
            put(_power(value, rho.common, number(rho.by_lane, i)), work.powers, i)


@kernel
def _cavity(site, at, rho, work, i):
    """Compute a vector of numerators and one of denominators of cavities."""
    q, f, b = load(site.q, at + i), load(site.f, at + i), load(site.b, at + i)
    if rho.common == 1.0:
        return q * f, zeros_like(q) + 1.0
    if rho.common == 0.5:
        return q * sqrt(f * b), at_least(b, TINY)
    return q * load(work.powers, i), at_least(b, TINY)


# Two labels: the ratio of a message is (t10 + t11 c) / (t00 + t01 c), with c that of the cavity.


@kernel
def _entry_of_ratio(table, x, z, i, lanes):
    """Load the entry of a table: a number, or a vector from lane i on."""
    if len(table) == 1:
        return number(table.place, 2 * x + z)
    return load(table.place, table.start + (2 * x + z) * lanes + i)


@vector_kernel
def send_ratio(table, flip, site, at, rho, work, to):
    """Compute the ratios of messages from the sites at one place to another, for two labels."""
    lanes = work.size
    u, v = (1, 0) if flip and len(table) > 1 else (0, 1)
    _prepare(site, at, rho, work)
    for i in range(0, lanes, WIDTH):
        c, scale = _cavity(site, at, rho, work, i)
        top = _entry_of_ratio(table, v, u, i, lanes) * scale
        top = top + _entry_of_ratio(table, 1, 1, i, lanes) * c
        bottom = _entry_of_ratio(table, 0, 0, i, lanes) * scale
        bottom = bottom + _entry_of_ratio(table, u, v, i, lanes) * c
        store(top / bottom, site.f, to + i)


@vector_kernel
def send_ratio_vjp(table, flip, site, at, rho, d_message, to, work, d_table):
    """Compute the adjoints of cavities from those of ratios; adds to those of the table."""
    lanes = work.size
    u, v = (1, 0) if flip and len(table) > 1 else (0, 1)
    _prepare(site, at, rho, work)
    sum_top = sum_bottom = sum_all = zeros_like(load(work.c, 0))
    for i in range(0, lanes, WIDTH):
        c, scale = _cavity(site, at, rho, work, i)
        d = load(d_message, to + i)
        # The adjoint times the share of source 1 in numerator and denominator of the ratio.
        top = _entry_of_ratio(table, 1, 1, i, lanes) * c
        bottom = _entry_of_ratio(table, u, v, i, lanes) * c
        top = d * top / (_entry_of_ratio(table, v, u, i, lanes) * scale + top)
        bottom = d * bottom / (_entry_of_ratio(table, 0, 0, i, lanes) * scale + bottom)
        store(top - bottom, work.d_c, i)
        if len(table) == 1:
            sum_top, sum_bottom, sum_all = sum_top + top, sum_bottom + bottom, sum_all + d
        else:
            _add_to_tables(top, bottom, d, d_table, table.start + i, lanes, flip)
    if len(table) == 1:
        _add_to_tables(sum_top, sum_bottom, sum_all, d_table, 0, WIDTH, flip)


@vector_kernel
def _add_to_tables(top, bottom, d, d_table, to, step, flip):
    u, v = (to + 2 * step, to + step) if flip else (to + step, to + 2 * step)
    store(load(d_table, to) + (bottom - d), d_table, to)
    store(load(d_table, u) - bottom, d_table, u)
    store(load(d_table, v) + (d - top), d_table, v)
    store(load(d_table, to + 3 * step) + top, d_table, to + 3 * step)


@vector_kernel
def add_scaled(scale, values, out):
    """Add a multiple of a flat array."""
    for lane in range(len(out)):
        out[lane] += scale * values[lane]


# Any number of labels: out(x) = sum_z table(x, z) c(z)
#
# A message is `LANES` numbers per label, two vectors.


@kernel
def _entry(table, flip, x, z, n, half):
    """Load the entry of a table for target x and source z: a number, or a vector for half of the lanes."""
    if len(table) == 1:
        return number(table.place, x * n + z)
    return load(table.place, table.start + (z * n + x if flip else x * n + z) * LANES + half * WIDTH)


@vector_kernel
def _sum_of_four(table, flip, n, x, c, out, to):
    """Compute the sums of targets x to x + 3: as many numbers as fit the registers."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zeros_like(load(c, 0))
    for z in range(n):
        low, high = load(c, z * LANES), load(c, z * LANES + WIDTH)
        a0 = a0 + _entry(table, flip, x, z, n, 0) * low
        b0 = b0 + _entry(table, flip, x, z, n, 1) * high
        a1 = a1 + _entry(table, flip, x + 1, z, n, 0) * low
        b1 = b1 + _entry(table, flip, x + 1, z, n, 1) * high
        a2 = a2 + _entry(table, flip, x + 2, z, n, 0) * low
        b2 = b2 + _entry(table, flip, x + 2, z, n, 1) * high
        a3 = a3 + _entry(table, flip, x + 3, z, n, 0) * low
        b3 = b3 + _entry(table, flip, x + 3, z, n, 1) * high
    to += x * LANES
    store_both(a0, b0, out, to)
    store_both(a1, b1, out, to + LANES)
    store_both(a2, b2, out, to + 2 * LANES)
    store_both(a3, b3, out, to + 3 * LANES)


@vector_kernel
def _sum_of_one(table, flip, n, x, c, out, to):
    a = b = zeros_like(load(c, 0))
    for z in range(n):
        a = a + _entry(table, flip, x, z, n, 0) * load(c, z * LANES)
        b = b + _entry(table, flip, x, z, n, 1) * load(c, z * LANES + WIDTH)
    store_both(a, b, out, to + x * LANES)


@vector_kernel
def _best_of_one(table, flip, n, x, c, out, to):
    """Maximise instead of summing."""
    a = b = zeros_like(load(c, 0))
    for z in range(n):
        a = at_least(_entry(table, flip, x, z, n, 0) * load(c, z * LANES), a)
        b = at_least(_entry(table, flip, x, z, n, 1) * load(c, z * LANES + WIDTH), b)
    store_both(a, b, out, to + x * LANES)


@kernel
def store_both(low, high, out, to):
    store(low, out, to)
    store(high, out, to + WIDTH)


@kernel
def _multiply(table, flip, n, c, out, to):
    """Multiply the table by c."""
    for x in range(0, n - n % 4, 4):
        _sum_of_four(table, flip, n, x, c, out, to)
    for x in range(n - n % 4, n):
        _sum_of_one(table, flip, n, x, c, out, to)


@vector_kernel
def normalise(out, to, n):
    """Divide a message by its sum over labels."""
    low = high = zeros_like(load(out, to))
    for i in range(to, to + n * LANES, LANES):
        low, high = low + load(out, i), high + load(out, i + WIDTH)
    low, high = 1.0 / low, 1.0 / high
    for i in range(to, to + n * LANES, LANES):
        store_both(low * load(out, i), high * load(out, i + WIDTH), out, i)


@vector_kernel
def message_cavities(site, at, rho, work):
    """Compute the cavities of all labels."""
    _prepare(site, at, rho, work)
    for i in range(0, work.size, WIDTH):
        c, scale = _cavity(site, at, rho, work, i)
        store(c if rho.common == 1.0 else c / scale, work.c, i)


@vector_kernel
def keep(work, kept, at):
    """Copy cavities and adjoints of sums to a place."""
    for i in range(0, work.size, WIDTH):
        store(load(work.c, i), kept.c, at + i)
        store(load(work.d_sum, i), kept.d_sum, at + i)


@vector_kernel
def _adjoints_of_sums(table, flip, message, d_message, to, work):
    """Compute the adjoints of unnormalised messages.

    A message is a sum over the total of all sums. That is the sum of the first label over the first label of
    the message, so that no other sum is computed again.
    """
    n = work.size // LANES
    low = high = d_low = d_high = zeros_like(load(work.c, 0))
    for z in range(n):
        i = z * LANES
        low = low + _entry(table, flip, 0, z, n, 0) * load(work.c, i)
        high = high + _entry(table, flip, 0, z, n, 1) * load(work.c, i + WIDTH)
        d_low, d_high = d_low + load(d_message, to + i), d_high + load(d_message, to + i + WIDTH)
    low = load(message, to) / low
    high = load(message, to + WIDTH) / high
    for i in range(0, n * LANES, LANES):
        j = to + i
        d_first = load(d_message, j) / at_least(load(message, j), TINY) - d_low
        d_second = load(d_message, j + WIDTH) / at_least(load(message, j + WIDTH), TINY) - d_high
        store_both(d_first * low, d_second * high, work.d_sum, i)


@vector_kernel
def add_outer(n, first, second, d_table):
    """Add the products of two messages to the adjoint of a shared table: (label, label, vector)."""
    x = 0
    while x + 4 <= n:
        i, to = x * LANES, x * n * WIDTH
        a0, b0 = load(first, i), load(first, i + WIDTH)
        a1, b1 = load(first, i + LANES), load(first, i + LANES + WIDTH)
        a2, b2 = load(first, i + 2 * LANES), load(first, i + 2 * LANES + WIDTH)
        a3, b3 = load(first, i + 3 * LANES), load(first, i + 3 * LANES + WIDTH)
        for z in range(n):
            c, d = load(second, z * LANES), load(second, z * LANES + WIDTH)
            j = to + z * WIDTH
            r0, r1 = load(d_table, j), load(d_table, j + n * WIDTH)
            r2, r3 = load(d_table, j + 2 * n * WIDTH), load(d_table, j + 3 * n * WIDTH)
            store(r0 + a0 * c + b0 * d, d_table, j)
            store(r1 + a1 * c + b1 * d, d_table, j + n * WIDTH)
            store(r2 + a2 * c + b2 * d, d_table, j + 2 * n * WIDTH)
            store(r3 + a3 * c + b3 * d, d_table, j + 3 * n * WIDTH)
        x += 4
    while x < n:
        a, b = load(first, x * LANES), load(first, x * LANES + WIDTH)
        for z in range(n):
            j = (x * n + z) * WIDTH
            r = load(d_table, j) + a * load(second, z * LANES) + b * load(second, z * LANES + WIDTH)
            store(r, d_table, j)
        x += 1


@vector_kernel
def add_outers(n, there, back, at, d_table, to):
    """Add the products of the messages both ways along edges to the adjoints of their tables."""
    for half in range(0, LANES, WIDTH):
        for x in range(n):
            i = x * LANES + half
            a, b = load(there.c, i), load(back.d_sum, at + i)
            for z in range(n):
                i, j = z * LANES + half, to + (x * n + z) * LANES + half
                r = load(d_table, j) + a * load(there.d_sum, i)
                store(r + b * load(back.c, at + i), d_table, j)


# Messages


@kernel
def send(table, flip, mode, site, at, rho, work, to):
    """Compute normalised messages from the sites at one place to another."""
    n = work.size // LANES
    message_cavities(site, at, rho, work)
    if mode == MAX:
        for x in range(n):
            _best_of_one(table, flip, n, x, work.c, site.f, to)
    else:
        _multiply(table, flip, n, work.c, site.f, to)
    normalise(site.f, to, n)


@kernel
def send_vjp(table, back, flip, site, at, rho, d_message, to, work):
    """Compute the adjoints of cavities and of unnormalised messages, from those of messages.

    `back` is the table of the opposite message. Adjoints of cavities are those of their
    logarithms, the others are not.
    """
    message_cavities(site, at, rho, work)
    _adjoints_of_sums(table, flip, site.f, d_message, to, work)
    _multiply(back, not flip, work.size // LANES, work.d_sum, work.d_c, 0)
    _scale(work)


@vector_kernel
def _scale(work):
    for i in range(0, work.size, WIDTH):
        store(load(work.c, i) * load(work.d_c, i), work.d_c, i)


@vector_kernel
def update_back(work, rho, d_site, at):
    """Add the adjoint of a cavity on the way back to those of its site; it is the first of that of q."""
    for i in range(0, work.size, WIDTH):
        d, weight = load(work.d_c, i), load(rho.by_lane, i)
        store(d, d_site.q, at + i)
        store(load(d_site.b, at + i) + weight * d, d_site.b, at + i)
        store(load(d_site.f, at + i) + (weight - 1.0) * d, d_site.f, at + i)


@vector_kernel
def update_there(work, rho, d_site, at):
    """Add the adjoint of a cavity on the way there; the adjoint of b before the sweep replaces that of b."""
    for i in range(0, work.size, WIDTH):
        d, weight = load(work.d_c, i), load(rho.by_lane, i)
        store(load(d_site.q, at + i) + d, d_site.q, at + i)
        store(load(d_site.f, at + i) + weight * d, d_site.f, at + i)
        store((weight - 1.0) * d, d_site.b, at + i)
