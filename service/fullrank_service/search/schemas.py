"""Define the requests and replies of searches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from fullrank.errors import FilterError
from fullrank.filters.columns.table import Point
from fullrank.filters.facets import Range
from fullrank.retrieval import Match
from fullrank.search.highlight import Highlight, Tags
from fullrank.search.ordering import MAX_BOOSTS, MAX_KEYS, Boost, Decay, GroupBy, Ordering, SortKey
from fullrank_service.http.schemas import MAX_FIELDS, FilterJson, MinSeq, ModelName
from fullrank_service.http.strict import (
    FieldName,
    QueryString,
    Request,
    Text,
    TextOrNumber,
    either,
    empty,
    refusal,
)

MAX_HIGHLIGHTED = 8
MAX_SNIPPET_WORDS = 200
MAX_WEIGHT = 1e6
Tag = Annotated[Text, Field(max_length=100)]


class HighlightRequest(Request):
    fields: list[FieldName] = Field(
        min_length=1, max_length=MAX_HIGHLIGHTED, description="fields that hold text"
    )
    words: Annotated[int, Field(ge=1, le=MAX_SNIPPET_WORDS)] = Field(
        default=30, description="words of a snippet"
    )
    pre: Tag | None = Field(
        default=None, description="with `post`: put before each span; all else is escaped for HTML"
    )
    post: Tag | None = Field(default=None, description="with `pre`: put after each span")

    @model_validator(mode="after")
    def _has_both_tags(self) -> HighlightRequest:
        if (self.pre is None) != (self.post is None):
            missing = "pre" if self.pre is None else "post"
            raise refusal("is missing: give both pre and post, or none", missing)
        return self

    @property
    def asked(self) -> Highlight:
        tags = None if self.pre is None or self.post is None else Tags(self.pre, self.post)
        return Highlight(self.fields, self.words, tags)


class PointRequest(Request):
    lat: Annotated[float, Field(ge=-90, le=90, description="degrees")]
    lon: Annotated[float, Field(ge=-180, le=180, description="degrees")]

    @property
    def asked(self) -> Point:
        return Point(self.lat, self.lon)


class DecayRequest(Request):
    origin: Annotated[
        Text | float | PointRequest, either("must be text, a number, or a point with lat and lon")
    ] = Field(
        description='a number; of a field of times "now", or a time with an offset from UTC; of a field of '
        "places a point",
        examples=["now", "2026-11-23T12:00:00+01:00", 100, {"lat": 52.52, "lon": 13.405}],
    )
    scale: TextOrNumber = Field(
        description="a number above 0, of places in km; of a field of times a duration: 90s, 15m, 12h, 30d or 2w",
        examples=["30d", 20],
    )
    factor: float = Field(
        default=0.5, gt=0, lt=1, description="what is left of the boost one scale from the origin"
    )


class BoostRequest(Request):
    """weight · factor^(distance / scale) with `decay`, weight · ln(1 + value) with `log`."""

    field: FieldName = Field(description="numbers; for decay also times and places")
    weight: float = Field(default=1.0, ge=-MAX_WEIGHT, le=MAX_WEIGHT)
    decay: DecayRequest | None = None
    log: bool = False

    @model_validator(mode="after")
    def _has_one_form(self) -> BoostRequest:
        if self.log and self.decay is not None:
            raise refusal("cannot be given with decay: give one of them", "log")
        if not self.log and self.decay is None:
            raise refusal("is missing: give decay, or log", "decay")
        return self

    @property
    def asked(self) -> Boost:
        decay = self.decay
        if decay is None:
            return Boost(self.field, self.weight)
        origin = decay.origin
        point = origin.asked if isinstance(origin, PointRequest) else origin
        return Boost(self.field, self.weight, Decay(point, decay.scale, decay.factor))


class SortRequest(Request):
    field: FieldName = Field(description="numbers, true and false, times, or places with near")
    order: Literal["asc", "desc"] = "asc"
    near: PointRequest | None = Field(
        default=None, description="order by the distance of places from this point"
    )

    @property
    def asked(self) -> SortKey:
        near = None if self.near is None else self.near.asked
        return SortKey(self.field, self.order == "desc", near)


class GroupRequest(Request):
    field: FieldName
    limit: Annotated[int, Field(ge=1, le=100)] = 1


class OrderRequest(BaseModel):
    """The order of hits, where it is not that of the score alone."""

    sort: Annotated[list[SortRequest], Field(max_length=MAX_KEYS)] = empty(
        list, description="order all hits by fields, ties by id"
    )
    boost: Annotated[list[BoostRequest], Field(max_length=MAX_BOOSTS)] = empty(
        list, description="add to the scores"
    )
    group_by: GroupRequest | None = Field(
        default=None, description="return at most `limit` hits with the same value"
    )
    diversity: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="prefer hits unlike those before them, among the first 100",
    )

    def ordering(self, now: float) -> Ordering | None:
        """Return the order; None for that of the score. Raises FilterError for fields that contradict each other."""
        if self.sort and (self.boost or self.diversity):
            other = "boost" if self.boost else "diversity"
            raise FilterError(other, "changes scores, which sort replaces; give one")
        if not (self.sort or self.boost or self.group_by or self.diversity):
            return None
        group = self.group_by
        return Ordering(
            [key.asked for key in self.sort],
            [boost.asked for boost in self.boost],
            None if group is None else GroupBy(group.field, group.limit),
            self.diversity,
            now,
        )


Bound = Annotated[
    TextOrNumber | None,
    Field(description="a number; of a field of times ISO 8601 with an offset from UTC"),
]


class RangeRequest(Request):
    start: Bound = Field(default=None, alias="from")
    stop: Bound = Field(default=None, alias="to", description="not included")


MAX_FACETS = 16
MAX_FACET_VALUES = 1_000
MAX_RANGES = 100
MAX_FILTER_CHARS = 8192
MAX_ASKER_CHARS = 100
MAX_CURSOR_CHARS = 4_000
Mode = Annotated[
    Literal["auto", "exact", "fast"],
    Field(
        description="fast may miss a document that exact finds, then certified is false; "
        "auto is exact while exact searches stay within FULLRANK_EXACT_BUDGET_MS"
    ),
]
Count = Annotated[int, Field(ge=1)]
Matched = Annotated[
    Match | None,
    Field(
        description="which words of the query a hit must have. all: every word that some document has; "
        "any: none; auto: all, or fewer where no document has all; absent: auto for a model that had no "
        "judgements to learn from, else any"
    ),
]


AskerText = Annotated[Text, Field(max_length=MAX_ASKER_CHARS)]


class Asked(BaseModel):
    """Who asks, for the log of events, in which ids of people are pseudonyms."""

    client_id: AskerText | None = None
    session_id: AskerText | None = None
    user_id: AskerText | None = None
    application: AskerText | None = None
    record: bool = Field(default=True, description="false: the answer is not logged")


class ListRequest(Asked):
    """What every request for a list of hits has."""

    limit: Count = 10
    offset: int = Field(default=0, ge=0)
    fields: list[FieldName] | None = Field(
        default=None, max_length=MAX_FIELDS, description="stored fields to return; absent: all"
    )
    mode: Mode = "auto"
    model: ModelName = "default"
    min_seq: MinSeq = 0


class SearchOptions(ListRequest):
    """What searches by POST and by GET have."""

    limit: int = Field(
        default=10, ge=0, description="0: totals and facets alone, and nothing is logged"
    )
    facets: list[FieldName] = empty(
        list,
        max_length=MAX_FACETS,
        description="fields whose values are counted over all documents that are found",
    )
    facet_limit: Annotated[int, Field(ge=1, le=MAX_FACET_VALUES)] = Field(
        default=10, description="most values of a facet"
    )
    facet_mode: Literal["filtered", "disjunctive"] = Field(
        default="filtered",
        description="disjunctive: each field is counted as if the filter had no condition on it",
    )
    typing: bool = Field(
        default=False,
        description="true: somebody is still typing the query; it counts as a search from the first click on, or "
        "once an impression without a document names the query_id",
    )
    explain: bool = Field(default=False, description="split each score into its parts and words")
    min_score: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="the score that a hit must reach; absent: the evidence that the model asks for",
    )
    match: Matched = None
    prefix: Literal["last", "none"] = Field(
        default="last",
        description="last: the last word also matches longer words that begin with it, with less weight",
    )
    rules: bool = Field(default=True, description="false: no rule applies; see /v1/rules")
    partial: bool = Field(
        default=False,
        description="true: where some shards of a fleet do not answer, answer without their documents",
    )


class SearchRequest(Request, SearchOptions, OrderRequest):
    query: Text = Field(
        description="empty: all documents are found, and nothing is logged",
        examples=["copy a file to another host"],
    )
    filter: FilterJson | None = Field(default=None, description="rank only documents that match")
    facet_ranges: dict[FieldName, Annotated[list[RangeRequest], Field(max_length=MAX_RANGES)]] = (
        empty(
            dict,
            max_length=MAX_FACETS,
            description="ranges by field; counts the documents with a value in each",
        )
    )
    facet_under: dict[FieldName, Text] = empty(
        dict,
        max_length=MAX_FACETS,
        description='of a facet of paths, as "Cameras > Digital", count one level below this path; "": the first level',
        examples=[{"category": "Cameras"}],
    )
    highlight: HighlightRequest | None = Field(
        default=None, description="return the part of each field that answers best"
    )
    cursor: Annotated[Text, Field(min_length=1, max_length=MAX_CURSOR_CHARS)] | None = Field(
        default=None,
        description='"*" for the first page, then the cursor of the answer before: each document comes '
        "once, unless it is written meanwhile",
    )

    @model_validator(mode="after")
    def _has_facets(self) -> SearchRequest:
        for name in self.facet_under.keys() - self.facets:
            raise refusal("is not among facets", f"facet_under.{name}")
        return self

    @property
    def is_listing(self) -> bool:
        """Whether the query is empty, so that all documents are found."""
        return not self.query.strip()

    @property
    def ranges(self) -> dict[str, list[Range]]:
        """The ranges whose documents are counted, by field."""
        return {
            name: [Range(one.start, one.stop) for one in ranges]
            for name, ranges in self.facet_ranges.items()
        }


FilterText = Annotated[str, Field(max_length=MAX_FILTER_CHARS, description="a filter as JSON")]


class SearchQuery(QueryString, SearchOptions):
    """The query string of a search by GET."""

    q: Text = Field(description="the query", examples=["copy a file"])
    filter: FilterText | None = None
    highlight: list[FieldName] = empty(
        list,
        max_length=MAX_HIGHLIGHTED,
        description="return the part of each field that answers best",
    )


class BatchRequest(Request):
    searches: list[SearchRequest] = Field(min_length=1)


class SimilarQuery(QueryString, ListRequest):
    """The query string of /similar."""

    filter: FilterText | None = None
