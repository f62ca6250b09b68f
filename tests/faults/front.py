"""A stand-in for Redis that can lie in every way that its protocol has, or be slow about telling the truth."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Answers to any command. In the other modes, answers are true or changed.
LIES: dict[str, bytes] = {
    "ok": b"+OK\r\n",
    "integer": b":5\r\n",
    "error": b"-ERR unknown command\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "moved": b"-MOVED 3999 127.0.0.1:6381\r\n",
    "list": b"*2\r\n$1\r\na\r\n:1\r\n",
    "nested lists": b"*1\r\n" * 20_000,
    "a list without end": b"*1000000000\r\n" + b":1\r\n" * 1000,
    "no length": b"$\r\n\r\n",
    "a negative length": b"$-7\r\nabc\r\n",
    "a length that is no number": b"$ten\r\n0123456789\r\n",
    "a length beyond memory": b"$1000000000000\r\nabc",
    "another version's types": b"%1\r\n+a\r\n_\r\n",
    "a push": b">2\r\n+message\r\n+text\r\n",
    "a cut value": b"$100\r\nabc",
    "an empty value": b"$0\r\n\r\n",
    "not utf-8": b"-\xff\xfe\xfd\r\n",
    "no line": b"x" * 100_000,
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
}
MODES = (
    *LIES,
    *[
        "noise",
        "flood",
        "another's value",
        "one bit",
        "answered twice",
        "cut off",
        "closed",
        "silent",
        "drip",
    ],
)


class Front:
    """mode  one of MODES, or "true"; changes at once
    delay_s  how long the truth is held back
    asked    commands seen
    """

    def __init__(self) -> None:
        self.mode = "true"
        self.delay_s = 0.0
        self.asked = 0
        self.values: dict[bytes, bytes] = {}
        self._draw = random.Random(1)
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(OSError, EOFError, ValueError, asyncio.CancelledError):
                while await self._answer(await _command(reader), writer):
                    pass
        finally:
            self._open.discard(task)
            writer.close()

    def cancel(self) -> None:
        for task in self._open:
            task.cancel()

    async def _answer(self, command: list[bytes], writer: asyncio.StreamWriter) -> bool:
        self.asked += 1
        mode, truth = self.mode, self._truth(command)
        if mode == "closed":
            return False
        if mode == "silent":
            await asyncio.sleep(3600)
        if mode == "flood":
            for _ in range(100):
                writer.write(b"$5\r\nabcde\r\n" * 1_000)
                await writer.drain()
            return False
        if mode == "drip":
            for byte in truth[:200]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.003)
            return False
        if mode == "cut off":
            writer.write(truth[: len(truth) // 2])
            return False
        await asyncio.sleep(self.delay_s)
        writer.write(self._reply(mode, truth))
        await writer.drain()
        return True

    def _reply(self, mode: str, truth: bytes) -> bytes:
        if mode in LIES:
            return LIES[mode]
        if mode == "noise":
            return self._draw.randbytes(self._draw.randrange(1, 2_000))
        if mode == "another's value" and self.values:
            return _bulk(self._draw.choice(list(self.values.values())))
        if mode == "one bit" and truth.startswith(b"$") and len(truth) > 20:
            place = self._draw.randrange(truth.index(b"\n") + 1, len(truth) - 2)
            return truth[:place] + bytes([truth[place] ^ 4]) + truth[place + 1 :]
        if mode == "answered twice":
            return truth + truth
        return truth

    def _truth(self, command: list[bytes]) -> bytes:
        match [command[0].upper(), *command[1:]]:
            case [b"GET", key]:
                return _bulk(self.values[key]) if key in self.values else b"$-1\r\n"
            case [b"SET", key, value, *_]:
                self.values[key] = value
                return b"+OK\r\n"
        return b"+OK\r\n"


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    number = int((await reader.readuntil(b"\r\n"))[1:])
    parts = []
    for _ in range(number):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        parts.append((await reader.readexactly(size + 2))[:-2])
    return parts


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


@contextmanager
def front(folder: Path) -> Iterator[tuple[str, Front]]:
    """A front on a Unix socket, on a thread of its own; gives its address."""
    path = folder / "front.sock"
    made = Front()
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def run() -> None:
        server = await asyncio.start_unix_server(made.serve, path)
        ready.set()
        try:
            await server.serve_forever()
        finally:
            made.cancel()

    task = loop.create_task(run())

    def work() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"unix://{path}", made
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
