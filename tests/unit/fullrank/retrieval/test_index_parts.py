"""The parts of an index: codes, postings, shortlists, cells."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import BundleError
from fullrank.kernels.exact import read_heads
from fullrank.kernels.index import Reads
from fullrank.kernels.scan import plan_words
from fullrank.retrieval import Retriever
from fullrank.retrieval.candidates import Scratch, fast_candidates
from fullrank.retrieval.index import Index
from fullrank.retrieval.index import build as building
from fullrank.retrieval.index.build import build_index, check_index, index_in_memory, open_index
from fullrank.retrieval.index.cells import train_cells
from fullrank.retrieval.index.codes import coded
from fullrank.retrieval.tune import efforts
from fullrank.storage.encoding import Encoded, Rows
from tests.random_cases import cases
from tests.unit.fullrank.retrieval.data import (
    EVERYTHING,
    assert_same_bits,
    encoded,
    with_cells,
    words_of,
)


def read(
    index: Index, words: np.ndarray, weights: np.ndarray, depth: int, floor: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return slots, bits, values and scores of the heads of lists."""
    scores = np.zeros(len(index.cells.rows), np.float32)
    reads = Reads(depth, floor, 0, 0.0, 0, 0, index.rest(depth), np.zeros(0, np.int64))
    found = read_heads(index.tables, words, weights, reads, scores)
    return *found, scores


