"""Documents set aside: training judges none of them, and cold queries ask for nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.training import validation as holdout
from fullrank_trainer.training.validation import (
    hold_out,
    is_held_out,
    is_query_held_out,
    validation,
)
from tests.planted import write_planted, write_planted_links


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
    kept = {(q, d) for q, rows in found.corpus.pairs.items() for d in rows.tolist()}
    asked = {
        (row, d)
        for row, judgement in zip(found.cold.rows.tolist(), found.cold.judgements, strict=True)
        for d in judgement.relevant.tolist()
    }
    everything = {(q, d) for q, rows in corpus.pairs.items() for d in rows.tolist()}
    assert kept | asked == everything
    assert {d for _, d in asked} <= held
    assert held.isdisjoint(d for _, d in kept)
    assert found.corpus.pairs.queries.tolist() == sorted({q for q, _ in kept})


def test_known_answers_and_mates_are_no_candidates(corpus: Corpus) -> None:
    held, found = held_rows(corpus), hold_out(corpus, 0)
    assert found.cold is not None
    for row, judgement in zip(found.cold.rows.tolist(), found.cold.judgements, strict=True):
        others = {d for d in corpus.pairs[row].tolist() if d not in held}
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
        answers = set(corpus.pairs[row].tolist())
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


def write_clicks(folder: Path, splits: Sequence[str]) -> Path:
    """Planted queries whose judgements were clicked 1 to 12 times; ``valid`` repeats queries of training."""
    folder = write_planted(folder)
    lines = (folder / "qrels" / "train.tsv").read_text().splitlines()[1:]
    pairs = [line.split("\t")[:2] for line in lines]
    (folder / "weights").mkdir()
    for split in ("train", "valid", "test"):
        own = [*pairs] if split == "train" else pairs[:60]
        if split == "valid":  # and others that training has not
            other = (folder / "qrels" / "valid.tsv").read_text().splitlines()[1:]
            own += [line.split("\t")[:2] for line in other]
        for name, column in (("qrels", "score"), ("weights", "weight")):
            file = folder / name / f"{split}.tsv"
            file.unlink(missing_ok=True)
            if split in splits:
                value = [1 if name == "qrels" else 1 + i % 12 for i in range(len(own))]
                text = [f"{q}\t{d}\t{n}\n" for (q, d), n in zip(own, value, strict=True)]
                file.write_text("".join([f"query-id\tcorpus-id\t{column}\n", *text]))
    return folder


def test_clicks_on_known_queries_are_set_aside_one_by_one(tmp_path: Path) -> None:
    folder = write_clicks(tmp_path / "c", ["train"])
    corpus = count_collection(read_collection(folder), processes=1)
    found = hold_out(corpus, 0)
    assert found.known is not None
    assert found.warm is not None
    before, after = corpus.pairs, found.corpus.pairs
    assert before.weights is not None
    assert after.weights is not None
    taken = dict.fromkeys(after.queries.tolist(), 0.0)
    for row, judgement in zip(found.known.rows.tolist(), found.known.judgements, strict=True):
        [document] = judgement.relevant.tolist()
        assert row in taken  # the query stays in training, and its other answers stay candidates
        assert document not in judgement.excluded.tolist()
        taken[row] += judgement.weight
        assert judgement.weight == int(judgement.weight) >= 1
    held = held_rows(corpus)
    for row in after.queries.tolist():
        rows = [d for d in before[row].tolist() if d not in held]
        whole = before.weight_of(row, np.array(rows)).sum()
        assert after.weight_of(row, after[row]).sum() + taken[row] == pytest.approx(whole)
        assert after.weights[row].sum() > 0
    clicks = sum(j.weight for j in found.known.judgements)
    assert clicks / before.weights.sum() == pytest.approx(0.08, abs=0.03)
    assert set(found.warm.rows.tolist()).isdisjoint(after.queries.tolist())


def test_a_split_of_later_clicks_measures_known_and_new_queries(tmp_path: Path) -> None:
    folder = write_clicks(tmp_path / "c", ["train", "valid"])
    corpus = count_collection(read_collection(folder), processes=1)
    found = hold_out(corpus, 0)
    assert found.known is not None
    assert found.warm is not None
    trained = {*found.corpus.pairs.queries.tolist()}
    assert trained.issuperset(found.known.rows.tolist())
    assert trained.isdisjoint(found.warm.rows.tolist())
    known = {q for q, _ in ((j.query, j.relevant) for j in found.known.judgements)}
    assert known == {q for q in corpus.collection.qrels("valid") if q.startswith("train")}


def test_new_queries_count_alike_however_often_they_were_asked(tmp_path: Path) -> None:
    folder = write_clicks(tmp_path / "c", ["train"])
    found = hold_out(count_collection(read_collection(folder), processes=1), 0)
    assert found.warm is not None
    shares: dict[int, float] = {}
    for row, judgement in zip(found.warm.rows.tolist(), found.warm.judgements, strict=True):
        shares[row] = shares.get(row, 0.0) + judgement.weight
    assert [*shares.values()] == pytest.approx([1.0] * len(shares))


def test_the_share_of_repeated_queries_is_estimated_from_those_of_one_click(tmp_path: Path) -> None:
    folder = write_clicks(tmp_path / "c", ["train"])
    corpus = count_collection(read_collection(folder), processes=1)
    clicks: dict[int, float] = {}
    assert corpus.pairs.weights is not None
    for row in corpus.pairs.queries.tolist():
        clicks[row] = float(corpus.pairs.weights[corpus.pairs.slice_of(row)].sum())
    once = sum(n == 1 for n in clicks.values())
    assert hold_out(corpus, 0).repeated == pytest.approx(1 - once / sum(clicks.values()))
