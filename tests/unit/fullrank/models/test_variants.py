"""Variants of a query's words in the linear family, against weights computed on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from fullrank.encoding import Encoded
from fullrank.text.spelling import variants_of
from tests.unit.fullrank.models.test_linear import f32, model


@dataclass(frozen=True)
class Table:
    """A source of variants: a table."""

    table: Mapping[str, Sequence[tuple[int, float]]]

    def of(self, word: str) -> Sequence[tuple[int, float]]:
        """Return the line of a word."""
        return self.table.get(word, ())


A_IS_B = Table({"a": [(1, 0.5)], "x": [(1, 0.25), (2, 0.5)]})


def weights(encoded: Encoded) -> list[list[float]]:
    """Return s of each query."""
    found: list[list[float]] = encoded.sparse.csr().toarray().tolist()
    return found


def test_the_first_source_that_knows_a_word_decides() -> None:
    other = Table({"a": [(2, 1.0)], "y": [(0, 1.0)]})
    assert variants_of("a", [A_IS_B, other]) == [(1, 0.5)]
    assert variants_of("y", [A_IS_B, other]) == [(0, 1.0)]
    assert variants_of("z", [A_IS_B, other]) == ()


def test_a_variant_has_its_share_of_the_weight_of_the_word() -> None:
    """k3 = 1: tf 1 → 1, tf 3 → 1.5; x is unknown and counts for its variants only."""
    found = model(variants=[A_IS_B])
    assert weights(found.encode_queries(["a", "a a a", "a b", "x", "x x x a"])) == [
        [1, 0.5, 0, 0],
        [1.5, 0.75, 0, 0],
        [1, 1.5, 0, 1],
        [0, 0.25, 0.5, 0],
        [1, 0.5 + 1.5 * 0.25, 0.75, 0],
    ]


def test_tfidf_counts_a_variant_as_a_share_of_an_occurrence() -> None:
    found = model(scheme="tfidf", idf=f32(1, 2, 1), variants=[A_IS_B])
    [[a, b, c, _]] = weights(found.encode_queries(["a"]))
    np.testing.assert_allclose([a, b, c], np.array([1, 0.5 * 2, 0]) / np.sqrt(2), rtol=1e-6)


def test_words_that_a_query_drops_have_no_variants() -> None:
    """Of a and c only c is kept, the one with the larger idf."""
    found = model(variants=[A_IS_B], terms=1, idf=f32(1, 1, 2))
    assert weights(found.encode_queries(["a c", "a", "a c x"])) == [
        [0, 0, 1, 0],
        [1, 0.5, 0, 0],
        [0, 0.25, 1.5, 0],
    ]


def test_a_batch_gives_the_bits_of_its_queries_one_by_one() -> None:
    found = model(variants=[A_IS_B])
    texts = ["a x", "", "x x b a c", "q"]
    batch = found.encode_queries(texts).sparse
    for i, text in enumerate(texts):
        alone = found.encode_queries([text]).sparse
        assert alone.row(0)[0].tolist() == batch.row(i)[0].tolist()
        assert alone.row(0)[1].tolist() == batch.row(i)[1].tolist()


@pytest.mark.parametrize("text", ["a", "x", "a x b", "x x a a c", "a a b b x q"])
def test_shares_of_words_add_up_to_the_weights_of_the_query(text: str) -> None:
    found = model(variants=[A_IS_B])
    total = np.zeros(4)
    for term in found.query_terms(text):
        features, parts = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
        assert features.tolist() == sorted(features.tolist())
        total[features[features >= 0]] += parts[features >= 0]
    np.testing.assert_allclose(total, weights(found.encode_queries([text]))[0], rtol=1e-6)


def test_a_query_of_many_words_has_no_variants() -> None:
    found = model(variants=[A_IS_B])
    filler = " ".join(f"f{i}" for i in range(63))
    assert weights(found.encode_queries([f"a {filler}", f"a {filler} g", "a"])) == [
        [1, 0.5, 0, 0],
        [1, 0, 0, 0],
        [1, 0.5, 0, 0],
    ]
    terms = {term.term: term.feature for term in found.query_terms(f"a {filler} g")}
    assert terms["a"] == 0
