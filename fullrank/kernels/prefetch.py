"""Ask for memory before it is needed: documents and scores lie anywhere, and a kernel knows the next ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fullrank.kernels.arrays import Float32, Int8, Int32
from fullrank.kernels.compiler import helper

_NUMBER, _FLAG = ir.IntType(64), ir.IntType(32)


@intrinsic
def _typed_prefetch(_typing: Any, array: Any, place: Any) -> Any:
    """Ask for the element at a place, counted over all dimensions; nothing is read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        at = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [at.type, _FLAG, _FLAG, _FLAG])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [at, _FLAG(0), _FLAG(3), _FLAG(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


# numba gives the first argument; a caller leaves it out.
prefetch: Callable[..., None] = _typed_prefetch


@helper
def prefetch_row(table: Float32 | Int8 | Int32, row: int, numbers: int) -> None:
    """Ask for a row of a table; `numbers` of its elements are one line."""
    width = table.shape[1]
    for j in range(0, width, numbers):
        prefetch(table, row * width + j)
