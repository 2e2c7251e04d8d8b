"""Loads of memory ahead of its use.

In large graphs, sweeps would otherwise wait for the messages of nodes that are far apart in memory.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, type_callable

from skcrf._numerics import inlined_kernel
from skcrf.inference._pairwise.updates import END, FIRST, NODE, POSITION

#: Messages of smaller graphs, in bytes, stay in the cache.
MIN_BYTES = 2**18
#: Number of updates that prefetches are ahead in a sweep; in its reverse, one block.
AHEAD = 8


def prefetch_row(array, row):
    """Start to load a row of an array into the cache."""


@type_callable(prefetch_row)
def _(context):
    return lambda array, row: types.none if isinstance(array, types.Array) else None


@lower_builtin(prefetch_row, types.Array, types.Integer)
def _(context, builder, signature, args):
    array = context.make_array(signature.args[0])(context, builder, args[0])
    row = context.cast(builder, args[1], signature.args[1], types.intp)
    start = builder.bitcast(array.data, cgutils.voidptr_t)
    place = builder.gep(start, [builder.mul(row, cgutils.unpack_tuple(builder, array.strides)[0])])
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
    builder.call(function, [place, number(0), number(3), number(1)])  # to read, often, data
    return context.get_dummy_value()


@inlined_kernel
def prefetch_update(updates, p, unary, weights, messages):
    """Prefetch the inputs of an update and the message that it replaces; none if there is no such update."""
    if 0 <= p < len(updates):
        prefetch_row(unary, updates[p, NODE])
        prefetch_row(weights, updates[p, FIRST])
        prefetch_row(messages, updates[p, FIRST])
        prefetch_row(messages, updates[p, END] - 1)
        prefetch_row(messages, updates[p, POSITION])
