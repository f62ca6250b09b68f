"""Explanations: the parts of a score by word, largest first."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.encoding import Encoded
from fullrank.models.linear import DenseSide, LinearModel, SparseSide
from fullrank.retrieval import Retriever
from fullrank.retrieval.retriever import Explanation, explain
from fullrank.scoring import TermShare
from fullrank.text.features import Vocabulary
from fullrank.text.phrases import Phrases


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
