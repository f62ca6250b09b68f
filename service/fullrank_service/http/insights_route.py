"""The route of search-insights.js: its key comes in a header or the query string, and its body as plain text too."""

from __future__ import annotations

from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.types import Scope

from fullrank_service.http.body import require_json
from fullrank_service.http.guard import GuardedRoute, Handler, needed_scope, spend

KEY = "X-Algolia-API-Key"


class InsightsRoute(GuardedRoute):
    """A route that answers callers with a key for events alone. The endpoint reads the body itself."""

    def get_route_handler(self) -> Handler:
        answer = self.answerer()
        scope_needed = needed_scope(self)

        async def guarded(request: Request) -> Response:
            services = request.app.state.services
            services.access.authorize_public(request.scope, scope_needed, _token(request.scope))
            spend(services, request.scope)
            require_json(request.scope["headers"], or_text=True)
            return await answer(request)

        return guarded


def _token(scope: Scope) -> str | None:
    """Read the key. navigator.sendBeacon cannot set headers, so the query string may have it."""
    name = KEY.lower().encode()
    for header, value in scope["headers"]:
        if header == name:
            return bytes(value).decode("latin-1")
    return QueryParams(scope["query_string"]).get(KEY)
