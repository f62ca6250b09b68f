"""The kernels of sparse rows and of encoding against scipy and dense twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fullrank.kernels.encode import embed, weigh_lexical
from fullrank.kernels.rows import find_columns, largest_weights, number_values, widen_row
from fullrank.storage.encoding import Rows
from fullrank.text.features import bm25, saturate, tfidf, unit
from tests.unit.fullrank.kernels.data import SEEDS, dense, random_rows, same

COUNTS = st.integers(1, 6)
WIDTHS = st.integers(1, 40)


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


IDF = np.linspace(0.5, 3, 30, dtype=np.float32)


def counts(rows: Rows) -> Rows:
    return rows.with_values(np.ceil(np.abs(rows.values) * 9))


OPERATIONS: list[Callable[[Rows], Rows]] = [
    lambda rows: tfidf(counts(rows), IDF),
    lambda rows: bm25(counts(rows), IDF, k1=1.2, b=0.7, mean_length=33.3),
    lambda rows: saturate(counts(rows), 0.7),
    lambda rows: rows.top_entries(3),
    lambda rows: rows.columns(3, 20),
    lambda rows: rows.remap_columns(np.arange(30, dtype=np.int32)[::-1] // 2, 15),
    lambda rows: Rows.add([rows, rows]),
    lambda rows: Rows.hstack(rows, rows),
    lambda rows: rows.multiply(random_rows(np.random.default_rng(5), 30, 9)),
    unit,
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_row_has_the_same_bits_alone_and_among_others(operation: Callable[[Rows], Rows]) -> None:
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


SIZES = [1e-42, 1e-6, 1.0, 1e6, 1e30]
"""Sizes of values: float32 has no normal number below 1e-38, and squares overflow above 1e19."""


def random_queries(rng: np.random.Generator, count: int, width: int) -> Rows:
    """Draw queries over typed words, some of them empty."""
    rows = random_rows(rng, count, width, (0, 0.2, 1))
    return rows.with_values(rng.integers(1, 4, len(rows.indices)).astype(np.float32))


def top(values: np.ndarray, keep: int) -> np.ndarray:
    """Return the places of the largest absolute values, ties by place, ascending."""
    if keep == 0:
        return np.arange(len(values))
    return np.sort(np.lexsort((np.arange(len(values)), -np.abs(values)))[:keep])


def encode_unit(values: np.ndarray) -> np.ndarray:
    norm = np.float32(np.sqrt(np.float32((values.astype(np.float32) ** 2).astype(float).sum())))
    return values / (norm if norm else np.float32(1))


@given(
    SEEDS, st.integers(1, 5), st.integers(1, 12), st.integers(0, 9), st.booleans(), st.sampled_from(SIZES),
)  # fmt: skip
def test_u_is_the_weighted_sum_of_the_rows_of_the_words(
    seed: int, count: int, typed: int, keep: int, is_unit: bool, size: float
) -> None:
    rng = np.random.default_rng(seed)
    known, late, width = int(rng.integers(1, 20)), int(rng.integers(0, 4)), int(rng.integers(0, 6))
    queries = random_queries(rng, count, typed)
    # Distinct rows, as words have; some words have none.
    rows = rng.permutation(np.concatenate([np.arange(known + late), np.full(typed, -1)]))
    target = rows[:typed].astype(np.int32)
    factor = rng.random(known + late).astype(np.float32)
    table = (rng.normal(size=(known + late, width)) * size).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        u, sizes = embed(
            queries.arrays, target, (factor[:known], table[:known]), (factor[known:], table[known:]),
            keep, int(is_unit),
        )  # fmt: skip
        for i in range(count):
            words, weights = queries.row(i)
            places = target[words]
            order = np.argsort(places, kind="stable")
            order = order[places[order] >= 0]
            columns, values = places[order], weights[order] * factor[places[order]]
            values = encode_unit(values) if is_unit else values
            kept = top(values, keep)
            columns, values = columns[kept], values[kept]
            values = encode_unit(values) if is_unit else values
            assert sizes[i] == len(columns)
            expected = [np.zeros(width, np.float32), np.zeros(width, np.float32)]
            for column, value in zip(columns.tolist(), values, strict=True):
                expected[column >= known] += value * table[column]
            assert u[i].tobytes() == (expected[0] + expected[1]).tobytes()


def saturated(tf: np.float32, k3: float) -> np.float32:
    return tf if k3 == np.inf else tf * np.float32(k3 + 1) / (tf + np.float32(k3))


def lexical_twin(
    query: tuple[Any, Any], target: np.ndarray, shares: Rows, more: tuple[Any, Any],
    idf: np.ndarray, k3: float, keep: int, most_words: int,
) -> dict[int, np.float32]:  # fmt: skip
    """Return s of one query, word by word."""
    width = len(idf)
    tf: dict[int, np.float32] = {}
    for word, count in zip(*query, strict=True):
        if target[word] >= 0:
            tf[target[word]] = tf.get(target[word], np.float32(0)) + count
    own = {row: saturated(tf[row], k3) for row in sorted(tf)}
    if keep:
        columns = np.array(list(own), np.int64)
        values = np.array(list(own.values()), np.float32) * idf[columns]
        own = {int(columns[p]): values[p] / idf[columns[p]] for p in top(values, keep)}
    joined = {c: v for c, v in zip(*more, strict=True) if c < width}
    added: dict[int, np.float32] = {}
    if len(query[0]) <= most_words:
        for word, count in zip(*query, strict=True):
            dropped = target[word] >= 0 and target[word] not in own
            weight = np.float32(0) if dropped else saturated(count, k3)
            for column, share in zip(*shares.row(word), strict=True):
                added[column] = added.get(column, np.float32(0)) + weight * share
    total = dict(own)
    for part in (joined, added):
        if part:
            total = {
                c: np.float32(total.get(c, 0) + part[c]) if c in part else total[c]
                for c in {*total, *part}
            }
            total = {c: v for c, v in total.items() if v != 0}
    phrases = {c: saturated(v, k3) for c, v in zip(*more, strict=True) if c >= width}
    return total | phrases


def split_shares(
    rng: np.random.Generator, target: np.ndarray, shares: Rows
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], Rows]:
    """Give some shares of typed words to the known words that they are; return those by known word, and the others.

    The words of one known word share its row, so only a word that is alone there can give it its own. Some of the last
    known words, buckets, have no row.
    """
    known, late = {}, []
    last = int(rng.integers(0, target.max(initial=-1) + 2))
    for word, row in enumerate(target.tolist()):
        columns, values = (part.tolist() for part in shares.row(word))
        if 0 <= row < last and (target == row).sum() == 1 and rng.random() < 0.7:
            known[row] = (columns, values)
            late.append(([], []) if columns else (columns, values))
        else:
            late.append((columns, values))
    rows = Rows.from_lists([known.get(row, ([], [])) for row in range(last)], shares.width)
    forms = (rows.indptr, rows.indices, rows.values.astype(np.float64))
    return forms, Rows.from_lists(late, shares.width)


@given(
    SEEDS, st.integers(1, 5), st.integers(1, 12), st.integers(0, 9), st.sampled_from([0.0, 1.0, 7.5, np.inf]),
    st.integers(0, 13),
)  # fmt: skip
def test_s_is_that_of_words_phrases_and_variants(
    seed: int, count: int, typed: int, keep: int, k3: float, most_words: int
) -> None:
    rng = np.random.default_rng(seed)
    width, phrases = int(rng.integers(1, 12)), int(rng.integers(0, 4))
    queries = random_queries(rng, count, typed)
    # Several words of one row: a bucket.
    target = rng.integers(-1, width, typed).astype(np.int32)
    some = random_queries(rng, typed, width)
    shares = some.with_values(rng.random(len(some.indices)).astype(np.float32))
    more = random_queries(rng, count, width + phrases)
    more = more.with_values(more.values * np.float32(rng.choice([1e-42, 0.5, 1e30])))
    idf = (rng.random(width) + 0.1).astype(np.float32)
    forms, late = split_shares(rng, target, shares)
    arrays = queries.arrays, target, forms, late.arrays, more.arrays
    found = weigh_lexical(*arrays, idf, k3, (keep, most_words))
    s = Rows(*found, width + phrases)
    for i in range(count):
        expected = lexical_twin(
            queries.row(i), target, shares, more.row(i), idf, k3, keep, most_words
        )
        indices, values = s.row(i)
        assert indices.tolist() == sorted(expected)
        assert (
            values.tobytes()
            == np.array([expected[c] for c in indices.tolist()], np.float32).tobytes()
        )


def test_no_query_has_no_rows() -> None:
    nothing = Rows.empty(0, 3)
    u, sizes = embed(
        nothing.arrays, np.zeros(3, np.int32), (np.ones(2, np.float32), np.ones((2, 4), np.float32)),
        (np.zeros(0, np.float32), np.ones((0, 4), np.float32)), 0, 1,
    )  # fmt: skip
    assert u.shape == (0, 4)
    assert len(sizes) == 0


@pytest.mark.parametrize("count", [1, 3])
def test_empty_queries_get_zeros(count: int) -> None:
    empty, words = Rows.empty(count, 3), Rows.empty(3, 2)
    target = np.array([0, 1, -1], np.int32)
    ones = np.ones(2, np.float32)
    none = (np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))
    found = weigh_lexical(
        empty.arrays, target, none, words.arrays, Rows.empty(count, 2).arrays, ones, 1.0, (5, 64)
    )
    assert found[0].tolist() == [0] * (count + 1)
    known, unseen = (ones, np.ones((2, 4), np.float32)), (ones[:0], np.ones((0, 4), np.float32))
    u, _ = embed(empty.arrays, target, known, unseen, 0, 1)
    assert not u.any()
