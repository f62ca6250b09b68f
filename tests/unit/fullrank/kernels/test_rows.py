"""Test the kernels of sparse rows against scipy and dense twins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fullrank.encoding import Rows
from fullrank.kernels.rows import find_columns, largest_weights, number_values, widen_row
from fullrank.text.features import unit

SEEDS = st.integers(0, 2**32 - 1)
COUNTS = st.integers(1, 6)
WIDTHS = st.integers(1, 40)


def random_rows(rng: np.random.Generator, count: int, width: int) -> Rows:
    """Draw sparse rows, some of them empty."""
    taken = rng.random((count, width)) < rng.choice([0, 0.1, 0.9], size=(count, 1))
    indptr = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]).astype(np.int64)
    indices = np.nonzero(taken)[1].astype(np.int32)
    return Rows(indptr, indices, rng.normal(size=len(indices)).astype(np.float32), width)


def dense(rows: Rows) -> np.ndarray:
    """Return the matrix, float64, after checking that entries ascend inside each row."""
    found = np.zeros((len(rows), rows.width))
    for i in range(len(rows)):
        indices, values = rows.row(i)
        assert (np.diff(indices) > 0).all()
        found[i, indices] = values
    assert rows.indices.dtype == np.int32
    assert rows.values.dtype == np.float32
    assert rows.indptr[-1] == len(rows.indices) == len(rows.values)
    return found


def same(a: Rows, b: Rows) -> bool:
    """Tell whether two matrices have equal bits."""
    return a.width == b.width and all(
        x.tobytes() == y.tobytes()
        for x, y in ((a.indptr, b.indptr), (a.indices, b.indices), (a.values, b.values))
    )


@given(SEEDS, COUNTS, WIDTHS, st.integers(0, 300))
def test_entries_in_any_order_are_sorted_and_added_up(
    seed: int, count: int, width: int, most: int
) -> None:
    rng = np.random.default_rng(seed)
    expected = np.zeros((count, width))
    lists = []
    for row in range(count):
        size = int(rng.integers(0, most + 1))
        indices, values = rng.integers(0, width, size), rng.normal(size=size)
        np.add.at(expected[row], indices, values)
        lists.append((indices.tolist(), values.tolist()))
    np.testing.assert_allclose(dense(Rows.from_lists(lists, width)), expected, atol=1e-4)


@given(SEEDS, COUNTS, WIDTHS, WIDTHS)
def test_columns_are_moved_dropped_and_added_up(
    seed: int, count: int, width: int, wide: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, count, width)
    target = rng.integers(-1, wide, width).astype(np.int32)
    expected = np.zeros((count, wide))
    for column, place in enumerate(target.tolist()):
        if place >= 0:
            expected[:, place] += dense(rows)[:, column]
    np.testing.assert_allclose(dense(rows.remap_columns(target, wide)), expected, atol=1e-5)


@given(SEEDS, COUNTS, WIDTHS, WIDTHS)
def test_columns_are_cut_out_and_put_side_by_side(
    seed: int, count: int, width: int, wide: int
) -> None:
    rng = np.random.default_rng(seed)
    parts = [random_rows(rng, count, w) for w in (width, wide, 3)]
    found = Rows.hstack(*parts)
    assert (dense(found) == np.hstack([dense(part) for part in parts])).all()
    for first, part in zip((0, width, width + wide), parts, strict=True):
        assert same(found.columns(first, first + part.width), part)


@given(SEEDS, COUNTS, WIDTHS)
def test_sums_equal_those_of_scipy(seed: int, count: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [random_rows(rng, count, width) for _ in range(3)]
    parts.append(parts[0].with_values(-parts[0].values))
    expected = parts[0].csr() + parts[1].csr() + parts[2].csr() + parts[3].csr()
    assert same(Rows.add(parts), Rows.from_csr(sp.csr_array(expected)))
    opposite = Rows.add([parts[0], parts[3]])
    assert len(opposite.indices) == 0


@given(SEEDS, COUNTS, WIDTHS, WIDTHS)
def test_products_equal_those_of_scipy(seed: int, count: int, width: int, wide: int) -> None:
    rng = np.random.default_rng(seed)
    rows, factor = random_rows(rng, count, width), random_rows(rng, width, wide)
    table = rng.normal(size=(width, wide)).astype(np.float32)
    expected = Rows.from_csr(sp.csr_array(rows.csr() @ factor.csr()))
    assert same(rows.multiply(factor), expected)
    assert (rows.matmul(table) == rows.csr() @ table).all()
    assert same(rows.transposed(), Rows.from_csr(sp.csr_array(rows.csr().T)))


@given(SEEDS, COUNTS, WIDTHS)
def test_unit_rows_have_length_one_or_zero(seed: int, count: int, width: int) -> None:
    rows = random_rows(np.random.default_rng(seed), count, width)
    whole = dense(rows)
    norm = np.sqrt((whole**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(dense(unit(rows)), whole / np.where(norm, norm, 1), rtol=1e-5)
    np.testing.assert_allclose(rows.sums(), whole.sum(axis=1), rtol=1e-5, atol=1e-5)
    assert rows.distinct() == np.flatnonzero((whole != 0).any(axis=0)).tolist()


OPERATIONS: list[Callable[[Rows], Rows]] = [
    lambda rows: rows.columns(3, 20),
    lambda rows: rows.remap_columns(np.arange(30, dtype=np.int32)[::-1] // 2, 15),
    lambda rows: Rows.add([rows, rows]),
    lambda rows: Rows.hstack(rows, rows),
    lambda rows: rows.multiply(random_rows(np.random.default_rng(5), 30, 9)),
    unit,
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_row_has_the_same_bits_alone_and_among_others(
    operation: Callable[[Rows], Rows],
) -> None:
    rows = random_rows(np.random.default_rng(4), 40, 30)
    alone = [operation(rows.slice(i, i + 1)) for i in range(len(rows))]
    assert same(Rows.vstack(alone), operation(rows))


def test_read_only_arrays_are_accepted() -> None:
    rows = random_rows(np.random.default_rng(6), 5, 7)
    for array in (rows.indptr, rows.indices, rows.values):
        array.flags.writeable = False
    table = np.ones((7, 2), np.float32)
    table.flags.writeable = False
    np.testing.assert_allclose(rows.matmul(table)[:, 0], rows.sums(), rtol=1e-5, atol=1e-5)
    assert same(Rows.add([rows, rows.with_values(np.zeros_like(rows.values))]), rows)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_entries_are_numbered_among_some_features(own: set[int], asked: set[int]) -> None:
    features, indices = (np.array(sorted(n), np.int32) for n in (own, asked))
    places, values = find_columns(features, indices, indices.astype(np.float32))
    np.testing.assert_array_equal(features[places], sorted(own & asked))
    np.testing.assert_array_equal(values, sorted(own & asked))


@given(SEEDS, st.integers(0, 12), st.integers(0, 30))
def test_a_row_is_widened_by_the_largest_of_what_it_lacks(seed: int, own: int, added: int) -> None:
    rng = np.random.default_rng(seed)
    indices = np.sort(rng.permutation(20)[:own]).astype(np.int32)
    values = rng.normal(size=own).astype(np.float32)
    features = rng.integers(0, 20, added).astype(np.int32)
    weights = (rng.integers(-3, 4, added) / 2).astype(np.float32)  # some are equal, some 0
    columns, found, gained = widen_row(indices, values, features, weights)
    expected: dict[int, tuple[float, int]] = {}
    for place, (feature, weight) in enumerate(
        zip(features.tolist(), weights.tolist(), strict=True)
    ):
        if feature not in indices and abs(weight) > abs(expected.get(feature, (0.0, -1))[0]):
            expected[feature] = weight, place
    assert gained.tolist() == [expected[feature][1] for feature in sorted(expected)]
    row = dict(zip(indices.tolist(), values.tolist(), strict=True))
    row |= {feature: weight for feature, (weight, _) in expected.items()}
    assert columns.tolist() == sorted(row)
    assert found.tolist() == [row[feature] for feature in sorted(row)]


@given(st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**31 - 1)), max_size=60))
def test_values_are_numbered_in_the_order_of_their_first_use(values: list[int]) -> None:
    found, numbers = number_values(np.array(values, np.int32))
    assert found.tolist() == list(dict.fromkeys(values))
    assert found[numbers].tolist() == values
    assert found.dtype == numbers.dtype == np.int32


@given(SEEDS, st.integers(0, 6), WIDTHS)
def test_the_largest_entry_of_each_column_is_that_of_the_matrix(
    seed: int, count: int, width: int
) -> None:
    rows = random_rows(np.random.default_rng(seed), count, width)
    found = largest_weights(rows.indices, rows.values, width)
    np.testing.assert_array_equal(found, np.abs(dense(rows)).max(axis=0, initial=0))
