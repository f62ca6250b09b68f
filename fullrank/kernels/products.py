"""Products of int8 codes, by the processor's eight-bit dot products where it has them.

An instruction of AVX-512 VNNI multiplies 64 unsigned by 64 signed bytes and adds four products at a time in 32 bits. A
document's code c is signed, so it is read as c + 128, and 128 Σ q is subtracted from the result. All sums are integers
below 2³¹ as long as N is below 65,000, so every processor gets the same number.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fullrank.kernels.arrays import Float32, Int8, Int32, UInt8
from fullrank.kernels.compiler import FLOAT32, FLOAT64, array, helper, kernel, output, several

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


# Products of a query's code with the codes of 16 documents at a time.
#
# Four numbers of one document are side by side, then four of the next one, so that an instruction of AVX-512 VNNI
# multiplies and adds four numbers of each of the 16, and no sum over a vector is needed. Codes are stored as c + 128,
# because one side of that instruction has no sign; 128 Σ q is subtracted from the result. All sums are integers below
# 2³¹, so every processor gets the same number.

GROUP, TOGETHER = 16, 4
"""How many documents a group has, and how many numbers of each are side by side."""
_GROUP_BYTES = GROUP * TOGETHER
_INT64, _WORD = ir.IntType(64), ir.IntType(32)
_WORDS, _GROUP_CODES = ir.VectorType(_WORD, GROUP), ir.VectorType(ir.IntType(8), _GROUP_BYTES)
_GROUP_ZEROS = ir.Constant(_WORDS, [0] * GROUP)


def _add_vnni(builder: Any, sums: Any, codes: Any, four: Any) -> Any:
    """Add the products of 16 times four codes, by one instruction."""
    kind = ir.FunctionType(_WORDS, [_WORDS, _GROUP_CODES, _GROUP_CODES])
    name = "llvm.x86.avx512.vpdpbusd.512"
    multiply = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    four = _spread(builder, four)
    return builder.call(multiply, [sums, codes, builder.bitcast(four, _GROUP_CODES)])


def _add_plain(builder: Any, sums: Any, codes: Any, four: Any) -> Any:
    """Add the products of 16 times four codes, by multiplications that every processor has for vectors."""
    codes = builder.bitcast(codes, _WORDS)
    for j in range(TOGETHER):
        place = ir.Constant(_WORDS, [8 * j] * GROUP)
        code = builder.and_(builder.lshr(codes, place), ir.Constant(_WORDS, [255] * GROUP))
        byte = builder.trunc(builder.lshr(four, _WORD(8 * j)), ir.IntType(8))
        # Both factors are known to have 16 bits, which have a multiplication of their own.
        sums = builder.add(sums, builder.mul(code, _spread(builder, builder.sext(byte, _WORD))))
    return sums


def _spread(builder: Any, word: Any) -> Any:
    vector = builder.insert_element(_GROUP_ZEROS, word, _WORD(0))
    return builder.shuffle_vector(vector, vector, _GROUP_ZEROS)


@intrinsic
def _typed_products(
    _typing: Any, groups: Any, start: Any, code: Any, steps: Any, found: Any, place: Any
) -> Any:
    """Set found[place + i] to Σ_j groups[start + …] · code[j] for the 16 documents i; 4 numbers a step."""
    add = _add_vnni if has_vnni() else _add_plain

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        groups, code, found = (
            context.make_array(signature.args[i])(context, builder, arguments[i]).data
            for i in (0, 2, 4)
        )
        begin, steps = builder.gep(groups, [arguments[1]]), arguments[3]
        code = builder.bitcast(code, _WORD.as_pointer())
        before = builder.block
        loop, after = builder.append_basic_block("steps"), builder.append_basic_block("after")
        builder.cbranch(builder.icmp_signed(">", steps, _INT64(0)), loop, after)

        builder.position_at_end(loop)
        step, sums = builder.phi(_INT64), builder.phi(_WORDS)
        step.add_incoming(_INT64(0), before)
        sums.add_incoming(_GROUP_ZEROS, before)
        at = builder.gep(begin, [builder.mul(step, _INT64(_GROUP_BYTES))])
        codes = builder.load(builder.bitcast(at, _GROUP_CODES.as_pointer()), align=1)
        four = builder.load(builder.gep(code, [step]), align=1)
        added = add(builder, sums, codes, four)
        following = builder.add(step, _INT64(1))
        step.add_incoming(following, loop)
        sums.add_incoming(added, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)

        builder.position_at_end(after)
        total = builder.phi(_WORDS)
        total.add_incoming(_GROUP_ZEROS, before)
        total.add_incoming(added, loop)
        to = builder.bitcast(builder.gep(found, [arguments[5]]), _WORDS.as_pointer())
        builder.store(total, to, align=4)
        return context.get_dummy_value()

    number = types.int64
    return types.void(groups, number, code, number, found, number), generate


# numba gives the first argument; a caller leaves it out.
_products: Callable[..., None] = _typed_products


@helper
def group_products(code: Int8, groups: UInt8, group: int, found: Int32, place: int) -> None:
    """Write the products of a code and of the 16 codes of a group, with 128 Σ q on top (sum_shift)."""
    width = len(code)
    _products(groups, group * width * GROUP, code, width // TOGETHER, found, place)


def in_groups(codes: Int8) -> UInt8:
    """Order codes, int8 (n, H), in groups: uint8 (⌈n / 16⌉, 16 H), H divisible by 4; missing documents are zeros."""
    count, width = codes.shape
    groups = -(-count // GROUP)
    whole = np.full((groups * GROUP, width), 128, np.uint8)
    whole[:count] = codes.astype(np.int16) + 128
    split = whole.reshape(groups, GROUP, width // TOGETHER, TOGETHER).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(split).reshape(groups, GROUP * width)


# int8 codes of vectors, and what a search computes once of a query's vector.


# On each side of zero.
CODE_LEVELS = 127
_LEAST_SCALE = np.finfo(np.float32).tiny


@helper
def code_vector(vector: Float32, codes: Int8) -> tuple[np.float32, float, float]:
    """Code v as a scale times int8: the scale is max |v_j| / 127.

    Returns:
        The scale, ‖v − v̂‖² and ‖v̂‖².
    """
    largest = np.float32(0)
    for j in range(len(vector)):
        largest = max(largest, abs(vector[j]))
    scale = largest / np.float32(CODE_LEVELS)
    # A subnormal scale has no inverse in float32, so such a vector is coded as zero.
    if scale < _LEAST_SCALE:
        scale = np.float32(0)
    error = length = 0.0
    for j in range(len(vector)):
        code = np.float32(0)
        if scale > 0:
            code = np.rint(vector[j] / scale)
            code = min(max(code, np.float32(-CODE_LEVELS)), np.float32(CODE_LEVELS))
        codes[j] = np.int8(code)
        decoded = np.float64(code) * np.float64(scale)
        error += (np.float64(vector[j]) - decoded) ** 2
        length += decoded**2
    return scale, error, length


@kernel(
    several(FLOAT64, FLOAT64),
    array("float32", 2), output("int8", 2), output("float32"),
)  # fmt: skip
def code_vectors(vectors: Float32, codes: Int8, scales: Float32) -> tuple[float, float]:
    """Code each row.

    Returns:
        max ‖v − v̂‖ and max ‖v̂‖ over the rows.
    """
    largest_error = largest_length = 0.0
    for row in range(len(vectors)):
        scales[row], error, length = code_vector(vectors[row], codes[row])
        largest_error = max(largest_error, error)
        largest_length = max(largest_length, length)
    return math.sqrt(largest_error), math.sqrt(largest_length)


@kernel(
    several(FLOAT64, FLOAT32, FLOAT64, FLOAT32, FLOAT64, FLOAT64),
    array("float32"), array("float32", 2), output("int8"), output("int8"),
)  # fmt: skip
def code_query(
    u: Float32, directions: Float32, code: Int8, outline: Int8
) -> tuple[float, np.float32, float, np.float32, float, float]:
    """Code u = B a + p, and a.

    Args:
        u: float32 (N,).
        directions: B, float32 (N, H) with orthonormal columns; (N, 0) where a is u, followed by zeros.
        code: int8 (N,), written.
        outline: int8 (H,), zeros before, written.

    Returns:
        ‖u‖, the scale of the code, ‖u − û‖, the scale of the outline, ‖a − â‖ and ‖u‖² − ‖a‖².
    """
    scale, error, _ = code_vector(u, code)
    size = 0.0
    for i in range(len(u)):
        size += np.float64(u[i]) ** 2
    width = directions.shape[1]
    if width == 0:
        outline_scale, lost, _ = code_vector(u, outline)
        return math.sqrt(size), scale, math.sqrt(error), outline_scale, math.sqrt(lost), 0.0
    sums = np.zeros(width)
    for i in range(len(u)):
        number, direction = np.float64(u[i]), directions[i]
        for j in range(width):
            sums[j] += number * direction[j]
    part = np.empty(width, np.float32)
    inside = 0.0
    for j in range(width):
        part[j] = sums[j]
        inside += sums[j] ** 2
    outline_scale, lost, _ = code_vector(part, outline)
    return (
        math.sqrt(size), scale, math.sqrt(error), outline_scale, math.sqrt(lost), size - inside
    )  # fmt: skip
