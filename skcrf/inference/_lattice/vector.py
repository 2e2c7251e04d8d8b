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
from numba import config, types
from numba.core import cgutils
from numba.extending import lower_builtin, models, register_model, type_callable

# Code for another processor than this one may be asked for by an environment variable.
_HAS_AVX512 = binding.get_host_cpu_features().get("avx512f", False)
# Whether the processor estimates inverses and inverse square roots to 14 bits.
_HAS_ESTIMATES = _HAS_AVX512 and config.CPU_NAME is None and config.CPU_FEATURES is None

# Bytes of a register of the processor.
_BYTES = 64 if _HAS_AVX512 else 32

#: Numbers per vector at an `address`, a power of two: those of a register if they are of float64.
WIDTH = _BYTES // 8

#: Lines per tile at an `address`; two vectors, so that sums of four labels fill the registers.
LANES = 2 * WIDTH


class _Wide(np.ndarray):
    """An array whose vectors fill a register, without compilation."""


def width_of(array):
    """Return the numbers per vector at an address; a constant in compiled code."""
    return _BYTES // array.itemsize if isinstance(array, _Wide) else WIDTH


def lanes_of(array):
    """Return the numbers of two vectors at an address."""
    return 2 * width_of(array)


class VectorType(types.Type):
    """Type of a vector of numbers in compiled code."""

    def __init__(self, dtype, width):
        self.dtype, self.width = dtype, width
        super().__init__(name=f"Vector({dtype}, {width})")


class AddressType(types.Type):
    """Type of the address of a C-ordered array in compiled code."""

    def __init__(self, dtype, width):
        self.dtype, self.vector = dtype, VectorType(dtype, width)
        super().__init__(name=f"Address({dtype}, {width})")


@register_model(AddressType)
class _AddressModel(models.PrimitiveModel):
    def __init__(self, manager, address):
        super().__init__(manager, address, manager.lookup(address.dtype).get_data_type().as_pointer())


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        numbers = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(numbers, vector.width))


def address(array):
    """Return the address of a C-ordered array; without compilation, the flat array."""
    return array.reshape(-1)


def wide_address(array):
    """Return the same for vectors that fill a register, which are longer if numbers are short."""
    return array.reshape(-1).view(_Wide)


def number(array, i):
    """Load a number from an address, counted in numbers."""
    return array[i]


def put(value, array, i):
    """Store a number at an address."""
    array[i] = value


def shifted(array, i):
    """Return the address of a number of an array."""
    return array[i:]


def load(array, i):
    """Load a vector from an address."""
    return np.array(array[i : i + width_of(array)])


def store(vector, array, i):
    """Store a vector at an address."""
    array[i : i + width_of(array)] = vector


def stream(vector, array, i):
    """Store a vector past the caches, at an address that is a multiple of the bytes of the vector."""
    array[i : i + width_of(array)] = vector


def prefetch(array, i, size):
    """Ask for numbers from an address on to be loaded into the cache."""


def transpose_vectors(source, at, step, out, to, out_step):
    """Transpose a square of vectors at an address that are `step` numbers apart, to another address."""
    width = width_of(source)
    block = np.stack([source[at + i * step :][:width] for i in range(width)])
    for i in range(width):
        out[to + i * out_step :][:width] = block[:, i]


def zeros_like(vector):
    """Make a vector of zeros."""
    return np.zeros_like(vector)


def sqrt(vector):
    """Compute the square root of each number."""
    return np.sqrt(vector)


def inverse_sqrt(vector):
    """Compute one over the square root of each number, which must be normal and positive."""
    return 1.0 / np.sqrt(vector)


def inverse(vector):
    """Compute one over each number, which must be normal and so must be the result."""
    return 1.0 / vector


def at_least(vector, limit):
    """Compute the maximum of each number and a limit; nan stays."""
    return np.maximum(vector, limit)


def total(vector):
    """Sum the numbers of a vector."""
    return vector.sum()


def _type_address(function, width_of_type):
    @type_callable(function)
    def _(context):
        def typer(array):
            if isinstance(array, types.Array) and array.layout == "C":
                return AddressType(array.dtype, width_of_type(array.dtype))

        return typer


