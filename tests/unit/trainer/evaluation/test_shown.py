"""Clicks judge only what was shown, so models are compared on that."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.encoding import Encoded, Rows
from fullrank.measures import estimates
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import (
    Judgement,
    evaluate,
    judge,
    measure_rankings,
    relative_weights,
)
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.train import train
from fullrank_trainer.training.validation import hold_out, validation
from tests.weighted import write_values

DOCUMENTS = 60
CLICKED, SHOWN = 1, 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty queries, each shown five documents and one of them clicked."""
    (tmp_path / "qrels").mkdir()
    lines = [f'{{"_id": "d{i:02}", "title": "word{i} thing"}}\n' for i in range(DOCUMENTS)]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    lines = [f'{{"_id": "q{i}", "text": "word{i}"}}\n' for i in range(40)]
    (tmp_path / "queries.jsonl").write_text("".join(lines))
    for split, queries in (("train", range(30)), ("valid", range(30, 40))):
        rows = [
            f"q{q}\td{(q + k) % DOCUMENTS:02}\t{CLICKED if k == 2 else SHOWN}\n"
            for q in queries
            for k in range(5)
        ]
        (tmp_path / "qrels" / f"{split}.tsv").write_text(
            "query-id\tcorpus-id\tscore\n" + "".join(rows)
        )
        weights = {(f"q{q}", f"d{(q + 2) % DOCUMENTS:02}"): 0.5 for q in queries}
        write_values(tmp_path, "weights", split, weights)
    return tmp_path


def test_only_what_was_shown_is_a_candidate(folder: Path) -> None:
    judgements, _ = judge(read_collection(folder), "valid", ["train"])
    for judgement in judgements:
        query = int(judgement.query[1:])
        shown = sorted((query + k) % DOCUMENTS for k in range(5))
        assert np.flatnonzero(~judgement.left_out(DOCUMENTS)).tolist() == shown
        assert judgement.relevant.tolist() == [(query + 2) % DOCUMENTS]


def test_grades_of_people_leave_all_documents_candidates(folder: Path) -> None:
    for split in ("train", "valid"):
        (folder / "weights" / f"{split}.tsv").unlink()
    judgements, _ = judge(read_collection(folder), "valid", ["train"])
    assert all(not judgement.left_out(DOCUMENTS).any() for judgement in judgements)


def test_cold_queries_are_compared_on_what_was_shown(folder: Path) -> None:
    held = hold_out(count_collection(read_collection(folder), processes=1), 0)
    found = [v.judgements for v in (held.warm, held.cold) if v is not None]
    assert found
    for judgement in [j for judgements in found for j in judgements]:
        query = int(judgement.query[1:])
        shown = {(query + k) % DOCUMENTS for k in range(5)}
        assert set(np.flatnonzero(~judgement.left_out(DOCUMENTS)).tolist()) <= shown


def rename(folder: Path, before: str, after: str) -> None:
    corpus = folder / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace(f'"{before}"', f'"{after}"'))


def test_an_evaluation_weighs_queries_as_a_training_does(folder: Path, tmp_path: Path) -> None:
    weights = {(f"q{q}", f"d{(q + 2) % DOCUMENTS:02}"): 1.0 + 9 * (q % 2) for q in range(30, 40)}
    write_values(folder, "weights", "valid", weights)
    # Half of the clicked documents have nothing of their query.
    for q in range(31, 40, 4):
        rename(folder, f"word{q + 2} thing", f"word{q} thing")
    quiet = Reporter(quiet=True)
    trained = train(folder, tmp_path / "out", "shop", recipe="bm25", reporter=quiet)
    read = read_collection(folder)
    found = evaluate(open_bundle(trained.path), read, "valid", ["train"])
    judgements, _ = judge(read, "valid", ["train"])
    given = np.array([judgement.weight for judgement in judgements])
    for name in ("map", "mrr"):
        expected = np.average(found.per_query[name], weights=given)
        assert found.measures[name].mean == pytest.approx(expected)
        assert expected != pytest.approx(found.per_query[name].mean())


def test_a_ranking_is_measured_among_the_shown() -> None:
    # Document i has the score −i, so the fourth of the shown is the first that is relevant.
    bias = -np.arange(DOCUMENTS, dtype=np.float32)
    documents = Encoded(np.zeros((DOCUMENTS, 0), np.float32), Rows.empty(DOCUMENTS, 1), bias)
    query = Encoded(np.zeros((1, 0), np.float32), Rows.empty(1, 1), np.zeros(1, np.float32))
    shown = np.array([7, 20, 30, 41, 50])
    one = np.ones(1, np.int64)
    judgement = Judgement("q", np.array([41]), one, np.array([30]), 1.0, shown)
    found = measure_rankings(Retriever(documents), query, [judgement], documents=DOCUMENTS)
    assert found["mrr"].tolist() == [1 / 3]


@pytest.mark.parametrize("sizes", [[DOCUMENTS], [7, 1, 30, 22]])
@pytest.mark.parametrize("depth", [1, 4, 100])
def test_documents_in_blocks_are_ranked_as_all_together(
    folder: Path, sizes: list[int], depth: int
) -> None:
    corpus = count_collection(read_collection(folder), processes=1)
    valid = validation(corpus, 0)
    assert valid is not None
    rng = np.random.default_rng(3)

    def encoded(count: int) -> Encoded:
        # Few different numbers, so that many scores tie.
        indptr = np.arange(count + 1)
        values = rng.integers(1, 3, count).astype(np.float32)
        sparse = Rows(indptr, rng.integers(0, 3, count).astype(np.int32), values, 3)
        return Encoded.from_rows(sparse, rng.integers(-1, 2, (count, 2)).astype(np.float32))

    documents, queries = encoded(DOCUMENTS), encoded(len(valid.judgements))
    ends = np.cumsum([0, *sizes]).tolist()
    blocks = (documents.slice(a, b) for a, b in pairwise(ends))
    whole = measure_rankings(
        Retriever(documents), queries, valid.judgements,
        documents=DOCUMENTS, depth=depth, with_rank_loss=False,
    )  # fmt: skip
    found = valid.measure_blocks(blocks, queries, depth=depth)
    assert found == estimates(whole, relative_weights(valid.judgements))
