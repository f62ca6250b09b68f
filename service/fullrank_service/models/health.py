"""Whether the service works: liveness, readiness, metrics."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response

from fullrank_service.base.errors import NotReady, TooManyRequests
from fullrank_service.base.metrics import CONTENT_TYPE
from fullrank_service.http.deps import ServingDep, SharedDep
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.serving import ALIAS
from fullrank_service.http.strict import Reply
from fullrank_service.models.registry import ModelsDep

router = APIRouter(tags=["health"])


class Alive(Reply):
    status: Literal["alive"]


class Ready(Reply):
    status: Literal["ready"]
    model: str
    generation: int


@router.get("/livez", response_model=Alive, responses=problems())
async def livez() -> JsonResponse:
    """Report that the process answers."""
    return JsonResponse({"status": "alive"})


@router.get("/readyz", response_model=Ready, responses=problems(503))
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


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
)
async def metrics(shared: SharedDep, models: ModelsDep) -> Response:
    """Give the Prometheus metrics of all workers."""
    is_flood = False
    try:
        shared.scrapes.spend("all")
    except TooManyRequests:  # which needs no key
        is_flood = True
    text = await shared.metrics.scrape(models.available, is_flood=is_flood)
    return Response(text, headers={"Content-Type": CONTENT_TYPE})
