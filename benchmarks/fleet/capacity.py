"""How many machines a number of documents and clicks needs, what they cost, and how long an answer takes.

    python -m benchmarks.fleet.capacity [--per-second 200] [--set NAME=VALUE] [--write] [--json]

Everything that was measured is read from where it is published: the pages (inputs.py), and the times of shards that
recording.py has recorded (recorded.json). The simulation of fanout.py replays these times. Rows: 10⁷, 10⁸ and 10⁹
documents; 10⁸ to 10¹⁰ clicks; what one machine can do; and the simulation against the measured fleet. --write puts the
tables into docs/scale.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.fleet.fanout import Float64, Load, Machine, one_client, simulate
from benchmarks.fleet.inputs import number_in, read_inputs, router_rows
from benchmarks.fleet.recording import Recorded, ShardTimes, read_recorded
from benchmarks.fleet.tables import tables, write
from benchmarks.harness.report import show

DOCUMENTS = (10**7, 10**8, 10**9)
CLICKS = (10**8, 10**9, 10**10)
_HOURS_A_MONTH = 730
# The machine of all pages of results.
_CORES, _GIB = 2, 23.5


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the time and the size of a shard grow with its documents: a line through two recorded shards.

    Attributes:
        small, large: The smallest and the largest recorded shard.
        fixed_s: Mean time of a shard without documents.
        document_s: What each document adds.
    """

    small: ShardTimes
    large: ShardTimes

    @property
    def document_s(self) -> float:
        """Seconds that each document adds to the mean time of an answer."""
        added = float(self.large.answer_s.mean() - self.small.answer_s.mean())
        return added / (self.large.documents - self.small.documents)

    @property
    def fixed_s(self) -> float:
        """Mean seconds of an answer of a shard without documents."""
        return float(self.small.answer_s.mean()) - self.document_s * self.small.documents

    def mean_s(self, documents: float) -> float:
        """Return the mean time of an answer of a shard, in seconds."""
        return self.fixed_s + self.document_s * documents

    def seconds(self, documents: float) -> Float64:
        """Return times of a shard: those of the largest, of which all but the fixed part grows."""
        growing = np.maximum(self.large.answer_s - self.fixed_s, 0)
        return self.fixed_s + growing * (documents / self.large.documents)

    def gib(self, documents: float) -> float:
        """Return the size of the bundle of a shard with its model."""
        size = documents * self.large.bytes / self.large.documents + self.large.model_bytes
        return size / 2**30


def scaling_of(shards: Sequence[ShardTimes]) -> Scaling:
    """Return the line through the smallest and the largest of recorded shards, ascending."""
    return Scaling(shards[0], shards[-1])


