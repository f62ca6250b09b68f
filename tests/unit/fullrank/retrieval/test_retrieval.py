"""The golden property: what is returned is the dense brute force in float64, ties by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullrank.encoding import Encoded, concatenate
from fullrank.model import WordScore
from fullrank.retrieval import Ranking, Retriever
from fullrank.retrieval.truth import Truth

Float64 = npt.NDArray[np.float64]


def encoded(
    rng: np.random.Generator,
    count: int,
    n_dense: int,
    width: int,
    *,
    scale: float = 1.0,
    density: float = 0.2,
    bias: bool = True,
) -> Encoded:
    """Random texts; some rows are empty, some sparse weights negative."""
    sparse = rng.normal(size=(count, width)) * (rng.random((count, width)) < density)
    sparse = (sparse * scale).astype(np.float32)
    sparse[:: max(1, count // 7)] = 0
    rows, indices = np.nonzero(sparse)
    return Encoded(
        (rng.normal(size=(count, n_dense)) * scale).astype(np.float32),
        np.searchsorted(rows, np.arange(count + 1)).astype(np.int64),
        indices.astype(np.int32),
        sparse[rows, indices],
        width,
        (rng.normal(size=count) * bias).astype(np.float32),
    )


def brute(queries: Encoded, documents: Encoded) -> tuple[Float64, Float64]:
    """(learned, exact) of all pairs, dense and in float64: nothing shared with the code tested."""

    def dense(sparse: Encoded) -> Float64:
        matrix = np.zeros((len(sparse), sparse.width))
        for i in range(len(sparse)):
            for j in range(int(sparse.indptr[i]), int(sparse.indptr[i + 1])):
                matrix[i, sparse.indices[j]] += float(sparse.weights[j])
        return matrix

    learned = queries.dense.astype(np.float64) @ documents.dense.astype(np.float64).T
    return learned, dense(queries) @ dense(documents).T


def assert_is_truth(
    ranking: Ranking,
    learned: Float64,
    exact: Float64,
    bias: Float64,
    limit: int,
    offset: int = 0,
    deleted: npt.NDArray[np.bool_] | None = None,
) -> None:
    """The ranking is the brute force's, in the order of its scores; near-ties by what they are."""
    rows = np.arange(len(bias)) if deleted is None else np.flatnonzero(~deleted)
    truth = learned + exact + bias
    assert ranking.total == len(rows)
    assert ranking.certified
    assert len(ranking.rows) == max(0, min(limit, len(rows) - offset))
    assert ranking.rows.dtype == np.int64
    assert len(set(ranking.rows.tolist())) == len(ranking.rows)
    assert set(ranking.rows.tolist()) <= set(rows.tolist())
    tolerance = {"rtol": 1e-12, "atol": 1e-12 * max(1.0, float(np.abs(truth).max(initial=1)))}
    np.testing.assert_allclose(ranking.learned, learned[ranking.rows], **tolerance)
    np.testing.assert_allclose(ranking.exact, exact[ranking.rows], **tolerance)
    np.testing.assert_array_equal(ranking.bias, bias[ranking.rows])
    np.testing.assert_array_equal(ranking.scores, ranking.learned + ranking.exact + ranking.bias)
    # The k-th best score is the k-th best score, whichever of two equals stands there.
    best = -np.sort(-truth[rows])[offset : offset + limit]
    np.testing.assert_allclose(ranking.scores, best, **tolerance)
    assert np.all(np.diff(ranking.scores) <= 0)
    equal = np.diff(ranking.scores) == 0
    assert np.all(np.diff(ranking.rows)[equal] > 0)


@pytest.mark.parametrize("limit", [1, 10, 299, 300, 301, 1000])
@pytest.mark.parametrize(("n_dense", "width"), [(16, 40), (0, 40), (16, 0), (1, 1), (0, 0)])
def test_search_is_the_brute_force(n_dense: int, width: int, limit: int) -> None:
    rng = np.random.default_rng(n_dense + width)
    documents = encoded(rng, 300, n_dense, width)
    queries = encoded(rng, 20, n_dense, width, bias=False)
    learned, exact = brute(queries, documents)
    bias = documents.bias.astype(np.float64)
    for i, ranking in enumerate(Retriever(documents).search(queries, limit)):
        assert_is_truth(ranking, learned[i], exact[i], bias, limit)
        np.testing.assert_array_equal(
            ranking.rows, np.argsort(-(learned[i] + exact[i] + bias), kind="stable")[:limit]
        )