_type_address(address, lambda dtype: WIDTH)
_type_address(wide_address, lambda dtype: 8 * _BYTES // dtype.bitwidth)


@type_callable(width_of)
@type_callable(lanes_of)
def _(context):
    return lambda array: types.int64 if isinstance(array, AddressType) else None


@type_callable(number)
def _(context):
    return lambda array, i: array.dtype


@type_callable(shifted)
def _(context):
    return lambda array, i: array if isinstance(array, AddressType) else None


@type_callable(load)
def _(context):
    return lambda array, i: array.vector


@type_callable(put)
@type_callable(store)
@type_callable(stream)
def _(context):
    return lambda value, array, i: types.none


@type_callable(prefetch)
def _(context):
    return lambda array, i, size: types.none


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


def _type_of_both(context):
    def typer(left, right):
        for one, other in ((left, right), (right, left)):
            if isinstance(one, VectorType) and (other == one or isinstance(other, types.Number)):
                return one

    return typer


def vector_at(context, builder, kind, place, i):
    """Compute the address of a vector in LLVM code."""
    vector = context.get_value_type(kind.vector)
    return builder.bitcast(builder.gep(place, [i]), vector.as_pointer())


def _spread(context, builder, vector_type, value_type, value):
    """Repeat a scalar in a vector; return a vector as it is."""
    if isinstance(value_type, VectorType):
        return value
    value = context.cast(builder, value, value_type, vector_type.dtype)
    kind = context.get_value_type(vector_type)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)


@lower_builtin(address, types.Array)
@lower_builtin(wide_address, types.Array)
def _(context, builder, signature, args):
    return context.make_array(signature.args[0])(context, builder, args[0]).data


@lower_builtin(width_of, AddressType)
def _(context, builder, signature, args):
    return context.get_constant(types.int64, signature.args[0].vector.width)


@lower_builtin(lanes_of, AddressType)
def _(context, builder, signature, args):
    return context.get_constant(types.int64, 2 * signature.args[0].vector.width)


@lower_builtin(number, AddressType, types.Integer)
def _(context, builder, signature, args):
    return builder.load(builder.gep(args[0], [args[1]]))


@lower_builtin(shifted, AddressType, types.Integer)
def _(context, builder, signature, args):
    return builder.gep(args[0], [args[1]])


@lower_builtin(put, types.Number, AddressType, types.Integer)
def _(context, builder, signature, args):
    value = context.cast(builder, args[0], signature.args[0], signature.args[1].dtype)
    builder.store(value, builder.gep(args[1], [args[2]]))
    return context.get_dummy_value()


