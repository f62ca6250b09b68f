"""Acknowledged events survive kill -9 of the service and all its workers, at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundles import at, make_bundle
from tests.faults.killed_events import Survived, survive


def check(root: Path, kills: int, workers: int, seed: int) -> None:
    make_bundle(root, "bm25", created=at(1))
    found = survive(root, kills, workers, seed)
    assert found.acknowledged > kills
    assert found == Survived(found.acknowledged, lost=0, repeated=0)


@pytest.mark.parametrize("workers", [1, 2])
def test_acknowledged_events_survive(tmp_path: Path, workers: int) -> None:
    check(tmp_path, kills=2, workers=workers, seed=workers)


@pytest.mark.slow
def test_acknowledged_events_survive_a_thousand_kills(tmp_path: Path) -> None:
    check(tmp_path, kills=1_000, workers=1, seed=0)
