"""The longer experiment: its candidates, its systems with harder negatives, and the choice of k."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments import longer
from fullrank_trainer.evaluation.judgement import Judgement
from tests.planted import write_planted_links


def test_few_candidates_are_the_same_for_every_system_and_leave_out_the_excluded() -> None:
    relevant, excluded = np.array([3, 70]), np.arange(10, 60)
    judgement = Judgement("q", relevant, np.ones(2, np.int64), excluded)
    rng = np.random.default_rng(1)
    scores = rng.normal(size=100).astype(np.float32)
    grades = longer.grades_among(scores, judgement, 20)
    assert (len(grades), grades.sum()) == (22, 2)
    # An increasing transform changes no rank, so it changes no grade if the candidates are the same.
    assert np.array_equal(grades, longer.grades_among(3 * scores + 1, judgement, 20))
    # With all others as candidates, the ranks are those of the whole ranking without the excluded.
    rows = np.setdiff1d(np.argsort(-scores), excluded, assume_unique=True)
    assert np.array_equal(
        longer.grades_among(scores, judgement, 1000), np.isin(rows, relevant).astype(int)
    )


def test_longer_measures_each_k_and_tests_the_best_on_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_planted_links(tmp_path / "data" / "wikispeedia")
    (folder / "qrels" / "test.tsv").write_bytes((folder / "qrels" / "valid.tsv").read_bytes())
    valid = (folder / "qrels" / "valid.tsv").read_text().splitlines()
    for name, lines in (("valid", valid[1::2]), ("test", valid[2::2])):
        (folder / "qrels" / f"{name}.tsv").write_text("\n".join([valid[0], *lines]) + "\n")
    monkeypatch.setenv("FULLRANK_DATA", str(folder.parent))
    tiny = ["dimension=4", "triples=200", "epochs=2", "trial=50", "rates=0.1", "valid_queries=20"]
    longer.main(
        [
            "--only", "wikispeedia", "--words", "30000", "--hardest", "1,3", "--json",
            "--systems", "tfidf,ssi,ssi-hardest-3", "--queries", "20", "--out", str(tmp_path / "out"),
            *[word for setting in tiny for word in ("--set", setting)],
        ]
    )  # fmt: skip
    result = json.loads(capsys.readouterr().out)
    (table,) = result["tables"]
    assert [row[:3] for row in table["rows"]] == [
        ["tfidf", "I", "1"],
        ["ssi", "UᵀV + I", "1"],
        ["ssi", "UᵀV + I", "3"],
    ]
    assert {one["where"].partition(", ")[2] for one in result["findings"]} == {
        "30,000 words, k = 1",
        "30,000 words, best k",
    }
    assert {one["tested"] for one in result["findings"]} == {"ssi > tfidf"}
    assert {one["measure"] for one in result["findings"]} == {"rank_loss", "map", "MAP of 10k"}
