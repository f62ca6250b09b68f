"""The real process: its environment, its workers, the page's files, health and metrics."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from fullrank.errors import FullrankError
from fullrank_service.base.settings import Settings
from fullrank_service.process.run import _bind
from tests.api.conftest import Root
from tests.api.support import (
    Client,
    environment_for,
    free_port,
    make_bundle,
    running,
    served,
    wait_for,
    wait_for_workers,
)
from tests.faults.load import children
from tests.unit.cli.running import Outcome

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_environment_is_set_before_numpy_is_there() -> None:
    code = "import fullrank_service.process.run, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


@pytest.mark.parametrize(
    ("before", "workers"), [pytest.param("import numpy", 1, marks=pytest.mark.sweep), ("", 2)]
)
def test_the_command_imports_its_own_code_starts_no_thread_of_a_library_and_ends_on_sigterm(
    root: Root, tmp_path: Path, before: str, workers: int
) -> None:
    """The command in a folder that has a package with the name of ours.

    A pool of a numerical library would have threads that Python does not know.
    """
    (tmp_path / "project" / "fullrank_service").mkdir(parents=True)
    (tmp_path / "project" / "fullrank_service" / "__init__.py").write_text(
        "raise ImportError('not ours')"
    )
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "command"
    command.write_text(f"{before}\nfrom fullrank.cli import main\nmain()")
    (tmp_path / "sitecustomize.py").write_text(
        "import faulthandler, signal; faulthandler.register(signal.SIGUSR1)"
    )
    port, listed = free_port(), tmp_path / "threads"
    environment = environment_for(root.path, port, PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    environment = {name: value for name, value in environment.items() if "_NUM_THREADS" not in name}
    with listed.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, command, "serve", "--workers", str(workers)],
            cwd=tmp_path / "project",
            env=environment,
            stderr=errors,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
        wait_for_workers(root.path, workers)
        found = children(process.pid)
        assert len(found) == workers
        expected = known = 0
        for worker in found:
            os.kill(worker, signal.SIGUSR1)
            expected += len([*Path(f"/proc/{worker}/task").iterdir()])
        ends = time.monotonic() + 15
        while known < expected and time.monotonic() < ends:
            time.sleep(0.02)
            known = listed.read_text().count("most recent call first")
        assert known == expected
        process.terminate()
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("FULLRANK_MAX_LIMIT", "none", "FULLRANK_MAX_LIMIT: "),
        ("FULLRANK_WORKRES", "2", "FULLRANK_WORKRES: "),
        ("FULLRANK_BUNDLES", f"{__file__}/none", f"{__file__}/none: no such folder"),
    ],
)
def test_an_impossible_setting_is_one_line(
    refusal: Callable[[], Outcome], root: Root, setting: str, value: str, reason: str
) -> None:
    os.environ.update({"FULLRANK_BUNDLES": str(root.path), setting: value})
    done = refusal()
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith(f"fullrank: {reason}")


def test_a_process_that_cannot_serve_says_why_in_one_line(root: Root) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for settings, reason in (
            ({"FULLRANK_METRICS_FOLDER": f"{__file__}/metrics"}, "FULLRANK_METRICS_FOLDER: "),
            ({}, f"127.0.0.1:{port}: Address already in use"),
        ):
            process = subprocess.run(
                [sys.executable, "-m", "fullrank_service.process.run"],
                cwd=REPOSITORY,
                env=environment_for(root.path, 0 if settings else port, **settings),
                capture_output=True,
                text=True,
            )
            assert (process.returncode, process.stdout) == (1, "")
            assert process.stderr.startswith(f"fullrank: {reason}")
            assert process.stderr.count("\n") == 1


def test_only_one_of_two_services_that_start_together_gets_the_port() -> None:
    settings = Settings(host="127.0.0.1", port=free_port())
    reason = f"127.0.0.1:{settings.port}: Address already in use"
    with _bind(settings), pytest.raises(FullrankError, match=reason):
        _bind(settings)
    _bind(settings).close()


@pytest.mark.slow
def test_several_workers_send_answers_at_once(root: Root) -> None:
    # The second part of an answer that waits for the first to be acknowledged waits for 40 ms.
    with served(root.path, workers=2) as url, httpx.Client(base_url=url, timeout=30) as client:
        began = time.monotonic()
        for _ in range(150):
            client.get("/livez").raise_for_status()
        assert time.monotonic() - began < 3


@pytest.mark.anyio
async def test_the_page_is_cached_by_its_hash_and_lets_nothing_else_in(reader: Client) -> None:
    for path, kind in {"/": "html", "/app.css": "css", "/app.js": "javascript"}.items():
        response = await reader.get(path)
        assert response.status_code == 200
        assert kind in response.headers["Content-Type"]
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        again = await reader.get(path, headers={"If-None-Match": response.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await reader.head(path)).status_code == 200


@pytest.mark.anyio
async def test_metrics_count_by_route_never_by_path(client: Client) -> None:
    answers = [await client.post("/v1/search", json={"query": "copy"}) for _ in range(2)]
    for path in ("/v1/documents/ls/similar", "/secret", "/secret/too"):
        await client.get(path)
    response = await client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain")
    lines = response.text.splitlines()
    route = 'method="GET",route="/v1/documents/{id:path}/similar",status="200"'
    assert f"fullrank_requests_total{{{route}}} 1.0" in lines
    unmatched = 'method="GET",route="unmatched",status="404"'
    assert f"fullrank_requests_total{{{unmatched}}} 2.0" in lines
    assert 'fullrank_cache_lookups_total{result="process"} 1.0' in lines
    assert 'fullrank_models_loaded{worker="0"} 2.0' in lines
    assert "secret" not in response.text
    size = next(line for line in lines if 'answer_bytes_sum{route="/v1/search"}' in line)
    assert float(size.split()[1]) == sum(len(answer.content) for answer in answers)


@pytest.mark.anyio
async def test_odd_methods_do_not_grow_the_metrics(reader: Client) -> None:
    for method in ("BREW", "X" * 40):
        await reader.request(method, "/livez")
    text = (await reader.get("/metrics")).text
    assert "BREW" not in text
    assert 'method="other"' in text


@pytest.mark.anyio
async def test_two_apps_in_one_process_keep_their_metrics_apart(root: Root, tmp_path: Path) -> None:
    make_bundle(tmp_path / "alone", "alone")
    async with running(root.path) as one, running(tmp_path / "alone") as two:
        await one.post("/v1/search", json={"query": "copy"})
        assert "/v1/search" in (await one.get("/metrics")).text
        assert "/v1/search" not in (await two.get("/metrics")).text
