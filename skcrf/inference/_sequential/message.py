"""Messages of the sites of one position of a strip, to all their later or all their earlier neighbours.

Messages are probabilities, or for two labels ratios of the second to the first. The weight of all edges is
1 / 2 with four neighbours and 1 / 4 with eight, so that powers are square roots. Adjoints of messages are
those of their logarithms.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.vector import LANES, WIDTH, at_least, load, number, sqrt, store, zeros_like

#: Distance of two labels in the arrays of strips: there is a lane more at each side.
STRIDE = LANES + 2

#: Modes of messages. RATIO is None, so that a kernel is compiled either for ratios or for other messages.
SUM, MAX, RATIO = False, True, None


class Sites(NamedTuple):
    """Addresses of the arrays of an example, or of their adjoints.

    Attributes
    ----------
    unary : ndarray
        exp(theta).
    later, earlier : ndarray
        Messages to later and to earlier neighbours, at their sources: one array per direction.
    size : int
        Size of these arrays.
    """

    unary: np.ndarray
    later: np.ndarray
    earlier: np.ndarray
    size: int


class Work(NamedTuple):
    """Addresses of scratch memory, n_values * LANES numbers each, and n_values.

    Attributes
    ----------
    belief, cavity, sums : ndarray
        Unnormalised beliefs, cavities and messages.
    d_belief, d_cavity : ndarray
        Adjoints of the logarithms of beliefs and cavities.
    n_values : int
        Numbers per message.
    """

    belief: np.ndarray
    cavity: np.ndarray
    sums: np.ndarray
    d_belief: np.ndarray
    d_cavity: np.ndarray
    n_values: int


class SharedTable(NamedTuple):
    """A table for all lanes: its address, where it starts, and the steps between targets and sources."""

    place: np.ndarray
    first: int
    target: int
    source: int


class OwnTables(NamedTuple):
    """Tables by lane: their address, where they start, and the steps between targets and sources."""

    place: np.ndarray
    first: int
    target: int
    source: int
    lane: int


@kernel
def transposed(table):
    """Swap targets and sources."""
    if len(table) == 4:
        return SharedTable(table.place, table.first, table.source, table.target)
    return OwnTables(table.place, table.first, table.source, table.target, table.lane)


@kernel
def entry(table, x, z, i):
    """Load the entry of a table for target x and source z: a number, or a vector from lane i on."""
    at = table.first + x * table.target + z * table.source
    if len(table) == 4:
        return number(table.place, at)
    return load(table.place, at + i)


@kernel
def entry_of_lane(table, x, z, lane):
    """Load the entry of a table for one lane."""
    at = table.first + x * table.target + z * table.source
    return number(table.place, at if len(table) == 4 else at + lane)


@vector_kernel
def beliefs(sites, steps, at, work):
    """Compute the unnormalised beliefs of the sites of a position."""
    size = sites.size
    for x in range(work.n_values):
        for i in range(0, LANES, WIDTH):
            j = at + x * STRIDE + i
            product = load(sites.later, j - steps[0]) * load(sites.earlier, j + steps[0])
            product = product * load(sites.later, size + j - steps[1])
            product = product * load(sites.earlier, size + j + steps[1])
            if len(steps) == 4:
                product = product * load(sites.later, 2 * size + j - steps[2])
                product = product * load(sites.earlier, 2 * size + j + steps[2])
                product = product * load(sites.later, 3 * size + j - steps[3])
                product = sqrt(product * load(sites.earlier, 3 * size + j + steps[3]))
            store(load(sites.unary, j) * sqrt(product), work.belief, x * LANES + i)


@vector_kernel
def add_to_incoming(d_belief, steps, at, weight, n_values, d_sites):
    """Add the adjoint of beliefs to those of the potentials and of all incoming messages."""
    for x in range(n_values):
        for i in range(0, LANES, WIDTH):
            d, j = load(d_belief, x * LANES + i), at + x * STRIDE + i
            store(load(d_sites.unary, j) + d, d_sites.unary, j)
            d = d * weight
            for direction in range(len(steps)):
                a = direction * d_sites.size + j - steps[direction]
                b = direction * d_sites.size + j + steps[direction]
                store(load(d_sites.later, a) + d, d_sites.later, a)
                store(load(d_sites.earlier, b) + d, d_sites.earlier, b)


# Two labels: the ratio of a message is (t10 b + t11 B) / (t00 b + t01 B), with B the ratio of the belief and
# b that of the message from the receiver.


@vector_kernel
def send_ratio(table, own, own_at, belief, out, to):
    """Compute ratios of messages; `own` are the messages from the receivers."""
    for i in range(0, LANES, WIDTH):
        b, c = load(own, own_at + i), load(belief, i)
        top = entry(table, 1, 0, i) * b + entry(table, 1, 1, i) * c
        bottom = entry(table, 0, 0, i) * b + entry(table, 0, 1, i) * c
        store(top / bottom, out, to + i)


@vector_kernel
def send_ratio_vjp(table, own, own_at, d_own, work, d_sent, to, d_table):
    """Add the adjoint of a ratio to those of beliefs, of `own` and of the table; the former becomes 0."""
    for i in range(0, LANES, WIDTH):
        b, c, d = load(own, own_at + i), load(work.belief, i), load(d_sent, to + i)
        # The adjoint times the share of source 1 in numerator and denominator of the ratio.
        top, bottom = entry(table, 1, 1, i) * c, entry(table, 0, 1, i) * c
        top = d * top / (entry(table, 1, 0, i) * b + top)
        bottom = d * bottom / (entry(table, 0, 0, i) * b + bottom)
        d_cavity = top - bottom
        store(load(work.d_belief, i) + d_cavity, work.d_belief, i)
        store(load(d_own, own_at + i) - d_cavity, d_own, own_at + i)
        store(zeros_like(d), d_sent, to + i)
        _add_to_entry(d_table, 0, 0, i, bottom - d)
        _add_to_entry(d_table, 0, 1, i, zeros_like(d) - bottom)
        _add_to_entry(d_table, 1, 0, i, d - top)
        _add_to_entry(d_table, 1, 1, i, top)


@kernel
def _add_to_entry(d_table, x, z, i, value):
    """Add to the adjoint of an entry by lane; that of shared tables is one vector."""
    at = d_table.first + x * d_table.target + z * d_table.source + i * d_table.lane
    store(load(d_table.place, at) + value, d_table.place, at)


# Any number of labels: out(x) = sum_z table(x, z) c(z)


@kernel
def cavities(belief, own, own_at, n, out, to):
    """Compute the cavities of all labels; `own` are the messages from the receivers."""
    for x in range(n):
        for i in range(0, LANES, WIDTH):
            c = load(belief, x * LANES + i) / load(own, own_at + x * STRIDE + i)
            store(c, out, to + x * LANES + i)


@vector_kernel
def _sum_of_four(table, n, x, c, at, out):
    """Compute the sums of targets x to x + 3: as many numbers as fit the registers."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zeros_like(load(c, at))
    for z in range(n):
        low, high = load(c, at + z * LANES), load(c, at + z * LANES + WIDTH)
        a0 = a0 + entry(table, x, z, 0) * low
        b0 = b0 + entry(table, x, z, WIDTH) * high
        a1 = a1 + entry(table, x + 1, z, 0) * low
        b1 = b1 + entry(table, x + 1, z, WIDTH) * high
        a2 = a2 + entry(table, x + 2, z, 0) * low
        b2 = b2 + entry(table, x + 2, z, WIDTH) * high
        a3 = a3 + entry(table, x + 3, z, 0) * low
        b3 = b3 + entry(table, x + 3, z, WIDTH) * high
    to = x * LANES
    store(a0, out, to)
    store(b0, out, to + WIDTH)
    store(a1, out, to + LANES)
    store(b1, out, to + LANES + WIDTH)
    store(a2, out, to + 2 * LANES)
    store(b2, out, to + 2 * LANES + WIDTH)
    store(a3, out, to + 3 * LANES)
    store(b3, out, to + 3 * LANES + WIDTH)


