"""Finished results: found again while their identity holds, and only whole ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.store import Result, Store, folder_fingerprint, recipe_identity, slug
from fullrank_trainer.recipes.recipe import load_recipe

IDENTITY = {"recipe": recipe_identity(load_recipe("ssi")), "seed": 1, "exclude": ("train",)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "out")


def save(store: Store, identity: Any = IDENTITY) -> Result:
    values = {"map": np.array([0.5, 1.0]), "rank_loss": np.array([0.1, 0.3])}
    return store.save(
        "wiki, 30,000 words", "ssi p=10", identity, ["a", "b"], values, {"note": np.inf}
    )


def test_a_saved_result_loads_unchanged(store: Store) -> None:
    saved = save(store)
    found = store.load("wiki, 30,000 words", "ssi p=10", IDENTITY)
    assert found is not None
    assert found.facts == saved.facts
    assert found.facts["note"] is None, "JSON has no infinity"
    assert found.queries == ["a", "b"]
    np.testing.assert_array_equal(found.values["rank_loss"], [0.1, 0.3])
    assert found.estimate("map").mean == found.facts["measures"]["map"]["mean"] == 0.75


def test_a_changed_setting_makes_a_result_stale(store: Store) -> None:
    save(store)
    other = load_recipe("ssi").override(["dimension=7"])
    for identity in ({**IDENTITY, "seed": 2}, {**IDENTITY, "recipe": recipe_identity(other)}):
        assert store.load("wiki, 30,000 words", "ssi p=10", identity) is None
    assert store.load("another", "ssi p=10", IDENTITY) is None


def test_files_of_two_results_do_not_load_as_one(store: Store) -> None:
    save(store)
    (values,) = store.folder.glob("*/*.npz")
    first = values.read_bytes()
    save(store)
    values.write_bytes(first)
    assert store.load("wiki, 30,000 words", "ssi p=10", IDENTITY) is None
    values.write_bytes(first[:40])
    assert store.load("wiki, 30,000 words", "ssi p=10", IDENTITY) is None
    assert sorted(path.suffix for path in values.parent.iterdir()) == [".json", ".npz"]


def test_names_become_file_names() -> None:
    assert slug("wikispeedia, 30,000 words") == "wikispeedia-30-000-words"
    assert slug("htr γ=0") != slug("htr") != slug("ssi p=10")


def test_a_folder_is_fingerprinted_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "en" / "qrels").mkdir(parents=True)
    (tmp_path / "corpus.jsonl").write_text("{}")
    (tmp_path / "en" / "queries.jsonl").write_text("{}")
    seen = {folder_fingerprint(tmp_path / "en")}
    for name in ("corpus.jsonl", "en/queries.jsonl", "en/qrels/train.tsv", "qrels.txt"):
        (tmp_path / name).write_text("changed")
        seen.add(folder_fingerprint(tmp_path / "en"))
    assert len(seen) == 4, "a file above that is no corpus does not count"
