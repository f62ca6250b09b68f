"""Live documents over HTTP: acknowledged documents per second, and the time until they are visible.

    python -m benchmarks.performance.writes [--seconds 8] [--workers 1] [--json]

The real server with a short fielded model of tldr's English pages. One process sends those pages as documents under
5,000 ids, again and again, so that the log reaches a steady state.

The clients write prepared requests to sockets, because a client library takes longer for a small request than the
server does, and shares its cores.

documents/s   acknowledged, each after its commit was synced to the disk
seen          from the acknowledgement to the first answer with the document, requested with ``min_seq``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import numpy as np

from benchmarks.harness.report import machine
from benchmarks.performance.servers import serving
from benchmarks.performance.soak import build, read_pages

IDS = 5_000
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Load(NamedTuple):
    """A number of clients, each sending requests with a number of documents, one after another."""

    clients: int
    lines: int


LOADS = (Load(1, 1), Load(16, 1), Load(1, 100), Load(4, 100), Load(1, 1000), Load(4, 1000))


class Connection:
    """One keep-alive connection that sends a request and waits for its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> Connection:
        """Connect to the host and port of a URL."""
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def send(self, method: str, path: str, kind: str, body: bytes) -> None:
        """Send a request with a body of a Content-Type and read the answer. Raises RuntimeError unless it is 200."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        [length] = _LENGTH.findall(answer)
        content = await self._reader.readexactly(int(length))
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{answer.decode()}{content.decode()}")

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()


async def measure(url: str, load: Load, seconds: float, pages: Sequence[dict[str, Any]]) -> Any:
    """Measure one load."""
    latency: list[float] = []
    seen: list[float] = []
    done = 0
    fields = [json.dumps(page) for page in pages]

    async def write(number: int) -> None:
        nonlocal done
        connection = await Connection.open(url)
        turn = number * 1_000
        while time.perf_counter() - began < seconds:
            chosen = [(turn + i) % IDS for i in range(load.lines)]
            turn += load.lines
            if load.lines == 1:
                [i] = chosen
                path, body = f"/v1/documents/w/{i}", fields[i % len(pages)]
                request = ("PUT", path, "application/json", body)
            else:
                lines = [f'{{"_id": "w/{i}", {fields[i % len(pages)][1:]}\n' for i in chosen]
                request = ("POST", "/v1/documents:bulk", "application/x-ndjson", "".join(lines))
            method, path, kind, body = request
            started = time.perf_counter()
            await connection.send(method, path, kind, body.encode())
            latency.append(time.perf_counter() - started)
            done += load.lines
        await connection.close()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(load.clients):
            tasks.create_task(write(number))
    took = time.perf_counter() - began
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        # Without load, so that it measures the delay of the follower and not a queue.
        for turn in range(20):
            await asyncio.sleep(0.05)
            response = await client.put(f"/v1/documents/seen/{turn}", json=pages[turn])
            started = time.perf_counter()
            min_seq = {"min_seq": response.json()["seq"]}
            (await client.get(f"/v1/documents/seen/{turn}", params=min_seq)).raise_for_status()
            seen.append(time.perf_counter() - started)
    return {
        "clients": load.clients,
        "documents_a_request": load.lines,
        "documents_per_second": round(done / took),
        "requests_per_second": round(done / load.lines / took, 1),
        "median_ms": round(1000 * statistics.median(latency), 2),
        "p99_ms": round(1000 * float(np.quantile(latency, 0.99)), 2),
        "seen_median_ms": round(1000 * statistics.median(seen), 2),
        "seen_worst_ms": round(1000 * max(seen), 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8, help="of each load")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    given = parser.parse_args(arguments)
    pages = [{k: v for k, v in page.items() if k != "_id"} for page in read_pages(5_000)]
    usable = sorted(os.sched_getaffinity(0))
    cores = [usable[-1 - i % len(usable)] for i in range(given.workers)]
    found: dict[str, Any] = {
        "machine": machine(("fastapi", "numpy", "uvicorn")),
        "workers": given.workers,
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "bundles"
        build(root)
        settings = {"FULLRANK_BUNDLES": str(root), "FULLRANK_ANONYMOUS": "search,ingest"}
        with serving("fullrank_service.process.run", settings, "/readyz", cores) as server:
            found["loads"] = [
                asyncio.run(measure(server.url, load, given.seconds, pages)) for load in LOADS
            ]
    json.dump(found, sys.stdout, indent=None if given.json else 1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
