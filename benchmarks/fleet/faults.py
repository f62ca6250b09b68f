"""Kill and freeze replicas of a fleet under searches, then lose a whole shard.

    python -m benchmarks.fleet.faults BUNDLE CORPUS [--seconds 15] [--clients 2] [--work DIR] [--json]

Starts a Ray cluster of two nodes on this machine, two shards with two replicas each, and one router. Every answer is
compared, id by id and score by score, with the undisturbed one. A phase lasts --seconds and begins with its fault:

    undisturbed
    killed       SIGKILL of one replica; Ray starts it again meanwhile
    frozen       SIGSTOP of one replica of the other shard
    lost         SIGKILL of both replicas of a shard, until it answers again: only 503 may be answered meanwhile
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx

from benchmarks.fleet.collection import sharded, titles
from benchmarks.fleet.local import Fleet, cluster, fleet, parser, work_folder
from benchmarks.fleet.searching import Expected, Searches, answers
from benchmarks.harness.report import show

_SHARDS = 2
_RECOVERY_S = 60.0


def measure(running: Fleet, version: str, texts: list[str], asked: Any) -> dict[str, Any]:
    """Go through the phases; return counts and times of each."""
    expected = {version: answers(running.router.url, texts)}
    _wait_for_all(running)

    def kill() -> None:
        os.kill(running.pid(0, 0), signal.SIGKILL)

    found = {"undisturbed": _phase(running, expected, asked, lambda: None)}
    found["killed"] = _phase(running, expected, asked, kill)
    _wait_for_all(running)
    frozen = running.pid(1, 1)
    try:
        found["frozen"] = _phase(running, expected, asked, lambda: os.kill(frozen, signal.SIGSTOP))
    finally:
        os.kill(frozen, signal.SIGCONT)
    _wait_for_all(running)
    found["lost"] = _lost(running, expected, asked, texts[0])
    return found


def _phase(
    running: Fleet, expected: dict[str, Expected], asked: Any, fault: Callable[[], None]
) -> dict[str, Any]:
    before = calls(running.router.url)
    with Searches(running.router.url, expected, clients=asked.clients) as searches:
        time.sleep(1)
        fault()
        time.sleep(asked.seconds)
    after = calls(running.router.url)
    made = {kind: after[kind] - before[kind] for kind in after}
    hedged = made["hedge"] / made["first"]
    return {**searches.facts(), "hedged": hedged, "retries": made["retry"]}


def _lost(running: Fleet, expected: dict[str, Expected], asked: Any, text: str) -> dict[str, Any]:
    pids = [running.pid(0, place) for place in range(2)]
    with Searches(running.router.url, expected, clients=asked.clients) as searches:
        time.sleep(1)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        began = time.perf_counter()
        while searches.statuses[503] == 0:
            time.sleep(0.01)
        with httpx.Client(base_url=running.router.url, timeout=10) as client:
            while client.post("/v1/search", json={"query": text}).status_code != 200:
                if time.perf_counter() - began > _RECOVERY_S:
                    raise SystemExit(f"the shard has not come back within {_RECOVERY_S:.0f} s")
                time.sleep(0.05)
        recovery_s = time.perf_counter() - began
    return {
        **searches.facts(),
        "statuses": {str(status): count for status, count in searches.statuses.items()},
        "recovery_s": recovery_s,
    }


def _wait_for_all(running: Fleet) -> None:
    """Wait until routers may ask every replica, and then until breakers are closed."""
    deadline = time.monotonic() + _RECOVERY_S
    while [len(replicas) for replicas in running.snapshot().replicas] != [2] * _SHARDS:
        if time.monotonic() > deadline:
            raise SystemExit(f"a replica has not come back within {_RECOVERY_S:.0f} s")
        time.sleep(0.1)
    time.sleep(2)


def calls(url: str) -> dict[str, float]:
    """Return how many calls of replicas a router has made, by kind."""
    exposed = httpx.get(f"{url}/metrics").raise_for_status().text
    found = re.findall(r'^fullrank_shard_calls_total\{kind="(\w+)"\} (\S+)$', exposed, re.M)
    return {kind: float(count) for kind, count in found}


def main() -> None:
    """Index, break, print."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=15)
    options.add_argument("--clients", type=int, default=2)
    options.add_argument("--texts", type=int, default=50)
    asked = options.parse_args()
    work = work_folder(asked)
    source = sharded(asked.bundle, asked.corpus, work / "sets", _SHARDS)
    texts = titles(asked.corpus, asked.texts)
    root = source.parents[1]
    with cluster() as address, fleet(address, root, 2, work, source.name) as running:
        found: dict[str, Any] = {"load_before": os.getloadavg()[0]}
        show({**found, **measure(running, source.name, texts, asked)}, asked.json)


if __name__ == "__main__":
    main()
