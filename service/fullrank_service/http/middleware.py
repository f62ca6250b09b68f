"""Handle what all requests share, as pure ASGI: it starts no task and copies no body."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from logging import getLogger
from types import MappingProxyType

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fullrank.bundle.manifest import is_name
from fullrank_service.base import logs
from fullrank_service.base.errors import (
    BadRequest,
    Internal,
    Misdirected,
    OtherOrigin,
    Overloaded,
    Problem,
    RequestTimeout,
    TooLarge,
)
from fullrank_service.base.logs import RequestLog
from fullrank_service.base.metrics import Metrics
from fullrank_service.http.access import CLIENT
from fullrank_service.http.admission import Admission, DeadlinePassed, within
from fullrank_service.http.deps import COLLECTION, REQUEST_MODEL, RequestModel, Shared
from fullrank_service.http.problems import (
    REQUEST_ID,
    SAFETY_HEADERS,
    new_id,
    problem_of,
    problem_response,
)

# CORS: pages of permitted origins may search and report events; pages of other origins may change nothing.

_HEADERS = (
    "Authorization", "Content-Type", "X-Request-ID", "X-Algolia-API-Key", "X-Algolia-Application-Id",
    "X-Algolia-Agent",
)  # fmt: skip
_EXPOSED = ("X-Request-ID", "X-Model-Version", "X-Model-Generation", "Retry-After")
_MAX_AGE_S = 7200
# For probes of orchestrators and load balancers, which know no name.
_PROBES = ("/livez", "/readyz")
_READING = ("GET", "HEAD", "OPTIONS")


class OriginCheck:
    """Refuses requests that pages of other origins send without permission."""

    def __init__(self, hosts: str | None, origins: str | None) -> None:
        self._hosts = None if hosts is None else {"localhost", *_listed(hosts.lower())}
        self._origins = frozenset() if origins is None else {*_listed(origins)}

    def check(self, scope: Scope) -> None:
        """Check the headers of a request. Raises Misdirected, OtherOrigin."""
        host = origin = site = ""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1").lower()
            elif name == b"origin":
                origin = value.decode("latin-1")
            elif name == b"sec-fetch-site":
                site = value.decode("latin-1")
        if not self._answers_for(host, scope) and scope["path"] not in _PROBES:
            raise Misdirected
        if origin and scope["method"] not in _READING and not self._permits(origin, site, host):
            raise OtherOrigin

    def _answers_for(self, host: str, scope: Scope) -> bool:
        hosts = self._hosts
        if hosts is None:
            shared = getattr(scope["app"].state, "shared", None)
            if shared is None or not shared.access.trusts_this_machine:
                return True
            hosts = {"localhost"}
        name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
        if name in hosts or "*" in hosts or not host:
            return True
        # No page of another origin can have an address of this service as its own.
        return _is_address(name)

    def _permits(self, origin: str, site: str, host: str) -> bool:
        if site == "same-origin" or origin.partition("://")[2].lower() == host:
            return True
        return origin in self._origins or "*" in self._origins


@lru_cache(maxsize=64)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _listed(names: str) -> list[str]:
    return [name.strip().rstrip("/") for name in names.split(",")]


OF_COLLECTIONS = "/v1/collections/"


def _cut_collection(path: str) -> tuple[str, str]:
    """Return the name in /v1/collections/{name}/search, and /v1/search; "" and the path for any other."""
    if not path.startswith(OF_COLLECTIONS):
        return "", path
    name, _, rest = path[len(OF_COLLECTIONS) :].partition("/")
    return name, f"/v1/{rest}"


class CorsMiddleware:
    """Answer preflight requests, and add the headers to answers. Origins are separated by commas, or "*"."""

    def __init__(self, app: ASGIApp, *, origins: str, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._patterns = [route.path_regex for route in routes if isinstance(route, Route)]
        self._open = CORSMiddleware(
            app,
            allow_origins=_listed(origins),
            allow_methods=("GET", "POST"),
            allow_headers=_HEADERS,
            expose_headers=_EXPOSED,
            max_age=_MAX_AGE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks = scope["type"] == "http" and any(name == b"origin" for name, _ in scope["headers"])
        # Also with a name that no collection can have: a page should see that error.
        path = _cut_collection(scope["path"])[1] if asks else ""
        if asks and any(pattern.match(path) for pattern in self._patterns):
            await self._open(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class DirectRouteMiddleware:
    """Call a route that takes POST without the router, which takes 7 % of the time of an empty search."""

    def __init__(self, app: ASGIApp, *, routes: Mapping[str, Route]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            route = self._routes.get(scope["path"])
            if route is not None:
                scope["route"] = route
                await route.handle(scope, receive, send)
                return
        await self._app(scope, receive, send)


# What all collections share.
_SHARED = ("/v1/collections", "/v1/events/users", "/v1/pages")


def has_collections(path: str) -> bool:
    """Return whether a path such as "/v1/search" is also there for each collection."""
    return path.startswith("/v1/") and not path.startswith(_SHARED)


class CollectionMiddleware:
    """Answer /v1/collections/{name}/search as /v1/search with the name in the scope, and so on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            name, path = _cut_collection(scope["path"])
            if name and path != "/v1/" and is_name(name) and has_collections(path):
                scope = {**scope, "path": path, COLLECTION: name}
        await self._app(scope, receive, send)


