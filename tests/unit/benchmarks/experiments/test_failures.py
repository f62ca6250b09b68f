"""Failed queries of a bundle: which they are, and what the table says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.experiments.failures import failures, main
from fullrank.bundle import open_bundle
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evaluate
from fullrank_trainer.train import train
from tests.planted import write_planted


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a bundle that knows only words, and its collection, whose queries have other words."""
    root = tmp_path_factory.mktemp("failures")
    folder = write_planted(root / "planted")
    found = train(folder, root / "bundles", "p", recipe="tfidf", reporter=Reporter(quiet=True))
    return found.path, folder


def test_the_failed_queries_are_those_without_an_early_answer(trained: tuple[Path, Path]) -> None:
    bundle, collection = open_bundle(trained[0]), read_collection(trained[1])
    every, queries = failures(bundle, collection, "test", 0)
    assert len(every) == queries
    found = evaluate(bundle, collection, "test", ["train", "valid"])
    mean = sum(1 / failure.rank for failure in every) / queries
    assert mean == pytest.approx(found.measures["mrr"].mean, abs=1e-9)
    late, _ = failures(bundle, collection, "test", 5)
    assert late == [failure for failure in every if failure.rank > 5]
    assert late
    # The first document has the higher score, so the differences add up to something positive.
    assert all(sum(failure.difference) >= -1e-6 for failure in late)


def test_the_command_prints_a_table_or_json(
    trained: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    options = [str(trained[0]), str(trained[1]), "--below", "3", "--count", "4"]
    main([*options, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert len(result["failures"]) == 4 <= result["failed"] <= result["queries"]
    main([*options, "--markdown"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"### 4 of {result['failed']} failed queries")
    assert len([line for line in lines if line.startswith("|")]) == 6
    main(options)
    assert "failed queries" in capsys.readouterr().out
