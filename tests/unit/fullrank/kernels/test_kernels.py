"""Test the kernels against their numpy twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numba import njit
from numba.core.event import install_recorder

from fullrank.encoding import Encoded, Rows
from fullrank.kernels.codes import code_query, code_vectors
from fullrank.kernels.evidence import are_in_lists
from fullrank.kernels.fast import best_estimated
from fullrank.kernels.groups import GROUP, group_products, in_groups
from fullrank.kernels.products import code_product, code_shift
from fullrank.kernels.scan import add_weights, plan_words, scan_slots
from fullrank.kernels.scoring import rank_rows, score_rows
from fullrank.kernels.select import in_order
from fullrank.kernels.sorting import stable_order
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import index_in_memory
from tests.unit.fullrank.retrieval.data import EVERYTHING, with_cells

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
    u = rng.normal(size=width).astype(np.float32)
    v, t = rng.normal(size=(count, width)).astype(np.float32), random_rows(rng, count, features)
    words = rng.permutation(features)[: rng.integers(0, features + 1)].astype(np.int32)
    weights = rng.normal(size=len(words)).astype(np.float32)
    rows = rng.integers(0, count, size=rng.integers(0, 40))
    dense, lexical, scratch = np.empty(len(rows)), np.empty(len(rows)), np.zeros(features)
    score_rows(u, words, weights, v, t.indptr, t.indices, t.values, rows, scratch, dense, lexical)
    assert not scratch.any()
    np.testing.assert_allclose(
        dense, v[rows].astype(np.float64) @ u.astype(np.float64), rtol=1e-12, atol=1e-12
    )
    scratch[words] = weights
    whole = t.csr().toarray().astype(np.float64)
    np.testing.assert_allclose(lexical, whole[rows] @ scratch, rtol=1e-12, atol=1e-12)


def test_score_rows_depends_on_the_row_alone() -> None:
    rng = np.random.default_rng(3)
    v = rng.normal(size=(2, 77)).astype(np.float32).repeat(20, axis=0)
    t, u = random_rows(rng, 40, 5), rng.normal(size=77).astype(np.float32)
    found, nothing = np.empty(40), np.empty(40)
    score_rows(u, np.zeros(0, np.int32), u[:0], v, t.indptr, t.indices, t.values,
               np.arange(40), np.zeros(5), found, nothing)  # fmt: skip
    assert len(np.unique(found)) == 2


def test_asking_for_memory_early_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    v, t = rng.normal(size=(90, 40)).astype(np.float32), random_rows(rng, 90, 30)
    u, words = rng.normal(size=40).astype(np.float32), np.arange(30, dtype=np.int32)
    rows, scratch = rng.integers(0, 90, 60), np.zeros(30)
    weights, together = rng.normal(size=30).astype(np.float32), np.empty((2, 60))
    score_rows(u, words, weights, v, t.indptr, t.indices, t.values, rows, scratch, *together)
    for i in range(60):
        alone = np.empty((2, 1))
        one = rows[i : i + 1]
        score_rows(u, words, weights, v, t.indptr, t.indices, t.values, one, scratch, *alone)
        np.testing.assert_array_equal(alone[:, 0], together[:, i])


@given(SEEDS, st.integers(0, 60), st.integers(0, 70), st.integers(1, 70))
def test_documents_in_the_order_of_their_scores(
    seed: int, count: int, offset: int, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, parts = rng.permutation(count), rng.integers(-2, 3, (3, count)).astype(np.float64)
    dense, lexical, bias = parts
    found = in_order(rows, dense, lexical, bias, offset, limit)
    places = np.lexsort((rows, -parts.sum(axis=0)))[offset : offset + limit]
    for one, expected in zip(found, (rows, parts.sum(axis=0), *parts), strict=True):
        np.testing.assert_array_equal(one, expected[places])


@given(SEEDS, st.integers(1, 20), st.integers(0, 40), st.integers(0, 12), st.integers(1, 12))
def test_rows_are_scored_and_ranked(
    seed: int, count: int, width: int, offset: int, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    v, t = rng.normal(size=(count, width)).astype(np.float32), random_rows(rng, count, 9)
    u, bias = rng.normal(size=width).astype(np.float32), rng.normal(size=count).astype(np.float32)
    words = rng.permutation(9)[:4].astype(np.int32)
    weights = rng.normal(size=4).astype(np.float32)
    places, scratch, parts = rng.permutation(count), np.zeros(9), np.empty((2, count))
    rows = rng.permutation(3 * count)[:count]
    documents = v, t.indptr, t.indices, t.values
    score_rows(u, words, weights, *documents, places, scratch, *parts)
    found = rank_rows(u, words, weights, *documents, bias, places, rows, scratch, offset, limit)
    assert not scratch.any()
    own = bias[places]
    columns = rows, parts.sum(axis=0) + own.astype(np.float64), *parts, own
    order = np.lexsort((rows, -columns[1]))[offset : offset + limit]
    for one, expected in zip(found, columns, strict=True):
        np.testing.assert_array_equal(one, expected[order])


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


def random_index(rng: np.random.Generator, count: int, features: int, width: int) -> Any:
    """Draw codes, scales, bias, posting lists with impacts and limits, and an order of rows."""
    codes = rng.integers(-127, 128, (count, width)).astype(np.int8)
    lists = random_rows(rng, features, count)  # a row a word
    impacts = rng.integers(0, 256, len(lists.indices)).astype(np.uint8)
    limits = np.sort(rng.normal(size=(features, 2)).astype(np.float32), axis=1)
    scales, bias = rng.random((2, count)).astype(np.float32)
    return codes, scales, bias, lists, impacts, limits, rng.permutation(count).astype(np.int32)


def contributions(
    lists: Rows, impacts: np.ndarray, limits: np.ndarray, words: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return Σ s_w t̂_wd of all slots, float64."""
    total = np.zeros(lists.width)
    for word, weight in zip(words.tolist(), weights.tolist(), strict=True):
        entries = slice(lists.indptr[word], lists.indptr[word + 1])
        low, high = limits[word].astype(np.float64)
        np.add.at(
            total, lists.indices[entries], weight * (low + (high - low) / 255 * impacts[entries])
        )
    return total


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


