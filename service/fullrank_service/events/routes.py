"""Take events: /v1/events, the same for ubi.js, /v1/insights for search-insights.js; erase people; analytics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import QueryParams, State
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from fullrank.events.records import Event, EventRefused, parse_event, parse_insight, parse_reported
from fullrank.storage.strict_json import JsonError
from fullrank_service.base.errors import Invalid
from fullrank_service.events.recorder import Recorder
from fullrank_service.events.shown import is_bot
from fullrank_service.http.deps import Capability, ServingDep, part
from fullrank_service.http.guard import GuardedRoute, Handler, needs, spend, validated
from fullrank_service.http.problems import JsonResponse
from fullrank_service.http.problems import documented_problems as problems
from fullrank_service.http.strict import QueryString, Reply, parse, parse_items, require_json

MAX_EVENTS = 1_000

_EVENT: dict[str, Any] = {
    "description": "an event of User Behavior Insights 1.3: action_name and timestamp, and to train on it query_id "
    "and event_attributes.object.object_id"
}
_QUERY: dict[str, Any] = {
    "description": "a query of User Behavior Insights 1.3: query_id, user_query, timestamp and "
    "query_response_hit_ids"
}
# Each item has a verdict of its own, so any JSON value is taken.
Events = Annotated[
    list[Annotated[Any, Field(json_schema_extra=_EVENT)]], Field(max_length=MAX_EVENTS)
]
Queries = Annotated[
    list[Annotated[Any, Field(json_schema_extra=_QUERY)]], Field(max_length=MAX_EVENTS)
]


class EventsRequest(BaseModel):
    """Events; fields beside them are dropped and counted."""

    model_config = ConfigDict(strict=True, extra="allow")

    events: Events

    @property
    def dropped(self) -> int:
        """The number of fields beside the events."""
        return len(self.model_extra or ())


class InsightsRequest(EventsRequest):
    """Algolia's shape."""


class Verdict(Reply):
    result: Literal["kept", "refused"]
    field: str | None = Field(description="the field at fault; null if it was kept")
    reason: str | None


class EventsReply(Reply):
    kept: int
    refused: int
    dropped_fields: int = Field(
        description="unknown fields of the request and of kept events, which are not stored"
    )
    verdicts: list[Verdict] = Field(description="in the order of the events")


class InsightsReply(Reply):
    status: Literal[200]
    message: Literal["OK"]


class ErasedReply(Reply):
    erased: Literal[True]


class AnalyticsQuery(QueryString):
    """The query string of analytics."""

    days: Annotated[int, Field(ge=1, le=90)] = 7


class QueryCount(Reply):
    query: str = Field(description="in lower case")
    searches: int
    people: int
    clicked: int = Field(description="searches with a click")


class AnalyticsReply(Reply):
    days: int
    searches: int = Field(description="first pages of searches, without those of programs")
    clicked: int = Field(description="searches with a click on a document of their list")
    ctr: float | None = Field(description="clicked / searches; null without searches")
    clicked_place: float | None = Field(
        description="mean place, from 1, of the uppermost clicked document"
    )
    without_hits: int = Field(description="searches that found no document")
    top: list[QueryCount] = Field(description="the most frequent queries of 3 or more people")
    top_without_hits: list[QueryCount]
    top_without_clicks: list[QueryCount]
    complete: bool = Field(description="false if the oldest days could not be read yet")
    since: float = Field(description="from when everything counts, in seconds since 1970")


KEY = "X-Algolia-API-Key"


class InsightsRoute(GuardedRoute):
    """A route that answers callers with a key for events alone. The endpoint reads the body itself."""

    def get_route_handler(self) -> Handler:
        answer = self.answerer()
        scope_needed = self._scope_needed

        async def guarded(request: Request) -> Response:
            shared = request.app.state.shared
            shared.access.authorize_public(request.scope, scope_needed, _token(request.scope))
            spend(request.scope)
            require_json(request.scope["headers"], or_text=True)
            return await answer(request)

        return guarded


def _token(scope: Scope) -> str | None:
    """Read the key. navigator.sendBeacon cannot set headers, so the query string may have it."""
    name = KEY.lower().encode()
    for header, value in scope["headers"]:
        if header == name:
            return bytes(value).decode("latin-1")
    return QueryParams(scope["query_string"]).get(KEY)


NATIVE, UBI_EVENTS, UBI_QUERIES = "/v1/events", "/v1/ubi/ubi_events", "/v1/ubi/ubi_queries"
INSIGHTS = "/v1/insights/1/events"
MAX_BODY_BYTES = 2 << 20
PATHS = (NATIVE, UBI_EVENTS, UBI_QUERIES, INSIGHTS)


class EventsRequestBody(Request):
    """A request whose events are refused one by one."""

    async def json(self) -> Any:
        return parse_items(await self.body(), "events")


class EventsRoute(GuardedRoute):
    request_class = EventsRequestBody


RecorderDep = Annotated[Recorder, part("events")]
router = APIRouter(tags=["events"], route_class=EventsRoute)
insights_router = APIRouter(tags=["events"], route_class=InsightsRoute)
_PROBLEMS = problems(400, 413, 415, 422, 503, 507)
Record = TypeVar("Record")


@router.post(NATIVE, response_model=EventsReply, responses=_PROBLEMS, openapi_extra=needs("events"))
async def report_events(
    body: Annotated[EventsRequest | Events, Body()], request: Request, recorder: RecorderDep
) -> JsonResponse:
    """Store events that refer to answers: clicks, purchases and others. Each has a verdict; the good ones are kept.

    When this answers, the kept ones survive a power cut.
    """
    if isinstance(body, EventsRequest):
        return await _store_events(body.events, request, recorder, body.dropped)
    return await _store_events(body, request, recorder)