_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Placeholder of the request id in a prepared refusal.
_ANY_ID = "0" * 32


def request_id_from(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Read the `X-Request-Id` of a request; draw a new one if it is missing or has odd characters."""
    for name, value in headers:
        if name == b"x-request-id":
            given = value.decode("latin-1")
            return given if _REQUEST_ID.fullmatch(given) else new_id()
    return new_id()


class OverloadMiddleware:
    """Answer 503 in place of the app while the admission queue is full, to POST on some paths."""

    def __init__(
        self, app: ASGIApp, *, paths: Collection[str], metrics: Metrics, log: RequestLog
    ) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._metrics = metrics
        self._log = log
        self._prepared: tuple[int, list[tuple[bytes, bytes]], bytes] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in self._paths and scope["method"] == "POST":
            shared: Shared | None = getattr(scope["app"].state, "shared", None)
            # A draining worker takes the long way, which closes the connection.
            if shared is not None and shared.admission.full and not shared.drain.started:
                await self._refuse(shared.admission, scope, send)
                return
        await self._app(scope, receive, send)

    async def _refuse(self, admission: Admission, scope: Scope, send: Send) -> None:
        headers, body = self._refusal(admission)
        request_id = request_id_from(scope["headers"])
        await send(
            {
                "type": "http.response.start",
                "status": 503,
                "headers": [
                    *headers,
                    (b"content-length", b"%d" % (len(body) - len(_ANY_ID) + len(request_id))),
                    (b"x-request-id", request_id.encode()),
                ],
            }
        )
        body = body.replace(_ANY_ID.encode(), request_id.encode())
        await send({"type": "http.response.body", "body": body})
        self._metrics.refused("POST", scope["path"], 503)
        self._log.failed("POST", scope["path"], 503, 0, problem=Overloaded.slug)

    def _refusal(self, admission: Admission) -> tuple[list[tuple[bytes, bytes]], bytes]:
        seconds = admission.retry_after
        if self._prepared is None or self._prepared[0] != seconds:
            response = problem_response(admission.refusal(), _ANY_ID)
            headers = [pair for pair in response.raw_headers if pair[0] != b"content-length"]
            self._prepared = (seconds, [*headers, *SAFETY_HEADERS], bytes(response.body))
        return self._prepared[1:]


# Bound the size and the time of a request body and of its response, so that no slow client holds a worker.
#
# uvicorn has no timeout for a body that stops arriving, nor for a client that stops reading. Time limits grow with
# the bytes transferred: a slow but steady client passes. Slow or endless headers, silent connections and connections
# per client are bounded by the reverse proxy in front (deploy/nginx.conf).

MIN_BYTES_PER_SECOND = 1 << 14
# A client that is still sending a large body when the response is ready gets this long to finish. Closing at once would
# reset the connection, and the response would be lost with it.
LINGER_S = 2.0
# The rest of a smaller body is left to uvicorn, which skips it, and the connection stays open.
_SMALL_BODY_BYTES = 1 << 16
# Larger responses are sent in pieces. uvicorn waits for the client before each piece, so each has its time limit.
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Limits that all requests share; each second more allows MIN_BYTES_PER_SECOND."""

    body_timeout_s: float
    response_timeout_s: float


class Transfer:
    """The body of one request and its response; `receive` and `send` replace those of the ASGI server."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        max_body_bytes: int,
        limits: TransferLimits,
    ) -> None:
        self._receive, self._send = receive, send
        self._max_bytes, self._limits = max_body_bytes, limits
        self._length = self._received = 0
        self._deadline = 0.0
        self._start: Message | None = None
        self._upgrades = self._is_lost = False
        is_chunked = waits = False
        for name, value in headers:
            if name == b"content-length":
                self._length = int(value) if value.isdigit() else 0
            elif name == b"transfer-encoding":
                is_chunked = True
            elif name == b"upgrade":
                self._upgrades = True
            elif name == b"expect":
                waits = True  # the client may keep its body back, so its end is unknown
        self.has_body = is_chunked or self._length > 0
        self.is_body_complete = not self.has_body
        self._is_small = self._length <= _SMALL_BODY_BYTES and not is_chunked and not waits

    def check_headers(self) -> None:
        """Raise TooLarge, or BadRequest where the request asks for another protocol: uvicorn would drop the body."""
        if self._length > self._max_bytes:
            raise self._too_large()
        if self._upgrades and self.has_body:
            self._is_lost = True
            raise BadRequest("Send requests with a body as plain HTTP/1.1, without `Upgrade`.")

    async def receive(self) -> Message:
        """Receive the next part of the body. Raises RequestTimeout, TooLarge."""
        if self.is_body_complete:
            return await self._receive()
        if not self._deadline:
            self._deadline = time.monotonic() + self._limits.body_timeout_s
        deadline = self._deadline + self._received / MIN_BYTES_PER_SECOND
        try:
            message = await within(self._next_part(), deadline)
        except DeadlinePassed:
            self._is_lost = True
            raise RequestTimeout from None
        if self._received > self._max_bytes:
            raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response, then close if much of the body is still to come. Raises ClientDisconnect."""
        closes = not self.is_body_complete and (self._is_lost or not self._is_small)
        if message["type"] == "http.response.start":
            if closes:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            # Sent with the first part of the body, under one timer.
            self._start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        at = 0
        while len(body) - at > _PIECE_BYTES:
            piece = body[at : at + _PIECE_BYTES]
            await self._send_in_time({**message, "body": piece, "more_body": True})
            # uvicorn waits only for a slow client, so without this a large response would hold up all others.
            await asyncio.sleep(0)
            at += _PIECE_BYTES
        body = body[at:]
        if closes and not more and not self._is_lost:
            await self._send_in_time({**message, "body": body, "more_body": True})
            await self._discard_body()
            body = b""
        await self._send_in_time({**message, "body": body, "more_body": more})

    async def _send_in_time(self, message: Message) -> None:
        deadline = time.monotonic() + self._limits.response_timeout_s
        try:
            await within(self._send_with_start(message), deadline)
        except DeadlinePassed:
            raise ClientDisconnect from None

    async def _send_with_start(self, message: Message) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            await self._send(start)
        await self._send(message)

    async def _next_part(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self.is_body_complete = not message.get("more_body", False)
        return message

    async def _discard_body(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not self.is_body_complete:
                    await self._next_part()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self._max_bytes} bytes.")


# Each method is a label of the metrics. Clients can invent methods, so the rest share one label.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
# In metrics only: the client disconnected before its request was complete.
_CLIENT_CLOSED = 499
_log = getLogger(__name__)


class RequestMiddleware:
    """Wrap every request; paths of `max_body_bytes_of` have other limits."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        log: logs.RequestLog,
        limits: TransferLimits,
        origins: OriginCheck,
        max_body_bytes: int,
        max_body_bytes_of: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log
        self._limits = limits
        self._origins = origins
        self._max_body_bytes = max_body_bytes
        self._max_body_bytes_of = max_body_bytes_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        request_id = scope[REQUEST_ID] = request_id_from(scope["headers"])
        logged_id = logs.request_id.set(request_id)
        transfer = Transfer(
            receive,
            send,
            scope["headers"],
            max_body_bytes=self._max_body_bytes_of.get(scope["path"], self._max_body_bytes),
            limits=self._limits,
        )
        status = size = 0
        problem: Problem | None = None

        async def send_with_headers(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    *_service_headers(scope),
                    *SAFETY_HEADERS,
                ]
            size += len(message.get("body", b""))
            await transfer.send(message)

        try:
            self._origins.check(scope)
            transfer.check_headers()
            await self._app(scope, transfer.receive, send_with_headers)
        except ClientDisconnect:
            status = status or _CLIENT_CLOSED
        except Exception as error:
            problem = problem_of(error, scope)
            if problem is None:
                _log.exception("request %s failed", request_id)
            if status:
                raise  # the response has begun: the server can only break it off
            problem = problem or Internal()
            response = problem_response(problem, request_id)
            await response(scope, receive, send_with_headers)
        finally:
            slug = None if problem is None else problem.slug
            self._record(scope, status, time.monotonic() - started, size, slug)
            logs.request_id.reset(logged_id)

    def _record(
        self, scope: Scope, status: int, seconds: float, size: int, problem: str | None
    ) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.request(method, route, status, seconds, size)
        model = scope.get(REQUEST_MODEL)
        self._log.answered(
            method,
            route,
            status,
            seconds,
            (scope.get("client") or ("",))[0],
            problem=problem,
            key=scope.get(CLIENT),
            generation=model.generation if model is not None else None,
        )


def _service_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Name the generation and the version that answer, in problems too; tell clients of a draining worker to leave."""
    shared: Shared | None = getattr(scope["app"].state, "shared", None)
    if shared is None:
        return []
    headers = [(b"connection", b"close")] if shared.drain.started else []
    model: RequestModel | None = scope.get(REQUEST_MODEL)
    generation = (model or shared.serving()).generation
    headers.append((b"x-model-generation", b"%d" % generation))
    if model is not None and model.bundle is not None:
        headers.append((b"x-model-version", model.bundle.version.encode()))
    return headers
