"""The fast mode, its effort and its outlines; exact search over an index, bit by bit."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.kernels import exact
from fullrank.kernels.exact import MIN_REFINED, rows_in_reach
from fullrank.kernels.index import CodedQuery, Outline
from fullrank.kernels.scan import scan_slots
from fullrank.retrieval import Floor, Ranking, Retriever, retriever
from fullrank.retrieval import candidates as finding
from fullrank.retrieval import candidates as index_scan
from fullrank.retrieval import tune as tuning
from fullrank.retrieval.index import Effort
from fullrank.retrieval.index import build as building
from fullrank.retrieval.index import codes as outline
from fullrank.retrieval.index.build import index_in_memory, index_of_segment
from fullrank.retrieval.index.codes import build_codes, coded
from fullrank.retrieval.tune import PROMISED_RECALL, efforts, recall, tune
from fullrank.storage.encoding import Encoded, Rows
from tests.random_cases import cases
from tests.unit.fullrank.retrieval.data import (
    EVERYTHING,
    Case,
    assert_same,
    assert_same_bits,
    brute,
    encoded,
    searches,
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
        arguments[-1].scores[::3] = 1  # the kernel adds up impacts there, then needs memory
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
    monkeypatch.setattr(building, "MIN_SIGNED_DOCUMENTS", 100)
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
    monkeypatch.setattr(building, "MIN_SIGNED_DOCUMENTS", 100)
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
    monkeypatch.setattr(building, "MIN_SIGNED_DOCUMENTS", 100)
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
    assert effort.nprobe < efforts(200, 4000)[-1].nprobe
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
    assert np.shares_memory(found.cells.centres, like.cells.centres)
    assert building.index_of_segment(encoded(rng, 999, 16, 60), like).effort is None


SIZES = (0.0, 1e-42, 1e-30, 1e-14, 1.0, 1e10, 1e25, 1e37)


@pytest.mark.sweep
@cases(30)
@given(searches([1e-30, 1e-6, 1.0, 1e6, 1e19]))
def test_exact_search_over_an_index_equals_search_without_one(case: Case) -> None:
    _, documents, queries, mask = case.made()
    asked: dict[str, Any] = {"limit": case.limit, "offset": case.offset, "deleted": mask}
    assert_same(documents, queries, **asked)
    dense, lexical = brute(queries, documents)
    truth = (dense + lexical + documents.bias.astype(np.float64))[:, ~mask]
    found = Retriever(documents, None, index_in_memory(documents)).search(queries, **asked)
    atol = 1e-9 * case.bias + 1e-300
    for i, ranking in enumerate(found):
        best = np.sort(truth[i])[::-1][case.offset : case.offset + case.limit]
        np.testing.assert_allclose(ranking.scores, best, rtol=1e-9, atol=atol)


@pytest.mark.sweep
@pytest.mark.parametrize("indexed", [False, True])
@cases(30)
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
    """Products that overflow or vanish, and one document with a far larger norm than all others."""
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
        dense, lexical, own = retriever.score_parts(queries.slice(i, i + 1), np.arange(200))
        scores = dense + lexical + own
        assert found.certified
        np.testing.assert_array_equal(found.rows, np.argsort(-scores, kind="stable")[:10])
        np.testing.assert_array_equal(found.scores, scores[found.rows])


@pytest.mark.parametrize("sign", [-1, 1])
def test_left_out_words_of_either_sign_are_bounded(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long query: most of its words are never added, some of negative weight."""
    monkeypatch.setattr(index_scan, "_MAX_LEFT_OUT", 0.5)
    rng = np.random.default_rng(11)
    documents = encoded(rng, 3000, 4, 80, density=0.3)
    values = (np.abs(documents.sparse.values) * sign).astype(np.float32)
    for given_documents in (
        documents,
        replace(documents, sparse=documents.sparse.with_values(values)),
    ):
        queries = encoded(rng, 8, 4, 80, density=0.9, bias=False)
        assert_same(given_documents, queries, 10)


