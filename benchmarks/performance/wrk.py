"""The load generator: wrk, on its own cores, sending requests from a file one after another."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Requests are prepared before the clock starts, so sending one costs only a table look-up.
_SCRIPT = """
local requests, place = {}, 0

function init(args)
  local headers = {["Content-Type"] = "application/json"}
  for body in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("POST", "/v1/search", headers, body)
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