@vector_kernel
def _sum_of_one(table, n, x, c, at, out):
    a = b = zeros_like(load(c, at))
    for z in range(n):
        a = a + entry(table, x, z, 0) * load(c, at + z * LANES)
        b = b + entry(table, x, z, WIDTH) * load(c, at + z * LANES + WIDTH)
    store(a, out, x * LANES)
    store(b, out, x * LANES + WIDTH)


@vector_kernel
def _best_of_one(table, n, x, c, at, out):
    a = b = zeros_like(load(c, at))
    for z in range(n):
        a = at_least(entry(table, x, z, 0) * load(c, at + z * LANES), a)
        b = at_least(entry(table, x, z, WIDTH) * load(c, at + z * LANES + WIDTH), b)
    store(a, out, x * LANES)
    store(b, out, x * LANES + WIDTH)


@kernel
def multiply(table, mode, n, c, at, out):
    """Multiply a table by vectors, or maximise instead of summing."""
    if mode == MAX:
        for x in range(n):
            _best_of_one(table, n, x, c, at, out)
    else:
        for x in range(0, n - n % 4, 4):
            _sum_of_four(table, n, x, c, at, out)
        for x in range(n - n % 4, n):
            _sum_of_one(table, n, x, c, at, out)


@vector_kernel
def _store_normalised(sums, n, out, to):
    """Divide messages by their sums over labels."""
    for i in range(0, LANES, WIDTH):
        total = zeros_like(load(sums, i))
        for x in range(n):
            total = total + load(sums, x * LANES + i)
        total = 1.0 / total
        for x in range(n):
            store(total * load(sums, x * LANES + i), out, to + x * STRIDE + i)


