"""Exact search over an index gives the bits of exact search without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.encoding import concatenate
from fullrank.kernels import exact
from fullrank.kernels.exact import MIN_REFINED, rows_in_reach
from fullrank.kernels.scan import scan_slots
from fullrank.retrieval import Retriever
from fullrank.retrieval import candidates as index_scan
from fullrank.retrieval.index.build import index_in_memory
from tests.random_cases import cases
from tests.unit.fullrank.retrieval.data import (
    assert_same,
    brute,
    encoded,
)

SIZES = (0.0, 1e-42, 1e-30, 1e-14, 1.0, 1e10, 1e25, 1e37)


@pytest.mark.sweep
@cases(30)
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
def test_exact_search_over_an_index_equals_search_without_one(
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
    """Ties, duplicates, huge biases, no sparse or no dense side, a limit above the count, all filtered out."""
    rng = np.random.default_rng(seed)
    documents = concatenate([encoded(rng, count, n_dense, width, scale=scale)] * copies)
    documents = replace(documents, bias=(documents.bias * bias).astype(np.float32))
    queries = encoded(rng, 3, n_dense, width, scale=min(scale, 1e6), bias=False)
    mask = rng.random(len(documents)) < gone
    assert_same(documents, queries, limit, offset=offset, deleted=mask)
    dense, lexical = brute(queries, documents)
    truth = (dense + lexical + documents.bias.astype(np.float64))[:, ~mask]
    for i, ranking in enumerate(
        Retriever(documents, None, index_in_memory(documents)).search(
            queries, limit, offset=offset, deleted=mask
        )
    ):
        best = np.sort(truth[i])[::-1][offset : offset + limit]
        np.testing.assert_allclose(ranking.scores, best, rtol=1e-9, atol=1e-9 * bias + 1e-300)


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
        added.append(len(arguments[15]))
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
