"""Routes that are asked thousands of times a second: from the bytes of a body to the endpoint with nothing between.

FastAPI documents them like any other route, but does not answer them: its own way from a body to an endpoint, exit
stacks and a graph of dependencies, takes as long as a search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from service.body import must_be_json, parse
from service.deps import take
from service.guard import SLOT, Ranking, by_deadline, needed_scope, permit

M = TypeVar("M", bound=BaseModel)


class Direct(Ranking):
    """A Ranking route whose endpoint takes the body, what serves, and the services, in this order.

    An endpoint without a ``body`` is answered by FastAPI.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._model: type[BaseModel] | None = get_type_hints(endpoint).get("body")
        self._needed = needed_scope(self)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._model is None or scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        services = scope["app"].state.services
        permit(services, scope, self._needed)
        must_be_json(scope["headers"])
        body = await read(receive)
        slot = scope.get(SLOT) or services.admission.enter()
        try:
            asked = validated(self._model, parse(body))
            work = self.endpoint(asked, take(scope, services), services)
        except Exception:
            slot.leave()
            raise
        answer = await by_deadline(services.admission, slot, work)
        await answer(scope, receive, send)


async def read(receive: Receive) -> bytes:
    """The body of a request, whole. Raises ClientDisconnect."""
    parts: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
    raise ClientDisconnect


def validated(model: type[M], value: Any) -> M:
    """What the body says as the model that it must fit. Raises RequestValidationError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RequestValidationError(
            [{**item, "loc": ("body", *item["loc"])} for item in found]
        ) from None
