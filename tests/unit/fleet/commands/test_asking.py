"""Commands whose coordinator dies or freezes end soon, with an error that says what is unknown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fullrank.cli import main
from fullrank.errors import FullrankError
from fullrank_fleet.commands import models, serve
from fullrank_fleet.serving import waiting
from fullrank_fleet.serving.coordinator import Snapshot
from tests.unit.fleet.commands.actors import RAY, Actor, joined


@pytest.fixture
def actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Actor:
    found = Actor(
        Snapshot(
            1, 4, "shop-1", f"{tmp_path}/sets/shop/shop-1", root=f"{tmp_path}/sets", per_shard=2
        )
    )
    for module in (models, serve):
        monkeypatch.setattr(module, "joined", joined)
    monkeypatch.setattr(models, "running_coordinator", lambda: found)
    monkeypatch.setattr(serve, "coordinator_of", lambda *_: found)
    monkeypatch.setattr(serve, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(waiting, "SILENT_S", 0.3)
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.02)
    return found


def commands(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return commands by the method of the coordinator that they call last."""
    sets, state = f"{folder}/sets", folder / "state"
    return {
        "activate": lambda: models.activate(f"{sets}/shop/shop-2", address=RAY),
        "stop_experiment": lambda: models.stop(sets, address=RAY),
        "follow": lambda: serve.serve(
            sets, state, None, None, None, address=RAY, replicas=2, cache=None
        ),
    }


@pytest.mark.parametrize("method", ["activate", "stop_experiment", "follow"])
def test_a_frozen_coordinator_ends_a_command(
    method: str, actor: Actor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_fleet.commands.models.START_S", 0.3)
    actor.freezing = {method}
    began = time.monotonic()
    with pytest.raises(FullrankError, match=r"does not answer: no ping was answered for 0\.3 s"):
        commands(tmp_path)[method]()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("method", "doubt"),
    [
        ("activate", " during the swap, which is done or has changed nothing"),
        ("stop_experiment", " during the change, which is done or has changed nothing"),
        ("follow", ""),
    ],
)
def test_a_coordinator_that_dies_ends_a_command(
    method: str, doubt: str, actor: Actor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_fleet.commands.models.START_S", 0.5)
    actor.dying = {method}
    with pytest.raises(FullrankError, match=f"^the coordinator died{doubt}; run the command again"):
        commands(tmp_path)[method]()


def test_a_coordinator_that_ray_starts_again_is_asked_again(actor: Actor, tmp_path: Path) -> None:
    actor.refusing = 3
    commands(tmp_path)["activate"]()
    assert [method for method, *_ in actor.asked] == ["follow"] * 4 + ["activate"]


def test_a_change_is_asked_for_once(actor: Actor, tmp_path: Path) -> None:
    actor.dying = {"activate"}
    with pytest.raises(FullrankError, match="the coordinator died during the swap"):
        commands(tmp_path)["activate"]()
    assert actor.changes == [("activate", "shop-2")]


def test_a_coordinator_that_starts_may_be_silent_for_longer(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_fleet.commands.models.START_S", 0.8)
    actor.is_frozen = True
    with pytest.raises(FullrankError, match=r"no ping was answered for 0\.8 s"):
        models.ask(actor, "follow", None, 0, 0.0, is_starting=True)


def test_the_shell_gets_one_line_and_exit_code_1(
    actor: Actor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    actor.freezing = {"activate"}
    bundle = f"{tmp_path}/sets/shop/shop-2"
    monkeypatch.setattr(sys, "argv", ["fullrank", "bundles", "activate", bundle, "--ray", RAY])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "the coordinator of the fleet does not answer" in line
