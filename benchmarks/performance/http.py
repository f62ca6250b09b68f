"""Measure searches over HTTP: requests per second and latency, as a share of an empty FastAPI route.

    python -m benchmarks.performance.http [--json] [--quick] [--bundles FOLDER] [--out DIR]

Debian's 63,435 package descriptions with the default recipe, trained once for at most --seconds per fit and stored in
--out. The service and the empty route (empty.py: the same answers, headers and bytes, on the same server with the same
settings) run at the same time, one worker each on the first core. wrk runs on the other cores, over keep-alive
connections that each wait for their answer. A round measures all systems in turn, in an order that rotates between
rounds. A share is computed within a round; the report gives its median and quartiles over the rounds.

distinct  a query repeats only after the embedding cache has evicted it; the shares use these
zipf      other queries, drawn with weight 1 / rank, so some repeat soon and often

The metrics of the service give the cache's hit rate and the time of encoding and ranking. Queries are descriptions of
titles and first words of texts, drawn by --seed. A request sets only query and mode: ten hits with all stored fields.
Latency is measured by wrk, with --connections (the worker is always busy) and with one connection.

Two workers have one core each. On a machine without further cores wrk takes part of both, which lowers
two_workers_over_one (requests per second of two workers over one). two_workers_over_one_by_cpu removes that part: twice
the requests per second of processor time of two workers, over the same of one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat

import httpx
import numpy as np
import numpy.typing as npt
import orjson

from benchmarks.harness.lab import Lab, basic_parser
from benchmarks.harness.report import Table, data_folder, machine
from benchmarks.performance.servers import Load, Server, Wrk, serving
from fullrank.bundle import open_bundle
from fullrank.text.words import words

BARS = {
    "share_of_empty_route_fast": 0.17,
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
            "requests_per_second": short(np.median(self.per_second())),
            "p50_ms": short(np.median([load.p50_s for load in self.loads]) * 1e3),
            "p99_ms": short(np.median([load.p99_s for load in self.loads]) * 1e3),
            "worker_cpu_us_per_request": short(1e6 / np.median(self.per_cpu_second())),
            "wrk_cpu_us_per_request": short(sum(n.cpu_s for n in self.loads) / requests * 1e6),
            "bytes_per_answer": round(sum(load.bytes for load in self.loads) / requests),
            "embeddings_from_cache": short(np.mean(self.cached)) if self.cached else None,
            "stages_us_per_request": {
                stage: short(seconds / requests * 1e6) for stage, seconds in self.stages.items()
            },
        }


def shares(found: Mapping[str, Mapping[str, Rounds]]) -> dict[str, dict[str, float]]:
    """Compute every reported ratio within the rounds."""
    one, two = found["one"], found["two"]
    ratios = {
        f"share_of_empty_route_{name.replace(', ', '_')}": over(one[name], one["empty"])
        for name in ("fast", "exact", "fast, zipf", "exact, zipf")
    }
    if two:
        for name, of in (("", "fast"), ("_exact", "exact"), ("_empty", "empty")):
            ratios[f"two_workers_over_one{name}"] = over(two[f"{of}, two"], two[of])
        by_cpu = 2 * two["fast, two"].per_cpu_second() / two["fast"].per_cpu_second()
        ratios["two_workers_over_one_by_cpu"] = quartiles(by_cpu)
        for mode in ("fast", "exact"):
            share = over(two[f"{mode}, two"], two["empty, two"])
            ratios[f"share_of_empty_route_{mode}_two_workers"] = share
    return ratios


def over(some: Rounds, other: Rounds) -> dict[str, float]:
    """Return the median and quartiles of a ratio of requests per second, each within a round."""
    return quartiles(some.per_second() / other.per_second())


def quartiles(values: Float64) -> dict[str, float]:
    """Return the median and the quartiles, rounded."""
    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    return {"median": short(median), "q25": short(low), "q75": short(high)}


def short(value: SupportsFloat) -> float:
    """Round to four digits."""
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


_PACKAGES = ("fastapi", "starlette", "uvicorn", "httptools", "pydantic", "orjson", "numpy")
_COLLECTION = "debian"
_RECIPE = "auto"
_QUERIES = 20_000
_ANSWERS = 200  # stored for the empty route
_COLD, _WARM = "distinct", "zipf"
_HIT, _MISS = "hit", "miss"


def read_queries(number: int, seed: int) -> list[str]:
    """Draw distinct queries: half descriptions from titles, half the first words of texts."""
    from fullrank_trainer.collection import read_collection

    documents = read_collection(data_folder() / _COLLECTION).documents
    draw = random.Random(seed)
    found: dict[str, None] = {}
    for i, document in enumerate(draw.sample(documents, len(documents))):
        title = str(document.fields["title"]).partition(": ")[2]
        first = words(str(document.fields["text"]))[: draw.randint(2, 8)]
        query = title if i % 2 == 0 else " ".join(first)
        if query:
            found[query] = None
        if len(found) == number:
            break
    return list(found)


def zipf(number: int, count: int, seed: int) -> list[int]:
    """Draw ``count`` indices below ``number``; the r-th has weight 1 / r."""
    weights = 1 / np.arange(1, number + 1)
    drawn = np.random.default_rng(seed).choice(number, count, p=weights / weights.sum())
    return [int(place) for place in drawn]


class Run:
    """One run: servers, load generator and query mixes."""

    def __init__(self, lab: Lab, given: argparse.Namespace, bundle: Path) -> None:
        self.lab, self.given, self.bundle = lab, given, bundle
        self.wrk = Wrk(lab.scratch)
        self.cores = sorted(os.sched_getaffinity(0))
        # The zipf mix has its own queries, so its cached embeddings do not help the other mix.
        found = read_queries(2 * given.queries, given.seed)
        self.queries, popular = found[::2], found[1::2]
        drawn = zipf(len(popular), len(popular), given.seed)
        self.again = [popular[place] for place in drawn]
        mixes = {_COLD: Mix(self.queries), _WARM: Mix(self.again)}
        self.streams = {
            (mode, name): self._stream(mode, name, mix)
            for mode in ("fast", "exact")
            for name, mix in mixes.items()
        }
        # The empty route gets its own position, so the service does not skip queries.
        self.unread = Stream(self.streams["fast", _COLD].bodies, Mix(self.queries))

    def _stream(self, mode: str, name: str, mix: Mix) -> Stream:
        path = self.lab.scratch / f"{mode}-{name}.jsonl"
        lines = (orjson.dumps({"query": text, "mode": mode}) for text in mix.texts)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return Stream(path, mix)

    def measure(self) -> dict[str, Any]:
        """Measure one worker, then two if there are two cores."""
        one, two = self.cores[:1], self.cores[:2]
        bundles = {"FULLRANK_BUNDLES": str(self.bundle.parents[1])}
        with serving("fullrank_service.process.run", bundles, "/readyz", one) as service:
            kept = {"ANSWERS": str(self._answers(service))}
            with serving("benchmarks.performance.empty", kept, "/livez", one) as empty:
                single = self._single(service, empty)
                if len(two) < 2:
                    return {"one": single, "two": {}}
                with (
                    serving("fullrank_service.process.run", bundles, "/readyz", two) as services,
                    serving("benchmarks.performance.empty", kept, "/livez", two) as empties,
                ):
                    double = self._double(service, services, empty, empties)
        return {"one": single, "two": double}

    def _answers(self, service: Server) -> Path:
        """Store answers of the service and their headers for the empty route; return the file."""
        bodies, headers = [], {}
        with httpx.Client(base_url=service.url) as client:
            for query in self.queries[:_ANSWERS]:
                reply = client.post("/v1/search", json={"query": query, "mode": "fast"})
                bodies.append(reply.raise_for_status().text)
                headers = dict(reply.headers)
        for name in ("date", "content-length"):  # the server adds these
            headers.pop(name, None)
        path = self.lab.scratch / "answers.json"
        path.write_text(json.dumps({"headers": headers, "bodies": bodies}), "utf-8")
        return path

    def _single(self, service: Server, empty: Server) -> dict[str, Rounds]:
        many, asking = self.given.connections, self._free_cores(service)
        fast, exact = self.streams["fast", _COLD], self.streams["exact", _COLD]
        return self._rounds(
            "one worker",
            [
                System("empty", empty, self.unread, many, asking),
                System("fast", service, fast, many, asking),
                System("exact", service, exact, many, asking),
                System("fast, zipf", service, self.streams["fast", _WARM], many, asking),
                System("exact, zipf", service, self.streams["exact", _WARM], many, asking),
                System("empty, alone", empty, self.unread, 1, asking),
                System("fast, alone", service, fast, 1, asking),
                System("exact, alone", service, exact, 1, asking),
            ],
        )

    def _double(
        self, service: Server, services: Server, empty: Server, empties: Server
    ) -> dict[str, Rounds]:
        fast, exact = self.streams["fast", _COLD], self.streams["exact", _COLD]
        many = self.given.connections
        return self._rounds(
            "two workers",
            [
                System(name, server, stream, many * len(server.workers), self._free_cores(server))
                for name, server, stream in (
                    ("empty", empty, self.unread),
                    ("empty, two", empties, self.unread),
                    ("fast", service, fast),
                    ("fast, two", services, fast),
                    ("exact", service, exact),
                    ("exact, two", services, exact),
                )
            ],
        )

    def _free_cores(self, server: Server) -> tuple[int, ...]:
        """Return the cores without a worker, or all cores if every core has one."""
        free = tuple(core for core in self.cores if core not in server.cores)
        return free or tuple(self.cores)

    def _rounds(self, what: str, systems: Sequence[System]) -> dict[str, Rounds]:
        found = {system.name: Rounds(system) for system in systems}
        with self.lab.report.stage(what, len(systems) * (self.given.rounds + 1)) as stage:
            for system in systems:
                self._ask(Rounds(system), 1.0)  # warms caches and opens connections
                stage.advance(1)
            for turn in range(self.given.rounds):
                first = turn % len(systems)
                for system in (*systems[first:], *systems[:first]):
                    self._ask(found[system.name], self.given.round_seconds)
                    stage.advance(1)
        return found

    def _ask(self, rounds: Rounds, seconds: float) -> None:
        server = rounds.system.server
        before = _read_metrics(server)
        rounds.run(self.wrk, seconds)
        after = _read_metrics(server)
        spent = {key: value - before.get(key, 0.0) for key, value in after.items()}
        hits, misses = spent.pop(_HIT, 0.0), spent.pop(_MISS, 0.0)
        if hits + misses:
            rounds.cached.append(hits / (hits + misses))
        for stage, seconds_of_stage in spent.items():
            rounds.stages[stage] = rounds.stages.get(stage, 0.0) + seconds_of_stage


def _read_metrics(server: Server) -> dict[str, float]:
    """Read cache hits, misses and the seconds of each stage; empty without a metrics route."""
    reply = httpx.get(server.url + "/metrics")
    return stages_of(reply.text) if reply.status_code == 200 else {}


def stages_of(metrics: str) -> dict[str, float]:
    """Return cache hits, misses and the seconds of each stage so far."""
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("fullrank_cache_lookups_total{"):
            key = _MISS if '"miss"' in name else _HIT
        elif name.startswith("fullrank_stage_seconds_sum{"):
            key = name.split('"')[1]
        else:
            continue
        found[key] = found.get(key, 0.0) + float(value)
    return found


def trained(lab: Lab, given: argparse.Namespace) -> Path:
    """Return the newest bundle of --bundles or --out; train one if it is missing."""
    root: Path = (
        given.bundles or lab.store.folder / f"model-{_RECIPE}-s{given.seed}-{given.seconds:g}s"
    )
    there = sorted(root.glob("*/*/manifest.json"))
    if there:
        return there[-1].parent
    if given.bundles:
        sys.exit(f"--bundles {root}: no bundle found")
    from fullrank_trainer.train import train

    limits = [f"train.seconds={given.seconds:g}", f"auto.seconds={given.seconds:g}"]
    path = train(
        data_folder() / _COLLECTION,
        root,
        _COLLECTION,
        recipe=_RECIPE,
        overrides=limits,
        seed=given.seed,
        reporter=lab.report,
    ).path
    lab.report.__enter__()  # training closes the report
    return path


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    found = basic_parser(__doc__, 105)
    found.add_argument("--bundles", type=Path, help="folder with a trained bundle of debian")
    found.add_argument("--queries", type=int, default=_QUERIES, help=f"default {_QUERIES}")
    found.add_argument("--connections", type=int, default=16, help="per worker; default 16")
    found.add_argument("--rounds", type=int, default=7, help="default 7")
    found.add_argument("--round-seconds", type=float, default=3, help="of one system; default 3")
    found.add_argument("--quick", action="store_true", help="2 rounds of 1 s, a fit of 15 s")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Train or open a bundle, measure and report; exit 1 if a goal is missed."""
    given = parser().parse_args(arguments)
    if given.quick:
        given.rounds, given.round_seconds, given.seconds = 2, 1, min(given.seconds, 15)
    with Lab("http", given) as lab:
        lab.machine = machine(_PACKAGES)
        path = trained(lab, given)
        bundle = open_bundle(path, verify=False)
        modes = bundle.retriever.modes
        run = Run(lab, given, path)
        measured = run.measure()
        ratios = shares(measured)
        flat: dict[str, Any] = {name: ratio["median"] for name, ratio in ratios.items()}
        # A bundle without a fast mode answers these requests in exact mode.
        held = {name: flat.get(name, 0.0) >= bar for name, bar in BARS.items()}
        held["fast_mode"] = "fast" in modes
        figures = {
            part: {name: rounds.figures() for name, rounds in systems.items()}
            for part, systems in measured.items()
        }
        lab.tell(
            tables(figures, ratios),
            **flat,
            held={**held, "all": all(held.values())},
            bundle=path.name,
            documents=len(bundle.documents),
            dimension=bundle.model.n_dense,
            ratios=ratios,
            figures=figures,
        )
    sys.exit(0 if all(held.values()) else 1)


if __name__ == "__main__":
    main()
