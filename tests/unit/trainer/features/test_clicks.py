"""Clicked text: whose it is, and that no training query meets itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullrank.encoding import Rows
from fullrank.errors import TrainingError
from fullrank.text.features import count_corpus
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.fields import Clicks
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.features.pairs import Lists
from fullrank_trainer.recipes.settings import ModelSettings
from tests.clicked import with_clicks
from tests.planted import write_lines, write_planted, write_planted_links, write_qrels

SETTINGS = ModelSettings(match="bm25", diagonal="learned", clicked="on")


def features_of(collection: Collection) -> Features:
    return build_features(count_collection(collection, processes=1), SETTINGS)


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """q1 led to a; q2 to a and b; q3 is no training query; one word occurs in queries only."""
    documents = [{"_id": name, "title": f"{name} x", "text": "common"} for name in "abc"]
    write_lines(tmp_path / "corpus.jsonl", documents)
    texts = {"q1": "red red novel", "q2": "blue x", "q3": "green"}
    write_lines(tmp_path / "queries.jsonl", [{"_id": i, "text": t} for i, t in texts.items()])
    write_qrels(tmp_path / "qrels" / "train.tsv", [("q1", "a"), ("q2", "a"), ("q2", "b")])
    write_qrels(tmp_path / "qrels" / "valid.tsv", [("q3", "c")])
    return read_collection(tmp_path)


def test_the_field_holds_the_training_queries_of_a_document(collection: Collection) -> None:
    fields = {d.id: d.fields.get("clicked") for d in with_clicks(collection).documents}
    assert fields == {"a": "red red novel\nblue x", "b": "blue x", "c": None}
    features = features_of(collection)
    assert features.model.settings["fields"][-1] == ["clicked", ["clicked"]]
    assert features.model.settings["query_fields"] == ["title", "text"]
    assert features.model.settings["field_weights"] == [1.0, 1.0, 0.0]
    # The lexical part knows words that only queries have, and only this field contains them.
    row = features.model.sparse.words.row("novel")
    assert row >= 0
    held = [(z.indices == row).any() for z in features.z]
    assert held == [False, False, True]


def test_training_and_serving_count_the_same(collection: Collection) -> None:
    features = features_of(collection)
    texts = [d.fields.get("clicked", "") for d in with_clicks(collection).documents]
    counts = count_corpus([texts])
    assert features.clicks is not None
    mine = features.clicks.counts.csr()[:, [features.words.index(word) for word in counts.words]]
    np.testing.assert_array_equal(mine.toarray(), counts.columns[0].csr().toarray())


@pytest.mark.parametrize(
    ("left_out", "wanted"),
    [
        ([], ["red red novel blue x", "blue x", ""]),
        ([0], ["blue x", "blue x", ""]),
        ([1], ["red red novel", "", ""]),
        ([0, 1, 2], ["", "", ""]),
    ],
)
def test_clicked_text_leaves_out_the_given_queries(
    collection: Collection, left_out: list[int], wanted: list[str]
) -> None:
    """A query's text is left out of all documents that it led to, and of no others."""
    features = features_of(collection)
    assert features.clicks is not None
    rows = np.array([2, 0, 1])
    left = features.clicks.without(np.array(left_out, np.int64), rows)
    found = [
        sorted(
            features.words[w]
            for w, n in zip(left.indices[a:b], left.values[a:b], strict=True)
            for _ in range(int(n))
        )
        for a, b in zip(left.indptr, left.indptr[1:], strict=False)
    ]
    assert found == [sorted(wanted[i].split()) for i in rows]


def test_fields_of_a_step_are_those_of_documents_that_never_saw_its_queries(
    tmp_path: Path,
) -> None:
    """z of the step equals z of a collection without those judgements; other fields do not change."""
    collection = read_collection(write_planted(tmp_path))
    features = features_of(collection)
    queries = features.pairs.queries[::3]
    kept = {q: d for q, d in features.pairs.relevant.items() if q not in set(queries.tolist())}
    assert features.clicks is not None
    other = Clicks.of(Lists.of(kept), features.documents, features.clicks.texts)
    documents = np.arange(features.documents)[::-1].copy()
    found = [z.take(rows) for z, rows in features.fields_for_step(documents, queries)]
    # The mean length of the field stays that of all documents; only counts change.
    side, f = features.model.sparse, len(features.field_counts) - 1
    wanted = side.field(side.words.rows(features.words), other.counts.take(documents), f)
    np.testing.assert_allclose(
        found[f].csr()[:, : wanted.width].toarray(), wanted.csr().toarray(), rtol=1e-6
    )
    assert not _equal(found[f], features.z[f].take(documents))
    for g, z in enumerate(features.z[:f]):
        assert _equal(found[g], z.take(documents))


def test_linked_documents_count_with_their_titles(tmp_path: Path) -> None:
    collection = read_collection(write_planted_links(tmp_path))
    linked = with_clicks(collection)
    title = {d.id: d.fields["title"] for d in collection.documents}
    sources = [q for q, grades in collection.qrels("train").items() if "d0-0" in grades]
    assert sources
    assert linked.documents[0].fields["clicked"] == "\n".join(title[q] for q in sources)
    features = features_of(collection)
    assert features.clicks is not None
    assert features.clicks.texts.values.sum() < features.query_counts.values.sum()


def test_a_document_field_named_clicked_is_refused(collection: Collection) -> None:
    with pytest.raises(TrainingError, match="rename"):
        features_of(with_clicks(collection))
    plain = count_collection(with_clicks(collection), processes=1)
    assert len(build_features(plain, replace(SETTINGS, clicked="off")).z) == 3


def test_auto_uses_clicked_text_if_queries_are_not_documents(tmp_path: Path) -> None:
    settings = replace(SETTINGS, clicked="auto")
    for write, wanted in ((write_planted, True), (write_planted_links, False)):
        corpus = count_collection(read_collection(write(tmp_path / write.__name__)), processes=1)
        assert (build_features(corpus, settings).clicks is not None) == wanted


def _equal(one: Rows, other: Rows) -> bool:
    return np.array_equal(one.csr().toarray(), other.csr().toarray())
