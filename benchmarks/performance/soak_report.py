"""Memory, open files and slopes of the soak test, and its report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.harness.plots import curves
from benchmarks.harness.report import machine

_WARM_UP_SHARE = 0.2  # of the samples, not part of the slopes


class Observed(Protocol):
    """What the report reads of the observations of a run."""

    counts: Counter[str]
    wrong: list[str]
    samples: list[dict[str, Any]]


def process_usage(process: int) -> dict[str, float]:
    """Read memory in MB, open files and threads of a process."""
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    kilobytes = {
        line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:] if ":" in line
    }
    return {
        "anonymous_mb": kilobytes["Anonymous"] / 1024,
        "pss_mb": kilobytes["Pss"] / 1024,
        "files": len(os.listdir(f"/proc/{process}/fd")),
        "threads": len(os.listdir(f"/proc/{process}/task")),
    }


def slope(times_s: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """Fit a line through the samples after the warm-up.

    Args:
        times_s: seconds since the start, one per sample.
        values: one per sample.

    Returns:
        The mean, the slope per hour, its standard error, and the means of the first and last third.
    """
    first = int(len(times_s) * _WARM_UP_SHARE)
    t, y = np.asarray(times_s[first:]) / 3600, np.asarray(values[first:])
    if len(t) < 4:
        return {"mean": float(y.mean()), "per_hour": float("nan"), "error": float("nan")}
    centred = t - t.mean()
    rise = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - rise * centred
    error = float(np.sqrt(rest @ rest / (len(t) - 2) / (centred @ centred)))
    third = len(y) // 3
    return {
        "mean": round(float(y.mean()), 2),
        "per_hour": round(rise, 2),
        "error": round(error, 2),
        "first_third": round(float(y[:third].mean()), 2),
        "last_third": round(float(y[-third:].mean()), 2),
        "largest": round(float(y.max()), 2),
    }


def report(
    seen: Observed,
    documents: int,
    minutes: float,
    workers: Sequence[int],
    out: Path,
    log_bytes: int,
) -> dict[str, Any]:
    """Return the figures; write soak.json and soak.svg."""
    times = [sample["t"] for sample in seen.samples]
    series = {
        what: {str(w): [sample[str(w)][what] for sample in seen.samples] for w in workers}
        for what in ("anonymous_mb", "pss_mb", "files", "threads")
    }
    found = {
        "minutes": minutes,
        "workers": len(workers),
        "machine": machine(("fastapi", "numpy", "uvicorn")),
        "counts": dict(sorted(seen.counts.items())),
        "wrong": seen.wrong,
        "documents": documents,
        "log_bytes": log_bytes,
        "slopes": {
            what: {f"worker {i}": slope(times, values) for i, values in enumerate(lines.values())}
            for what, lines in series.items()
        },
    }
    with (out / "soak.json").open("w", encoding="utf-8") as file:
        json.dump({**found, "samples": seen.samples}, file, indent=1)
    hours = [t / 60 for t in times]
    curves(
        out / "soak.svg",
        {
            title: {
                f"worker {i}": (hours, values) for i, values in enumerate(series[what].values())
            }
            for what, title in (
                ("anonymous_mb", "private memory, MB"),
                ("pss_mb", "memory with its share of mapped files, MB"),
                ("files", "open files"),
            )
        },
        x="minutes",
        y="",
    )
    return found
