"""Messages of many lines at once, computed and normalised in vector arithmetic: D13 Eq 18.

Messages are (label, lane): a lane is one of several lines that a sweep crosses side by side, and every inner
loop runs over contiguous lanes. Messages are probabilities. For two labels one number is enough, the ratio of
the second to the first; then they have one row. Tables are exp(theta / rho): (target, source) where all edges
share one, (label, label, lane) where each edge has its own; `flip` is true if the first label is that of the
source. Functions and their derivatives stand side by side; adjoints are those of logarithms.
"""

from typing import NamedTuple

import numpy as np

from skcrf._numerics import inlined_kernel, kernel, vector_exp, vector_kernel, vector_log
from skcrf.inference._lattice.layout import Weights
from skcrf.inference._lattice.vector import (
    inverse,
    inverse_sqrt,
    load,
    number,
    put,
    shifted,
    store,
    stream,
    transpose_vectors,
    wide_address,
    width_of,
    zeros_like,
)

# Divides instead of the zero of a forbidden state, which stays forbidden.
_TINY = 1e-300

#: Numbers that keep the rows of a block off the same cache lines.
PADDING = 16

#: Modes of messages. RATIO is None, so that a kernel is compiled either for ratios or for other messages.
SUM, MAX, RATIO = False, True, None

#: Messages of scratch memory in `Work`.
WORK_SIZE = 5


class Work(NamedTuple):
    """Addresses of scratch memory for messages of `size` numbers.

    Attributes
    ----------
    size : int
        Numbers per message.
    c, powers, sums, total : addresses
        Cavities, powers of messages, products with a table, and their sum over labels.
    d : address
        Adjoint of the message that is undone next.
    """

    size: int
    c: np.ndarray
    powers: np.ndarray
    sums: np.ndarray
    total: np.ndarray
    d: np.ndarray


@kernel
def work_in(memory, size):
    """Divide memory of `WORK_SIZE` messages."""
    c, powers, sums = memory, shifted(memory, size), shifted(memory, 2 * size)
    return Work(size, c, powers, sums, shifted(memory, 3 * size), shifted(memory, 4 * size))


