"""Search, floors and explanations equal brute force over full matrices in float64, ties by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.models.linear import DenseSide, LinearModel, SparseSide
from fullrank.retrieval import Floor, Retriever
from fullrank.retrieval.index.build import index_in_memory
from fullrank.retrieval.ranking import remaining
from fullrank.retrieval.retriever import Explanation, explain
from fullrank.retrieval.scoring import TermShare, WordScore
from fullrank.storage.encoding import Encoded, Rows, concatenate
from fullrank.storage.encoding import Float64 as EvidenceFloat64
from fullrank.text.features import Vocabulary
from fullrank.text.phrases import Phrases
from tests.random_cases import cases
from tests.unit.fullrank.retrieval.data import (
    EVERYTHING,
    Case,
    assert_is_brute_force,
    assert_same_bits,
    brute,
    encoded,
    searches,
    with_cells,
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


@pytest.mark.parametrize("mode", ["exact", "fast", "floor"])
def test_arrays_with_gaps_or_of_other_types_are_refused(mode: str) -> None:
    """Kernels that check nothing would read past them."""
    rng = np.random.default_rng(7)
    documents, queries = encoded(rng, 4000, 16, 60), encoded(rng, 15, 16, 60)
    dense, (indptr, indices, values), width = queries.dense, queries.sparse.arrays, 60
    index = None if mode == "floor" else with_cells(documents, EVERYTHING)
    retriever = Retriever(documents, None, index)
    own, floor = ("exact", Floor(dense=0.0)) if mode == "floor" else (mode, None)
    for u, words, weights in (
        (np.asfortranarray(dense), indices, values),
        (dense, np.repeat(indices, 2)[::2], values),
        (dense, indices.view(np.float32), values),
        (dense, indices, np.repeat(values, 2)[::2]),
        (dense, indices, values.view(np.int32)),
    ):
        wrong: Any = Rows(indptr, words, weights, width)  # type: ignore[arg-type]
        query = Encoded(u, wrong, queries.bias).slice(3, 4)
        with pytest.raises(TypeError, match="contiguous"):
            retriever.search(query, 3, mode=own, floor=floor)
        with pytest.raises(TypeError, match="contiguous"):
            retriever.reaching(query, Floor(dense=0.0))
    mask = rng.random(4000) < 0.4
    strided = np.repeat(mask, 2)[::2]
    for one, other in zip(
        retriever.search(queries, 9, deleted=mask, mode=own),
        retriever.search(queries, 9, deleted=np.stack([strided] * 15, 1).T, mode=own),
        strict=True,
    ):
        assert_same_bits(one, other)


@cases(30)
@given(searches([1e-6, 1.0, 1e6], bias=st.just(1.0), copies=st.just(1)))
def test_search_equals_brute_force_for_any_shape(case: Case) -> None:
    _, documents, queries, mask = case.made()
    dense, lexical = brute(queries, documents)
    bias = documents.bias.astype(np.float64)
    found = Retriever(documents).search(queries, case.limit, offset=case.offset, deleted=mask)
    for i, ranking in enumerate(found):
        assert_is_brute_force(ranking, dense[i], lexical[i], bias, case.limit, case.offset, mask)


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
        patch.setattr("fullrank.retrieval.scoring.score_rows", fails)
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
    bound = np.array([retriever.error(queries, i, scanned[i]) for i in range(len(queries))])
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


def _query(rng: np.random.Generator, n_dense: int, width: int) -> Encoded:
    """A query with words; every other one of fourteen has none."""
    return encoded(rng, 14, n_dense, width, density=0.5, bias=False).slice(1, 2)


SIZES = (0.0, 1e-30, 1e-6, 1.0, 1e10, 1e25, 1e37)


@pytest.mark.sweep
@pytest.mark.parametrize("indexed", ["no", "yes", "in cells"])
@cases(30)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 400),
    n_dense=st.integers(0, 70),
    width=st.integers(0, 12),
    scale=st.sampled_from(SIZES),
    bias=st.sampled_from(SIZES),
    gone=st.sampled_from([0.0, 0.3, 1.0]),
    place=st.floats(0, 1),
    kind=st.sampled_from(["dense", "lexical", "both", "score"]),
    having=st.lists(st.integers(0, 11), max_size=3),
    most=st.integers(0, 90),
    limit=st.integers(1, 50),
    offset=st.integers(0, 30),
)
@example(1, 300, 4, 3, 1.0, 1e10, 0.3, 0.5, "both", [], 10, 10, 5)
@example(1, 300, 4, 3, 1.0, 1e10, 0.3, 1.0, "both", [2], 10, 10, 5)
def test_search_and_count_equal_brute_force(
    indexed: str,
    seed: int,
    count: int,
    n_dense: int,
    width: int,
    scale: float,
    bias: float,
    gone: float,
    place: float,
    kind: str,
    having: list[int],
    most: int,
    limit: int,
    offset: int,
) -> None:
    """The floor is that of a document itself, so that its neighbours tie with it or miss it narrowly."""
    rng = np.random.default_rng(seed)
    documents = concatenate([encoded(rng, count, n_dense, width, scale=scale)] * 2)
    documents = replace(documents, bias=(documents.bias * bias).astype(np.float32))
    query = _query(rng, n_dense, width)
    deleted = rng.random(len(documents)) < gone
    index = None if indexed == "no" else index_in_memory(documents)
    if indexed == "in cells":
        index = with_cells(documents, EVERYTHING)
    retriever = Retriever(documents, None, index)
    dense, lexical, own = retriever.score_parts(query, np.arange(len(documents)))

    def at(values: EvidenceFloat64) -> float:
        return float(np.sort(values)[round(place * (len(values) - 1))])

    floor, is_found = {
        "dense": (Floor(dense=at(dense)), dense >= at(dense)),
        "lexical": (Floor(lexical=at(lexical)), lexical >= at(lexical)),
        "both": (Floor(at(dense), at(lexical)), (dense >= at(dense)) | (lexical >= at(lexical))),
        "score": (
            Floor(score=at(dense + lexical + own)),
            dense + lexical + own >= at(dense + lexical + own),
        ),
    }[kind]
    words = [word for word in having if word < width] if kind != "score" else []
    floor = replace(floor, per_word=0.5).having(words)
    has_word = (documents.sparse.csr()[:, words].toarray() != 0).any(axis=1)
    expected = np.flatnonzero((is_found | has_word) & ~deleted)

    rows = np.sort(retriever.reaching(query, floor, deleted=deleted))
    np.testing.assert_array_equal(rows, expected)
    assert retriever.count(query, floor, most, deleted=deleted) == min(len(expected), most + 1)

    allowed = np.ones(len(documents), np.bool_)
    allowed[expected] = False
    [wanted] = Retriever(documents).search(query, limit, offset=offset, deleted=allowed)
    [found] = retriever.search(query, limit, offset=offset, deleted=deleted, floor=floor)
    assert found.certified
    assert_same_bits(replace(found, total=wanted.total), wanted)
    [counted] = retriever.search(
        query, limit, offset=offset, deleted=deleted, floor=floor, counted=most
    )
    assert counted.found == min(len(expected), most + 1)
    assert retriever.search(query, limit, counted=most)[0].found is None, "there is no floor"
    assert_same_bits(replace(counted, total=wanted.total), wanted)

    if len(wanted.rows) and not offset:
        least = float(wanted.scores[len(wanted.rows) // 2])
        [some] = retriever.search(query, limit, deleted=deleted, floor=floor, least=least)
        best = np.arange(np.count_nonzero(wanted.scores >= least))
        assert_same_bits(replace(some.take(best), total=wanted.total), wanted.take(best))


def test_words_of_one_query_are_not_stored_and_its_floor_grows() -> None:
    floor = Floor(0.5, 2.0, 1.0, share=0.5, odds=3.0, unfamiliar=4.0, per_word=0.25, common=9.0)
    assert Floor.from_json(floor.json()) == floor
    asked = floor.of_words(3, [7, 3]).having([3, 1])
    assert asked.words == (1, 3, 7)
    assert (asked.dense, asked.lexical, asked.unseen) == (0.5, 3.0, 1.5)
    assert floor.of_words(1, []) == floor.of_words(0, []) == floor
    assert asked.json() == replace(asked, words=()).json()
    earlier = replace(floor, per_word=None)
    assert earlier.having([1]) == earlier.of_words(5, [2]) == earlier
    with pytest.raises(ValueError, match="per_word"):
        Floor.from_json({**earlier.json(), "per_word": 0.5})


def test_the_fast_mode_leaves_out_what_has_a_bias_only() -> None:
    rng = np.random.default_rng(3)
    documents = encoded(rng, 3000, 16, 40, density=0.3)
    loud = np.zeros(3000, np.float32)
    loud[::50] = 1000
    documents = replace(documents, bias=loud)
    retriever = Retriever(documents, None, with_cells(documents, EVERYTHING))
    query = _query(rng, 16, 40)
    dense, lexical, _ = retriever.score_parts(query, np.arange(3000))
    floor = Floor(float(np.quantile(dense, 0.95)), float(np.quantile(lexical, 0.95)))
    [found] = retriever.search(query, 600, mode="fast", floor=floor)
    expected = np.flatnonzero(floor.reached(dense, lexical, np.zeros(3000)))
    assert 100 < len(expected) < 600
    np.testing.assert_array_equal(np.sort(found.rows), expected)
    [none] = retriever.search(query, 10, mode="fast", floor=Floor(1e6, 1e6))
    assert len(none.rows) == 0


def test_a_count_that_stops_early_is_one_more_than_asked() -> None:
    rng = np.random.default_rng(4)
    documents = encoded(rng, 5000, 8, 20)
    retriever = Retriever(documents, None, index_in_memory(documents))
    query = _query(rng, 8, 20)
    dense, lexical, _ = retriever.score_parts(query, np.arange(5000))
    for share in (0.0, 0.2, 0.5):
        floors = [float(np.quantile(p, 1 - share)) if share else 1e9 for p in (dense, lexical)]
        floor = Floor(floors[0], floors[1])
        true = int(np.count_nonzero((dense >= floor.dense) | (lexical >= floor.lexical)))
        for most in (0, 1, 900, true - 1, true, true + 1, 5000):
            if most >= 0:
                assert retriever.count(query, floor, most) == min(true, most + 1)


def f32(*values: object) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.fixture
def model() -> LinearModel:
    """U_b points away from documents about a; the phrase "a b" weighs 4."""
    return LinearModel(
        {
            "fields": [["text", ["text"]]], "field_weights": [1.0], "query_fields": ["text"],
            "phrase_field": "text", "unit": False, "dense_scale": 1.0, "bias": 0.5,
        },
        DenseSide(Vocabulary(["a", "b", "c"]), f32(1, 1, 1, 1), f32([2, 0], [-4, 0], [0, 1])),
        DenseSide(Vocabulary(["a", "b"]), f32(1, 1, 1), f32([1, 0], [1, 0])),
        SparseSide(
            Vocabulary(["a", "b"]), f32(1, 1), f32([3, 5]), Phrases(["a b"]), f32(4), "bm25",
            b=0.0, mean_lengths=(1.0,),
        ),
    )  # fmt: skip


def explained(model: LinearModel, text: str, documents: Encoded, limit: int = 8) -> Explanation:
    """Explain document 0 for a text."""
    query = model.encode_queries([text])
    return explain(model.query_terms(text), Retriever(documents), query, 0, limit)


def test_an_explanation_splits_the_score_by_part_and_word(model: LinearModel) -> None:
    documents = model.encode_documents([{"text": "a"}, {"text": "a b"}])
    found = explained(model, "b a c b", documents)
    ranking = Retriever(documents).search(model.encode_queries(["b a c b"]), 2)[0]
    place = ranking.rows.tolist().index(0)
    assert found.dense == pytest.approx(ranking.dense[place], rel=1e-6)
    assert found.lexical == pytest.approx(ranking.lexical[place], rel=1e-6) == 3
    assert found.bias == ranking.bias[place] == 0.5
    # b lowers the dense part alone; a raises both parts; c is orthogonal and left out.
    assert [word.word for word in found.words] == ["a", "b"]
    a, b = found.words
    assert b.dense < 0 == b.lexical
    assert a.dense > 0
    assert a.lexical == 3


def test_a_phrase_has_its_own_entry(model: LinearModel) -> None:
    documents = model.encode_documents([{"text": "a b"}])
    words = {word.word: word for word in explained(model, "A b", documents).words}
    assert set(words) == {"a", "b", "“a b”"}
    assert (words["“a b”"].dense, words["“a b”"].lexical) == (0, 4)


def test_a_limit_shortens_the_words_but_not_the_sums(model: LinearModel) -> None:
    documents = model.encode_documents([{"text": "a b"}])
    whole = explained(model, "a b c", documents)
    short = explained(model, "a b c", documents, limit=1)
    assert short.words == whole.words[:1]
    assert (short.dense, short.lexical, short.bias) == (whole.dense, whole.lexical, whole.bias)
    sizes = [abs(word.dense + word.lexical) for word in whole.words]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("text", ["", "unseen", "?!"])
def test_a_query_without_known_words_explains_the_bias_only(text: str, model: LinearModel) -> None:
    documents = model.encode_documents([{"text": "a"}])
    found = explained(model, text, documents)
    assert (found.dense, found.lexical, found.bias, found.words) == (0, 0, 0.5, [])


def test_a_word_of_several_features_adds_them_up(model: LinearModel) -> None:
    """The word contributes at those of its features that the document has."""
    documents = model.encode_documents([{"text": "a"}, {"text": "a b"}])
    nothing = np.zeros(2, np.float32)
    terms = [
        TermShare("both", nothing, np.array([0, 1, 9], np.int32), f32(2, 3, 7)),
        TermShare("other", nothing, np.array([5], np.int32), f32(1)),
        TermShare("none", nothing, np.zeros(0, np.int32), f32()),
    ]
    retriever, query = Retriever(documents), model.encode_queries([""])
    assert explain(terms, retriever, query, 0).lexical == 2 * 3
    found = explain(terms, retriever, query, 1)
    assert found.lexical == 2 * 3 + 3 * 5
    assert [word.word for word in found.words] == ["both"]


@given(
    st.integers(0, 2**32 - 1),
    st.one_of(st.integers(0, 70), st.integers(900, 3000)),
    st.sampled_from([0.0, 0.001, 0.01, 0.04, 0.3, 1.0]),
    st.integers(0, 9),
)
def test_the_rows_that_are_left(seed: int, count: int, share: float, offset: int) -> None:
    """A mask may begin anywhere in memory, as a row of the masks of several queries does."""
    deleted = np.random.default_rng(seed).random(offset + count)[offset:] >= share
    memory = np.zeros(offset + count, np.bool_)
    memory[offset:] = deleted
    for mask in (deleted, memory[offset:]):
        found = remaining(count, mask)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, np.flatnonzero(~deleted))


@pytest.mark.parametrize("count", [0, 5])
def test_no_mask_leaves_all(count: int) -> None:
    np.testing.assert_array_equal(remaining(count, None), np.arange(count))
