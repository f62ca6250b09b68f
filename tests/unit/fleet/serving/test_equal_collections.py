"""A fleet with two collections answers as one service with the same two bundles, each with its own active version."""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fullrank_fleet.remote import Folder
from fullrank_fleet.serving import coordinator
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.sets.manifest import read_set
from tests.api.support import AUTH, ok, rules_applied
from tests.api.test_collections import use
from tests.databases import NewDatabase
from tests.unit.fleet.serving.equality import Whole, request
from tests.unit.fleet.serving.led import LocalFleet
from tests.unit.fleet.serving.test_equal_completions import read_again
from tests.unit.fleet.serving.test_experiments import Sides

pytestmark = pytest.mark.anyio
PLANTED, OTHER = "/v1/collections/planted", "/v1/collections/other"
PREFIXES = ("/v1", PLANTED, OTHER)


class Versions:
    """Two versions of "planted", in three shards, and of "other", in two: as bundles, and as sets, in one folder each.

    Sides calls them @old, @new, @first and @second.
    """

    def __init__(self, root: Path) -> None:
        (root / "other").mkdir()
        self.planted = Whole(root, 120)
        other = Whole(root / "other", 90, name="other", first=1000)
        self.bundles, self.sets = list[str](), list[str]()
        for whole, shards in ((self.planted, 3), (other, 2)):
            later = whole.train(seed=2)
            self.bundles += whole.versions
            for trained in (None, later):
                self.sets.append(read_set(Folder(whole.cut(shards, trained))).version)
        for of_other, folder in (("bundles", "bundles"), ("sets-2", "sets-3")):
            shutil.copytree(root / "other" / of_other / "other", root / folder / "other")


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    return Versions(tmp_path_factory.mktemp("versions"))


class Places:
    """A fleet and its log, and the folders of a service; ``sides`` starts both again."""

    def __init__(self, versions: Versions, folder: Path, log: LogSource) -> None:
        self._versions, self._folder, self._log = versions, folder, log
        root = versions.planted.root
        for active in root.glob("*/active.json"):
            active.unlink()
        self.fleet = LocalFleet(root / "sets-3", root / "cache", log)

    @asynccontextmanager
    async def sides(self) -> AsyncIterator[Sides]:
        common: dict[str, Any] = {
            "documents_poll_ms": 50,
            "min_seq_wait_ms": 60_000,
            # A fleet serves nothing of a collection before a version of it was activated.
            "default_model": "planted",
            "preload": False,
        }
        found, one, many = Sides(), self._folder / "one", self._folder / "many"
        own = {**common, "documents": self._folder / "documents.sqlite", "events_folder": one}
        others = {**common, "documents_url": self._log.address, "events_folder": many}
        async with self.fleet.running():
            if (await self.fleet.coordinator.follow(None, 0, 0)).version is None:
                await self.fleet.coordinator.activate(self._versions.sets[0])
            service = self._versions.planted.service(**own)
            async with service as client, self.fleet.router(**others) as router:
                found.add(client, self._versions.bundles, one)
                found.add(router, self._versions.sets, many)
                yield found


@pytest.fixture
def places(
    versions: Versions, tmp_path: Path, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Places]:
    monkeypatch.setattr(coordinator, "_ROUND_S", 0.02)
    found = Places(versions, tmp_path, LogSource(new_database(), 0.05))
    yield found
    found.fleet.close()


async def activate(sides: Sides, prefix: str, version: str) -> None:
    path, body = f"{prefix}/models/aliases/default", {"version": version}
    _, found = await sides.all_equal("PUT", path, changing=True, json=body)
    assert (found["version"], found["converged"]) == (version, True)


async def previous(sides: Sides, prefix: str) -> list[str]:
    """What the list of models says served before, in each side, as its place among the versions."""
    found = []
    for client, names in zip(sides.clients, sides.names, strict=True):
        listed = ok(await client.get(f"{prefix}/models", headers=AUTH))
        found.append(("@old", "@new", "@first", "@second")[names.index(listed["previous"])])
    return found


async def served(sides: Sides) -> list[str]:
    """What answers by default and in each collection, with equal hits in all."""
    found = []
    for prefix in PREFIXES:
        body = {"query": "copy files remote", "limit": 30}
        path = f"{prefix}/search"
        status, answer = await sides.all_equal("POST", path, changing=True, json=body)
        found.append(answer["model"] if status == 200 else answer["type"].rpartition(":")[2])
    return found


