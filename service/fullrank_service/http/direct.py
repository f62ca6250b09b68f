"""Call the ranking routes without the router of the framework, whose steps cost as much as admission."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


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
