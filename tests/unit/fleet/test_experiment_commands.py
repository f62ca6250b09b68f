"""``fullrank experiment start`` and ``stop`` with ``--ray``: what they ask of the coordinator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fullrank.errors import BundleNotFound, FullrankError
from fullrank_fleet.commands import models as of_fleet
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_service.base.experiment import Experiment
from fullrank_service.commands import experiment as command
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle


class Remote:
    """A method of an actor."""

    def __init__(self, method: Callable[..., Snapshot]) -> None:
        self._method = method

    async def remote(self, *arguments: Any) -> Snapshot:
        return self._method(*arguments)


class Actor:
    """A coordinator that notes what it is asked for."""

    def __init__(self, root: Path) -> None:
        self._served = Snapshot(1, 4, "shop-1", f"{root}/planted/shop-1", root=str(root))
        self.asked: list[tuple[Any, ...]] = []
        self.is_dead = False
        self.follow = Remote(lambda *_: self._served)
        self.start_experiment = Remote(self._start)
        self.stop_experiment = Remote(self._stop)

    def _start(self, candidate: str, share: float, max_days: float) -> Snapshot:
        self.asked.append((candidate, share, max_days))
        if self.is_dead:
            raise ConnectionError("died")
        found = Experiment(candidate, share, 0, max_days)
        return Snapshot(2, 5, "shop-1", experiment=found)

    def _stop(self) -> Snapshot:
        self.asked.append(())
        return Snapshot(3, 6, "shop-1")


@pytest.fixture
def address(tmp_path: Path) -> str:
    bundle, corpus = planted_bundle(tmp_path / "bundles"), corpus_of(tmp_path, 20)
    return index_set(
        str(bundle), str(corpus), str(tmp_path / "sets"), shards=2, runner=InProcess(), reporter=QUIET
    ).address  # fmt: skip


@pytest.fixture
def actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Actor:
    found = Actor(tmp_path / "sets")

    @contextmanager
    def joined(address: str) -> Iterator[None]:
        assert address == "auto"
        yield

    monkeypatch.setattr(of_fleet, "joined", joined)
    monkeypatch.setattr(of_fleet, "running_coordinator", lambda: found)
    return found


def test_a_candidate_is_named_by_its_folder_or_by_its_name(
    address: str, actor: Actor, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, version = address.rpartition("/")
    for named in (address, f"{address}/", folder):
        command.start(named, 0.5, 3, ray="auto", json=True)
        found = json.loads(capsys.readouterr().out)
        assert found == {"active": "shop-1", "candidate": version, "generation": 5}
    assert actor.asked == [(version, 0.5, 3)] * 3
    command.start(address, 0.5, 3, ray="auto")
    assert capsys.readouterr().out == f"generation 5: {version} against shop-1\n"


def test_stopping_leaves_the_active_version(
    tmp_path: Path, actor: Actor, capsys: pytest.CaptureFixture[str]
) -> None:
    command.stop(str(tmp_path / "sets"), ray="auto")
    assert capsys.readouterr().out == "generation 6: shop-1 serves alone\n"
    assert actor.asked == [()]


def test_the_fleet_of_another_folder_is_left_alone(
    address: str, tmp_path: Path, actor: Actor
) -> None:
    with pytest.raises(FullrankError, match="does not serve this folder"):
        command.stop(str(tmp_path / "set"), ray="auto")
    with pytest.raises(BundleNotFound):
        command.start(str(tmp_path / "sets" / "absent"), ray="auto")
    assert actor.asked == []


def test_a_coordinator_that_dies_is_reported(address: str, actor: Actor) -> None:
    actor.is_dead = True
    with pytest.raises(FullrankError, match="run the command again"):
        command.start(address, ray="auto")


def test_without_ray_a_sharded_bundle_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(BundleNotFound):
        command.start(address)
    with pytest.raises(BundleNotFound):
        command.stop(str(tmp_path / "sets"))
