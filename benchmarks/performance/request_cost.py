"""The time of one search in the service without sockets: encoding, ranking, and all else.

    python -m benchmarks.performance.request_cost BUNDLE [--queries 1000] [--rounds 7]

The app of the service and an app with an empty route, which returns the same headers and bytes, are called in this
process in turn, with one body after another. `encode` and `rank` are stages of the service's metrics; `around` is the
search without these two and without the empty route. A round has the mean of each over all queries, which no cache
knows; the figures are those of the round with the shortest searches, in µs. Run it on one core with one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.responses import Response

from benchmarks.harness.report import show
from benchmarks.performance.http import read_queries, stages_of
from fullrank_service.app import create_app
from fullrank_service.base.settings import Settings

_WARM_UP, _IDLE_S = 100, 0.5


class Caller:
    """Calls an ASGI app with bodies, as a server does, and keeps its last answer."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.start: Mapping[str, Any] = {}
        self.body = b""

    async def ask(self, body: bytes) -> float:
        """Return the seconds of one search. Raises RuntimeError unless it is answered with 200."""
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 40000), "root_path": "",
            "method": "POST", "path": "/v1/search", "raw_path": b"/v1/search", "query_string": b"",
            "headers": [*headers, (b"content-length", b"%d" % len(body))], "state": {},
        }  # fmt: skip
        request = {"type": "http.request", "body": body, "more_body": False}

        async def receive() -> Mapping[str, Any]:
            return request

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.start = message
            else:
                self.body = message["body"]

        began = time.perf_counter()
        await self.app(scope, receive, send)
        seconds = time.perf_counter() - began
        if self.start["status"] != 200:
            raise RuntimeError(self.body.decode())
        return seconds


def empty_app(start: Mapping[str, Any], body: bytes) -> FastAPI:
    """Return an app that answers each search with the same headers and bytes."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    headers.pop("content-length", None)

    @app.post("/v1/search")
    async def search() -> Response:
        return Response(body, headers=headers)

    return app


async def measure(bundle: Path, queries: Sequence[str], rounds: int) -> dict[str, Any]:
    """Return the figures of each mode."""
    app = create_app(Settings(bundles=bundle.parents[1], cache_entries=0, events=False))
    found: dict[str, Any] = {}
    async with app.router.lifespan_context(app):
        await _wait_until_idle()
        metrics, caller = app.state.shared.metrics, Caller(app)
        for mode in ("fast", "exact"):
            bodies = [orjson.dumps({"query": text, "mode": mode}) for text in queries]
            for body in bodies[:_WARM_UP]:
                await caller.ask(body)
            empty = Caller(empty_app(caller.start, caller.body))
            taken = []
            for _ in range(rounds):
                before, whole, nothing = stages_of(metrics.render().decode()), 0.0, 0.0
                for body in bodies:
                    whole += await caller.ask(body)
                    nothing += await empty.ask(body)
                after = stages_of(metrics.render().decode())
                encode, rank = (
                    after[stage] - before.get(stage, 0.0) for stage in ("encode", "rank")
                )
                around = whole - encode - rank - nothing
                taken.append((whole, encode, rank, nothing, around))
            names = ("search", "encode", "rank", "empty", "around")
            best = zip(names, min(taken), strict=True)
            found[mode] = {name: round(1e6 * one / len(bodies), 1) for name, one in best}
    return found


async def _wait_until_idle() -> None:
    """Wait for the completions that a worker prepares in a thread after its start."""
    spent = _IDLE_S
    while spent > 0.1 * _IDLE_S:
        before = time.process_time()
        await asyncio.sleep(_IDLE_S)
        spent = time.process_time() - before


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, help="of debian")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    queries = read_queries(given.queries, given.seed)
    show(asyncio.run(measure(given.bundle, queries, given.rounds)), True)


if __name__ == "__main__":
    main()
