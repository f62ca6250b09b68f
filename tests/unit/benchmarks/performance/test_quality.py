"""The benchmarks on a planted collection: they run, and their JSON has the shape that is read."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import Measured, run_measured
from benchmarks.performance import quality
from fullrank import cli
from fullrank_trainer.collection import read_collection
from tests.planted import write_planted

pytestmark = pytest.mark.usefixtures("few_made_up_words")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder laid out as the shared one, tldr/en with its corpus above it."""
    folder = tmp_path / "data"
    planted = write_planted(folder / "tldr" / "en")
    shutil.move(planted / "corpus.jsonl", folder / "tldr" / "corpus.jsonl")
    write_planted(folder / "wikispeedia")
    monkeypatch.setenv("FULLRANK_DATA", str(folder))
    return folder


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def measured_here(arguments: Sequence[str]) -> Measured:
    """Run a command in this process."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.setattr(sys, "argv", ["fullrank", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    assert not stopped.value.code
    return Measured(out.getvalue(), 0.0, 0.0, 0.0, 0.0)


@pytest.mark.sweep
def test_quality_trains_and_measures_through_the_command(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first training and the first evaluation are processes of their own."""
    run, names = run_measured, set[str]()

    def measured(arguments: Sequence[str]) -> Measured:
        if arguments[0] in names:
            return measured_here(arguments)
        names.add(arguments[0])
        return run(arguments)

    monkeypatch.setattr(quality, "run_measured", measured)
    out = tmp_path / "bundles"
    asked = ["--only", "tldr/en", "--recipe", "tfidf", "--seeds", "1,2", "--cost"]
    with pytest.raises(SystemExit) as stopped:
        quality.main(["--json", "--out", str(out), *asked])
    result = printed(capsys)
    line = result["collections"]["tldr/en"]
    assert stopped.value.code == (0 if result["passed"] else 1)
    assert result["recipe"] == "tfidf"
    assert (line["metric"], line["floor"], line["split"]) == ("mrr", 0.6, "test")
    assert line["value"] == line["tfidf"] == line["measures"]["mrr"]["mean"]
    assert line["seeds"] == [1, 2]
    assert line["values"] == [line["value"]] * 2
    assert line["query_us"]["encode"] > 0
    assert line["queries"] == 36
    assert 0 < line["bm25s"] <= 1
    assert line["train_seconds"] > 0
    assert 0.01 < line["train_peak_gib"] < 4
    assert Path(line["bundle"]).parent == out / "tldr-en"
    assert {"processor", "cores", "versions"} <= set(result["machine"])


def test_a_cold_collection_is_tested_on_documents_that_training_never_judged(
    data: Path, tmp_path: Path
) -> None:
    folder = quality.folder_of("tldr/en cold", data, tmp_path)
    collection = read_collection(folder)
    judged = {
        split: {d for grades in collection.qrels(split).values() for d in grades}
        for split in ("train", "valid", "test")
    }
    assert judged["test"]
    assert judged["test"].isdisjoint(judged["train"] | judged["valid"])
    assert len(collection.documents) == len(read_collection(data / "tldr" / "en").documents)
    assert quality.folder_of("tldr/en", data, tmp_path) == (data / "tldr" / "en").resolve()


def test_a_missing_collection_is_named(data: Path) -> None:
    shutil.rmtree(data / "wikispeedia")
    with pytest.raises(SystemExit) as stopped:
        quality.main(["--only", "wikispeedia"])
    assert str(data / "wikispeedia") in str(stopped.value.code)