@kernel
def send(table, mode, own, own_at, work, out, to):
    """Compute normalised messages; `own` are the messages from the receivers."""
    cavities(work.belief, own, own_at, work.n_values, work.cavity, 0)
    multiply(table, mode, work.n_values, work.cavity, 0, work.sums)
    _store_normalised(work.sums, work.n_values, out, to)


@vector_kernel
def _adjoints_of_sums(table, cavity, c_at, sent, d_sent, to, n, out, s_at):
    """Compute the adjoints of unnormalised messages; those of the messages become 0.

    A message is a sum over the total of all sums. That is the sum of the first label over the first label of
    the message, so that no other sum is computed again.
    """
    for i in range(0, LANES, WIDTH):
        total = d_total = zeros_like(load(sent, to))
        for z in range(n):
            total = total + entry(table, 0, z, i) * load(cavity, c_at + z * LANES + i)
            d_total = d_total + load(d_sent, to + z * STRIDE + i)
        scale = load(sent, to + i) / total
        for x in range(n):
            j = to + x * STRIDE + i
            store((load(d_sent, j) / load(sent, j) - d_total) * scale, out, s_at + x * LANES + i)
            store(zeros_like(scale), d_sent, j)


@vector_kernel
def _spread(work, cavity, c_at, d_own, own_at):
    """Add the adjoint of cavities to those of beliefs and of the messages from the receivers."""
    for x in range(work.n_values):
        for i in range(0, LANES, WIDTH):
            j, to = x * LANES + i, own_at + x * STRIDE + i
            d = load(cavity, c_at + j) * load(work.d_cavity, j)
            store(load(work.d_belief, j) + d, work.d_belief, j)
            store(load(d_own, to) - d, d_own, to)


@kernel
def send_vjp(table, own, own_at, d_own, work, sent, d_sent, to, kept, at):
    """Add the adjoints of messages to those of beliefs and of `own`, and set them to 0.

    Leaves the cavities and the adjoints of the sums in `kept`, from `at` on.
    """
    n = work.n_values
    cavities(work.belief, own, own_at, n, kept.cavity, at)
    _adjoints_of_sums(table, kept.cavity, at, sent, d_sent, to, n, kept.d_sums, at)
    multiply(transposed(table), SUM, n, kept.d_sums, at, work.d_cavity)
    _spread(work, kept.cavity, at, d_own, own_at)


class Kept(NamedTuple):
    """Addresses of cavities and of adjoints of sums of several messages, n_values * LANES numbers each."""

    cavity: np.ndarray
    d_sums: np.ndarray


# Adjoints of tables


@vector_kernel
def add_products(n, n_sent, targets, sources, at, d_table):
    """Add the products of the vectors of messages to the adjoint of a shared table."""
    for z in range(n):
        x = 0
        while x + 4 <= n:
            a0 = a1 = a2 = a3 = zeros_like(load(targets, at))
            for m in range(n_sent):
                for i in range(at + m * n * LANES, at + m * n * LANES + LANES, WIDTH):
                    c, j = load(sources, i + z * LANES), i + x * LANES
                    a0 = a0 + load(targets, j) * c
                    a1 = a1 + load(targets, j + LANES) * c
                    a2 = a2 + load(targets, j + 2 * LANES) * c
                    a3 = a3 + load(targets, j + 3 * LANES) * c
            _add_to_entry(d_table, x, z, 0, a0)
            _add_to_entry(d_table, x + 1, z, 0, a1)
            _add_to_entry(d_table, x + 2, z, 0, a2)
            _add_to_entry(d_table, x + 3, z, 0, a3)
            x += 4
        while x < n:
            a = zeros_like(load(targets, at))
            for m in range(n_sent):
                for i in range(at + m * n * LANES, at + m * n * LANES + LANES, WIDTH):
                    a = a + load(targets, i + x * LANES) * load(sources, i + z * LANES)
            _add_to_entry(d_table, x, z, 0, a)
            x += 1


@vector_kernel
def add_products_by_lane(n, targets, sources, at, d_table):
    """Add the products of the vectors of one message to the adjoints of tables by lane."""
    for i in range(0, LANES, WIDTH):
        for z in range(n):
            c = load(sources, at + z * LANES + i)
            for x in range(n):
                _add_to_entry(d_table, x, z, i, load(targets, at + x * LANES + i) * c)
