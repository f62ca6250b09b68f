"""The inputs of the capacity model: measured ones are read from the pages that publish them.

A page that is written again with other numbers changes the model too. What is not measured is a choice or an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.fleet.recording import read_recorded

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True, slots=True)
class Input:
    """One input.

    Attributes:
        value: The number.
        unit: Of it.
        source: Where it comes from, in Markdown relative to docs/.
    """

    value: float
    unit: str
    source: str


def number_in(page: str, pattern: str) -> float:
    """Return the number that the group of a pattern matches in a page of docs/. Raises ValueError without a match."""
    found = re.search(pattern, (DOCS / page).read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(
            f"docs/{page}: nothing matches {pattern!r}, where the capacity model reads"
        )
    return float(found[1].replace(",", ""))


def router_line() -> tuple[float, float]:
    """Fit a line through the processor times of routers in docs/scale.md.

    Returns:
        ms of a search without shards, and ms that each shard adds.
    """
    rows = router_rows()
    slope, base = np.polyfit(list(rows), [processor_ms for _, processor_ms in rows.values()], 1)
    return round(float(base), 2), round(float(slope), 2)


def router_rows() -> dict[int, tuple[float, float]]:
    """Return the table of docs/scale.md "What a router costs": by shards, p50 in ms, and ms of processor time."""
    text = (DOCS / "scale.md").read_text("utf-8").split("## What a router costs", 1)[-1]
    lines = text.split("\n## ", 1)[0].splitlines()
    header = next(
        line for line in lines if line.startswith("|") and "processor time of the" in line
    )
    names = [name.strip() for name in header.split("|")]
    p50 = next(i for i, name in enumerate(names) if name.startswith("p50"))
    processor = next(i for i, name in enumerate(names) if name.startswith("processor time of the"))
    rows = {}
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.split("|")]
        if shards := re.search(r"(\d+) shards?\b", cells[1]):
            rows[int(shards[1])] = (float(cells[p50]), float(cells[processor]))
    return rows


_Read = Callable[[], float]

MEASURED: dict[str, tuple[_Read, str, str]] = {
    "router_base_ms": (
        lambda: router_line()[0],
        "ms a search",
        "[above](#what-a-router-costs): the line through the processor times, without shards; with encoding and HTTP",
    ),
    "router_ms": (
        lambda: router_line()[1],
        "ms a shard",
        "[above](#what-a-router-costs): the slope of this line",
    ),
    "call_ms": (
        lambda: round(1000 * read_recorded().call_s, 2),
        "ms a shard",
        "[below](#the-simulation-against-a-fleet): processor time of a shard beside its answer",
    ),
    "index_ms": (
        partial(number_in, "scale.md", r"Indexing takes ([\d.]+) ms of processor time a document"),
        "ms a document",
        "[above](#what-a-router-costs): indexing in shards",
    ),
    "click_bytes": (
        partial(number_in, "scale.md", r"^together ([\d,]+) bytes"),
        "bytes a click",
        "[below](#clicks)",
    ),
    "softmax_links_per_s": (
        partial(number_in, "results/training.md", r"^\| softmax, `fielded` \| ([\d,]+) "),
        "links a second and core",
        "[training](results/training.md)",
    ),
    "margin_links_per_s": (
        partial(number_in, "results/training.md", r"^\| margin, [^|]*\| ([\d,]+) "),
        "links a second and core",
        "[training](results/training.md)",
    ),
    "epochs": (
        partial(number_in, "results/slices.md", r"softmax loss, (\d+) epochs"),
        "epochs",
        "default of the recipes, [slices](results/slices.md)",
    ),
}

CHOSEN: dict[str, Input] = {
    "shard_documents": Input(6.25e6, "documents", "choice: 16 shards have 10⁸ documents"),
    "most_shards": Input(16, "shards a fleet", "what tests compare with one machine"),
    "replicas": Input(2, "replicas", "choice: one may fail"),
    "busy": Input(0.5, "share of a core", "choice: queues stay short, as the simulation shows"),
    "machine_cores": Input(16, "cores", "choice"),
    "machine_gib": Input(64, "GiB of memory", "choice"),
    "machine_month": Input(400, "money a month", "example: put in the price of your provider"),
    "gib_month": Input(0.02, "money a GiB and month", "example: object storage"),
    "training_hours": Input(24, "hours", "choice: training on all clicks takes at most a day"),
}


def read_inputs() -> dict[str, Input]:
    """Return all inputs by name. Raises ValueError if a page lacks a number."""
    measured = {
        name: Input(read(), unit, source) for name, (read, unit, source) in MEASURED.items()
    }
    return {**measured, **CHOSEN}
