"""The fast mode: its candidates, its effort, and how the effort is chosen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fullrank.encoding import Encoded, Rows
from fullrank.retrieval import Ranking, Retriever, retriever
from fullrank.retrieval import candidates as finding
from fullrank.retrieval import tune as tuning
from fullrank.retrieval.index import Effort
from fullrank.retrieval.index import build as building
from fullrank.retrieval.index import postings as shortlists
from fullrank.retrieval.tune import PROMISED_RECALL, efforts, recall, tune
from tests.unit.fullrank.retrieval.data import (
    EVERYTHING,
    assert_same_bits,
    brute,
    encoded,
    with_cells,
)


def test_fast_search_of_everything_equals_exact_search_but_is_not_certified() -> None:
    rng = np.random.default_rng(13)
    documents = encoded(rng, 4000, 16, 60)
    queries = encoded(rng, 12, 16, 60, bias=False)
    retriever = Retriever(documents, None, with_cells(documents, EVERYTHING))
    assert retriever.modes == ("exact", "fast")
    mask = rng.random(4000) < 0.4
    for deleted in (None, mask):
        exact = retriever.search(queries, 10, deleted=deleted)
        fast = retriever.search(queries, 10, deleted=deleted, mode="fast")
        for a, b in zip(exact, fast, strict=True):
            assert a.certified
            assert not b.certified
            assert_same_bits(replace(a, certified=False), b)


def test_a_fast_search_that_failed_half_way_changes_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(17)
    documents, queries = encoded(rng, 4000, 16, 60), encoded(rng, 3, 16, 60, bias=False)
    retriever = Retriever(documents, None, with_cells(documents, EVERYTHING))
    before = retriever.search(queries, 10, mode="fast")

    def failing(*arguments: Any) -> None:
        arguments[-1][::3] = 1  # the kernel adds up impacts there, then needs memory
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(finding, "best_estimated", failing)
        with pytest.raises(MemoryError):
            retriever.search(queries, 10, mode="fast")
    for one, other in zip(before, retriever.search(queries, 10, mode="fast"), strict=True):
        assert_same_bits(one, other)


def test_words_that_no_document_has_change_nothing() -> None:
    rng = np.random.default_rng(19)
    documents, queries = encoded(rng, 4000, 16, 60), encoded(rng, 6, 16, 60, bias=False)
    effort = Effort(nprobe=4, words=4, depth=20, sparse=50, rescored=30, floor=0.1)
    wide = replace(documents, sparse=replace(documents.sparse, width=100))
    plain = Retriever(documents, None, with_cells(documents, effort))
    other = Retriever(wide, None, with_cells(wide, effort))
    for i in range(len(queries)):
        query = queries.slice(i, i + 1)
        words, weights = query.sparse.indices, query.sparse.values
        more = np.arange(60, 100, dtype=np.int32)
        sparse = Rows(
            np.array([0, len(words) + 40]),
            np.concatenate([words, more]),
            np.concatenate([weights, np.full(40, 9, np.float32)]),
            100,
        )
        for mode in ("exact", "fast"):
            [one] = plain.search(query, 10, mode=mode)
            [two] = other.search(replace(query, sparse=sparse), 10, mode=mode)
            assert_same_bits(one, two)


def test_fast_search_respects_its_filter_and_returns_full_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shortlists, "MIN_SIGNED_DOCUMENTS", 100)
    rng = np.random.default_rng(14)
    documents = encoded(rng, 4000, 16, 60)
    queries = encoded(rng, 12, 16, 60, bias=False)
    effort = Effort(nprobe=4, words=4, depth=20, sparse=50, rescored=30, floor=0.1)
    retriever = Retriever(documents, None, with_cells(documents, effort))
    dense, lexical = brute(queries, documents)
    truth = dense + lexical + documents.bias
    for share in (0.0, 0.3, 0.69, 0.9, 0.999, 1.0):
        mask = rng.random(4000) < share
        for i, found in enumerate(retriever.search(queries, 10, deleted=mask, mode="fast")):
            assert not mask[found.rows].any()
            assert found.total == np.count_nonzero(~mask)
            assert len(found.rows) == min(10, found.total)
            np.testing.assert_allclose(found.scores, truth[i, found.rows], rtol=1e-9)
            assert np.all(np.diff(found.scores) <= 0)


@pytest.mark.parametrize(
    "odd",
    [{"nprobe": 0}, {"sparse": 1.5}, {"rescored": "9"}, {"floor": 1.0}, {"margin": float("inf")}],
)
def test_an_effort_with_a_number_out_of_range_is_invalid(odd: dict[str, Any]) -> None:
    effort = Effort(nprobe=4, words=16, depth=800, sparse=200, rescored=50)
    assert effort.is_valid()
    assert not replace(effort, **odd).is_valid()


def test_an_effort_scales_with_query_words_and_wanted_documents() -> None:
    effort = Effort(nprobe=4, words=16, depth=800, sparse=200, rescored=50, margin=0.1)
    assert effort.scaled(3, 10) == effort.scaled(16, 10) == effort
    assert effort.scaled(64, 10) == replace(effort, depth=200, sparse=800, rescored=200)
    assert effort.scaled(10**6, 10) == effort.scaled(16 * 8, 10)
    assert effort.scaled(3, 60) == replace(effort, sparse=600, rescored=450)
    assert effort.scaled(3, 10**6).rescored >= 2 * 10**6


def test_recall_of_long_queries_and_long_results_equals_that_of_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unscaled, this effort finds 0.86 of the top 10 for 80 words, and 0.85 of the top 100 for 5 words."""
    monkeypatch.setattr(shortlists, "MIN_SIGNED_DOCUMENTS", 100)
    monkeypatch.setattr(retriever, "_MAX_RESCORED_DIVISOR", 1)
    rng = np.random.default_rng(21)
    documents = encoded(rng, 8000, 16, 400, density=0.05)
    effort = Effort(nprobe=400, words=8, depth=400, sparse=200, rescored=60)
    fast = Retriever(documents, None, with_cells(documents, effort))
    for words, wanted in ((5, 10), (80, 10), (5, 100)):
        queries = encoded(rng, 40, 16, 400, density=words / 400, bias=False)
        found = fast.search(queries, wanted, mode="fast")
        truth = fast.search(queries, wanted)
        assert np.mean([recall(a, b) for a, b in zip(found, truth, strict=True)]) > 0.97


