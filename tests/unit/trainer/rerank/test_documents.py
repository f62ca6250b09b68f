"""What the second stage reads of a collection."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.search.rerank.facts import DocumentFacts
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.rerank.candidates import date_field, document_facts, fact_settings
from tests.planted import write_lines, write_qrels


def corpus_of(folder: Path, documents: list[dict[str, object]]) -> Corpus:
    write_lines(folder / "corpus.jsonl", documents)
    texts = {"q1": "red novel", "q2": "blue", "q3": "held out"}
    write_lines(folder / "queries.jsonl", [{"_id": i, "text": t} for i, t in texts.items()])
    write_qrels(folder / "qrels" / "train.tsv", [("q1", "a"), ("q2", "a"), ("q2", "b")])
    write_qrels(folder / "qrels" / "valid.tsv", [("q3", "c")])
    return count_collection(read_collection(folder), processes=1)


def test_clicks_and_clicked_text_are_those_of_training_queries(tmp_path: Path) -> None:
    plain = [{"_id": name, "title": f"{name} x", "text": "common"} for name in "abc"]
    corpus = corpus_of(tmp_path, [dict(document) for document in plain])
    settings = fact_settings(corpus)
    assert settings.names == ("title", "text", "clicked")
    found = document_facts(corpus, settings)
    assert found.clicks.tolist() == [2, 1, 0]
    clicked = {"a": "red novel\nblue", "b": "blue"}
    expected = DocumentFacts.of(
        [{**d, "clicked": clicked.get(d["_id"], "")} for d in plain], settings
    )
    assert found.words.tolist() == expected.words.tolist()
    assert found.lengths.tolist() == [[2, 1, 3], [2, 1, 1], [2, 1, 0]]


def test_a_document_that_is_a_query_counts_with_its_title(tmp_path: Path) -> None:
    documents = [{"_id": name, "title": f"{name} title", "text": "long text"} for name in "abc"]
    write_lines(tmp_path / "corpus.jsonl", documents)
    write_qrels(tmp_path / "qrels" / "train.tsv", [("a", "b"), ("c", "b")])
    corpus = count_collection(read_collection(tmp_path), processes=1)
    found = document_facts(corpus, fact_settings(corpus))
    assert found.clicks.tolist() == [0, 2, 0]
    assert found.lengths[:, 2].tolist() == [0, 4, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2024-01-01", "2024-01-02T10:00:00Z", None], "when"),
        (["2024-01-01", "2024-01-02", "unknown"], ""),
        (["2024-01-01", None, None], ""),
        (["2024-01-01", "2024-01-02", 3], ""),
        ([None, None, None], ""),
    ],
)
def test_a_date_field_has_dates_in_half_of_the_documents_and_nothing_else(
    tmp_path: Path, values: list[object], expected: str
) -> None:
    documents: list[dict[str, object]] = [
        {"_id": name, "title": f"{name} x", "when": value, "zone": "2024"}
        for name, value in zip("abc", values, strict=True)
    ]
    assert date_field(corpus_of(tmp_path, documents)) == expected
