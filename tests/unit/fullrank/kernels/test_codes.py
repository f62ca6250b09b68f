"""Test codes and their products against their numpy twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.kernels.products import (
    GROUP,
    code_product,
    code_query,
    code_shift,
    code_vectors,
    group_products,
    in_groups,
)
from tests.unit.fullrank.kernels.data import SEEDS


@given(SEEDS, st.integers(1, 70), st.integers(0, 9))
def test_codes_of_a_query(seed: int, width: int, directions: int) -> None:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=width).astype(np.float32)
    basis = np.linalg.qr(rng.normal(size=(width, directions)))[0].astype(np.float32)
    part = u.astype(np.float64) @ basis if basis.size else u.astype(np.float64)
    code, outline = np.empty(width, np.int8), np.zeros(len(part) + 3, np.int8)
    size, scale, lost, part_scale, part_lost, beyond = code_query(
        u, np.ascontiguousarray(basis), code, outline
    )
    assert size == pytest.approx(np.linalg.norm(u), rel=1e-6)
    assert lost == pytest.approx(np.linalg.norm(u - code * float(scale)), rel=1e-5)
    found = outline[: len(part)] * float(part_scale)
    assert part_lost == pytest.approx(np.linalg.norm(part - found), rel=1e-3, abs=1e-6)
    assert beyond == pytest.approx(size**2 - np.sum(part**2), abs=1e-5 * size**2)
    assert not outline[len(part) :].any()


@given(SEEDS, st.integers(1, 9), st.integers(0, 300))
def test_products_of_codes(seed: int, count: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    code = rng.integers(-127, 128, width).astype(np.int8)
    codes = rng.integers(-128, 128, (count, width)).astype(np.int8)
    shift = code_shift(code)
    found = [code_product(code, shift, codes, row) for row in range(count)]
    np.testing.assert_array_equal(found, codes.astype(np.int64) @ code.astype(np.int64))


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_products_do_not_overflow(sign: int) -> None:
    code = np.full(65_000, 127, np.int8)
    found = code_product(code, code_shift(code), sign * code[None], 0)
    assert found == np.float32(sign * 127**2 * 65_000)


@given(SEEDS, st.integers(1, 40), st.integers(0, 20))
def test_products_of_groups(seed: int, count: int, fours: int) -> None:
    rng = np.random.default_rng(seed)
    code = rng.integers(-127, 128, 4 * fours).astype(np.int8)
    codes = rng.integers(-127, 128, (count, 4 * fours)).astype(np.int8)
    groups = in_groups(codes)
    found = np.zeros(3 + GROUP * len(groups), np.int32)
    for group in range(len(groups)):
        group_products(code, groups, group, found, 3 + GROUP * group)
    products = found - 128 * code.astype(np.int64).sum()
    np.testing.assert_array_equal(
        products[3 : 3 + count], codes.astype(np.int64) @ code.astype(np.int64)
    )
    assert not found[:3].any()


@given(SEEDS, st.integers(0, 9), st.integers(0, 70), st.sampled_from([1e-42, 1e-20, 1, 1e30]))
def test_codes(seed: int, count: int, width: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = (rng.normal(size=(count, width)) * size).astype(np.float32)
    vectors[rng.random(count) < 0.2] = 0
    codes, scales = np.empty((count, width), np.int8), np.empty(count, np.float32)
    error, length = code_vectors(vectors, codes, scales)
    expected = np.abs(vectors).max(axis=1, initial=0) / np.float32(127)
    expected[expected < np.finfo(np.float32).tiny] = 0
    np.testing.assert_array_equal(scales, expected)
    safe = np.where(expected > 0, expected, 1)[:, None]
    rounded = np.where(expected[:, None] > 0, np.clip(np.rint(vectors / safe), -127, 127), 0)
    np.testing.assert_array_equal(codes, rounded)
    decoded = codes.astype(np.float64) * scales[:, None]
    assert error == pytest.approx(np.linalg.norm(vectors - decoded, axis=1).max(initial=0))
    assert length == pytest.approx(np.linalg.norm(decoded, axis=1).max(initial=0))
