"""Around every request: its id, the body cap, safety headers, metrics, the last resort.

Pure ASGI: no task, no copy of the body, nothing between the route and the socket.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from logging import getLogger
from types import MappingProxyType

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.edge.admission import SLOT
from service.errors import Internal, Problem, TooLarge
from service.models.serving import TAKEN
from service.telemetry import logs
from service.telemetry.metrics import Metrics

# Anyone can make a method up; each would be a metric of its own for ever.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# The client went before its request was there; in the metrics only.
_GONE = 499
_log = getLogger(__name__)

# As headers travel. No inline script or style, nothing from elsewhere: what a page shows is text from documents.
SAFETY = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Edge:
    """The outermost layer of the app.

    larger  bytes that the bodies for some paths may have, in place of max_body_bytes
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        max_body_bytes: int,
        larger: Mapping[str, int] = MappingProxyType({}),
        log_requests: bool = False,
    ) -> None:
        self.app = app
        self.metrics = metrics
        self.max_body_bytes = max_body_bytes
        self.larger = larger
        self.log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        slot = scope.get(SLOT)
        # Who stood in line was here before.
        started = time.monotonic() if slot is None else slot.since
        given = length = b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value
            elif name == b"content-length":
                length = value
        request_id = given.decode("latin-1")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = os.urandom(16).hex()
        scope["fullrank.request_id"] = request_id
        named = logs.request_id.set(request_id)
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    *_model(scope),
                    *SAFETY,
                ]
            await send(message)

        most = self.larger.get(scope["path"], self.max_body_bytes)
        try:
            if length.isdigit() and int(length) > most:
                # Told before it is sent: nothing of the body is read.
                await self._refuse(_too_large(most), scope, receive, send_with_headers)
            else:
                await self.app(scope, _capped(receive, most), send_with_headers)
        except ClientDisconnect:
            status = status or _GONE  # there is nobody to tell
        except Exception:
            _log.exception("request %s failed", request_id)
            if status:
                raise  # the answer has begun: all that is left is to break it off
            await self._refuse(Internal(), scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            took = time.monotonic() - started
            self.metrics.request(method, route, status, took)
            if self.log_requests:
                taken = scope.get(TAKEN)
                client = (scope.get("client") or ("",))[0]
                facts = {
                    "route": route,
                    "client": client,
                    "generation": taken.generation if taken is not None else None,
                }
                logs.log_request(method, scope.get("raw_path", b""), status, took, facts)
            logs.request_id.reset(named)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        answer = problem.answer(scope["fullrank.request_id"])
        await answer(scope, receive, send)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"The body is larger than {most} bytes.")


def _capped(receive: Receive, most: int) -> Receive:
    left = most

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        if message["type"] == "http.request":
            left -= len(message.get("body", b""))
            if left < 0:
                raise _too_large(most)
        return message

    return counted


def _model(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Which generation and version answer, also in problems; without a request for a model, what serves."""
    taken = scope.get(TAKEN)
    if taken is None:
        services = getattr(scope["app"].state, "services", None)
        if services is None:
            return []
        return [(b"x-model-generation", b"%d" % services.registry.serving.generation)]
    headers = [(b"x-model-generation", b"%d" % taken.generation)]
    if taken.bundle is not None:
        headers.append((b"x-model-version", taken.bundle.version.encode()))
    return headers
