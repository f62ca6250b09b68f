"""Swap the version of a fleet again and again under searches: no answer of two versions, none that fails.

    python -m benchmarks.fleet.swaps BUNDLE CORPUS [--swaps 1000] [--shards 2] [--clients 1] [--work DIR] [--json]

Starts a Ray cluster of two nodes on this machine with two replicas of each shard and one router. Versions have in turn
all documents of CORPUS and every second one, and each version is a new one that replicas open and verify. Every
answer is compared, id by id and score by score, with the undisturbed one of the version that it names.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleet.collection import cloned, halved, sharded, titles
from benchmarks.fleet.local import Fleet, cluster, fleet, parser, work_folder
from benchmarks.fleet.searching import Expected, Searches, answers
from benchmarks.harness.report import show

_UNDISTURBED_S = 10.0
# Folders of the latest versions that are kept, for routers that are late.
_KEPT = 8


class _Turns(Mapping[str, Expected]):
    """What each version must answer: those of even numbers as the first set, the others as the second."""

    def __init__(self, sets: tuple[Expected, Expected]) -> None:
        self._sets = sets

    def __getitem__(self, version: str) -> Expected:
        return self._sets[int(version.rpartition("-")[2]) % 2]

    def __iter__(self) -> Any:
        return iter(("swap-0", "swap-1"))

    def __len__(self) -> int:
        return 2


def measure(running: Fleet, sources: tuple[Path, Path], texts: list[str], asked: Any) -> Any:
    """Swap under searches; return counts and times."""
    url = running.router.url
    first = answers(url, texts)
    made = deque([cloned(sources[1], "swap-1")])
    running.activate("swap-1")
    wait_until_served(url, "swap-1")
    expected = _Turns((first, answers(url, texts)))
    with Searches(url, expected, clients=asked.clients) as undisturbed:
        time.sleep(_UNDISTURBED_S)
    memory = _resident(running)
    seconds = []
    with Searches(url, expected, clients=asked.clients) as searches:
        for number in range(2, asked.swaps + 2):
            made.append(cloned(sources[number % 2], f"swap-{number}"))
            began = time.perf_counter()
            running.activate(f"swap-{number}")
            seconds.append(time.perf_counter() - began)
            if len(made) > _KEPT:
                shutil.rmtree(made.popleft())
    return {
        "swaps": len(seconds),
        "swap_p50_s": float(np.median(seconds)),
        "swap_p99_s": float(np.quantile(seconds, 0.99)),
        "undisturbed": undisturbed.facts(),
        "under_swaps": searches.facts(),
        "generations_that_answered": len(searches.generations),
        "wrong": [str(body)[:300] for body in searches.wrong[:3]],
        "resident_mb": {"before": memory, "after": _resident(running)},
        "load": os.getloadavg(),
    }


def wait_until_served(url: str, version: str) -> None:
    """Wait until a router answers by a version."""
    import httpx

    while httpx.get(f"{url}/v1/search", params={"q": "x"}).json()["model"] != version:
        time.sleep(0.05)


def _resident(running: Fleet) -> dict[str, int]:
    """Return the memory of the router and of a replica in MB, without mapped files."""
    pids = {"router": running.router.workers[0], "replica": running.pid(0, 0)}
    found = {}
    for name, pid in pids.items():
        status = Path(f"/proc/{pid}/status").read_text()
        found[name] = int(status.partition("RssAnon:")[2].split()[0]) // 1024
    return found


def main() -> None:
    """Index, swap, print."""
    options = parser(__doc__)
    options.add_argument("--swaps", type=int, default=1000)
    options.add_argument("--shards", type=int, default=2)
    options.add_argument("--clients", type=int, default=1)
    options.add_argument("--texts", type=int, default=50)
    asked = options.parse_args()
    work = work_folder(asked)
    corpora = (asked.corpus, halved(asked.corpus, work / "half"))
    whole, half = (
        sharded(asked.bundle, corpus, work / f"set-{number}", asked.shards)
        for number, corpus in enumerate(corpora)
    )
    root = whole.parents[1]
    shutil.move(half, whole.parent / half.name)
    sources = (whole, whole.parent / half.name)
    texts = titles(asked.corpus, asked.texts)
    with cluster() as address, fleet(address, root, 2, work, whole.name) as running:
        show(measure(running, sources, texts, asked), asked.json)


if __name__ == "__main__":
    main()