@settings(deadline=None, max_examples=60)
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
def test_search_is_the_brute_force_whatever_the_shape(
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
    learned, exact = brute(queries, documents)
    bias = documents.bias.astype(np.float64)
    for i, ranking in enumerate(
        Retriever(documents).search(queries, limit, offset=offset, deleted=mask)
    ):
        assert_is_truth(ranking, learned[i], exact[i], bias, limit, offset, mask)


def test_documents_closer_than_float32_tells_apart_are_ordered_by_their_exact_scores() -> None:
    """Scores around 2²⁴ differ by fractions that the float32 scan cannot see."""
    n_dense, count = 32, 400
    rng = np.random.default_rng(3)
    base = rng.normal(size=n_dense) * 4096
    nudges = rng.normal(size=(count, n_dense)) * 0.003
    documents = Encoded(
        (base + nudges).astype(np.float32),
        np.zeros(count + 1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
        0,
        np.zeros(count, np.float32),
    )
    query = Encoded(
        base.astype(np.float32)[None],
        np.zeros(2, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
        0,
        np.zeros(1, np.float32),
    )
    retriever = Retriever(documents)
    truth = documents.dense.astype(np.float64) @ query.dense[0].astype(np.float64)
    expected = np.argsort(-truth, kind="stable")[:10]
    scanned = np.argsort(-retriever.scores(query)[0], kind="stable")[:10]
    assert not np.array_equal(scanned, expected)  # the case is as hard as it claims to be
    np.testing.assert_array_equal(retriever.search(query, 10)[0].rows, expected)


@pytest.mark.parametrize("n_dense", [0, 7])
def test_equal_documents_tie_and_stand_in_row_order(n_dense: int) -> None:
    rng = np.random.default_rng(4)
    few = encoded(rng, 5, n_dense, 12)
    many = concatenate([few] * 40)
    queries = encoded(rng, 6, n_dense, 12, bias=False)
    learned, exact = brute(queries, few)
    for i, ranking in enumerate(Retriever(many).search(queries, 95)):
        truth = learned[i] + exact[i] + few.bias
        best = np.argsort(-truth, kind="stable")
        expected = np.concatenate([np.arange(40) * 5 + row for row in best])[:95]
        np.testing.assert_array_equal(ranking.rows, expected)
        assert len(set(ranking.scores.tolist())) == 3


def test_a_query_without_anything_returns_the_documents_by_bias_then_row() -> None:
    rng = np.random.default_rng(5)
    documents = encoded(rng, 50, 4, 6)
    nothing = Encoded(
        np.zeros((1, 4), np.float32),
        np.zeros(2, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
        6,
        np.zeros(1, np.float32),
    )
    ranking = Retriever(documents).search(nothing, 50)[0]
    np.testing.assert_array_equal(ranking.rows, np.argsort(-documents.bias, kind="stable"))


def _same_bits(a: Ranking, b: Ranking) -> None:
    for name in ("rows", "scores", "learned", "exact", "bias"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.tobytes() == right.tobytes(), name
    assert (a.total, a.certified) == (b.total, b.certified)


@pytest.mark.parametrize("n_dense", [0, 64])
def test_a_batch_gives_the_bits_of_its_queries_one_by_one(n_dense: int) -> None:
    rng = np.random.default_rng(6)
    documents = encoded(rng, 2000, n_dense, 300, density=0.05)
    queries = encoded(rng, 33, n_dense, 300, density=0.1, bias=False)
    retriever = Retriever(documents)
    batch = retriever.search(queries, 25)
    for i, ranking in enumerate(batch):
        _same_bits(ranking, retriever.search(queries.slice(i, i + 1), 25)[0])


@pytest.mark.parametrize("step", ["_learned", "_exact"])
def test_a_query_that_fails_half_way_leaves_nothing_to_the_next_one(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(14)
    documents, queries = encoded(rng, 100, 8, 20), encoded(rng, 20, 8, 20, bias=False)
    one, other = queries.slice(1, 2), queries.slice(3, 4)
    assert set(one.indices.tolist()) - set(other.indices.tolist())
    retriever = Retriever(documents)
    before = retriever.search(other, 10)[0]

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Truth, step, fails)
        with pytest.raises(MemoryError):
            retriever.search(one, 10)
    _same_bits(retriever.search(other, 10)[0], before)


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    documents, queries = encoded(rng, 100, 8, 20), encoded(rng, 10, 8, 20, bias=False)
    masks = rng.random((10, 100)) < 0.5
    whole = Retriever(documents).search(queries, 7, deleted=masks)
    monkeypatch.setattr("fullrank.retrieval.retriever._BLOCK_SCORES", 300)
    for a, b in zip(whole, Retriever(documents).search(queries, 7, deleted=masks), strict=True):
        _same_bits(a, b)


def test_pages_of_a_ranking_make_up_the_ranking() -> None:
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


def test_deleted_documents_are_never_returned_and_the_rest_keeps_its_order() -> None:
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


def test_one_mask_for_all_is_that_mask_for_each() -> None:
    rng = np.random.default_rng(10)
    documents, queries = encoded(rng, 60, 3, 5), encoded(rng, 4, 3, 5, bias=False)
    mask = rng.random(60) < 0.5
    retriever = Retriever(documents)
    one = retriever.search(queries, 9, deleted=mask)
    each = retriever.search(queries, 9, deleted=np.tile(mask, (4, 1)))
    for a, b in zip(one, each, strict=True):
        _same_bits(a, b)


def test_no_documents_and_no_queries() -> None:
    rng = np.random.default_rng(11)
    documents = encoded(rng, 4, 3, 5)
    queries = encoded(rng, 2, 3, 5, bias=False)
    assert Retriever(documents).search(queries.slice(0, 0), 3) == []
    empty = Retriever(documents.slice(0, 0)).search(queries, 3)
    assert [(len(ranking.rows), ranking.total) for ranking in empty] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(("dense", "density"), [(256, 0.3), (256, 0.05), (0, 0.9), (0, 0.05)])
def test_the_scan_stays_within_its_error_bound(dense: int, density: float) -> None:
    """Whether queries are sparse or weigh most words, and documents likewise."""
    rng = np.random.default_rng(12)
    documents = encoded(rng, 500, dense, 400, density=0.3, scale=30)
    queries = encoded(rng, 20, dense, 400, density=density, scale=30, bias=False)
    retriever = Retriever(documents)
    learned, exact = brute(queries, documents)
    scanned = retriever.scores(queries)
    error = np.abs(scanned - (learned + exact + documents.bias)).max(axis=1)
    bound = np.array([retriever._truth.error(queries, i, scanned[i]) for i in range(len(queries))])
    assert np.all(error <= bound)
    assert (error > 0).any()


class Cubes:
    """A scorer: −(distance of two numbers)³, which no inner product is."""

    def __init__(self, documents: Encoded) -> None:
        self.numbers = documents.dense[:, 0].astype(np.float64)

    def score(self, query: Encoded, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distance = np.abs(self.numbers[rows] - float(query.dense[0, 0]))
        return -(distance**3), distance

    def explain(self, terms: object, query: Encoded, row: int) -> list[WordScore]:
        return []


@pytest.mark.parametrize("limit", [1, 7, 500])
def test_a_scorer_takes_the_place_of_the_inner_product(limit: int) -> None:
    """The ranking is that of its float64 scores, ties by row, though the scan rounds them to float32."""
    rng = np.random.default_rng(13)
    documents = encoded(rng, 300, 1, 5, density=0.3)
    documents.dense[:, 0] = 100 + np.round(documents.dense[:, 0], 2) * 1e-4
    queries = encoded(rng, 6, 1, 5, density=0.3, bias=False)
    scorer = Cubes(documents)
    for i, ranking in enumerate(Retriever(documents, scorer).search(queries, limit)):
        learned, exact = scorer.score(queries.slice(i, i + 1), np.arange(300))
        scores = learned + exact + documents.bias.astype(np.float64)
        order = np.lexsort((np.arange(300), -scores))[:limit]
        np.testing.assert_array_equal(ranking.rows, order)
        np.testing.assert_array_equal(ranking.scores, scores[order])
        np.testing.assert_array_equal(ranking.learned, learned[order])
        np.testing.assert_array_equal(ranking.exact, exact[order])
