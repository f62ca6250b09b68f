"""The main job on real text: what was learned beats BM25 by far on queries nobody trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.bundle import open_bundle
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evaluate
from fullrank_trainer.train import train


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("language", "floor"), [("en", 0.50), ("ko", 0.44)])
def test_the_fielded_model_learns_from_clicks(
    data_dir: Path, tmp_path: Path, language: str, floor: float
) -> None:
    folder = data_dir / "tldr" / language
    collection = read_collection(folder)
    mrr = {}
    for recipe in ("fielded", "bm25"):
        path = train(folder, tmp_path, recipe, recipe=recipe, reporter=Reporter(quiet=True)).path
        found = evaluate(open_bundle(path), collection, "test", ["train", "valid"])
        mrr[recipe] = found.measures["mrr"].mean
    assert mrr["fielded"] > max(floor, mrr["bm25"] + 0.05)
