"""Measure what logging costs: searches per second with the log of events, as a share of those without.

    python -m benchmarks.performance.logging [--json] [--quick] [--bundles FOLDER] [--out DIR]

Two services run at the same time over the same bundle (that of benchmarks.performance.http), one worker each, with all
its threads on the first core: one logs what its answers show, the other has FULLRANK_EVENTS=off. wrk sends both the
same distinct queries, with ids of a client and a session, in fast mode over keep-alive connections. A round measures
each once, in an order that alternates. `logging_share` is the median over the rounds of the ratio within a round. The
lists on disk are counted at the end: every answer must be among them.

`ack_ms` is the time from sending POST /v1/events with one event to its answer, which comes after the event is synced to
the disk of the temporary folder: by one client, and by 16 whose requests share syncs. `sync_ms` is that of the disk
alone: appending such a line to a file and syncing it. All events must be in the log at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.harness.lab import Lab
from benchmarks.harness.report import machine
from benchmarks.harness.tables import Table
from benchmarks.performance.http import parser, read_queries, trained
from benchmarks.performance.http_rounds import Mix, Rounds, Stream, System
from benchmarks.performance.servers import Server, serving
from benchmarks.performance.writes import Connection
from benchmarks.performance.wrk import Wrk
from fullrank.events.log import EventLog
from fullrank.measures import Float64

BAR = 0.95
ACK_BAR_MS = 20
_CLIENTS = (1, 16)
_SYNCS = 200
_PACKAGES = ("uvicorn", "pydantic", "orjson", "numpy")


def measure(
    lab: Lab, given: argparse.Namespace, bundle: Path
) -> tuple[dict[str, Rounds], dict[str, list[float]]]:
    """Return the rounds of the service with its log and without, and seconds until events were acknowledged."""
    wrk, cores = Wrk(lab.scratch), sorted(os.sched_getaffinity(0))
    queries = read_queries(given.queries, given.seed)
    bodies = lab.scratch / "searches.jsonl"
    bodies.write_bytes(b"".join(_body(place, text) + b"\n" for place, text in enumerate(queries)))
    asking = tuple(cores[1:]) or tuple(cores)
    settings = {"FULLRANK_BUNDLES": str(bundle.parents[1])}
    log = {
        "FULLRANK_EVENTS_FOLDER": str(lab.scratch / "events"),
        "FULLRANK_EVENTS_KEY": str(lab.scratch / "key"),
    }

    def system(name: str, server: Server) -> Rounds:
        stream = Stream(bodies, Mix(queries))
        return Rounds(System(name, server, stream, given.connections, asking))

    module = "fullrank_service.process.run"
    with (
        serving(module, settings | {"FULLRANK_EVENTS": "off"}, "/readyz", cores[:1]) as silent,
        serving(module, settings | log, "/readyz", cores[:1]) as logging,
    ):
        systems = [("off", silent), ("on", logging)]
        found = {name: system(name, server) for name, server in systems}
        warm = {name: system(name, server) for name, server in systems}
        with lab.report.stage("rounds", 2 * (given.rounds + 1)) as stage:
            for name in warm:
                warm[name].run(wrk, 1.0)
                found[name].system.stream.mix.place = warm[name].system.stream.mix.place
                stage.advance(1)
            for turn in range(given.rounds):
                for name in ("on", "off") if turn % 2 else ("off", "on"):
                    found[name].run(wrk, given.round_seconds)
                    stage.advance(1)
        acks = acknowledgements(lab, logging.url, asking, max(5.0, 2 * given.round_seconds))
    # The service that logs has ended, so all of its lists are written. wrk does not count its last answers.
    stored = EventLog(lab.scratch / "events")
    written, events = sum(1 for _ in stored.lists()), sum(1 for _ in stored.events())
    asked = sum(load.requests for rounds in (found["on"], warm["on"]) for load in rounds.loads)
    if written < asked:
        sys.exit(f"{asked} answers, but {written} lists on disk")
    if events != (acknowledged := sum(len(acks[str(clients)]) for clients in _CLIENTS)):
        sys.exit(f"{acknowledged} acknowledged events, but {events} on disk")
    return found, acks


def acknowledgements(
    lab: Lab, url: str, cores: Sequence[int], seconds: float
) -> dict[str, list[float]]:
    """Return the times until single events were acknowledged, by number of clients, and those of syncs alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        found = {"sync": _syncs(lab.scratch / "synced")}
        for clients in _CLIENTS:
            found[str(clients)] = asyncio.run(post_events(url, clients, seconds))
        return found
    finally:
        os.sched_setaffinity(0, before)


