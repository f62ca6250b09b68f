"""One HTTP connection, with an end to every wait: uvicorn's protocol, made not to be held up by slow clients.

A connection is always in one phase, and each has its time; a look once a second at all connections ends what is over,
so that a request pays for it with a few assignments.

    HEAD    a request's head is awaited: head_s from its first byte (or from connecting), at most MAX_HEAD_BYTES
    BODY    its body is: body_s, and longer the more of it came, at MIN_RATE bytes a second at least
    WORK    the request is wholly there, its answer is being made: what the deadline of admission is for
    IDLE    the next request may come: keep_alive_s

Requests that come before the one in front of them is answered are left as they came, but for the few that came in one
piece with it: a client can send faster than it is answered, and a request taken apart is a hundred times its bytes.

What the client does not read has answer_s, again with MIN_RATE. Small bodies are awaited here, before any task is made
for the request, and what there is no room for is answered here too, without one: saying no costs a worker so little
that it goes on saying yes to others.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.edge.admission import SLOT, Admission, Slot
from service.edge.middleware import REQUEST_ID, SAFETY
from service.errors import BadRequest, HeadTooLarge, Overloaded, Problem, TimedOut

MAX_HEAD_BYTES = 1 << 16
MIN_RATE = 1 << 14
# What is still being sent though its answer is known is read for so long, so that the answer arrives.
LINGER_S = 2.0
SWEEP_S = 1.0
# Bytes that are taken apart at once.
_PIECE = 1 << 11
_RANKS = frozenset(("/v1/search", "/v1/search:batch", "/v1/match"))
_POSTED = tuple(f"POST {path} HTTP/1.1\r\n".encode() for path in _RANKS)
_NOT_PLAIN = (
    b"\r\ntransfer-encoding:",
    b"\r\nexpect:",
    b"\r\nupgrade:",
    b"\r\nx-request-id:",
)
# Stands for a request's id in an answer that is kept.
_ANY_ID = b"0" * 32
_DOCUMENTS, _LIKE = "/v1/documents/", "/similar"
_SIMILAR = f"{_DOCUMENTS}{{id:path}}{_LIKE}"


@dataclass(slots=True)
class Limits:
    """What all connections of a worker share; left in the state of the app's lifespan under KEY."""

    admission: Admission | None = None
    head_s: float = 10.0
    body_s: float = 30.0
    answer_s: float = 30.0
    keep_alive_s: float = 75.0
    max_connections: int = 1000
    # is told method, route and status of what was answered here
    counted: Callable[[str, str, int], None] = lambda method, route, status: None
    sweeping: bool = field(default=False, init=False)
    # what is said to those whom there is no room for, and to whom it fits
    refusal: bytes = field(default=b"", init=False)
    refusal_for: tuple[int, Any] = field(default=(0, None), init=False)


KEY = "fullrank.limits"


class Phase(IntEnum):
    HEAD, BODY, WORK, IDLE = range(4)


