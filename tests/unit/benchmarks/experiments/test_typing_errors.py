"""Random edits, and the experiment on a planted collection whose queries are words of one document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.experiments import typing_errors
from benchmarks.experiments.edits import EDITS, NEAR_KEYS, has_word, mistype, mistyped
from fullrank.text.words import words
from tests.planted import write_lines, write_qrels
from tests.unit.fullrank.text.test_spelling import distance

DOCUMENTS = 60


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(st.text("abcxyz", min_size=4, max_size=9), st.integers(0, 10_000))
def test_a_mistyped_word_is_one_edit_away(word: str, seed: int) -> None:
    assert distance(word, mistype(word, rng(seed))) == 1


@given(st.integers(0, 10_000))
def test_one_word_of_four_letters_changes(seed: int) -> None:
    text = "List all x86_64 files, sort1 by a date!"
    before, after = words(text), words(mistyped(text, rng(seed)))
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert len(changed) == 1
    assert changed[0][0] in ("list", "files", "date")


def test_a_text_without_a_word_to_edit_stays() -> None:
    assert not has_word("ls -al x86_64 dir1000 a_b")
    assert mistyped("ls -al x86_64", rng(1)) == "ls -al x86_64"
    assert has_word("größe")


def test_every_kind_of_edit_occurs_and_replacements_are_often_near() -> None:
    found = [mistype("number", rng(seed)) for seed in range(400)]
    lengths = [len(word) for word in found]
    assert 60 < lengths.count(5) < 140
    assert 60 < lengths.count(7) < 140
    same = [word for word in found if len(word) == 6]
    replaced = [
        (a, b)
        for word in same
        if sorted(word) != sorted("number")
        for a, b in zip("number", word, strict=True)
        if a != b
    ]
    near = sum(b in NEAR_KEYS[a] for a, b in replaced)
    assert 0.4 < near / len(replaced) < 0.9
    assert len(EDITS) == 4


def test_keys_are_near_in_both_directions() -> None:
    assert set(NEAR_KEYS["g"]) == set("fhtyvb")
    assert all(a in NEAR_KEYS[b] for a, near in NEAR_KEYS.items() for b in near)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Documents of eight made-up words each; a query is three words of its document."""
    folder = tmp_path / "tldr" / "en"
    vocabulary = typing_errors.made_up_words(400, rng(1))
    corpus, queries, splits = [], [], {"train": [], "valid": [], "test": []}  # type: ignore[var-annotated]
    for i in range(DOCUMENTS):
        picked = [vocabulary[j] for j in rng(i).choice(len(vocabulary), 8, replace=False).tolist()]
        corpus.append({"_id": f"d{i}", "text": " ".join(picked)})
        for split, part in zip(splits, (picked[:3], picked[3:5], picked[5:7]), strict=True):
            queries.append({"_id": f"{split}{i}", "text": " ".join(part)})
            splits[split].append((f"{split}{i}", f"d{i}"))
    queries.append({"_id": "short", "text": "ls"})
    splits["test"].append(("short", "d0"))
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", queries)
    for split, pairs in splits.items():
        write_qrels(folder / "qrels" / f"{split}.tsv", pairs)
    return tmp_path


def test_corrections_restore_what_edits_cost(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FULLRANK_DATA", str(data))
    arguments = ["--systems", "bm25s,bm25", "--words", "500", "--out", str(tmp_path / "out")]
    typing_errors.main([*arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    valid, test, costs = found["tables"]
    assert valid["title"].startswith("tldr/en, valid: 60 queries")
    assert test["title"].startswith("tldr/en, test: 60 queries")  # not the one without a long word
    assert [row[1] for row in valid["rows"]] == [
        "–", "discount 0.5", "discount 0.7", "discount 0.85", "discount 1"
    ]  # fmt: skip
    assert [row[0] for row in test["rows"]] == ["bm25s", "bm25", "bm25"]
    _, plain, corrected = test["rows"]
    # Every word is known, so queries without an error do not change.
    assert plain[2] == corrected[2]
    assert float(plain[4]) < 0.97 < float(corrected[4])
    assert len(costs["rows"]) == 8
    # A second run reads the stored results and the bundle.
    typing_errors.main([*arguments, "--json"])
    assert json.loads(capsys.readouterr().out)["tables"][:2] == found["tables"][:2]
    assert len(list((tmp_path / "out" / "bundles" / "bm25").iterdir())) == 1
