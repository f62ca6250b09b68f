"""How many machines a number of documents and clicks needs, and how long an answer takes.

    python -m benchmarks.fleet.capacity BUNDLE [--queries FILE] [--per-second 200] [--json]

Records the processor time of searches of one bundle, which stands for one shard, and of reading it. The table has a row
for 10⁷, 10⁸ and 10⁹ documents: shards, disk, memory, cores, machines, money, and the times of a simulation that replays
the recorded times (fanout.py). What is not measured here is an assumption, named with its source in ``ASSUMED``; change
it with --set NAME=VALUE.

The time of an exact search is taken to grow with the documents of a shard, which retrieval.md measures from 63,000 to
1,000,000 documents.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleet.fanout import Float64, Load, simulate
from benchmarks.harness.report import show
from fullrank import open_bundle
from fullrank.bundle import Bundle

DOCUMENTS = (10**7, 10**8, 10**9)
# name → (value, unit, where it comes from)
ASSUMED: dict[str, tuple[float, str, str]] = {
    "shard_documents": (4e6, "documents", "choice: a shard is indexed and loaded within minutes"),
    "replicas": (2, "replicas", "choice: one may fail"),
    "busy": (0.5, "share of a core", "choice: so that queues stay short; fanout.py checks it"),
    "router_ms": (
        0.35,
        "ms a shard",
        "processor time of one call with bytes, measured with Ray 2.60",
    ),
    "encode_ms": (0.2, "ms a query", "docs/results/speed.md"),
    "index_ms": (0.1, "ms a document", "10,300 documents a second on two cores, docs/indexing.md"),
    "click_bytes": (400, "bytes a click", "a gzipped UBI event with its share of a served list"),
    "links_per_s": (1.0e5, "links a second", "softmax steps of one core, docs/results/training.md"),
    "epochs": (8, "epochs", "the default recipe on a large collection"),
    "machine_cores": (16, "cores", "choice"),
    "machine_gib": (64, "GiB", "choice"),
    "machine_month": (400, "money a month", "an example: put in the price of your provider"),
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was measured on one bundle.

    Attributes:
        documents: Of the bundle.
        bytes: Of the bundle on disk.
        search_s: float64 (n,), processor time of each search.
    """

    documents: int
    bytes: int
    search_s: Float64

    def per_shard(self, documents: float) -> Float64:
        """Return the times of a shard with another number of documents."""
        return self.search_s * (documents / self.documents)


def record(bundle: Bundle, texts: Sequence[str]) -> Recorded:
    """Measure the processor time of exact searches; each is done twice, and the second time counts."""
    taken = []
    for text in texts:
        query = bundle.encode(text)
        bundle.retriever.search(query, 10)
        began = time.process_time()
        bundle.retriever.search(query, 10)
        taken.append(time.process_time() - began)
    return Recorded(len(bundle.documents), bundle.manifest.total_bytes, np.array(taken))


def plan(
    recorded: Recorded, documents: int, per_second: float, given: Mapping[str, float]
) -> dict[str, Any]:
    """Return one row: what this many documents need.

    Args:
        recorded: Of one bundle.
        documents: Of the fleet.
        per_second: Searches.
        given: A value for each name in ``ASSUMED``.
    """
    shards = math.ceil(documents / given["shard_documents"])
    replicas = int(given["replicas"])
    search_s = recorded.per_shard(documents / shards)
    core_s = per_second * float(search_s.mean())
    # Of each replica; requests are shared among the replicas of a shard.
    cores = math.ceil(core_s / replicas / given["busy"])
    router_s = (given["encode_ms"] + shards * given["router_ms"]) / 1000
    router_cores = math.ceil(per_second * router_s / given["busy"])
    stored = documents * recorded.bytes / recorded.documents
    total_cores = shards * replicas * cores + router_cores
    gib = replicas * stored / 2**30
    machines = math.ceil(
        max(total_cores / given["machine_cores"], gib / given["machine_gib"], replicas)
    )
    load = Load(shards, cores, replicas, per_second, given["router_ms"] / 1000)
    found = simulate(search_s, load, max(200, 400_000 // shards), seed=1)
    return {
        "documents": documents,
        "shards": shards,
        "fan_out_fits": shards <= 16,
        "disk_gib": round(stored / 2**30, 1),
        "memory_gib": round(gib, 1),
        "cores": total_cores,
        "machines": machines,
        "money_a_month": round(machines * given["machine_month"]),
        "index_core_hours": round(documents * given["index_ms"] / 3.6e6, 1),
        "p50_ms": round(1000 * found.percentile(0.5), 1),
        "p99_ms": round(1000 * found.percentile(0.99), 1),
        "busy": round(found.busy, 2),
        "hedged": round(found.hedged, 3),
    }


def clicks(count: float, given: Mapping[str, float]) -> dict[str, Any]:
    """Return what a number of clicks needs: gzipped logs, and core hours of training on all of them."""
    return {
        "clicks": count,
        "log_gib": round(count * given["click_bytes"] / 2**30),
        "training_core_hours": round(count * given["epochs"] / given["links_per_s"] / 3600, 1),
    }


def settings(changes: Sequence[str]) -> dict[str, float]:
    """Return the assumptions with some changed, each as NAME=VALUE. Raises ValueError for an unknown name."""
    given = {name: value for name, (value, _, _) in ASSUMED.items()}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in given:
            raise ValueError(
                f"--set {change}: no assumption {name!r}; there are {', '.join(given)}"
            )
        given[name] = float(value)
    return given


def main() -> None:
    """Record, plan, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument(
        "--queries", type=Path, help="a text file, one query a line; default: titles"
    )
    parser.add_argument("--per-second", type=float, default=200.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    given = settings(asked.set)
    bundle = open_bundle(asked.bundle, verify=False)
    recorded = record(bundle, _queries(bundle, asked.queries))
    rows = [plan(recorded, count, asked.per_second, given) for count in DOCUMENTS]
    show(
        {
            "recorded": {
                "documents": recorded.documents,
                "bytes_a_document": round(recorded.bytes / recorded.documents),
                "search_ms": round(1000 * float(recorded.search_s.mean()), 3),
                "search_p99_ms": round(1000 * float(np.quantile(recorded.search_s, 0.99)), 3),
            },
            "assumed": {name: [given[name], *ASSUMED[name][1:]] for name in given},
            "fleets": rows,
            "clicks": [clicks(count, given) for count in (1e8, 1e9, 1e10)],
        },
        asked.json,
    )


def _queries(bundle: Bundle, file: Path | None, count: int = 400) -> list[str]:
    if file is not None:
        return [line for line in file.read_text("utf-8").splitlines() if line.strip()][:count]
    rows = np.random.default_rng(1).integers(len(bundle.documents), size=count)
    titles = [bundle.documents.fields(row).get("title") for row in rows.tolist()]
    return [title for title in titles if isinstance(title, str) and title.strip()]


if __name__ == "__main__":
    main()
