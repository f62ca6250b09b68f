"""Time to open a bundle, its memory, and the memory bandwidth of this machine.

    python -m benchmarks.performance.footprint BUNDLE QUERIES     one worker: opens, answers, waits for a line, ends

Workers are processes with the code of the service that open the bundle and answer every query in every mode. Their
proportional set size (each page divided by the number of processes that map it) is read while all of them run; the sum
is the memory that they use together. No other process may map the bundle meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    """Start WORKERS processes one after another; return their output, and their memory after all have answered."""
    asked = scratch / "queries.json"
    asked.write_text(json.dumps(list(queries)), "utf-8")
    running: list[subprocess.Popen[str]] = []
    reports = []
    try:
        for _ in range(WORKERS):
            worker = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.performance.footprint", str(bundle), str(asked)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=_ROOT,
            )
            running.append(worker)
            assert worker.stdout is not None
            line = worker.stdout.readline()
            if not line:
                raise RuntimeError(f"a worker ended with {worker.wait()}")
            reports.append(json.loads(line))
        memory = [_memory(worker.pid) for worker in running]
        mapped = sum(
            (mapped_bytes(worker.pid, bundle.resolve()) for worker in running), Counter[str]()
        )
    finally:
        for worker in running:
            worker.communicate("end\n")
    return {
        "workers": WORKERS,
        "queries_each": len(queries),
        "proportional_set_gb": round(sum(m["Pss"] for m in memory) / 1e9, 4),
        "of_files_gb": round(sum(m["Pss_File"] for m in memory) / 1e9, 4),
        "of_their_own_gb": round(sum(m["Pss_Anon"] for m in memory) / 1e9, 4),
        "of_folders_gb": {name: round(size / 1e9, 4) for name, size in mapped.most_common()},
        # The first one may read from disk.
        "open_s": round(min(one["open_s"] for one in reports), 4),
        "open_s_each": [round(one["open_s"], 4) for one in reports],
        "first_answers_s": {
            mode: round(min(one["first"][mode] for one in reports), 4)
            for mode in reports[0]["first"]
        },
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


def _work(path: Path, queries: Sequence[str]) -> dict[str, Any]:
    """Open (mapped, after imports, ready for the first search), then answer."""
    import service.app  # noqa: F401  # what a worker holds beside the bundle
    from benchmarks.performance.engines import ours, ready
    from fullrank.bundle import open_bundle

    began = time.perf_counter()
    bundle = open_bundle(path, verify=False)
    bundle.retriever.warm()
    opened = time.perf_counter() - began
    first = {}
    for mode in bundle.retriever.modes:
        ask = ours(bundle.retriever, mode)
        began = time.perf_counter()
        ask(ready(bundle.model, queries[:1])[0])
        first[mode] = time.perf_counter() - began
        for query in ready(bundle.model, queries):
            ask(query)
    global _held
    _held = bundle
    return {"open_s": opened, "first": first}


_held: object = None

if __name__ == "__main__":
    print(
        json.dumps(_work(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))), flush=True
    )
    sys.stdin.readline()
