"""Time to open a bundle, its memory, and the memory bandwidth of this machine.

    python -m benchmarks.performance.footprint BUNDLE QUERIES            workers: open, answer, wait for a line, end
    python -m benchmarks.performance.footprint --serve BUNDLES QUERIES   a service: starts, answers; prints its memory

Workers are forked as those of the service are, from a process with its code; they open the bundle and answer every
query in every mode. The proportional set size (each page divided by the number of processes that map it) of all these
processes is read while they run; the sum is the memory that they use together. No other process may map the bundle
meanwhile. A service adds to that what its threads keep: completions, caches, and the connections.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.performance.servers import children, start, stop
from fullrank_service.models.workers import reports
from fullrank_service.process.forked import Forked, import_to_share

WORKERS = 4
_BYTES = 1 << 30
_REPEATS = 10
_ROOT = Path(__file__).resolve().parents[2]


def bandwidth() -> dict[str, float]:
    """Measure GB/s at which one core reads a float32 array of 1 GiB: the best of several ways and repeats."""
    array = np.ones(_BYTES // 4, np.float32)
    words = array.view(np.uint64)
    ways: dict[str, Callable[[], object]] = {
        "sum of float32": lambda: array.sum(),
        "largest of uint64": lambda: words.max(),
        "or of uint64": lambda: np.bitwise_or.reduce(words),
        "dot of float32": lambda: np.dot(array, array),
    }
    found = {}
    for name, way in ways.items():
        took = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            way()
            took.append(time.perf_counter() - began)
        # A dot product of an array with itself reads it once.
        found[name] = round(_BYTES / min(took) / 1e9, 2)
    return found | {"best": max(found.values())}


def folder_bytes(path: Path) -> dict[str, int]:
    """Return the bytes of a folder's files by the first part of their path, and of all."""
    found: dict[str, int] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            part = file.relative_to(path).parts[0]
            found[part] = found.get(part, 0) + file.stat().st_size
    return found | {"all": sum(found.values())}


def workers(bundle: Path, queries: Sequence[str], scratch: Path) -> dict[str, Any]:
    """Fork WORKERS processes one after another; return their output, and the memory of all after all have answered."""
    asked = scratch / "queries.json"
    asked.write_text(json.dumps(list(queries)), "utf-8")
    parent = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.performance.footprint", str(bundle), str(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    )
    try:
        assert parent.stdout is not None
        line = parent.stdout.readline()
        if not line:
            raise RuntimeError(f"the workers ended with {parent.wait()}")
        processes, found = json.loads(line)
        memory = _summed(processes)
        mapped = sum((mapped_bytes(one, bundle.resolve()) for one in processes), Counter[str]())
    finally:
        parent.communicate("end\n")
    return {
        "workers": WORKERS,
        "queries_each": len(queries),
        **memory,
        "of_folders_gb": {name: round(size / 1e9, 4) for name, size in mapped.most_common()},
        # The first one may read from disk.
        "open_s": round(min(one["open_s"] for one in found), 4),
        "open_s_each": [round(one["open_s"], 4) for one in found],
        "first_answers_s": {
            mode: round(min(one["first"][mode] for one in found), 4) for mode in found[0]["first"]
        },
    }


def served(bundles: Path, queries: Sequence[str]) -> dict[str, Any]:
    """Start a service with WORKERS workers and ask it over HTTP; return the memory of all its processes.

    Each query is asked WORKERS times in each mode, over new connections, so every worker gets about all of them.
    """
    began = time.perf_counter()
    module, settings = "fullrank_service.process.run", {"FULLRANK_BUNDLES": str(bundles.resolve())}
    process, url = start(module, settings, "/readyz", WORKERS)
    try:
        while sum(report.started for report in reports(bundles)) < WORKERS:
            time.sleep(0.01)
        started = time.perf_counter() - began
        processes = [process.pid, *children(process.pid)]
        before = _summed(processes)
        for mode in ("exact", "fast"):
            for query in [*queries] * WORKERS:
                body, alone = {"query": query, "mode": mode}, {"Connection": "close"}
                httpx.post(f"{url}/v1/search", json=body, headers=alone).raise_for_status()
        mapped = sum((mapped_bytes(one, bundles.resolve()) for one in processes), Counter[str]())
        return {
            "workers": WORKERS,
            "queries_each": len(queries),
            "started_s": round(started, 2),
            "before_the_first_query": before,
            **_summed(processes),
            "of_bundles_gb": round(sum(mapped.values()) / 1e9, 4),
        }
    finally:
        stop(process)


def _summed(processes: Sequence[int]) -> dict[str, float]:
    """Return the proportional memory of all these processes together."""
    memory = [_memory(process) for process in processes]
    return {
        "proportional_set_gb": round(sum(m["Pss"] for m in memory) / 1e9, 4),
        "of_files_gb": round(sum(m["Pss_File"] for m in memory) / 1e9, 4),
        "of_their_own_gb": round(sum(m["Pss_Anon"] for m in memory) / 1e9, 4),
    }


def _memory(pid: int) -> dict[str, int]:
    """Return bytes by the names of smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: 1024 * int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}


def mapped_bytes(pid: int, bundle: Path) -> Counter[str]:
    """Return the proportional bytes of mapped files by folder of the bundle."""
    found, folder = Counter[str](), ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *rest = line.split(maxsplit=5)
        if not name.endswith(":"):  # the line that begins a mapping ends with its file
            file = Path(rest[4]) if len(rest) == 5 else Path()
            inside = file.is_relative_to(bundle)
            folder = file.relative_to(bundle).parts[0] if inside else ""
        elif name == "Pss:" and folder:
            found[folder] += 1024 * int(rest[0])
    return found


def _fork_workers(path: Path, queries: Sequence[str]) -> None:
    """Fork workers, print their process ids (the first is this one) and reports, and wait for a line."""
    import_to_share("fullrank_service.app")
    ends, processes, found = [], [os.getpid()], []
    for _ in range(WORKERS):
        ours, theirs = socket.socketpair()
        worker = Forked(partial(_work, path, queries, theirs), [theirs.fileno()])
        theirs.close()
        line = ours.makefile().readline()
        if not line:
            raise RuntimeError(f"a worker ended with {worker.wait()}")
        ends.append(ours)
        processes.append(worker.pid)
        found.append(json.loads(line))
    print(json.dumps([processes, found]), flush=True)
    sys.stdin.readline()


def _work(path: Path, queries: Sequence[str], end: socket.socket) -> None:
    """Open (mapped, after imports, ready for the first search), answer, report, and wait for the parent's end."""
    from fullrank.bundle import open_bundle
    from fullrank_service.heap import trim_heap

    began = time.perf_counter()
    bundle = open_bundle(path, verify=False)
    bundle.retriever.warm()
    opened = time.perf_counter() - began
    first: dict[str, float] = {}
    for mode in bundle.retriever.modes:
        for query in queries:
            encoded = bundle.model.encode_queries([query])
            began = time.perf_counter()
            bundle.retriever.search(encoded, 10, mode=mode)
            first.setdefault(mode, time.perf_counter() - began)
    trim_heap()  # as the service does when it has opened a bundle
    end.sendall(json.dumps({"open_s": opened, "first": first}).encode() + b"\n")
    end.recv(1)


if __name__ == "__main__":
    *serve, place, asked = sys.argv[1:]
    texts = json.loads(Path(asked).read_text())
    if serve == ["--serve"]:
        print(json.dumps(served(Path(place), texts), indent=2))
    else:
        _fork_workers(Path(place), texts)
