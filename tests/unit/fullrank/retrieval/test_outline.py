"""A search by outlines gives the bits of a full scan, and leaves out nothing that reaches the score asked for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.encoding import concatenate
from fullrank.retrieval import Retriever
from fullrank.retrieval.index import codes as outline
from fullrank.retrieval.index.build import index_in_memory, index_of_segment
from fullrank.retrieval.index.codes import CodedQuery, build_codes, coded
from tests.random_cases import cases
from tests.unit.fullrank.retrieval.data import assert_same_bits, brute, encoded

FEW = 4


@pytest.fixture(autouse=True)
def few_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make vectors of a few numbers longer than their outlines."""
    monkeypatch.setattr(outline, "DIRECTIONS", FEW)


@pytest.mark.sweep
@cases(40)
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
    has_bundle=st.booleans(),
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
    has_bundle: bool,
) -> None:
    """Ties, duplicates, huge and tiny numbers, no sparse or no dense side; ``least``: that share is below the score.

    ``has_bundle``: the directions are those of other documents.
    """
    rng = np.random.default_rng(seed)
    documents = concatenate([encoded(rng, count, n_dense, width, scale=scale)] * copies)
    documents = replace(documents, bias=(documents.bias * bias).astype(np.float32))
    queries = encoded(rng, 3, n_dense, width, scale=min(scale, 1e6), bias=False)
    mask = rng.random(len(documents)) < gone
    like = index_in_memory(encoded(rng, 30, n_dense, width)) if has_bundle else None
    plain = Retriever(documents)
    outlined = Retriever(documents, None, index_of_segment(documents, like))
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


def products(made: outline.Outline, query: CodedQuery) -> np.ndarray:
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
