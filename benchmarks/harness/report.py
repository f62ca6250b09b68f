"""Context of every figure: the machine, the versions."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any


def data_folder() -> Path:
    """Return the folder of the shared collections: FULLRANK_DATA, by default ../shared/data."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("FULLRANK_DATA") or default)
    if not folder.is_dir():
        sys.exit(f"the shared collections are not at {folder} (set FULLRANK_DATA)")
    return folder


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Describe processor, usable cores, memory, system, Python and versions of the named packages."""
    return {
        "processor": _cpuinfo("model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_at_start": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }


def _cpuinfo(field: str) -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    found = (line.split(":", 1)[1].strip() for line in lines if line.startswith(field))
    return next(found, None)


def seconds(call: Callable[[], object]) -> float:
    """Measure the wall time of one call in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def numbers(text: str) -> list[int]:
    """Read integers with commas between them, as an option of a command. Raises ValueError."""
    return [int(part) for part in text.split(",")]


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result as one JSON object, indented unless ``as_json``."""
    print(json.dumps(result, ensure_ascii=False, indent=None if as_json else 2))
