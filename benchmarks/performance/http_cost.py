"""Measure the processor time of a request in the app, without its ranking and without sockets.

    python -m benchmarks.performance.http_cost --bundles FOLDER [--json]

POST /v1/search is called in this process, as the server would call it, in turn with the empty route of empty.py, which
returns the same bytes. Encoding and ranking return what they found for the first query, so that what remains is HTTP:
routing, checks, admission, validation, cache, metrics, stored fields, JSON, headers. The least time over many short
rounds counts, because other load on the machine only adds to it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from fastapi import FastAPI

from benchmarks.performance import empty
from fullrank.encoding import Encoded
from fullrank.live import View
from fullrank.live.hits import Hits
from fullrank_service.app import create_app
from fullrank_service.settings import Settings

_QUERY = "copy a file to another host"
_BODY = json.dumps({"query": _QUERY, "mode": "fast"}).encode()
_HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_BODY)),
]
_REQUESTS = 15  # of a round

Ask = Callable[[], Awaitable[bytes]]


def asking(app: FastAPI) -> Ask:
    """Return a function that sends one search to an app and returns the body of its answer."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": _BODY, "more_body": False}

    async def ask() -> bytes:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/search",
            "raw_path": b"/v1/search",
            "query_string": b"",
            "root_path": "",
            "headers": _HEADERS,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
            "scheme": "http",
            "http_version": "1.1",
        }
        await app(scope, receive, send)
        if sent[0]["status"] != 200:
            raise RuntimeError(f"answered {sent[0]['status']}: {sent[-1]['body']!r}")
        return b"".join(message.get("body", b"") for message in sent[1:])

    return ask


async def least_us(systems: dict[str, Ask], rounds: int) -> dict[str, float]:
    """Return the least processor time of a request over the rounds, in microseconds."""
    least = dict.fromkeys(systems, float("inf"))
    for _ in range(rounds):
        for name, ask in systems.items():
            began = time.process_time()
            for _ in range(_REQUESTS):
                await ask()
            spent = (time.process_time() - began) / _REQUESTS * 1e6
            least[name] = min(least[name], spent)
    return least


async def measure(bundles: Path, rounds: int) -> dict[str, float]:
    """Measure the app without its ranking, and the empty route."""
    app = create_app(Settings(bundles=bundles, log_level="warning"))
    async with app.router.lifespan_context(app):
        search = asking(app)
        view: View = await app.state.services.live.view(
            app.state.services.registry.serving.resolve(None)
        )
        encoded = view.model.encode_queries([_QUERY])
        found = view.search(encoded, 10)

        def searched(*_: Any, **__: Any) -> Hits:
            return found

        encode = type(view.model).encode_queries

        def encode_queries(model: Any, texts: Sequence[str]) -> Encoded:
            # Other texts are the completions of its last word, which are encoded once.
            return encoded if list(texts) == [_QUERY] else encode(model, texts)

        with (
            mock.patch.object(View, "search", searched),
            mock.patch.object(type(view.model), "encode_queries", encode_queries),
            tempfile.TemporaryDirectory() as folder,
        ):
            # Until the mean time of a search is short enough for the event loop.
            for _ in range(100):
                body = await search()
            answers = Path(folder) / "answers.json"
            headers = {"content-type": "application/json"}
            answers.write_text(json.dumps({"headers": headers, "bodies": [body.decode()]}), "utf-8")
            with mock.patch.dict(os.environ, {"ANSWERS": str(answers)}):
                systems = {"search": search, "empty": asking(empty.create_app())}
            return await least_us(systems, rounds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundles", type=Path, required=True, help="folder with a bundle")
    parser.add_argument("--rounds", type=int, default=400, help="default 400")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args(arguments)
    found = asyncio.run(measure(given.bundles, given.rounds))
    found["ratio"] = found["search"] / found["empty"]
    if given.json:
        print(json.dumps(found))
        return
    print(f"search without ranking {found['search']:.0f} µs, empty route {found['empty']:.0f} µs")
    print(f"ratio {found['ratio']:.2f}")


if __name__ == "__main__":
    main()
