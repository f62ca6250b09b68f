"""The parts of an index: codes, postings, shortlists, cells."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.encoding import Encoded, Rows
from fullrank.errors import BundleError
from fullrank.retrieval import Retriever
from fullrank.retrieval.index import postings, shortlists
from fullrank.retrieval.index.build import build_index, check_index, index_in_memory, open_index
from fullrank.retrieval.index.cells import build_cells, open_cells
from fullrank.retrieval.index.codes import encode
from fullrank.retrieval.scratch import Scratch
from tests.unit.fullrank.retrieval.data import (
    EVERYTHING,
    assert_same_bits,
    encoded,
    with_cells,
    words_of,
)


@settings(deadline=None, max_examples=40)
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
    codes = index_in_memory(documents).codes
    u = (rng.normal(size=width) * scale).astype(np.float32)
    truth = documents.dense.astype(np.float64) @ u.astype(np.float64)
    found = np.zeros(count, np.float32)
    error = codes.scan(u, found)
    rounding = 1e-6 * float(np.abs(truth).max(initial=0)) + 1e-44
    assert np.abs(found - truth).max() <= error + rounding
    # The bound is tight: rounding costs half a step in each coordinate.
    assert codes.error <= np.sqrt(width) * np.abs(documents.dense).max() / 127 * 0.51 + 1e-36


def test_a_vector_coded_alone_has_the_same_code() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(50, 17)).astype(np.float32)
    codes, scales, _, _ = encode(vectors)
    for i in range(50):
        one, scale, _, _ = encode(vectors[i : i + 1])
        np.testing.assert_array_equal(one[0], codes[i])
        assert scale[0] == scales[i]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_postings_are_the_transposed_documents(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "_CHUNK", chunk)
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    found = index_in_memory(documents).postings
    there = [words_of(documents, d) for d in range(90)]
    for word in range(30):
        expected = {d: weights[word] for d, weights in enumerate(there) if word in weights}
        rows = found.rows[found.indptr[word] : found.indptr[word + 1]]
        assert rows.tolist() == sorted(expected)
        scores = np.zeros(90, np.float32)
        found.add(np.array([word], np.int32), np.array([2.0]), scores)
        step = (found.limits[word, 1] - found.limits[word, 0]) / 255
        for d in range(90):
            assert abs(scores[d] - 2 * expected.get(d, 0.0)) <= step * 1.001 + 1e-6
        plan = found.plan(np.array([word], np.int32), np.array([2.0], np.float32))
        assert plan.errors[-1] >= step * 0.999


def test_a_word_with_equal_weights_is_stored_without_error() -> None:
    documents = Encoded(
        np.zeros((9, 0), np.float32),
        Rows(np.arange(10), np.zeros(9, np.int32), np.full(9, 0.1, np.float32), 1),
        np.zeros(9, np.float32),
    )
    scores = np.zeros(9, np.float32)
    index_in_memory(documents).postings.add(np.zeros(1, np.int32), np.ones(1), scores)
    np.testing.assert_array_equal(scores, np.full(9, 0.1, np.float32))


def test_a_query_between_many_cells_searches_more_of_them(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("sign", [-1, 1])
def test_shortlists_hold_the_heads_of_long_lists_and_signatures_the_rest(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "MAX_LIST_LENGTH": 20,
        "MAX_SIGNED_WORDS": 9,
        "MIN_SIGNED_DOCUMENTS": 8,
    }.items():
        monkeypatch.setattr(shortlists, name, value)
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    sparse = documents.sparse
    documents = replace(documents, sparse=sparse.with_values(sign * np.abs(sparse.values)))
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
            one, weight = np.array([word], np.int32), np.array([2.0], np.float32)
            scratch = Scratch(90)
            rows, bits, rest = lists.read(index.postings, one, weight, depth, 0.0, scratch)
            signed, listed = word in lists.signed, word in lists.signed or counts[word] > 20
            size = min(20 if listed else 90, depth if signed else 90, counts[word])
            assert len(set(rows.tolist())) == len(rows) == size
            assert len(bits) == (signed and size < counts[word])
            brought = scratch.scores[rows] / 2
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


def test_entries_of_a_frequent_word_below_the_floor_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "MAX_LIST_LENGTH": 60,
        "MAX_SIGNED_WORDS": 9,
        "MIN_SIGNED_DOCUMENTS": 8,
    }.items():
        monkeypatch.setattr(shortlists, name, value)
    index = index_in_memory(encoded(np.random.default_rng(1), 200, 0, 30))
    lists, words = index.shortlists, np.arange(30, dtype=np.int32)
    assert lists is not None
    weights = np.ones(30, np.float32)

    def read(words: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
        scratch = Scratch(200)
        heads = lists.read(index.postings, words, weights[: len(words)], 30, floor, scratch)
        return np.sort(heads.rows), scratch.scores

    alone = [read(words[i : i + 1], 0.0)[1] for i in range(30)]
    most = max(float(scores.max()) for scores in alone)
    kept = [
        np.where(scores >= 0.5 * most, scores, 0) if word in lists.signed else scores
        for word, scores in zip(words.tolist(), alone, strict=True)
    ]
    rows, scores = read(words, 0.5)
    np.testing.assert_allclose(scores, np.sum(kept, axis=0), rtol=1e-5, atol=1e-5)
    assert len(rows) < len(read(words, 0.0)[0])


def test_a_collection_of_rare_words_has_no_shortlists() -> None:
    documents = encoded(np.random.default_rng(1), 90, 0, 30)
    lists = index_in_memory(documents).shortlists
    assert lists is not None
    assert not len(lists.signed)
    assert lists.signatures.shape == (90, 0)
    assert not len(lists.rows)


def test_writing_cells_to_a_full_disk_raises_a_bundle_error() -> None:
    vectors = np.random.default_rng(18).normal(size=(4000, 8)).astype(np.float32)
    with pytest.raises(BundleError, match=r"/dev/full: cannot be written: .*No space left"):
        build_cells(vectors, Path("/dev/full"), np.zeros(4000, np.uint16))


@pytest.mark.parametrize("width", [1, 7, 16])
def test_cells_of_documents_are_those_that_faiss_assigned(tmp_path: Path, width: int) -> None:
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
    # FAISS sums in 16 bits, so the smallest scores may be lost.
    assert len(set(found)) == len(found) >= 890


def test_an_index_opens_as_written_and_refuses_arrays_that_do_not_fit(tmp_path: Path) -> None:
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
        assert_same_bits(a, b)
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
    # An index from before signatures: exact search uses it, and there is no fast mode.
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
