"""List, load and activate models."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from fastapi import Request as HttpRequest
from pydantic import Field
from starlette.datastructures import State
from starlette.responses import Response

from fullrank.bundle import BundleInfo
from fullrank_service.base.errors import NotReady, TooManyRequests
from fullrank_service.base.metrics import CONTENT_TYPE
from fullrank_service.http.deps import ALIAS, Capability, ServingDep, SharedDep
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.strict import Reply, Request
from fullrank_service.models.outline import searched_fields
from fullrank_service.models.registry import Models, ModelsDep
from fullrank_service.models.workers import converged

VersionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]


class ActivateRequest(Request):
    version: VersionName


class FieldEntry(Reply):
    kinds: list[Literal["boolean", "number", "keyword"]]
    distinct: int = Field(description="number of different values, of booleans two")
    min: float | str | None = Field(
        description="least value of a field of numbers alone, or of times alone: ISO 8601 in UTC; else null"
    )
    max: float | str | None = Field(description="largest value, as min")


class ModelEntry(Reply):
    name: str
    version: str
    created: str
    bytes: int
    loaded: bool
    active: bool
    documents: int | None = Field(description="number of documents; null while it is not loaded")
    fields: dict[str, FieldEntry] | None = Field(
        description="stored fields that filters and facets can read; null while it is not loaded"
    )
    examples: list[str] | None = Field(
        description="short titles of its documents, to try as queries; null while it is not loaded"
    )
    searched: list[str] | None = Field(
        description="fields whose words it reads, empty if unknown; null while it is not loaded"
    )
    card: dict[str, Any] | None = Field(description="null without the scope admin")
    failure: str | None = Field(
        description="why it was refused, for the scope admin; null if it was not"
    )


class WorkerEntry(Reply):
    id: str
    pid: int
    host: str
    started: bool = Field(
        description="whether it answers requests; until then no swap waits for it"
    )
    generation: int = Field(description="generation that it serves; 0 before the first")
    version: str | None
    prepared: str | None = Field(description="version that it has prepared for a swap in progress")


class ModelsReply(Reply):
    generation: int
    aliases: dict[str, str]
    previous: str | None = Field(description="version that served before; it stays loaded")
    failure: str | None = Field(
        description="why the recorded version does not serve, for the scope admin; null if it does"
    )
    converged: bool = Field(
        description="whether every started worker serves the same version and generation"
    )
    workers: list[WorkerEntry] | None = Field(
        description="all workers that share the bundle folder; null without the scope admin"
    )
    models: list[ModelEntry] = Field(description="newest first")


class LoadReply(Reply):
    name: str
    version: str
    documents: int
    took_ms: float


class AliasReply(Reply):
    alias: str
    version: str
    generation: int
    previous: str | None
    workers: int = Field(description="workers of the swap")
    converged: bool = Field(
        description="whether all of them serve it; otherwise the slow ones follow shortly"
    )
    took_ms: float


router = APIRouter(prefix="/v1/models", tags=["models"], route_class=GuardedRoute)

_HIDDEN = "refused; a key with the scope admin sees why"

Version = Annotated[str, Path(min_length=1, max_length=100)]


@router.get(
    "", response_model=ModelsReply, responses=problems(), openapi_extra=needs("search", "filter")
)
async def list_models(
    registry: ModelsDep, requested: ServingDep, shared: SharedDep, request: HttpRequest
) -> JsonResponse:
    """List every bundle on disk, newest first, with its state; for the scope admin also cards, reasons and workers."""
    infos = await registry.available()
    collection, active = requested.collection, None
    if collection is not None:
        infos = [info for info in infos if info.name == collection]
        active = requested.resolve(None).version
    workers = await registry.workers()
    names = None if requested.key is None else requested.key.collections
    if names is not None:
        infos = [info for info in infos if info.name in names]
    serving, failures = requested.serving, registry.failures
    previous = serving.active_of(collection).previous
    active = active or serving.active
    if names is not None and active not in {info.version for info in infos}:
        active = None
    sees_all = requested.key is None or requested.key.filter is None
    models = serving.models
    outlines = {own: await registry.outline(bundle) for own, bundle in models.items() if sees_all}
    is_admin = shared.access.permits(request.scope["headers"], "admin")

    def reason(name: str) -> str | None:
        """Return why a version was refused; the reason names files of the server."""
        found = failures.get(name)
        return found if found is None or is_admin else _HIDDEN

    def entry(info: BundleInfo) -> dict[str, Any]:
        bundle, outline = models.get(info.version), outlines.get(info.version)
        fields = None if outline is None else outline.fields.items()
        return {
            "name": info.name,
            "version": info.version,
            "created": info.created,
            "bytes": info.bytes,
            "loaded": bundle is not None,
            "active": info.version == active,
            "documents": bundle.n_documents if bundle is not None and sees_all else None,
            "fields": None if fields is None else {name: asdict(field) for name, field in fields},
            "examples": None if outline is None else list(outline.examples),
            "searched": None if bundle is None else searched_fields(info.card),
            "card": dict(info.card) if is_admin else None,
            "failure": reason(info.version),
        }

    shown = [
        {name: getattr(worker, name) for name in WorkerEntry.model_fields} for worker in workers
    ]
    return JsonResponse(
        {
            "generation": serving.generation,
            "aliases": {ALIAS: active} if active else {},
            "previous": previous if requested.key is None else None,
            "failure": reason(ALIAS),
            "converged": converged(workers, serving.generation),
            "workers": shown if is_admin else None,
            "models": [entry(info) for info in infos],
        }
    )


@router.post(
    "/{version}:load",
    response_model=LoadReply,
    responses=problems(404, 409, 422, 503),
    openapi_extra=needs("admin"),
)
async def load_model(version: Version, registry: ModelsDep) -> JsonResponse:
    """Load and verify a version without activating it. Requests can then name it by version or bundle name."""
    started = time.perf_counter()
    bundle = await registry.load(version)
    return JsonResponse(
        {
            "name": bundle.name,
            "version": bundle.version,
            "documents": bundle.n_documents,
            "took_ms": round((time.perf_counter() - started) * 1000, 3),
        }
    )


@router.put(
    "/aliases/default",
    response_model=AliasReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503),
    openapi_extra=needs("admin"),
)
async def activate_model(
    body: ActivateRequest, serving: ServingDep, registry: ModelsDep
) -> JsonResponse:
    """Make a version the default in every worker, after all have loaded, verified and warmed it.

    Open requests finish on the model they started with. Roll back by activating the previous version.
    """
    started = time.perf_counter()
    swapped = await registry.activate(body.version, serving.collection)
    took_ms = round((time.perf_counter() - started) * 1000, 3)
    return JsonResponse({"alias": ALIAS, **asdict(swapped), "took_ms": took_ms})


health = APIRouter(tags=["health"])


class Alive(Reply):
    status: Literal["alive"]


class Ready(Reply):
    status: Literal["ready"]
    model: str
    generation: int


@health.get("/livez", response_model=Alive, responses=problems())
async def livez() -> JsonResponse:
    """Report that the process answers."""
    return JsonResponse({"status": "alive"})


@health.get("/readyz", response_model=Ready, responses=problems(503))
async def readyz(serving: ServingDep, shared: SharedDep, models: ModelsDep) -> JsonResponse:
    """Report that a model is loaded and the worker accepts traffic."""
    if shared.drain.started:
        raise NotReady("The service is stopping.")
    if serving.active is None:
        reason = models.failures.get(ALIAS)
        raise NotReady(
            "The recorded version cannot be served; GET /v1/models gives an admin key the reason."
            if reason
            else "There is no bundle to serve; train one, or set FULLRANK_BUNDLES to a folder with one."
        )
    return JsonResponse(
        {"status": "ready", "model": serving.active, "generation": serving.generation}
    )


@health.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
)
async def metrics(shared: SharedDep, models: ModelsDep) -> Response:
    """Give the Prometheus metrics of all workers."""
    is_flood = False
    try:
        shared.scrapes.spend("all")
    except TooManyRequests:  # /metrics needs no key, so a flood gets the last text
        is_flood = True
    text = await shared.metrics.scrape(models.available, is_flood=is_flood)
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Models]:
    registry: Models = state.backend.models
    await registry.start()
    try:
        yield registry
    finally:
        await registry.close()


MODELS = Capability("models", [*router.routes, *health.routes], _opened)
