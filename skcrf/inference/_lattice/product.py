"""Messages of any number of labels: products of tables and cavities.

As many sums as fit the registers are computed at a time, each a vector of lanes.

Messages are (label, lane) with two vectors of lanes. Blocks of two to five rows or columns are written as
LLVM code, because a loop over labels in Python source cannot keep the sums in registers.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, type_callable

from skcrf._numerics import kernel, vector_kernel
from skcrf.inference._lattice.message import MAX, compute_cavities, fill
from skcrf.inference._lattice.potts import add_to_potts, maximise_potts, multiply_potts
from skcrf.inference._lattice.vector import (
    AddressType,
    at_least,
    inverse,
    lanes_of,
    load,
    number,
    shifted,
    store,
    stream,
    vector_at,
    width_of,
    zeros_like,
)

_SIZES = 2, 3, 4, 5


def _add_rows(table, c, n, out, total, rows):
    lanes = lanes_of(c)
    for x in range(rows):
        value = np.zeros(lanes, dtype=c.dtype)
        for z in range(n):
            value += table(x, z, lanes) * c[z * lanes :][:lanes]
        out[x * lanes :][:lanes] = value
        total[:lanes] += value


def add_number_rows(table, c, n, out, total, rows):
    """Multiply 2 to 5 rows of a table of (row, n) numbers by a message c; adds their sum to `total`."""
    _add_rows(lambda x, z, lanes: table[x * n + z], c, n, out, total, rows)


def add_vector_rows(table, row_step, step, c, n, out, total, rows):
    """Do the same for a table by lane, whose entries are `step` numbers apart."""
    _add_rows(lambda x, z, lanes: table[x * row_step + z * step :][:lanes], c, n, out, total, rows)


def add_outer_block(first, second, n_messages, size, out, row_step, rows, columns):
    """Add the products of 2 to 5 labels of each of two lists of messages, summed over the lists.

    The messages of a list are `size` numbers apart. Adds to `out`, of shape (row, column, vector).
    """
    width, lanes = width_of(first), lanes_of(first)
    for x in range(rows):
        for z in range(columns):
            for i in range(0, n_messages * size, size):
                product = first[i + x * lanes :][:lanes] * second[i + z * lanes :][:lanes]
                out[x * row_step + z * width :][:width] += product[:width] + product[width:]


@type_callable(add_number_rows)
def _(context):
    return lambda table, c, n, out, total, rows: types.none


@type_callable(add_vector_rows)
def _(context):
    return lambda table, row_step, step, c, n, out, total, rows: types.none


@type_callable(add_outer_block)
def _(context):
    return lambda first, second, n_messages, size, out, row_step, rows, columns: types.none


class _Code:
    """Generator of code for vectors at addresses; offsets are in vectors."""

    def __init__(self, context, builder, kind):
        self.context, self.builder, self.kind = context, builder, kind
        self.width, self.align = kind.vector.width, kind.dtype.bitwidth // 8
        self.type = context.get_value_type(kind.vector)

    def load(self, place, at, offset=0):
        return self.builder.load(self._at(place, at, offset), align=self.align)

    def store(self, value, place, at, offset=0):
        self.builder.store(value, self._at(place, at, offset), align=self.align)

    def add(self, value, place, at, offset=0):
        self.store(self.builder.fadd(self.load(place, at, offset), value), place, at, offset)

    def repeat(self, place, at):
        """Load a number and repeat it in a vector."""
        number = self.builder.load(self.builder.gep(place, [at]))
        one = self.builder.insert_element(ir.Constant(self.type, ir.Undefined), number, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
        return self.builder.shuffle_vector(one, ir.Constant(self.type, ir.Undefined), mask)

    def zeros(self, n):
        """Make variables that are zero; the compiler keeps them in registers."""
        variables = [cgutils.alloca_once(self.builder, self.type) for _ in range(n)]
        for variable in variables:
            self.builder.store(ir.Constant(self.type, [0.0] * self.width), variable)
        return variables

    def add_product(self, a, b, variable):
        product = self.builder.fmul(a, b)
        self.builder.store(self.builder.fadd(self.builder.load(variable), product), variable)

    def product(self, index, factor):
        return self.builder.mul(index, ir.IntType(64)(factor))

    def is_equal(self, index, value):
        return self.builder.icmp_signed("==", index, ir.IntType(64)(value))

    def _at(self, place, at, offset):
        at = self.builder.add(at, ir.IntType(64)(offset * self.width))
        return vector_at(self.context, self.builder, self.kind, place, at)


def _rows_of_products(code, entries, c, n, out, total, rows):
    """Generate code for a number of rows; `entries` loads those of a row and column, one per half."""
    builder, zero = code.builder, ir.IntType(64)(0)
    sums = code.zeros(2 * rows)
    with cgutils.for_range(builder, n) as loop:
        at = code.product(loop.index, 2 * code.width)
        halves = [code.load(c, at, half) for half in range(2)]
        for x in range(rows):
            for half, entry in enumerate(entries(x, loop.index)):
                code.add_product(entry, halves[half], sums[2 * x + half])
    for half in range(2):
        values = [builder.load(variable) for variable in sums[half::2]]
        for x, value in enumerate(values):
            code.store(value, out, zero, 2 * x + half)
        while len(values) > 1:  # in pairs, because a chain of sums would take longer
            values = [*values[2:], builder.fadd(*values[:2])]
        code.add(values[0], total, zero, half)


@lower_builtin(add_number_rows, AddressType, AddressType, types.Integer, *2 * [AddressType], types.Integer)
def _(context, builder, signature, args):
    table, c, n, out, total, rows = args
    code = _Code(context, builder, signature.args[0])

    def entries(x, z):
        return 2 * [code.repeat(table, builder.add(code.product(n, x), z))]

    for size in _SIZES:
        with builder.if_then(code.is_equal(rows, size)):
            _rows_of_products(code, entries, c, n, out, total, size)
    return context.get_dummy_value()


@lower_builtin(
    add_vector_rows,
    *(AddressType, types.Integer, types.Integer, AddressType, types.Integer, AddressType, AddressType),
    types.Integer,
)
def _(context, builder, signature, args):
    table, row_step, step, c, n, out, total, rows = args
    code = _Code(context, builder, signature.args[0])

    def entries(x, z):
        at = builder.add(code.product(row_step, x), builder.mul(z, step))
        return [code.load(table, at, half) for half in range(2)]

    for size in _SIZES:
        with builder.if_then(code.is_equal(rows, size)):
            _rows_of_products(code, entries, c, n, out, total, size)
    return context.get_dummy_value()


def _outer_products(code, first, second, n_messages, size, out, row_step, rows, columns):
    """Generate code for a number of rows and columns."""
    builder, n_sums = code.builder, rows * columns
    sums = code.zeros(n_sums if n_sums >= 8 else 2 * n_sums)  # enough to hide the latency of a sum
    with cgutils.for_range(builder, n_messages) as loop:
        at = builder.mul(loop.index, size)
        for half in range(2):
            across = [code.load(second, at, 2 * z + half) for z in range(columns)]
            for x in range(rows):
                value = code.load(first, at, 2 * x + half)
                for z in range(columns):
                    code.add_product(value, across[z], sums[(x * columns + z + half * n_sums) % len(sums)])
    for x in range(rows):
        for z in range(columns):
            value = builder.load(sums[x * columns + z])
            if len(sums) > n_sums:
                value = builder.fadd(value, builder.load(sums[x * columns + z + n_sums]))
            code.add(value, out, code.product(row_step, x), z)


@lower_builtin(
    add_outer_block,
    *(AddressType, AddressType, types.Integer, types.Integer, AddressType, *3 * [types.Integer]),
)
def _(context, builder, signature, args):
    *arrays, rows, columns = args
    code = _Code(context, builder, signature.args[0])
    for n_rows in _SIZES:
        with builder.if_then(code.is_equal(rows, n_rows)):
            for n_columns in _SIZES:
                with builder.if_then(code.is_equal(columns, n_columns)):
                    _outer_products(code, *arrays, n_rows, n_columns)
    return context.get_dummy_value()


@vector_kernel
def _next_size(left):
    """Choose the size of a block: four, but no label stays alone at the end."""
    return left if left < 4 or left == 5 else 4


@vector_kernel
def multiply_numbers(table, n, c, out, total):
    """Multiply an (n, n) table of numbers by a message c of n labels; adds the sums over rows to `total`."""
    x = 0
    while x < n:
        rows = _next_size(n - x)
        add_number_rows(shifted(table, x * n), c, n, shifted(out, x * lanes_of(c)), total, rows)
        x += rows


@vector_kernel
def multiply_vectors(table, row_step, step, n, c, out, total):
    """Do the same for a table by lane."""
    x = 0
    while x < n:
        rows, to = _next_size(n - x), shifted(out, x * lanes_of(c))
        add_vector_rows(shifted(table, x * row_step), row_step, step, c, n, to, total, rows)
        x += rows


@vector_kernel
def add_outer(first, second, n_messages, n, out):
    """Add the products of all pairs of labels of two lists of messages: (label, label, vector)."""
    lanes, width, x = lanes_of(first), width_of(first), 0
    while x < n:
        rows, z = _next_size(n - x), 0
        while z < n:
            columns, to = _next_size(n - z), shifted(out, (x * n + z) * width)
            left, right = shifted(first, x * lanes), shifted(second, z * lanes)
            add_outer_block(left, right, n_messages, n * lanes, to, n * width, rows, columns)
            z += columns
        x += rows


# Messages: out(x) = sum_z table(x, z) c(z)


@kernel
def _entry(table, x, z, n, half):
    """Load the entry of a table for target x and source z: a number, or a vector for half of the lanes."""
    if len(table) == 1:
        return number(table.place, x * n + z)
    lanes = lanes_of(table.place)
    if len(table) == 3:
        return load(table.place, (table.equal if x == z else table.unequal) + half * lanes // 2)
    return load(table.place, (z * n + x if table.flip else x * n + z) * lanes + half * lanes // 2)


@kernel
def _multiply(table, n, c, out, total):
    """Multiply the table by c; adds the sum over labels to `total`."""
    if len(table) == 1:
        multiply_numbers(table.place, n, c, out, total)
    elif len(table) == 3:
        multiply_potts(table, n, c, out, total)
    else:
        lanes = lanes_of(c)
        row_step, step = (lanes, n * lanes) if table.flip else (n * lanes, lanes)
        multiply_vectors(table.place, row_step, step, n, c, out, total)


@vector_kernel
def _maximise(table, n, c, out, total):
    """Maximise instead of summing; adds the sum over labels to `total`."""
    lanes, width = lanes_of(c), width_of(c)
    for x in range(n):
        a = b = zeros_like(load(c, 0))
        for z in range(n):
            a = at_least(_entry(table, x, z, n, 0) * load(c, z * lanes), a)
            b = at_least(_entry(table, x, z, n, 1) * load(c, z * lanes + width), b)
        _store_both(a, b, out, x * lanes)
        _store_both(load(total, 0) + a, load(total, width) + b, total, 0)


@kernel
def _store_both(low, high, out, to):
    store(low, out, to)
    store(high, out, to + width_of(out))


@vector_kernel
def _normalise(work, out, to):
    """Divide products by their sum over labels, which is replaced by its inverse."""
    width = width_of(out)
    low, high = 1.0 / load(work.total, 0), 1.0 / load(work.total, width)  # sooner than `inverse`
    _store_both(low, high, work.total, 0)
    for i in range(0, work.size, 2 * width):
        _store_both(low * load(work.sums, i), high * load(work.sums, i + width), out, to + i)


@vector_kernel
def keep_scaled(work, out, to):
    """Keep the cavities of messages that were sent, scaled as these messages were."""
    width = width_of(out)
    low, high = load(work.total, 0), load(work.total, width)
    for i in range(0, work.size, 2 * width):
        stream(low * load(work.c, i), out, to + i)
        stream(high * load(work.c, i + width), out, to + i + width)


@kernel
def send(table, mode, site, at, rho, work, joint, to):
    """Compute normalised messages from the sites at one place to another."""
    lanes = lanes_of(work.c)
    n = work.size // lanes
    compute_cavities(site, at, rho, work, joint)
    fill(work.total, lanes, 0.0)
    if mode == MAX:
        if len(table) == 3:
            maximise_potts(table, n, work.c, work.sums, work.total)
        else:
            _maximise(table, n, work.c, work.sums, work.total)
    else:
        _multiply(table, n, work.c, work.sums, work.total)
    _normalise(work, site.f, to)


@vector_kernel
def undo(table, back, c, work, d_sum):
    """Compute the adjoints of cavities, into `work.sums`, and of products; those of messages are `work.d`.

    `back` is the table of the opposite message. Adjoints of cavities are those of their logarithms, except
    for the factor c; those of products are not. Cavities are scaled, so that their products are the messages.
    """
    lanes, width = lanes_of(c), width_of(c)
    n = work.size // lanes
    fill(work.total, lanes, 0.0)
    _multiply(table, n, c, d_sum, work.total)
    low = high = zeros_like(load(c, 0))
    for i in range(0, work.size, lanes):
        low, high = low + load(work.d, i), high + load(work.d, i + width)
    for i in range(0, work.size, lanes):
        first = load(work.d, i) * inverse(load(d_sum, i)) - low
        second = load(work.d, i + width) * inverse(load(d_sum, i + width)) - high
        _store_both(first, second, d_sum, i)
    _multiply(back, n, d_sum, work.sums, work.total)


@vector_kernel
def _add_to_full(n, c, d_sum, c_back, d_back, d_table):
    lanes, width = lanes_of(d_table), width_of(d_table)
    for x in range(n):
        for half in range(0, lanes, width):
            i = x * lanes + half
            a, b = load(c, i), load(d_back, i)
            for z in range(n):
                i, j = z * lanes + half, (x * n + z) * lanes + half
                store(load(d_table, j) + a * load(d_sum, i) + b * load(c_back, i), d_table, j)


@kernel
def add_to_own(table, c, d_sum, c_back, d_back, d_table, n):
    """Add the products of the messages both ways along edges to the adjoints of their tables."""
    if len(table) == 3:
        add_to_potts(table, n, c, d_sum, d_table)
        add_to_potts(table, n, c_back, d_back, d_table)
    else:
        _add_to_full(n, c, d_sum, c_back, d_back, d_table)
