"""The golden property: search equals brute force over full matrices in float64, ties by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.encoding import Encoded, Rows, concatenate
from fullrank.retrieval import Retriever
from fullrank.scoring import WordScore
from tests.random_cases import cases
from tests.unit.fullrank.retrieval.data import (
    assert_is_brute_force,
    assert_same_bits,
    brute,
    encoded,
)

Float64 = npt.NDArray[np.float64]


@pytest.mark.parametrize("limit", [1, 10, 299, 300, 301, 1000])
@pytest.mark.parametrize(("n_dense", "width"), [(16, 40), (0, 40), (16, 0), (1, 1), (0, 0)])
def test_search_equals_brute_force(n_dense: int, width: int, limit: int) -> None:
    rng = np.random.default_rng(n_dense + width)
    documents = encoded(rng, 300, n_dense, width)
    queries = encoded(rng, 20, n_dense, width, bias=False)
    dense, lexical = brute(queries, documents)
    bias = documents.bias.astype(np.float64)
    for i, ranking in enumerate(Retriever(documents).search(queries, limit)):
        assert_is_brute_force(ranking, dense[i], lexical[i], bias, limit)
        np.testing.assert_array_equal(
            ranking.rows, np.argsort(-(dense[i] + lexical[i] + bias), kind="stable")[:limit]
        )


@cases(30)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 80),
    n_dense=st.integers(0, 5),
    width=st.integers(0, 9),
    limit=st.integers(1, 90),
    offset=st.integers(0, 90),
    deleted=st.floats(0, 1),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_search_equals_brute_force_for_any_shape(
    seed: int,
    count: int,
    n_dense: int,
    width: int,
    limit: int,
    offset: int,
    deleted: float,
    scale: float,
) -> None:
    rng = np.random.default_rng(seed)
    documents = encoded(rng, count, n_dense, width, scale=scale)
    queries = encoded(rng, 3, n_dense, width, scale=scale, bias=False)
    mask = rng.random(count) < deleted
    dense, lexical = brute(queries, documents)
    bias = documents.bias.astype(np.float64)
    for i, ranking in enumerate(
        Retriever(documents).search(queries, limit, offset=offset, deleted=mask)
    ):
        assert_is_brute_force(ranking, dense[i], lexical[i], bias, limit, offset, mask)


def test_documents_closer_than_float32_resolution_are_ordered_by_float64_scores() -> None:
    """Scores around 2²⁴ differ by fractions that the float32 scan cannot see."""
    n_dense, count = 32, 400
    rng = np.random.default_rng(3)
    base = rng.normal(size=n_dense) * 4096
    nudges = rng.normal(size=(count, n_dense)) * 0.003
    documents = Encoded(
        (base + nudges).astype(np.float32),
        Rows(np.zeros(count + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0),
        np.zeros(count, np.float32),
    )
    query = Encoded(
        base.astype(np.float32)[None],
        Rows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0),
        np.zeros(1, np.float32),
    )
    retriever = Retriever(documents)
    truth = documents.dense.astype(np.float64) @ query.dense[0].astype(np.float64)
    expected = np.argsort(-truth, kind="stable")[:10]
    scanned = np.argsort(-retriever.scores(query)[0], kind="stable")[:10]
    assert not np.array_equal(scanned, expected)  # the case is as hard as it claims to be
    np.testing.assert_array_equal(retriever.search(query, 10)[0].rows, expected)


@pytest.mark.parametrize("n_dense", [0, 7])
def test_equal_documents_tie_and_are_ordered_by_row(n_dense: int) -> None:
    rng = np.random.default_rng(4)
    few = encoded(rng, 5, n_dense, 12)
    many = concatenate([few] * 40)
    queries = encoded(rng, 6, n_dense, 12, bias=False)
    dense, lexical = brute(queries, few)
    for i, ranking in enumerate(Retriever(many).search(queries, 95)):
        truth = dense[i] + lexical[i] + few.bias
        best = np.argsort(-truth, kind="stable")
        expected = np.concatenate([np.arange(40) * 5 + row for row in best])[:95]
        np.testing.assert_array_equal(ranking.rows, expected)
        assert len(set(ranking.scores.tolist())) == 3


def test_an_empty_query_ranks_by_bias_then_row() -> None:
    rng = np.random.default_rng(5)
    documents = encoded(rng, 50, 4, 6)
    nothing = Encoded(
        np.zeros((1, 4), np.float32),
        Rows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 6),
        np.zeros(1, np.float32),
    )
    ranking = Retriever(documents).search(nothing, 50)[0]
    np.testing.assert_array_equal(ranking.rows, np.argsort(-documents.bias, kind="stable"))


@pytest.mark.parametrize("n_dense", [0, 64])
def test_a_batch_gives_the_bits_of_its_queries_one_by_one(n_dense: int) -> None:
    rng = np.random.default_rng(6)
    documents = encoded(rng, 2000, n_dense, 300, density=0.05)
    queries = encoded(rng, 33, n_dense, 300, density=0.1, bias=False)
    retriever = Retriever(documents)
    batch = retriever.search(queries, 25)
    for i, ranking in enumerate(batch):
        assert_same_bits(ranking, retriever.search(queries.slice(i, i + 1), 25)[0])


def test_a_failed_query_does_not_change_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(14)
    documents, queries = encoded(rng, 100, 8, 20), encoded(rng, 20, 8, 20, bias=False)
    one, other = queries.slice(1, 2), queries.slice(3, 4)
    assert set(one.sparse.indices.tolist()) - set(other.sparse.indices.tolist())
    retriever = Retriever(documents)
    before = retriever.search(other, 10)[0]

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("fullrank.scoring.score_rows", fails)
        with pytest.raises(MemoryError):
            retriever.search(one, 10)
    assert_same_bits(retriever.search(other, 10)[0], before)


def test_results_do_not_depend_on_blocks_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    documents, queries = encoded(rng, 100, 8, 20), encoded(rng, 10, 8, 20, bias=False)
    masks = rng.random((10, 100)) < 0.5
    whole = Retriever(documents).search(queries, 7, deleted=masks)
    monkeypatch.setattr("fullrank.retrieval.retriever._BLOCK_SCORES", 300)
    for a, b in zip(whole, Retriever(documents).search(queries, 7, deleted=masks), strict=True):
        assert_same_bits(a, b)


def test_pages_joined_equal_the_whole_ranking() -> None:
    rng = np.random.default_rng(8)
    documents, queries = encoded(rng, 120, 8, 20), encoded(rng, 4, 8, 20, bias=False)
    retriever = Retriever(documents)
    whole = retriever.search(queries, 120)
    pages = [retriever.search(queries, 25, offset=offset) for offset in range(0, 150, 25)]
    for i, ranking in enumerate(whole):
        rows = np.concatenate([page[i].rows for page in pages])
        np.testing.assert_array_equal(rows, ranking.rows)
        scores = np.concatenate([page[i].scores for page in pages])
        np.testing.assert_array_equal(scores, ranking.scores)


def test_deleted_documents_are_never_returned_and_others_keep_their_order() -> None:
    rng = np.random.default_rng(9)
    documents, queries = encoded(rng, 200, 8, 20), encoded(rng, 5, 8, 20, bias=False)
    retriever = Retriever(documents)
    whole = retriever.search(queries, 200)
    masks = rng.random((5, 200)) < 0.9
    for ranking, all_rows, mask in zip(
        retriever.search(queries, 10, deleted=masks), whole, masks, strict=True
    ):
        np.testing.assert_array_equal(ranking.rows, all_rows.rows[~mask[all_rows.rows]][:10])
    everything = retriever.search(queries, 10, deleted=np.ones(200, bool))
    assert [len(ranking.rows) for ranking in everything] == [0] * 5


def test_one_mask_for_all_queries_equals_that_mask_for_each() -> None:
    rng = np.random.default_rng(10)
    documents, queries = encoded(rng, 60, 3, 5), encoded(rng, 4, 3, 5, bias=False)
    mask = rng.random(60) < 0.5
    retriever = Retriever(documents)
    one = retriever.search(queries, 9, deleted=mask)
    each = retriever.search(queries, 9, deleted=np.tile(mask, (4, 1)))
    for a, b in zip(one, each, strict=True):
        assert_same_bits(a, b)


def test_searching_no_documents_or_no_queries_returns_nothing() -> None:
    rng = np.random.default_rng(11)
    documents = encoded(rng, 4, 3, 5)
    queries = encoded(rng, 2, 3, 5, bias=False)
    assert Retriever(documents).search(queries.slice(0, 0), 3) == []
    empty = Retriever(documents.slice(0, 0)).search(queries, 3)
    assert [(len(ranking.rows), ranking.total) for ranking in empty] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(("dense", "density"), [(256, 0.3), (256, 0.05), (0, 0.9), (0, 0.05)])
def test_the_scan_stays_within_its_error_bound(dense: int, density: float) -> None:
    """Sparse and nearly full queries and documents."""
    rng = np.random.default_rng(12)
    documents = encoded(rng, 500, dense, 400, density=0.3, scale=30)
    queries = encoded(rng, 20, dense, 400, density=density, scale=30, bias=False)
    retriever = Retriever(documents)
    of_dense, lexical = brute(queries, documents)
    scanned = retriever.scores(queries)
    error = np.abs(scanned - (of_dense + lexical + documents.bias)).max(axis=1)
    bound = np.array(
        [retriever._full_scan.error(queries, i, scanned[i]) for i in range(len(queries))]
    )
    assert np.all(error <= bound)
    assert (error > 0).any()


class Cubes:
    """A scorer that is no inner product: −(distance of two numbers)³."""

    def __init__(self, documents: Encoded) -> None:
        self.numbers = documents.dense[:, 0].astype(np.float64)

    def score(self, query: Encoded, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distance = np.abs(self.numbers[rows] - float(query.dense[0, 0]))
        return -(distance**3), distance

    def explain(self, terms: object, query: Encoded, row: int) -> list[WordScore]:
        return []


@pytest.mark.parametrize("limit", [1, 7, 500])
def test_a_scorer_replaces_the_inner_product(limit: int) -> None:
    """The ranking follows the float64 scores, ties by row, although the scan rounds them to float32."""
    rng = np.random.default_rng(13)
    documents = encoded(rng, 300, 1, 5, density=0.3)
    documents.dense[:, 0] = 100 + np.round(documents.dense[:, 0], 2) * 1e-4
    queries = encoded(rng, 6, 1, 5, density=0.3, bias=False)
    scorer = Cubes(documents)
    for i, ranking in enumerate(Retriever(documents, scorer).search(queries, limit)):
        dense, lexical = scorer.score(queries.slice(i, i + 1), np.arange(300))
        scores = dense + lexical + documents.bias.astype(np.float64)
        order = np.lexsort((np.arange(300), -scores))[:limit]
        np.testing.assert_array_equal(ranking.rows, order)
        np.testing.assert_array_equal(ranking.scores, scores[order])
        np.testing.assert_array_equal(ranking.dense, dense[order])
        np.testing.assert_array_equal(ranking.lexical, lexical[order])