async def test_each_collection_has_its_own_active_version(places: Places) -> None:
    async with places.sides() as sides:
        await activate(sides, "/v1", "@old")
        assert await served(sides) == ["@old", "@old", "model-not-found"]
        await activate(sides, OTHER, "@first")
        assert await served(sides) == ["@old", "@old", "@first"]
        await activate(sides, OTHER, "@second")
        assert await served(sides) == ["@old", "@old", "@second"]
        assert await previous(sides, OTHER) == ["@first", "@first"]
        # What served before stays loaded: cursors of pages name it.
        body = {"query": "copy", "model": "@first"}
        status, _ = await sides.all_equal("POST", f"{OTHER}/search", changing=True, json=body)
        assert status == 200
        await activate(sides, OTHER, "@first")
        await activate(sides, PLANTED, "@new")
        assert await served(sides) == ["@new", "@new", "@first"]
        for prefix, version in (
            (OTHER, "@old"),
            (PLANTED, "@first"),
            ("/v1/collections/x", "@old"),
        ):
            path, wrong = f"{prefix}/models/aliases/default", {"version": version}
            status, _ = await sides.all_equal("PUT", path, changing=True, json=wrong)
            assert status == 404
        await activate(sides, "/v1", "@second")
        assert await served(sides) == ["@second", "@new", "@second"]
    async with places.sides() as sides:
        assert await served(sides) == ["@second", "@new", "@second"]
        await activate(sides, "/v1", "@old")
        assert await served(sides) == ["@old", "@old", "@second"]


async def test_each_collection_has_its_own_experiment(places: Places) -> None:
    path, body = "experiments/default", {"candidate": "@second", "share": 1.0}
    async with places.sides() as sides:
        await activate(sides, "/v1", "@old")
        await activate(sides, OTHER, "@first")
        wrong = {"candidate": "@new"}
        status, _ = await sides.all_equal("PUT", f"{OTHER}/{path}", changing=True, json=wrong)
        assert status == 404
        _, begun = await sides.all_equal("PUT", f"{OTHER}/{path}", changing=True, json=body)
        assert (begun["active"], begun["candidate"]) == ("@first", "@second")
        asked = {"query": "copy files", "user_id": "ann"}
        for prefix, candidate in (("/v1", None), (OTHER, "@second")):
            # The coins of the two sides fall differently.
            for client, names in zip(sides.clients, sides.names, strict=True):
                reply = ok(await client.post(f"{prefix}/search", json=asked))
                name = None if candidate is None else names[3]
                assert reply["candidate"] == name
        status, _ = await sides.all_equal("GET", f"/v1/{path}", changing=True)
        assert status == 404
    async with places.sides() as sides:
        _, found = await sides.all_equal("DELETE", f"{OTHER}/{path}", changing=True)
        assert found["candidate"] == "@second"
        status, _ = await sides.all_equal("DELETE", f"{OTHER}/{path}", changing=True)
        assert status == 404
        assert await served(sides) == ["@old", "@old", "@first"]


async def test_searches_documents_rules_and_completions_are_of_the_collection(
    places: Places,
) -> None:
    rng = random.Random(11)
    async with places.sides() as sides:
        await activate(sides, "/v1", "@old")
        await activate(sides, OTHER, "@second")
        for number in (1, 1, 2):
            id = f"d/{number:04}"
            for prefix in (PLANTED, OTHER):
                title = f"{rng.choice(('zebra', 'copy'))} {number} {prefix[-5:]}"
                written = "PUT", f"{prefix}/documents/{id}"
                _, kept = await sides.all_equal(*written, changing=True, json={"title": title})
                assert kept["collection"] == prefix[len("/v1/collections/") :]
        seq = {"min_seq": kept["seq"]}
        rule = {"hide": [f"d/{number:04}" for number in range(1000, 1040)]}
        for client in sides.clients:
            ok(await client.put(f"{OTHER}/rules/hidden", json=rule, headers=AUTH))
            await rules_applied(client, "other", {"hidden"})
            await use(client, OTHER, "abc", "copy tapes", "d/0001")
        statuses = list[int]()
        for _ in range(40):
            body = {**request(rng), **seq}
            for prefix in PREFIXES:
                path = f"{prefix}/search"
                status, _ = await sides.all_equal("POST", path, changing=True, json=body)
                statuses.append(status)
        assert statuses.count(200) > 60
        for client in sides.clients:
            read_again(client)
        found = dict[str, set[str]]()
        for prefix in PREFIXES:
            for id in ("d/0001", "d/0003", "d/1003", "nowhere"):
                path = f"{prefix}/documents/{id}"
                await sides.all_equal("GET", path, changing=True, params=seq)
                await sides.all_equal("GET", f"{path}/similar", changing=True, params=seq)
            for typed in ("copy t", "c", "zeb", "d/00"):
                asked = {"prefix": typed, "limit": 20}
                path = f"{prefix}/complete"
                _, reply = await sides.all_equal("GET", path, changing=True, params=asked)
                found.setdefault(prefix, set()).update(one["text"] for one in reply["completions"])
        assert "copy tapes" in found[OTHER]
        assert "copy tapes" not in found["/v1"]
