"""Swaps under load, and swaps of which a process dies at each step."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from fullrank.storage.documents import Document
from fullrank_service.models.state import ActiveState, read_state
from fullrank_service.models.workers import reports
from tests.api.support import AUTH, at, make_bundle, running
from tests.faults.dying import COORDINATOR, FILE, FOLLOWER
from tests.faults.load import Connection, Load, Reply
from tests.faults.real import REPOSITORY, service, started
from tests.waiting import LONG_S

TEXTS = ["copy files", "copy a file to a remote host", "list files", "rename files"]
ALIAS = "/v1/models/aliases/default"


def bundles(root: Path, names: str) -> list[str]:
    """Make bundles whose ids contain their name, oldest first."""
    return [
        make_bundle(
            root,
            name,
            [
                Document(f"{name}-{i}", {"title": name, "text": text})
                for i, text in enumerate(TEXTS)
            ],
            n_dense=4,
            created=at(hour),
        )
        for hour, name in enumerate(names.split(), start=1)
    ]


async def swap_under_load(root: Path, swaps: int, workers: int) -> None:
    """Swaps between bundles with disjoint ids while clients search without pause."""
    versions = bundles(root, "one two")
    serves: dict[int, str] = {1: versions[1]}
    served: dict[str, int] = dict.fromkeys(versions, 0)

    def check(reply: Reply, before: int) -> None:
        assert reply.status == 200, reply.body
        version, generation = reply.body["model"], reply.body["generation"]
        # One bundle gave all of it, the one that it names, as the generation that it names.
        assert [hit["id"].split("-")[0] for hit in reply.body["hits"]] == [
            version.split("-")[0]
        ] * 4
        assert {hit["fields"]["title"] for hit in reply.body["hits"]} == {version.split("-")[0]}
        assert reply.headers["x-model-version"] == version
        assert reply.headers["x-model-generation"] == str(generation)
        assert serves.setdefault(generation, version) == version
        # A swap that was acknowledged has reached every worker.
        assert generation >= before
        served[version] += 1

    with service(root, workers, FULLRANK_POLL_MS="10") as (_, port):
        await asyncio.to_thread(started, root, workers)
        admin = Connection(port)
        took = []
        async with Load(port, check) as load:
            for i in range(swaps):
                began = time.perf_counter()
                reply = await admin.ask("PUT", ALIAS, {"version": versions[i % 2]}, AUTH)
                took.append(time.perf_counter() - began)
                assert reply.status == 200, reply.body
                assert (reply.body["generation"], reply.body["workers"]) == (i + 2, workers)
                assert reply.body["converged"] is True
                load.before = i + 2
                load.look()
        assert not load.broken
        assert min(served.values()) > swaps // 2
        state = read_state(root)
        assert state is not None
        assert (state.generation, state.version) == (swaps + 1, versions[(swaps - 1) % 2])
        took.sort()
        print(  # noqa: T201
            f"{swaps} swaps with {workers} workers: {load.answered} answered, 0 failed, 0 mixed; "
            f"a swap took {1000 * took[len(took) // 2]:.0f} ms in the median, "
            f"{1000 * took[-1]:.0f} at most"
        )
        admin.close()


@pytest.mark.parametrize(
    ("swaps", "workers"), [(20, 2), pytest.param(1_000, 3, marks=pytest.mark.slow)]
)
def test_swaps_under_load_fail_no_request(tmp_path: Path, swaps: int, workers: int) -> None:
    asyncio.run(swap_under_load(tmp_path, swaps, workers))


# -- a process dies at each step ------------------------------------------------------------------

MOMENTS = [
    f"{who} {step} {when}"
    for who, steps in (("coordinator", COORDINATOR), ("follower", FOLLOWER))
    for step in steps
    for when in ("before", "after")
]
# The steps of the coordinator after the state was replaced.
COMMITTED = ("replace after", "state after", "withdraw", "settle")


def committed(moment: str) -> bool:
    """Whether a swap stands of which a process died at that moment."""
    return moment.startswith("follower") or any(part in moment for part in COMMITTED)


def following(versions: list[str], state: ActiveState | None) -> str:
    active = None if state is None else state.version
    return versions[0 if active is None else (versions.index(active) + 1) % len(versions)]


async def die(root: Path, moment: str, version: str, mark: Path, port: int) -> ActiveState:
    """Run one swap in which a process dies; return the state after it."""
    before = read_state(root)
    assert before is not None
    living = {report.pid for report in reports(root)}
    mark.write_text(moment)
    admin = Connection(port)
    try:
        reply = await admin.ask("PUT", ALIAS, {"version": version}, AUTH)
    except (OSError, EOFError):
        assert moment.startswith("coordinator"), moment
    else:
        assert moment.startswith("follower"), (moment, reply.body)
        assert reply.status == 200, reply.body
        admin.close()
    async with asyncio.timeout(5):
        # A follower may die just after all that the coordinator waits for.
        while mark.exists() or living <= {report.pid for report in reports(root)}:
            await asyncio.sleep(0.01)
    after = read_state(root)
    assert after is not None
    new = (before.generation + 1, version)
    assert (after.generation, after.version) == (
        new if committed(moment) else (before.generation, before.version)
    ), moment
    return after


async def all_serve(root: Path, port: int, state: ActiveState, workers: int) -> None:
    """Wait until every worker serves the committed state; then every answer comes from it."""
    async with asyncio.timeout(60):
        while (
            {r.generation for r in reports(root)} != {state.generation}
            or any(not report.started for report in reports(root))
            or len(reports(root)) != workers
        ):
            await asyncio.sleep(0.02)
    for _ in range(6):
        connection = Connection(port)
        reply = await connection.ask("POST", "/v1/search", {"query": "copy files"})
        assert (reply.body["generation"], reply.body["model"]) == (state.generation, state.version)
        connection.close()


async def die_at(root: Path, moments: list[str]) -> None:
    """One process dies at each moment: the service goes on, and replacements serve the committed version."""
    versions = bundles(root, "a b c d e f")
    mark = root.parent / "mark"
    settings = {FILE: str(mark), "FULLRANK_PRELOAD": "false", "FULLRANK_MAX_LOADED": "3"}

    def check(reply: Reply, before: int) -> None:
        assert reply.status == 200, reply.body

    with service(root, 2, "tests.faults.dying", **settings) as (_, port):
        await asyncio.to_thread(started, root, 2)
        admin = Connection(port)
        assert (await admin.ask("PUT", ALIAS, {"version": versions[0]}, AUTH)).status == 200
        admin.close()
        async with Load(port, check, clients=2, pause_s=0.005) as load:
            state = read_state(root)
            for moment in moments:
                state = await die(root, moment, following(versions, state), mark, port)
                await all_serve(root, port, state, 2)
                load.look()
        assert load.answered > len(moments)
    print(f"{len(moments)} moments of a swap at which a process died: {', '.join(moments)}")  # noqa: T201


async def all_die_at(root: Path, moments: list[str]) -> None:
    """The whole service dies when one process does; after a restart it serves the committed version."""
    versions = bundles(root, "a b c d e f")
    mark = root.parent / "mark"
    settings = {FILE: str(mark), "FULLRANK_PRELOAD": "false", "FULLRANK_MAX_LOADED": "3"}
    allowed: set[tuple[int, str | None]] = set()
    died: str | None = None
    for moment in ["", *moments, None]:
        with service(root, 2, "tests.faults.dying", **settings) as (supervisor, port):
            await asyncio.to_thread(started, root, 2)
            state = read_state(root)
            if died is not None:
                assert state is not None, died
                assert (state.generation, state.version) in allowed, (died, state, allowed)
                await all_serve(root, port, state, 2)
            if moment is None:
                break
            died = moment
            version = following(versions, state)
            if state is None:
                allowed = {(2, version)}
            else:
                old, new = (state.generation, state.version), (state.generation + 1, version)
                allowed = {new} if committed(moment) else {old}
                # The coordinator dies with a follower, before or after it has replaced the state.
                if moment.startswith("follower"):
                    allowed = {old, new}
            if moment:
                mark.write_text(moment)
            admin = Connection(port)
            asked = asyncio.create_task(admin.ask("PUT", ALIAS, {"version": version}, AUTH))
            if not moment:
                assert (await asked).status == 200
                admin.close()
                continue
            while mark.exists():
                assert not asked.done(), f"nobody died: {moment}"
                await asyncio.sleep(0.001)
            os.killpg(supervisor, signal.SIGKILL)
            await asyncio.gather(asked, return_exceptions=True)
            admin.close()
    print(f"{len(moments)} moments of a swap at which all died: {', '.join(moments)}")  # noqa: T201


@pytest.mark.parametrize(
    "moments",
    [
        ["follower load after", "coordinator replace after"],
        pytest.param(MOMENTS, marks=pytest.mark.slow),
    ],
    ids=["two", "all"],
)
def test_a_worker_dies_in_a_swap(tmp_path: Path, moments: list[str]) -> None:
    """A follower before the commit, then a coordinator after it; or both before and after each step. Under load."""
    asyncio.run(die_at(tmp_path / "bundles", moments))


@pytest.mark.slow
def test_the_whole_service_dies_at_every_step_of_a_swap(tmp_path: Path) -> None:
    """kill -9 of every process at each step: after a restart the last committed version serves."""
    asyncio.run(all_die_at(tmp_path / "bundles", MOMENTS))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "moment",
    ["propose after", "prepared after", "replace before", "replace after", "withdraw after"],
)
async def test_the_command_line_dies_in_a_swap(tmp_path: Path, moment: str) -> None:
    """The coordinator is a process of its own; the workers all stay or all switch, and take the next swap."""
    old, new = bundles(tmp_path, "old new")
    mark = tmp_path / "mark"
    async with running(tmp_path, poll_ms=10) as one, running(tmp_path, poll_ms=10) as two:

        async def served(client: httpx.AsyncClient) -> tuple[int, str]:
            reply = (await client.post("/v1/search", json={"query": "copy"})).json()
            return reply["generation"], reply["model"]

        mark.write_text(f"coordinator {moment}")
        died = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tests.faults.dying", "--activate", str(tmp_path), old],
            cwd=REPOSITORY,
            env={**os.environ, FILE: str(mark)},
            timeout=LONG_S,
        )
        assert died.returncode == -signal.SIGKILL
        wanted = (2, old) if committed(moment) else (1, new)
        async with asyncio.timeout(10):
            while {await served(one), await served(two)} != {wanted}:
                await asyncio.sleep(0.01)
            # The prepared bundle is released.
            while any(report.prepared for report in reports(tmp_path)):
                await asyncio.sleep(0.01)
        again = await one.put(ALIAS, json={"version": old}, headers=AUTH)
        assert again.status_code == 200, again.text
        assert await served(one) == await served(two) == (2, old)