def plan(
    scaling: Scaling, documents: int, per_second: float, given: Mapping[str, float]
) -> dict[str, Any]:
    """Return one row: what this many documents need.

    Args:
        scaling: Of a shard.
        documents: Of all fleets.
        per_second: Searches.
        given: A value for each name of ``read_inputs``.

    Raises:
        ValueError: A replica needs more memory than a machine has.
    """
    least = math.ceil(documents / given["shard_documents"])
    fleets = math.ceil(least / given["most_shards"])
    fan_out = math.ceil(least / fleets)
    shards = fleets * fan_out
    gib = scaling.gib(documents / shards)
    if gib > given["machine_gib"]:
        raise ValueError(f"a shard needs {gib:.0f} GiB: set a lower shard_documents")
    service_s = scaling.seconds(documents / shards) + given["call_ms"] / 1000
    # Of all replicas of a shard, which share its requests.
    busy_cores = per_second * float(service_s.mean()) / given["busy"]
    replicas = max(int(given["replicas"]), math.ceil(busy_cores / given["machine_cores"]))
    cores = math.ceil(busy_cores / replicas)
    on_a_machine = int(min(given["machine_gib"] // gib, given["machine_cores"] // cores))
    router_ms = given["router_base_ms"] + fan_out * given["router_ms"]
    router_cores = fleets * math.ceil(per_second * router_ms / 1000 / given["busy"])
    machines = math.ceil(shards * replicas / on_a_machine)
    machines += math.ceil(router_cores / given["machine_cores"])
    router_s = given["router_ms"] / 1000
    load = Load(shards, cores, replicas, per_second, router_s, fan_out=fan_out)
    found = simulate(service_s, load, max(1_000, 200_000 // shards), seed=1)
    core_hours = documents * given["index_ms"] / 3.6e6
    return {
        "documents": documents,
        "fleets": fleets,
        "shards": fan_out,
        "shard_documents": round(documents / shards),
        "times_recorded": round(documents / shards / scaling.large.documents, 1),
        "replicas": replicas,
        "replica_cores": cores,
        "disk_gib": round(shards * gib),
        "memory_gib": round(shards * replicas * gib),
        "cores": shards * replicas * cores + router_cores,
        "machines": machines,
        "money_a_month": round(machines * given["machine_month"]),
        "index_core_hours": round(core_hours, 1),
        "index_money": round(core_hours * _core_hour(given), 2),
        "p50_ms": given["router_base_ms"] + 1000 * found.percentile(0.5),
        "p99_ms": given["router_base_ms"] + 1000 * found.percentile(0.99),
        "busy": round(found.busy, 2),
        "hedged": round(found.hedged, 3),
    }


def clicks(count: float, given: Mapping[str, float]) -> dict[str, Any]:
    """Return what a number of clicks needs: gzipped logs, and training on all of them with either loss."""
    gib = count * given["click_bytes"] / 2**30
    row: dict[str, Any] = {
        "clicks": count,
        "log_gib": round(gib, 1),
        "log_money_a_month": round(gib * given["gib_month"], 2),
    }
    for loss in ("softmax", "margin"):
        hours = count * given["epochs"] / given[f"{loss}_links_per_s"] / 3600
        row[f"{loss}_core_hours"] = round(hours, 1)
        row[f"{loss}_machines"] = math.ceil(
            hours / given["machine_cores"] / given["training_hours"]
        )
        row[f"{loss}_money"] = round(hours * _core_hour(given), 2)
    return row


def one_machine(scaling: Scaling, busy: float) -> list[dict[str, Any]]:
    """Return what a machine of 2 cores and 23.5 GiB can do: measured, and up to the documents that its memory holds.

    Args:
        scaling: Of a bundle.
        busy: Share of the cores that searches use.
    """
    http = {mode: _http(mode) for mode in ("exact", "fast")}
    million_fast_us = number_in(
        "results/speed.md",
        r"^\| a million documents, fast, with evidence \| [\d,]+, [\d,]+ \| ([\d,]+), ",
    )
    own_gb = number_in("results/retrieval.md", r"^  \| records \| [\d.]+ \| ([\d.]+) \|")
    left = _GIB - own_gb * 1e9 / 2**30 - scaling.gib(0)
    most = left / (scaling.gib(1) - scaling.gib(0))

    def per_second(mode: str, search_s: float) -> float:
        return busy * _CORES / (search_s + http[mode][1])

    return [
        {"documents": 63_435, **{mode: busy * rate for mode, (rate, _) in http.items()}},
        {
            "documents": 10**6,
            "exact": per_second("exact", scaling.mean_s(1e6)),
            "fast": per_second("fast", million_fast_us / 1e6),
        },
        {
            "documents": round(most),
            "exact": per_second("exact", scaling.mean_s(most)),
            "fast": None,
        },
    ]


def _http(mode: str) -> tuple[float, float]:
    """Return searches a second of two workers over Debian, and seconds of a search beside its ranking."""
    row = rf"^\| {mode}, two \| 2 \| 32 \| "
    rate = number_in("results/http.md", row + r"([\d,]+)")
    worker_us = number_in("results/http.md", row + r"(?:[^|]*\| ){3}([\d,]+)")
    rank_us = number_in("results/http.md", row + r"(?:[^|]*\| ){5}([\d,]+)")
    return rate, (worker_us - rank_us) / 1e6


def compare(recorded: Recorded, given: Mapping[str, float]) -> list[dict[str, Any]]:
    """Predict the measured fleets of docs/scale.md, one client on two cores, from the recorded times."""
    machine = Machine(
        _CORES,
        given["router_base_ms"] / 1e3,
        given["router_ms"] / 1e3,
        given["call_ms"] / 1e3,
    )
    rows = []
    measured_p50 = {shards: p50 for shards, (p50, _) in router_rows().items()}
    for shards in sorted(recorded.fleet.keys() & measured_p50.keys()):
        measured = measured_p50[shards]
        times = recorded.fleet[shards].answer_s
        found = 1000 * float(np.median(one_client(times, shards, machine, 20_000, seed=1)))
        rows.append(
            {
                "shards": shards,
                "answer_ms": 1000 * float(np.median(times)),
                "simulated_p50_ms": found,
                "measured_p50_ms": measured,
                "error": found / measured - 1,
            }
        )
    return rows


def _core_hour(given: Mapping[str, float]) -> float:
    """Return the money of an hour of a core."""
    return given["machine_month"] / given["machine_cores"] / _HOURS_A_MONTH


def settings(changes: Sequence[str]) -> dict[str, float]:
    """Return the inputs with some changed, each as NAME=VALUE. Raises ValueError for an unknown name."""
    given = {name: own.value for name, own in read_inputs().items()}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in given:
            raise ValueError(f"--set {change}: no input {name!r}; there are {', '.join(given)}")
        given[name] = float(value)
    return given


def model(given: Mapping[str, float], recorded: Recorded, per_second: float) -> dict[str, Any]:
    """Return all rows.

    Args:
        given: A value for each name of ``read_inputs``.
        recorded: Times of shards.
        per_second: Searches.
    """
    scaling = scaling_of(recorded.scaling)
    return {
        "recorded": [
            {
                "documents": own.documents,
                "bytes_a_document": own.bytes / own.documents,
                "model_mb": own.model_bytes / 1e6,
                "mean_ms": 1000 * float(own.answer_s.mean()),
                "p99_ms": 1000 * float(np.quantile(own.answer_s, 0.99)),
                "line_ms": 1000 * scaling.mean_s(own.documents),
            }
            for own in recorded.scaling
        ],
        "inputs": [
            {"name": name, "value": given[name], "unit": own.unit, "source": own.source}
            for name, own in read_inputs().items()
        ],
        "fleets": [plan(scaling, count, per_second, given) for count in DOCUMENTS],
        "clicks": [clicks(count, given) for count in CLICKS],
        "one_machine": one_machine(scaling, given["busy"]),
        "compared": compare(recorded, given),
    }


def main() -> None:
    """Compute, print, and write the tables if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--per-second", type=float, default=200.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = model(settings(asked.set), read_recorded(), asked.per_second)
    if asked.write:
        write(tables(found))
    show(found, asked.json)


if __name__ == "__main__":
    main()
