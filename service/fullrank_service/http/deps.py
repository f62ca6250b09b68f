"""What a capability is, what the routes of all capabilities share, and how a route gets both."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Request
from starlette.datastructures import State
from starlette.routing import BaseRoute
from starlette.types import Scope

from fullrank.bundle import Bundle
from fullrank_service.base import errors
from fullrank_service.base.errors import Invalid
from fullrank_service.base.experiment import Active, Experiment, name_of
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.http.access import BOUND, Access
from fullrank_service.http.admission import Admission, RateLimiter, Slot
from fullrank_service.http.keys import Key
from fullrank_service.http.schemas import ID, DocumentId

ALIAS = "default"
# The key of a request's RequestModel in its ASGI scope.
REQUEST_MODEL = "fullrank.request_model"
COLLECTION = "fullrank.collection"
"""Key of the bundle name in the path of a request, in its ASGI scope."""
Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Serving:
    """One generation; immutable. Models are by version, oldest load first.

    `collections` has the active versions of others than the default one, by bundle name. They and the candidates of
    experiments are loaded.
    """

    generation: int = 0
    active: str | None = None
    previous: str | None = None
    models: Mapping[str, Bundle] = field(default_factory=lambda: MappingProxyType({}))
    experiment: Experiment | None = None
    collections: Mapping[str, Active] = field(default_factory=lambda: MappingProxyType({}))

    def resolve(self, model: str | None, collection: str | None = None) -> Bundle:
        """Return the bundle that a request names: "default" or None, a version, or a bundle name: the active version of
        this collection, else its newest loaded one. In a collection only its own are there.

        Raises:
            ModelNotFound: no loaded model has this name.
            NotReady: the request names no model and no model is active.
        """
        if collection is not None:
            active = self.active_of(collection).version or collection
            found = self.resolve(active if model in (None, ALIAS) else model)
            if found.name != collection:
                raise errors.ModelNotFound(f"{model} is no version of the collection {collection}.")
            return found
        if model is None or model == ALIAS:
            if self.active is None:
                raise errors.NotReady("No model is loaded; /v1/models says why.")
            return self.models[self.active]
        if model in self.models:
            return self.models[model]
        if (own := self.active_of(model).version) is not None:
            return self.models[own]
        named = [bundle for bundle in self.models.values() if bundle.name == model]
        if not named:
            raise errors.ModelNotFound(
                f"No loaded model is called {model!r}; GET /v1/models lists them."
            )
        return max(named, key=lambda bundle: (bundle.manifest.created, bundle.version))

    def active_of(self, collection: str | None) -> Active:
        """Return what serves in a collection; None: in the default one."""
        active = None if self.active is None else self.models[self.active]
        if collection is None or (active is not None and active.name == collection):
            return Active(self.active, None, self.previous, self.experiment)
        return self.collections.get(collection, Active())


class RequestModel:
    """The generation that answers one request, its headers, its slot if it ranks, its bundle once resolved.

    `collection` is the bundle name in the path of the request, `key` a key that is bound; None: it has none.
    """

    __slots__ = ("bundle", "collection", "headers", "key", "serving", "slot")

    def __init__(
        self,
        serving: Serving,
        slot: Slot | None = None,
        headers: Sequence[Header] = (),
        collection: str | None = None,
        key: Key | None = None,
    ) -> None:
        self.serving = serving
        self.slot = slot
        self.headers = headers
        self.collection = collection
        self.key = key
        self.bundle: Bundle | None = None

    @property
    def generation(self) -> int:
        return self.serving.generation

    @property
    def experiment(self) -> Experiment | None:
        """The experiment of the collection."""
        return self.serving.active_of(self.collection).experiment

    @property
    def active(self) -> str | None:
        return self.serving.active

    def sees(self, version: str) -> bool:
        """Return whether the path and the key of the request let it see the documents of a version."""
        name = name_of(version)
        names = None if self.key is None else self.key.collections
        return self.collection in (None, name) and (names is None or name in names)

    def resolve(self, model: str | None) -> Bundle:
        """Resolve as ``Serving.resolve``, and note the bundle: every answer names it, problem documents too."""
        names = None if self.key is None else self.key.collections
        try:
            bundle = self.serving.resolve(model, self.collection)
        except errors.ModelNotFound:
            if names is None:
                raise
            raise self._forbidden(names) from None  # it is not told which others there are
        if names is not None and bundle.name not in names:
            raise self._forbidden(names)
        self.bundle = bundle
        return bundle

    def _forbidden(self, names: Collection[str]) -> errors.Forbidden:
        known = ", ".join(sorted(names)) or "no collection"
        return errors.Forbidden(f"The API key is for {known}; ask /v1/collections/{{name}}/….")

    @property
    def filter(self) -> Mapping[str, Any] | None:
        """What all documents match that the caller may see; None: it may see all."""
        return None if self.key is None else self.key.filter


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
    """A part of the service: its routes, and what they use while the app runs.

    Attributes:
        name: Attribute of the app's state that holds what ``opened`` yields.
        opened: Opens what the routes use, given the state of the app, and closes it.
        public: The routes that pages of permitted other origins may call.
    """

    name: str
    routes: Sequence[BaseRoute]
    opened: Callable[[State], AbstractAsyncContextManager[object]]
    public: Sequence[BaseRoute] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """What the routes of all capabilities share. ``serving()`` is the generation that this worker serves now."""

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
    serving = RequestModel(
        shared.serving(),
        scope.get(SLOT),
        scope["headers"],
        scope.get(COLLECTION),
        scope.get(BOUND),
    )
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
