"""A search returns, and a count counts, exactly the documents that reach the floor by float64 scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.encoding import Encoded, Float64, concatenate
from fullrank.retrieval import Floor, Retriever
from fullrank.retrieval.index.build import index_in_memory
from tests.random_cases import cases
from tests.unit.fullrank.retrieval.data import EVERYTHING, assert_same_bits, encoded, with_cells


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

    def at(values: Float64) -> float:
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
    assert asked.of_query(False) == Floor(dense=4.0)
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
