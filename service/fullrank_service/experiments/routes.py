"""Compare a candidate with the active version on real searches: /v1/experiments/default."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.datastructures import State

from fullrank.events.decisions import MAX_DAYS, SHARE
from fullrank_service.base.errors import ExperimentNotFound
from fullrank_service.experiments.status import Reports
from fullrank_service.http.deps import Capability, Serving, ServingDep, part
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.strict import Reply, Request
from fullrank_service.models.registry import ModelsDep
from fullrank_service.models.routes import VersionName

ReportsDep = Annotated[Reports, part("experiments")]
router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=GuardedRoute)


class ExperimentRequest(Request):
    candidate: VersionName
    share: Annotated[float, Field(gt=0, le=1, description="of the searches")] = SHARE
    max_days: Annotated[
        float, Field(gt=0, le=365, description="after which the active version stays")
    ] = MAX_DAYS


class ExperimentReply(Reply):
    active: str
    candidate: str
    share: float
    started: str
    max_days: float
    generation: int


class GateEntry(Reply):
    name: str
    passed: bool
    reason: str = Field(description="what was measured, and what it was compared with")


class DecisionEntry(Reply):
    at: float = Field(description="seconds since 1970")
    name: str = Field(description="name of the model")
    did: str
    active: str | None
    candidate: str | None
    wins: int | None = Field(description="votes for the candidate; null for a training")
    losses: int | None
    e_value: float | None
    started: str | None = Field(description="when the experiment began; null for a training")
    e_values: list[tuple[float, float]] | None = Field(
        description="seconds since 1970 and the e-value then, at most 200 points"
    )
    gates: list[GateEntry] | None = Field(description="of a training")


class DecisionsReply(Reply):
    decisions: list[DecisionEntry] = Field(description="of the loop, the newest 50 first")


class ExperimentStatusReply(ExperimentReply, DecisionsReply):
    wins: int = Field(description="votes of past days for the candidate, until they decided")
    losses: int
    e_value: float = Field(description="evidence that one of the two is better; 20 decides")
    verdict: Literal["promote", "stop", "open"]
    expired: bool = Field(description="whether max_days have passed")
    e_values: list[tuple[float, float]] = Field(
        description="seconds since 1970 and the e-value then, at most 200 points"
    )


@router.put(
    "/default",
    response_model=ExperimentReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503),
    openapi_extra=needs("admin"),
)
async def start_experiment(
    body: ExperimentRequest, serving: ServingDep, models: ModelsDep
) -> JsonResponse:
    """Interleave a version with the active one in every worker; this ends an experiment with another."""
    collection = serving.collection
    await models.start_experiment(body.candidate, body.share, body.max_days, collection)
    return JsonResponse(_described(models.serving, collection))


@router.get(
    "/default",
    response_model=ExperimentStatusReply,
    responses=problems(404, 503),
    openapi_extra=needs("admin"),
)
async def read_experiment(serving: ServingDep, reports: ReportsDep) -> JsonResponse:
    """Describe the experiment, its votes, at most 30 seconds old, and what `fullrank loop` decided so far."""
    found = _described(serving.serving, serving.collection)
    assert serving.experiment is not None
    votes = await reports.votes(found["active"], serving.experiment)
    decisions = await reports.decisions(serving.collection)
    return JsonResponse(found | votes | {"decisions": decisions})


@router.get(
    "/default/decisions",
    response_model=DecisionsReply,
    responses=problems(503),
    openapi_extra=needs("admin"),
)
async def list_decisions(serving: ServingDep, reports: ReportsDep) -> JsonResponse:
    """List what `fullrank loop` decided, the newest first; also while no experiment runs."""
    return JsonResponse({"decisions": await reports.decisions(serving.collection)})


@router.delete(
    "/default",
    response_model=ExperimentReply,
    responses=problems(404, 409, 503),
    openapi_extra=needs("admin"),
)
async def stop_experiment(serving: ServingDep, models: ModelsDep) -> JsonResponse:
    """End the experiment and describe it; the active version stays."""
    ended = _described(serving.serving, serving.collection)
    await models.stop_experiment(serving.collection)
    return JsonResponse(ended)


def _described(serving: Serving, collection: str | None) -> dict[str, Any]:
    own = serving.active_of(collection)
    found = own.experiment
    if found is None or own.version is None:
        raise ExperimentNotFound
    return {
        "active": own.version,
        "candidate": found.candidate,
        "share": found.share,
        "started": datetime.fromtimestamp(found.started, UTC).isoformat(timespec="seconds"),
        "max_days": found.max_days,
        "generation": serving.generation,
    }


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Reports]:
    yield Reports(state.shared.settings.bundles, state.events.folder)


EXPERIMENTS = Capability("experiments", router.routes, _opened)
