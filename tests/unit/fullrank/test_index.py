"""An index changes what is read, never an answer: exact search over it gives the bits of the search without it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fullrank.encoding import Encoded, concatenate
from fullrank.errors import BundleError
from fullrank.index import Effort, Index
from fullrank.retrieval import Mask, Ranking, Retriever, retriever
from fullrank.retrieval import index_scan as compact
from fullrank.retrieval import tune as tuning
from fullrank.retrieval.index import postings, shortlists
from fullrank.retrieval.index.build import build_index, check_index, index_in_memory, open_index
from fullrank.retrieval.index.cells import build_cells, open_cells
from fullrank.retrieval.index.codes import encode
from fullrank.retrieval.tune import PROMISED, efforts, recall, tune
from tests.unit.fullrank.retrieval.test_retrieval import _same_bits, brute, encoded

EVERYTHING = Effort(nprobe=10**6, dense=10**6, words=10**6, depth=10**6, sparse=10**6, exact=10**6)


def assert_same(
    documents: Encoded,
    queries: Encoded,
    limit: int,
    *,
    offset: int = 0,
    deleted: Mask | None = None,
) -> None:
    """Exact search over an index against exact search without one."""
    index = index_in_memory(documents)
    found = Retriever(documents, None, index).search(queries, limit, offset=offset, deleted=deleted)
    plain = Retriever(documents).search(queries, limit, offset=offset, deleted=deleted)
    for a, b in zip(found, plain, strict=True):
        assert a.certified
        _same_bits(a, b)


def words_of(documents: Encoded, i: int) -> dict[int, float]:
    _, indices, weights, _ = documents.row(i)
    return dict(zip(indices.tolist(), weights.tolist(), strict=True))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 60),
    width=st.integers(1, 40),
    scale=st.sampled_from([1e-42, 1e-20, 1e-3, 1.0, 1e6, 1e18]),
)
def test_codes_are_as_far_off_as_they_say(seed: int, count: int, width: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    documents = encoded(rng, count, width, 0, scale=scale)
    documents.dense[:: max(1, count // 3)] = 0
    codes = index_in_memory(documents).codes
    u = (rng.normal(size=width) * scale).astype(np.float32)
    truth = documents.dense.astype(np.float64) @ u.astype(np.float64)
    found = np.zeros(count, np.float32)
    error = codes.scan(u, found)
    rounding = 1e-6 * float(np.abs(truth).max(initial=0)) + 1e-44
    assert np.abs(found - truth).max() <= error + rounding
    np.testing.assert_array_equal(codes.of(u, np.arange(count)), found)
    # No bound of convenience: half a step in each coordinate is what rounding costs.
    assert codes.error <= np.sqrt(width) * np.abs(documents.dense).max() / 127 * 0.51 + 1e-36


def test_scans_take_nothing_away_from_the_interpreter() -> None:
    """The library's other way to return a result gives away a None that it does not own."""
    codes = index_in_memory(encoded(np.random.default_rng(2), 300, 8, 0)).codes
    u, rows = np.ones(8, np.float32), np.arange(5)
    scores = np.zeros(300, np.float32)
    codes.scan(u, scores)
    before = sys.getrefcount(None)
    for _ in range(2000):
        codes.scan(u, scores)
        codes.of(u, rows)
    assert abs(sys.getrefcount(None) - before) < 200


def test_one_vector_coded_alone_has_the_same_code() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(50, 17)).astype(np.float32)
    codes, scales, _, _ = encode(vectors)
    for i in range(50):
        one, scale, _, _ = encode(vectors[i : i + 1])
        np.testing.assert_array_equal(one[0], codes[i])
        assert scale[0] == scales[i]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_postings_are_the_documents_turned_round(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "_CHUNK", chunk)
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    found = index_in_memory(documents).postings
    there = [words_of(documents, d) for d in range(90)]
    for word in range(30):
        expected = {d: weights[word] for d, weights in enumerate(there) if word in weights}
        rows = found.rows[found.indptr[word] : found.indptr[word + 1]]
        assert rows.tolist() == sorted(expected)
        scores = np.zeros(90, np.float32)
        found.add(word, 2.0, scores)
        step = (found.limits[word, 1] - found.limits[word, 0]) / 255
        for d in range(90):
            assert abs(scores[d] - 2 * expected.get(d, 0.0)) <= step * 1.001 + 1e-6
        assert found.error(np.array([word], np.int32), np.array([2.0])) >= step * 0.999


