"""Commands refuse a fleet that they do not mean: another folder of bundles, another number of replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.commands import activate
from fleet.serving.coordinator import Snapshot
from fullrank.errors import FullrankError
from tests.unit.fleet.commands.actors import Actor, joined

RAY = "10.0.0.1:6379"
ROOT = "s3://bundles/prod"


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Actor:
    """Serves nothing yet from ``ROOT``, with three replicas of each shard."""
    found = Actor(Snapshot(1, root=ROOT, per_shard=3))
    monkeypatch.setattr(activate, "joined", joined)
    monkeypatch.setattr(activate, "running_coordinator", lambda: found)
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
    activate.activate(bundle, address=RAY)
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
        activate.activate(bundle, address=RAY)
    assert actor.changes == []


def test_a_path_means_the_same_from_every_folder(
    tmp_path: Path, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor.served = Snapshot(1, root=f"{tmp_path}/sets", per_shard=3)
    monkeypatch.chdir(tmp_path)
    activate.activate("sets/shop/shop-2", address=RAY)
    assert actor.changes == [("activate", "shop-2")]
