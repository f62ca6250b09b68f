"""The service of a fleet, as `fullrank serve --ray` starts it: equal answers, swaps and lost processes under load."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank_fleet.remote import Folder
from fullrank_fleet.serving.actors import running_coordinator, stop_fleet
from fullrank_fleet.sets.manifest import read_set, write_set
from tests.api.support import KEY, keys_beside
from tests.fleet.support import (
    LIMIT,
    Sets,
    activate,
    command,
    router,
    searches,
    served,
    wait_until_served,
)
from tests.golden.test_golden import WORDS
from tests.waiting import LONG_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(tmp_path_factory.mktemp("fleet"))


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def pid_of(ray: Any, name: str) -> int:
    found: int = ray.get(ray.get_actor(name).pid.remote(), timeout=LONG_S)
    return found


def test_a_fleet_answers_as_one_machine_through_swaps_and_deaths(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    first, second = sets.versions
    with served(cluster.address, sets, tmp_path) as url:
        for text in WORDS:
            body = httpx.post(f"{url}/v1/search", json={"query": text, "limit": LIMIT}).json()
            assert [(hit["id"], hit["score"]) for hit in body["hits"]] == sets.expected[first][text]
            assert body["certified"]
        with searches(url, sets) as load:
            for version in [second, first] * 3:
                assert activate(cluster.address, sets, version).returncode == 0
                wait_until_served(url, version)
            os.kill(ray.get(running_coordinator().pid.remote(), timeout=LONG_S), signal.SIGKILL)
            load.more()
            os.kill(pid_of(ray, "shard-00000-0"), signal.SIGKILL)
            load.more(150)
            with frozen(pid_of(ray, "shard-00001-1")):
                load.more(150)
        load.check()
        assert sorted(load.generations) == list(range(2, 9))
        assert max(load.seconds) < 3


def test_a_frozen_coordinator_ends_changes_but_no_search(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    second = sets.versions[1]
    key = {"Authorization": f"Bearer {KEY}"}
    own = {"FULLRANK_KEYS": str(keys_beside(tmp_path / "state")), "FULLRANK_ANONYMOUS": "search"}
    alias = "/v1/models/aliases/default"
    sets.forget_active()
    try:
        with router(cluster.address, sets.root, tmp_path, **own) as (url, _):
            assert activate(cluster.address, sets, sets.versions[0]).returncode == 0
            wait_until_served(url, sets.versions[0])
            with frozen(pid_of(ray, "coordinator")), searches(url, sets) as load:
                found = httpx.put(
                    f"{url}{alias}", json={"version": second}, headers=key, timeout=60
                )
                assert found.status_code == 503, found.text
                assert found.json()["type"].endswith("coordinator-unavailable")
                ended = activate(cluster.address, sets, second)
                assert ended.returncode == 1
                [line] = ended.stderr.splitlines()
                assert "the coordinator of the fleet does not answer" in line
            load.check()
            # What it was asked for it does afterwards.
            wait_until_served(url, second)
    finally:
        stop_fleet()


def test_an_experiment_begins_and_ends_in_every_router(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    first, second = sets.versions
    key = {"Authorization": f"Bearer {KEY}"}
    own = {"FULLRANK_KEYS": str(keys_beside(tmp_path / "state")), "FULLRANK_ANONYMOUS": "search"}
    experiment, alias = "/v1/experiments/default", "/v1/models/aliases/default"
    sets.forget_active()
    try:
        with (
            router(cluster.address, sets.root, tmp_path / "a", **own) as (a, _),
            router(cluster.address, sets.root, tmp_path / "b", **own) as (b, _),
        ):

            def names() -> list[tuple[Any, Any]]:
                asked = {"query": WORDS[0], "user_id": "ann"}
                answers = [httpx.post(f"{url}/v1/search", json=asked).json() for url in (a, b)]
                return [(answer["model"], answer["candidate"]) for answer in answers]

            done = httpx.put(f"{a}{alias}", json={"version": first}, headers=key, timeout=60)
            assert (done.status_code, done.json()["converged"]) == (200, True), done.text
            assert names() == [(first, None)] * 2
            assert len(httpx.get(f"{b}/v1/models", headers=key).json()["workers"]) == 2
            bundle = f"{sets.root}/planted/{second}"
            begun = command("experiment", "start", bundle, "--share", "1", "--ray", cluster.address)
            assert begun.returncode == 0, begun.stderr
            wait_until(lambda: names() == [(first, second)] * 2, "both have an experiment")
            # Both go on after a coordinator that dies.
            os.kill(ray.get(running_coordinator().pid.remote(), timeout=LONG_S), signal.SIGKILL)
            assert names() == [(first, second)] * 2
            wait_until(
                lambda: httpx.delete(f"{b}{experiment}", headers=key, timeout=60).is_success,
                "the experiment can be stopped",
            )
            assert names() == [(first, None)] * 2
            body = {"candidate": second, "share": 1}
            assert httpx.put(f"{b}{experiment}", json=body, headers=key, timeout=60).is_success
            assert names() == [(first, second)] * 2
            stopped = command("experiment", "stop", str(sets.root), "--ray", cluster.address)
            assert stopped.returncode == 0, stopped.stderr
            wait_until(lambda: names() == [(first, None)] * 2, "neither has an experiment")
    finally:
        stop_fleet()


def test_a_collection_has_its_own_active_version(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    first, second = sets.versions
    folder = sets.root / "other"
    others = [f"other-20260801t10150{number}z-1f2e3d4c" for number in (1, 2)]
    for version, source in zip(others, sets.versions, strict=True):
        shutil.copytree(sets.root / "planted" / source, folder / version)
        manifest = read_set(Folder(str(sets.root / "planted" / source)))
        named = replace(manifest, name="other", version=version)
        write_set(Folder(str(folder / version)), named)
    sets.forget_active()
    try:
        with router(cluster.address, sets.root, tmp_path, FULLRANK_ANONYMOUS="search") as (url, _):

            def names() -> list[str | None]:
                asked = {"query": WORDS[0]}
                paths = ("/v1/search", "/v1/collections/other/search")
                found = [httpx.post(f"{url}{path}", json=asked).json() for path in paths]
                return [answer.get("model") for answer in found]

            def run(*arguments: str) -> None:
                done = command("bundles", *arguments, "--ray", cluster.address)
                assert done.returncode == 0, done.stderr

            run("activate", f"{sets.root}/planted/{first}")
            run("activate", f"{folder}/{others[0]}", "--collection")
            wait_until(lambda: names() == [first, others[0]], "the collection is served")
            run("activate", f"{folder}/{others[1]}", "--collection")
            wait_until(lambda: names() == [first, others[1]], "the collection is swapped")
            run("rollback", str(sets.root), "--collection", "other")
            wait_until(lambda: names() == [first, others[0]], "the collection is rolled back")
            os.kill(ray.get(running_coordinator().pid.remote(), timeout=LONG_S), signal.SIGKILL)
            assert names() == [first, others[0]]
            # A command that meets the dying coordinator says to run it again.
            again = "bundles", "activate", f"{sets.root}/planted/{second}", "--ray", cluster.address
            wait_until(lambda: not command(*again).returncode, "another coordinator is there")
            wait_until(lambda: names() == [second, others[0]], "the collection stays")
    finally:
        stop_fleet()
        shutil.rmtree(folder)


def test_a_shard_whose_replicas_are_killed_fails_searches_until_it_is_back(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    with served(cluster.address, sets, tmp_path) as url:
        names = [f"shard-00000-{place}" for place in range(2)]
        killed = {pid_of(ray, name) for name in names}

        def is_back(name: str) -> bool:
            try:
                return pid_of(ray, name) not in killed
            except ray.exceptions.RayActorError:
                # Ray refuses calls of an actor that it starts again.
                return False

        with searches(url, sets) as load:
            load.more()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: all(map(is_back, names)), "the replicas are back")
            load.more()
        assert load.wrong == [], load.wrong[:1]
        assert set(load.statuses) <= {200, 503}, load.statuses
        assert all(problem.startswith("No answer of shard 0 of 2") for problem in load.problems)
        with searches(url, sets) as load:
            load.more(100)
        load.check()


def test_a_lost_shard_is_an_error_or_a_partial_answer(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    with served(cluster.address, sets, tmp_path) as url, httpx.Client(base_url=url) as client:
        with frozen(*(pid_of(ray, f"shard-00000-{place}") for place in range(2))):
            answer = client.post("/v1/search", json={"query": WORDS[0]}, timeout=10)
            assert answer.status_code == 503
            assert "shard 0 of 2" in answer.json()["detail"]
            # A second router starts without the shard.
            with router(cluster.address, sets.root, tmp_path / "second") as (other, process):
                for own in (url, other):
                    asked = {"query": WORDS[0], "partial": True}
                    body = httpx.post(f"{own}/v1/search", json=asked, timeout=10).json()
                    assert not body["certified"]
                    assert 0 < body["covered"] < 1
                # The open request is answered before the router ends.
                with ThreadPoolExecutor(1) as pool:
                    asked = {"query": WORDS[1]}
                    waiting = pool.submit(httpx.post, f"{other}/v1/search", json=asked, timeout=10)
                    time.sleep(0.3)
                    process.terminate()
                    assert waiting.result(60).status_code == 503
                    process.wait(15)
        wait_until(
            lambda: client.post("/v1/search", json={"query": WORDS[0]}).is_success,
            "searches are answered again",
        )
