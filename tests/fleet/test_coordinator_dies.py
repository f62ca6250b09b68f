"""The coordinator is killed in each phase of a swap, under searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fullrank_fleet.serving.actors import stop_fleet
from tests.fleet import dying
from tests.fleet.support import Sets, activate, router, searches, wait_until_served
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def active(sets: Sets) -> tuple[int, str]:
    value = json.loads((sets.root / "active.json").read_text())
    return value["generation"], value["version"]


def test_a_swap_is_done_or_has_changed_nothing(cluster: Any, ray: Any, tmp_path: Path) -> None:
    sets, file = Sets(tmp_path / "fleet"), tmp_path / "point"
    dying.start(file, sets.root, tmp_path / "cache")
    try:
        with router(cluster.address, sets.root, tmp_path) as (url, _):
            generation, version = 1, active(sets)[1]
            wait_until_served(url, version)
            with searches(url, sets) as load:
                for number, point in enumerate(dying.POINTS):
                    target = sets.another(2 * number)
                    file.write_text(point)
                    died = activate(cluster.address, sets, target)
                    assert not file.exists(), (point, died)
                    assert died.returncode == 1
                    [line] = died.stderr.splitlines()
                    assert "the coordinator died during the swap" in line
                    if point == dying.AFTER_COMMIT:
                        generation, version = generation + 1, target
                    assert active(sets) == (generation, version)
                    # Routers learn of a commit from the coordinator that Ray starts next.
                    wait_until_served(url, version)
                    generation, version = generation + 1, sets.another(2 * number + 1)
                    assert activate(cluster.address, sets, version).returncode == 0
                    assert active(sets) == (generation, version)
                    wait_until_served(url, version)
                wait_until(
                    lambda: generation in load.generations, f"generation {generation} answers"
                )
            load.check()
            assert sorted(load.generations) == list(range(1, generation + 1))
    finally:
        stop_fleet()
