"""Training data: fields, pairs, vocabularies and the matrices of a recipe, on a collection small enough to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank.text import sequences
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import Corpus, count_collection, text_fields
from fullrank_trainer.features.matrices import build_features
from fullrank_trainer.features.pairs import judged_pairs
from fullrank_trainer.recipes.settings import ModelSettings
from tests.planted import write_lines, write_qrels

DOCUMENTS: list[dict[str, Any]] = [
    {"_id": "a", "title": "copy files", "text": "copy a file", "kind": "x", "note": "one two"},
    {"_id": "b", "title": "move files", "text": "move a file or rename a file", "kind": "x"},
    {"_id": "c", "title": "", "text": "", "kind": "x", "note": "three"},
    {"_id": "d", "title": "copy files", "text": "again", "kind": "x", "note": "four"},
    {"_id": "e", "title": "print", "text": "print copy", "kind": "y", "section": 3},
    {"_id": "f", "title": "sort", "text": "sort lines", "kind": "y"},
]
QUERIES = [
    {"_id": "q2", "text": "duplicate files"},
    {"_id": "q1", "text": "rename copy files"},
    {"_id": "q3", "text": ""},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_lines(tmp_path / "corpus.jsonl", DOCUMENTS)
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    write_qrels(tmp_path / "qrels" / "train.tsv", [("q1", "d"), ("q1", "a"), ("q2", "b")])
    write_qrels(tmp_path / "qrels" / "valid.tsv", [("q3", "e")])
    return tmp_path


@pytest.fixture
def corpus(folder: Path) -> Corpus:
    return count_collection(read_collection(folder), processes=1)


def test_text_fields_hold_words(corpus: Corpus) -> None:
    """ "kind" has codes of one letter; "section" is no text."""
    assert corpus.sources == ["title", "text", "note"]


def test_no_text_field_is_refused(tmp_path: Path) -> None:
    write_qrels(tmp_path / "qrels" / "train.tsv", [("a", "b")])
    for first, reason in (
        ({"n": 3}, r"only stored: n \(numbers\)\. Name text fields"),
        ({"n": "A1"}, r"only stored: n \(codes\)\. Name text fields"),
        ({"text": " "}, r"no document has a text field that is read$"),
        ({}, r"no document has a text field that is read$"),
    ):
        write_lines(tmp_path / "corpus.jsonl", [{"_id": "a", **first}, {"_id": "b"}])
        with pytest.raises(TrainingError, match=reason):
            text_fields(read_collection(tmp_path))


def test_judged_pairs_are_row_numbers(corpus: Corpus) -> None:
    """Queries keep the file's order; documents ascend; a missing split is empty."""
    assert corpus.query_ids == ["q2", "q1", "q3"]
    assert corpus.mates.tolist() == [-1, -1, -1]
    assert corpus.pairs.queries.tolist() == [0, 1]
    assert {q: rows.tolist() for q, rows in corpus.pairs.relevant.items()} == {0: [1], 1: [0, 3]}
    assert len(corpus.pairs) == 3
    assert len(judged_pairs(corpus.collection, "absent")) == 0


def test_documents_as_queries_have_the_documents_counts(folder: Path) -> None:
    (folder / "queries.jsonl").unlink()
    write_qrels(folder / "qrels" / "train.tsv", [("a", "b"), ("a", "d")])
    write_qrels(folder / "qrels" / "valid.tsv", [("b", "e")])
    corpus = count_collection(read_collection(folder), processes=1)
    np.testing.assert_array_equal(corpus.queries.csr().toarray(), corpus.documents.csr().toarray())
    assert corpus.query_texts(["title", "text"])[0] == "copy files\ncopy a file"
    features = build_features(corpus, ModelSettings(latent="learned"))
    assert features.mates.tolist() == list(range(features.documents))
    assert list(features.model.query.words.words) == list(features.model.document.words.words)


def test_mates_are_row_numbers(folder: Path) -> None:
    """A description has the row of its document and inherits the document's judgements."""
    write_qrels(folder / "qrels" / "train.tsv", [("a", "b"), ("c", "d"), ("c", "a")])
    (folder / "qrels" / "valid.tsv").unlink()
    (folder / "queries.jsonl").unlink()
    write_lines(
        folder / "ja" / "queries.jsonl", [{"_id": "c", "text": "名"}, {"_id": "b", "text": "前"}]
    )
    corpus = count_collection(read_collection(folder / "ja"), processes=1)
    assert corpus.query_ids == ["c", "b"]
    assert corpus.mates.tolist() == [2, 1]
    assert {q: rows.tolist() for q, rows in corpus.pairs.relevant.items()} == {0: [0, 3]}


def test_vocabularies_have_the_expected_words(corpus: Corpus) -> None:
    """The query side has words of documents and training queries; the lexical part has words of documents only."""
    model = build_features(corpus, ModelSettings(latent="learned")).model
    assert "duplicate" in list(model.query.words.words)
    assert "duplicate" not in list(model.document.words.words)
    assert list(model.sparse.words.words) == list(model.document.words.words)
    assert list(model.document.words.words) == sorted(model.document.words.words)


