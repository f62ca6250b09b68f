"""The real service with several workers, which tests kill parts of."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from fullrank_service.models.workers import Report, reports
from tests.api.support import environment_for, free_port, wait_for
from tests.faults.load import children
from tests.waiting import LONG_S, join, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]


def start(
    root: Path,
    port: int,
    workers: int = 1,
    module: str = "fullrank_service.process.run",
    **settings: str,
) -> subprocess.Popen[bytes]:
    """The real service, ready, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=REPOSITORY,
        env=environment_for(root, port, FULLRANK_WORKERS=str(workers), **settings),
        start_new_session=True,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
    except BaseException:
        kill(process)
        raise
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the service and all its workers at once; some may have ended already."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(LONG_S)


@contextmanager
def service(
    root: Path, workers: int, module: str = "fullrank_service.process.run", **settings: str
) -> Iterator[tuple[int, int]]:
    """The real service; gives the supervisor's process and the port. Nothing of it outlives the block."""
    port = free_port()
    process = start(root, port, workers, module, **settings)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            left = living(process.pid)
            kill(process)
        assert not left, "the supervisor left workers behind"


class Writer(ABC):
    """Writes until the service is dead or it has done enough."""

    @abstractmethod
    def write(self, client: httpx.Client) -> None:
        """Write once, and note what was acknowledged. Raises TransportError without an answer."""

    def run(self, url: str, answered: threading.Event, enough: threading.Event) -> None:
        with httpx.Client(base_url=url, timeout=30) as client, suppress(httpx.TransportError):
            while not enough.is_set():
                self.write(client)
                answered.set()


def lives(
    root: Path,
    writers: Sequence[Writer],
    kills: int,
    workers: int = 2,
    *,
    seed: int = 1,
    is_single: bool = False,
    on_dead: Callable[[], object] = lambda: None,
) -> Iterator[tuple[str, list[int]]]:
    """Kill a service so many times at random moments, while writers write, each in a thread for each life.

    is_single: every other time kill one worker instead of all processes.
    on_dead: called after each kill of all processes, while none runs and nobody writes.

    Yields the address of the service and the ids of its workers, after each kill, when nobody writes.
    """
    draw, port = random.Random(seed), free_port()
    url = f"http://127.0.0.1:{port}"
    process = start(root, port, workers, FULLRANK_LOG_LEVEL="error")
    try:
        for number in range(kills):
            started(root, workers)
            answered, enough = threading.Event(), threading.Event()
            threads = [
                threading.Thread(target=one.run, args=(url, answered, enough), daemon=True)
                for one in writers
            ]
            for thread in threads:
                thread.start()
            assert answered.wait(30), "no write was acknowledged within 30 s"
            time.sleep(draw.uniform(0, 0.4))
            if is_single and number % 2:
                victim = draw.choice(children(process.pid))
                os.kill(victim, signal.SIGKILL)
                wait_until_replaced(process.pid, victim)
                enough.set()
            else:
                kill(process)
            join(*threads)
            if process.poll() is not None:
                assert not living(process.pid)
                on_dead()
                process = start(root, port, workers, FULLRANK_LOG_LEVEL="error")
            yield url, [report.pid for report in started(root, workers)]
    finally:
        kill(process)


def wait_until_replaced(supervisor: int, victim: int) -> None:
    """Wait until a supervisor has noticed the death of a worker."""
    what = f"the supervisor has noticed that its worker {victim} is dead"
    wait_until(lambda: victim not in children(supervisor), what, pause_s=0.005)


def living(group: int) -> list[int]:
    """Processes of a group that have not ended, given a moment to."""
    end = time.monotonic() + 5
    while True:
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, number = entry.read_text().rpartition(")")[2].split()[:3]
                if int(number) == group and state != "Z":
                    found.append(int(entry.parent.name))
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


def started(root: Path, workers: int) -> list[Report]:
    end = time.monotonic() + 60
    while True:
        found = [report for report in reports(root) if report.started]
        if len(found) == workers:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.02)
