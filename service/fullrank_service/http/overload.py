"""Refuse ranking requests while the queue is full, before any other work is done for them.

At ten times the load nine of ten requests end here. What a refusal costs is lost to the others, so it comes before
routing, authentication and the body.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fullrank_service.base.errors import Overloaded
from fullrank_service.base.logs import RequestLog
from fullrank_service.base.metrics import Metrics
from fullrank_service.http.admission import Admission
from fullrank_service.http.deps import Shared
from fullrank_service.http.headers import SAFETY_HEADERS, new_id
from fullrank_service.http.problems import problem_response

# Call the ranking routes without the router of the framework, whose steps cost as much as admission.


class DirectRouteMiddleware:
    """Call a route that takes POST, if its path is the path of the request.

    Args:
        routes: by path, which has no parameters. They need nothing of the app but its state.
    """

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
    """Answer 503 in place of the app while the admission queue is full.

    Args:
        paths: paths of the ranking routes that take POST.
    """

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
        """The headers and body of a refusal, prepared once for each Retry-After."""
        seconds = admission.retry_after
        if self._prepared is None or self._prepared[0] != seconds:
            response = problem_response(admission.refusal(), _ANY_ID)
            headers = [pair for pair in response.raw_headers if pair[0] != b"content-length"]
            self._prepared = (seconds, [*headers, *SAFETY_HEADERS], bytes(response.body))
        return self._prepared[1:]
