"""Vectors of a few numbers that kernels keep in registers.

LLVM vectorises a loop over arrays only if it can show that they do not overlap, which it gives up with more
than a few arrays. A kernel that loads vectors, computes with them and stores the results needs no such proof.
Arrays are given by their addresses: numba counts references to arrays in tuples, which takes longer than a
message. The caller keeps the arrays.

Vectors support + - * / among themselves and with a scalar. Without compilation they are NumPy arrays.
"""

import operator

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, models, register_model, type_callable

#: Numbers per vector, a power of two: those of a register of the processor.
WIDTH = 8 if binding.get_host_cpu_features().get("avx512f") else 4

#: Lines per tile; two vectors, so that sums of four labels fill the registers.
LANES = 2 * WIDTH


class VectorType(types.Type):
    """Type of a vector of `WIDTH` numbers in compiled code."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype}, {WIDTH})")


class AddressType(types.Type):
    """Type of the address of a C-ordered array in compiled code."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Address({dtype})")


@register_model(AddressType)
class _AddressModel(models.PrimitiveModel):
    def __init__(self, manager, address):
        super().__init__(manager, address, manager.lookup(address.dtype).get_data_type().as_pointer())


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, ir.VectorType(manager.lookup(vector.dtype).get_value_type(), WIDTH))


def address(array):
    """Return the address of a C-ordered array; without compilation, the flat array."""
    return array.reshape(-1)


def number(array, i):
    """Load a number from an address, counted in numbers."""
    return array[i]


def put(value, array, i):
    """Store a number at an address."""
    array[i] = value


def load(array, i):
    """Load a vector from an address."""
    return array[i : i + WIDTH].copy()


def store(vector, array, i):
    """Store a vector at an address."""
    array[i : i + WIDTH] = vector


def transpose_vectors(source, at, step, out, to, out_step):
    """Transpose `WIDTH` vectors at an address that are `step` numbers apart, to another address."""
    block = np.stack([source[at + i * step :][:WIDTH] for i in range(WIDTH)])
    for i in range(WIDTH):
        out[to + i * out_step :][:WIDTH] = block[:, i]


def zeros_like(vector):
    """Make a vector of zeros."""
    return np.zeros_like(vector)


def sqrt(vector):
    """Compute the square root of each number."""
    return np.sqrt(vector)


def at_least(vector, limit):
    """Compute the maximum of each number and a limit; nan stays."""
    return np.maximum(vector, limit)


def total(vector):
    """Sum the numbers of a vector."""
    return vector.sum()


@type_callable(address)
def _(context):
    def typer(array):
        return AddressType(array.dtype) if isinstance(array, types.Array) and array.layout == "C" else None

    return typer


@type_callable(number)
def _(context):
    return lambda array, i: array.dtype


@type_callable(load)
def _(context):
    return lambda array, i: VectorType(array.dtype)


@type_callable(put)
@type_callable(store)
def _(context):
    return lambda value, array, i: types.none


@type_callable(transpose_vectors)
def _(context):
    return lambda source, at, step, out, to, out_step: types.none


def _same_type(context):
    def typer(vector):
        return vector if isinstance(vector, VectorType) else None

    return typer


def _type_of_total(context):
    def typer(vector):
        return vector.dtype if isinstance(vector, VectorType) else None

    return typer


def _type_with_scalar(context):
    def typer(vector, limit):
        if isinstance(vector, VectorType) and (limit == vector or isinstance(limit, types.Number)):
            return vector

    return typer


def _type_of_both(context):
    def typer(left, right):
        for one, other in ((left, right), (right, left)):
            if isinstance(one, VectorType) and (other == one or isinstance(other, types.Number)):
                return one

    return typer


def _vector_at(context, builder, kind, place, i):
    """Compute the address of a vector."""
    vector = context.get_value_type(VectorType(kind.dtype))
    return builder.bitcast(builder.gep(place, [i]), vector.as_pointer())


def _spread(context, builder, vector_type, value_type, value):
    """Repeat a scalar in a vector; return a vector as it is."""
    if isinstance(value_type, VectorType):
        return value
    value = context.cast(builder, value, value_type, vector_type.dtype)
    kind = context.get_value_type(vector_type)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)


@lower_builtin(address, types.Array)
def _(context, builder, signature, args):
    return context.make_array(signature.args[0])(context, builder, args[0]).data


