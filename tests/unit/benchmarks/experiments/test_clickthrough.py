"""Weights by cross validation, and the clickthrough experiment on a planted collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.experiments import clickthrough, crossing
from benchmarks.experiments.folds import halves
from benchmarks.harness.measuring import ranked
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.judgement import Judgement, judge
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.train import Candidate, Trainer
from tests.planted import write_planted

QUICK = ("epochs=4", "model.dimension=6")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared folder, with a planted tldr/en."""
    root = tmp_path_factory.mktemp("data")
    write_planted(root / "tldr" / "en")
    return root


@pytest.fixture(scope="module")
def trainer(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    source = read_collection(planted / "tldr" / "en")
    out = tmp_path_factory.mktemp("out")
    return Trainer(source, Reporter(quiet=True), out, "x", seed=1, threads=1, resume=False)


@pytest.fixture(scope="module")
def judgements(trainer: Trainer) -> list[Judgement]:
    return judge(trainer.collection, "test", ["train", "valid"])[0]


def fitted(trainer: Trainer, name: str, *overrides: str) -> Candidate:
    return trainer.search(load_recipe(name).override([*QUICK, *overrides]))


def test_measures_of_scores_are_those_of_a_ranking() -> None:
    """Ties by row; what is excluded stands nowhere."""
    judgement = Judgement("q", np.array([1, 4]), np.array([1, 1]), np.array([0]))
    found = crossing.measures_of(np.array([9.0, 3.0, 3.0, 5.0, 1.0]), judgement)
    # The ranking is 3, 1, 2, 4: relevant at the places 2 and 4.
    assert found["map"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert found["mrr"] == 0.5
    assert found["ndcg@1"] == 0


@pytest.mark.parametrize("weights", [("lambda2=0",), ("lambda2=0.5",)])
def test_each_half_has_the_measures_of_its_weights(
    trainer: Trainer, judgements: list[Judgement], weights: tuple[str, ...]
) -> None:
    found = fitted(trainer, "bltm", "lambda1=0.2", *weights)
    crossed = crossing.crossed_weights(trainer, found.fitted, judgements)
    for rows in halves(len(judgements)):
        (lambda1,), (lambda2,) = (np.unique(crossed[name][rows]) for name in ("lambda1", "lambda2"))
        again = fitted(trainer, "bltm", f"lambda1={lambda1}", f"lambda2={lambda2}")
        values = ranked(trainer, again.fitted, judgements)
        for name in ("map", "ndcg@1", "ndcg@10", "mrr"):
            np.testing.assert_allclose(crossed[name][rows], values[name][rows], atol=1e-12)
        assert lambda2 == 0 or weights != ("lambda2=0",)


def test_cross_validated_alpha_equals_the_served_mix(
    trainer: Trainer, judgements: list[Judgement]
) -> None:
    found = fitted(trainer, "lsi-tfidf", "trials=model.alpha=0.5")
    crossed = crossing.crossed_alpha(trainer, found.fitted, judgements)
    for rows in halves(len(judgements)):
        (alpha,) = np.unique(crossed["alpha"][rows])
        again = fitted(trainer, "lsi-tfidf", f"trials=model.alpha={alpha}")
        values = ranked(trainer, again.fitted, judgements)
        np.testing.assert_allclose(crossed["ndcg@10"][rows], values["ndcg@10"][rows], atol=1e-6)


def test_clickthrough_reports_weights_and_p_values(
    planted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FULLRANK_DATA", str(planted))
    arguments = [
        "--systems",
        "tfidf,bm25,unigram,bltm,bltm-pr,lsa-tfidf",
        "--out",
        str(tmp_path),
        "--json",
    ]
    settings = [word for setting in QUICK for word in ("--set", setting)]
    clickthrough.main([*arguments, *settings])
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    tables = {table["title"].split(":")[0]: table for table in told["tables"]}
    assert list(tables) == [
        "tldr/en, language models", "tldr/en, projections", "tldr/en, others", "tldr/en"
    ]  # fmt: skip
    assert [row[0] for row in tables["tldr/en, language models"]["rows"]] == [
        "unigram", "bltm", "bltm-pr"
    ]  # fmt: skip
    assert "paper" in tables["tldr/en, language models"]["headings"]
    settings = [row[-1] for row in tables["tldr/en, language models"]["rows"]]
    assert settings[0].startswith("λ₁ = ")
    assert settings[0].endswith(", λ₂ = 1")
    assert settings[1].startswith("epoch 4 of 4, λ₁ = ")
    assert tables["tldr/en, projections"]["rows"][0][-1] == "–"
    assert tables["tldr/en, projections"]["rows"][1][-1].startswith("N = 6, α = ")
    p = tables["tldr/en"]["rows"]
    assert len(p) == 6
    # What the line has against the column, the column has against the line.
    for i in range(6):
        assert p[i][3 + i] == ""
        for j in range(i):
            assert {p[i][3 + j][0], p[j][3 + i][0]} in ({"+", "−"}, {"−"})
            assert p[i][3 + j][1:] == p[j][3 + i][1:]
    verdicts = {finding["tested"]: finding["verdict"] for finding in told["findings"]}
    assert verdicts["bltm-pr > unigram"] != "not tested"
    assert verdicts["dssm > s2net"] == verdicts["dssm-modern ≥ fielded"] == "not tested"
    assert [Path(plot).read_text()[:5] for plot in told["plots"]] == ["<?xml"]
