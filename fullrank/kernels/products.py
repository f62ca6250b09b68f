"""Products of int8 codes, by the processor's eight-bit dot products where it has them.

An instruction of AVX-512 VNNI multiplies 64 unsigned by 64 signed bytes and adds four products at a time in 32 bits. A
document's code c is signed, so it is read as c + 128, and 128 Σ q is subtracted from the result. All sums are integers
below 2³¹ as long as N is below 65,000, so every processor gets the same number.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fullrank.kernels.arrays import Int8
from fullrank.kernels.compiler import helper

_BYTES = 64
_NUMBER, _BYTE, _SUM = ir.IntType(64), ir.IntType(8), ir.IntType(32)
_BITS, _CODES = ir.VectorType(ir.IntType(1), _BYTES), ir.VectorType(_BYTE, _BYTES)
_SUMS = ir.VectorType(_SUM, 16)
_NOTHING, _ZEROS = ir.Constant(_CODES, [0] * _BYTES), ir.Constant(_SUMS, [0] * 16)
_SHIFT, _PLACES = ir.Constant(_CODES, [-128] * _BYTES), ir.Constant(_CODES, list(range(_BYTES)))


def has_vnni() -> bool:
    """Tell whether kernels are compiled for a processor with these instructions."""
    if "NUMBA_CPU_NAME" in os.environ:
        return "+avx512vnni" in os.environ.get("NUMBA_CPU_FEATURES", "")
    return bool(llvm.get_host_cpu_features().get("avx512vnni"))


class _Products:
    """Write the instructions that multiply codes, both from an address on."""

    def __init__(self, builder: Any, codes: Any, code: Any) -> None:
        self.builder, self._begins = builder, (codes, code)

    def _addresses(self, place: Any) -> list[Any]:
        return [
            self.builder.bitcast(self.builder.gep(begin, [place]), _CODES.as_pointer())
            for begin in self._begins
        ]

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, arguments)

    def _add(self, sums: Any, codes: Any, code: Any) -> Any:
        codes = self.builder.xor(codes, _SHIFT)
        return self._call("llvm.x86.avx512.vpdpbusd.512", _SUMS, sums, codes, code)

    def add(self, sums: Any, place: Any) -> Any:
        """Add 64 products."""
        codes, code = (self.builder.load(at, align=1) for at in self._addresses(place))
        return self._add(sums, codes, code)

    def add_some(self, sums: Any, place: Any, count: Any) -> Any:
        """Add fewer than 64 products; nothing behind them is read."""
        vector = self.builder.insert_element(_NOTHING, self.builder.trunc(count, _BYTE), _SUM(0))
        first = ir.Constant(ir.VectorType(_SUM, _BYTES), [0] * _BYTES)
        counts = self.builder.shuffle_vector(vector, vector, first)
        mask = self.builder.icmp_unsigned("<", _PLACES, counts)
        codes, code = (
            self._call("llvm.masked.load.v64i8.p0", _CODES, at, _SUM(1), mask, _NOTHING)
            for at in self._addresses(place)
        )
        return self._add(sums, codes, code)

    def total(self, sums: Any) -> Any:
        """Add up the sums."""
        return self._call("llvm.vector.reduce.add.v16i32", _SUM, sums)


def _phi(builder: Any, kind: Any, *values: tuple[Any, Any]) -> Any:
    """Choose a value by the block that was left last."""
    found = builder.phi(kind)
    for value, block in values:
        found.add_incoming(value, block)
    return found


@intrinsic
def _typed_product(_typing: Any, codes: Any, start: Any, code: Any, width: Any) -> Any:
    """Return Σ_j (codes[start + j] + 128) · code[j] over j < width."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        codes, code = (
            context.make_array(signature.args[i])(context, builder, arguments[i]).data
            for i in (0, 2)
        )
        products = _Products(builder, builder.gep(codes, [arguments[1]]), code)
        rest = builder.and_(arguments[3], _NUMBER(_BYTES - 1))
        whole = builder.sub(arguments[3], rest)
        before = builder.block
        loop, behind, last, after = map(
            builder.append_basic_block, ("blocks", "behind", "last", "after")
        )
        builder.cbranch(builder.icmp_signed(">", whole, _NUMBER(0)), loop, behind)

        builder.position_at_end(loop)
        place = _phi(builder, _NUMBER, (_NUMBER(0), before))
        sums = _phi(builder, _SUMS, (_ZEROS, before))
        added = products.add(sums, place)
        following = builder.add(place, _NUMBER(_BYTES))
        place.add_incoming(following, loop)
        sums.add_incoming(added, loop)
        builder.cbranch(builder.icmp_signed("<", following, whole), loop, behind)

        builder.position_at_end(behind)
        sums = _phi(builder, _SUMS, (_ZEROS, before), (added, loop))
        builder.cbranch(builder.icmp_signed(">", rest, _NUMBER(0)), last, after)

        builder.position_at_end(last)
        completed = products.add_some(sums, whole, rest)
        builder.branch(after)

        builder.position_at_end(after)
        return products.total(_phi(builder, _SUMS, (sums, behind), (completed, last)))

    return types.int32(codes, types.int64, code, types.int64), generate


# numba gives the first argument; a caller leaves it out.
_shifted_product: Callable[..., Any] = _typed_product


@helper
def sum_shift(code: Int8) -> np.int32:
    """Return 128 Σ q of a query's code, int8 (N,): what products with c + 128 have on top."""
    total = np.int32(0)
    for j in range(len(code)):
        total = np.int32(total + code[j])
    return np.int32(128 * total)


def _vnni_product(code: Int8, shift: np.int32, codes: Int8, row: int) -> np.float32:
    width = len(code)
    return np.float32(np.int32(_shifted_product(codes, row * width, code, width) - shift))


def _plain_shift(_code: Int8) -> np.int32:
    return np.int32(0)


def _plain_product(code: Int8, _shift: np.int32, codes: Int8, row: int) -> np.float32:
    product = np.int32(0)
    for j in range(len(code)):
        product = np.int32(product + np.int32(np.int32(code[j]) * np.int32(codes[row, j])))
    return np.float32(product)


code_shift = sum_shift if has_vnni() else helper(_plain_shift)
"""Return what `code_product` subtracts for a query's code, int8 (N,); computed once a query."""

code_product = helper(_vnni_product if has_vnni() else _plain_product)
"""Return the product of a code, int8 (N,), and a row of int8 (n, N), as float32."""
