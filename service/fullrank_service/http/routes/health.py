"""Report liveness, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fullrank_service.errors import NotReady
from fullrank_service.http.deps import ServicesDep, ServingDep
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.responses import JsonResponse
from fullrank_service.http.schemas import Alive, Ready
from fullrank_service.models.serving import ALIAS
from fullrank_service.telemetry.metrics import CONTENT_TYPE

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
