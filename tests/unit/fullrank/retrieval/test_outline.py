"""A search by outlines gives the bits of a full scan, and leaves out nothing that reaches the score asked for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.encoding import concatenate
from fullrank.retrieval import Retriever
from fullrank.retrieval.index import outline
from fullrank.retrieval.outline_scan import OutlineScan
from tests.unit.fullrank.retrieval.data import assert_same_bits, brute, encoded

FIRST, FEW = 2, 5


@pytest.fixture(autouse=True)
def few_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make vectors of a few numbers longer than their outlines."""
    monkeypatch.setattr(outline, "FIRST", FIRST)
    monkeypatch.setattr(outline, "DIRECTIONS", FEW)


@pytest.mark.sweep
@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 90),
    n_dense=st.integers(0, 9),
    width=st.integers(0, 12),
    limit=st.integers(1, 60),
    offset=st.integers(0, 40),
    gone=st.floats(0, 1),
    scale=st.sampled_from([1e-42, 1e-30, 1e-6, 1.0, 1e6, 1e19, 1e37]),
    bias=st.sampled_from([0.0, 1.0, 1e8, 1e30]),
    copies=st.integers(1, 4),
    least=st.one_of(st.just(0.0), st.floats(0, 1)),
)
def test_a_search_by_outlines_equals_a_full_scan(
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
    least: float,
) -> None:
    """Ties, duplicates, huge and tiny numbers, no sparse or no dense side; ``least``: that share is below the score."""
    rng = np.random.default_rng(seed)
    documents = concatenate([encoded(rng, count, n_dense, width, scale=scale)] * copies)
    documents = replace(documents, bias=(documents.bias * bias).astype(np.float32))
    queries = encoded(rng, 3, n_dense, width, scale=min(scale, 1e6), bias=False)
    mask = rng.random(len(documents)) < gone
    plain, outlined = Retriever(documents), Retriever(documents, outlines=OutlineScan(documents))
    asked = {"limit": limit, "offset": offset, "deleted": mask}
    truths = plain.search(queries, **asked)  # type: ignore[arg-type]
    for truth, found in zip(truths, outlined.search(queries, **asked), strict=True):  # type: ignore[arg-type]
        assert found.certified
        assert_same_bits(found, truth)
    for i, truth in enumerate(plain.search(queries, len(documents), deleted=mask)):
        if not len(truth.rows):
            continue
        score = float(truth.scores[min(int((1 - least) * len(truth.rows)), len(truth.rows) - 1)])
        [found] = outlined.search(queries.slice(i, i + 1), limit, deleted=mask, least=score)
        wanted = truth.take(np.flatnonzero(truth.scores >= score)[:limit])
        assert_same_bits(found.take(np.arange(len(wanted.rows))), wanted)


@pytest.mark.parametrize("n_dense", [1, FIRST, 4, FEW, 6, 40])
def test_no_score_is_above_its_bounds(n_dense: int) -> None:
    rng = np.random.default_rng(n_dense)
    documents = encoded(rng, 300, n_dense, 1, density=0.0)
    made = outline.build_outline(documents.dense)
    queries = encoded(rng, 20, n_dense, 1, density=0.0, bias=False)
    dense, _ = brute(queries, documents)
    for u, truth in zip(queries.dense, dense, strict=True):
        query = made.query(u)
        scores = np.zeros(300, np.float32)
        query.add(documents.bias, scores)
        exact = truth + documents.bias
        assert query.error < 0.1 * float(np.abs(truth).max())
        bounds = scores + np.float32(query.length) * made.rest
        assert np.all(exact <= bounds.astype(np.float64) + query.error + 1e-5)
        for threshold in np.quantile(exact, [0.0, 0.5, 0.9, 1.0]):
            found = query.reaching(scores, np.zeros(0, np.bool_), np.float32(threshold - 1e-5))
            assert set(np.flatnonzero(exact >= threshold + query.error)) <= set(found.tolist())
            if n_dense <= FEW:  # nothing is left, so the last bounds are the scores
                slack = 2 * query.error + 1e-3
                assert set(found.tolist()) <= set(np.flatnonzero(exact >= threshold - slack))


def test_deleted_rows_reach_nothing() -> None:
    rng = np.random.default_rng(1)
    documents = encoded(rng, 600, 8, 1, density=0.0)
    query = outline.build_outline(documents.dense).query(documents.dense[0])
    deleted = rng.random(600) < 0.5
    found = query.reaching(np.zeros(600, np.float32), deleted, np.float32(-np.inf))
    assert found.tolist() == np.flatnonzero(~deleted).tolist()


def test_vectors_in_few_directions_leave_no_rest() -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(20, FIRST)))[0]
    vectors = (rng.normal(size=(200, FIRST)) @ basis.T).astype(np.float32)
    made = outline.build_outline(vectors)
    assert float(made.rest.max()) < 1e-3
    query, scores = made.query(vectors[3]), np.zeros(200, np.float32)
    query.add(np.ones(200, np.float32), scores)
    np.testing.assert_allclose(scores, vectors @ vectors[3] + 1, atol=query.error + 1e-5)


def test_a_score_nobody_reaches_finds_nothing_and_infinity_of_it_everything() -> None:
    rng = np.random.default_rng(2)
    documents = encoded(rng, 500, 8, 5)
    queries = encoded(rng, 1, 8, 5, bias=False)
    retriever = Retriever(documents, outlines=OutlineScan(documents))
    assert len(retriever.search(queries, 3, least=1e9)[0].rows) == 0
    assert len(retriever.search(queries, 3, least=-math.inf)[0].rows) == 3
