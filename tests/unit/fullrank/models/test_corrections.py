"""Corrected queries of the linear family, against counts and weights computed on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fullrank.encoding import Encoded, Rows
from fullrank.models.corrections import KEPT, MAX_CORRECTED
from fullrank.models.linear import DenseSide, LinearModel
from fullrank.models.registry import load_model
from fullrank.models.unseen import live_model
from fullrank.text.features import Vocabulary, trigram_rows
from tests.unit.fullrank.models.test_linear import f32, model

WORDS = ["apple", "apply", "pear"]
NOTHING = Rows.empty(1, 1)


def fruit(**changes: Any) -> LinearModel:
    """The words of documents, and `quince` of queries; apple is e times as frequent as the others."""
    letters = Vocabulary(["#ap", "app", "ple"])
    query = DenseSide(
        Vocabulary([*WORDS, "quince"]),
        f32(0, 1, 1, 1, 2),
        f32([1, 0], [0, 1], [0, 2], [3, 0]),
        letters,
        f32([0, 3], [0, 6], [9, 0]),
    )
    return model(
        words=Vocabulary(WORDS),
        idf=f32(1, 2, 2),
        query=changes.pop("query", query),
        settings={"spelling": changes.pop("spelling", 0.5)},
        **changes,
    )


def weights(encoded: Encoded) -> list[list[float]]:
    """Return s of each query over the words."""
    found: list[list[float]] = encoded.sparse.csr().toarray()[:, :3].tolist()
    return found


def test_an_unknown_word_adds_a_discounted_count_of_a_known_one() -> None:
    """k3 = 1: a count of 0.5 weighs 2/3, and 1 + 0.5 weighs 1.2."""
    found = fruit().encode_queries(["aple", "aple apple", "aple aple", "apple", "pea"])
    expected = np.array([[2 / 3, 0, 0], [1.2, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(np.array(weights(found)), expected, rtol=1e-6)


def test_known_words_share_the_count_by_their_probability() -> None:
    """appla is one replaced letter from apple and apply, and apple is e times as frequent."""
    likely = np.e**0.75 / (1 + np.e**0.75)
    tf = np.array([0.5 * likely, 0.5 * (1 - likely), 0])
    [found] = weights(fruit().encode_queries(["appla"]))
    np.testing.assert_allclose(found, 2 * tf / (tf + 1), rtol=1e-6)


def test_the_dense_part_keeps_a_share_of_the_letters_of_a_corrected_word() -> None:
    """φ: the known word has tf λ and idf 1, what was typed has tf `KEPT` and the idf 2 of unknown words."""
    found = fruit().encode_queries(["pearr"]).dense[0]
    known, typed = 0.5 * 1, KEPT * 2
    letters = trigram_rows(["pearr"], Vocabulary(["#ap", "app", "ple"])).csr().toarray()
    assert not letters.any()
    np.testing.assert_allclose(found, known * f32(0, 2) / np.hypot(known, typed), rtol=1e-6)


def test_a_word_of_training_queries_is_known_and_corrected_to() -> None:
    """quince has no place in the lexical part."""
    found = fruit().encode_queries(["quinc", "quince"])
    assert weights(found) == [[0, 0, 0], [0, 0, 0]]
    assert found.dense[0, 0] > 0
    assert fruit().corrections("quinc quince") == {"quinc": "quince"}


def test_without_the_setting_nothing_is_corrected() -> None:
    plain = fruit(spelling=0.0)
    assert weights(plain.encode_queries(["aple"])) == [[0, 0, 0]]
    assert plain.corrections("aple") == {}


def test_the_likeliest_correction_of_each_word_is_named() -> None:
    assert fruit().corrections("aple appla pear lemon") == {"aple": "apple", "appla": "apple"}


def test_long_queries_are_not_corrected() -> None:
    long = " ".join(f"w{i}" for i in range(MAX_CORRECTED))
    found = fruit().encode_queries([f"aple {long}", "aple"])
    expected = np.array([[0, 0, 0], [2 / 3, 0, 0]])
    np.testing.assert_allclose(np.array(weights(found)), expected, rtol=1e-6)


def test_words_of_other_queries_are_not_corrected() -> None:
    """Training encodes a few of all queries, perhaps one, by the words of all of them."""
    words = ["aple", "pear", "quinc"]
    for asked in ([1], [0, 1]):
        indices = np.array(asked, np.int32)
        one = Rows(np.array([0, len(asked)]), indices, np.ones(len(asked), np.float32), len(words))
        two = Rows.vstack([one, one])
        for counts in (one, two):
            found = fruit().corrected(words, counts)
            assert (found is None) == (asked == [1])
            assert found is None or list(found.found) == ["aple"]


@dataclass(frozen=True)
class Table:
    """A source of variants: aple is pear."""

    def of(self, word: str) -> Sequence[tuple[int, float]]:
        """Return pear for aple."""
        return [(2, 1.0)] if word == "aple" else []


def test_a_word_with_variants_is_not_corrected() -> None:
    found = fruit(variants=[Table()])
    assert weights(found.encode_queries(["aple"])) == [[0, 0, 1]]
    assert found.corrections("aple pearr") == {"pearr": "pear"}


TEXTS = ["", "aple appla pearr", "apple", "appla pear quinc lemon appla", "lemon", "aple aple"]


def test_a_batch_gives_the_bits_of_its_queries_one_by_one() -> None:
    found = fruit()
    batch = found.encode_queries(TEXTS)
    for i, text in enumerate(TEXTS):
        alone = found.encode_queries([text])
        assert alone.row(0)[0].tolist() == batch.row(i)[0].tolist()
        assert alone.row(0)[1].tolist() == batch.row(i)[1].tolist()
        assert alone.row(0)[2].tolist() == batch.row(i)[2].tolist()


@pytest.mark.parametrize("text", TEXTS)
def test_terms_add_up_to_the_query(text: str) -> None:
    found = fruit()
    encoded, terms = found.encode_queries([text]), found.query_terms(text)
    dense, sparse = np.zeros(2), np.zeros(4)
    for term in terms:
        dense += term.dense
        features, parts = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
        sparse[features[features >= 0]] += parts[features >= 0]
    np.testing.assert_allclose(dense, encoded.dense[0], atol=1e-6)
    np.testing.assert_allclose(sparse, encoded.sparse.csr().toarray()[0], rtol=1e-6)
    assert len({term.term for term in terms}) == len(terms)


def test_an_explanation_names_what_was_typed_and_the_known_word() -> None:
    terms = {term.term: term for term in fruit().query_terms("aple apple")}
    assert set(terms) == {"aple", "apple", "aple → apple"}
    assert terms["aple"].feature == -1
    # Of the count 1.5 the known word itself has 1, and what was typed 0.5.
    assert terms["apple"].weight == pytest.approx(1.2 / 1.5)
    assert terms["aple → apple"].weight == pytest.approx(1.2 * 0.5 / 1.5)


def test_an_unknown_word_keeps_its_bucket() -> None:
    """A live document with the word as typed is found by it, at full weight."""
    plain, corrected = live_model(fruit(spelling=0.0)), live_model(fruit())
    assert plain is not None
    assert corrected is not None
    before, after = plain.encode_queries(["aple"]), corrected.encode_queries(["aple"])
    bucket, weight = before.sparse.row(0)
    assert dict(zip(*after.sparse.row(0), strict=True))[bucket[0]] == weight[0]
    terms = {term.term: term for term in corrected.query_terms("aple")}
    assert terms["aple"].feature == bucket[0]
    assert set(terms) == {"aple", "aple → apple"}


def test_the_setting_is_stored_and_absent_settings_correct_nothing() -> None:
    found = load_model(fruit().parts())
    assert weights(found.encode_queries(["aple"])) == weights(fruit().encode_queries(["aple"]))
    assert "spelling" not in model().config
    assert load_model(model().parts()).encode_queries(["aple"]).sparse.values.tolist() == []
