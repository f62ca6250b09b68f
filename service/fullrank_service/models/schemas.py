"""Define the requests and replies of models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fullrank_service.http.strict import Reply, Request

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
