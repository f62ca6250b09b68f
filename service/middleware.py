"""Around every request: its id, the body cap, safety headers, metrics, the last resort.

Pure ASGI: no task, no copy of the body, nothing between the route and the socket.
"""

from __future__ import annotations

import re
import time
import uuid
from logging import getLogger

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Internal, Problem, TooLarge
from service.metrics import Metrics
from service.serving import TAKEN

# Anyone can make a method up; each would be a metric of its own for ever.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = getLogger(__name__)

# No inline script or style, nothing from elsewhere: what a page shows is text from documents.
SAFETY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Edge:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, max_body_bytes: int) -> None:
        self.app = app
        self.metrics = metrics
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope["fullrank.request_id"] = request_id
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                outgoing = MutableHeaders(scope=message)
                outgoing["X-Request-Id"] = request_id
                _name_model(scope, outgoing)
                for name, value in SAFETY_HEADERS.items():
                    outgoing.setdefault(name, value)
            await send(message)

        try:
            length = headers.get("content-length", "")
            if length.isdigit() and int(length) > self.max_body_bytes:
                # Told before it is sent: nothing of the body is read.
                await self._refuse(self._too_large(), scope, receive, send_with_headers)
            else:
                await self.app(scope, self._capped(receive), send_with_headers)
        except Exception:
            _log.exception("request %s failed", request_id)
            if status:
                raise  # the answer has begun: all that is left is to break it off
            await self._refuse(Internal(), scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self.metrics.request(method, route, status, time.perf_counter() - started)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self.max_body_bytes} bytes.")

    def _capped(self, receive: Receive) -> Receive:
        left = self.max_body_bytes

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            if message["type"] == "http.request":
                left -= len(message.get("body", b""))
                if left < 0:
                    raise self._too_large()
            return message

        return counted

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        answer = problem.answer(scope["fullrank.request_id"])
        await answer(scope, receive, send)


def _name_model(scope: Scope, outgoing: MutableHeaders) -> None:
    """Which generation and version answer, also in problems; without a request for a model, what serves."""
    taken = scope.get(TAKEN)
    if taken is not None:
        outgoing["X-Model-Generation"] = str(taken.generation)
        if taken.bundle is not None:
            outgoing["X-Model-Version"] = taken.bundle.version
    elif (services := getattr(scope["app"].state, "services", None)) is not None:
        outgoing["X-Model-Generation"] = str(services.registry.serving.generation)
