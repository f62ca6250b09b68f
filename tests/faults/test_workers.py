"""Worker processes that die, hang or never start: only their open connections are lost, and they are replaced."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fullrank_service.base.sharing import HUNG
from fullrank_service.models.state import read_state
from fullrank_service.process.supervisor import NOT_STARTED, Process, Start, Supervisor
from tests.api.support import AUTH, at, free_port, make_bundle
from tests.faults.load import Connection, Load, Reply, children, client_ports
from tests.faults.real import kill, service, start, started, wait_until_replaced
from tests.waiting import LONG_S, wait_until


async def kill_workers(root: Path, kills: int, seed: int, pause_s: float = 0.0) -> None:
    """kill -9 of a random worker under load, again and again, with swaps in between."""
    versions = [make_bundle(root, name, n_dense=8, created=at(1)) for name in ("one", "two")]
    draw = random.Random(seed)
    known: dict[int, str] = {}

    def check(reply: Reply, before: int) -> None:
        assert reply.status == 200, reply.body
        generation, version = reply.body["generation"], reply.body["model"]
        assert reply.headers["x-model-version"] == version
        # A request that was sent after a swap was acknowledged is answered by the new version.
        assert generation >= before
        assert known.setdefault(generation, version) == version

    with service(root, 2) as (supervisor, port):
        admin = Connection(port)
        await asyncio.to_thread(started, root, 2)
        excused: set[int] = set()
        swaps = 0
        async with Load(port, check, pause_s=pause_s) as load:
            for _ in range(kills):
                await asyncio.sleep(draw.uniform(0, 0.2))
                victim = draw.choice(children(supervisor))
                # Stopped first, so that its connections cannot change before the kill.
                os.kill(victim, signal.SIGSTOP)
                held = client_ports(victim)
                excused |= held
                os.kill(victim, signal.SIGKILL)
                await asyncio.to_thread(wait_until_replaced, supervisor, victim)
                if draw.random() < 0.5:
                    # While it is away: it has to come back on this one.
                    version = versions[swaps % 2]
                    reply = await admin.ask(
                        "PUT", "/v1/models/aliases/default", {"version": version}, AUTH
                    )
                    assert reply.status == 200, reply.body
                    # Not kept: it would be idle for as long as a worker takes to start.
                    admin.close()
                    swaps += 1
                    load.before = reply.body["generation"]
                if draw.random() < 0.8:  # else the next is killed while this one is away
                    found = await asyncio.to_thread(started, root, 2)
                    state = read_state(root)
                    wanted = (1, None) if state is None else (state.generation, state.version)
                    for report in found:
                        assert report.generation == wanted[0]
                        assert wanted[1] in (None, report.version)
                    assert victim not in {report.pid for report in found}
                load.look()
        assert load.answered > kills
        # Only connections of killed workers broke, each at most once.
        assert set(load.broken) <= excused, (load.broken, excused)
        assert len(load.broken) <= load.clients * kills
        print(  # noqa: T201
            f"{kills} kills, {swaps} swaps: {load.answered} answered, {len(load.broken)} broken "
            "with the connection of a killed worker, 0 others failed"
        )
        admin.close()


@pytest.mark.parametrize(
    ("kills", "seed", "pause_s"), [(3, 4, 0.005), pytest.param(100, 2, 0.0, marks=pytest.mark.slow)]
)
def test_only_a_killed_workers_open_connections_fail(
    tmp_path: Path, kills: int, seed: int, pause_s: float
) -> None:
    """With seed 4 the second and the third death each have a swap, and the third comes while another worker is away."""
    asyncio.run(kill_workers(tmp_path, kills, seed, pause_s))


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    """kill -9 of the supervisor: no worker stays behind on the port."""
    make_bundle(tmp_path, "one")
    port = free_port()
    process = start(tmp_path, port, 2)
    try:
        workers = children(process.pid)
        assert len(workers) == 2
        process.kill()
        process.wait(LONG_S)
        wait_until(
            lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers),
            f"the workers {workers} end",
            seconds=15,
        )
    finally:
        kill(process)
    assert not list((tmp_path / ".workers").glob("*.json"))


def worker_that(code: str) -> Start:
    """A start for a Supervisor: a process that runs ``code`` with its end of the pair as ``pair``."""
    program = "import os, socket, sys, time; pair = socket.socket(fileno=int(sys.argv[1])); " + code

    def start(descriptor: int, number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", program, str(descriptor)], pass_fds=[descriptor]
        )

    return start


def supervised(
    code: str, seconds: float, stop: signal.Signals = signal.SIGTERM, **options: Any
) -> tuple[int, int]:
    """Run a supervisor until it gets a signal; return its exit code, and how many workers it has started."""
    count = 0
    start = worker_that(code)

    def counted(descriptor: int, number: int) -> Process:
        nonlocal count
        count += 1
        return start(descriptor, number)

    supervisor = Supervisor(counted, 1, **options)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), stop))
    timer.start()
    try:
        return supervisor.run(), count
    finally:
        timer.cancel()
        timer.join()


def test_a_service_that_cannot_start_ends(caplog: pytest.LogCaptureFixture) -> None:
    assert supervised("sys.exit(4)", 10) == (NOT_STARTED, 1)
    [line] = caplog.messages
    assert re.fullmatch(
        r"worker 0 \(pid \d+\) exited with code 4 before any worker had started", line
    )


def test_a_dead_worker_is_logged_with_its_process_id(caplog: pytest.LogCaptureFixture) -> None:
    code = "pair.send(b'.'); time.sleep(0.2); os.kill(os.getpid(), 9)"
    ended, count = supervised(code, 1.5)
    assert ended == 0
    assert count >= 2
    assert re.fullmatch(
        r"worker 0 \(pid \d+\) was killed by SIGKILL; starting another", caplog.messages[0]
    )


def test_a_closed_terminal_ends_the_workers_in_order() -> None:
    assert supervised("pair.send(b'.'); time.sleep(30)", 1.0, signal.SIGHUP) == (0, 1)


def test_a_worker_that_cannot_start_again_does_not_end_the_others(tmp_path: Path) -> None:
    # The first one starts and dies; those after it never get that far.
    mark = tmp_path / "mark"
    code = (
        f"os.path.exists({str(mark)!r}) and sys.exit(3); open({str(mark)!r}, 'w'); pair.send(b'.')"
    )
    ended, count = supervised(code, 2.5)
    assert ended == 0
    # Tried again and again, but not without pause.
    assert 2 <= count <= 8


def test_a_worker_that_hangs_is_replaced_and_one_that_is_busy_is_not() -> None:
    reasons: list[str] = []
    ended, count = supervised(
        "pair.send(b'.'); time.sleep(30)", 2.5, hung_s=0.5,
        ended=lambda number, reason: reasons.append(reason),
    )  # fmt: skip
    assert ended == 0
    assert count >= 2
    assert set(reasons) == {HUNG}
    busy = "[(pair.send(b'.'), sum(range(10**6))) for _ in iter(int, 1)]"
    assert supervised(busy, 2.6, hung_s=2) == (0, 1)


def test_a_worker_that_ignores_the_signal_is_killed() -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); pair.send(b'.'); time.sleep(60)"
    began = time.monotonic()
    assert supervised(code, 0.7, grace_s=0.3) == (0, 1)
    assert time.monotonic() - began < 20
