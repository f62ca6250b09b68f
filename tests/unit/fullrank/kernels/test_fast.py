"""Test the candidates of a fast search against their numpy twin."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from fullrank.kernels.fast import best_estimated
from tests.unit.fullrank.kernels.data import SEEDS, contributions, random_index


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
    scores, some = np.zeros(count, np.float32), rng.permutation(everyone)[: rng.integers(1, 9)]
    marked = np.zeros(count, np.uint8)
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
            centres, centre_scales, centre_bias, longest, starts, cell_of, distances, rows, deleted, asked,
            np.array(features, np.int32), dense, lexical, marked, scores,
        )  # fmt: skip
        assert not scores.any()
        assert not marked.any()
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