@given(SEEDS, st.integers(1, 200), st.integers(0, 9), st.lists(st.integers(0, 8), max_size=4))
def test_slots_in_lists(seed: int, count: int, asked: int, words: list[int]) -> None:
    rng = np.random.default_rng(seed)
    lists = random_rows(rng, 9, count)  # a row a word
    wanted = rng.integers(0, count, asked).astype(np.int32)
    found = are_in_lists(lists.indptr, lists.indices, np.array(words, np.int32), wanted)
    having = {row for word in words for row in lists.row(word)[0].tolist()}
    assert found.tolist() == [row in having for row in wanted.tolist()]


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


def test_a_search_compiles_nothing() -> None:
    rng = np.random.default_rng(5)
    documents = Encoded.from_rows(
        random_rows(rng, 200, 20), rng.normal(size=(200, 8)).astype(np.float32)
    )
    queries, deleted = documents.slice(0, 3), rng.random(200) < 0.2
    for index in (None, index_in_memory(documents), with_cells(documents, EVERYTHING)):
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
    words, found, nobody = np.arange(9, dtype=np.int32), np.zeros((2, 9)), np.zeros(0, np.bool_)
    none, one, codes = np.zeros(0, np.int8), np.float32(1), np.zeros((9, 0), np.int8)
    for number in (-1, 9):
        indices, indptr = np.full_like(t.indices, number), t.indptr + 100 * number
        for damaged in ((t.indptr, indices), (indptr, t.indices)):
            with pytest.raises(IndexError, match="damaged"):
                score_rows(
                    scores[:0],
                    words[:0],
                    scores[:0],
                    v,
                    *damaged,
                    t.values,
                    np.arange(9),
                    s,
                    *found,
                )
        with pytest.raises(IndexError, match="damaged"):
            scan_slots(
                none, one, in_groups(codes), scores, one, scores, none, one, codes, scores, scores,
                indptr, t.indices, impacts, limits, words, s, words, nobody, words[:0], -np.inf, np.inf,
                3, -np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 9, -1,
            )  # fmt: skip


