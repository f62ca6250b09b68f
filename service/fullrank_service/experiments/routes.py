"""Compare a candidate with the active version on real searches: /v1/experiments/default."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter

from fullrank_service.base.errors import ExperimentNotFound
from fullrank_service.experiments.status import Reports
from fullrank_service.http.deps import Services, ServicesDep
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.models.schemas import (
    DecisionsReply,
    ExperimentReply,
    ExperimentRequest,
    ExperimentStatusReply,
)
from fullrank_service.models.serving import Serving

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=GuardedRoute)


@router.put(
    "/default",
    response_model=ExperimentReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503),
    openapi_extra=needs("admin"),
)
async def start_experiment(body: ExperimentRequest, services: ServicesDep) -> JsonResponse:
    """Interleave a version with the active one in every worker; this ends an experiment with another."""
    await services.registry.start_experiment(body.candidate, body.share, body.max_days)
    return JsonResponse(_described(services.registry.serving))


@router.get(
    "/default",
    response_model=ExperimentStatusReply,
    responses=problems(404, 503),
    openapi_extra=needs("admin"),
)
async def read_experiment(services: ServicesDep) -> JsonResponse:
    """Describe the experiment, its votes, at most 30 seconds old, and what `fullrank loop` decided so far."""
    serving = services.registry.serving
    if serving.experiment is None or serving.active is None:
        raise ExperimentNotFound
    reports = _reports(services)
    votes = await reports.votes(serving.active, serving.experiment)
    return JsonResponse(_described(serving) | votes | {"decisions": await reports.decisions()})


@router.get(
    "/default/decisions",
    response_model=DecisionsReply,
    responses=problems(503),
    openapi_extra=needs("admin"),
)
async def list_decisions(services: ServicesDep) -> JsonResponse:
    """List what `fullrank loop` decided, the newest first; also while no experiment runs."""
    return JsonResponse({"decisions": await _reports(services).decisions()})


@router.delete(
    "/default",
    response_model=ExperimentReply,
    responses=problems(404, 409, 503),
    openapi_extra=needs("admin"),
)
async def stop_experiment(services: ServicesDep) -> JsonResponse:
    """End the experiment and describe it; the active version stays."""
    ended = _described(services.registry.serving)
    await services.registry.stop_experiment()
    return JsonResponse(ended)


def _reports(services: Services) -> Reports:
    """Return the reports. These routes exist only if events are on."""
    if services.reports is None:
        raise LookupError("events are off")
    return services.reports


def _described(serving: Serving) -> dict[str, Any]:
    """Describe the experiment of a generation. Raises ExperimentNotFound."""
    found = serving.experiment
    if found is None:
        raise ExperimentNotFound
    return {
        "active": serving.active,
        "candidate": found.candidate,
        "share": found.share,
        "started": datetime.fromtimestamp(found.started, UTC).isoformat(timespec="seconds"),
        "max_days": found.max_days,
        "generation": serving.generation,
    }
