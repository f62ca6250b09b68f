"""Let pages of permitted origins search and report events, as the Fetch standard asks for it, and others do nothing.

A page can make its browser send requests to this service that need no permission: those of forms and of
navigator.sendBeacon, and all requests to a name that it has pointed at the address of this service (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fullrank_service.base.errors import Misdirected, OtherOrigin

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
    """Refuses requests that pages of other origins send without permission.

    Args:
        hosts: FULLRANK_ALLOWED_HOSTS.
        origins: FULLRANK_CORS_ORIGINS.
    """

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
        try:
            # No page of another origin can have an address of this service as its own.
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _permits(self, origin: str, site: str, host: str) -> bool:
        if site == "same-origin" or origin.partition("://")[2].lower() == host:
            return True
        return origin in self._origins or "*" in self._origins


def _listed(names: str) -> list[str]:
    return [name.strip().rstrip("/") for name in names.split(",")]


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
            allow_origins=_listed(origins),
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