def outlines_of(
    code: np.ndarray, codes: np.ndarray, scales: np.ndarray, kind: str
) -> tuple[np.ndarray, np.ndarray, np.float32, np.ndarray]:
    """Return outlines by the first numbers of the codes: the query's, the slots', and the lengths of the rests."""
    size = {"none": 0, "half": len(code) // 8 * 4, "whole": len(code)}[kind]
    padded = -(-size // 4) * 4
    own = np.zeros(padded, np.int8)
    own[:size] = code[:size]
    all_of_them = np.zeros((len(codes), padded), np.int8)
    all_of_them[:, :size] = codes[:, :size]
    left = np.linalg.norm(0.01 * code[size:].astype(np.float64)) * (1 + 1e-5)
    rest = np.linalg.norm(codes[:, size:].astype(np.float64), axis=1) * scales * (1 + 1e-5)
    return own, in_groups(all_of_them), np.float32(left), rest.astype(np.float32)


@given(
    SEEDS,
    st.integers(1, 60),
    st.integers(0, 80),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from([(-np.inf, -np.inf), (0.1, np.inf), (np.inf, 0.1), (np.inf, np.inf)]),
    st.lists(st.integers(0, 5), max_size=2),
    st.sampled_from(["none", "whole", "half"]),
)
def test_the_best_estimated(
    seed: int,
    count: int,
    width: int,
    limit: int,
    masked: bool,
    floors: tuple[float, float],
    features: list[int],
    outlined: str,
) -> None:
    """All lists are read in full, so an estimate is the score of the codes and the impacts.

    The outlines are the codes themselves, or their first half. The bounds of both hold, so the `wanted` best are found;
    others are left out where their outlines cannot reach these.
    """
    rng = np.random.default_rng(seed)
    codes, scales, bias, lists, impacts, limits, rows = random_index(rng, count, 6, width)
    code = rng.integers(-127, 128, width).astype(np.int8)
    words = np.sort(rng.permutation(6)[:3]).astype(np.int32)
    weights = rng.normal(size=3).astype(np.float32)
    deleted = rng.random(count) < 0.3 if masked else np.zeros(0, np.bool_)
    products = (codes.astype(np.int64) @ code.astype(np.int64)) * 0.01 * scales
    outline, outlines, left, rest = outlines_of(code, codes, scales, outlined)
    sums = contributions(lists, impacts, limits, words, weights)
    estimates = products + sums + bias
    dense, lexical = floors
    # float32 decides what is this near to a floor.
    assume(not np.any(np.abs([products - dense, sums - lexical]) < 1e-4))
    has_feature = (lists.csr().T.toarray()[:, features] != 0).any(axis=1)
    is_found = has_feature | (products >= dense) | (sums >= lexical)
    everyone = np.flatnonzero(~deleted[rows]) if masked else np.arange(count)
    kept = everyone[is_found[everyone]]

    starts = np.sort(np.concatenate([[0], rng.integers(0, count + 1, 4), [count]]))
    cell_of = np.repeat(np.arange(5, dtype=np.uint16), np.diff(starts))
    centres = rng.integers(-127, 128, (5, width)).astype(np.int8)
    centre_scales = rng.random(5).astype(np.float32)
    centre_bias, radius = rng.normal(size=5).astype(np.float32), rng.random(5).astype(np.float32)
    near = (centres.astype(np.int64) @ code.astype(np.int64)) * 0.01 * centre_scales + centre_bias
    read = np.unique(np.concatenate([lists.row(word)[0] for word in words.tolist()]))
    scores, some = np.zeros(count, np.float32), rng.permutation(everyone)[: rng.integers(1, 9)]
    wanted = max(1, limit // 2)

    def found(
        nprobe: int, spread: float, sparse: int, asked: np.ndarray, known: float = -np.inf
    ) -> np.ndarray:
        slots = best_estimated(
            words, weights, 9, 0.0, nprobe, spread, sparse, limit, wanted, known,
            np.zeros(7, np.int64), lists.indices[:0], impacts[:0],
            lists.indptr, lists.indices, impacts, limits,
            words[:0], np.zeros(0), np.zeros((count, 0), np.uint8),
            code, np.float32(0.01), codes, scales, bias,
            outline, np.float32(0.01), outlines, scales, left, rest,
            centres, centre_scales, centre_bias, radius, starts, cell_of, rows, deleted, asked,
            np.array(features, np.int32), dense, lexical, scores,
        )  # fmt: skip
        assert not scores.any()
        assert len(set(slots.tolist())) == len(slots)
        return slots

    everything = np.zeros(0, np.int64)
    nearest = near >= near.max() - 1e-9
    # `about_kth_largest` may take cells that are this much further away, too.
    assume(np.array_equal(nearest, near >= near.max() - np.ptp(near) / 1000 - 1e-5))
    chosen = np.flatnonzero(nearest[cell_of])
    far = -1e9  # no cell reaches anything
    for slots, pool in (
        (found(5, 0.0, 1, everything), kept),
        (found(0, 1e9, 1, everything), kept),
        (found(0, far, count, everything), np.intersect1d(read, kept)),
        (found(1, far, count, everything), np.intersect1d(np.union1d(read, chosen), kept)),
        (found(1, 0.0, 1, some), some),
        (found(1, 0.0, 1, some, 1e9), some),
        (found(0, 1e9, 1, everything, -1e8), kept),
    ):
        pool = pool[is_found[pool]]
        assert len(slots) >= min(wanted, len(pool))
        if len(pool) >= wanted:  # fewer estimates than wanted: nothing is left out
            assert set(slots.tolist()) <= set(pool.tolist())
            assert len(slots) <= limit
            sure = min(limit, len(pool)) if outlined == "none" else wanted
            np.testing.assert_allclose(
                np.sort(estimates[slots])[::-1][:sure], np.sort(estimates[pool])[::-1][:sure],
                rtol=1e-4, atol=1e-4,
            )  # fmt: skip
    first = found(1, 1.0, 1, everything, 1e8)  # nothing else may reach the known score
    assert set(first.tolist()) <= set(kept.tolist())


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


@pytest.mark.sweep
@given(st.lists(st.integers(-5, 5), max_size=70))
def test_a_stable_order(keys: list[int]) -> None:
    for kind in (np.int32, np.float64):
        found = stable_order(np.array(keys, kind))
        assert found.tolist() == sorted(range(len(keys)), key=lambda place: keys[place])
