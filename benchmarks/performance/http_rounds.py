"""Figures, ratios and tables of the HTTP benchmark, from the rounds that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np
import numpy.typing as npt

from benchmarks.harness.tables import Table
from benchmarks.performance.servers import Server
from benchmarks.performance.wrk import Load, Wrk

BARS = {
    "share_of_empty_route_fast": 0.25,
    "share_of_empty_route_exact": 0.12,
    "two_workers_over_one": 1.7,
}
Float64 = npt.NDArray[np.float64]


@dataclass(eq=False)
class Mix:
    """Queries in the order of sending; ``place`` is the index where the next run continues."""

    texts: Sequence[str]
    place: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """The requests of a mix in one mode, as a file of bodies."""

    bodies: Path
    mix: Mix


@dataclass(frozen=True, slots=True)
class System:
    """One system of a round: a server, its requests, and the number of connections."""

    name: str
    server: Server
    stream: Stream
    connections: int
    cores: tuple[int, ...]


@dataclass(eq=False)
class Rounds:
    """The measurements of one system, one value per round."""

    system: System
    loads: list[Load] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    cached: list[float] = field(default_factory=list)
    # Seconds of each stage, summed over all rounds.
    stages: dict[str, float] = field(default_factory=dict)

    def run(self, wrk: Wrk, seconds: float) -> None:
        """Measure one more round."""
        system, mix = self.system, self.system.stream.mix
        began = system.server.cpu_s()
        load = wrk.run(
            system.server.url,
            system.stream.bodies,
            mix.place,
            connections=system.connections,
            seconds=seconds,
            cores=system.cores,
        )
        self.cpu_s.append(system.server.cpu_s() - began)
        self.loads.append(load)
        # Requests in flight at the end were sent too.
        mix.place = (mix.place + load.requests + system.connections) % len(mix.texts)

    def per_second(self) -> Float64:
        return np.array([load.per_second for load in self.loads])

    def per_cpu_second(self) -> Float64:
        return np.array([n.requests / s for n, s in zip(self.loads, self.cpu_s, strict=True)])

    def figures(self) -> dict[str, Any]:
        """Return medians over the rounds; ``raw`` has the value of each round."""
        requests = sum(load.requests for load in self.loads)
        return {
            "connections": self.system.connections,
            "workers": len(self.system.server.workers),
            "requests": requests,
            "requests_per_second": _short(np.median(self.per_second())),
            "p50_ms": _short(np.median([load.p50_s for load in self.loads]) * 1e3),
            "p99_ms": _short(np.median([load.p99_s for load in self.loads]) * 1e3),
            "worker_cpu_us_per_request": _short(1e6 / np.median(self.per_cpu_second())),
            "wrk_cpu_us_per_request": _short(sum(n.cpu_s for n in self.loads) / requests * 1e6),
            "bytes_per_answer": round(sum(load.bytes for load in self.loads) / requests),
            "embeddings_from_cache": _short(np.mean(self.cached)) if self.cached else None,
            "stages_us_per_request": {
                stage: _short(seconds / requests * 1e6) for stage, seconds in self.stages.items()
            },
            "raw": {
                "requests_per_second": [_short(value) for value in self.per_second()],
                "worker_cpu_us_per_request": [_short(1e6 / v) for v in self.per_cpu_second()],
            },
        }


def shares(found: Mapping[str, Mapping[str, Rounds]]) -> dict[str, dict[str, float]]:
    """Compute every reported ratio within the rounds."""
    one, two = found["one"], found["two"]
    ratios = {
        f"share_of_empty_route_{name.replace(', ', '_')}": _over(one[name], one["empty"])
        for name in ("fast", "exact", "fast, zipf", "exact, zipf")
    }
    if two:
        for name, of in (("", "fast"), ("_exact", "exact"), ("_empty", "empty")):
            ratios[f"two_workers_over_one{name}"] = _over(two[f"{of}, two"], two[of])
        by_cpu = 2 * two["fast, two"].per_cpu_second() / two["fast"].per_cpu_second()
        ratios["two_workers_over_one_by_cpu"] = _quartiles(by_cpu)
        for mode in ("fast", "exact"):
            share = _over(two[f"{mode}, two"], two["empty, two"])
            ratios[f"share_of_empty_route_{mode}_two_workers"] = share
    return ratios


def _over(some: Rounds, other: Rounds) -> dict[str, float]:
    return _quartiles(some.per_second() / other.per_second())


def _quartiles(values: Float64) -> dict[str, float]:
    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    return {"median": _short(median), "q25": _short(low), "q75": _short(high)}


def _short(value: SupportsFloat) -> float:
    return float(f"{float(value):.4g}")


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def tables(
    figures: Mapping[str, Mapping[str, Any]], ratios: Mapping[str, Mapping[str, float]]
) -> list[Table]:
    """Return the table of figures and the table of ratios."""
    headings = ["route", "workers", "connections", "requests/s", "p50 ms", "p99 ms"]
    headings += ["worker µs", "encode µs", "rank µs", "wrk µs", "from cache"]
    rows = [
        [
            name,
            str(f["workers"]),
            str(f["connections"]),
            f"{f['requests_per_second']:,.0f}",
            f"{f['p50_ms']:.2f}",
            f"{f['p99_ms']:.2f}",
            f"{f['worker_cpu_us_per_request']:.0f}",
            *(_us(f["stages_us_per_request"].get(stage)) for stage in ("encode", "rank")),
            f"{f['wrk_cpu_us_per_request']:.0f}",
            "–" if f["embeddings_from_cache"] is None else f"{f['embeddings_from_cache']:.0%}",
        ]
        for part in figures.values()
        for name, f in part.items()
    ]
    notes = [
        "worker µs, wrk µs: processor time per request; from cache: share of embeddings found in a cache",
        "encode µs, rank µs: wall time by the metrics of the service; other requests may run in between",
        "alone: one connection, so nothing waits; empty: the answers of the service without a search",
    ]
    compared = [
        [
            name,
            f"{ratio['median']:.3f}",
            f"{ratio['q25']:.3f} to {ratio['q75']:.3f}",
            f"at least {BARS[name]:g}" if name in BARS else "–",
        ]
        for name, ratio in ratios.items()
    ]
    return [
        Table("debian over HTTP", headings, rows, notes),
        Table("Ratios within rounds", ["ratio", "median", "quartiles", "bar"], compared),
    ]
