"""Let pages of other origins search and report events, as the Fetch standard asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

_HEADERS = (
    "Authorization", "Content-Type", "X-Request-ID", "X-Algolia-API-Key", "X-Algolia-Application-Id",
    "X-Algolia-Agent",
)  # fmt: skip
_EXPOSED = ("X-Request-ID", "X-Model-Version", "X-Model-Generation", "Retry-After")
_MAX_AGE_S = 7200


class CorsMiddleware:
    """Answer preflight requests, and add the headers to answers.

    Args:
        origins: Separated by commas, or "*".
        routes: Open to them.
    """

    def __init__(self, app: ASGIApp, *, origins: str, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._patterns = [route.path_regex for route in routes if isinstance(route, Route)]
        self._open = CORSMiddleware(
            app,
            allow_origins=[origin.strip().rstrip("/") for origin in origins.split(",")],
            allow_methods=("GET", "POST"),
            allow_headers=_HEADERS,
            expose_headers=_EXPOSED,
            max_age=_MAX_AGE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks = scope["type"] == "http" and any(name == b"origin" for name, _ in scope["headers"])
        if asks and any(pattern.match(scope["path"]) for pattern in self._patterns):
            await self._open(scope, receive, send)
        else:
            await self._app(scope, receive, send)