@lower_builtin(load, AddressType, types.Integer)
def _(context, builder, signature, args):
    place = vector_at(context, builder, signature.args[0], *args)
    return builder.load(place, align=signature.args[0].dtype.bitwidth // 8)


@lower_builtin(store, VectorType, AddressType, types.Integer)
def _(context, builder, signature, args):
    place = vector_at(context, builder, signature.args[1], *args[1:])
    builder.store(args[0], place, align=signature.args[1].dtype.bitwidth // 8)
    return context.get_dummy_value()


@lower_builtin(stream, VectorType, AddressType, types.Integer)
def _(context, builder, signature, args):
    kind, one = signature.args[1], ir.IntType(32)(1)
    place = vector_at(context, builder, kind, *args[1:])
    stored = builder.store(args[0], place, align=kind.vector.width * kind.dtype.bitwidth // 8)
    stored.set_metadata("nontemporal", builder.module.add_metadata([one]))
    return context.get_dummy_value()


@lower_builtin(prefetch, AddressType, *2 * [types.Integer])
def _(context, builder, signature, args):
    place, at, size = args
    pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    function_type = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], function_type)
    for_reading, keep, data = flag(0), flag(3), flag(1)
    width = signature.args[0].vector.width
    with cgutils.for_range_slice(builder, size.type(0), size, size.type(width)) as (i, _):
        line = builder.bitcast(builder.gep(place, [builder.add(at, i)]), pointer)
        builder.call(function, [line, for_reading, keep, data])
    return context.get_dummy_value()


@lower_builtin(transpose_vectors, AddressType, *2 * [types.Integer], AddressType, *2 * [types.Integer])
def _(context, builder, signature, args):
    source, at, step, out, to, out_step = args
    kind, number = signature.args[0], ir.IntType(64)
    rows, align, width = [], kind.dtype.bitwidth // 8, kind.vector.width
    for i in range(width):
        place = builder.add(at, builder.mul(step, number(i)))
        rows.append(builder.load(vector_at(context, builder, kind, source, place), align=align))
    for size in (width // 2**n for n in range(1, width.bit_length())):
        # Swap the second half of each row with the first half of the row `size` further on, and so on.
        low = [width + j - size if j & size else j for j in range(width)]
        high = [width + j if j & size else j + size for j in range(width)]
        low, high = (ir.Constant(ir.VectorType(ir.IntType(32), width), mask) for mask in (low, high))
        for i in range(width):
            if not i & size:
                pair = rows[i], rows[i + size]
                rows[i], rows[i + size] = (builder.shuffle_vector(*pair, mask) for mask in (low, high))
    for i, row in enumerate(rows):
        place = builder.add(to, builder.mul(out_step, number(i)))
        builder.store(row, vector_at(context, builder, kind, out, place), align=align)
    return context.get_dummy_value()


@lower_builtin(zeros_like, VectorType)
def _(context, builder, signature, args):
    return ir.Constant(args[0].type, [0.0] * args[0].type.count)


def _repeated(kind, value):
    return ir.Constant(kind, [value] * kind.count)


def _has_estimates(x):
    """Return whether there are estimates for vectors of this length."""
    return _HAS_ESTIMATES and x.type.count * (8 if isinstance(x.type.element, ir.DoubleType) else 4) == _BYTES


def _estimate(builder, name, x):
    """Call an instruction of the processor that estimates a function to 14 bits."""
    mask = ir.IntType(x.type.count)
    function_type = ir.FunctionType(x.type, [x.type, x.type, mask])
    name = f"llvm.x86.avx512.{name}.p{'d' if x.type.count == 8 else 's'}.512"
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, [x, _repeated(x.type, 0.0), ir.Constant(mask, -1)])


def _refined(builder, y, e, coefficients):
    """Compute y (1 + c_0 e + c_1 e^2 + c_2 e^3); numbers in single precision need one term."""
    c = [_repeated(y.type, value) for value in coefficients]
    p, product = c[0], builder.fmul(y, e)
    if y.type.count == 8:  # short chains of operations, since sweeps wait for the result
        p = builder.fadd(p, builder.fmul(c[1], e))
        p = builder.fadd(p, builder.fmul(c[2], builder.fmul(e, e)))
    return builder.fadd(y, builder.fmul(product, p))


# Square roots and divisions take several times as long as an estimate y and a series in its relative error e.


@lower_builtin(sqrt, VectorType)
def _lower_sqrt(context, builder, signature, args):
    kind = args[0].type
    name = f"llvm.sqrt.v{kind.count}f{signature.return_type.dtype.bitwidth}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name)
    return builder.call(function, args)


@lower_builtin(inverse_sqrt, VectorType)
def _(context, builder, signature, args):
    (x,), one = args, _repeated(args[0].type, 1.0)
    if not _has_estimates(x):
        return builder.fdiv(one, _lower_sqrt(context, builder, signature, args))
    y = _estimate(builder, "rsqrt14", x)
    e = builder.fsub(one, builder.fmul(builder.fmul(x, y), y))
    return _refined(builder, y, e, (1 / 2, 3 / 8, 5 / 16))


@lower_builtin(inverse, VectorType)
def _(context, builder, signature, args):
    (x,), one = args, _repeated(args[0].type, 1.0)
    if not _has_estimates(x):
        return builder.fdiv(one, x)
    y = _estimate(builder, "rcp14", x)
    e = builder.fsub(one, builder.fmul(x, y))
    return _refined(builder, y, e, (1.0, 1.0, 1.0))


@lower_builtin(at_least, VectorType, VectorType)
@lower_builtin(at_least, VectorType, types.Number)
def _(context, builder, signature, args):
    limit = _spread(context, builder, signature.return_type, signature.args[1], args[1])
    is_less = builder.fcmp_ordered("<", args[0], limit)
    return builder.select(is_less, limit, args[0])


@lower_builtin(total, VectorType)
def _(context, builder, signature, args):
    parts, count = args[0], args[0].type.count
    for size in (count // 2**n for n in range(1, count.bit_length())):
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


for _function in (zeros_like, sqrt, inverse_sqrt, inverse):
    type_callable(_function)(_same_type)
type_callable(at_least)(_type_of_both)
type_callable(total)(_type_of_total)
for _operation, _name in (("add", "fadd"), ("sub", "fsub"), ("mul", "fmul"), ("truediv", "fdiv")):
    _lower_operator(getattr(operator, _operation), _name)
