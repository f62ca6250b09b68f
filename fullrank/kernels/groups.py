"""Products of a query's code with the codes of 16 documents at a time.

Four numbers of one document are side by side, then four of the next one, so that an instruction of AVX-512 VNNI
multiplies and adds four numbers of each of the 16, and no sum over a vector is needed. Codes are stored as c + 128,
because one side of that instruction has no sign; 128 Σ q is subtracted from the result. All sums are integers below
2³¹, so every processor gets the same number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fullrank.kernels.arrays import Int8, Int32, UInt8
from fullrank.kernels.compiler import helper
from fullrank.kernels.products import has_vnni

GROUP, TOGETHER = 16, 4
"""How many documents a group has, and how many numbers of each are side by side."""
_BYTES = GROUP * TOGETHER
_NUMBER, _WORD = ir.IntType(64), ir.IntType(32)
_WORDS, _CODES = ir.VectorType(_WORD, GROUP), ir.VectorType(ir.IntType(8), _BYTES)
_ZEROS = ir.Constant(_WORDS, [0] * GROUP)


def _add_vnni(builder: Any, sums: Any, codes: Any, four: Any) -> Any:
    """Add the products of 16 times four codes, by one instruction."""
    kind = ir.FunctionType(_WORDS, [_WORDS, _CODES, _CODES])
    name = "llvm.x86.avx512.vpdpbusd.512"
    multiply = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    four = _spread(builder, four)
    return builder.call(multiply, [sums, codes, builder.bitcast(four, _CODES)])


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
    """Copy a word to all places of a vector."""
    vector = builder.insert_element(_ZEROS, word, _WORD(0))
    return builder.shuffle_vector(vector, vector, _ZEROS)


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
        builder.cbranch(builder.icmp_signed(">", steps, _NUMBER(0)), loop, after)

        builder.position_at_end(loop)
        step, sums = builder.phi(_NUMBER), builder.phi(_WORDS)
        step.add_incoming(_NUMBER(0), before)
        sums.add_incoming(_ZEROS, before)
        at = builder.gep(begin, [builder.mul(step, _NUMBER(_BYTES))])
        codes = builder.load(builder.bitcast(at, _CODES.as_pointer()), align=1)
        four = builder.load(builder.gep(code, [step]), align=1)
        added = add(builder, sums, codes, four)
        following = builder.add(step, _NUMBER(1))
        step.add_incoming(following, loop)
        sums.add_incoming(added, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)

        builder.position_at_end(after)
        total = builder.phi(_WORDS)
        total.add_incoming(_ZEROS, before)
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
    """Write the products of a code and of the 16 codes of a group, with 128 Σ q on top (products.sum_shift).

    Args:
        code: int8 (H,), H divisible by 4.
        groups: uint8 (groups, 16 H), as ``in_groups`` orders them.
        group: Which of them.
        found: int32, written from ``place`` on.
        place: Of the first product.
    """
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
