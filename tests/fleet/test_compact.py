"""Compaction on a real cluster: a node, and the command under writes, are killed; no write is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank_fleet.jobs.compact import trim_log
from fullrank_fleet.jobs.tasks import OnRay
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving.actors import stop_fleet
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.sets.manifest import read_set
from tests.databases import NewDatabase
from tests.fleet.deaths import node_dies_at
from tests.fleet.support import REPOSITORY, Sets, activate, router, wait_until_served
from tests.fleet.writing import Writer, check_all_there
from tests.unit.fleet.jobs.test_compact import Place, some_writes
from tests.waiting import LONG_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(tmp_path_factory.mktemp("fleet"))


def compaction(address: str, sets: Sets, database: str, *options: str) -> subprocess.Popen[str]:
    command = ["bundles", "compact", str(sets.root / "planted"), "--ray", address, "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "fullrank", *command, *options],
        cwd=REPOSITORY,
        env={**os.environ, "FULLRANK_DOCUMENTS_URL": database},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compacted(address: str, sets: Sets, database: str, *options: str) -> dict[str, Any]:
    process = compaction(address, sets, database, *options)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


def test_a_node_that_dies_changes_nothing(cluster: Any, ray: Any, tmp_path: Path) -> None:
    place = Place(tmp_path, 6)
    place.write(some_writes(1))
    expected = read_set(Folder(place.compact().address))
    with node_dies_at(cluster, Path(str(place.root), "planted"), ".compact-*/about/*.json"):
        found = read_set(Folder(place.compact(runner=OnRay(ray)).address))
    assert (found.set_id, found.words_sha256) == (expected.set_id, expected.words_sha256)
    assert found.log_position == expected.log_position


def test_a_fleet_is_compacted_under_writes_and_searches(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path, new_database: NewDatabase
) -> None:
    database = new_database()
    environment = {"FULLRANK_DOCUMENTS_URL": database, "FULLRANK_MIN_SEQ_WAIT_MS": "20000"}
    first, folder = sets.versions[0], sets.root / "planted"
    sets.forget_active()
    try:
        with router(cluster.address, sets.root, tmp_path, **environment) as (url, _):
            activate(cluster.address, sets, first)
            wait_until_served(url, first)
            with Writer(url) as writer:
                writer.more()
                killed = compaction(cluster.address, sets, database)
                wait_until(
                    lambda: list(folder.glob(".compact-*/job.json")), "a compaction has begun"
                )
                killed.kill()
                killed.communicate(timeout=60)
                [job] = folder.glob(".compact-*/job.json")
                position = json.loads(job.read_text())
                assert not (folder / position["version"] / "set.json").exists()
                made = compacted(cluster.address, sets, database)
                wait_until_served(url, made["version"])
                writer.more()
                again = compacted(cluster.address, sets, database)
                wait_until_served(url, again["version"])
                writer.more()
            assert writer.failed == []
            assert set(writer.statuses) == {200}
            assert (made["seq"], made["version"]) == (position["seq"], position["version"])
            assert (made["parent"], again["parent"]) == (first, made["version"])
            assert made["seq"] < again["seq"] < writer.seq
            assert again["generation"] == made["generation"] + 1
            assert (made["removed"], again["removed"]) == (0, 0)
            check_all_there(url, writer)
            # Of other versions there is nothing left, and the log has only what came after the newest.
            for version in folder.iterdir():
                if version.name != again["version"]:
                    shutil.rmtree(version)
            place = LogSource(database).place()
            assert trim_log(Folder(str(sets.root)), "planted", place, -1) > 0
            for place_of in range(2):
                actor = ray.get_actor(f"shard-00000-{place_of}")
                os.kill(ray.get(actor.pid.remote(), timeout=LONG_S), signal.SIGKILL)

            def is_back() -> bool:
                reply = httpx.post(f"{url}/v1/search", json={"query": "zebra"}, timeout=10)
                return reply.is_success and bool(reply.json()["certified"])

            wait_until(is_back, "searches are certified again")
            check_all_there(url, writer)
        # A new router too has only the compacted set and the rest of the log.
        with router(cluster.address, sets.root, tmp_path, **environment) as (url, _):
            check_all_there(url, writer)
            last = compacted(cluster.address, sets, database, "--no-activate")
            assert last["generation"] is None
            check_all_there(url, writer)
            assert activate(cluster.address, sets, last["version"]).returncode == 0
            wait_until_served(url, last["version"])
            check_all_there(url, writer)
    finally:
        stop_fleet()
