"""Requests and replies about models and experiments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fullrank.experiment.decisions import MAX_DAYS, SHARE
from fullrank_service.http.strict import Reply, Request

VersionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]


class ActivateRequest(Request):
    version: VersionName


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
