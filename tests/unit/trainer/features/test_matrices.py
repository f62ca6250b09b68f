"""Fields, pairs, clicks, lists, vocabularies and matrices, on a collection small enough to read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank.measures import estimate
from fullrank.storage.encoding import Rows
from fullrank.text import sequences
from fullrank.text.features import count_corpus
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.evaluation.evaluate import judge, relative_weights
from fullrank_trainer.features.corpus import (
    Corpus,
    InThisProcess,
    count_collection,
    relevant_pairs,
    text_fields,
)
from fullrank_trainer.features.fields import Clicks
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems.linear.parameters import encode_judged
from fullrank_trainer.training.validation import hold_out
from tests.clicked import with_clicks
from tests.planted import write_lines, write_planted, write_planted_links, write_qrels
from tests.weighted import judged_pairs as weights_judged_pairs
from tests.weighted import write_values

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
    assert {q: rows.tolist() for q, rows in corpus.pairs.items()} == {0: [1], 1: [0, 3]}
    assert len(corpus.pairs) == 3
    assert len(relevant_pairs(corpus.collection, "absent")) == 0


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
    assert {q: rows.tolist() for q, rows in corpus.pairs.items()} == {0: [0, 3]}


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


WORDS = ["red", "blue", "naïve", "state-of-the-art", "e-mail", "日本", "x1", "☃"]
FIELDS = ["title", "text"]


@pytest.fixture
def stored(tmp_path: Path) -> Collection:
    draw = random.Random(4)

    def text(most: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(0, most)))

    documents = [{"_id": f"d{i}", "title": text(3), "text": text(30)} for i in range(60)]
    draw.shuffle(documents)
    write_lines(tmp_path / "corpus.jsonl", documents)
    write_lines(tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": text(6)} for i in range(40)])
    write_qrels(tmp_path / "qrels" / "train.tsv", [("q0", "d0")])
    return read_collection(tmp_path, fields=FIELDS)


def in_memory(stored: Collection) -> Collection:
    return replace(stored, documents=[*stored.documents], queries=[*(stored.queries or ())])


def assert_equal(found: Rows, wanted: Rows) -> None:
    for mine, other in zip(found.arrays, wanted.arrays, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert found.width == wanted.width


@pytest.mark.parametrize("characters", [1, 90, 1_000_000])
def test_stored_texts_have_the_counts_of_texts_in_memory(
    stored: Collection, characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "_CHUNK_CHARACTERS", characters)
    count, plain = InThisProcess(2), in_memory(stored)
    found, _ = count.words(stored, FIELDS)
    monkeypatch.undo()
    wanted, _ = count.words(plain, FIELDS)
    assert found.words == wanted.words
    assert len(found.columns) == 3
    for mine, other in zip(found.columns, wanted.columns, strict=True):
        assert_equal(mine, other)
    assert count.compounds(stored, FIELDS) == count.compounds(plain, FIELDS)
    phrases, of_documents = count.phrases(stored, "title")
    assert [*phrases.phrases] == [*count.phrases(plain, "title")[0].phrases]
    assert_equal(of_documents, count.phrases(plain, "title")[1])


def test_stored_texts_are_the_texts_of_the_fields(stored: Collection) -> None:
    plain = in_memory(stored)
    for name in FIELDS:
        wanted = plain.field_texts(name)
        texts = stored.field_texts(name)
        assert [*texts] == wanted == texts[:]
        assert texts[-3:7:-2] == wanted[-3:7:-2]
    assert [*stored.query_texts] == plain.query_texts
    assert stored.query_texts[-1] == plain.query_texts[-1]
    assert stored.queries == plain.queries
    assert stored.queries is not None
    assert stored.queries[1:3] == (plain.queries or [])[1:3]
    with pytest.raises(IndexError):
        stored.queries[40]


TEXTS = ["rename files", "rename flies copy", "dupplicate lines", "sort", "renamee"]


@pytest.fixture
def spelling_corpus(tmp_path: Path) -> Corpus:
    """Only the first query is in the training split, so words of the others alone are unknown."""
    documents = ["copy files", "rename a file", "duplicate lines", "sort lines"]
    write_lines(
        tmp_path / "corpus.jsonl",
        [{"_id": f"d{i}", "text": text} for i, text in enumerate(documents)],
    )
    write_lines(
        tmp_path / "queries.jsonl", [{"_id": f"q{i}", "text": text} for i, text in enumerate(TEXTS)]
    )
    write_qrels(tmp_path / "qrels" / "train.tsv", [("q0", "d1")])
    write_qrels(tmp_path / "qrels" / "valid.tsv", [(f"q{i}", "d0") for i in range(1, len(TEXTS))])
    return count_collection(read_collection(tmp_path), processes=1)


def features_of(corpus: Corpus, spelling: float) -> Features:
    settings = ModelSettings(latent="learned", trigrams="on", match="bm25", spelling=spelling)
    return build_features(corpus, settings)


def test_judged_queries_are_encoded_as_texts_are(spelling_corpus: Corpus) -> None:
    features = features_of(spelling_corpus, 0.8)
    trained = encode_judged(features, features.model, np.arange(len(TEXTS)))
    served = features.model.encode_queries(TEXTS).sparse
    assert trained.sparse.indices.tolist() == served.indices.tolist()
    assert trained.sparse.values.tolist() == served.values.tolist()
    # The matrix that a training step reads has the same weights.
    assert features.s.indices.tolist() == served.indices.tolist()
    assert features.s.values.tolist() == served.values.tolist()


def test_typing_errors_reach_the_known_word_only_with_the_setting(spelling_corpus: Corpus) -> None:
    column = features_of(spelling_corpus, 0.0).model.sparse.words.row("duplicate")
    plain, corrected = (features_of(spelling_corpus, share) for share in (0.0, 0.8))
    assert plain.s.csr()[2, column] == 0
    assert corrected.s.csr()[2, column] > 0
    row = corrected.model.query.words.row("duplicate")
    assert plain.xq.csr()[2, row] == 0
    assert corrected.xq.csr()[2, row] > 0


SETTINGS = ModelSettings(match="bm25", diagonal="learned", clicked="on")


def clicks_features_of(collection: Collection) -> Features:
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
    features = clicks_features_of(collection)
    assert features.model.settings["fields"][-1] == ["clicked", ["clicked"]]
    assert features.model.settings["query_fields"] == ["title", "text"]
    assert features.model.settings["field_weights"] == [1.0, 1.0, 0.0]
    # The lexical part knows words that only queries have, and only this field contains them.
    row = features.model.sparse.words.row("novel")
    assert row >= 0
    held = [(z.indices == row).any() for z in features.z]
    assert held == [False, False, True]


def test_training_and_serving_count_the_same(collection: Collection) -> None:
    features = clicks_features_of(collection)
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
    features = clicks_features_of(collection)
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


def test_fields_of_a_step_are_those_of_documents_that_never_saw_its_queries(tmp_path: Path) -> None:
    """z of the step equals z of a collection without those judgements; other fields do not change."""
    collection = read_collection(write_planted(tmp_path))
    features = clicks_features_of(collection)
    queries = features.pairs.queries[::3]
    kept = {q: d for q, d in features.pairs.items() if q not in set(queries.tolist())}
    assert features.clicks is not None
    other = Clicks.of(Pairs.from_lists(kept), features.documents, features.clicks.texts)
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
    features = clicks_features_of(collection)
    assert features.clicks is not None
    assert features.clicks.texts.values.sum() < features.query_counts.values.sum()


def test_a_document_field_named_clicked_is_refused(collection: Collection) -> None:
    with pytest.raises(TrainingError, match="rename"):
        clicks_features_of(with_clicks(collection))
    plain = count_collection(with_clicks(collection), processes=1)
    assert len(build_features(plain, replace(SETTINGS, clicked="off")).z) == 3


def test_auto_uses_clicked_text_if_queries_are_not_documents(tmp_path: Path) -> None:
    settings = replace(SETTINGS, clicked="auto")
    for write, wanted in ((write_planted, True), (write_planted_links, False)):
        corpus = count_collection(read_collection(write(tmp_path / write.__name__)), processes=1)
        assert (build_features(corpus, settings).clicks is not None) == wanted


def _equal(one: Rows, other: Rows) -> bool:
    return np.array_equal(one.csr().toarray(), other.csr().toarray())


PLACE = dict[tuple[str, str], float]


@pytest.fixture
def weights(tmp_path: Path) -> PLACE:
    write_planted(tmp_path)
    return {pair: 0.25 * (i + 1) for i, pair in enumerate(weights_judged_pairs(tmp_path, "train"))}


def counted(folder: Path) -> Corpus:
    return count_collection(read_collection(folder, strict=True), processes=1)


def by_name(corpus: Corpus, values: np.ndarray) -> PLACE:
    names = corpus.collection.document_ids
    return {
        (corpus.query_ids[query], names[row]): value
        for query, row, value in zip(
            corpus.pairs.owners.tolist(),
            corpus.pairs.entries.tolist(),
            values.tolist(),
            strict=True,
        )
    }


def test_pairs_have_the_weights_of_the_file(tmp_path: Path, weights: PLACE) -> None:
    absent = next(iter(weights))
    write_values(tmp_path, "weights", "train", {p: w for p, w in weights.items() if p != absent})
    corpus = counted(tmp_path)
    assert corpus.pairs.weights is not None
    assert by_name(corpus, corpus.pairs.weights) == {**weights, absent: 1.0}
    assert corpus.pairs.people is None
    assert corpus.pairs.clicked is corpus.pairs
    query, rows = next((q, r) for q, r in corpus.pairs.items() if len(r) > 1)
    found = corpus.pairs.weight_of(query, rows[1:])
    np.testing.assert_array_equal(found, corpus.pairs.weights[corpus.pairs.slice_of(query)][1:])


def test_pairs_without_files_have_no_weights(tmp_path: Path, weights: PLACE) -> None:
    pairs = counted(tmp_path).pairs
    assert pairs.weights is None
    assert pairs.people is None


def test_pairs_that_are_held_out_keep_the_weights_of_the_others(
    tmp_path: Path, weights: PLACE, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.training.validation._MOST_CLICKS", 1_000_000)
    write_values(tmp_path, "weights", "train", weights)
    held = hold_out(counted(tmp_path), 0)
    pairs = held.corpus.pairs
    assert 0 < len(pairs) < len(weights)
    assert pairs.weights is not None
    ids = held.corpus.collection.document_ids
    taken: PLACE = {}
    for judgement in () if held.known is None else held.known.judgements:
        [row] = judgement.relevant.tolist()
        taken[judgement.query, ids[row]] = judgement.weight
    for pair, weight in by_name(held.corpus, pairs.weights).items():
        assert weight + taken.get(pair, 0.0) == weights[pair]
    assert held.cold is not None
    shares: dict[str, dict[str, float]] = {}
    for judgement in held.cold.judgements:
        [row] = judgement.relevant.tolist()
        shares.setdefault(judgement.query, {})[ids[row]] = judgement.weight
    for query, found in shares.items():
        total = sum(weights[query, name] for name in found)
        assert found == pytest.approx({name: weights[query, name] / total for name in found})


def test_what_one_person_clicked_is_no_clicked_text(tmp_path: Path, weights: PLACE) -> None:
    people: PLACE = {pair: 1 + i % 3 for i, pair in enumerate(weights)}
    write_values(tmp_path, "people", "train", people)
    corpus = counted(tmp_path)
    features = build_features(corpus, ModelSettings(clicked="on"))
    assert features.clicks is not None
    found = features.clicks.judged.toarray()
    names = corpus.collection.document_ids
    for (query, document), count in people.items():
        cell = found[names.index(document), corpus.query_ids.index(query)]
        assert cell == (count >= 2)
    everything = build_features(
        replace(corpus, pairs=replace(corpus.pairs, people=None)), ModelSettings(clicked="on")
    )
    assert everything.clicks is not None
    assert everything.clicks.judged.sum() == len(people)


def test_what_one_person_typed_stays_out_of_a_bundle(tmp_path: Path, weights: PLACE) -> None:
    assert counted(tmp_path).public_queries == counted(tmp_path).query_ids
    alone = {*sorted({query for query, _ in weights})[::3]}
    people: PLACE = {pair: 1.0 if pair[0] in alone else 2.0 for pair in weights}
    write_values(tmp_path, "people", "train", people)
    found = set(counted(tmp_path).public_queries)
    assert found == {query for query, _ in weights} - alone
    assert found


def test_validation_is_weighted(tmp_path: Path, weights: PLACE) -> None:
    pairs = weights_judged_pairs(tmp_path, "valid")
    write_values(tmp_path, "weights", "valid", {pair: 1.0 + i for i, pair in enumerate(pairs)})
    judgements, _ = judge(read_collection(tmp_path), "valid", ["train"])
    relative = relative_weights(judgements)
    assert relative is not None
    total = {
        j.query: sum(1.0 + i for i, p in enumerate(pairs) if p[0] == j.query) for j in judgements
    }
    assert [j.weight for j in judgements] == [*total.values()]
    np.testing.assert_allclose(relative, np.array([*total.values()]) / np.mean([*total.values()]))


def test_a_weighted_mean_and_its_error() -> None:
    rng = np.random.default_rng(1)
    values = rng.random(50)
    plain, ones = estimate(values), estimate(values, np.ones(50))
    assert (ones.mean, ones.standard_error) == pytest.approx((plain.mean, plain.standard_error))
    weights = rng.uniform(0.1, 2, 50)
    found = estimate(values, weights / weights.mean())
    assert found.mean == pytest.approx(np.average(values, weights=weights))
    # The error is the scatter of the mean over samples of queries and their weights.
    rows = rng.integers(50, size=(4000, 50))
    means = [np.average(values[r], weights=weights[r]) for r in rows]
    assert found.standard_error == pytest.approx(np.std(means), rel=0.05)
    assert np.isnan(estimate(values[:1], np.ones(1)).standard_error)
