"""Check every request before its route runs: API key, request rate, Content-Type; for rankings an admission slot.

A route states the scope it needs once; the OpenAPI document and the check both read it from there:

    router = APIRouter(route_class=GuardedRoute)

    @router.post("/search", openapi_extra=needs("search"))
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine, Iterable
from functools import cached_property, lru_cache
from typing import Any, TypeVar, cast, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from fullrank_service.http.access import CLIENT, Bounds
from fullrank_service.http.admission import RateLimiter, Slot
from fullrank_service.http.deps import SLOT, Shared, serving_of
from fullrank_service.http.keys import SCOPES
from fullrank_service.http.strict import (
    StrictRequest,
    check_query,
    is_query,
    parse,
    read_body,
    require_json,
)

SCHEME = "key"
"""Name of the security scheme in the OpenAPI document."""
KEPT = "x-bound-keys"
"""What an operation of the OpenAPI document says about keys that are bound to collections or a filter."""

Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def needs(scope: str, kept: Bounds | None = None) -> dict[str, Any]:
    """Give the `openapi_extra` of a guarded route whose callers need this scope.

    Args:
        kept: as of Access.authorize; other routes refuse keys that have such bounds.
    """
    if scope not in SCOPES:
        raise ValueError(scope)
    return {"security": [{SCHEME: [scope]}], **({} if kept is None else {KEPT: kept})}


def needed_scope(route: APIRoute) -> str:
    """Read the scope that a guarded route needs. Raises LookupError if the route states none."""
    [requirement] = (route.openapi_extra or {})["security"]
    [scope] = requirement[SCHEME]
    return cast("str", scope)


class GuardedRoute(APIRoute):
    """A route that answers only permitted callers and reads only bodies declared as JSON, by ``request_class``."""

    request_class: type[Request] = StrictRequest

    @cached_property
    def _scope_needed(self) -> str:
        return needed_scope(self)

    def permit(self, scope: Scope) -> None:
        """Check the key and the rate of a caller. Raises Unauthorized, Forbidden or TooManyRequests."""
        kept: Bounds | None = (self.openapi_extra or {}).get(KEPT)
        shared: Shared = scope["app"].state.shared
        shared.access.authorize(scope, self._scope_needed, kept)
        if self._scope_needed != "admin":
            spend(scope)

    def get_route_handler(self) -> Handler:
        answer = self.answerer()
        needed_scope(self)  # fails at the start, not in a request
        has_body = self.body_field is not None
        has_query = bool(self.dependant.query_params)
        kinds = [param.field_info.annotation for param in self.dependant.query_params]
        repeatable = {name for kind in kinds if is_query(kind) for name in kind.repeatable()}

        async def guarded(request: Request) -> Response:
            self.permit(request.scope)
            if has_query:
                check_query(request.scope["query_string"], repeatable)
            if not has_body:
                return await answer(request)
            require_json(request.scope["headers"])
            return await answer(self.request_class(request.scope, request.receive))

        return guarded

    def answerer(self) -> Handler:
        """Give what answers a request that has passed the checks."""
        return super().get_route_handler()


class RankingRoute(GuardedRoute):
    """A route that ranks: it takes an admission slot once its body has arrived, and keeps to the deadline.

    An endpoint with a body takes (body, serving, capability) and is called directly. FastAPI's dependencies and exit
    stacks, which it does not use, cost more than the rest of the HTTP work of a search.
    """

    capability = "search"

    def answerer(self) -> Handler:
        answer = super().answerer()

        async def ranked(request: Request) -> Response:
            async def work(slot: Slot) -> Response:
                request.scope[SLOT] = slot
                return await answer(request)

            response: Response = await request.app.state.shared.admission.run(work)
            return response

        return ranked

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.body_field is None or scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        state = scope["app"].state
        self.permit(scope)
        require_json(scope["headers"])

        async def work(slot: Slot) -> Response:
            scope[SLOT] = slot
            body = validated(self._body_model, parse(content))
            part = getattr(state, self.capability)
            response: Response = await self.endpoint(body, serving_of(scope), part)
            return response

        # A client that sends slowly must not hold a slot meanwhile.
        content = await read_body(receive)
        response = await state.shared.admission.run(work)
        await response(scope, receive, send)

    @cached_property
    def _body_model(self) -> type[BaseModel]:
        found: type[BaseModel] = get_type_hints(self.endpoint)["body"]
        return found


def ranking_routes(routes: Iterable[BaseRoute]) -> dict[str, RankingRoute]:
    """Return the ranking routes that take POST, by path."""
    return {
        route.path: route
        for route in routes
        if isinstance(route, RankingRoute) and "POST" in (route.methods or ())
    }


def spend(scope: Scope) -> None:
    """Count a request of an authorized caller. Raises TooManyRequests."""
    rates: RateLimiter = scope["app"].state.shared.rates
    if rates.is_enabled:
        rates.spend(_client(scope))


def validated(model: type[Body], content: object) -> Body:
    """Check a parsed body. Raises RequestValidationError."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RequestValidationError(
            [{**item, "loc": ("body", *item["loc"])} for item in found]
        ) from None


def _client(scope: Scope) -> str:
    key = scope.get(CLIENT)
    if key is not None:
        return cast("str", key)
    address = scope.get("client")
    return "?" if address is None else _network(str(address[0]))


@lru_cache(maxsize=10_000)
def _network(host: str) -> str:
    """The address. For IPv6 its /64 network, because one subscriber has all of its addresses."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
