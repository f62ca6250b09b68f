"""The comparison with and without word vectors: shares of queries, paired gains, and a tiny run with resuming."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments import word_vectors
from benchmarks.experiments.word_vectors import rows_of, some_queries
from benchmarks.harness.store import Result
from fullrank_trainer.train import Trainer
from tests.planted import write_planted

TINY = ["dimension=4", "epochs=1", "batch=32", "candidates=30", "members=1"]


def test_a_share_keeps_whole_queries() -> None:
    links = [(f"q{i % 40}", f"d{i}") for i in range(100)]
    kept = some_queries(links, 10)
    queries = {query for query, _ in kept}
    assert len(queries) == 4
    assert kept == [link for link in links if link[0] in queries]
    assert some_queries(links, 10) == kept
    assert len({query for query, _ in some_queries(links, 1)}) == 1
    assert some_queries(links, 100) == links


def result(values: list[float], valid: float) -> Result:
    facts = {"valid": {"map": valid}, "training": {"best_epoch": 2}, "fit_seconds": 3}
    rows = {measure: np.array(values) for measure in word_vectors.MEASURES}
    return Result(facts, [f"q{i}" for i in range(len(values))], rows)


def test_the_gain_is_paired_over_queries_after_the_mean_over_seeds() -> None:
    """Gains of the two queries: (0.2 + 0.4) / 2 = 0.3 and (0 + 0.2) / 2 = 0.1; their mean 0.2, standard error 0.1."""
    found = {
        "plain": [result([0.1, 0.5], 0.3), result([0.1, 0.3], 0.5)],
        "with": [result([0.3, 0.5], 0.4), result([0.5, 0.5], 0.6)],
    }
    first, second = rows_of("all", ["plain", "with"], found)
    assert first[:3] == ["all", "plain", "0.4000"]
    assert second[:3] == ["all", "with", "0.5000"]
    assert first[-3] == "–"
    assert second[-3] == "+0.2000 ± 0.1000"
    assert second[3].startswith("0.450")
    assert rows_of("all", ["plain", "with"], {"plain": found["plain"]}) == [first]


def test_the_comparison_runs_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_planted(tmp_path / "data" / "tldr" / "en")
    monkeypatch.setenv("FULLRANK_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(word_vectors, "SHARES", (10, 100))
    words, vectors = tmp_path / "words.txt", tmp_path / "some.vec"
    word_vectors.main(["--words", str(words), "--out", str(tmp_path / "out")])
    known = words.read_text().splitlines()
    assert {"ask0a", "tell5d", "decoy3"} <= set(known)
    rng = np.random.default_rng(1)
    lines = (f"{word} {' '.join(map(str, rng.random(6).tolist()))}" for word in known)
    vectors.write_text("\n".join(lines) + "\n")
    capsys.readouterr()

    arguments = [
        "--vectors",
        str(vectors),
        "--seeds",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    arguments += [word for setting in TINY for word in ("--set", setting)]
    word_vectors.main(arguments)
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert [row[:2] for row in table["rows"]] == [
        ["10 %, 2 seeds", "fielded"], ["10 %, 2 seeds", "fielded + vectors"],
        ["100 %, 2 seeds", "fielded"], ["100 %, 2 seeds", "fielded + vectors"],
        ["100 %, 1 seed", "clicked"], ["100 %, 1 seed", "clicked + vectors"],
    ]  # fmt: skip
    assert len(table["notes"]) == 3
    assert len(list((tmp_path / "out").glob("seed-2/*/*.json"))) == 4

    # Only the fits that read the file are run again when it changes.
    fitted: list[str] = []
    search = Trainer.search

    def watched(self: Trainer, recipe: object) -> object:
        fitted.append(recipe.train.vectors)  # type: ignore[attr-defined]
        return search(self, recipe)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "search", watched)
    vectors.write_text(vectors.read_text().upper())
    word_vectors.main(arguments)
    assert fitted == [str(vectors)] * 5


def test_one_of_the_two_files_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--vectors", "a", "--words", "b"]):
        with pytest.raises(SystemExit) as stopped:
            word_vectors.main(arguments)
        assert stopped.value.code == 2
    assert "name either --vectors or --words" in capsys.readouterr().err
