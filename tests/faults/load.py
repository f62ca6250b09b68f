"""Constant load on a real server, over connections whose ends are known."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import LONG_S


@dataclass(frozen=True)
class Reply:
    """One answer, its headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]


class Connection:
    """HTTP/1.1 over one socket at a time, opened anew after it broke. Nothing is ever sent twice."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.local_port = 0

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Raises OSError or EOFError when the connection breaks before the whole answer is there."""
        try:
            async with asyncio.timeout(LONG_S):
                return await self._ask(method, path, body, headers)
        except TimeoutError:
            # It is an OSError, too, and the connection has not broken.
            raise AssertionError(f"{method} {path}: no answer in {LONG_S:g} s") from None

    async def _ask(
        self, method: str, path: str, body: Any, headers: Mapping[str, str] | None
    ) -> Reply:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
            self.local_port = self._writer.get_extra_info("sockname")[1]
        assert self._reader is not None
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(content)}"]
        lines += ["Content-Type: application/json"] * (body is not None)
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        try:
            self._writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            found = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            text = await self._reader.readexactly(int(found["content-length"]))
        except (OSError, EOFError):
            self.close()
            raise
        if found.get("connection") == "close":
            self.close()
        return Reply(int(head[0].split()[1]), found, json.loads(text))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


@dataclass
class Load:
    """Clients that search.

    check   called with each answer and what ``before`` was when its request began; raises AssertionError
    broken  client ports of connections that broke under a request
    """

    port: int
    check: Callable[[Reply, int], None]
    clients: int = 8
    body: Mapping[str, Any] = field(default_factory=lambda: {"query": "copy files"})
    pause_s: float = 0.0
    before: int = 0
    answered: int = 0
    broken: list[int] = field(default_factory=list)
    _done: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._ask()) for _ in range(self.clients)]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done = True
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=kind is not None)

    def look(self) -> None:
        """Raise what a client has raised already, instead of at the end."""
        for task in self._tasks:
            if task.done() and not self._done:
                task.result()

    async def _ask(self) -> None:
        connection = Connection(self.port)
        try:
            while not self._done:
                before = self.before
                try:
                    reply = await connection.ask("POST", "/v1/search", self.body)
                except (OSError, EOFError):
                    self.broken.append(connection.local_port)
                    continue
                self.check(reply, before)
                self.answered += 1
                await asyncio.sleep(self.pause_s)
        finally:
            connection.close()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def client_ports(pid: int) -> set[int]:
    """The far ends of a process's established connections on the loopback."""
    inodes = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(handle)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[9] in inodes and columns[3] != "0A":
            ports.add(int(columns[2].split(":")[1], 16))
    return ports
