"""Ten times more load than a worker can serve: it keeps its goodput and refuses the rest at once.

Requests leave on time whether or not earlier ones were answered (open_loop.py). With rankings of 3 ms and more the
goodput at ten times the load is at least 80 % of the peak. On a core of its own, the median refusal takes at most 5 ms.
Quicker rankings lose a larger part to refusals, which cost a worker about 50 µs each.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from fullrank.storage.documents import Document
from tests.api.support import at, make_bundle, served
from tests.faults.load import children
from tests.faults.real import service
from tests.waiting import join

REPOSITORY = Path(__file__).resolve().parents[2]
COMMON = ["copy", "files", "remote", "host"]


def documents(count: int) -> list[Document]:
    """Documents whose words have the frequencies of natural language, roughly."""
    draw = random.Random(1)
    words = [*COMMON, *(f"w{i}" for i in range(3000))]
    weights = [1 / (place + 1) for place in range(len(words))]
    return [
        Document(f"d{i}", {"title": draw.choice(words), "text": " ".join(draw.choices(words, weights, k=30))})
        for i in range(count)
    ]  # fmt: skip


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """Processes started inside run on one core, so that server and load do not share one."""
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def load(url: str, rate: float, seconds: float, connections: int) -> dict[str, Any]:
    """Run the load generator in a process on another core; give its results."""
    host, _, port = url.removeprefix("http://").partition(":")
    arguments = [host, port, str(rate), str(seconds), str(connections)]
    with on_core(1):
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.open_loop", *arguments],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=seconds + 60,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Health(threading.Thread):
    """Ask /readyz ten times a second, on an open connection and on a new one, until the test ends."""

    def __init__(self, url: str) -> None:
        super().__init__(name="health", daemon=True)
        self.host = url.removeprefix("http://")
        self.over = threading.Event()
        self.statuses: list[int] = []
        self.slowest = 0.0

    def run(self) -> None:
        # http.client needs little processor time; httpx needs more than the service does.
        with closing(HTTPConnection(self.host, timeout=10)) as kept:
            while not self.over.wait(0.1):
                started = time.monotonic()
                self.ask(kept)
                with closing(HTTPConnection(self.host, timeout=10)) as fresh:
                    self.ask(fresh)
                self.slowest = max(self.slowest, time.monotonic() - started)

    def ask(self, connection: HTTPConnection) -> None:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        answer.read()
        self.statuses.append(answer.status)


def overload(url: str, peak: float, seconds: float) -> tuple[dict[str, Any], Health]:
    health = Health(url)
    health.start()
    try:
        found = load(url, 10 * peak, seconds, 256)
    finally:
        health.over.set()
        join(health)
    return found, health


def test_overload_is_refused_and_other_requests_are_answered(tmp_path: Path) -> None:
    """No connection is lost, all answers are 200 or 503, the worker stays ready.

    Rankings on the event loop run one by one, so no queue forms and nothing is refused; here they run in threads.
    """
    make_bundle(tmp_path, "learned", documents(12_000), n_dense=512, created=at(2))
    with ExitStack() as stack:
        with on_core(0):
            url = stack.enter_context(
                served(
                    tmp_path,
                    FULLRANK_MAX_QUEUE="16",
                    FULLRANK_INLINE_MS="0",
                    FULLRANK_DEADLINE_MS="2000",
                )
            )
        peak = load(url, 0, 1, 8)["ok_per_second"]
        found, health = overload(url, peak, 2)
        after = load(url, 0, 0.5, 4)
    assert set(found["answers"]) == {"200", "503"}
    assert found["lost"] == 0
    assert found["answers"]["200"] > 0.1 * peak * 2
    assert set(health.statuses) == {200}
    # Afterwards every request is answered again.
    assert set(after["answers"]) == {"200"}


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_ten_times_overload_leaves_four_fifths_of_the_peak(tmp_path: Path) -> None:
    """Five rounds of the peak, ten times that for 6 seconds, and the peak again; the bounds apply to the medians.

    Goodput is per second of the server's processor time, because other processes use its core too, more of it while the
    load generator occupies the other one. On an idle machine it equals the rate by the clock, which is also printed.
    """
    make_bundle(tmp_path, "learned", documents(19_000), n_dense=768, created=at(2))
    kept, clock, refusals_ms, report = [], [], [], []
    with ExitStack() as stack:
        with on_core(0):
            parent, port = stack.enter_context(service(tmp_path, 1, FULLRANK_DEADLINE_MS="2000"))
        [pid] = children(parent)
        url = f"http://127.0.0.1:{port}"

        def peak() -> tuple[float, float]:
            """Answers per second of the clock, and per second of processor time."""
            began = processor_seconds(pid)
            asked = [load(url, 0, 1.5, clients) for clients in (2, 8)]
            answered = sum(found["answers"]["200"] for found in asked)
            best = max(found["ok_per_second"] for found in asked)
            return best, answered / (processor_seconds(pid) - began)

        peak()  # warm
        before = peak()
        for _ in range(5):
            began = processor_seconds(pid)
            found, health = overload(url, before[0], 6)
            spent = processor_seconds(pid) - began
            after = peak()
            kept.append(2 * found["answers"]["200"] / spent / (before[1] + after[1]))
            clock.append(2 * found["ok_per_second"] / (before[0] + after[0]))
            refusals_ms.append(found["ms"]["503"]["p50"])
            report.append(
                f"peak {before[0]:.0f}/s, after {after[0]:.0f}/s; kept {kept[-1]:.3f}, by the clock "
                f"{clock[-1]:.3f}; /readyz at most {health.slowest:.3f} s; {found}"
            )
            before = after
            assert set(found["answers"]) == {"200", "503"}, report
            assert found["lost"] == 0, report
            assert found["missed"] < 0.02 * found["sent"], report
            assert set(health.statuses) == {200}, report
            assert health.slowest < 1, report
    print("\n".join(report))  # noqa: T201 figures, shown with -s
    assert statistics.median(kept) >= 0.8, report
    assert statistics.median(refusals_ms) <= 5, report
