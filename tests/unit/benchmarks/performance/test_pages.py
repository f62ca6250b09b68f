"""The benchmark of linked pages, on a few."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from benchmarks.performance import planted, training
from benchmarks.performance.resample import Source
from fullrank_trainer.collection import read_collection

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("few_made_up_words")]


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Resample 500 documents of random words."""
    draw = random.Random(7)

    def sentence() -> str:
        return " ".join(f"w{draw.randrange(3000)}" for _ in range(10)) + "."

    lines = [
        {"_id": f"p{i}", "title": f"p{i}: {sentence()}", "text": sentence() * 3, "section": "s"}
        for i in range(500)
    ]
    monkeypatch.setattr(planted, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(planted, "read_source", lambda _: Source(lines))


def test_a_third_of_the_pages_links_others(tmp_path: Path) -> None:
    links = planted.write_pages(tmp_path, 300)
    collection = read_collection(tmp_path)
    assert len(collection.documents) == 300
    qrels = [collection.qrels(split) for split in ("train", "valid")]
    assert sum(len(found) for split in qrels for found in split.values()) == links > 200
    # A page is the best of every pool that has it, and no link leads to itself; of so few pages many are left without.
    assert 50 < len({page for split in qrels for page in split}) <= 100
    assert not any(page in found for split in qrels for page, found in split.items())


def test_the_figures_are_those_of_a_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training.main(["--pages", "200", "--recipe", "tfidf", "--work", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["recipe"]) == (200, "tfidf")
    assert found["train_seconds"] > 0
    assert 0.05 < found["train_peak_gib"] < 3
    assert list((tmp_path / "out").glob("*/*/manifest.json"))
