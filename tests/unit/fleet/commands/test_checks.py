"""Commands refuse a fleet that they do not mean: another folder of bundles, another number of replicas."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fullrank.errors import BundleNotFound, FullrankError
from fullrank_fleet.commands import models, serve
from fullrank_fleet.commands.app import app
from fullrank_fleet.serving.coordinator import Snapshot, SwapUnderWay
from fullrank_service.base.experiment import Active
from tests.unit.fleet.commands.actors import RAY, Actor, joined
from tests.unit.fleet.jobs.planted import planted_set

ROOT = "s3://bundles/prod"


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Actor:
    """Serves nothing yet from ``ROOT``, with three replicas of each shard."""
    found = Actor(Snapshot(1, root=ROOT, per_shard=3))
    monkeypatch.setattr(models, "joined", joined)
    monkeypatch.setattr(models, "running_coordinator", lambda: found)
    return found


@pytest.mark.parametrize(
    ("bundle", "asked"),
    [
        (f"{ROOT}/shop/shop-2", "shop-2"),
        (f"{ROOT}/shop/shop-2/", "shop-2"),
        (f"{ROOT}/shop", "shop"),
    ],
)
def test_a_bundle_of_the_fleet_is_activated(bundle: str, asked: str, actor: Actor) -> None:
    models.activate(bundle, address=RAY)
    assert actor.changes == [("activate", asked)]


@pytest.mark.parametrize(
    "bundle",
    [
        "s3://staging/shop",
        "s3://staging/shop/shop-2",
        "s3://bundles/production/shop/shop-2",
        "s3://bundles/prod",
        "s3://bundles/prod/shop/shop-2/shard-00000",
        "/bundles/prod/shop/shop-2",
        "shop",
    ],
)
def test_a_bundle_of_another_folder_is_refused(bundle: str, actor: Actor) -> None:
    with pytest.raises(FullrankError, match=f"does not serve this folder, but {ROOT}$"):
        models.activate(bundle, address=RAY)
    assert actor.changes == []


def test_the_version_before_serves_again(actor: Actor) -> None:
    actor.served = replace(actor.served, version="shop-2", previous="shop-1")
    models.rollback(f"{ROOT}/", address=RAY)
    assert actor.changes == [("activate", "shop-1")]


def test_a_version_serves_in_its_collection(actor: Actor) -> None:
    actor.served = replace(
        actor.served, version="shop-1", collections={"help": Active("help-2", None, "help-1")}
    )
    for named in (f"{ROOT}/help/help-2", f"{ROOT}/help/"):
        assert models.activate(named, True, address=RAY).version == "help-2"
    assert models.rollback(ROOT, "help", address=RAY).version == "help-2"
    with pytest.raises(BundleNotFound, match="no previous version"):
        models.rollback(ROOT, "other", address=RAY)
    assert actor.changes == [
        ("activate", "help-2", "help"),
        ("activate", "help", "help"),
        ("activate", "help-1", "help"),
    ]


def test_a_rollback_of_nothing_or_of_another_fleet_is_refused(actor: Actor) -> None:
    with pytest.raises(BundleNotFound, match=f"^{ROOT}: no previous version"):
        models.rollback(ROOT, address=RAY)
    actor.served = replace(actor.served, previous="shop-1")
    with pytest.raises(FullrankError, match=f"does not serve this folder, but {ROOT}$"):
        models.rollback("s3://bundles", address=RAY)
    assert actor.changes == []


def join_fleet(bundles: str, state: Path, *, replicas: int = 3) -> None:
    serve.serve(bundles, state, None, None, None, address=RAY, replicas=replicas, cache=None)


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    planted_set(tmp_path, 5, 1)
    return tmp_path / "sets"


@pytest.fixture
def served(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The values of FLEET of the services that are started; the fleet runs already."""
    found: list[str] = []
    monkeypatch.setenv("FLEET", "")
    monkeypatch.delenv("FULLRANK_DOCUMENTS_URL", raising=False)
    monkeypatch.setattr(serve, "joined", joined)
    # In this process, where the test sees what is changed and logged.
    monkeypatch.setattr(serve, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(serve, "coordinator_of", lambda *_: actor)
    monkeypatch.setattr(serve, "serve_app", lambda *_, **__: found.append(os.environ["FLEET"]))
    actor.served = Snapshot(1, 1, "shop-1", f"{ROOT}/shop/shop-1", root=ROOT, per_shard=3)
    return found


@pytest.mark.parametrize("bundles", [ROOT, f"{ROOT}/"])
def test_a_router_joins_its_own_fleet(
    bundles: str, actor: Actor, served: list[str], tmp_path: Path
) -> None:
    join_fleet(bundles, tmp_path / "state")
    assert [json.loads(one)["replicas"] for one in served] == [3]
    assert actor.changes == []


@pytest.mark.parametrize("bundles", ["s3://bundles/other", "s3://bundles", "/bundles/prod"])
def test_a_router_of_another_folder_is_refused(
    bundles: str, actor: Actor, served: list[str], tmp_path: Path
) -> None:
    with pytest.raises(FullrankError, match=f"^{bundles}: the fleet .* but {ROOT}$"):
        join_fleet(bundles, tmp_path / "state")
    assert (served, actor.changes) == ([], [])
    assert not (tmp_path / "state").exists()


def test_a_router_with_another_number_of_replicas_is_refused(
    actor: Actor, served: list[str], tmp_path: Path
) -> None:
    with pytest.raises(FullrankError, match=r"^--replicas 2: .* join it with --replicas 3$"):
        join_fleet(ROOT, tmp_path / "state", replicas=2)
    assert (served, actor.changes) == ([], [])


def test_a_router_starts_before_the_first_set(
    actor: Actor, served: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """People index from the machine of a router, so it must not wait for the set to start."""
    actor.served = Snapshot(1, root=str(tmp_path), per_shard=3)
    join_fleet(str(tmp_path), tmp_path / "state")
    assert len(served) == 1
    assert actor.changes == []
    assert "fullrank index --ray; the router waits for it" in caplog.text


def test_routers_that_start_together_do_not_disturb_each_other(
    actor: Actor, served: list[str], sets: Path, tmp_path: Path
) -> None:
    actor.served = Snapshot(1, root=str(sets), per_shard=3)
    actor.raising = {"activate": SwapUnderWay("Another swap is in progress; nothing was changed.")}
    join_fleet(str(sets), tmp_path / "state")
    assert len(served) == 1


@pytest.mark.parametrize("start", ["", "file://", "local://"])
@pytest.mark.parametrize("end", ["", "/"])
def test_a_folder_has_several_addresses(
    start: str, end: str, tmp_path: Path, actor: Actor, served: list[str]
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    actor.served = Snapshot(
        1, 1, "shop-1", f"{tmp_path}/disk/shop/shop-1", root=f"{tmp_path}/disk", per_shard=3
    )
    join_fleet(f"{start}{tmp_path}/link{end}", tmp_path / "state")
    assert len(served) == 1


def test_a_path_means_the_same_from_every_folder(
    tmp_path: Path, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor.served = Snapshot(1, root=f"{tmp_path}/sets", per_shard=3)
    monkeypatch.chdir(tmp_path)
    models.activate("sets/shop/shop-2", address=RAY)
    assert actor.changes == [("activate", "shop-2")]


@pytest.fixture
def fleet(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    stopped: list[str] = []
    monkeypatch.setattr(serve, "stop_fleet", lambda: stopped.append("all"))
    return stopped


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--ray", RAY])


def test_a_fleet_is_scaled(actor: Actor, fleet: list[str]) -> None:
    found = run("scale", f"{ROOT}/", "--replicas", "3")
    assert found.exit_code == 0, found.output
    assert found.output == "3 replicas of each shard, 0 answer\n"
    assert actor.changes == [("scale", 3)]
    assert run("scale", ROOT, "--replicas", "0").exit_code == 2


def test_a_fleet_is_stopped(actor: Actor, fleet: list[str]) -> None:
    assert run("stop", ROOT).exit_code == 0
    assert (actor.changes, fleet) == ([], ["all"])


@pytest.mark.parametrize("command", [["stop"], ["scale", "--replicas", "3"]])
def test_another_fleet_is_neither_scaled_nor_stopped(
    command: list[str], actor: Actor, fleet: list[str]
) -> None:
    found = run(*command, "s3://bundles/other")
    assert isinstance(found.exception, FullrankError)
    assert (actor.changes, fleet) == ([], [])
