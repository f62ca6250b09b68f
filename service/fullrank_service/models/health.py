"""Routes of the service itself: liveness, readiness, metrics, and the search page."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from fullrank_service.base.errors import NotReady
from fullrank_service.base.metrics import CONTENT_TYPE
from fullrank_service.http.deps import ServicesDep, ServingDep
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.schemas import Alive, Ready
from fullrank_service.models.serving import ALIAS

router = APIRouter(tags=["health"])


@router.get("/livez", response_model=Alive, responses=problems())
async def livez() -> JsonResponse:
    """Report that the process answers."""
    return JsonResponse({"status": "alive"})


@router.get("/readyz", response_model=Ready, responses=problems(503))
async def readyz(serving: ServingDep, services: ServicesDep) -> JsonResponse:
    """Report that a model is loaded and the worker accepts traffic."""
    if services.draining:
        raise NotReady("The service is stopping.")
    if serving.active is None:
        reason = services.registry.failures.get(ALIAS)
        raise NotReady(
            "The recorded version cannot be served; GET /v1/models gives an admin key the reason."
            if reason
            else "There is no bundle to serve; train one, or set FULLRANK_BUNDLES to a folder with one."
        )
    return JsonResponse(
        {"status": "ready", "model": serving.active, "generation": serving.generation}
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
)
async def metrics(services: ServicesDep) -> Response:
    """Give the Prometheus metrics of all workers."""
    text = await services.metrics.scrape(services.registry.available)
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


# Serve the files of the search page, with their hash as the entity tag.

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


@cache
def page_router() -> APIRouter:
    """Build one route for each file in `service/fullrank_service/page`; `index.html` is served at `/` and `/console`.

    The files are read once a process.
    """
    router = APIRouter(include_in_schema=False)
    for file in files("fullrank_service").joinpath("page").iterdir():
        media_type = _MEDIA_TYPES.get(PurePath(file.name).suffix)
        if media_type is None:
            continue
        serve = _serve(file.read_bytes(), media_type)
        for path in ("/", "/console") if file.name == "index.html" else (f"/{file.name}",):
            router.add_api_route(path, serve, methods=["GET", "HEAD"])
    return router


def _serve(content: bytes, media_type: str) -> Callable[[str | None], Awaitable[Response]]:
    """Build the route of one file."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Type": media_type}

    async def serve(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(content, headers=headers)

    return serve
