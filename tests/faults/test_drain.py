"""SIGTERM: open requests are answered, and no client can delay the end of the process for long."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from fullrank_service.process.worker import FINISH_S
from tests.api.support import at, environment_for, free_port, make_bundle, wait_for
from tests.faults.load import children
from tests.faults.real import service
from tests.faults.test_slow_clients import HEAD, connect
from tests.waiting import LONG_S, join, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
QUERY = {"query": "copy files"}
# The real server with slow rankings, and another limit for what it has begun when it stops.
SLOW = """
import time
from fullrank_service.search import ranking as local
from fullrank_service.process import worker as configured, run
configured.FINISH_S = {finish_s}
original = local.rank_view
def slow(*arguments):
    time.sleep({seconds})
    return original(*arguments)
local.rank_view = slow
run.serve()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_bundle(tmp_path / "bundles", "learned", created=at(2))
    return tmp_path / "bundles"


@pytest.fixture
def running(root: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that the fixture kills after the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait(LONG_S)


def start(
    root: Path,
    processes: list[subprocess.Popen[bytes]],
    seconds: float,
    finish_s: float = FINISH_S,
    **settings: str,
) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.format(seconds=seconds, finish_s=finish_s)],
        cwd=REPOSITORY,
        env=environment_for(root, port, OMP_NUM_THREADS="1", **ONE_THREAD, **settings),
    )
    processes.append(process)
    url = f"http://127.0.0.1:{port}"
    wait_for(f"{url}/readyz", process)
    return process, url


# Set before numpy is imported, so that serve() does not replace the process by one without the slow rankings.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def test_open_requests_are_answered_and_new_clients_sent_elsewhere(
    root: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    process, url = start(root, running, 1.0, FULLRANK_DRAIN_MS="1500", FULLRANK_DEADLINE_MS="20000")
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(httpx.post(f"{url}/v1/search", json=QUERY, timeout=20).status_code)

    asking = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in asking:
        thread.start()
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 1
    while (ready := httpx.get(f"{url}/readyz")).status_code == 200:
        assert time.monotonic() < end
    assert (ready.status_code, "stopping" in ready.json()["detail"]) == (503, True)
    assert ready.headers["Connection"] == "close"
    # A client that has not noticed yet is still served.
    late = httpx.post(f"{url}/v1/search", json=QUERY, timeout=20)
    join(*asking)
    assert late.status_code == 200
    assert statuses == [200] * 4
    assert process.wait(15) == 0


def test_stopping_is_bounded_whatever_clients_do(
    root: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    process, url = start(root, running, 0.0, finish_s=2)
    with closing(connect(url)) as half, closing(connect(url)):
        # One client has sent half of a request, the other nothing.
        half.sendall(HEAD + b"Content-Length: 23\r\n\r\n{")
        time.sleep(0.2)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(25) == 0
        assert time.monotonic() - started < 2 + 4


@pytest.mark.parametrize("workers", [1, 2])
def test_no_connection_is_reset(root: Path, workers: int) -> None:
    """Clients that open connections all the time, and one that keeps its own, are answered until they are refused."""
    answered, failed = [0] * 4, list[Exception]()

    def ask(number: int, pause_s: float, most: int) -> None:
        """Connect and send up to `most` requests, again and again."""
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            try:
                opened = socket.create_connection(("127.0.0.1", port), 20)
            except ConnectionRefusedError:
                return
            with closing(opened) as connection:
                for left in range(most, 0, -1):
                    time.sleep(pause_s)
                    last = b"Connection: close\r\n" if left == 1 else b""
                    try:
                        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n%b\r\n" % last)
                        received = b""
                        while not received.endswith(b"}"):
                            chunk = connection.recv(1 << 16)
                            assert chunk, received
                            received += chunk
                    except (OSError, AssertionError) as error:
                        failed.append(error)
                        return
                    answered[number] += 1
                    if b"connection: close" in received:
                        break
        failed.append(TimeoutError("the service never refused a connection"))

    with service(root, workers) as (supervisor, port):
        clients = [(0.0, 1), (0.0, 1), (0.02, 1), (0.0, 1_000_000)]
        asking = [
            threading.Thread(target=ask, args=(i, *kind), daemon=True)
            for i, kind in enumerate(clients)
        ]
        for thread in asking:
            thread.start()
        time.sleep(0.5)
        os.kill(supervisor, signal.SIGTERM)
        join(*asking, seconds=2 * LONG_S)
    assert failed == []
    assert all(answered), answered


# The start, the reading of usage, a search and the end of the writer hang; none of them looks at a signal.
HANGING = """
import sys, time
from fullrank_service.documents.live import LiveDocuments
from fullrank_service.models.follower import Follower
from fullrank_service.search import ranking as local
from fullrank_service.completion import usage
from fullrank_service.process import run
hang = lambda *_, **__: time.sleep(60)
if sys.argv[1] == "start":
    Follower.load_initial = hang
usage.read_digest = local.rank_view = hang
async def close(self):
    import asyncio
    await asyncio.to_thread(hang)
LiveDocuments.close = close
run.serve()
"""


@pytest.mark.parametrize("moment", ["start", "serve"])
def test_stopping_is_bounded_whatever_hangs(
    root: Path, running: list[subprocess.Popen[bytes]], moment: str
) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING, moment],
        cwd=REPOSITORY,
        env=environment_for(
            root, port, OMP_NUM_THREADS="1", **ONE_THREAD, FULLRANK_DEADLINE_MS="500",
            FULLRANK_INLINE_MS="0",
        ),
    )  # fmt: skip
    running.append(process)
    url = f"http://127.0.0.1:{port}"
    if moment == "serve":
        wait_for(f"{url}/readyz", process)
        assert httpx.post(f"{url}/v1/search", json=QUERY, timeout=20).status_code == 503
    else:

        def hangs() -> bool:
            assert process.poll() is None, "the service has ended"
            return bool(found := children(process.pid)) and len(threads_of(found[0])) >= 4

        wait_until(hangs, "a worker has four threads")
    began = time.monotonic()
    process.terminate()
    assert process.wait(30) == 0
    # Well below the grace of the supervisor, after which it kills.
    assert time.monotonic() - began < 11


def threads_of(pid: int) -> list[Path]:
    return [*Path(f"/proc/{pid}/task").iterdir()]