def test_two_vocabularies_have_the_words_of_one_side_each(corpus: Corpus) -> None:
    """Each side has the words and idf of its own texts; words of both match in the lexical part."""
    settings = ModelSettings(latent="learned", vocabularies="two")
    model = build_features(corpus, settings).model
    query_words, document_words = list(model.query.words.words), list(model.document.words.words)
    trained = {w for q in corpus.collection.queries or [] for w in q.text.split() if q.id != "q3"}
    assert set(query_words) == trained
    assert list(model.sparse.words.words) == document_words
    assert model.query.idf[-1] == np.float32(1 + np.log(1 + 2))
    assert model.document.idf[-1] == np.float32(1 + np.log(1 + 6))
    assert model.document.idf[document_words.index("files")] == np.float32(1 + np.log(7 / 4))


def test_most_frequent_words_are_kept(corpus: Corpus) -> None:
    """df: files 3 of 6 documents, copy 3, a 2, file 2; then once."""
    model = build_features(corpus, ModelSettings(words=2)).model
    assert list(model.sparse.words.words) == ["copy", "files"]
    model = build_features(corpus, ModelSettings(min_df=2)).model
    assert list(model.sparse.words.words) == ["a", "copy", "file", "files"]
    limited = ModelSettings(latent="learned", tied=True, latent_words=2)
    model = build_features(corpus, limited).model
    assert len(model.query.words) == len(model.document.words) == 2
    assert len(model.sparse.words) > 10


def test_one_vocabulary_has_the_words_of_both_sides(corpus: Corpus) -> None:
    """With one table, words of queries only have a row too; the lexical part does not change."""
    model = build_features(corpus, ModelSettings(latent="learned", tied=True)).model
    apart = build_features(corpus, ModelSettings(latent="learned")).model
    assert list(model.query.words.words) == list(model.document.words.words)
    assert list(model.query.words.words) == list(apart.query.words.words)
    assert list(model.sparse.words.words) == list(apart.sparse.words.words)
    np.testing.assert_array_equal(model.query.idf, model.document.idf)


@pytest.mark.parametrize("fields", ["each", "joined"])
def test_a_model_reads_the_chosen_fields_only(fields: str, folder: Path) -> None:
    corpus = count_collection(read_collection(folder, fields=["note", "title"]), processes=1)
    settings = ModelSettings(fields=fields, latent="learned", phrases=True)
    features = build_features(corpus, settings)
    document = corpus.collection.documents[0].fields
    columns = [sources for _, sources in features.model.settings["fields"]]
    assert columns == ([["note"], ["title"]] if fields == "each" else [["note", "title"]])
    unread = {**document, "text": f"{document['title']} {document['note']}"}
    both = features.model.encode_documents([document, unread]).sparse
    for one, other in zip(both.row(0), both.row(1), strict=True):
        np.testing.assert_array_equal(one, other)
    assert features.model.settings["query_fields"] == ["note", "title"]
    assert features.model.settings["phrase_field"] == "title"
    known = {word for d in DOCUMENTS for word in f"{d['title']} {d.get('note', '')}".split()}
    assert set(features.model.sparse.words.words) == known


@pytest.mark.parametrize("fields", ["each", "joined"])
def test_matrices_have_matching_shapes(fields: str, corpus: Corpus) -> None:
    settings = ModelSettings(
        fields=fields, latent="learned", trigrams="on", match="bm25", phrases=True, buckets=2
    )
    features = build_features(corpus, settings)
    n = len(DOCUMENTS)
    width = len(features.model.sparse.words) + len(features.model.sparse.phrases)
    assert features.s.csr().shape == (3, width)
    assert [z.csr().shape for z in features.z] == [(n, width)] * (4 if fields == "each" else 2)
    sides = features.model.query, features.model.document
    for x, side in zip((features.xq, features.xd.composed()), sides, strict=True):
        assert x.width == len(side.words) + len(side.trigrams)
    assert features.xq.csr()[[2]].nnz == 0  # an empty query
    assert list(features.model.sparse.phrases.phrases) == [
        "copy files",
        "move files",
        "print",
        "sort",
    ]
    # Each document has its own title once; the empty title is no phrase.
    assert np.diff(features.document_phrases.indptr).tolist() == [1, 1, 0, 1, 1, 1]
    # "rename copy files" contains the phrase "copy files".
    phrases = features.query_sequences.columns(len(features.model.sparse.words), features.s.width)
    assert phrases.csr().toarray().tolist() == [[0] * 4, [1, 0, 0, 0], [0] * 4]


def test_counting_does_not_depend_on_processes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "_TOGETHER", 0)  # a group for each column
    collection = read_collection(folder)
    one, two = (count_collection(collection, processes=p) for p in (1, 2))
    assert list(one.counts.words) == list(two.counts.words)
    for a, b in zip(one.counts.columns, two.counts.columns, strict=True):
        np.testing.assert_array_equal(a.csr().toarray(), b.csr().toarray())


def test_auto_uses_trigrams_for_short_queries_only(corpus: Corpus) -> None:
    short = build_features(corpus, ModelSettings(latent="learned", trigrams="auto"))
    assert len(short.model.query.trigrams) > 0
    off = build_features(corpus, ModelSettings(latent="learned", trigrams="off"))
    assert len(off.model.query.trigrams) == 0
    assert off.xq.width == len(off.model.query.words)
