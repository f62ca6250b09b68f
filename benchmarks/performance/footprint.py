"""Time to open a bundle, and its memory in several workers.

Workers are forked as those of the service are, from a process with its code; they open the bundle and answer every
query in every mode. The proportional set size (each page divided by the number of processes that map it) of all these
processes is read while they run; the sum is the memory that they use together. No other process may map the bundle
meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fullrank_service.process.supervisor import Forked, import_to_share

WORKERS = 4
_ROOT = Path(__file__).resolve().parents[2]


def workers(
    bundle: Path, queries: Sequence[str], scratch: Path, count: int = WORKERS
) -> dict[str, Any]:
    """Fork processes one after another; return their output, and the memory of all after all have answered."""
    asked = scratch / "queries.json"
    asked.write_text(json.dumps(list(queries)), "utf-8")
    parent = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.performance.footprint"),
            *(str(bundle), str(asked), str(count)),
        ],
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
        memory = summed(processes)
    finally:
        parent.communicate("end\n")
    return {
        **memory,
        # The first one may read from disk.
        "open_s": round(min(one["open_s"] for one in found), 4),
        "first_answers_s": {
            mode: round(min(one["first"][mode] for one in found), 4) for mode in found[0]["first"]
        },
    }


def summed(processes: Sequence[int]) -> dict[str, float]:
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


def _fork_workers(path: Path, queries: Sequence[str], count: int) -> None:
    """Fork workers, print their process ids (the first is this one) and reports, and wait for a line."""
    import_to_share("fullrank_service.app")
    ends, processes, found = [], [os.getpid()], []
    for _ in range(count):
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
    from fullrank_service.base.background import trim_heap

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
    place, asked, number = sys.argv[1:]
    _fork_workers(Path(place), json.loads(Path(asked).read_text()), int(number))