def _syncs(path: Path) -> list[float]:
    took = []
    with path.open("ab", buffering=0) as file:
        for turn in range(_SYNCS):
            began = time.perf_counter()
            file.write(_event(turn) + b"\n")
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return took


async def post_events(url: str, clients: int, seconds: float) -> list[float]:
    """Let clients report one event after another; return how long each waited for its answer."""
    took: list[float] = []

    async def report(client: int) -> None:
        connection = await Connection.open(url)
        turn = 0
        while time.perf_counter() < end:
            body = _event(turn * clients + client)
            began = time.perf_counter()
            await connection.send("POST", "/v1/events", "application/json", body)
            took.append(time.perf_counter() - began)
            turn += 1
        await connection.close()

    end = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as tasks:
        for client in range(clients):
            tasks.create_task(report(client))
    return took


def _event(number: int) -> bytes:
    event = {
        "action_name": "click",
        "timestamp": round(time.time() * 1000),
        "query_id": f"{number:032x}",
        "client_id": f"client-{number % 1000}",
        "event_attributes": {"object": {"object_id": "coreutils"}},
    }
    return orjson.dumps([event])


def _body(place: int, text: str) -> bytes:
    client = f"client-{place % 1000}"
    return orjson.dumps(
        {"query": text, "mode": "fast", "client_id": client, "session_id": f"{client}-{place}"}
    )


def shares(found: Mapping[str, Rounds]) -> dict[str, dict[str, float]]:
    """Return the shares: of searches per second, and of those per second of processor time."""
    on, off = found["on"], found["off"]
    return {
        "logging_share": _quartiles(on.per_second() / off.per_second()),
        "logging_share_by_cpu": _quartiles(on.per_cpu_second() / off.per_cpu_second()),
    }


def milliseconds(took: Sequence[float]) -> dict[str, float]:
    p50, p99 = (1e3 * np.percentile(took, (50, 99))).tolist()
    return {"p50": round(p50, 3), "p99": round(p99, 3), "requests": len(took)}


def _quartiles(values: Float64) -> dict[str, float]:
    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    return {"median": round(median, 4), "q25": round(low, 4), "q75": round(high, 4)}


def _tables(
    figures: Mapping[str, Any],
    ratios: Mapping[str, Mapping[str, float]],
    acks: Mapping[str, Mapping[str, float]],
) -> list[Table]:
    rows = [
        [
            name,
            f"{of['requests_per_second']:,.0f}",
            f"{of['p50_ms']:.2f}",
            f"{of['p99_ms']:.2f}",
            f"{of['worker_cpu_us_per_request']:.0f}",
        ]
        for name, of in figures.items()
    ]
    shown = [
        [name, f"{of['median']:.3f}", f"{of['q25']:.3f}", f"{of['q75']:.3f}"]
        for name, of in ratios.items()
    ]
    waits = [
        [name, f"{of['p50']:.2f}", f"{of['p99']:.2f}", f"{of['requests']:,}"]
        for name, of in acks.items()
    ]
    return [
        Table("Searches", ["log", "searches/s", "p50 ms", "p99 ms", "worker µs"], rows),
        Table("On against off", ["share", "median", "lower quartile", "upper quartile"], shown),
        Table("One event until its answer", ["clients", "p50 ms", "p99 ms", "requests"], waits),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train or open a bundle, measure and report; exit 1 if the goal is missed."""
    options = parser()
    options.description = __doc__.splitlines()[0] if __doc__ else None
    given = options.parse_args(arguments)
    if given.quick:
        given.rounds, given.round_seconds, given.seconds = 2, 1, min(given.seconds, 15)
    given.set, given.fresh, given.systems = [], False, None
    with Lab("logging", given) as lab:
        lab.machine = machine(_PACKAGES)
        path = trained(lab, given)
        found, took = measure(lab, given, path)
        acks = {name: milliseconds(times) for name, times in took.items()}
        sync_ms = acks.pop("sync")
        ratios = shares(found)
        figures = {name: rounds.figures() for name, rounds in found.items()}
        flat: dict[str, Any] = {name: ratio["median"] for name, ratio in ratios.items()}
        held = {
            "logging_share": flat["logging_share"] >= BAR,
            "ack_ms": all(of["p99"] <= ACK_BAR_MS for of in acks.values()),
        }
        lab.tell(
            _tables(figures, ratios, {**acks, "sync alone": sync_ms}),
            **flat,
            ack_ms=acks,
            sync_ms=sync_ms,
            held={**held, "all": all(held.values())},
            bundle=path.name,
            ratios=ratios,
            figures=figures,
        )
    sys.exit(0 if all(held.values()) else 1)


if __name__ == "__main__":
    main()
