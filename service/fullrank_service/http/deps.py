"""What a capability is, what the routes of all capabilities share, and how a route gets both."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Request
from starlette.datastructures import State
from starlette.routing import BaseRoute
from starlette.types import Scope

from fullrank_service.base.errors import Invalid
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.http.access import Access
from fullrank_service.http.admission import Admission, RateLimiter
from fullrank_service.http.schemas import ID, DocumentId
from fullrank_service.http.serving import REQUEST_MODEL, RequestModel, Serving

# Stop on SIGTERM without dropping a request: report it at /readyz, wait for clients to notice, then stop the server.


@dataclass(slots=True)
class Drain:
    """Whether the worker has received SIGTERM."""

    started: bool = False


def drain_before_stop(drain: Drain, delay_s: float) -> None:
    """Mark the worker as draining on SIGTERM; call the previous handler delay_s later, or at once on a second signal.

    Call it on the event loop. It does nothing outside the main thread, or if no Python handler is installed.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        return
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        is_second, drain.started = drain.started, True
        if is_second or not delay_s:
            previous(number, frame)
        else:
            loop.call_soon_threadsafe(loop.call_later, delay_s, previous, number, None)

    signal.signal(signal.SIGTERM, handle)


SLOT = "fullrank.slot"
"""Key of the admission slot in the ASGI scope of a ranking request."""


class Capability(NamedTuple):
    """A part of the service that can be left out.

    Attributes:
        name: Under which the state of the app holds what ``opened`` yields.
        routes: Its routes.
        opened: Opens what the routes use, given the state of the app, and closes it.
        public: The routes that pages of permitted other origins may call.
    """

    name: str
    routes: Sequence[BaseRoute]
    opened: Callable[[State], AbstractAsyncContextManager[object]]
    public: Sequence[BaseRoute] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """What the routes of all capabilities share; serving returns what this worker serves now."""

    settings: Settings
    metrics: Metrics
    access: Access
    admission: Admission
    rates: RateLimiter
    scrapes: RateLimiter
    drain: Drain
    serving: Callable[[], Serving]


def part(name: str) -> Any:
    """Return the dependency that provides a part of the app's state: "shared", or a capability by name."""

    async def provide(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(provide)


SharedDep = Annotated[Shared, part("shared")]


def serving_of(scope: Scope) -> RequestModel:
    """Fix the model generation that answers a request, and note it for the response headers."""
    shared: Shared = scope["app"].state.shared
    serving = RequestModel(shared.serving(), scope.get(SLOT), scope["headers"])
    scope[REQUEST_MODEL] = serving
    return serving


async def _serving(request: Request) -> RequestModel:
    return serving_of(request.scope)


ServingDep = Annotated[RequestModel, Depends(_serving)]


async def _path_id(id: DocumentId, request: Request) -> str:
    check_path(request.scope)
    return id


def check_path(scope: Scope) -> None:
    """Check the document id in a path. Decoding turns bytes that are not UTF-8 into U+FFFD: many paths, one id."""
    try:
        unquote_to_bytes(scope.get("raw_path", b"")).decode()
    except UnicodeDecodeError:
        raise Invalid(errors=[{"field": ID, "reason": "is not UTF-8"}]) from None


PathId = Annotated[str, Depends(_path_id)]
