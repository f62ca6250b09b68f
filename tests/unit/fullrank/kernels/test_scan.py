"""The kernels of search against their numpy twins: scan, selection, scores, codes, fast mode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fullrank.kernels.evidence import NOTHING_NEEDED, Evidence, reaching_in_order
from fullrank.kernels.fast import Buffers, best_estimated
from fullrank.kernels.index import Limits, Reads, Slack, Vector, read_only
from fullrank.kernels.products import (
    GROUP,
    code_product,
    code_query,
    code_shift,
    code_vectors,
    group_products,
    in_groups,
)
from fullrank.kernels.rows import with_entries
from fullrank.kernels.scan import add_weights, plan_words, scan_slots
from fullrank.kernels.scoring import rank_rows, score_rows
from fullrank.kernels.select import (
    about_kth_largest,
    best_rows,
    in_order,
    kth_largest,
    rows_at_least,
)
from fullrank.storage.encoding import Encoded
from tests.random_cases import cases
from tests.unit.fullrank.kernels.data import (
    SEEDS,
    contributions,
    query_of,
    random_index,
    random_rows,
    tables_of,
)


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
    left = float(np.linalg.norm(code[first:].astype(np.float64)) * 1e-4)
    rest = np.linalg.norm(codes[:, first:].astype(np.float64), axis=1) * scales
    for mask in (np.zeros(0, np.bool_), deleted):
        is_kept = ~mask[rows] if len(mask) else np.ones(count, np.bool_)
        may_be = has_feature | (products >= dense - slack / 2 - 1e-3) | (sums >= lexical - 1e-3)
        is_found = has_feature | (products >= dense + slack / 2 + 1e-3) | (sums >= lexical + 1e-3)
        kept, possible = np.flatnonzero(is_kept & is_found), np.flatnonzero(is_kept & may_be)
        best = np.sort(scores[kept])[-wanted] if len(kept) >= wanted else -np.inf
        least = float(best) - 0.1 if is_least_known else -np.inf
        index = tables_of(
            codes,
            scales,
            bias,
            (lists.indptr, lists.indices, impacts, limits),
            rows,
            first=first,
            rest=rest,
        )
        slots, found, too_many = scan_slots(
            index, query_of(code, 1e-4, first, left), words, weights, mask,
            Limits(np.array(features, np.int32), dense, lexical, wanted, least),
            Slack(1e-3, slack / 2, 0.0), count,
        )  # fmt: skip
        assert not too_many
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
    index, query = tables_of(codes, bias, bias, lists, order), query_of(np.zeros(0, np.int8), 1.0)
    limits = Limits(nothing, -np.inf, np.inf, 10, -np.inf)
    for most, expected in ((2000, True), (count, False)):
        slots, _, too_many = scan_slots(
            index,
            query,
            nothing,
            np.zeros(0),
            np.zeros(0, np.bool_),
            limits,
            Slack(0.5, 0.5, 0.0),
            most,
        )
        assert too_many is expected
        assert len(slots) == (0 if expected else count)


@given(
    SEEDS,
    st.integers(1, 200),
    st.integers(0, 30),
    st.lists(st.integers(0, 8), max_size=4),
    st.sampled_from([(0.5, 0.5, np.inf), (np.inf, 1.0, np.inf), (np.inf, np.inf, 0.8)]),
    st.booleans(),
    st.booleans(),
)
def test_what_reaches_a_floor_in_order(
    seed: int,
    count: int,
    asked: int,
    words: list[int],
    least: tuple[float, float, float],
    has_slots: bool,
    is_counted: bool,
) -> None:
    rng = np.random.default_rng(seed)
    lists = random_rows(rng, 9, count)  # a row a word
    rows = rng.permutation(count)[:asked]
    slot_of = rng.permutation(count).astype(np.int32) if has_slots else np.zeros(0, np.int32)
    parts = rng.integers(-2, 3, (3, len(rows))) / 2  # some documents tie
    evidence = Evidence(*least, lists.indptr, lists.indices, np.array(words, np.int32), slot_of)
    dense, lexical, bias = parts
    ranked, count_found = reaching_in_order(
        rows, dense, lexical, bias, read_only(evidence), 1, 5, is_counted
    )
    having = {slot for word in words for slot in lists.row(word)[0].tolist()}
    slots = slot_of[rows] if has_slots else rows
    scores = parts.sum(axis=0)
    reaches = (parts[0] >= least[0]) | (parts[1] >= least[1]) | (scores >= least[2])
    reaches |= np.isin(slots, [*having])
    assert count_found <= np.count_nonzero(reaches)
    assert count_found == np.count_nonzero(reaches) or not is_counted
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


NUMBERS = st.floats(-8, 8, width=32)
# No subnormal numbers: a process may count them as zero.
STEPS = st.integers(-(2**19), 2**19).map(lambda number: number / 2**16)
ANY_NUMBERS = st.floats(width=32, allow_nan=False)
SELECT_SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.sweep
@cases(13)
@given(arrays(np.float32, array_shapes(max_dims=1, max_side=3000), elements=STEPS), SELECT_SEEDS)
def test_a_number_that_about_k_values_reach(values: np.ndarray, seed: int) -> None:
    k = int(np.random.default_rng(seed).integers(1, len(values) + 1))
    found = about_kth_largest(values, k)
    exact = np.sort(values)[-k]
    assert np.count_nonzero(values >= found) >= k
    if np.isfinite(found):
        assert exact - found <= (values.max() - values.min()) / 1024 * 1.01 + 1e-5


@pytest.mark.sweep
@given(arrays(np.float32, array_shapes(max_dims=1, max_side=60), elements=NUMBERS), SELECT_SEEDS)
def test_the_kth_largest_number(values: np.ndarray, seed: int) -> None:
    k = int(np.random.default_rng(seed).integers(1, len(values) + 1))
    assert kth_largest(values, k) == np.sort(values)[-k]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_odd_numbers_among_the_values_do_no_harm(odd: float) -> None:
    for values in ([odd, 1, 2], [1, odd, 2], [odd, odd], [odd]):
        about_kth_largest(np.array(values, np.float32), 1)


@given(
    arrays(np.float32, array_shapes(max_dims=1, max_side=700), elements=ANY_NUMBERS),
    st.integers(1, 50),
    st.floats(0, 1),
    SELECT_SEEDS,
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


@given(SEEDS, st.integers(1, 20), st.integers(0, 100), st.integers(1, 30))
def test_score_rows(seed: int, count: int, width: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=width).astype(np.float32)
    v, t = rng.normal(size=(count, width)).astype(np.float32), random_rows(rng, count, features)
    words = rng.permutation(features)[: rng.integers(0, features + 1)].astype(np.int32)
    weights = rng.normal(size=len(words)).astype(np.float32)
    rows = rng.integers(0, count, size=rng.integers(0, 40))
    dense, lexical, scratch = np.empty(len(rows)), np.empty(len(rows)), np.zeros(features)
    query = read_only(Vector(u, words, weights))
    score_rows(query, Encoded.from_rows(t, v).matrix, rows, scratch, dense, lexical)
    assert not scratch.any()
    np.testing.assert_allclose(
        dense, v[rows].astype(np.float64) @ u.astype(np.float64), rtol=1e-12, atol=1e-12
    )
    scratch[words] = weights
    whole = t.csr().toarray().astype(np.float64)
    np.testing.assert_allclose(lexical, whole[rows] @ scratch, rtol=1e-12, atol=1e-12)


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
    query, documents = read_only(Vector(u, words, weights)), Encoded(v, t, bias).matrix
    score_rows(query, documents, places, scratch, *parts)
    found, count_found = rank_rows(
        query, documents, places, rows, scratch, NOTHING_NEEDED, offset, limit, True
    )
    assert not scratch.any()
    assert count_found == count
    own = bias[places]
    columns = rows, parts.sum(axis=0) + own.astype(np.float64), *parts, own
    order = np.lexsort((rows, -columns[1]))[offset : offset + limit]
    for one, expected in zip(found, columns, strict=True):
        np.testing.assert_array_equal(one, expected[order])


@given(
    SEEDS,
    st.integers(1, 60),
    st.integers(0, 80),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from([(-np.inf, -np.inf), (0.1, np.inf), (np.inf, 0.1), (np.inf, np.inf)]),
    st.lists(st.integers(0, 5), max_size=2),
)
def test_the_best_estimated(
    seed: int,
    count: int,
    width: int,
    limit: int,
    masked: bool,
    floors: tuple[float, float],
    features: list[int],
) -> None:
    """All lists are read in full, so an estimate is the score of the codes and the impacts."""
    rng = np.random.default_rng(seed)
    codes, scales, bias, lists, impacts, limits, rows = random_index(rng, count, 6, width)
    code = rng.integers(-127, 128, width).astype(np.int8)
    words = np.sort(rng.permutation(6)[:3]).astype(np.int32)
    weights = rng.normal(size=3).astype(np.float32)
    deleted = rng.random(count) < 0.3 if masked else np.zeros(0, np.bool_)
    products = (codes.astype(np.int64) @ code.astype(np.int64)) * 0.01 * scales
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
    centre_bias, longest = rng.normal(size=5).astype(np.float32), rng.random(5).astype(np.float32)
    distances = rng.integers(1, 256, count).astype(np.uint8)
    distances = distances[np.lexsort((-distances.astype(np.int64), cell_of))]
    near = (centres.astype(np.int64) @ code.astype(np.int64)) * 0.01 * centre_scales + centre_bias
    read = np.unique(np.concatenate([lists.row(word)[0] for word in words.tolist()]))
    some = rng.permutation(everyone)[: rng.integers(1, 9)]
    buffers = Buffers(np.zeros(count, np.float32), np.zeros(count, np.uint8))
    index = tables_of(
        codes, scales, bias, (lists.indptr, lists.indices, impacts, limits), rows,
        cells={
            "of": cell_of, "distances": distances, "starts": starts, "centres": centres,
            "scales": centre_scales, "bias": centre_bias, "longest": longest,
        },
    )  # fmt: skip
    wanted = max(1, limit // 2)

    def found(
        nprobe: int, spread: float, sparse: int, asked: np.ndarray, known: float = -np.inf
    ) -> np.ndarray:
        slots = best_estimated(
            index, query_of(code, 0.01), words, weights, deleted,
            Limits(np.array(features, np.int32), dense, lexical, wanted, known),
            Reads(9, 0.0, nprobe, spread, sparse, limit, np.zeros(0), asked), buffers,
        )  # fmt: skip
        assert not any(buffer.any() for buffer in buffers)
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
            sure = min(limit, len(pool))
            np.testing.assert_allclose(
                np.sort(estimates[slots])[::-1][:sure], np.sort(estimates[pool])[::-1][:sure],
                rtol=1e-4, atol=1e-4,
            )  # fmt: skip
    known, spread = float(np.median(estimates)), 2.0
    bound = near[cell_of] + sums + spread * longest[cell_of] * distances / 255
    slots = found(0, spread, 1, everything, known)
    # What cannot reach the known score by its distance is not even estimated, unless it was read.
    assert set(slots.tolist()) <= {*read, *np.flatnonzero(bound >= known - 1e-4)}
    if len(kept) >= wanted:
        order = kept[np.argsort(-estimates[kept])]
        least = max(known, estimates[order[wanted - 1]])
        assert {*order[:limit]} & {*np.flatnonzero(bound >= least + 1e-4)} <= set(slots.tolist())
    first = found(1, 1.0, 1, everything, 1e8)  # nothing else may reach the known score
    assert set(first.tolist()) <= set(kept.tolist())
