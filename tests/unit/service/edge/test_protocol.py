"""One connection, without a socket: what reaches the app, what is answered before it, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from service.edge.admission import Admission
from service.edge.protocol import KEY, Limits, Protocol, _whole_ranking_request

PLAIN = b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.reading = True
        self.protocol: Protocol | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        if self.protocol is not None and not self.closed:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Connection:
    """A connection to an app that answers with method, path and body once it is let."""

    def __init__(self, admission: Admission | None = None) -> None:
        self.wire = Wire()
        self.asked: list[str] = []
        self.counted: list[tuple[str, str, int]] = []
        self.free = asyncio.Event()
        self.free.set()
        limits = Limits(admission, counted=lambda *what: self.counted.append(what))
        config = Config(self._app, log_config=None, ws="none", interface="asgi3")
        self.protocol = Protocol(config, ServerState(), {KEY: limits})
        self.wire.protocol = self.protocol
        self.protocol.connection_made(self.wire)

    def send(self, data: bytes) -> None:
        """As a transport hands over what has come: up to 256 KiB at once, and nothing while it is told to wait."""
        left = memoryview(data)
        while left and self.wire.reading and not self.wire.closed:
            self.protocol.data_received(bytes(left[: 1 << 18]))
            left = left[1 << 18 :]

    async def answered(self) -> list[bytes]:
        """Status and body of each answer, when nothing more is under way."""
        while self.protocol.tasks:
            await asyncio.wait(self.protocol.tasks, timeout=30)
        answers = self.wire.written.split(b"HTTP/1.1 ")[1:]
        return [answer[:4] + answer.partition(b"\r\n\r\n")[2] for answer in answers]

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(f"{scope['method']} {scope['path']}")
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        await self.free.wait()
        text = f"{scope['method']} {scope['path']} ".encode() + body
        headers = [(b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def full() -> Admission:
    """No room for another ranking."""
    admission = Admission(1, 60.0)
    admission.enter()
    return admission


pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    "line",
    [
        b"HEAD /v1/documents/ls/similar",
        b"PROPFIND /v1/documents/ls/similar",
        b"GET /elsewhere/similar",
        b"GET /v1/documents/similar",
        b"DELETE /v1/documents/x/similar",
        b"GET /v1/search",
    ],
)
async def test_what_does_not_rank_is_never_refused_for_want_of_room(line: bytes) -> None:
    connection = Connection(full())
    connection.send(line + b" HTTP/1.1\r\n\r\n")
    await connection.answered()
    assert connection.asked == [line.decode()]
    assert not connection.counted


async def test_a_refusal_ends_the_connection_of_a_worker_that_stops() -> None:
    admission = full()
    connection = Connection(admission)
    connection.send(PLAIN)
    assert not connection.wire.closed
    admission.draining = True
    connection.send(PLAIN)
    assert [answer[:3] for answer in await connection.answered()] == [b"503", b"503"]
    assert connection.wire.closed
    assert not connection.asked


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        PLAIN.replace(b"/v1/search", b"/v1/match"),
        PLAIN.replace(b"Content-Length: 2", b"content-LENGTH:2"),
        PLAIN.replace(b"Host: x", b"Host: x\r\nConnection: keep-alive"),
        PLAIN.replace(b"2\r\n\r\n{}", b"0\r\n\r\n"),
    ],
)
def test_a_plain_request_is(data: bytes) -> None:
    assert _whole_ranking_request(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PLAIN[:-1],
        PLAIN + b"P",
        PLAIN + PLAIN,
        PLAIN[:40],
        PLAIN.replace(b"POST", b"GET"),
        PLAIN.replace(b"/v1/search", b"/v1/searches"),
        PLAIN.replace(b"/v1/search", b"/v1/models/x:load"),
        PLAIN.replace(b"1.1", b"1.0"),
        PLAIN.replace(b": 2", b": +2"),
        PLAIN.replace(b": 2", b": 2, 2"),
        PLAIN.replace(b": 2", b": \xb2"),
        PLAIN.replace(b": 2", b": "),
        PLAIN.replace(b"Content-Length: 2", b"X: 2"),
        PLAIN.replace(b"Host: x", b"Content-Length: 2"),
        PLAIN.replace(b"Host: x", b"Transfer-Encoding: chunked"),
        PLAIN.replace(b"Host: x", b"Expect: 100-continue"),
        PLAIN.replace(b"Host: x", b"Connection: Close"),
        PLAIN.replace(b"Host: x", b"Connection: x, close"),
        PLAIN.replace(b"Host: x", b"Connection:close"),
        PLAIN.replace(b"Host: x", b"X-Request-Id: mine"),
    ],
)
def test_anything_else_goes_the_long_way(data: bytes) -> None:
    assert not _whole_ranking_request(data)


PROBE = b"GET /livez HTTP/1.1\r\n\r\n"


async def test_requests_sent_ahead_are_answered_in_order_and_wait_as_they_came() -> None:
    connection = Connection()
    connection.free.clear()
    connection.send(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % i for i in range(20_000)))
    # Each would be a kilobyte or two: few are made before their turn.
    assert len(connection.protocol.pipeline) < 200
    assert not connection.wire.reading
    connection.free.set()
    answers = await connection.answered()
    assert answers == [b"200 GET /%d " % i for i in range(len(answers))]
    assert len(answers) > 10_000
    assert connection.wire.reading


async def test_who_is_worked_for_is_not_read_on() -> None:
    connection = Connection()
    connection.free.clear()
    for _ in range(100):
        connection.send(PLAIN * 1000)
        await asyncio.sleep(0)
    assert len(connection.protocol.pipeline) < 200
    assert not connection.wire.reading
    connection.free.set()
    await connection.answered()


async def test_what_follows_a_request_does_not_take_its_answer() -> None:
    for garbage in (
        b"rubbish\r\n\r\n",
        PLAIN + b"rubbish\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n",
    ):
        connection = Connection()
        connection.send(PLAIN + garbage)
        connection.send(b"and more of it")
        answers = await connection.answered()
        assert answers[:-1] == [b"200 POST /v1/search {}"] * (1 + garbage.count(b"{}"))
        assert answers[-1].startswith(b"400 ")
        assert connection.wire.closed


async def test_many_refusals_at_once() -> None:
    connection = Connection(full())
    connection.send(PROBE + b"POST /v1/match HTTP/1.1\r\n\r\n" * 5_000 + PROBE)
    answers = await connection.answered()
    assert answers[0] == answers[-1] == b"200 GET /livez "
    assert {answer[:3] for answer in answers[1:-1]} == {b"503"}
    assert len(answers) == 5_002


async def test_only_a_head_is_too_large_a_head() -> None:
    connection = Connection()
    chunk = b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"
    connection.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
    connection.send(b"zz\r\n")
    assert [answer[:3] for answer in await connection.answered()] == [b"400"]
    long = Connection()
    long.send(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 12_000 + b"\r\n")
    assert [answer[:3] for answer in await long.answered()] == [b"431"]


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
)
@pytest.mark.parametrize("piece", [1, 1 << 20])
async def test_a_wish_for_another_protocol_is_passed_over(body: bytes, piece: int) -> None:
    """As HTTP clients of Java and `curl --http2` send it with every request."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    sent = b"POST /v1/search HTTP/1.1\r\nHost: x\r\n" + wish + body + PROBE
    connection = Connection()
    for start in range(0, len(sent), piece):
        connection.send(sent[start : start + piece])
        await asyncio.sleep(0)
    answers = await connection.answered()
    assert answers == [b"200 POST /v1/search {}", b"200 GET /livez "]
    assert not connection.wire.closed


@pytest.mark.parametrize("target", [b"x:443", b"/livez", b"http://x/livez"])
async def test_nobody_is_connected_elsewhere(target: bytes) -> None:
    connection = Connection()
    connection.send(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n" + PROBE)
    assert [answer[:3] for answer in await connection.answered()] == [b"400"]
    assert not connection.asked