def test_a_word_that_weighs_the_same_everywhere_is_exact() -> None:
    documents = Encoded(
        np.zeros((9, 0), np.float32),
        np.arange(10),
        np.zeros(9, np.int32),
        np.full(9, 0.1, np.float32),
        1,
        np.zeros(9, np.float32),
    )
    scores = np.zeros(9, np.float32)
    index_in_memory(documents).postings.add(0, 1.0, scores)
    np.testing.assert_array_equal(scores, np.full(9, 0.1, np.float32))


def test_a_query_between_many_cells_looks_into_more_of_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(21)
    centres = 10 * np.eye(8, dtype=np.float32)
    dense = centres.repeat(100, axis=0) + rng.normal(size=(800, 8)).astype(np.float32)
    documents = replace(encoded(rng, 800, 8, 0), dense=dense)
    cells = with_cells(documents, tmp_path, EVERYTHING).cells
    assert cells is not None

    def found(u: np.ndarray, margin: float) -> set[int]:
        u = u.astype(np.float32)
        return set((cells.search(u, cells.near(u), 800, 1, margin) // 100).tolist())

    assert found(centres[3], 0.0) == found(centres[3], 0.5) == {3}
    assert len(found(centres.sum(axis=0), 0.0)) == 1
    assert found(centres.sum(axis=0), 0.5) == set(range(8))


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 90),
    n_dense=st.integers(0, 6),
    width=st.integers(0, 12),
    limit=st.integers(1, 100),
    offset=st.integers(0, 90),
    gone=st.floats(0, 1),
    scale=st.sampled_from([1e-30, 1e-6, 1.0, 1e6, 1e19]),
    bias=st.sampled_from([0.0, 1.0, 1e8, 1e30]),
    copies=st.integers(1, 4),
)
def test_exact_search_is_that_without_an_index(
    seed: int,
    count: int,
    n_dense: int,
    width: int,
    limit: int,
    offset: int,
    gone: float,
    scale: float,
    bias: float,
    copies: int,
) -> None:
    """Ties, duplicates, huge biases, no sparse or no dense side, more wanted than there is, all filtered out."""
    rng = np.random.default_rng(seed)
    documents = concatenate([encoded(rng, count, n_dense, width, scale=scale)] * copies)
    documents = replace(documents, bias=(documents.bias * bias).astype(np.float32))
    queries = encoded(rng, 3, n_dense, width, scale=min(scale, 1e6), bias=False)
    mask = rng.random(len(documents)) < gone
    assert_same(documents, queries, limit, offset=offset, deleted=mask)
    learned, exact = brute(queries, documents)
    truth = (learned + exact + documents.bias.astype(np.float64))[:, ~mask]
    for i, ranking in enumerate(
        Retriever(documents, None, index_in_memory(documents)).search(
            queries, limit, offset=offset, deleted=mask
        )
    ):
        best = np.sort(truth[i])[::-1][offset : offset + limit]
        np.testing.assert_allclose(ranking.scores, best, rtol=1e-9, atol=1e-9 * bias + 1e-300)


SIZES = (0.0, 1e-42, 1e-30, 1e-14, 1.0, 1e10, 1e25, 1e37)


@pytest.mark.parametrize("indexed", [False, True])
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    documents_scale=st.sampled_from(SIZES),
    query_scale=st.sampled_from(SIZES),
    bias=st.sampled_from(SIZES),
    outlier=st.sampled_from([1.0, 1e20]),
)
@example(seed=0, documents_scale=1.0, query_scale=0.0, bias=1.0, outlier=1e20)
@example(seed=1, documents_scale=1e25, query_scale=1e25, bias=1.0, outlier=1.0)
@example(seed=2, documents_scale=1e-30, query_scale=1e-14, bias=0.0, outlier=1.0)
@example(seed=3, documents_scale=1e-14, query_scale=1e37, bias=0.0, outlier=1.0)
def test_certificates_hold_over_the_whole_range_of_float32(
    seed: int,
    documents_scale: float,
    query_scale: float,
    bias: float,
    outlier: float,
    indexed: bool,
) -> None:
    """Products that overflow, that vanish, and one document of a norm beyond all others'."""
    rng = np.random.default_rng(seed)
    most = float(np.finfo(np.float32).max)
    documents = encoded(rng, 200, 16, 12, scale=documents_scale)
    dense = documents.dense.astype(np.float64)
    dense[rng.integers(200)] *= outlier
    documents = replace(
        documents,
        dense=np.clip(dense, -most, most).astype(np.float32),
        bias=(documents.bias * bias).astype(np.float32),
    )
    queries = encoded(rng, 3, 16, 12, scale=query_scale, density=0.5, bias=False)
    retriever = Retriever(documents, None, index_in_memory(documents) if indexed else None)
    for i, found in enumerate(retriever.search(queries, 10)):
        learned, exact, own = retriever.exact(queries, i, np.arange(200))
        scores = learned + exact + own
        assert found.certified
        np.testing.assert_array_equal(found.rows, np.argsort(-scores, kind="stable")[:10])
        np.testing.assert_array_equal(found.scores, scores[found.rows])


