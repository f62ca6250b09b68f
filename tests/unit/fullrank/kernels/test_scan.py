"""Test the scan of an exact search against its numpy twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.kernels.evidence import reaching_in_order
from fullrank.kernels.products import in_groups
from fullrank.kernels.rows import with_entries
from fullrank.kernels.scan import add_weights, plan_words, scan_slots
from tests.unit.fullrank.kernels.data import SEEDS, contributions, random_index, random_rows


@given(
    SEEDS,
    st.sampled_from([1, 30, 2047, 2048, 2049, 5000]),
    st.integers(0, 70),
    st.integers(1, 20),
    st.floats(0, 3),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from([-np.inf, 0.0, 0.5, 1.0, np.inf]),
    st.sampled_from([-np.inf, 0.0, 0.5, 1.0, np.inf]),
    st.lists(st.integers(0, 5), max_size=2),
    st.sampled_from([-1, 0, 100, 10_000]),
)
def test_scans_of_slots(
    seed: int,
    count: int,
    width: int,
    wanted: int,
    slack: float,
    gone: float,
    is_least_known: bool,
    dense: float,
    lexical: float,
    features: list[int],
    counted: int,
) -> None:
    """The outline is a part of each code, and the rest has any length that bounds what it leaves."""
    rng = np.random.default_rng(seed)
    codes, scales, bias, lists, impacts, limits, rows = random_index(rng, count, 6, width)
    code = rng.integers(-127, 128, width).astype(np.int8)
    words, weights = rng.permutation(6)[:3].astype(np.int32), rng.normal(size=3)
    deleted = rng.random(count) < gone
    products = (codes.astype(np.int64) @ code.astype(np.int64)) * 1e-4 * scales
    sums = contributions(lists, impacts, limits, words, weights)
    scores = products + sums + bias
    has_feature = (lists.csr().T.toarray()[:, features] != 0).any(axis=1)
    first = width // 8 * 4
    left = np.linalg.norm(code[first:].astype(np.float64)) * 1e-4
    rest = np.linalg.norm(codes[:, first:].astype(np.float64), axis=1) * scales
    for mask in (np.zeros(0, np.bool_), deleted):
        is_kept = ~mask[rows] if len(mask) else np.ones(count, np.bool_)
        may_be = has_feature | (products >= dense - slack / 2 - 1e-3) | (sums >= lexical - 1e-3)
        is_found = has_feature | (products >= dense + slack / 2 + 1e-3) | (sums >= lexical + 1e-3)
        kept, possible = np.flatnonzero(is_kept & is_found), np.flatnonzero(is_kept & may_be)
        best = np.sort(scores[kept])[-wanted] if len(kept) >= wanted else -np.inf
        least = float(best) - 0.1 if is_least_known else -np.inf
        slots, found, too_many, n_certain, open_ones = scan_slots(
            np.ascontiguousarray(code[:first]), np.float32(1e-4),
            in_groups(np.ascontiguousarray(codes[:, :first])), scales,
            np.float32(left), rest.astype(np.float32),
            code, np.float32(1e-4), codes, scales, bias, lists.indptr, lists.indices, impacts, limits,
            words, weights, rows, mask, np.array(features, np.int32), dense, lexical,
            wanted, least, 1e-3, slack / 2, 0.0, 0.0, 0.0, count, counted,
        )  # fmt: skip
        assert not too_many
        n_open = len(open_ones)
        if counted >= n_certain:
            assert len(kept) <= n_certain + n_open <= len(possible)
            assert set(open_ones.tolist()) <= set(possible.tolist())
        elif counted == -1:
            assert n_certain == n_open == 0
        else:
            assert counted < n_certain <= len(possible)
        np.testing.assert_allclose(found, scores[slots], rtol=1e-4, atol=1e-4)
        assert np.all(np.diff(slots) > 0)
        assert set(slots.tolist()) <= set(possible.tolist())
        least = max(least, best - slack / 2)
        assert set(kept[scores[kept] >= least + 2e-3].tolist()) <= set(slots.tolist())
        assert np.all(scores[slots] >= least - slack / 2 - 1e-3)


def test_a_scan_stops_where_too_many_slots_are_near_the_best() -> None:
    count = 9000
    codes, nothing = np.zeros((count, 0), np.int8), np.zeros(0, np.int32)
    order, bias = np.arange(count, dtype=np.int32), np.zeros(count, np.float32)
    lists = np.zeros(1, np.int64), nothing, np.zeros(0, np.uint8), np.zeros((0, 2), np.float32)
    none, one = np.zeros(0, np.int8), np.float32(1)
    for most, expected in ((2000, True), (count, False)):
        slots, _, too_many, _, _ = scan_slots(
            none, one, in_groups(codes), bias, one, bias, none, one, codes, bias, bias, *lists,
            nothing, np.zeros(0), order, np.zeros(0, np.bool_), nothing, -np.inf, np.inf,
            10, -np.inf, 0.5, 0.5, 0.0, 0.0, 0.0, most, -1,
        )  # fmt: skip
        assert too_many is expected
        assert len(slots) == (0 if expected else count)


@given(
    SEEDS,
    st.integers(1, 200),
    st.integers(0, 30),
    st.lists(st.integers(0, 8), max_size=4),
    st.sampled_from([(0.5, 0.5, np.inf), (np.inf, 1.0, np.inf), (np.inf, np.inf, 0.8)]),
    st.booleans(),
)
def test_what_reaches_a_floor_in_order(
    seed: int,
    count: int,
    asked: int,
    words: list[int],
    least: tuple[float, float, float],
    has_slots: bool,
) -> None:
    rng = np.random.default_rng(seed)
    lists = random_rows(rng, 9, count)  # a row a word
    rows = rng.permutation(count)[:asked]
    slot_of = rng.permutation(count).astype(np.int32) if has_slots else np.zeros(0, np.int32)
    dense, lexical, bias = parts = rng.integers(-2, 3, (3, len(rows))) / 2  # some documents tie
    ranked, count_found = reaching_in_order(
        rows,
        dense,
        lexical,
        bias,
        *least,
        lists.indptr,
        lists.indices,
        np.array(words, np.int32),
        slot_of,
        1,
        5,
    )
    having = {slot for word in words for slot in lists.row(word)[0].tolist()}
    slots = slot_of[rows] if has_slots else rows
    scores = parts.sum(axis=0)
    reaches = (parts[0] >= least[0]) | (parts[1] >= least[1]) | (scores >= least[2])
    reaches |= np.isin(slots, [*having])
    assert count_found == np.count_nonzero(reaches)
    kept = np.flatnonzero(reaches)
    order = kept[np.lexsort((rows[kept], -scores[kept]))][1:6]
    for own, expected in zip(ranked, (rows, scores, *parts), strict=True):
        np.testing.assert_array_equal(own, expected[order])


@given(SEEDS, st.integers(1, 30), st.integers(1, 12))
def test_additions_of_postings(seed: int, count: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    lists = random_rows(rng, features, count)  # a row a word
    words = rng.permutation(features)[: rng.integers(0, features + 1)].astype(np.int32)
    weights = rng.normal(size=len(words)).astype(np.float32)
    start = rng.normal(size=count).astype(np.float32)
    found = start.copy()
    add_weights(lists.indptr, lists.indices, lists.values, words, weights, found)
    expected = start + weights.astype(np.float64) @ lists.csr().toarray()[words]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@given(SEEDS, st.integers(1, 12))
def test_plans_of_words(seed: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, features)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    limits = np.sort(rng.normal(size=(features, 2)).astype(np.float32), axis=1)
    words = np.flatnonzero(rng.random(features) < 0.7).astype(np.int32)
    weights = rng.normal(size=len(words)).astype(np.float32)
    planned, s, below, above, errors = plan_words(indptr, limits, words, weights)

    weight_of = dict(zip(words.tolist(), weights.astype(np.float64), strict=True))
    asked = [word for word in words.tolist() if counts[word]]
    bounds = {word: limits[word].astype(np.float64) * weight_of[word] for word in asked}
    low = {word: min(0.0, bounds[word].min()) for word in asked}
    high = {word: max(0.0, bounds[word].max()) for word in asked}
    order = sorted(asked, key=lambda word: (low[word] - high[word]) / counts[word])
    assert planned.tolist() == order
    assert s.tolist() == [weight_of[word] for word in order]
    for i in range(len(order) + 1):
        assert below[i] == pytest.approx(sum(low[word] for word in order[i:]))
        assert above[i] == pytest.approx(sum(high[word] for word in order[i:]))
        step = sum(
            abs(weight_of[word]) * (float(limits[word, 1]) - float(limits[word, 0])) / 255 / 2
            for word in order[:i]
        )
        assert step <= errors[i] <= step * 1.01 + 1e-5


@given(SEEDS, st.integers(1, 12))
def test_words_with_entries(seed: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 3, features))])
    words = np.flatnonzero(rng.random(features) < 0.7).astype(np.int32)
    weights = rng.normal(size=len(words)).astype(np.float32)
    has = np.diff(indptr)[words] > 0
    found, own = with_entries(indptr, words, weights)
    np.testing.assert_array_equal(found, words[has])
    np.testing.assert_array_equal(own, weights[has])