@cases(20)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 60),
    width=st.integers(1, 40),
    scale=st.sampled_from([1e-42, 1e-20, 1e-3, 1.0, 1e6, 1e18]),
)
def test_codes_stay_within_their_error_bound(
    seed: int, count: int, width: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    documents = encoded(rng, count, width, 0, scale=scale)
    documents.dense[:: max(1, count // 3)] = 0
    index = index_in_memory(documents)
    codes = index.tables.codes
    u = (rng.normal(size=width) * scale).astype(np.float32)
    truth = documents.dense[index.cells.rows].astype(np.float64) @ u.astype(np.float64)
    query = coded(u, codes, index.tables.outline)
    product = (codes.codes.astype(np.int64) @ query.code.astype(np.int64)).astype(np.float32)
    found, error = product * query.scale * codes.scales, query.error
    rounding = 1e-6 * float(np.abs(truth).max(initial=0)) + 1e-44
    assert np.abs(found - truth).max() <= error + rounding
    # The bound is tight: rounding costs half a step in each coordinate.
    assert codes.error <= np.sqrt(width) * np.abs(documents.dense).max() / 127 * 0.51 + 1e-36


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_postings_are_the_transposed_documents(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_CHUNK", chunk)
    documents = encoded(np.random.default_rng(1), 90, 4, 30)
    index = index_in_memory(documents, cells=9)
    assert index.cells.rows.tolist() != list(range(90))
    found = index.postings
    there = [words_of(documents, d) for d in range(90)]
    for word in range(30):
        expected = {d: weights[word] for d, weights in enumerate(there) if word in weights}
        entries = slice(found.indptr[word], found.indptr[word + 1])
        rows = index.cells.rows[found.slots[entries]]
        assert np.all(np.diff(found.slots[entries]) > 0)
        assert sorted(rows.tolist()) == sorted(expected)
        step = (found.limits[word, 1] - found.limits[word, 0]) / 255
        for row, impact in zip(rows.tolist(), found.impacts[entries].tolist(), strict=True):
            stored = found.limits[word, 0] + step * impact
            assert abs(stored - expected[row]) <= step / 2 * 1.001 + 1e-6
        one, weight = np.array([word], np.int32), np.array([2.0], np.float32)
        plan = plan_words(found.indptr, found.limits, one, weight)
        assert plan.errors[-1] >= step * 0.999


def test_a_word_with_equal_weights_is_stored_without_error() -> None:
    documents = Encoded(
        np.zeros((9, 0), np.float32),
        Rows(np.arange(10), np.zeros(9, np.int32), np.full(9, 0.1, np.float32), 1),
        np.zeros(9, np.float32),
    )
    found = index_in_memory(documents).postings
    assert found.limits.tolist() == [[np.float32(0.1)] * 2]
    assert found.impacts.tolist() == [0] * 9


def test_a_query_between_many_cells_searches_more_of_them() -> None:
    rng = np.random.default_rng(21)
    centres = 10 * np.eye(8, dtype=np.float32)
    dense = centres.repeat(100, axis=0) + rng.normal(size=(800, 8)).astype(np.float32)
    documents = replace(encoded(rng, 800, 8, 0), dense=dense, bias=np.zeros(800, np.float32))
    index = with_cells(documents, EVERYTHING)

    def found(u: np.ndarray, margin: float) -> set[int]:
        effort = replace(EVERYTHING, nprobe=3, margin=margin)
        query = Encoded.from_rows(Rows.empty(1, 0), u.astype(np.float32)[None])
        scratch, (vector, words, weights, _) = Scratch(800), query.row(0)
        asked = coded(vector, index.tables.codes, index.tables.outline)
        rows = fast_candidates(index, scratch, asked, words, weights, 2, effort, None, 1.0)
        assert not scratch.buffers.scores.any()
        return set(rows.tolist())

    for margin in (0.0, 0.5):
        assert {row // 100 for row in found(centres[3], margin)} == {3}
    between = centres.sum(axis=0)
    best = set(np.argsort(-(dense @ between))[:2].tolist())
    assert len({row // 100 for row in found(between, 0.0)}) <= 3
    assert not best <= found(between, 0.0)
    assert best <= found(between, 3.0)


@pytest.mark.sweep
@pytest.mark.parametrize("sign", [-1, 1])
def test_shortlists_hold_the_heads_of_long_lists_and_signatures_the_rest(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "MAX_LIST_LENGTH": 20,
        "MAX_SIGNED_WORDS": 9,
        "MIN_SIGNED_DOCUMENTS": 8,
    }.items():
        monkeypatch.setattr(building, name, value)
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    sparse = documents.sparse
    documents = replace(documents, sparse=sparse.with_values(sign * np.abs(sparse.values)))
    index = index_in_memory(documents)
    lists = index.tables.shortlists
    there = [words_of(documents, d) for d in range(90)]
    counts = [sum(word in weights for weights in there) for word in range(30)]
    frequent = sorted(range(30), key=lambda word: -counts[word])[:9]
    assert lists.signed.tolist() == sorted(word for word in frequent if counts[word] > 8)
    for word in range(30):
        expected = {d: weights[word] for d, weights in enumerate(there) if word in weights}
        step = float(index.postings.limits[word, 1] - index.postings.limits[word, 0]) / 255
        for depth in (1, 7, 1000):
            one, weight = np.array([word], np.int32), np.array([2.0], np.float32)
            rows, bits, rest, scores = read(index, one, weight, depth, 0.0)
            signed, listed = word in lists.signed, word in lists.signed or counts[word] > 20
            size = min(20 if listed else 90, depth if signed else 90, counts[word])
            assert len(set(rows.tolist())) == len(rows) == size
            assert len(bits) == (signed and size < counts[word])
            brought = scores[rows] / 2
            if len(bits):
                brought = brought + rest[0] / 2
                left = [weight for d, weight in expected.items() if d not in rows]
                assert rest[0] / 2 == pytest.approx(np.mean(left), abs=2 * step)
                has = lists.signatures[:, bits[0] >> 3] >> (bits[0] & 7) & 1
                assert np.flatnonzero(has).tolist() == sorted(expected)
            for d, value in zip(rows.tolist(), brought.tolist(), strict=True):
                assert value == pytest.approx(expected[d], abs=step)
            if listed:
                best = sorted(map(abs, expected.values()), reverse=True)[:size]
                found = sorted((abs(expected[d]) for d in rows.tolist()), reverse=True)
                assert found == pytest.approx(best, abs=step)


@pytest.mark.parametrize(
    ("documents", "longest"),
    [(1, 8192), (1_000_000, 8192), (2_000_000, 15_625), (10_000_000, 78_125)],
)
def test_lists_of_more_than_a_million_documents_are_longer_and_read_whole(
    documents: int, longest: int
) -> None:
    assert building.list_length(documents) == longest
    for usual, found in zip(efforts(100, 1), efforts(100, documents), strict=True):
        longer = replace(usual, depth=longest, rescored=2 * usual.rescored, floor=2 * usual.floor)
        assert found == (usual if longest == 8192 else longer)


def test_a_list_holds_one_in_so_many_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_LIST_LENGTH", 20)
    monkeypatch.setattr(building, "_DOCUMENTS_PER_ENTRY", 3)
    documents = encoded(np.random.default_rng(1), 90, 0, 30, density=0.4)
    counts = np.bincount(documents.sparse.indices, minlength=30)
    found = np.diff(index_in_memory(documents).tables.shortlists.indptr)
    assert found.tolist() == [30 if count > 30 else 0 for count in counts.tolist()]
    assert 0 < np.count_nonzero(found) < 30


@pytest.mark.sweep
def test_entries_of_a_frequent_word_below_the_floor_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "MAX_LIST_LENGTH": 60,
        "MAX_SIGNED_WORDS": 9,
        "MIN_SIGNED_DOCUMENTS": 8,
    }.items():
        monkeypatch.setattr(building, name, value)
    index = index_in_memory(encoded(np.random.default_rng(1), 200, 0, 30))
    lists, words = index.tables.shortlists, np.arange(30, dtype=np.int32)
    weights = np.ones(30, np.float32)

    def heads(words: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
        slots, _, _, scores = read(index, words, weights[: len(words)], 30, floor)
        return slots, scores

    alone = [heads(words[i : i + 1], 0.0)[1] for i in range(30)]
    most = max(float(scores.max()) for scores in alone)
    kept = [
        np.where(scores >= 0.5 * most, scores, 0) if word in lists.signed else scores
        for word, scores in zip(words.tolist(), alone, strict=True)
    ]
    rows, scores = heads(words, 0.5)
    np.testing.assert_allclose(scores, np.sum(kept, axis=0), rtol=1e-5, atol=1e-5)
    assert len(rows) < len(heads(words, 0.0)[0])


def test_a_collection_of_rare_words_has_no_shortlists() -> None:
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    lists = index_in_memory(documents).tables.shortlists
    assert not len(lists.signed)
    assert lists.signatures.shape == (90, 0)
    assert not len(lists.slots)


@pytest.mark.parametrize("width", [1, 7, 16])
def test_each_document_is_in_the_cell_of_the_nearest_centre(width: int) -> None:
    rng = np.random.default_rng(18)
    groups = rng.normal(size=(12, width)).astype(np.float32) * 20
    dense = groups[rng.integers(0, 12, 900)] + rng.normal(size=(900, width)).astype(np.float32)
    documents = replace(encoded(rng, 900, width, 0), dense=dense)
    cells = index_in_memory(documents, cells=40).cells
    centres = cells.centres.astype(np.float32) * cells.scales[:, None]
    away = np.sqrt(np.square(dense[cells.rows][:, None] - centres).sum(axis=2))
    rounding = np.sqrt(width) * cells.scales.max()
    assert np.all(away[np.arange(900), cells.of] <= away.min(axis=1) + rounding)
    for cell in range(cells.n_cells):
        slots = np.arange(cells.starts[cell], cells.starts[cell + 1])
        assert np.all(cells.of[slots] == cell)
        rows = cells.rows[slots]
        steps = cells.distances[slots].astype(np.int64)
        assert np.array_equal(np.lexsort((rows, -steps)), np.arange(len(rows)))
        assert cells.bias[cell] == pytest.approx(documents.bias[rows].mean(), abs=1e-5)
        assert cells.longest[cell] == pytest.approx(away[slots, cell].max(initial=0), abs=rounding)
        own = steps * cells.longest[cell] / 255
        assert np.all(own >= away[slots, cell] - rounding)
        assert np.all(own <= away[slots, cell] + rounding + cells.longest[cell] / 255)
    np.testing.assert_array_equal(cells.slots[cells.rows], np.arange(900))


def test_an_index_opens_as_written_and_refuses_arrays_that_do_not_fit() -> None:
    rng = np.random.default_rng(17)
    documents = encoded(rng, 500, 8, 40)
    queries = encoded(rng, 5, 8, 40, bias=False)
    arrays: dict[str, np.ndarray] = {}

    def create(name: str, shape: tuple[int, ...], dtype: object) -> np.ndarray:
        arrays[name] = np.zeros(shape, dtype)  # type: ignore[call-overload]
        return arrays[name]

    facts = {"fast": {"effort": asdict(EVERYTHING)}}
    made = build_index(documents, create, cells=20)
    check_index(made, documents)
    opened = open_index(arrays, facts, documents)
    assert opened is not None
    check_index(opened, documents)
    assert opened.effort == EVERYTHING
    for a, b in zip(
        Retriever(documents, None, made).search(queries, 9),
        Retriever(documents, None, opened).search(queries, 9),
        strict=True,
    ):
        assert_same_bits(a, b)
    for name, array in arrays.items():
        if len(array):
            with pytest.raises(BundleError, match="index"):
                open_index({**arrays, name: array[1:]}, facts, documents)
        with pytest.raises(BundleError, match=f"KeyError: '{re.escape(name)}'"):
            open_index({k: v for k, v in arrays.items() if k != name}, facts, documents)
    # An index from before slots.
    older = {k.replace("slots", "rows"): v for k, v in arrays.items() if "cells" not in k}
    assert open_index(older, {"fast": {"effort": {"nprobe": 3, "dense": 5}}}, documents) is None
    # An index from before distances: its documents are as far from their centre as the root of the mean square.
    older = {k: v for k, v in arrays.items() if k != "cells.distances"}
    older["cells.radius"] = older.pop("cells.longest")
    opened = open_index(older, facts, documents)
    assert opened is not None
    assert np.all(opened.cells.distances == 255)
    for a, b in zip(
        Retriever(documents, None, made).search(queries, 9),
        Retriever(documents, None, opened).search(queries, 9, mode="fast"),
        strict=True,
    ):
        np.testing.assert_array_equal(a.rows, b.rows)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("cells.rows", 0, 500),
        ("cells.rows", 0, -1),
        ("cells.slots", 3, 0),
        ("cells.of", 0, 19),
        ("cells.starts", 1, 501),
        ("cells.starts", 20, 499),
        ("postings.slots", 0, 500),
        ("postings.indptr", 1, 10**6),
        ("bounds", 0, np.nan),
    ],
)
def test_damaged_numbers_are_found(name: str, place: int, value: float) -> None:
    arrays: dict[str, np.ndarray] = {}

    def create(name: str, shape: tuple[int, ...], dtype: object) -> np.ndarray:
        arrays[name] = np.zeros(shape, dtype)  # type: ignore[call-overload]
        return arrays[name]

    documents = encoded(np.random.default_rng(17), 500, 8, 40)
    index = build_index(documents, create, cells=20)
    check_index(index, documents)
    arrays[name][place] = value
    opened = open_index(arrays, {}, documents)
    assert opened is not None
    file = name.replace("cells.slots", "cells.rows") if "rows" in name else name
    with pytest.raises(BundleError, match=rf"index/({re.escape(file)}|cells\.\w+)\.npy"):
        check_index(opened, documents)


def distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the squared distance of each point to its nearest centre."""
    several = [np.square(points - centre).sum(axis=1) for centre in centres.astype(float)]
    return np.min(several, axis=0)


def test_every_planted_cluster_gets_a_centre() -> None:
    rng = np.random.default_rng(1)
    planted = rng.normal(size=(40, 12)) * 10
    points = np.repeat(planted, 50, axis=0) + rng.normal(size=(2000, 12)) * 0.01
    centres = train_cells(points.astype(np.float32), 120)[0]
    assert centres.shape == (120, 12)
    assert distances(points, centres).max() < 0.1


def test_centres_are_about_as_near_as_those_of_plain_k_means() -> None:
    rng = np.random.default_rng(2)
    points = (rng.normal(size=(4000, 8)) * rng.gamma(1, 1, (4000, 1))).astype(np.float32)
    plain = faiss.Kmeans(8, 64, niter=10, seed=1234)
    plain.train(points)
    assert plain.centroids is not None
    ours = distances(points, train_cells(points, 64)[0]).mean()
    assert ours < 1.2 * distances(points, plain.centroids).mean()


@pytest.mark.parametrize("cells", [1, 2, 3, 10])
def test_few_cells(cells: int) -> None:
    points = np.random.default_rng(3).normal(size=(8 * cells, 4)).astype(np.float32)
    centres = train_cells(points, cells)[0]
    assert centres.shape == (cells, 4)
    assert np.isfinite(centres).all()


def test_equal_points() -> None:
    centres = train_cells(np.ones((800, 3), np.float32), 50)[0]
    assert centres.shape == (50, 3)
    np.testing.assert_allclose(centres, 1, atol=0.01)


def test_the_bits_do_not_depend_on_the_threads_before() -> None:
    points = np.random.default_rng(4).normal(size=(3000, 16)).astype(np.float32)
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(2)
        first = train_cells(points, 90)[0]
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)
    assert first.tobytes() == train_cells(points, 90)[0].tobytes()


def test_most_points_find_their_nearest_centre() -> None:
    points = np.random.default_rng(5).normal(size=(6_000, 8)).astype(np.float32)
    centres, index = train_cells(points, 150)
    found = index.search(points, 1)[1][:, 0]
    assert np.array_equal(index.search(centres, 1)[1][:, 0], np.arange(150))
    away = np.square(points - centres[found]).sum(axis=1)
    assert away.mean() < 1.02 * distances(points, centres).mean()
