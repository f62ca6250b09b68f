"""What the benchmark of the loop prints, of rounds and experiments that are given."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.clicks import loop
from benchmarks.clicks.people import World
from benchmarks.clicks.rounds import Policy, Round
from fullrank.encoding import Int64
from fullrank.experiment.decisions import Verdict

BM25, LABELS = 0.4, 0.6
# After the last round, of the first seed; each further seed has .01 more.
MRR = {"weighted": 0.5, "naive": 0.42}


class Bench:
    """Has trained everything."""

    def __init__(self, source: Path, work: Path, *_: object) -> None:
        self.source, self._work = source, work
        documents = [str(number) for number in range(40)]
        self.collection = SimpleNamespace(documents=documents, answers=[{0}, {10}])

    def train(self, name: str, folder: Path | None = None, recipe: str | None = None) -> Path:
        bundle = self._work / name / f"{name}-1"
        bundle.mkdir(parents=True, exist_ok=True)
        return bundle

    def mrr(self, bundle: Path) -> float:
        return BM25 if bundle.parent.name == "bm25" else LABELS

    def rankings(self, bundle: Path) -> Int64:
        # The true labels have documents 0 to 19 on their first pages, and each answer on the first place.
        found = np.array([range(10), range(10, 20)])
        return found if bundle.parent.name == "labels" else found[:, ::-1]


def given_rounds(
    _: Bench, label: str, world: World, policy: Policy, *, seed: int, **__: object
) -> list[Round]:
    last = MRR["weighted" if policy.rule == "mixture" else policy.rule] + 0.01 * (seed - 1)
    serving = [BM25, 0.45, 0.45, last]
    shown = frozenset(str(number) for number in range(19))
    return [
        Round(mrr, serves, 1.1, (0.9, 1.3), shown, 1000, 0.9, 0.95, (0.7, 0.6, 0.5))
        for mrr, serves in zip((0.41, 0.43, 0.45, last), serving, strict=True)
    ]


def given_experiment(
    _: object, active: Int64, candidate: Int64, __: World, *, seed: int, **___: object
) -> SimpleNamespace:
    return SimpleNamespace(
        verdict=Verdict.PROMOTE if seed % 2 == 0 else Verdict.STOP, votes=100 + seed % 2
    )


@pytest.fixture
def printed(
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Any:
    """Runs the benchmark with some arguments; returns what it printed."""
    (tmp_path / "tldr").mkdir()
    (tmp_path / "tldr" / "en").symlink_to(source)
    monkeypatch.setattr(loop, "Workbench", Bench)
    monkeypatch.setattr(loop, "run_rounds", given_rounds)
    monkeypatch.setattr(loop, "run_experiment", given_experiment)
    monkeypatch.setattr(loop, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(loop, "machine", lambda _: {})

    def run(*arguments: str) -> dict[str, Any]:
        loop.main(["--json", "--work", str(tmp_path), *arguments])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def test_the_figures_are_those_of_the_runs(printed: Any) -> None:
    asked = ("--worlds", "eta=1", "--policies", "weighted,naive", "--seeds", "1,2,3")
    found = printed(*asked)
    assert found["gap_closed"] == pytest.approx((0.51 - BM25) / (LABELS - BM25))
    assert found["naive_gap_closed"] == pytest.approx((0.43 - BM25) / (LABELS - BM25))
    assert found["clean_gap_closed"] == pytest.approx(found["gap_closed"])
    assert found["eta_interval"] == pytest.approx([0.9, 1.3])
    assert found["coverage"] == pytest.approx(19 / 20)
    assert found["worlds"]["eta=1"]["naive"]["mrr"] == pytest.approx([0.41, 0.43, 0.45, 0.43])
    # Every second seed promotes.
    assert [found[f"promoted_{name}"] for name in ("equal", "worse", "better")] == [0.5] * 3
    assert [found[f"runs_{name}"] for name in ("equal", "worse", "better")] == [400, 200, 200]
