"""The second stage of a training: when it is kept, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import RecipeError, TrainingError
from fullrank.measures import Estimate
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evaluate
from tests.planted import write_lines, write_planted, write_qrels

pytest.importorskip("tests.openmp", exc_type=ImportError)

from fullrank_trainer.rerank import decide
from fullrank_trainer.rerank.decide import MIN_QUERIES, require_queries, verdict
from fullrank_trainer.train import train


def write_clicked(folder: Path) -> Path:
    """Pairs of documents with equal text; people choose the one that more training queries chose before."""
    rng = np.random.default_rng(1)
    documents, queries = [], []
    pairs: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for topic in range(60):
        words = [f"w{topic}{letter}" for letter in "abc"]
        wanted = rng.integers(2)
        documents += [
            {"_id": f"d{topic}-{side}", "title": " ".join(words), "text": "page"}
            for side in range(2)
        ]
        for number in range(4):
            split = "train" if number < 2 else ("valid", "test")[number - 2]
            queries.append({"_id": f"q{topic}-{number}", "text": f"{words[number % 3]} {split}"})
            pairs[split].append((f"q{topic}-{number}", f"d{topic}-{wanted}"))
        queries.append({"_id": f"q{topic}-other", "text": "other"})
        pairs["train"].append((f"q{topic}-other", f"d{topic}-{1 - wanted}"))
    write_lines(folder / "corpus.jsonl", documents)
    write_lines(folder / "queries.jsonl", queries)
    for split, found in pairs.items():
        write_qrels(folder / "qrels" / f"{split}.tsv", found)
    return folder


def test_a_stage_that_helps_is_kept_and_helps_on_the_test_split(tmp_path: Path) -> None:
    folder = write_clicked(tmp_path / "clicked")
    options = {"recipe": "bm25", "threads": 1}
    plain = train(folder, tmp_path / "out", "plain", **options)  # type: ignore[arg-type]
    staged = train(folder, tmp_path / "out", "staged", rerank=True, **options)  # type: ignore[arg-type]
    bundle, collection = open_bundle(staged.path), read_collection(folder)
    card = bundle.card["second_stage"]
    assert bundle.second_stage is not None
    assert card["on"]
    assert card["gain"]["map"] > 0.1
    assert card["gain"]["map"] == pytest.approx(card["second"]["map"] - card["first"]["map"])
    assert next(iter(card["features"])) in {"clicks", "lexical.clicked", "length.clicked"}
    measured = [
        evaluate(b, collection, "test").measures["map"].mean
        for b in (open_bundle(plain.path), bundle)
    ]
    assert measured[1] > measured[0] + 0.1
    again = train(folder, tmp_path / "again", "staged", rerank=True, **options)  # type: ignore[arg-type]
    assert again.path.name[-8:] == staged.path.name[-8:]


def test_a_stage_that_does_not_gain_is_left_out(tmp_path: Path) -> None:
    folder = write_clicked(tmp_path / "clicked")
    texts = {f"d{topic}-{side}": topic for topic in range(60) for side in range(2)}
    # Without clicks and with a title of its own for each document there is nothing to learn.
    write_lines(
        folder / "corpus.jsonl",
        [{"_id": id, "title": f"w{topic}c unique{id}"} for id, topic in texts.items()],
    )
    (folder / "qrels" / "train.tsv").unlink()
    rng = np.random.default_rng(2)
    pairs = [(f"q{topic}-2", f"d{topic}-{rng.integers(2)}") for topic in range(60)]
    write_qrels(folder / "qrels" / "valid.tsv", pairs)
    found = train(folder, tmp_path / "out", "plain", recipe="bm25", threads=1, rerank=True)
    bundle = open_bundle(found.path)
    card = bundle.card["second_stage"]
    assert card["reason"].startswith("off: it gains")
    assert not card["on"]
    assert bundle.second_stage is None
    assert bundle.search("w1c").reordered == 0


@pytest.mark.parametrize(
    ("gain", "ms", "on"),
    [(0.005, 2.0, True), (0.0049, 0.1, False), (0.5, 2.01, False), (-0.1, 0.1, False)],
)
def test_the_rule_asks_for_a_gain_and_for_little_time(gain: float, ms: float, on: bool) -> None:
    found, reason = verdict(Estimate(gain, 0.002), ms)
    assert found is on
    assert reason.startswith("on: " if on else "off: ")


def test_a_gain_that_may_be_luck_is_not_enough() -> None:
    assert verdict(Estimate(0.006, 0.0031), 1.0)[0] is False
    assert verdict(Estimate(0.006, 0.0029), 1.0)[0] is True


def test_a_second_stage_is_tried_unasked_where_it_may_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.train.MANY", 20)
    folder, small = write_clicked(tmp_path / "clicked"), ["blend.recipes=bm25;tfidf"]

    def has_stage(name: str, **options: object) -> bool:
        found = train(folder, tmp_path / "out", name, threads=1, overrides=small, **options)  # type: ignore[arg-type]
        return "second_stage" in open_bundle(found.path).card

    assert has_stage("unasked")
    assert not has_stage("refused", rerank=False)
    assert not has_stage("limited", seconds=30)
    monkeypatch.setattr("fullrank_trainer.train.MANY", 10_000)
    assert not has_stage("few")


def test_a_collection_without_a_validation_split_is_refused_first(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "planted", splits=("train", "test"))
    with pytest.raises(TrainingError, match="learns from a split 'valid'"):
        train(folder, tmp_path / "out", "mine", recipe="bm25", rerank=True)
    assert not (tmp_path / "out").exists()


def test_queries_that_the_model_learns_cannot_teach_a_second_stage(tmp_path: Path) -> None:
    folder, out = write_clicked(tmp_path / "clicked"), tmp_path / "out"
    with pytest.raises(RecipeError, match=r"^blend\.learn_valid: the second stage"):
        train(folder, out, "mine", overrides=["blend.learn_valid=true"], rerank=True)
    assert not out.exists()


def test_too_few_validation_queries_are_refused(tmp_path: Path) -> None:
    folder = write_clicked(tmp_path / "clicked")
    pairs = [(f"q{topic}-2", f"d{topic}-0") for topic in range(MIN_QUERIES - 1)]
    write_qrels(folder / "qrels" / "valid.tsv", pairs)
    with pytest.raises(TrainingError, match=f"needs {MIN_QUERIES} queries"):
        require_queries(read_collection(folder))
    write_qrels(folder / "qrels" / "valid.tsv", [*pairs, ("q59-2", "d59-0")])
    require_queries(read_collection(folder))


def test_a_slow_stage_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "MAX_MS", 0.0)
    folder = write_clicked(tmp_path / "clicked")
    found = train(folder, tmp_path / "out", "slow", recipe="bm25", threads=1, rerank=True)
    bundle = open_bundle(found.path)
    assert bundle.second_stage is None
    assert "it may take 0.0 ms" in bundle.card["second_stage"]["reason"]