def test_fast_search_with_too_many_candidates_turns_exact() -> None:
    rng = np.random.default_rng(22)
    documents = encoded(rng, 8000, 16, 60)
    effort = Effort(nprobe=4, words=8, depth=20, sparse=50, rescored=30)
    fast = Retriever(documents, None, with_cells(documents, effort))
    for words, wanted, proven in ((6, 10, False), (6, 15, False), (6, 30, True), (60, 10, True)):
        queries = encoded(rng, 14, 16, 60, density=words / 60, bias=False)  # every other one empty
        found = fast.search(queries, wanted, mode="fast")
        assert [ranking.certified for ranking in found[1::2]] == [proven] * 7, (words, wanted)


@pytest.mark.sweep
def test_the_chosen_effort_is_the_least_that_keeps_its_recall_on_other_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queries alternate between two kinds; one needs far more effort than the other."""
    monkeypatch.setattr(shortlists, "MIN_SIGNED_DOCUMENTS", 100)
    rng = np.random.default_rng(19)
    documents = encoded(rng, 4000, 16, 60)
    queries = encoded(rng, 120, 16, 60, bias=False)
    # The easy ones are documents.
    dense = queries.dense.copy()
    dense[::2] = 9 * documents.dense[:60]
    queries = replace(queries, dense=dense)
    retriever = Retriever(documents, None, with_cells(documents, EVERYTHING))
    effort, facts = tune(retriever, queries)
    assert effort is not None
    assert facts["queries"] == 60
    assert facts["recall_at_10"] >= PROMISED_RECALL
    truths = retriever.search(queries, 10)
    found = retriever.search(queries, 10, mode="fast", effort=effort)
    assert np.mean([recall(a, b) for a, b in zip(found, truths, strict=True)]) >= PROMISED_RECALL
    assert effort.nprobe < efforts(200)[-1].nprobe
    assert tune(retriever, queries) == (effort, facts)


def test_a_bundle_has_no_fast_mode_if_no_effort_keeps_the_recall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "_LADDER", ((1 / 128, 1, 1, 1, 1, 0.5, 0.0),))
    rng = np.random.default_rng(20)
    documents, queries = encoded(rng, 3000, 16, 60), encoded(rng, 20, 16, 60, bias=False)
    retriever = Retriever(documents, None, with_cells(documents, EVERYTHING))
    effort, facts = tune(retriever, queries)
    assert effort is None
    assert facts["recall_at_10"] < PROMISED_RECALL


def test_a_bundle_has_no_fast_mode_without_queries_to_measure() -> None:
    rng = np.random.default_rng(20)
    documents, queries = encoded(rng, 300, 16, 60), encoded(rng, 2, 16, 60, bias=False)
    retriever = Retriever(documents, None, with_cells(documents, EVERYTHING))
    assert tune(retriever, queries)[0] is not None
    effort, facts = tune(retriever, queries.slice(0, 1))
    assert effort is None
    assert facts == {"recall_at_10": 0.0, "queries": 0}


def test_threads_share_a_retriever() -> None:
    rng = np.random.default_rng(15)
    documents = encoded(rng, 3000, 8, 60)
    queries = encoded(rng, 64, 8, 60, bias=False)
    effort = Effort(nprobe=8, words=8, depth=30, sparse=100, rescored=40, floor=0.1, margin=0.1)
    retriever = Retriever(documents, None, with_cells(documents, effort))
    ones = [queries.slice(i, i + 1) for i in range(64)] * 4
    for mode in ("exact", "fast"):

        def search(one: Encoded, mode: str = mode) -> Ranking:
            return retriever.search(one, 10, mode=mode)[0]

        alone = [search(one) for one in ones[:64]] * 4
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(search, ones))
        for a, b in zip(alone, found, strict=True):
            assert_same_bits(a, b)


def test_an_unknown_mode_is_refused() -> None:
    documents = encoded(np.random.default_rng(16), 10, 2, 3)
    with pytest.raises(ValueError, match="neither"):
        Retriever(documents).search(documents, 1, mode="quick")


def test_a_large_segment_needs_half_of_the_candidates_of_its_bundle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "FAST_FROM", 1000)
    rng = np.random.default_rng(23)
    effort = Effort(nprobe=4, words=16, depth=20, sparse=50, rescored=31, floor=0.1)
    like = with_cells(encoded(rng, 2000, 16, 60), effort)
    found = building.index_of_segment(encoded(rng, 1000, 16, 60), like)
    assert found.effort == replace(effort, words=32, rescored=16)
    assert building.index_of_segment(encoded(rng, 999, 16, 60), like).effort is None
