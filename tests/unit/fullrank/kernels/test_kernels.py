"""Test what holds for all kernels: none compiles in a search, damaged files are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numba.core.event import install_recorder

from fullrank.kernels.arrays import stable_order
from fullrank.kernels.index import Limits, Matrix, Slack, Vector, read_only
from fullrank.kernels.scan import scan_slots
from fullrank.kernels.scoring import score_rows
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import index_in_memory
from fullrank.storage.encoding import Encoded
from tests.unit.fullrank.kernels.data import query_of, random_rows, tables_of
from tests.unit.fullrank.retrieval.data import EVERYTHING, with_cells


def test_asking_for_memory_early_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    v, t = rng.normal(size=(90, 40)).astype(np.float32), random_rows(rng, 90, 30)
    u, words = rng.normal(size=40).astype(np.float32), np.arange(30, dtype=np.int32)
    rows, scratch = rng.integers(0, 90, 60), np.zeros(30)
    weights, together = rng.normal(size=30).astype(np.float32), np.empty((2, 60))
    query, documents = read_only(Vector(u, words, weights)), Encoded.from_rows(t, v).matrix
    score_rows(query, documents, rows, scratch, *together)
    for i in range(60):
        alone = np.empty((2, 1))
        one = rows[i : i + 1]
        score_rows(query, documents, one, scratch, *alone)
        np.testing.assert_array_equal(alone[:, 0], together[:, i])


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
    codes = np.zeros((9, 0), np.int8)
    for number in (-1, 9):
        indices, indptr = np.full_like(t.indices, number), t.indptr + 100 * number
        for damaged in ((t.indptr, indices), (indptr, t.indices)):
            query = read_only(Vector(scores[:0], words[:0], scores[:0]))
            documents = read_only(Matrix(v, *damaged, t.values, scores))
            with pytest.raises(IndexError, match="damaged"):
                score_rows(query, documents, np.arange(9), s, *found)
        index = tables_of(codes, scores, scores, (indptr, t.indices, impacts, limits), words)
        none, slack = query_of(np.zeros(0, np.int8), 1.0), Slack(0.0, 0.0, 0.0)
        asked = Limits(words[:0], -np.inf, np.inf, 3, -np.inf)
        with pytest.raises(IndexError, match="damaged"):
            scan_slots(index, none, words, s, nobody, asked, slack, 9)


@pytest.mark.sweep
@given(st.lists(st.integers(-5, 5), max_size=70))
def test_a_stable_order(keys: list[int]) -> None:
    for kind in (np.int32, np.float64):
        found = stable_order(np.array(keys, kind))
        assert found.tolist() == sorted(range(len(keys)), key=lambda place: keys[place])
