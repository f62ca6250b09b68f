"""Rules of operators: /v1/rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field
from starlette.datastructures import State

from fullrank.errors import FilterError
from fullrank.filters.query import constant, matching, parse_filter
from fullrank.live import View
from fullrank.rules import rule as rules
from fullrank.rules.rule import Rule, RuleError, read_rule
from fullrank_service.base.errors import Invalid, RuleNotFound
from fullrank_service.documents.live import DocumentsDep
from fullrank_service.documents.sqlitelog import log_file, place_of
from fullrank_service.http.deps import Capability, ServingDep, part
from fullrank_service.http.guard import GuardedRoute, needs
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.schemas import FilterJson, Id, WriteQuery
from fullrank_service.http.strict import Reply, Request, Text
from fullrank_service.rules.rules import Rules

RuleId = Annotated[
    str, Path(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$", examples=["summer-sale"])
]
_RuleText = Annotated[Text, Field(min_length=1, max_length=rules.MAX_TEXT_CHARS)]
_Time = Annotated[
    Text,
    Field(
        max_length=40,
        description="ISO 8601 with an offset from UTC",
        examples=["2026-11-27T00:00:00+01:00"],
    ),
]
MAX_PAGE = 1_000


class QueryCondition(Request):
    """The queries that a rule is for: exactly one of the three, compared without letter case and accents."""

    is_: _RuleText | None = Field(default=None, alias="is", description="the whole query")
    contains: _RuleText | None = Field(default=None, description="words of the query in a row")
    prefix: _RuleText | None = Field(default=None, description="what the query begins with")


class RulePin(Request):
    id: Id
    position: Annotated[int, Field(ge=1, le=rules.MAX_POSITION)] = Field(
        description="1 is the first"
    )


class RuleBody(Request):
    """A rule; at least one of filter, pin, hide and synonyms."""

    model_config = ConfigDict(serialize_by_alias=True)

    query: QueryCondition | None = Field(default=None, description="absent: every query")
    filter: FilterJson | None = Field(default=None, description="rank only documents that match")
    pin: list[RulePin] = Field(
        default=[], max_length=rules.MAX_PINS, description="documents at fixed places"
    )
    hide: list[Id] = Field(
        default=[], max_length=rules.MAX_HIDDEN, description="documents not to return"
    )
    synonyms: list[Annotated[list[_RuleText], Field(min_length=2, max_length=rules.MAX_GROUP)]] = (
        Field(
            default=[],
            max_length=rules.MAX_GROUPS,
            description="words or phrases that stand for each other",
            examples=[[["tv", "television"]]],
        )
    )
    from_: _Time | None = Field(default=None, alias="from", description="when the rule begins")
    until: _Time | None = Field(default=None, description="when it ends")


class RulesQuery(WriteQuery):
    """The query string of a list of rules."""

    after: Annotated[str, Field(max_length=100)] = Field(
        default="", description="return rules with greater ids"
    )
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100


class RuleReply(RuleBody):
    id: str
    collection: str = Field(description="bundle name; the rule holds for all its versions")


class RuleDeleted(Reply):
    id: str
    collection: str


class StoredRule(RuleBody):
    id: str


class RulesReply(Reply):
    collection: str
    rules: list[StoredRule] = Field(description="by id")


RulesDep = Annotated[Rules, part("rules")]
router = APIRouter(prefix="/v1/rules", tags=["rules"], route_class=GuardedRoute)


@router.get(
    "",
    response_model=RulesReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("ingest"),
)
async def list_rules(
    asked: Annotated[RulesQuery, Query()], serving: ServingDep, rules: RulesDep
) -> JsonResponse:
    """List the rules of a collection by id, page by page."""
    name = serving.resolve(asked.model).name
    found = await rules.page(name, asked.after, asked.limit)
    return JsonResponse({"collection": name, "rules": [_complete(rule) for rule in found]})


@router.put(
    "/{id}",
    response_model=RuleReply,
    responses=problems(400, 404, 409, 413, 415, 422, 503, 507),
    openapi_extra=needs("ingest"),
)
async def put_rule(
    id: RuleId,
    body: RuleBody,
    asked: Annotated[WriteQuery, Query()],
    serving: ServingDep,
    rules: RulesDep,
    documents: DocumentsDep,
) -> JsonResponse:
    """Add or replace a rule. The answer comes after it is synced to disk; every worker applies it within a second."""
    bundle = serving.resolve(asked.model)
    rule = body.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    try:
        read = read_rule(id, rule, time.time())
    except RuleError as error:
        path = f"body.{error.path}" if error.path else "body"
        raise Invalid(errors=[{"field": path, "reason": error.reason}]) from None
    if read.filter is not None:
        views = [followed.view for followed in documents.views(bundle.name)]
        await asyncio.to_thread(_check_filter, read, read.filter, views)
    await rules.put(bundle.name, id, rule)
    return JsonResponse({"id": id, "collection": bundle.name, **_complete(rule)})


@router.get(
    "/{id}",
    response_model=RuleReply,
    responses=problems(404, 422, 503),
    openapi_extra=needs("ingest"),
)
async def get_rule(
    id: RuleId,
    asked: Annotated[WriteQuery, Query()],
    serving: ServingDep,
    rules: RulesDep,
) -> JsonResponse:
    """Read a rule as it was stored."""
    name = serving.resolve(asked.model).name
    rule = await rules.get(name, id)
    if rule is None:
        raise RuleNotFound(f"{name} has no rule {id!r}.")
    return JsonResponse({"id": id, "collection": name, **_complete(rule)})


@router.delete(
    "/{id}",
    response_model=RuleDeleted,
    responses=problems(404, 422, 503, 507),
    openapi_extra=needs("ingest"),
)
async def delete_rule(
    id: RuleId,
    asked: Annotated[WriteQuery, Query()],
    serving: ServingDep,
    rules: RulesDep,
) -> JsonResponse:
    """Delete a rule. Deleting a rule that does not exist succeeds."""
    name = serving.resolve(asked.model).name
    await rules.delete(name, id)
    return JsonResponse({"id": id, "collection": name})


def _complete(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {**RuleBody.model_construct().model_dump(by_alias=True), **rule}


def _check_filter(rule: Rule, condition: Mapping[str, Any], views: list[View]) -> None:
    parsed = parse_filter(condition, "body.filter")
    decided = constant(parsed)
    if decided is False:
        raise FilterError("body.filter", "matches no document, so searches would find nothing")
    if decided and not (rule.pins or rule.hide or rule.synonyms):
        raise FilterError("body.filter", "matches every document, so the rule has no effect")
    for view in views:
        for columns in view.columns:
            matching(parsed, columns)


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Rules]:
    settings = state.shared.settings
    rules = Rules(
        place_of(settings, settings.bundles),
        log_file(settings).with_name("rules.sqlite"),
        poll_s=settings.documents_poll_ms / 1000,
        failed=state.shared.metrics.background_failed,
    )
    rules.start()
    try:
        yield rules
    finally:
        await rules.close()


RULES = Capability("rules", router.routes, _opened)