class Protocol(HttpToolsProtocol):
    """A connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits: Limits = self.app_state.setdefault(KEY, Limits())
        self._phase = Phase.HEAD
        self._since = self.loop.time()
        self._read = 0
        self._head = self._length = 0
        # nobody needs what else comes of the body
        self._lingering = False
        self._held: tuple[RequestResponseCycle, ASGI3Application] | None = None
        # what came while a request was in work, and what is said instead of reading on
        self._later = b""
        self._last: Problem | None = None
        # since when the client leaves something unread, and how much it was then
        self._unread_since = 0.0
        self._unread = 0

    # -- from the socket ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, lambda: self._later == b"")
        if not self._limits.sweeping:
            self._limits.sweeping = True
            self.loop.call_later(SWEEP_S, self._sweep)
        if len(self.connections) > self._limits.max_connections and not self._made_room():
            self._refuse(Overloaded("Too many connections are open."))

    def data_received(self, data: bytes) -> None:
        fresh = self._phase is Phase.IDLE or (self._phase is Phase.HEAD and not self._read)
        if fresh and self._turned_away(data):
            return
        while data:
            if self._busy:
                self._later += data
                self.flow.pause_reading()
                return
            # What is known to be of one body is no second request.
            body = self._length - self._read if self._phase is Phase.BODY else 0
            piece = max(_PIECE, body)
            self._parse(data[:piece])
            if self.transport.is_closing():
                return
            data = data[piece:]

    def _parse(self, data: bytes) -> None:
        if self._phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        if self._phase is Phase.HEAD:
            self._read += len(data)
        self._feed(data)
        if self._phase is Phase.HEAD and self._read > MAX_HEAD_BYTES:
            self._refuse(HeadTooLarge())

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("")
            else:
                # The parser takes all after the head for another protocol: again, as if none had been wished for.
                self._feed(self._head_without_wish() + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("")

    def _head_without_wish(self) -> bytes:
        """The head that was read last, but for its wish to go on in another protocol: that is ours to pass over."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    @property
    def _busy(self) -> bool:
        """Whether a request is wholly there and not answered."""
        return self._phase is Phase.WORK or bool(self.pipeline)

    def send_400_response(self, msg: str) -> None:
        head = self._read if self._phase is Phase.HEAD else self._head
        problem = HeadTooLarge() if head > MAX_HEAD_BYTES else BadRequest("This is not HTTP.")
        if not self._busy:
            self._refuse(problem)
            return
        # In its turn: whoever sent what was well formed before it has an answer to come.
        self._last = problem
        if self._phase is Phase.BODY:
            self.pipeline.popleft()
            self._enter(Phase.WORK)

    def shutdown(self) -> None:
        super().shutdown()
        if self._phase is Phase.BODY:
            self._linger()

    # -- from the parser ----------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._length, self._head = _length(self.headers), self._read
        self._enter(Phase.BODY)
        super().on_headers_complete()
        admission = self._limits.admission
        if admission is not None and admission.draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._read += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        if self._phase is Phase.BODY:
            self._enter(Phase.IDLE if self.cycle.response_complete else Phase.WORK)
        if self._held is not None:
            held, self._held = self._held, None
            self._begin(*held)

    # -- from requests to tasks ---------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        small = 0 <= self._length <= HIGH_WATER_LIMIT and not cycle.waiting_for_100_continue
        if cycle.more_body and small:
            self._held = (cycle, app)
        else:
            self._begin(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """A task for a request, unless there is no room for it."""
        admission = self._limits.admission
        if admission is None or cycle.more_body:
            super()._start_asgi_task(cycle, app)
            return
        scope = cast("dict[str, Any]", cycle.scope)
        if not _ranks(scope["method"], scope["path"]):
            super()._start_asgi_task(cycle, app)
            return

        def begin(slot: Slot) -> None:
            scope[SLOT] = slot
            if cycle.disconnected:
                slot.leave()
            else:
                start(_Leaving(cycle, slot), app)  # type: ignore[arg-type]

        start = super()._start_asgi_task
        if not admission.line_up(begin, lambda: self._shed(cycle, admission.expired())):
            self._shed(cycle, admission.refusal())

    def on_response_complete(self) -> None:
        """As in the base, but that no timer is made for what comes next."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._last is not None:
            self._refuse(self._last)
        elif self.cycle.response_complete:
            if self._phase is Phase.WORK:
                self._enter(Phase.IDLE)
            elif self._phase is Phase.BODY:
                # Answered before all of it was there: what else comes is thrown away, for a while.
                self._linger()
        if not self._busy:
            later, self._later = self._later, b""
            self.flow.resume_reading()
            if later:
                self.data_received(later)

    # -- answers without a task ---------------------------------------------------------------

    def _turned_away(self, data: bytes) -> bool:
        """Answer a request that there is no room for before it is even taken apart; False where it is not one.

        Under overload most of what comes is refused: this is what each refusal costs, what is left is for the others.
        """
        admission = self._limits.admission
        if admission is None or not admission.full or admission.draining:
            return False
        if not _whole_ranking_request(data):
            return False
        path = data[5 : data.index(b" ", 5)].decode()
        self._limits.counted("POST", path, Overloaded.status)
        key = (admission.retry_after, self.server_state.default_headers)
        if key != self._limits.refusal_for:
            self._limits.refusal_for = key
            self._limits.refusal = self._wire(admission.refusal(), _ANY_ID, close=False)
        self.transport.write(self._limits.refusal.replace(_ANY_ID, uuid.uuid4().hex.encode()))
        self.server_state.total_requests += 1
        self._enter(Phase.IDLE)
        return True

    def _shed(self, cycle: RequestResponseCycle, problem: Problem) -> None:
        """Answer a request for which no task was made."""
        if self.transport.is_closing():
            return
        scope = cycle.scope
        path = scope["path"]
        route = path if path in _RANKS else _SIMILAR
        self._limits.counted(scope["method"], route, problem.status_code)
        given = next((v for n, v in scope["headers"] if n == b"x-request-id"), b"")
        self.transport.write(self._wire(problem, given, close=not cycle.keep_alive))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _refuse(self, problem: Problem) -> None:
        """The last answer of this connection."""
        if self.transport.is_closing():
            return
        self._limits.counted("other", "unmatched", problem.status_code)
        self.transport.write(self._wire(problem, b"", close=True))
        self.transport.close()

    def _wire(self, problem: Problem, given: bytes, *, close: bool) -> bytes:
        """A problem as it travels."""
        name = given.decode("latin-1")
        name = name if REQUEST_ID.fullmatch(name) else uuid.uuid4().hex
        answer = problem.answer(name)
        headers = [
            *self.server_state.default_headers,
            *answer.raw_headers,
            *SAFETY,
            (b"x-request-id", name.encode()),
        ]
        if close:
            headers.append((b"connection", b"close"))
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        return b"%b%b\r\n%b" % (STATUS_LINE[problem.status_code], lines, bytes(answer.body))

    # -- time ---------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self.loop.time()
        self._read = 0
        self._lingering = False

    def _linger(self) -> None:
        """A body that is not there yet has only this long from now."""
        self._lingering = True
        self._since = self.loop.time()

    def _made_room(self) -> bool:
        """Close the connection that was idle for longest; False where none is idle."""
        idle = [
            other
            for other in self.connections
            if isinstance(other, Protocol) and other._phase is Phase.IDLE
        ]
        if not idle:
            return False
        longest = min(idle, key=lambda other: other._since)
        longest.transport.close()
        self.connections.discard(longest)
        return True

    def _sweep(self) -> None:
        """Look at every connection of the worker; again in a second, while there are any."""
        now = self.loop.time()
        for connection in list(self.connections):
            if isinstance(connection, Protocol):
                connection._look(now)
        if self.connections:
            self.loop.call_later(SWEEP_S, self._sweep)
        else:
            self._limits.sweeping = False

    def _look(self, now: float) -> None:
        """End the wait when it was long enough."""
        limits = self._limits
        unread = self.transport.get_write_buffer_size()
        if not unread:
            self._unread_since = 0.0
        elif not self._unread_since:
            self._unread_since, self._unread = now, unread
        elif now - self._unread_since > limits.answer_s + (self._unread - unread) / MIN_RATE:
            self.transport.abort()
            return
        waited = now - self._since
        if self._phase is Phase.HEAD and waited > limits.head_s:
            if self._read:
                self._refuse(TimedOut())
            else:
                self.transport.close()
        elif self._phase is Phase.IDLE and waited > limits.keep_alive_s:
            self.transport.close()
        elif self._phase is Phase.BODY:
            if self.flow.read_paused or self.pipeline:
                self._since = now  # it is not the client who keeps us waiting
            elif waited > (LINGER_S if self._lingering else limits.body_s + self._read / MIN_RATE):
                if self.cycle.response_started:
                    self.transport.abort()
                else:
                    self._held = None
                    self._refuse(TimedOut())


class _Flow(FlowControl):
    """May reading go on? Who asks does not know of what waits to be taken apart."""

    def __init__(self, transport: asyncio.Transport, may: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._may = may

    def resume_reading(self) -> None:
        if self._may():
            super().resume_reading()


class _Leaving:
    """A cycle whose slot is given back whatever becomes of its task."""

    __slots__ = ("_cycle", "_slot")

    def __init__(self, cycle: RequestResponseCycle, slot: Slot) -> None:
        self._cycle = cycle
        self._slot = slot

    async def run_asgi(self, app: ASGI3Application) -> None:
        try:
            await self._cycle.run_asgi(app)
        finally:
            self._slot.leave()


def _ranks(method: str, path: str) -> bool:
    """Whether a request takes a slot: what only looks like one that does is answered as anything else."""
    if method == "POST":
        return path in _RANKS
    return (
        method == "GET" and path.startswith(_DOCUMENTS) and path[len(_DOCUMENTS) :].endswith(_LIKE)
    )


def _whole_ranking_request(data: bytes) -> bool:
    """Whether the bytes are exactly one request to rank, plain enough that nothing in it changes the answer's form."""
    if not data.startswith(_POSTED):
        return False
    end = data.find(b"\r\n\r\n")
    head = data[: end + 2].lower()
    _, found, after = head.partition(b"\r\ncontent-length:")
    length = after.partition(b"\r\n")[0].strip()
    return (
        end > 0
        and found != b""
        and length.isdigit()
        and end + 4 + int(length) == len(data)
        and not any(name in head for name in _NOT_PLAIN)
        and not (b"\r\nconnection:" in head and b"close" in head)
        and b"\r\ncontent-length:" not in after
    )


def _length(headers: list[tuple[bytes, bytes]]) -> int:
    """Bytes of the body as announced; -1 where it comes in chunks."""
    length = 0
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            return -1
    return length
