"""A load generator that does not wait: requests leave on time, whether or not earlier ones were answered.

    python -m tests.faults.open_loop HOST PORT REQUESTS_A_SECOND SECONDS [CONNECTIONS]      prints JSON

REQUESTS_A_SECOND 0: as many as are answered, one at a time on each connection. A process of its own, so that it shares
no interpreter with what it measures. A request that finds no free connection is not sent and counted as missed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

BODY = b'{"query": "copy the files of a remote host", "limit": 10, "mode": "exact"}'
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: asyncio.Transport | None = None
        self.sent = 0.0
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.load.free.append(self)

    def ask(self) -> None:
        assert self.transport is not None
        self.sent = time.perf_counter()
        self.load.sent += 1
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        place = self.received.find(b"content-length: ")
        length = int(self.received[place + 16 : self.received.index(b"\r", place)])
        if len(self.received) < end + 4 + length:
            return
        status = int(self.received[9:12])
        self.received.clear()
        self.load.answered(self, status, time.perf_counter() - self.sent)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.lost += 1


class Load:
    def __init__(self) -> None:
        self.free: list[Connection] = []
        self.sent = self.missed = self.lost = 0
        self.seconds: dict[int, list[float]] = {}
        self.closed = False
        self.over = False

    def answered(self, connection: Connection, status: int, seconds: float) -> None:
        if not self.over:
            self.seconds.setdefault(status, []).append(seconds)
        if self.closed and not self.over:
            connection.ask()
        else:
            self.free.append(connection)

    async def run(
        self, host: str, port: int, rate: float, seconds: float, connections: int
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        self.closed = rate == 0
        made = [
            await loop.create_connection(lambda: Connection(self), host, port)
            for _ in range(connections)
        ]
        started = time.perf_counter()
        if self.closed:
            for connection in self.free[:]:
                connection.ask()
            await asyncio.sleep(seconds)
        else:
            await self._on_time(rate, seconds, started)
        took = time.perf_counter() - started
        lost = self.lost
        self.over = True
        # Those still under way are over: what counts was answered while the load lasted.
        for transport, _ in made:
            transport.abort()
        return {
            "seconds": took,
            "sent": self.sent,
            "missed": self.missed,
            "lost": lost,
            "answers": dict(Counter({s: len(v) for s, v in self.seconds.items()})),
            "ok_per_second": len(self.seconds.get(200, ())) / took,
            "ms": {status: quantiles(found) for status, found in self.seconds.items()},
        }

    async def _on_time(self, rate: float, seconds: float, started: float) -> None:
        due = 0
        while (now := time.perf_counter() - started) < seconds:
            while due < now * rate:
                due += 1
                if self.free:
                    self.free.pop().ask()
                else:
                    self.missed += 1
            await asyncio.sleep(0.001)


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    return {name: round(1000 * ordered[int(share * last)], 2) for name, share in at.items()}


if __name__ == "__main__":
    host, port, rate, seconds, *more = sys.argv[1:]
    run = Load().run(host, int(port), float(rate), float(seconds), int(more[0]) if more else 64)
    print(json.dumps(asyncio.run(run)))  # noqa: T201 the result