@lower_builtin(number, AddressType, types.Integer)
def _(context, builder, signature, args):
    return builder.load(builder.gep(args[0], [args[1]]))


@lower_builtin(put, types.Number, AddressType, types.Integer)
def _(context, builder, signature, args):
    value = context.cast(builder, args[0], signature.args[0], signature.args[1].dtype)
    builder.store(value, builder.gep(args[1], [args[2]]))
    return context.get_dummy_value()


@lower_builtin(load, AddressType, types.Integer)
def _(context, builder, signature, args):
    place = _vector_at(context, builder, signature.args[0], *args)
    return builder.load(place, align=signature.args[0].dtype.bitwidth // 8)


@lower_builtin(store, VectorType, AddressType, types.Integer)
def _(context, builder, signature, args):
    place = _vector_at(context, builder, signature.args[1], *args[1:])
    builder.store(args[0], place, align=signature.args[1].dtype.bitwidth // 8)
    return context.get_dummy_value()


@lower_builtin(transpose_vectors, AddressType, *2 * [types.Integer], AddressType, *2 * [types.Integer])
def _(context, builder, signature, args):
    source, at, step, out, to, out_step = args
    kind, number = signature.args[0], ir.IntType(64)
    rows, align = [], kind.dtype.bitwidth // 8
    for i in range(WIDTH):
        place = builder.add(at, builder.mul(step, number(i)))
        rows.append(builder.load(_vector_at(context, builder, kind, source, place), align=align))
    for size in (WIDTH // 2**n for n in range(1, WIDTH.bit_length())):
        # Swap the second half of each row with the first half of the row `size` further on, and so on.
        low = [WIDTH + j - size if j & size else j for j in range(WIDTH)]
        high = [WIDTH + j if j & size else j + size for j in range(WIDTH)]
        low, high = (ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), mask) for mask in (low, high))
        for i in range(WIDTH):
            if not i & size:
                pair = rows[i], rows[i + size]
                rows[i], rows[i + size] = (builder.shuffle_vector(*pair, mask) for mask in (low, high))
    for i, row in enumerate(rows):
        place = builder.add(to, builder.mul(out_step, number(i)))
        builder.store(row, _vector_at(context, builder, kind, out, place), align=align)
    return context.get_dummy_value()


@lower_builtin(zeros_like, VectorType)
def _(context, builder, signature, args):
    return ir.Constant(args[0].type, [0.0] * WIDTH)


@lower_builtin(sqrt, VectorType)
def _(context, builder, signature, args):
    kind = args[0].type
    name = f"llvm.sqrt.v{WIDTH}f{signature.return_type.dtype.bitwidth}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name)
    return builder.call(function, args)


@lower_builtin(at_least, VectorType, VectorType)
@lower_builtin(at_least, VectorType, types.Number)
def _(context, builder, signature, args):
    limit = _spread(context, builder, signature.return_type, signature.args[1], args[1])
    is_less = builder.fcmp_ordered("<", args[0], limit)
    return builder.select(is_less, limit, args[0])


@lower_builtin(total, VectorType)
def _(context, builder, signature, args):
    parts = args[0]
    for size in (WIDTH // 2**n for n in range(1, WIDTH.bit_length())):
        mask = ir.VectorType(ir.IntType(32), size)
        low, high = (ir.Constant(mask, list(range(first, first + size))) for first in (0, size))
        undefined = ir.Constant(parts.type, ir.Undefined)
        parts = builder.fadd(
            builder.shuffle_vector(parts, undefined, low), builder.shuffle_vector(parts, undefined, high)
        )
    return builder.extract_element(parts, ir.IntType(32)(0))


def _lower_operator(operation, name):
    def lower(context, builder, signature, args):
        spread = (
            _spread(context, builder, signature.return_type, kind, value)
            for kind, value in zip(signature.args, args, strict=True)
        )
        return getattr(builder, name)(*spread)

    for kinds in ((VectorType, VectorType), (VectorType, types.Number), (types.Number, VectorType)):
        lower_builtin(operation, *kinds)(lower)
    type_callable(operation)(_type_of_both)


for _function in (zeros_like, sqrt):
    type_callable(_function)(_same_type)
type_callable(total)(_type_of_total)
type_callable(at_least)(_type_with_scalar)
for _operation, _name in (("add", "fadd"), ("sub", "fsub"), ("mul", "fmul"), ("truediv", "fdiv")):
    _lower_operator(getattr(operator, _operation), _name)
