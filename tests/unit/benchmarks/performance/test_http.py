"""The HTTP benchmark: its load generator, its mixes and its ratios; slow: all of it on a small collection."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from benchmarks.performance.http import Mix, Rounds, Stream, System, shares, zipf
from benchmarks.performance.servers import Load, Server, Wrk
from tests.unit.benchmarks.performance.test_retrieval_run import data

__all__ = ["data"]


def rounds(name: str, per_second: list[int], workers: int = 1) -> Rounds:
    """A system that was answered so often in rounds of a second, and whose worker was busy throughout."""
    server = Server("", tuple(range(workers)), tuple(range(workers)))
    system = System(name, server, Stream(Path(), Mix([])), 16, (1,))
    loads = [Load(requests, 1.0, 0, 0.001, 0.002, 0.1) for requests in per_second]
    return Rounds(system, loads, [float(workers)] * len(loads))


def test_a_share_is_taken_within_a_round() -> None:
    single = {
        name: rounds(name, [per_second, 2 * per_second, 3 * per_second])
        for name, per_second in {
            "empty": 1000,
            "fast": 400,
            "exact": 200,
            "fast, zipf": 500,
            "exact, zipf": 300,
        }.items()
    }
    double = {
        name: rounds(name, [per_second] * 3, 1 + (", two" in name))
        for name, per_second in {
            "empty": 1000,
            "empty, two": 1900,
            "fast": 400,
            "fast, two": 720,
            "exact": 200,
            "exact, two": 380,
        }.items()
    }
    found = {
        name: share["median"] for name, share in shares({"one": single, "two": double}).items()
    }
    assert found["share_of_empty_route_fast"] == 0.4
    assert found["share_of_empty_route_exact_zipf"] == 0.3
    assert found["two_workers_over_one"] == 1.8
    assert found["two_workers_over_one_by_cpu"] == 1.8
    assert found["share_of_empty_route_fast_two_workers"] == pytest.approx(720 / 1900, 1e-3)
    assert "two_workers_over_one" not in shares({"one": single, "two": {}})


def test_zipf_draws_by_rank() -> None:
    drawn = zipf(1000, 20_000, 1)
    assert drawn == zipf(1000, 20_000, 1)
    counts = Counter(drawn)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.3)
    assert np.ptp(drawn) > 900


def test_a_missing_load_generator_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="wrk is not on PATH"):
        Wrk(tmp_path)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk on PATH")
def test_paths_are_sent_by_get_and_bodies_by_post(tmp_path: Path) -> None:
    seen: Counter[tuple[str, str, bytes]] = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen[self.command, self.path, body] += 1
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    lines = tmp_path / "lines"
    lines.write_text('/d/select?query=a+b\n{"query": "c"}\n')
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        cores = sorted(os.sched_getaffinity(0))
        load = Wrk(tmp_path).run(url, lines, 0, connections=1, seconds=1, cores=cores)
        server.shutdown()
    get, post = ("GET", "/d/select?query=a+b", b""), ("POST", "/v1/search", b'{"query": "c"}')
    assert set(seen) == {get, post}
    assert abs(seen[get] - seen[post]) <= 1
    assert load.requests <= seen.total() <= load.requests + 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk on PATH")
def test_a_small_run_reports_every_figure(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["--json", "--quick", "--seconds", "2", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.performance.http", *command],
        env={**os.environ, "FULLRANK_DATA": str(data)},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    # So few documents have no fast mode: what asks for it is answered exactly.
    assert (done.returncode, found["held"]["fast_mode"], found["held"]["all"]) == (1, False, False)
    assert 0 < found["share_of_empty_route_exact"] < 1
    assert 0 < found["share_of_empty_route_fast"] < 1
    assert found["figures"]["one"]["fast"]["embeddings_from_cache"] is not None
    assert (out / "summary.json").is_file()
