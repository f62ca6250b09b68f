"""Test the kernels against their numpy twins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numba import njit
from numba.core.event import install_recorder

from fullrank.encoding import Encoded, Rows
from fullrank.kernels.fast import best_estimated, best_read
from fullrank.kernels.scan import (
    add_impacts,
    add_weights,
    code_vectors,
    plan_words,
    scan_codes,
)
from fullrank.kernels.scoring import score_rows
from fullrank.kernels.select import best_rows, rows_at_least
from fullrank.kernels.sorting import stable_order
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import index_in_memory
from tests.unit.fullrank.retrieval.data import EVERYTHING, with_cells

NUMBERS = st.floats(-8, 8, width=32)
ANY_NUMBERS = st.floats(width=32, allow_nan=False)
SEEDS = st.integers(0, 2**32 - 1)


def random_rows(rng: np.random.Generator, count: int, width: int) -> Rows:
    """Draw sparse rows, some of them empty."""
    taken = rng.random((count, width)) < rng.choice([0, 0.1, 0.9], size=(count, 1))
    indptr = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]).astype(np.int64)
    indices = np.nonzero(taken)[1].astype(np.int32)
    return Rows(indptr, indices, rng.normal(size=len(indices)).astype(np.float32), width)


@given(SEEDS, st.integers(1, 20), st.integers(0, 100), st.integers(1, 30))
def test_score_rows(seed: int, count: int, width: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=width), rng.normal(size=(count, width)).astype(np.float32)
    s, t = rng.normal(size=features), random_rows(rng, count, features)
    rows = rng.integers(0, count, size=rng.integers(0, 40))
    dense, lexical = np.empty(len(rows)), np.empty(len(rows))
    score_rows(u, v, s, t.indptr, t.indices, t.values, rows, dense, lexical)
    np.testing.assert_allclose(dense, v[rows].astype(np.float64) @ u, rtol=1e-12, atol=1e-12)
    whole = t.csr().toarray().astype(np.float64)
    np.testing.assert_allclose(lexical, whole[rows] @ s, rtol=1e-12, atol=1e-12)


def test_score_rows_depends_on_the_row_alone() -> None:
    rng = np.random.default_rng(3)
    v = rng.normal(size=(2, 77)).astype(np.float32).repeat(20, axis=0)
    t = random_rows(rng, 40, 5)
    found, nothing = np.empty(40), np.empty(40)
    score_rows(rng.normal(size=77), v, np.zeros(5), t.indptr, t.indices, t.values,
               np.arange(40), found, nothing)  # fmt: skip
    assert len(np.unique(found)) == 2


@given(SEEDS, st.integers(0, 600), st.integers(0, 300))
def test_scans_of_codes(seed: int, count: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    code = rng.integers(-127, 128, width).astype(np.int8)
    codes = rng.integers(-127, 128, (count, width)).astype(np.int8)
    scale, scales = np.float32(rng.random()), rng.random(count).astype(np.float32)
    whole = (codes.astype(np.int64) @ code.astype(np.int64)).astype(np.float32) * scale * scales
    scores = np.empty(count, np.float32)
    scan_codes(code, scale, codes, scales, scores)
    np.testing.assert_array_equal(scores, whole)


def test_the_largest_products_do_not_overflow() -> None:
    code = np.full(130_000, 127, np.int8)
    scores = np.empty(1, np.float32)
    scan_codes(code, np.float32(1), -code[None], np.ones(1, np.float32), scores)
    assert scores[0] == np.float32(-(127**2) * 130_000)


@given(SEEDS, st.integers(1, 30), st.integers(1, 12))
def test_additions_of_postings(seed: int, count: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    lists = random_rows(rng, features, count)  # a row a word
    impacts = rng.integers(0, 256, len(lists.indices)).astype(np.uint8)
    limits = np.sort(rng.normal(size=(features, 2)).astype(np.float32), axis=1)
    words = rng.permutation(features)[: rng.integers(0, features + 1)].astype(np.int32)
    weights = rng.normal(size=len(words))
    start = rng.normal(size=count).astype(np.float32)

    by_impact, by_weight = start.copy(), start.copy()
    add_impacts(lists.indptr, lists.indices, impacts, limits, words, weights, by_impact)
    add_weights(
        lists.indptr, lists.indices, lists.values, words, weights.astype(np.float32), by_weight
    )
    expected = start.astype(np.float64), start.astype(np.float64)
    for word, weight in zip(words.tolist(), weights, strict=True):
        entries = slice(lists.indptr[word], lists.indptr[word + 1])
        low, high = limits[word].astype(np.float64)
        stored = low + (high - low) / 255 * impacts[entries]
        np.add.at(expected[0], lists.indices[entries], weight * stored)
        np.add.at(expected[1], lists.indices[entries], weight * lists.values[entries])
    np.testing.assert_allclose(by_impact, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_weight, expected[1], rtol=1e-5, atol=1e-5)


@given(
    arrays(np.float32, array_shapes(max_dims=1, max_side=700), elements=ANY_NUMBERS),
    st.integers(1, 50),
    st.floats(0, 1),
    SEEDS,
)
def test_selections(scores: np.ndarray, wanted: int, share: float, seed: int) -> None:
    deleted = np.random.default_rng(seed).random(len(scores)) < share
    for mask in (deleted, np.zeros(0, np.bool_)):
        kept = ~mask if len(mask) else np.ones(len(scores), np.bool_)
        found = best_rows(scores, mask, wanted)
        assert len(set(found.tolist())) == len(found) == min(wanted, kept.sum())
        assert kept[found].all()
        np.testing.assert_array_equal(
            np.sort(scores[found]), np.sort(scores[kept])[max(0, kept.sum() - wanted) :]
        )
        least = scores[0]
        above = rows_at_least(scores, mask, least)
        np.testing.assert_array_equal(above, np.flatnonzero((scores >= least) & kept))


@pytest.mark.parametrize("order", [1, -1])
def test_selections_among_many_blocks(order: int) -> None:
    scores = np.arange(5000, dtype=np.float32)[::order].copy()
    found = best_rows(scores, np.zeros(0, np.bool_), 3)
    assert sorted(scores[found]) == [4997, 4998, 4999]


def test_all_scores_are_equal() -> None:
    scores = np.zeros(1000, np.float32)
    assert len(best_rows(scores, np.zeros(0, np.bool_), 10)) == 10
    assert len(rows_at_least(scores, np.zeros(0, np.bool_), np.float32(0))) == 1000


def test_a_search_compiles_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    documents = Encoded.from_rows(
        random_rows(rng, 200, 20), rng.normal(size=(200, 8)).astype(np.float32)
    )
    queries, deleted = documents.slice(0, 3), rng.random(200) < 0.2
    for index in (None, index_in_memory(documents), with_cells(documents, tmp_path, EVERYTHING)):
        retriever = Retriever(documents, None, index)
        with install_recorder("numba:compile") as recorder:
            for mode in retriever.modes:
                retriever.search(queries, 10, mode=mode)
                retriever.search(queries, 10, mode=mode, deleted=deleted)
        assert recorder.buffer == []
    assert retriever.modes == ("exact", "fast")
    with install_recorder("numba:compile") as recorder:
        njit(lambda x: x + 1)(1)
    assert recorder.buffer, "the recorder records no compilation"


def test_damaged_numbers_of_a_file_are_refused() -> None:
    rng = np.random.default_rng(6)
    t, scores = random_rows(rng, 9, 9), np.zeros(9, np.float32)
    s, v = np.ones(9), np.zeros((9, 0), np.float32)
    limits, impacts = np.zeros((9, 2), np.float32), np.zeros(len(t.indices), np.uint8)
    words, found = np.arange(9, dtype=np.int32), np.zeros((2, 9))
    for number in (-1, 9):
        indices, indptr = np.full_like(t.indices, number), t.indptr + 100 * number
        for damaged in ((t.indptr, indices), (indptr, t.indices)):
            with pytest.raises(IndexError, match="damaged"):
                score_rows(np.zeros(0), v, s, *damaged, t.values, np.arange(9), *found)
            with pytest.raises(IndexError, match="damaged"):
                add_impacts(*damaged, impacts, limits, words, s, scores)


@given(SEEDS, st.integers(1, 60), st.integers(0, 40), st.integers(1, 12), st.booleans())
def test_candidates_of_both_sides(
    seed: int, count: int, width: int, limit: int, masked: bool
) -> None:
    rng = np.random.default_rng(seed)
    scores, bias, scales = rng.normal(size=(3, count)).astype(np.float32)
    read = rng.permutation(count)[: rng.integers(0, count + 1)]
    dense = rng.permutation(count)[: rng.integers(0, count + 1)]
    deleted = rng.random(count) < 0.3 if masked else np.zeros(0, np.bool_)
    kept = ~deleted if masked else np.ones(count, np.bool_)
    near, cell_of = (
        rng.normal(size=7).astype(np.float32),
        rng.integers(0, 7, count).astype(np.uint16),
    )

    by_centre = scores + np.float32(0.5) * near[cell_of]
    for centres, expected in ((near, by_centre), (near[:0], scores)):
        found = best_read(read, scores, centres, cell_of, np.float32(0.5), deleted, limit)
        asked = read[kept[read]]
        np.testing.assert_array_equal(
            np.sort(expected[found]), np.sort(expected[asked])[max(0, len(asked) - limit) :]
        )

    code = rng.integers(-127, 128, width).astype(np.int8)
    codes = rng.integers(-127, 128, (count, width)).astype(np.int8)
    signatures = rng.integers(0, 256, (count, 2)).astype(np.uint8)
    bits, values = np.array([3, 11]), rng.normal(size=2).astype(np.float32)
    estimates = (codes.astype(np.int64) @ code.astype(np.int64)) * 0.01 * scales + scores + bias
    estimates = estimates + (np.unpackbits(signatures, axis=1, bitorder="little")[:, bits] @ values)
    pool = np.union1d(read, dense)
    pool = pool[kept[pool]]
    found = best_estimated(
        read, dense, deleted, np.zeros(count, np.int32), 1, code, np.float32(0.01), codes, scales,
        scores, bias, signatures, bits, values, limit,
    )  # fmt: skip
    assert len(set(found.tolist())) == len(found) == min(limit, len(pool))
    assert set(found.tolist()) <= set(pool.tolist())
    np.testing.assert_allclose(
        np.sort(estimates[found]), np.sort(estimates[pool])[max(0, len(pool) - limit) :],
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


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


@settings(deadline=None)  # the first call compiles it
@given(st.lists(st.integers(-5, 5), max_size=70))
def test_a_stable_order(keys: list[int]) -> None:
    for kind in (np.int32, np.float64):
        found = stable_order(np.array(keys, kind))
        assert found.tolist() == sorted(range(len(keys)), key=lambda place: keys[place])
