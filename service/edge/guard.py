"""What stands before a route: may the caller, is the body what it is said to be, is there room.

A route says which scope it needs beside its path, and this is both what the OpenAPI document tells and what is checked:

    router = APIRouter(route_class=Guarded)

    @router.post("/search", openapi_extra=needs("search"))

Ranking routes take a slot besides (admission.py), and are answered by their deadline.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Scope

from service.auth.keys import SCOPES
from service.edge.admission import SLOT, Admission, Slot
from service.edge.body import StrictRequest, must_be_json

if TYPE_CHECKING:
    from service.http.deps import Services

SCHEME = "key"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def needs(scope: str) -> dict[str, Any]:
    """The `openapi_extra` of a Guarded route: callers must hold this scope."""
    if scope not in SCOPES:
        raise ValueError(scope)
    return {"security": [{SCHEME: [scope]}]}


def needed_scope(route: APIRoute) -> str:
    """The scope a Guarded route asks for. Raises LookupError where it forgot to say."""
    [requirement] = (route.openapi_extra or {})["security"]
    [scope] = requirement[SCHEME]
    return cast("str", scope)


class Guarded(APIRoute):
    """A route that answers only who may, and reads only a body that is said to be JSON."""

    def get_route_handler(self) -> Handler:
        handler = self.admitted(super().get_route_handler())
        needed = needed_scope(self)
        has_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            scope = request.scope
            permit(request.app.state.services, scope, needed)
            if not has_body:
                return await handler(request)
            must_be_json(scope["headers"])
            return await handler(StrictRequest(scope, request.receive))

        return guarded

    def admitted(self, handler: Handler) -> Handler:
        """The handler with whatever more is asked of this kind of route."""
        return handler


class Ranking(Guarded):
    """A route that ranks: it takes a slot once its body is there, and has until the deadline."""

    def admitted(self, handler: Handler) -> Handler:
        has_body = self.body_field is not None

        async def admitted(request: Request) -> Response:
            admission = request.app.state.services.admission
            slot = request.scope.get(SLOT)
            if slot is None:
                if has_body:
                    await request.body()  # whoever sends it slowly holds no slot meanwhile
                slot = request.scope[SLOT] = admission.enter()
            return await by_deadline(admission, slot, handler(request))

        return admitted


def permit(services: Services, scope: Scope, needed: str) -> None:
    """Raises Unauthorized, Forbidden or TooMany unless the caller may, now."""
    services.access.require(scope, needed)
    if services.rates.on and needed != "admin":
        services.rates.spend(_client(scope))


async def by_deadline(admission: Admission, slot: Slot, work: Awaitable[Response]) -> Response:
    """The answer that holds the slot. Raises Overloaded where it is not there by the deadline."""
    limit = asyncio.timeout_at(slot.deadline)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise admission.expired() from None
        raise
    finally:
        slot.leave()


def _client(scope: Scope) -> str:
    """Who is counted: the key, else the address."""
    key = scope.get("fullrank.client")
    if key is not None:
        return cast("str", key)
    address = scope.get("client")
    if address is None:
        return "?"
    return _network(str(address[0]))


@lru_cache(maxsize=10_000)
def _network(host: str) -> str:
    """The address; by IPv6 its network, since whoever has one address there has 2⁶⁴."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
