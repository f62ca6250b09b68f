"""Alive, ready, metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from service.errors import NotReady
from service.http.deps import ServicesDep, ServingDep
from service.http.responses import Answer
from service.http.schemas import Alive, Ready
from service.models.serving import ALIAS
from service.routes.documented import problems
from service.telemetry.metrics import CONTENT_TYPE

router = APIRouter(tags=["health"])


@router.get("/livez", response_model=Alive, responses=problems())
async def livez() -> Answer:
    """The process answers."""
    return Answer({"status": "alive"})


@router.get("/readyz", response_model=Ready, responses=problems(503))
async def readyz(serving: ServingDep, services: ServicesDep) -> Answer:
    """A model is loaded; send traffic."""
    if services.admission.draining:
        raise NotReady("The service is stopping.")
    if serving.active is None:
        reason = services.registry.failures.get(ALIAS)
        raise NotReady(
            "The noted version cannot be served; /v1/models says why."
            if reason
            else "There is no bundle to serve yet; train one, or point FULLRANK_BUNDLES at one."
        )
    return Answer({"status": "ready", "model": serving.active, "generation": serving.generation})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
)
async def metrics(services: ServicesDep) -> Response:
    """Prometheus metrics of all workers of the service."""
    return Response(services.metrics.render(), headers={"Content-Type": CONTENT_TYPE})
