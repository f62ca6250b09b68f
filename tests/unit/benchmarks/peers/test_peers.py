"""The peers whose packages the project does not install: what goes into them and what is made of their output."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.fusion import fuse_ranks, fuse_weighted
from benchmarks.peers.minilm import Progress, Schedule, batches, rate_at, validator
from benchmarks.peers.protocol import Float32, PeerData, passage_scores, read_peer_data, unit_rows
from tests.planted import write_planted

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
