"""The routes that are asked thousands of times a second: from the bytes of a body to the endpoint, nothing between.

FastAPI documents them like all others, but does not answer them: its own way from a request to an endpoint, through
routers, exit stacks and a graph of dependencies, takes as long as a search.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, get_type_hints

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.edge.admission import SLOT
from service.edge.body import must_be_json, parse
from service.edge.guard import Ranking, by_deadline, needed_scope, permit
from service.errors import problem_of
from service.http.deps import take

M = TypeVar("M", bound=BaseModel)
_TAKES = ["body", "serving", "services"]


@dataclass(frozen=True, slots=True)
class Direct:
    """A route whose endpoint takes a body, what serves, and the services.

    model   what the body must fit
    needed  the scope that a caller needs
    """

    route: Ranking
    endpoint: Callable[..., Awaitable[Response]]
    model: type[BaseModel]
    needed: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As Ranking does it, step by step."""
        scope["route"] = self.route
        services = scope["app"].state.services
        try:
            permit(services, scope, self.needed)
            must_be_json(scope["headers"])
            body = await read(receive)
            slot = scope[SLOT] = scope.get(SLOT) or services.admission.enter()
            answer = await by_deadline(services.admission, slot, self._answer(scope, body))
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            answer = problem.answer(scope["fullrank.request_id"])
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, body: bytes) -> Response:
        services = scope["app"].state.services
        asked = validated(self.model, parse(body))
        return await self.endpoint(asked, take(scope, services), services)


def direct_routes(router: APIRouter) -> Iterator[tuple[str, Direct]]:
    """The ranking routes of a router that can be called so, by path; they take POST."""
    for route in router.routes:
        if not isinstance(route, Ranking) or list(_parameters(route.endpoint)) != _TAKES:
            continue
        model = get_type_hints(route.endpoint)["body"]
        yield route.path, Direct(route, route.endpoint, model, needed_scope(route))


def _parameters(endpoint: Callable[..., object]) -> list[str]:
    return list(inspect.signature(endpoint).parameters)


class Before:
    """The direct routes, and behind them the app that answers everything else."""

    def __init__(self, app: ASGIApp, router: APIRouter) -> None:
        self._app = app
        self._routes = dict(direct_routes(router))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is not None and scope["method"] == "POST":
            await route(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def read(receive: Receive) -> bytes:
    """The body of a request, whole. Raises ClientDisconnect."""
    parts: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
    raise ClientDisconnect


def validated(model: type[M], value: object) -> M:
    """What the body says as the model that it must fit. Raises RequestValidationError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RequestValidationError(
            [{**item, "loc": ("body", *item["loc"])} for item in found]
        ) from None
