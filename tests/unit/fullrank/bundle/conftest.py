"""A bundle of the tiny planted model, a copy for each test."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import pytest

from fullrank.bundle import open as loading
from fullrank.bundle import write as publish
from fullrank.models.contract import Model, Parts
from fullrank.models.registry import load_model
from tests.bundles import write_bundle
from tests.words_bundle import CREATED, WordsModel, planted


def register(patch: pytest.MonkeyPatch) -> None:
    """Load bundles whose kind is "words" as WordsModel, and let forty documents have an index."""
    patch.setattr(publish, "INDEXED_FROM", 40)
    patch.setattr(publish, "FAST_FROM", 40)

    def load(parts: Parts) -> Model:
        if parts.config["kind"] != "words":
            return load_model(parts)
        return cast(Model, WordsModel(parts.strings["words"], parts.arrays["U"]))

    patch.setattr(loading, "load_model", load)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "bundles"


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle that `written` copies; no test may change it."""
    with pytest.MonkeyPatch.context() as patch:
        register(patch)
        root = tmp_path_factory.mktemp("planted")
        return write_bundle(root, "planted", **planted(), created=CREATED)


@pytest.fixture
def written(root: Path, original: Path) -> Path:
    shutil.copytree(original.parents[1], root)
    return root / original.relative_to(original.parents[1])