@pytest.mark.parametrize("sign", [-1, 1])
def test_words_left_out_are_bounded_both_ways(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long query: most of its words are never added, some of negative weight."""
    monkeypatch.setattr(compact, "_LEFT_OUT", 0.5)
    rng = np.random.default_rng(11)
    documents = encoded(rng, 3000, 4, 80, density=0.3)
    weights = (np.abs(documents.weights) * sign).astype(np.float32)
    for given_documents in (documents, replace(documents, weights=weights)):
        queries = encoded(rng, 8, 4, 80, density=0.9, bias=False)
        assert_same(given_documents, queries, 10)


def test_words_are_added_until_candidates_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_LEFT_OUT", 1.0)
    rng = np.random.default_rng(12)
    documents = encoded(rng, 6000, 0, 50, density=0.3)
    query = encoded(rng, 20, 0, 50, density=0.8, bias=False).slice(5, 6)
    added: list[int] = []
    refine = compact.Scan.refine

    def counted(self: compact.Scan) -> bool:
        added.append(1)
        return refine(self)

    monkeypatch.setattr(compact.Scan, "refine", counted)
    assert_same(documents, query, 10)
    assert added


@pytest.mark.parametrize("sign", [-1, 1])
def test_shortlists_are_the_beginnings_of_long_lists_and_signatures_the_rest(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LONGEST": 20, "SIGNED": 9, "FEW": 8}.items():
        monkeypatch.setattr(shortlists, name, value)
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    documents = replace(documents, weights=sign * np.abs(documents.weights))
    index = index_in_memory(documents)
    lists = index.shortlists
    assert lists is not None
    there = [words_of(documents, d) for d in range(90)]
    counts = [sum(word in weights for weights in there) for word in range(30)]
    frequent = sorted(range(30), key=lambda word: -counts[word])[:9]
    assert lists.signed.tolist() == sorted(word for word in frequent if counts[word] > 8)
    for word in range(30):
        expected = {d: weights[word] for d, weights in enumerate(there) if word in weights}
        step = float(index.postings.limits[word, 1] - index.postings.limits[word, 0]) / 255
        for depth in (1, 7, 1000):
            one, weight = np.array([word], np.int32), np.float32([2.0])
            [(rows, values)], marks = lists.read(index.postings, one, weight, depth)
            signed, listed = word in lists.signed, word in lists.signed or counts[word] > 20
            size = min(20 if listed else 90, depth if signed else 90, counts[word])
            assert len(set(rows.tolist())) == len(rows) == size
            assert bool(marks) == (signed and size < counts[word])
            brought = values / 2
            if marks:
                brought = brought + marks[0].value / 2
                left = [weight for d, weight in expected.items() if d not in rows]
                assert marks[0].value / 2 == pytest.approx(np.mean(left), abs=2 * step)
                bits = (lists.signatures[:, marks[0].byte] & marks[0].bit) != 0
                assert np.flatnonzero(bits).tolist() == sorted(expected)
            for d, value in zip(rows.tolist(), brought.tolist(), strict=True):
                assert value == pytest.approx(expected[d], abs=step)
            if listed:
                best = sorted(map(abs, expected.values()), reverse=True)[:size]
                found = sorted((abs(expected[d]) for d in rows.tolist()), reverse=True)
                assert found == pytest.approx(best, abs=step)


def test_of_a_frequent_word_nothing_is_read_that_brings_little_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"LONGEST": 60, "SIGNED": 9, "FEW": 8}.items():
        monkeypatch.setattr(shortlists, name, value)
    index = index_in_memory(encoded(np.random.default_rng(1), 200, 0, 30))
    lists, words = index.shortlists, np.arange(30, dtype=np.int32)
    assert lists is not None
    weights = np.ones(30, np.float32)
    whole, _ = lists.read(index.postings, words, weights, 30)
    most = max(float(values.max()) for _, values in whole)
    some, marks = lists.read(index.postings, words, weights, 30, 0.5)
    assert len(marks) == 9
    rest = iter(some)
    for word, (rows, values) in zip(words.tolist(), whole, strict=True):
        kept = values >= 0.5 * most if word in lists.signed else np.ones(len(rows), np.bool_)
        if kept.any():
            found = next(rest)
            assert found[0].tolist() == rows[kept].tolist()
            np.testing.assert_array_equal(found[1], values[kept])
    assert sum(len(rows) for rows, _ in some) < sum(len(rows) for rows, _ in whole)


def test_a_collection_of_rare_words_alone_has_no_shortlists() -> None:
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    lists = index_in_memory(documents).shortlists
    assert lists is not None
    assert not len(lists.signed)
    assert lists.signatures.shape == (90, 0)
    assert not len(lists.rows)


def with_cells(documents: Encoded, folder: Path, effort: Effort) -> Index:
    of = np.zeros(len(documents), np.uint16)
    build_cells(documents.dense, folder / "index.faiss", of)
    cells = open_cells(folder / "index.faiss", of)
    return replace(index_in_memory(documents), cells=cells, effort=effort)


def test_cells_that_a_full_disk_does_not_take_are_an_error_of_the_bundle() -> None:
    vectors = np.random.default_rng(18).normal(size=(4000, 8)).astype(np.float32)
    with pytest.raises(BundleError, match=r"/dev/full: cannot be written: .*No space left"):
        build_cells(vectors, Path("/dev/full"), np.zeros(4000, np.uint16))


@pytest.mark.parametrize("width", [1, 7, 16])
def test_cells_are_those_that_the_library_put_documents_into(tmp_path: Path, width: int) -> None:
    documents = encoded(np.random.default_rng(18), 900, width, 0)
    index = with_cells(documents, tmp_path, EVERYTHING)
    assert index.cells is not None
    centres, of = index.cells.centres, index.cells.of
    away = np.square(documents.dense[:, None] - centres).sum(axis=2)
    np.testing.assert_allclose(away[np.arange(900), of], away.min(axis=1), rtol=1e-3, atol=1e-5)
    u = documents.dense[3]
    near = index.cells.near(u)
    np.testing.assert_allclose(near, centres @ u, rtol=1e-5, atol=1e-6)
    found = index.cells.search(u, near, 900, 900).tolist()
    # The library's own sums have 16 bits: those that are the least of all may be lost.
    assert len(set(found)) == len(found) >= 890


def test_fast_search_that_looks_everywhere_is_exact_but_does_not_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    documents = encoded(rng, 4000, 16, 60)
    queries = encoded(rng, 12, 16, 60, bias=False)
    retriever = Retriever(documents, None, with_cells(documents, tmp_path, EVERYTHING))
    assert retriever.modes == ("exact", "fast")
    mask = rng.random(4000) < 0.4
    for deleted in (None, mask):
        exact = retriever.search(queries, 10, deleted=deleted)
        fast = retriever.search(queries, 10, deleted=deleted, mode="fast")
        for a, b in zip(exact, fast, strict=True):
            assert a.certified
            assert not b.certified
            _same_bits(replace(a, certified=False), b)


def test_fast_search_keeps_to_its_filter_and_to_exact_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortlists, "FEW", 100)
    rng = np.random.default_rng(14)
    documents = encoded(rng, 4000, 16, 60)
    queries = encoded(rng, 12, 16, 60, bias=False)
    effort = Effort(nprobe=4, dense=50, words=4, depth=20, sparse=50, exact=30, floor=0.1)
    retriever = Retriever(documents, None, with_cells(documents, tmp_path, effort))
    learned, exact = brute(queries, documents)
    truth = learned + exact + documents.bias
    for share in (0.0, 0.3, 0.69, 0.9, 0.999, 1.0):
        mask = rng.random(4000) < share
        for i, found in enumerate(retriever.search(queries, 10, deleted=mask, mode="fast")):
            assert not mask[found.rows].any()
            assert found.total == np.count_nonzero(~mask)
            assert len(found.rows) == min(10, found.total)
            np.testing.assert_allclose(found.scores, truth[i, found.rows], rtol=1e-9)
            assert np.all(np.diff(found.scores) <= 0)


@pytest.mark.parametrize(
    "odd", [{"nprobe": 0}, {"dense": 1.5}, {"exact": "9"}, {"floor": 1.0}, {"margin": float("inf")}]
)
def test_an_effort_that_cannot_be_searched_with_is_not_sound(odd: dict[str, Any]) -> None:
    effort = Effort(nprobe=4, dense=100, words=16, depth=800, sparse=200, exact=50)
    assert effort.sound()
    assert not replace(effort, **odd).sound()


def test_an_effort_is_stretched_with_the_words_of_a_query_and_the_documents_wanted() -> None:
    effort = Effort(nprobe=4, dense=100, words=16, depth=800, sparse=200, exact=50, margin=0.1)
    assert effort.stretched(3, 10) == effort.stretched(16, 10) == effort
    assert effort.stretched(64, 10) == replace(effort, dense=400, depth=200, sparse=800, exact=200)
    assert effort.stretched(10**6, 10) == effort.stretched(16 * 8, 10)
    assert effort.stretched(3, 60) == replace(effort, dense=500, sparse=600, exact=450)
    assert effort.stretched(3, 10**6).exact >= 2 * 10**6


def test_long_queries_and_long_answers_are_found_as_well_as_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unstretched this effort finds 0.86 of the first ten of 80 words, and 0.85 of the first hundred of 5."""
    monkeypatch.setattr(shortlists, "FEW", 100)
    monkeypatch.setattr(retriever, "_FAST_PART", 1)
    rng = np.random.default_rng(21)
    documents = encoded(rng, 8000, 16, 400, density=0.05)
    effort = Effort(nprobe=400, dense=200, words=8, depth=400, sparse=200, exact=60)
    fast = Retriever(documents, None, with_cells(documents, tmp_path, effort))
    for words, wanted in ((5, 10), (80, 10), (5, 100)):
        queries = encoded(rng, 40, 16, 400, density=words / 400, bias=False)
        found = fast.search(queries, wanted, mode="fast")
        truth = fast.search(queries, wanted)
        assert np.mean([recall(a, b) for a, b in zip(found, truth, strict=True)]) > 0.97


def test_where_the_candidates_would_be_many_the_answer_is_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(22)
    documents = encoded(rng, 8000, 16, 60)
    effort = Effort(nprobe=4, dense=50, words=8, depth=20, sparse=50, exact=30)
    fast = Retriever(documents, None, with_cells(documents, tmp_path, effort))
    for words, wanted, proven in ((6, 10, False), (6, 15, False), (6, 30, True), (60, 10, True)):
        queries = encoded(rng, 14, 16, 60, density=words / 60, bias=False)  # every other one empty
        found = fast.search(queries, wanted, mode="fast")
        assert [ranking.certified for ranking in found[1::2]] == [proven] * 7, (words, wanted)


def test_the_effort_is_the_least_that_keeps_its_promise_on_queries_it_was_not_chosen_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queries come in two kinds in turn, of which one needs far more effort than the other."""
    monkeypatch.setattr(shortlists, "FEW", 100)
    rng = np.random.default_rng(19)
    documents = encoded(rng, 4000, 16, 60)
    queries = encoded(rng, 120, 16, 60, bias=False)
    # The easy ones are documents.
    dense = queries.dense.copy()
    dense[::2] = 9 * documents.dense[:60]
    queries = replace(queries, dense=dense)
    retriever = Retriever(documents, None, with_cells(documents, tmp_path, EVERYTHING))
    effort, facts = tune(retriever, queries)
    assert effort is not None
    assert facts["queries"] == 60
    assert facts["recall_at_10"] >= PROMISED
    truths = retriever.search(queries, 10)
    found = retriever.search(queries, 10, mode="fast", effort=effort)
    assert np.mean([recall(a, b) for a, b in zip(found, truths, strict=True)]) >= PROMISED
    assert effort.nprobe < efforts(200)[-1].nprobe
    assert tune(retriever, queries) == (effort, facts)


def test_there_is_no_fast_mode_where_no_effort_keeps_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_LADDER", ((1 / 128, 1, 1, 1, 1, 1, 0.5, 0.0),))
    rng = np.random.default_rng(20)
    documents, queries = encoded(rng, 3000, 16, 60), encoded(rng, 20, 16, 60, bias=False)
    retriever = Retriever(documents, None, with_cells(documents, tmp_path, EVERYTHING))
    effort, facts = tune(retriever, queries)
    assert effort is None
    assert facts["recall_at_10"] < PROMISED


def test_there_is_no_fast_mode_where_no_query_is_left_to_measure_it_by(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    documents, queries = encoded(rng, 300, 16, 60), encoded(rng, 2, 16, 60, bias=False)
    retriever = Retriever(documents, None, with_cells(documents, tmp_path, EVERYTHING))
    assert tune(retriever, queries)[0] is not None
    effort, facts = tune(retriever, queries.slice(0, 1))
    assert effort is None
    assert facts == {"recall_at_10": 0.0, "queries": 0}


def test_threads_share_a_retriever(tmp_path: Path) -> None:
    rng = np.random.default_rng(15)
    documents = encoded(rng, 3000, 8, 60)
    queries = encoded(rng, 64, 8, 60, bias=False)
    effort = Effort(
        nprobe=8, dense=100, words=8, depth=30, sparse=100, exact=40, floor=0.1, margin=0.1
    )
    retriever = Retriever(documents, None, with_cells(documents, tmp_path, effort))
    ones = [queries.slice(i, i + 1) for i in range(64)] * 4
    for mode in ("exact", "fast"):

        def search(one: Encoded, mode: str = mode) -> Ranking:
            return retriever.search(one, 10, mode=mode)[0]

        alone = [search(one) for one in ones[:64]] * 4
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(search, ones))
        for a, b in zip(alone, found, strict=True):
            _same_bits(a, b)


def test_a_mode_that_is_none_is_refused() -> None:
    documents = encoded(np.random.default_rng(16), 10, 2, 3)
    with pytest.raises(ValueError, match="neither"):
        Retriever(documents).search(documents, 1, mode="quick")


def test_an_index_opens_as_it_was_made_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(17)
    documents = encoded(rng, 500, 8, 40)
    queries = encoded(rng, 5, 8, 40, bias=False)
    arrays: dict[str, np.ndarray] = {}

    def create(name: str, shape: tuple[int, ...], dtype: object) -> np.ndarray:
        arrays[name] = np.zeros(shape, dtype)  # type: ignore[call-overload]
        return arrays[name]

    facts = {"fast": {"effort": asdict(EVERYTHING)}}
    made = build_index(documents, create)
    build_cells(documents.dense, tmp_path / "index.faiss", create("cells.of", (500,), np.uint16))
    check_index(made, documents)
    cells = tmp_path / "index.faiss"
    opened = open_index(arrays, facts, documents, cells)
    check_index(opened, documents)
    assert opened.effort == EVERYTHING
    for a, b in zip(
        Retriever(documents, None, made).search(queries, 9),
        Retriever(documents, None, opened).search(queries, 9),
        strict=True,
    ):
        _same_bits(a, b)
    with pytest.raises(BundleError, match="codes"):
        open_index({**arrays, "codes": arrays["codes"][1:]}, facts, documents, None)
    with pytest.raises(BundleError, match="KeyError"):
        open_index({k: v for k, v in arrays.items() if k != "limits"}, facts, documents, None)
    with pytest.raises(BundleError, match=r"cells\.of"):
        open_index({**arrays, "cells.of": arrays["cells.of"][1:]}, facts, documents, cells)
    without = {k: v for k, v in arrays.items() if k != "cells.of"}
    with pytest.raises(BundleError, match=r"cells\.of.*missing"):
        open_index(without, facts, documents, cells)
    with pytest.raises(BundleError, match=r"signatures\.npy"):
        open_index({**arrays, "signatures": arrays["bounds"]}, facts, documents, None)
    # Made before there were signatures: searched exactly, its fast mode left alone.
    older = {k: v for k, v in arrays.items() if not k.startswith(("signatures", "cells"))}
    had = {"fast": {"effort": {"nprobe": 3, "postings": 5}}}
    assert open_index(older, had, documents, cells).effort is None
    few = documents.slice(0, 499)
    build_index(few, create)
    create("cells.of", (499,), np.uint16)
    with pytest.raises(BundleError, match="500 vectors for"):
        open_index(arrays, facts, few, cells)
    (tmp_path / "index.faiss").write_bytes(b"nothing")
    with pytest.raises(BundleError, match="not a FAISS index"):
        open_cells(cells, arrays["cells.of"])
