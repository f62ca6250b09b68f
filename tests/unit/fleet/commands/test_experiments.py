"""``fullrank experiment start`` and ``stop`` with ``--ray``: what they ask of the coordinator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fullrank.errors import BundleNotFound, FullrankError
from fullrank_fleet.commands import models
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_service.base.experiment import Active, Experiment
from fullrank_service.commands import experiment as command
from tests.unit.fleet.commands.actors import RAY, Actor, joined
from tests.unit.fleet.jobs.planted import planted_set


@pytest.fixture
def address(tmp_path: Path) -> str:
    return planted_set(tmp_path, 20, 2)


@pytest.fixture
def actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Actor:
    found = Actor(Snapshot(1, 5, "shop-1", root=str(tmp_path / "sets")))
    monkeypatch.setattr(models, "joined", joined)
    monkeypatch.setattr(models, "running_coordinator", lambda: found)
    return found


def test_a_candidate_is_named_by_its_folder_or_by_its_name(
    address: str, actor: Actor, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, version = address.rpartition("/")
    actor.served = Snapshot(
        1, 5, "shop-1", root=actor.served.root, experiment=Experiment(version, 0.5, 0, 3)
    )
    for named in (address, f"{address}/", folder):
        command.start(named, 0.5, 3, ray=RAY, json=True)
        found = json.loads(capsys.readouterr().out)
        assert found == {"active": "shop-1", "candidate": version, "generation": 5}
    assert actor.changes == [("start_experiment", version, 0.5, 3)] * 3
    command.start(address, 0.5, 3, ray=RAY)
    assert capsys.readouterr().out == f"generation 5: {version} against shop-1\n"


def test_a_collection_has_an_experiment_of_its_own(
    address: str, tmp_path: Path, actor: Actor, capsys: pytest.CaptureFixture[str]
) -> None:
    version = address.rpartition("/")[2]
    own = Active("planted-1", None, None, Experiment(version, 0.5, 0, 3))
    actor.served = replace(actor.served, collections={"planted": own})
    command.start(address, 0.5, 3, collection=True, ray=RAY)
    assert capsys.readouterr().out == f"generation 5: {version} against planted-1\n"
    command.stop(str(tmp_path / "sets"), "planted", ray=RAY)
    assert capsys.readouterr().out == "generation 5: planted-1 serves alone\n"
    assert actor.changes == [
        ("start_experiment", version, 0.5, 3, "planted"),
        ("stop_experiment", "planted"),
    ]


def test_stopping_leaves_the_active_version(
    tmp_path: Path, actor: Actor, capsys: pytest.CaptureFixture[str]
) -> None:
    command.stop(str(tmp_path / "sets"), ray=RAY)
    assert capsys.readouterr().out == "generation 5: shop-1 serves alone\n"
    assert actor.changes == [("stop_experiment",)]


def test_what_the_fleet_does_not_serve_is_left_alone(
    address: str, tmp_path: Path, actor: Actor
) -> None:
    with pytest.raises(FullrankError, match="does not serve this folder"):
        command.stop(str(tmp_path / "set"), ray=RAY)
    with pytest.raises(BundleNotFound):
        command.start(str(tmp_path / "sets" / "absent"), ray=RAY)
    with pytest.raises(BundleNotFound):
        command.start(address)
    with pytest.raises(BundleNotFound):
        command.stop(str(tmp_path))
    assert actor.changes == []
    actor.dying = {"start_experiment"}
    with pytest.raises(FullrankError, match="run the command again"):
        command.start(address, ray=RAY)
