"""Servers under load in their own processes, with one worker per core or to be killed; and wrk, which loads them."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
_START_S = 300
# A worker that has started prepares completions beside its requests. It is idle once it has taken less than a tenth of
# a core for so long; one that never is idle is measured after a minute.
_IDLE_S, _LONGEST_S = 0.5, 60
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; ``workers`` are the ids of the processes that serve requests."""

    url: str
    workers: tuple[int, ...]
    cores: tuple[int, ...]

    def cpu_s(self) -> float:
        """Return the processor time of the workers so far."""
        return sum(map(_cpu_s, self.workers))


@contextmanager
def serving(
    module: str, environment: Mapping[str, str], ready: str, cores: Sequence[int]
) -> Iterator[Server]:
    """Run ``python -m module`` until the block ends, with one worker per core, which is idle when the block begins.

    environment  settings beside the address and the number of workers
    ready        path that is answered with 200 once it takes requests
    Exits where the server ends before that.
    """
    with _held(*start(module, environment, ready, len(cores)), cores) as server:
        yield server


@contextmanager
def _held(process: subprocess.Popen[bytes], url: str, cores: Sequence[int]) -> Iterator[Server]:
    """Give each worker of a started server a core, wait until they are idle; stop the server when the block ends."""
    try:
        workers = _workers(process.pid, len(cores))
        for worker, core in zip(workers, cores, strict=True):
            for thread in Path(f"/proc/{worker}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})
        found = Server(url, workers, tuple(cores))
        _wait_until_idle(found)
        yield found
    finally:
        stop(process)


_CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  groonga_database {folder}/db; groonga_log_path off; groonga_query_log_path off;
  server {{ listen {address}; location /d/ {{ groonga on; }} }}
}}
"""


@contextmanager
def groonga_server(folder: Path, core: int) -> Iterator[Server]:
    """Serve ``folder/db`` with groonga's build of nginx, in one process on a core."""
    url = _free_url()
    address = url.removeprefix("http://")
    (folder / "httpd.conf").write_text(_CONFIG.format(folder=folder, address=address), "utf-8")
    options = ["-p", f"{folder}/", "-c", folder / "httpd.conf", "-e", folder / "error.log"]
    process = subprocess.Popen(["groonga-httpd", *map(str, options)])
    _wait_until_ready(process, f"{url}/d/status")
    with _held(process, url, [core]) as server:
        yield server


def start(
    module: str, environment: Mapping[str, str], ready: str, workers: int, *, grouped: bool = False
) -> tuple[subprocess.Popen[bytes], str]:
    """Run ``python -m module``; return it and its address once it is ready.

    Args:
        module: of the server.
        environment: settings beside the address and the number of workers.
        ready: path that is answered with 200 once it takes requests.
        workers: their number.
        grouped: in a process group of its own, for `kill`. A signal to the benchmark's group then does not end it.
    """
    url = _free_url()
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FULLRANK_")},
        **dict.fromkeys(_THREADS, "1"),
        "FULLRANK_LOG_LEVEL": "warning",
        **environment,
        "FULLRANK_PORT": url.rpartition(":")[2],
        "FULLRANK_WORKERS": str(workers),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        env=variables,
        cwd=ROOT,
        process_group=0 if grouped else None,
    )
    _wait_until_ready(process, url + ready)
    return process, url


def _free_url() -> str:
    """Return an address of this machine on a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    """Return once a started server answers ``url`` with 200; stop it and exit if it does not."""
    try:
        _wait_for(url, process)
    except BaseException:
        stop(process)
        raise


def stop(process: subprocess.Popen[bytes]) -> None:
    """Let a server finish; kill it if that takes too long. Its workers end with it."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a grouped server and all its workers at once; some may have ended already."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode} before it answered")
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    sys.exit(f"{url} did not answer in {_START_S} s")


def _wait_until_idle(server: Server) -> None:
    end = time.monotonic() + _LONGEST_S
    while time.monotonic() < end:
        before = server.cpu_s()
        time.sleep(_IDLE_S)
        if server.cpu_s() - before < 0.1 * _IDLE_S:
            return


def _workers(parent: int, number: int) -> tuple[int, ...]:
    """Return the serving processes: the children, or the only process."""
    if number == 1 and not children(parent):
        return (parent,)
    end = time.monotonic() + _START_S
    while len(found := children(parent)) < number and time.monotonic() < end:
        time.sleep(0.1)
    if len(found) != number:
        sys.exit(f"{len(found)} workers where {number} were asked for")
    return tuple(found)


def children(parent: int) -> list[int]:
    """Return the process ids of the workers that a server has started, if there are several."""
    return [*map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]


def _cpu_s(process: int) -> float:
    # The name in brackets may contain anything; the fields after the last bracket are plain.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# Requests are prepared before the clock starts, so sending one costs only a table look-up.
_SCRIPT = """
local requests, place = {}, 0

function init(args)
  local headers = {["Content-Type"] = "application/json"}
  for line in io.lines(args[1]) do
    requests[#requests + 1] = line:sub(1, 1) == "/" and wrk.format("GET", line)
      or wrk.format("POST", "/v1/search", headers, line)
  end
  place = tonumber(args[2])
end

function request()
  place = place % #requests + 1
  return requests[place]
end

function done(summary, latency)
  local failed = summary.errors
  io.write(string.format(
    '\\n{"requests": %d, "microseconds": %d, "bytes": %d, "p50": %d, "p99": %d, "refused": %d, "broken": %d}\\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(99), failed.status,
    failed.connect + failed.read + failed.write + failed.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """The output of one run of wrk. Times in seconds; cpu_s is the processor time of wrk."""

    requests: int
    seconds: float
    bytes: int
    p50_s: float
    p99_s: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


class Wrk:
    """wrk with its script in a folder. Exits with a message if a program is missing."""

    def __init__(self, folder: Path) -> None:
        for program, package in (("wrk", "wrk"), ("taskset", "util-linux")):
            if shutil.which(program) is None:
                sys.exit(f"{program} is not on PATH; on Debian: apt-get install {package}")
        self._script = folder / "requests.lua"
        self._script.write_text(_SCRIPT, "utf-8")

    def run(
        self,
        url: str,
        bodies: Path,
        start: int,
        *,
        connections: int,
        seconds: float,
        cores: Sequence[int],
    ) -> Load:
        """Send the lines of a file from line ``start`` on, repeatedly; each connection waits for its answer.

        A line is the body of a search, or a path that begins with a slash, which is sent by GET.

        Raises RuntimeError where a request failed or was not answered with 200.
        """
        command = ["taskset", "-c", ",".join(map(str, cores)), "wrk", "-t1", f"-c{connections}"]
        command += [f"-d{max(1, round(seconds))}s", "--timeout", "10s", "-s", str(self._script)]
        before = _cpu_of_children()
        done = subprocess.run(
            [*command, url, "--", str(bodies), str(start)], capture_output=True, text=True
        )
        cpu_s = _cpu_of_children() - before
        if done.returncode:
            raise RuntimeError(f"wrk: {done.stderr.strip() or done.stdout.strip()}")
        report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if report["refused"] or report["broken"] or not report["requests"]:
            raise RuntimeError(f"{url}: not every request was answered with 200: {report}")
        return Load(
            report["requests"],
            report["microseconds"] / 1e6,
            report["bytes"],
            report["p50"] / 1e6,
            report["p99"] / 1e6,
            cpu_s,
        )


def _cpu_of_children() -> float:
    """Return the processor time of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
