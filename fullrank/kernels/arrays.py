"""What all kernels share: types of arrays, prefetching, bounds on rounding, and a stable order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fullrank.kernels.compiler import helper

# The types of arrays, by what they hold.

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt16 = npt.NDArray[np.uint16]
UInt64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


# Ask for memory before it is needed: documents and scores lie anywhere, and a kernel knows the next ones.

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
def prefetch_row(table: Float32 | Int8 | UInt8 | Int32, row: int, numbers: int) -> None:
    """Ask for a row of a table; `numbers` of its elements are one line."""
    width = table.shape[1]
    for j in range(0, width, numbers):
        prefetch(table, row * width + j)


# Bounds on what float32 rounds.

UNIT_ROUNDOFF = 2.0**-24
_LARGEST, _LEAST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


def rounding(steps: int, size: float) -> float:
    """Bound the rounding error of a float32 result.

    Args:
        steps: How many operations made it.
        size: The sum of the absolute values of its parts.

    Returns:
        The bound, infinite where the result may overflow. A step that underflows is as far off as one at the smallest
        normal number.
    """
    if not size < _LARGEST / 4:
        return math.inf
    return steps * UNIT_ROUNDOFF * (size + _LEAST)


rounding_in_kernel = helper(rounding)
"""The same, for kernels."""


# A stable order. numba's own stable sort takes five seconds to compile, this one a fraction of a second.


@helper
def stable_order(keys: Any) -> Int64:
    """Return the places of the keys in ascending order, equal ones in the order they had: a merge sort, bottom up."""
    count = len(keys)
    order, merged = np.arange(count), np.empty(count, np.int64)
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle, stop = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for place in range(start, stop):
                if left < middle and (right == stop or keys[order[left]] <= keys[order[right]]):
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order
