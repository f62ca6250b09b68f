"""Synonyms add the features of what they stand for, at 0.8 of the weight, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.models.contract import Model
from fullrank.models.mixed import MixedModel
from fullrank.models.widening import widen
from fullrank.rules.synonyms import MAX_REPLACED, WEIGHT, features_of, replaced
from tests.bundles import CORPUS, linear_model

GROUPS = [["copy", "move", "Liste den"], ["remote host", "directory"]]
LEARNED = linear_model(CORPUS, n_dense=4)
MODELS = [LEARNED, MixedModel([LEARNED, linear_model(CORPUS)], [0.5, 2.0])]


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("tv", ["television", "テレビ"]),
        ("cheap TV!", ["cheap television", "cheap テレビ"]),
        ("a smart-tv, new", ["a smart television new", "a smart テレビ new"]),
        ("テレビ台", ["tv ビ台", "television ビ台"]),
        ("tv tv", ["television tv", "テレビ tv", "tv television", "tv テレビ"]),
        ("radio", []),
        ("", []),
    ],
)
def test_each_place_of_a_word_is_replaced(query: str, texts: list[str]) -> None:
    found = replaced(query, [["tv", "television", "テレビ"]])
    assert sorted(one.text for one in found) == sorted(texts)


def test_a_query_is_replaced_a_bounded_number_of_times() -> None:
    assert len(replaced(" ".join(["tv"] * 50), [["tv", "television"]])) == MAX_REPLACED


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("query", ["copy files", "COPY to a remote host", "copy or move", "ssh"])
def test_the_query_gains_features_at_a_share_of_their_weight(model: Model, query: str) -> None:
    encoded = model.encode_queries([query])
    found = widen(encoded, features_of(model, replaced(query, GROUPS)))
    before = encoded.sparse.csr().toarray()[0]
    texts = [one.text for one in replaced(query, GROUPS)]
    typed = model.encode_queries([*texts, query]).sparse.csr().toarray()
    expected = np.where(before != 0, before, np.float32(WEIGHT) * typed.max(axis=0))
    np.testing.assert_array_equal(found.encoded.sparse.csr().toarray()[0], expected)
    np.testing.assert_array_equal(found.encoded.dense, encoded.dense)
    added = np.zeros(len(before), np.float32)
    for term in found.terms:
        added[np.atleast_1d(term.feature)] += np.atleast_1d(term.weight).astype(np.float32)
        assert not term.dense.any()
    np.testing.assert_array_equal(before + added, expected)


def test_without_synonyms_the_query_is_the_same_object() -> None:
    encoded = LEARNED.encode_queries(["ssh"])
    assert widen(encoded, features_of(LEARNED, [])).encoded is encoded
