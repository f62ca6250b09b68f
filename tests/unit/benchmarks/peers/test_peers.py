"""The peers whose packages the project does not install: what goes into them and what is made of their output."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import ir_measures
import numpy as np
import pytest
import scipy.sparse as sp
from ir_measures import MAP, MRR, nDCG

from benchmarks.harness.derive import is_cold
from benchmarks.peers import bm25
from benchmarks.peers.engines import Groonga, groonga_engines
from benchmarks.peers.fusion import fuse_ranks, fuse_weighted
from benchmarks.peers.minilm import Progress, Schedule, batches, rate_at, validator
from benchmarks.peers.protocol import (
    EXCLUDED,
    Float32,
    PeerData,
    measure,
    measured_folder,
    overrides,
    passage_scores,
    query_time,
    read_peer_data,
    top_rows,
    unit_rows,
)
from benchmarks.performance.vectors import points, whole
from fullrank.errors import CollectionError
from fullrank.storage.encoding import Encoded, Rows
from fullrank.text.words import words
from fullrank_trainer.evaluation.trec import write_qrels as write_trec_qrels
from tests.planted import write_planted, write_planted_links, write_qrels
from tests.runs import read_run

INFINITY = np.float32(np.inf)


@pytest.fixture
def data(tmp_path: Path) -> PeerData:
    return read_peer_data(write_planted(tmp_path / "planted"))


def test_a_document_scores_as_its_best_passage() -> None:
    rng = np.random.default_rng(1)
    rows = np.array([0, 0, 0, 1, 2, 2, 3])
    vectors = unit_rows(rng.normal(size=(7, 5)))
    queries = unit_rows(rng.normal(size=(4, 5)))

    def encode(texts: object) -> Float32:
        return queries

    found = passage_scores(encode, vectors, rows)(["q"] * 4)
    for line, query in zip(found, queries, strict=True):
        for row in range(4):
            best = max(float(query @ v) for v, r in zip(vectors, rows, strict=True) if r == row)
            assert line[row] == pytest.approx(best, abs=1e-6)
    one_each = passage_scores(encode, vectors, np.arange(7))(["q"] * 4)
    np.testing.assert_allclose(one_each, queries @ vectors.T, atol=1e-6)


def test_unit_rows_keep_a_zero_row() -> None:
    found = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, np.array([[0.6, 0.8], [0.0, 0.0]]), rtol=1e-6)


def test_a_batch_names_a_document_once_and_an_epoch_every_pair(data: PeerData) -> None:
    few = PeerData(data.collection, data.documents, data.train[:300])
    seen: list[tuple[str, int]] = []
    for batch in batches(few, 16, 1, 0):
        rows = [row for _, row in batch]
        assert len(set(rows)) == len(rows) <= 16
        seen += batch
        if len(seen) >= 290:
            break
    # A last batch of one pair has no negative and is dropped; nothing is drawn twice in an epoch.
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(few.train)


def test_a_document_comes_once_in_a_batch_with_some_of_its_queries(data: PeerData) -> None:
    few = PeerData(data.collection, data.documents, [*data.train[:300], *data.train[:20]])
    alone = list(islice(batches(few, 16, 1, 0, 1), 10))
    assert all(len(batch) == 16 for batch in alone)
    seen: list[tuple[str, int]] = []
    for batch in islice(batches(few, 16, 1, 0, 2), 10):
        rows = [row for _, row in batch]
        starts = [row for before, row in zip([None, *rows], rows, strict=False) if row != before]
        assert len(set(starts)) == len(starts) <= 16
        assert max(map(rows.count, rows)) <= 2
        seen += batch
    assert len(seen) > sum(map(len, alone))


def test_a_restarted_training_goes_on_with_the_next_batch(data: PeerData) -> None:
    whole = list(islice(batches(data, 32, 5, 0), 60))
    assert list(islice(batches(data, 32, 5, 25), 35)) == whole[25:]
    assert list(islice(batches(data, 32, 6, 0), 5)) != whole[:5]


def test_the_rate_warms_up_and_falls_to_a_tenth() -> None:
    schedule = Schedule(hours=1, rate=1.0, warm_up=10)
    assert rate_at(schedule, Progress(steps=0)) == pytest.approx(0.1)
    assert rate_at(schedule, Progress(steps=20, seconds=1800)) == pytest.approx(0.55)
    assert rate_at(schedule, Progress(steps=20, seconds=9999)) == pytest.approx(0.1)


def test_the_validation_sample_holds_what_is_relevant(data: PeerData) -> None:
    schedule = Schedule(hours=1, valid_queries=7, valid_documents=20)
    queries, relevant, documents = validator(data, schedule)
    asked = data.asked("valid")
    assert len(queries) == len(relevant) == 7
    assert len(set(documents)) >= 20
    answers = {
        text: {data.documents[row] for row in judgement.relevant.tolist()}
        for text, judgement in zip(asked.texts, asked.judgements, strict=True)
    }
    for text, rows in zip(queries, relevant, strict=True):
        assert {documents[row] for row in rows.tolist()} == answers[text]
    assert validator(data, schedule)[2] == documents


def test_reciprocal_ranks_add_up() -> None:
    first = np.array([[3, 2, 1, -INFINITY]], np.float32)
    second = np.array([[-INFINITY, 5, 9, -INFINITY]], np.float32)
    expected = [1 / 61, 1 / 62 + 1 / 62, 1 / 63 + 1 / 61, -np.inf]
    np.testing.assert_allclose(fuse_ranks(first, second)[0], expected, rtol=1e-6)


def test_a_weighted_sum_adds_shares_of_the_best_score() -> None:
    lexical = np.array([[4, 2, -INFINITY], [-INFINITY] * 3], np.float32)
    cosines = np.array([[0.1, 0.2, 0.9], [0.1, 0.2, 0.9]], np.float32)
    found = fuse_weighted(lexical, cosines, 0.75)
    expected = [[0.775, 0.425, 0.225], [0.025, 0.05, 0.225]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_planted(tmp_path / "planted")


def test_top_rows_equal_a_full_sort_with_ties_by_row() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        scores = rng.integers(0, 6, 40).astype(np.float32)
        scores[rng.random(40) < 0.2] = -np.inf
        ranked = [row for row in range(40) if scores[row] > -np.inf]
        ranked.sort(key=lambda row: (-scores[row], row))
        for depth in (1, 5, 39, 40, 100):
            assert top_rows(scores, depth).tolist() == ranked[:depth]


def test_measures_equal_those_of_ir_measures(folder: Path, tmp_path: Path) -> None:
    data = read_peer_data(folder)
    asked = data.asked("test")
    rng = np.random.default_rng(2)
    table = {text: rng.normal(size=len(data.documents)).astype(np.float32) for text in asked.texts}
    path = tmp_path / "peer.run"
    found = measure(lambda texts: np.stack([table[text] for text in texts]), data, asked, path)
    write_trec_qrels(tmp_path / "qrels", data.collection.qrels("test"))
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels")))
    run = list(ir_measures.read_trec_run(str(path)))
    theirs = ir_measures.calc_aggregate([MRR, MAP, nDCG @ 10], qrels, run)
    assert found["mrr"].mean() == pytest.approx(theirs[MRR], abs=1e-6)
    assert found["map"].mean() == pytest.approx(theirs[MAP], abs=1e-6)
    assert found["ndcg@10"].mean() == pytest.approx(theirs[nDCG @ 10], abs=1e-6)
    assert 0.05 < theirs[MRR] < 0.9


def test_what_a_peer_does_not_rank_and_what_is_excluded_is_not_in_the_run(tmp_path: Path) -> None:
    folder = write_planted_links(tmp_path / "links")
    data = read_peer_data(folder)
    asked = data.asked("valid")
    scores = np.zeros((1, len(data.documents)), np.float32)
    scores[0, 3] = -np.inf
    path = tmp_path / "peer.run"
    measure(lambda texts: scores.repeat(len(texts), axis=0), data, asked, path)
    ids = [document.id for document in data.collection.documents]
    train = data.collection.qrels("train")
    for query, ranking in read_run(path).items():
        assert {name for name, _ in ranking} == {*ids} - {ids[3], query} - {*train[query]}


def test_training_pairs_are_those_of_train_alone(folder: Path) -> None:
    data = read_peer_data(folder)
    ids = [document.id for document in data.collection.documents]
    texts = {query.id: query.text for query in data.collection.queries or ()}
    train = data.collection.qrels("train")
    expected = {
        (texts[query], ids.index(name)) for query, grades in train.items() for name in grades
    }
    assert set(data.train) == expected
    row = data.train[0][1]
    asking = {query for query, grades in train.items() if ids[row] in grades}
    added = [word for query in texts if query in asking for word in words(texts[query])]
    assert sorted(words(data.clicked[row])) == sorted(words(data.documents[row]) + added)


def test_linked_documents_have_no_clicked_text(tmp_path: Path) -> None:
    data = read_peer_data(write_planted_links(tmp_path / "links"))
    assert data.asked("valid").texts[0] in data.documents
    with pytest.raises(CollectionError, match="the queries are documents"):
        _ = data.clicked


def test_a_collection_without_training_pairs_is_refused(folder: Path) -> None:
    write_qrels(folder / "qrels" / "train.tsv", [])
    with pytest.raises(CollectionError, match=r"train\.tsv: no judged pair"):
        read_peer_data(folder)


def test_bm25_is_lucenes_formula(folder: Path) -> None:
    data = read_peer_data(folder)
    asked = data.asked("test")
    counts = [Counter(words(text)) for text in data.documents]
    mean = sum(count.total() for count in counts) / len(counts)
    expected = np.zeros((len(asked.texts), len(counts)))
    for line, text in enumerate(asked.texts):
        for word in words(text):
            df = sum(word in count for count in counts)
            idf = math.log(1 + (len(counts) - df + 0.5) / (df + 0.5))
            for row, count in enumerate(counts):
                saturation = 1.5 * (1 - 0.75 + 0.75 * count.total() / mean)
                expected[line, row] += idf * count[word] / (count[word] + saturation)
    scores = bm25.fit_bm25(data, {"k1": 1.5, "b": 0.75}).score(asked.texts)
    np.testing.assert_allclose(np.where(np.isfinite(scores), scores, 0), expected, rtol=1e-5)


def test_an_empty_query_ranks_nothing(folder: Path) -> None:
    data = read_peer_data(folder)
    for fit in (bm25.fit_bm25, bm25.fit_tfidf):
        assert np.all(fit(data, {}).score(["", "unknownword"]) == -np.inf)


def test_query_time_is_the_median_of_single_queries() -> None:
    asked: list[int] = []

    def score(texts: object) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        asked.append(1)
        return np.zeros((1, 50), np.float32)

    wall_ms, _ = query_time(score, [str(i) for i in range(60)], 30)
    assert len(asked) == 20 + 30
    assert 0 < wall_ms < 1000


def test_the_command_prints_a_line_for_each_system_and_split(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--collection", str(folder), "--timed", "5", "--in-process"]
    bm25.main([*options, "--systems", "bm25s,tfidf-clicked"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["system"], line["split"]) for line in lines] == [
        (system, split) for system in ("bm25s", "tfidf-clicked") for split in ("valid", "test")
    ]
    for line in lines:
        assert line["documents"] == 36
        assert all(0 < line[name] <= 1 for name in ("mrr", "map", "ndcg@10"))
        assert all(line[name] > 0 for name in ("query_ms", "train_seconds", "peak_memory_mb"))
    valid = lines[0]
    assert valid["mrr"] == max(trial["mrr"] for trial in valid["trials"])
    assert len({*map(str, valid["trials"])}) == len(bm25.BM25_TRIALS)
    # Synonyms that only queries use are found through the clicked text.
    assert lines[3]["mrr"] > lines[1]["mrr"]


def test_cold_documents_are_in_no_training_pair_and_alone_in_the_test(
    folder: Path, tmp_path: Path
) -> None:
    data = read_peer_data(measured_folder(str(folder), True, tmp_path / "scratch"))
    ids = [document.id for document in data.collection.documents]
    learned = {ids[row] for _, row in data.train}
    tested = {ids[row] for j in data.asked("test").judgements for row in j.relevant.tolist()}
    assert tested == {id for id in ids if is_cold(id)}
    assert tested
    assert learned == {*ids} - tested


def test_settings_from_the_command_line_replace_those_of_every_trial(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--collection", str(folder), "--systems", "bm25s", "--in-process"]
    bm25.main([*options, "--set", "k1=2", "--set", "b=0.5", "--splits", "test"])
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert line["settings"] == {"k1": 2, "b": 0.5}
    assert len(line["trials"]) == 1


def test_systems_for_short_queries_are_skipped_where_documents_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_planted_links(tmp_path / "links")
    options = ["--collection", str(folder), "--systems", "bm25s-clicked", "--in-process"]
    bm25.main([*options, "--splits", "valid"])
    out, err = capsys.readouterr()
    assert out == ""
    assert "skipped" in err


def test_excluded_splits_never_hold_the_measured_one() -> None:
    assert all(split not in excluded for split, excluded in EXCLUDED.items())
    assert EXCLUDED["test"] == ("train", "valid")


@pytest.mark.parametrize("words", [["k1"], ["a=1", "b"]])
def test_a_setting_without_a_value_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="write KEY=VALUE"):
        overrides(words)
    assert overrides(["a=1", "b=x", "c=true"]) == {"a": 1, "b": "x", "c": True}


def test_an_unknown_system_is_named(folder: Path) -> None:
    with pytest.raises(SystemExit, match="no system 'bm26'"):
        bm25.main(["--collection", str(folder), "--systems", "bm26", "--in-process"])


@pytest.mark.parametrize(
    ("text", "all_words", "query"),
    [
        ("Copy the files, copy!", False, "copy OR files"),
        ("Copy the files", True, "copy files"),
        ("to be OR not", False, "to OR be OR or OR not"),  # nothing but stop words
        ('a (b) "OR"', False, "b"),
    ],
)
def test_groonga_is_asked_for_words(text: str, all_words: bool, query: str) -> None:
    groonga = Groonga(["title", "text"], ["text"], "f({})", 3, all_words)
    asked = parse_qs(urlsplit(groonga.path(text, 7)).query)
    assert asked["query"] == [query]
    assert asked["match_columns"] == ["f(title) * 3 || f(text) * 1"]
    assert asked["limit"] == ["7"]
    assert asked["output_columns"] == ["_key,_score,text"]


@pytest.mark.skipif(shutil.which("groonga") is None, reason="no groonga on PATH")
def test_groonga_finds_documents_with_any_or_all_of_the_words() -> None:
    fields = [
        {"title": "copy", "text": "copies a file"},
        {"title": "zip", "text": "archives of files"},
        {"title": "date", "text": "shows the time"},
    ]
    with groonga_engines(fields) as (any_word, all_words):
        assert any_word.search("copy files", 10) == [0, 1]
        assert all_words.search("copy files", 10) == [0]
        assert all_words.search("copy time", 10) == []


def test_one_sparse_vector_has_the_whole_score() -> None:
    rng = np.random.default_rng(2)

    def encoded(count: int) -> Encoded:
        words = rng.random((count, 9), np.float32) * (rng.random((count, 9)) < 0.5)
        dense = rng.normal(size=(count, 4)).astype(np.float32)
        bias = rng.normal(size=count).astype(np.float32)
        return Encoded(dense, Rows.from_csr(sp.csr_array(words.astype(np.float32))), bias)

    d, q = encoded(7), encoded(3)
    found = whole(q, np.ones(3, np.float32)).csr() @ whole(d, d.bias).csr().T
    expected = q.dense @ d.dense.T + q.sparse.csr().toarray() @ d.sparse.csr().toarray().T + d.bias
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5)


def test_a_system_for_each_effort_answers_in_order() -> None:
    systems = dict(points("e", (2, (3, 0.5)), lambda place, effort: (place, effort)))
    assert list(systems) == ["e 2", "e 3 0.5"]
    assert systems["e 3 0.5"]([4, 1]) == [(4, (3, 0.5)), (1, (3, 0.5))]