@router.post(
    UBI_EVENTS, response_model=EventsReply, responses=_PROBLEMS, openapi_extra=needs("events")
)
async def report_ubi_events(
    body: Annotated[Events, Body()], request: Request, recorder: RecorderDep
) -> JsonResponse:
    """Store events of ubi.js, as /v1/events does."""
    return await _store_events(body, request, recorder)


@router.post(
    UBI_QUERIES, response_model=EventsReply, responses=_PROBLEMS, openapi_extra=needs("events")
)
async def report_ubi_queries(
    body: Annotated[Queries, Body()],
    request: Request,
    serving: ServingDep,
    recorder: RecorderDep,
) -> JsonResponse:
    """Store lists that other engines served, as ubi.js reports them. For answers of this service they are ignored."""
    reading = _Reading(recorder)
    lists = reading.read(body, parse_reported)
    if serving.collection is not None or serving.active is not None:
        model, generation = serving.resolve(None).version, serving.generation
        lists = [replace(one, model=model, generation=generation) for one in lists]
    await recorder.store_lists(lists, is_bot=is_bot(request.scope["headers"]))
    return reading.reply()


@insights_router.post(
    INSIGHTS,
    response_model=InsightsReply,
    responses=_PROBLEMS,
    openapi_extra={
        **needs("events"),
        "requestBody": {
            "required": True,
            # As text/plain too, which generators of clients cannot read.
            "content": {"application/json": {"schema": InsightsRequest.model_json_schema()}},
        },
    },
)
async def report_insights(request: Request, recorder: RecorderDep) -> JsonResponse:
    """Store events of search-insights.js: all of them or, on an error, none. The body may be text/plain too.

    The key is sent as X-Algolia-API-Key, in the header or the query string, and may have no scope but `events`.
    """
    body = validated(InsightsRequest, parse(await request.body()))
    now = time.time()
    events: list[Event] = []
    refusals, dropped = [], body.dropped
    for number, given in enumerate(body.events):
        try:
            found, unused = parse_insight(given, now)
            events += found
            dropped += unused
        except EventRefused as error:
            refusals.append({"field": f"events.{number}.{error.field}", "reason": error.reason})
    if refusals:
        recorder.metrics.events["refused"].inc(len(body.events))
        raise Invalid(errors=refusals[:20])
    await recorder.store_events(events, is_bot=is_bot(request.scope["headers"]))
    recorder.metrics.event_fields_dropped.inc(dropped)
    return JsonResponse({"status": 200, "message": "OK"})


@router.delete(
    "/v1/events/users/{id:path}",
    response_model=ErasedReply,
    responses=problems(422, 503),
    openapi_extra=needs("admin"),
)
async def erase_user(id: str, recorder: RecorderDep) -> JsonResponse:
    """Erase all that a user, client or session did: from reads at once, from the disk within a day."""
    await recorder.erase(id)
    return JsonResponse({"erased": True})


@router.get(
    "/v1/analytics",
    response_model=AnalyticsReply,
    responses=problems(422, 503),
    openapi_extra=needs("admin"),
)
async def show_analytics(
    asked: Annotated[AnalyticsQuery, Query()], serving: ServingDep, recorder: RecorderDep
) -> JsonResponse:
    """Count searches and clicks of the last days, and the most frequent queries; at most a minute old."""
    if serving.collection is not None:
        serving.resolve(None)
    return JsonResponse(await recorder.analytics(asked.days, serving.collection))


async def _store_events(
    given: Sequence[Any], request: Request, recorder: Recorder, dropped: int = 0
) -> JsonResponse:
    reading = _Reading(recorder, dropped)
    events = reading.read(given, _parse_event)
    await recorder.store_events(events, is_bot=is_bot(request.scope["headers"]))
    return reading.reply()


def _parse_event(given: object, now: float) -> tuple[Event, int]:
    event = parse_event(given, now)
    return event, event.dropped


class _Reading:
    def __init__(self, recorder: Recorder, dropped: int = 0) -> None:
        self._metrics = recorder.metrics
        self._verdicts: list[dict[str, str | None]] = []
        self._kept, self._dropped = 0, dropped

    def read(
        self, given: Sequence[Any], parse: Callable[[object, float], tuple[Record, int]]
    ) -> list[Record]:
        found, now = [], time.time()
        for item in given:
            try:
                if isinstance(item, JsonError):
                    raise EventRefused(item.field or "event", item.reason)
                record, dropped = parse(item, now)
            except EventRefused as error:
                self._verdicts.append(
                    {"result": "refused", "field": error.field, "reason": error.reason}
                )
                continue
            found.append(record)
            self._dropped += dropped
            self._verdicts.append({"result": "kept", "field": None, "reason": None})
        self._kept = len(found)
        return found

    def reply(self) -> JsonResponse:
        refused = len(self._verdicts) - self._kept
        self._metrics.events["refused"].inc(refused)
        self._metrics.event_fields_dropped.inc(self._dropped)
        return JsonResponse(
            {
                "kept": self._kept,
                "refused": refused,
                "dropped_fields": self._dropped,
                "verdicts": self._verdicts,
            }
        )


@asynccontextmanager
async def _opened(state: State) -> AsyncIterator[Recorder]:
    recorder = Recorder.from_settings(state.shared.settings, state.shared.metrics)
    recorder.start()
    try:
        yield recorder
    finally:
        await recorder.close()


_ROUTES = [*router.routes, *insights_router.routes]
# Pages of other origins may report events; only operators erase people and read analytics.
_REPORTING = [route for route in _ROUTES if isinstance(route, Route) and route.path in PATHS]
EVENTS = Capability("events", _ROUTES, _opened, _REPORTING)
