"""Documents set aside: training judges none of them, and cold queries ask for nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.planted import write_planted, write_planted_links
from trainer.collection import read_collection
from trainer.features.corpus import Corpus, count_collection
from trainer.training import holdout
from trainer.training.holdout import hold_out, is_held_out, is_query_held_out
from trainer.training.validation import validation


@pytest.fixture(autouse=True)
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "_FEWEST_QUERIES", 1)


@pytest.fixture(params=["queries", "links"])
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> Corpus:
    write = write_planted if request.param == "queries" else write_planted_links
    return count_collection(read_collection(write(tmp_path / "c")), processes=1)


def held_rows(corpus: Corpus) -> set[int]:
    return {i for i, d in enumerate(corpus.collection.documents) if is_held_out(d.id)}


def test_a_tenth_of_many_ids_is_set_aside() -> None:
    found = [is_held_out(f"document {i}") for i in range(20_000)]
    assert np.mean(found) == pytest.approx(0.1, abs=0.01)
    assert found == [is_held_out(f"document {i}") for i in range(20_000)]


def test_every_judged_pair_is_trained_on_or_asked_for_cold(corpus: Corpus) -> None:
    held, found = held_rows(corpus), hold_out(corpus, 0)
    assert held
    assert found.cold is not None
    kept = {(q, d) for q, rows in found.corpus.pairs.relevant.items() for d in rows.tolist()}
    asked = {
        (row, d)
        for row, judgement in zip(found.cold.rows.tolist(), found.cold.judgements, strict=True)
        for d in judgement.relevant.tolist()
    }
    everything = {(q, d) for q, rows in corpus.pairs.relevant.items() for d in rows.tolist()}
    assert kept | asked == everything
    assert {d for _, d in asked} <= held
    assert held.isdisjoint(d for _, d in kept)
    assert found.corpus.pairs.queries.tolist() == sorted({q for q, _ in kept})


def test_known_answers_and_mates_are_no_candidates(corpus: Corpus) -> None:
    held, found = held_rows(corpus), hold_out(corpus, 0)
    assert found.cold is not None
    for row, judgement in zip(found.cold.rows.tolist(), found.cold.judgements, strict=True):
        others = {d for d in corpus.pairs.relevant[row].tolist() if d not in held}
        mate = {int(corpus.mates[row])} - {-1}
        assert set(judgement.excluded.tolist()) == others | mate


def test_warm_queries_ask_for_nothing_set_aside(corpus: Corpus) -> None:
    held, found = held_rows(corpus), hold_out(corpus, 0)
    assert found.warm is not None
    valid = validation(corpus, 0)
    assert valid is not None
    whole = {judgement.query: judgement for judgement in valid.judgements}
    assert len(found.warm.judgements) > 0
    for judgement in found.warm.judgements:
        relevant, excluded = set(judgement.relevant.tolist()), set(judgement.excluded.tolist())
        before = whole[judgement.query]
        assert relevant == set(before.relevant.tolist()) - held
        assert excluded == set(before.excluded.tolist()) | (set(before.relevant.tolist()) & held)


def test_without_a_validation_split_a_tenth_of_the_queries_is_set_aside(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c", splits=["train"])
    corpus = count_collection(read_collection(folder), processes=1)
    found = hold_out(corpus, 0)
    assert found.warm is not None
    assert found.warm.rows.size > 0
    assert set(found.warm.rows.tolist()).isdisjoint(found.corpus.pairs.queries.tolist())
    held = held_rows(corpus)
    for row, judgement in zip(found.warm.rows.tolist(), found.warm.judgements, strict=True):
        answers = set(corpus.pairs.relevant[row].tolist())
        mate = {int(corpus.mates[row])} - {-1}
        assert set(judgement.relevant.tolist()) == answers - held
        assert set(judgement.excluded.tolist()) == (answers & held) | mate


def test_held_out_queries_are_not_the_held_out_documents_of_the_same_ids() -> None:
    ids = [f"document {i}" for i in range(20_000)]
    documents, queries = map(is_held_out, ids), map(is_query_held_out, ids)
    both = sum(document and query for document, query in zip(documents, queries, strict=True))
    assert 150 < both < 250


def test_the_limit_spreads_queries_and_few_queries_are_not_measured(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = hold_out(corpus, 3)
    assert found.cold is not None
    assert len(found.cold.judgements) == len(found.cold.rows) == 3
    monkeypatch.setattr(holdout, "_FEWEST_QUERIES", 10_000)
    assert hold_out(corpus, 0).cold is None
