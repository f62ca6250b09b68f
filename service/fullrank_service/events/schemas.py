"""Define the requests and replies of events, analytics, completions and documents clicked together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fullrank.together import MAX_KEPT
from fullrank_service.http.schemas import MAX_FIELDS, MinSeq, ModelName
from fullrank_service.http.strict import FieldName, QueryString, Reply, longest

MAX_EVENTS = 1_000

_EVENT: dict[str, Any] = {
    "description": "an event of User Behavior Insights 1.3: action_name and timestamp, and to train on it query_id "
    "and event_attributes.object.object_id; see docs/api.md"
}
_QUERY: dict[str, Any] = {
    "description": "a query of User Behavior Insights 1.3: query_id, user_query, timestamp and "
    "query_response_hit_ids; see docs/api.md"
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


MAX_COMPLETIONS = 50
MAX_PREFIX_CHARS = 256


class CompleteQuery(QueryString):
    """The query string of /complete."""

    prefix: Annotated[
        str,
        Field(min_length=1, max_length=MAX_PREFIX_CHARS, examples=["cop"]),
        longest(MAX_PREFIX_CHARS),
    ]
    limit: Annotated[int, Field(ge=1, le=MAX_COMPLETIONS)] = 8
    model: ModelName = "default"


class TogetherQuery(QueryString):
    """The query string of /together."""

    limit: Annotated[int, Field(ge=1, le=MAX_KEPT)] = 10
    fields: list[FieldName] | None = Field(default=None, max_length=MAX_FIELDS)
    model: ModelName = "default"
    min_seq: MinSeq = 0


class CompletionReply(Reply):
    text: str
    kind: Literal["query", "title", "word"] = Field(
        description="a query of several people, the title of a document, or a word of the model"
    )


class CompleteReply(Reply):
    model: str
    generation: int
    completions: list[CompletionReply] = Field(description="the best first")


class TogetherHit(Reply):
    id: str
    lift: float = Field(description="above 1: clicked together more often than by chance")
    people: int = Field(description="how many clicked both documents in one session")
    fields: dict[str, Any]


class TogetherReply(Reply):
    model: str
    generation: int
    hits: list[TogetherHit] = Field(description="the largest lift first")
