"""List, load and activate models."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.datastructures import State

from fullrank_service.http.deps import Capability, SharedDep
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.serving import ALIAS
from fullrank_service.models.health import router as health
from fullrank_service.models.outline import searched_fields
from fullrank_service.models.registry import Models, ModelsDep
from fullrank_service.models.schemas import ActivateRequest, AliasReply, LoadReply, ModelsReply
from fullrank_service.models.workers import converged

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=GuardedRoute)

_HIDDEN = "refused; a key with the scope admin sees why"

Version = Annotated[str, Path(min_length=1, max_length=100)]


@router.get("", response_model=ModelsReply, responses=problems(), openapi_extra=needs("search"))
async def list_models(registry: ModelsDep, shared: SharedDep, request: Request) -> JsonResponse:
    """List every bundle on disk, newest first, with its state; for the scope admin also cards, reasons and workers."""
    infos = await registry.available()
    workers = await registry.workers()
    serving, failures = registry.serving, registry.failures
    models = serving.models
    outlines = {own: await registry.outline(bundle) for own, bundle in models.items()}
    is_admin = shared.access.permits(request.scope["headers"], "admin")

    def reason(name: str) -> str | None:
        """Return why a version was refused; the reason names files of the server."""
        found = failures.get(name)
        return found if found is None or is_admin else _HIDDEN

    entries = [
        {
            "name": info.name,
            "version": info.version,
            "created": info.created,
            "bytes": info.bytes,
            "loaded": info.version in serving.models,
            "active": info.version == serving.active,
            "documents": serving.models[info.version].n_documents
            if info.version in serving.models
            else None,
            "fields": {name: asdict(field) for name, field in outlines[info.version].fields.items()}
            if info.version in outlines
            else None,
            "examples": list(outlines[info.version].examples) if info.version in outlines else None,
            "searched": searched_fields(info.card) if info.version in serving.models else None,
            "card": dict(info.card) if is_admin else None,
            "failure": reason(info.version),
        }
        for info in infos
    ]
    return JsonResponse(
        {
            "generation": serving.generation,
            "aliases": {ALIAS: serving.active} if serving.active else {},
            "previous": serving.previous,
            "failure": reason(ALIAS),
            "converged": converged(workers, serving.generation),
            "workers": [
                {
                    "id": worker.id,
                    "pid": worker.pid,
                    "host": worker.host,
                    "started": worker.started,
                    "generation": worker.generation,
                    "version": worker.version,
                    "prepared": worker.prepared,
                }
                for worker in workers
            ]
            if is_admin
            else None,
            "models": entries,
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
async def activate_model(body: ActivateRequest, registry: ModelsDep) -> JsonResponse:
    """Make a version the default in every worker, after all have loaded, verified and warmed it.

    Open requests finish on the model they started with. Roll back by activating the previous version.
    """
    started = time.perf_counter()
    swapped = await registry.activate(body.version)
    return JsonResponse(
        {
            "alias": ALIAS,
            "version": swapped.version,
            "generation": swapped.generation,
            "previous": swapped.previous,
            "workers": swapped.workers,
            "converged": swapped.converged,
            "took_ms": round((time.perf_counter() - started) * 1000, 3),
        }
    )


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Models]:
    registry: Models = state.backend.models
    await registry.start()
    try:
        yield registry
    finally:
        await registry.close()


MODELS = Capability("models", [*router.routes, *health.routes], _opened)