class Site(NamedTuple):
    """Inputs of messages to a neighbour: arrays of sites or their addresses.

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


class Joint(NamedTuple):
    """Addresses of the factors of joint effects of two opposite messages, and of the results at one site.

    Functions take an empty tuple instead where joint effects are not asked for: the compiler removes code
    that depends on the length of a tuple.
    """

    factor: np.ndarray
    out: np.ndarray


@vector_kernel
def fill(out, size, value):
    """Fill memory with a value."""
    for i in range(size):
        put(value, out, i)


# Cavities and joint effects


@inlined_kernel
def _power(value, common, rho):
    """Compute value^rho; `common` is rho, or nan. The compiler makes one loop for each case."""
    if common == 1.0:
        return value
    elif common == 0.5:
        return np.sqrt(value)
    return vector_exp(rho * vector_log(value)) if value > 0 else value  # 0, or nan


@inlined_kernel
def _scalar_cavity(q, f, b, rho, lane):
    """Compute q f^rho b^(rho - 1): the belief of a site without the message b of the receiving neighbour."""
    return q * f if rho.common == 1.0 else q * _power(f * b, rho.common, rho.by_lane[lane]) / max(b, _TINY)


@inlined_kernel
def cavities(site, rho, out):
    """Compute the cavities of all labels and lanes of one site, given as arrays."""
    for x in range(len(out)):
        for lane in range(out.shape[1]):
            out[x, lane] = _scalar_cavity(site.q[x, lane], site.f[x, lane], site.b[x, lane], rho, lane)


@vector_kernel
def prepare(f, b, at, rho, work):
    """Compute the powers of messages that cavities need, where there is no simpler way."""
    if rho.common != 1.0 and rho.common != 0.5:
        for i in range(work.size):
            value = np.float64(number(f, at + i) * number(b, at + i))
            put(_power(value, rho.common, np.float64(number(rho.by_lane, i))), work.powers, i)


@kernel
def cavity_of(q, f, b, common, powers, i):
    """Compute a cavity, and the joint effect (f b)^rho of both messages."""
    if common == 1.0:
        return q * f, f * b
    if common == 0.5:
        root = inverse_sqrt(f * b)
        return q * (f * root), (f * b) * root
    return q * load(powers, i) * inverse(b), load(powers, i)


@kernel
def _put_joint(joint, effect, i):
    if len(joint) > 0:
        store(load(joint.factor, i) * effect, joint.out, i)


@vector_kernel
def joint_effect(f, b, at, rho, work, joint):
    """Compute (f b)^rho, the joint effect of two opposite messages, times a factor."""
    prepare(f, b, at, rho, work)
    for i in range(0, work.size, width_of(f)):
        message = load(f, at + i)
        _, effect = cavity_of(message, message, load(b, at + i), rho.common, work.powers, i)
        _put_joint(joint, effect, i)


@vector_kernel
def compute_cavities(site, at, rho, work, joint):
    """Compute the cavities of all labels, and joint effects if asked for."""
    prepare(site.f, site.b, at, rho, work)
    for i in range(0, work.size, width_of(work.c)):
        q, f, b = load(site.q, at + i), load(site.f, at + i), load(site.b, at + i)
        c, effect = cavity_of(q, f, b, rho.common, work.powers, i)
        store(c, work.c, i)
        _put_joint(joint, effect, i)


# Two labels: the ratio of a message is (t10 + t11 c) / (t00 + t01 c), with c that of the cavity.


@kernel
def _entry_of_ratio(table, x, z, i, lanes):
    """Load the entry of a table: a number, or a vector from lane i on."""
    if len(table) == 1:
        return number(table.place, 2 * x + z)
    if len(table) == 3:
        return load(table.place, (table.equal if x == z else table.unequal) + i)
    return load(table.place, (2 * z + x if table.flip else 2 * x + z) * lanes + i)


@vector_kernel
def send_ratio(table, site, at, rho, work, joint, to):
    """Compute the ratios of messages from the sites at one place to another, for two labels."""
    lanes = work.size
    prepare(site.f, site.b, at, rho, work)
    for i in range(0, lanes, width_of(work.c)):
        q, f, b = load(site.q, at + i), load(site.f, at + i), load(site.b, at + i)
        c, effect = cavity_of(q, f, b, rho.common, work.powers, i)
        store(c, work.c, i)
        _put_joint(joint, effect, i)
        top = _entry_of_ratio(table, 1, 0, i, lanes) + _entry_of_ratio(table, 1, 1, i, lanes) * c
        bottom = _entry_of_ratio(table, 0, 0, i, lanes) + _entry_of_ratio(table, 0, 1, i, lanes) * c
        store(top / bottom, site.f, to + i)


@vector_kernel
def keep(work, out, to):
    """Keep the cavities of ratios that were sent."""
    for i in range(0, work.size, width_of(out)):
        stream(load(work.c, i), out, to + i)


@vector_kernel
def undo_ratio(table, flip, cavities, work, d_table):
    """Compute the adjoints of cavities, into `work.sums`, from those of ratios in `work.d`.

    Adds to the adjoint of the table: (label, label, vector) if it is shared.
    """
    lanes, width = work.size, width_of(work.c)
    sum_top = sum_bottom = sum_all = zeros_like(load(work.c, 0))
    for i in range(0, lanes, width):
        c, d = load(cavities, i), load(work.d, i)
        # The adjoint times the share of source 1 in numerator and denominator of the ratio.
        top = _entry_of_ratio(table, 1, 1, i, lanes) * c
        bottom = _entry_of_ratio(table, 0, 1, i, lanes) * c
        top = d * top / (_entry_of_ratio(table, 1, 0, i, lanes) + top)
        bottom = d * bottom / (_entry_of_ratio(table, 0, 0, i, lanes) + bottom)
        store(top - bottom, work.sums, i)
        if len(table) == 1:
            sum_top, sum_bottom, sum_all = sum_top + top, sum_bottom + bottom, sum_all + d
        else:
            _add_to_tables(top, bottom, d, shifted(d_table, i), lanes, flip)
    if len(table) == 1:
        _add_to_tables(sum_top, sum_bottom, sum_all, d_table, width, flip)


@vector_kernel
def _add_to_tables(top, bottom, d, d_table, step, flip):
    u, v = (2 * step, step) if flip else (step, 2 * step)
    store(load(d_table, 0) + (bottom - d), d_table, 0)
    store(load(d_table, u) - bottom, d_table, u)
    store(load(d_table, v) + (d - top), d_table, v)
    store(load(d_table, 3 * step) + top, d_table, 3 * step)


# Adjoints of sites


class Adjoints(NamedTuple):
    """Addresses of adjoints along the lines of a tile.

    Attributes
    ----------
    f, b : address
        Those of messages; b holds the difference to that of f.
    q : address
        The share of the messages back in those of q, which is not yet final.
    unary : address
        Those of the potentials, sums over all iterations.
    shares : address
        The shares of the adjoints of f that count as adjoints of the potentials too, one per number of a
        message.
    adds : bool
        Whether to add to the adjoints of the potentials.
    """

    f: np.ndarray
    b: np.ndarray
    q: np.ndarray
    unary: np.ndarray
    shares: np.ndarray
    adds: bool


@kernel
def _adjoint_of_cavity(mode, work, c, i):
    """Load the adjoint of the logarithm of a cavity."""
    return load(work.sums, i) if mode is RATIO else load(c, i) * load(work.sums, i)


@vector_kernel
def update_back(adjoints, at, mode, rho, work, c):
    """Add the adjoint of a cavity on the way back; leaves that of b in `work.d`."""
    for i in range(0, work.size, width_of(work.d)):
        d, weight = _adjoint_of_cavity(mode, work, c, i), load(rho.by_lane, i)
        store(d, adjoints.q, at + i)
        store(load(adjoints.f, at + i) + load(adjoints.b, at + i) + weight * d, work.d, i)


@vector_kernel
def update_there(adjoints, at, mode, rho, work, c, out):
    """Add the adjoint of a cavity on the way there; leaves that of f in `work.d`, that of q in `out`.

    The adjoint of b before the sweep replaces that of b.
    """
    for i in range(0, work.size, width_of(work.d)):
        d, weight = _adjoint_of_cavity(mode, work, c, i), load(rho.by_lane, i)
        d_back, d_f = load(adjoints.q, at + i), load(adjoints.f, at + i)
        store(d_back + d, out, i)
        if adjoints.adds:
            d_unary = load(adjoints.unary, at + i) + load(adjoints.shares, i) * d_f
            store(d_unary + (d_back + d), adjoints.unary, at + i)
        store(d_f + (weight - 1.0) * d_back + weight * d, work.d, i)
        store((weight - 1.0) * d, adjoints.b, at + i)


# Rows and columns: blocks of a few positions of all lanes are transposed.


class Across(NamedTuple):
    """exp(theta) along the lines of a sweep, and q along the other lines: exp(theta) times joint effects."""

    unary: np.ndarray
    q: np.ndarray


class AdjointAcross(NamedTuple):
    """Where the adjoint of q goes in the end: to messages f of the other of rows and columns.

    Attributes
    ----------
    d_f : ndarray
        Their adjoints.
    weights : ndarray
        The weights of their lines.
    adds : bool
        Whether to add to these adjoints, which are otherwise replaced.
    streams : bool
        Whether to store what replaces them past the caches, where it would not stay.
    """

    d_f: np.ndarray
    weights: np.ndarray
    adds: bool
    streams: bool


@kernel
def transpose_block(block, step, lanes, p, line, out):
    """Transpose a block of (position, label, lane) from position `p` and a line on, to the other direction.

    A row of the block is `step` numbers long. Positions are lanes of `out`, and lines are its positions.
    """
    _, n_lines, n_values, lanes_across = out.shape
    width, to_step = width_of(block), n_values * lanes_across
    first = p // lanes_across * n_lines * to_step + p % lanes_across
    rest = shifted(block, width * step)  # memory behind the block
    for lane in range(0, min(lanes, n_lines - line), width):
        n = min(width, n_lines - line - lane)
        for x in range(n_values):
            at, to = x * lanes + lane, first + (line + lane) * to_step + x * lanes_across
            if n == width:
                transpose_vectors(block, at, step, wide_address(out), to, to_step)
            else:
                transpose_vectors(block, at, step, rest, 0, width)
                for i in range(n):
                    store(load(rest, i * width), wide_address(out), to + i * to_step)


@vector_kernel
def put_weighted_block(block, step, lanes, p, line, across):
    """Do the same with numbers times the weight of their lane in the adjoints of messages."""
    out, weights = wide_address(across.d_f), wide_address(across.weights)
    _, n_lines, n_values, lanes_across = across.d_f.shape
    width, to_step = width_of(block), n_values * lanes_across
    first = p // lanes_across * n_lines * to_step + p % lanes_across
    rest, weight = shifted(block, width * step), load(weights, p)
    for lane in range(0, min(lanes, n_lines - line), width):
        for x in range(n_values):
            transpose_vectors(block, x * lanes + lane, step, rest, 0, width)
            to = first + (line + lane) * to_step + x * lanes_across
            for i in range(min(width, n_lines - line - lane)):
                value = weight * load(rest, i * width)
                if across.adds:
                    store(load(out, to) + value, out, to)
                elif across.streams:
                    stream(value, out, to)
                else:
                    store(value, out, to)
                to += to_step


@kernel
def cross_tile(f, b, rho, unary, tile, q, scratch):
    """Compute q = `unary` times the effect of messages f and b of the other of rows and columns.

    `q` holds one tile of several, which is number `tile`.
    """
    n_tiles, positions, n_values, lanes = f.shape
    size, width, first = n_values * lanes, width_of(wide_address(f)), tile * q.shape[3]
    step, block, work = size + PADDING, wide_address(scratch.block), work_in(wide_address(scratch.work), size)
    for t in range(n_tiles):
        rho_t = Weights(rho.common, wide_address(rho.by_lane[t]))
        for p in range(first, first + q.shape[3], width):
            for i in range(width):
                row = shifted(block, i * step)
                if p + i < positions:
                    at = (t * positions + p + i) * size
                    joint = Joint(shifted(wide_address(unary), at), row)
                    joint_effect(wide_address(b), wide_address(f), at, rho_t, work, joint)
                else:
                    fill(row, size, 1.0)
            transpose_block(block, step, lanes, p - first, t * lanes, q)


@kernel
def cross(f, b, rho, unary, q, scratch):
    """Compute q of all tiles."""
    for tile in range(len(q)):
        cross_tile(f, b, rho, unary, tile, q[tile : tile + 1], scratch)


@kernel
def cross_vjp(d_q, rho, d_f, scratch):
    """Pull the adjoint of q back to messages f of the other of rows and columns; adds to theirs."""
    n_tiles, positions, n_values, lanes = d_q.shape
    size, width = n_values * lanes, width_of(wide_address(d_q))
    step, block, across = (
        size + PADDING,
        wide_address(scratch.block),
        AdjointAcross(d_f, rho.by_lane, True, False),
    )
    for t in range(n_tiles):
        for p in range(0, positions, width):
            for i in range(width):
                row = shifted(block, i * step)
                if p + i < positions:
                    copy_row(shifted(wide_address(d_q), (t * positions + p + i) * size), size, row)
                else:
                    fill(row, size, 0.0)
            put_weighted_block(block, step, lanes, p, t * lanes, across)


@vector_kernel
def copy_row(values, size, out):
    """Copy a row of vectors."""
    for i in range(0, size, width_of(out)):
        store(load(values, i), out, i)


@vector_kernel
def add_weighted(values, weights, size, out):
    """Add numbers times their weights."""
    for i in range(0, size, width_of(out)):
        store(load(out, i) + load(weights, i) * load(values, i), out, i)
