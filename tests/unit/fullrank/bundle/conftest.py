"""A bundle of the tiny planted model, written anew for each test."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from fullrank.bundle import open as loading
from fullrank.bundle import write as publish
from fullrank.bundle import write_bundle
from fullrank.models.contract import Model, Parts
from fullrank.models.registry import load_model
from tests.words_bundle import CREATED, WordsModel, planted


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles whose kind is "words" load as WordsModel, and forty documents have an index."""
    monkeypatch.setattr(publish, "INDEXED_FROM", 40)
    monkeypatch.setattr(publish, "FAST_FROM", 40)

    def load(parts: Parts) -> Model:
        if parts.config["kind"] != "words":
            return load_model(parts)
        return cast(Model, WordsModel(parts.strings["words"], parts.arrays["U"]))

    monkeypatch.setattr(loading, "load_model", load)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "bundles"


@pytest.fixture
def written(root: Path) -> Path:
    return write_bundle(root, "planted", **planted(), created=CREATED)