def test_the_scan_adds_words_until_candidates_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_scan, "_MAX_LEFT_OUT", 1.0)
    rng = np.random.default_rng(12)
    documents = encoded(rng, 6000, 0, 50, density=0.3)
    query = encoded(rng, 20, 0, 50, density=0.8, bias=False).slice(5, 6)
    added: list[int] = []
    candidates: list[int] = []

    def scanned(*arguments: Any) -> Any:
        added.append(len(arguments[2]))
        return scan_slots(*arguments)

    def counted(*arguments: Any) -> Any:
        # As Python, which calls the scan by its name.
        found = cast(Any, rows_in_reach).py_func(*arguments)
        candidates.append(len(found[1]))
        return found

    monkeypatch.setattr(exact, "scan_slots", scanned)
    monkeypatch.setattr(index_scan, "rows_in_reach", counted)
    Retriever(documents, None, index_in_memory(documents)).search(query, 10)
    assert len(added) > 1
    assert added == sorted(set(added))
    # Without a word each document may have the score of any other.
    assert candidates[0] < MIN_REFINED < len(documents)


FEW = 4


@pytest.fixture(autouse=True)
def few_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make vectors of a few numbers longer than their outlines."""
    monkeypatch.setattr(outline, "DIRECTIONS", FEW)


@pytest.mark.sweep
@cases(40)
@given(
    case=searches([1e-42, 1e-30, 1e-6, 1.0, 1e6, 1e19, 1e37]),
    least=st.one_of(st.just(0.0), st.floats(0, 1)),
    has_bundle=st.booleans(),
)
def test_a_search_by_outlines_equals_a_full_scan(
    case: Case, least: float, has_bundle: bool
) -> None:
    """`least` is the share of documents below the score; with `has_bundle` other documents give the directions."""
    rng, documents, queries, mask = case.made()
    like = index_in_memory(encoded(rng, 30, case.n_dense, case.width)) if has_bundle else None
    plain = Retriever(documents)
    outlined = Retriever(documents, None, index_of_segment(documents, like))
    asked: dict[str, Any] = {"limit": case.limit, "offset": case.offset, "deleted": mask}
    truths = plain.search(queries, **asked)
    for truth, found in zip(truths, outlined.search(queries, **asked), strict=True):
        assert found.certified
        assert_same_bits(found, truth)
    for i, truth in enumerate(plain.search(queries, len(documents), deleted=mask)):
        if not len(truth.rows):
            continue
        score = float(truth.scores[min(int((1 - least) * len(truth.rows)), len(truth.rows) - 1)])
        [found] = outlined.search(queries.slice(i, i + 1), case.limit, deleted=mask, least=score)
        wanted = truth.take(np.flatnonzero(truth.scores >= score)[: case.limit])
        assert_same_bits(found.take(np.arange(len(wanted.rows))), wanted)


@pytest.mark.parametrize("n_dense", [1, 3, FEW, FEW + 1, 40])
def test_no_score_is_above_its_bound(n_dense: int) -> None:
    rng = np.random.default_rng(n_dense)
    documents = encoded(rng, 300, n_dense, 1, density=0.0)
    rows = rng.permutation(300).astype(np.int32)
    made = outline.build_outline(documents.dense, rows, in_memory)
    codes = build_codes(documents.dense, documents.bias, rows, in_memory)
    queries = encoded(rng, 20, n_dense, 1, density=0.0, bias=False)
    dense, _ = brute(queries, documents)
    for u, truth in zip(queries.dense, dense, strict=True):
        query = coded(u, codes, made)
        bounds = products(made, query) + float(query.left) * made.rest.astype(np.float64)
        assert query.outline_error < 0.1 * float(np.abs(truth).max())
        assert np.all(truth[rows] <= bounds + query.outline_error)
        if n_dense <= FEW:  # nothing is left, so the bounds are the scores
            np.testing.assert_allclose(bounds, truth[rows], atol=query.outline_error)


def test_vectors_in_few_directions_leave_no_rest() -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(20, FEW)))[0]
    vectors = (rng.normal(size=(200, FEW)) @ basis.T).astype(np.float32)
    rows = np.arange(200, dtype=np.int32)
    made = outline.build_outline(vectors, rows, in_memory)
    assert float(made.rest.max()) < 1e-3
    codes = build_codes(vectors, np.zeros(200, np.float32), rows, in_memory)
    query = coded(vectors[3], codes, made)
    np.testing.assert_allclose(
        products(made, query), vectors @ vectors[3], atol=query.outline_error
    )


def test_a_score_nobody_reaches_finds_nothing_and_infinity_of_it_everything() -> None:
    rng = np.random.default_rng(2)
    documents = encoded(rng, 500, 8, 5)
    queries = encoded(rng, 1, 8, 5, bias=False)
    retriever = Retriever(documents, None, index_of_segment(documents, None))
    assert len(retriever.search(queries, 3, least=1e9)[0].rows) == 0
    assert len(retriever.search(queries, 3, least=-math.inf)[0].rows) == 3


def products(made: Outline, query: CodedQuery) -> np.ndarray:
    """Return â·ĥ of all slots, float64, from the codes in groups."""
    count, width = len(made.scales), len(query.outline)
    codes = (
        made.codes.reshape(len(made.codes), width // 4, 16, 4)
        .transpose(0, 2, 1, 3)
        .reshape(-1, width)
    )
    sums = (codes[:count].astype(np.int64) - 128) @ query.outline.astype(np.int64)
    return sums * float(query.outline_scale) * made.scales


def in_memory(_name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    return np.zeros(shape, dtype)


def frequent_words(rng: np.random.Generator, count: int) -> Encoded:
    """Random texts of 40 words, of which the more frequent ones weigh less."""
    shares = 0.6 / np.arange(1, 41)
    weights = rng.uniform(0.5, 1.0, (count, 40)) * (rng.random((count, 40)) < shares)
    weights = (weights / shares * rng.choice([1, 1, 1, -0.2], (count, 40))).astype(np.float32)
    rows, indices = np.nonzero(weights)
    indptr = np.searchsorted(rows, np.arange(count + 1)).astype(np.int64)
    sparse = Rows(indptr, indices.astype(np.int32), weights[rows, indices], 40)
    dense = rng.normal(size=(count, 8)).astype(np.float32)
    return Encoded(dense, sparse, rng.normal(size=count).astype(np.float32))


@pytest.mark.parametrize("most_signed", [512, 2])
@pytest.mark.parametrize("share_deleted", [0.0, 0.5])
def test_a_known_score_is_reached_without_the_lists_of_light_words(
    monkeypatch: pytest.MonkeyPatch, most_signed: int, share_deleted: float
) -> None:
    monkeypatch.setattr(building, "MAX_SIGNED_WORDS", most_signed)
    found_of: list[int] = []
    known = finding.rows_from_score

    def counting(*arguments: Any) -> Any:
        rows = known(*arguments)
        found_of.append(-1 if rows is None else len(rows))
        return rows

    monkeypatch.setattr(retriever, "rows_from_score", counting)
    rng = np.random.default_rng(3)
    documents, queries = frequent_words(rng, 6000), frequent_words(rng, 40)
    index = replace(index_in_memory(documents, cells=40), effort=Effort(4, 16, 256, 64, 24))
    plain, indexed = Retriever(documents), Retriever(documents, None, index)
    mask = rng.random(len(documents)) < share_deleted
    for i, [dense, lexical] in enumerate(zip(*brute(queries, documents), strict=True)):
        one = queries.slice(i, i + 1)
        own = -np.sort(-lexical)
        for floor in (None, Floor(lexical=float(own[50])), Floor(float(np.sort(dense)[-9]))):
            asked: dict[str, Any] = {"limit": 10, "deleted": mask, "floor": floor}
            # By the score of a first look, and with the score of an earlier part.
            [truth], [found] = plain.search(one, **asked), indexed.search(one, **asked)
            assert_same_bits(found, truth)
            for place in (0, 4, 9):
                if place >= len(truth.rows):
                    continue
                least = float(truth.scores[place])
                wanted = truth.take(np.flatnonzero(truth.scores >= least))
                [found] = indexed.search(one, **asked, least=least)
                assert_same_bits(found.take(np.arange(len(wanted.rows))), wanted)
    # Of most, without those before any score is known.
    n_found = np.array(found_of)
    assert np.count_nonzero(n_found >= 0) > 150
    assert n_found.max() <= 192
