"""Handle what all requests share: id, transfer limits, headers, metrics, the log line, unexpected errors.

Pure ASGI: it starts no task and copies no body.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from logging import getLogger
from types import MappingProxyType

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fullrank_service.auth.access import CLIENT
from fullrank_service.errors import Internal, Problem
from fullrank_service.http.cors import OriginCheck
from fullrank_service.http.headers import SAFETY_HEADERS
from fullrank_service.http.overload import request_id_from
from fullrank_service.http.problems import REQUEST_ID, problem_of, problem_response
from fullrank_service.http.transfer import Transfer, TransferLimits
from fullrank_service.models.serving import REQUEST_MODEL
from fullrank_service.telemetry import logs
from fullrank_service.telemetry.metrics import Metrics

# Each method is a label of the metrics. Clients can invent methods, so the rest share one label.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))
# In metrics only: the client disconnected before its request was complete.
_CLIENT_CLOSED = 499
_log = getLogger(__name__)


class RequestMiddleware:
    """Wrap every request.

    Args:
        max_body_bytes: largest request body.
        max_body_bytes_of: other limits, by path.
        limits: time limits of bodies and responses.
        origins: refuses requests of pages of other origins.
        log: of requests.
    """

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
    services = getattr(scope["app"].state, "services", None)
    if services is None:
        return []
    headers = [(b"connection", b"close")] if services.draining else []
    model = scope.get(REQUEST_MODEL)
    generation = (model or services.registry.serving).generation
    headers.append((b"x-model-generation", b"%d" % generation))
    if model is not None and model.bundle is not None:
        headers.append((b"x-model-version", model.bundle.version.encode()))
    return headers
