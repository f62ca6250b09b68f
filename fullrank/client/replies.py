"""The types of requests and replies, as docs/api.md describes them. Replies may have more keys in later releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

Fields = dict[str, Any]
"""The stored fields of a document."""


class _Options(TypedDict, total=False):
    """What searches, similar documents and matching calls have."""

    fields: Sequence[str] | None
    model: str
    min_seq: int
    record: bool
    client_id: str | None
    session_id: str | None
    user_id: str | None
    application: str | None


class SimilarOptions(_Options, total=False):
    """The optional parameters of similar documents."""

    limit: int
    offset: int
    filter: Mapping[str, Any] | None
    mode: Literal["auto", "exact", "fast"]


class SearchOptions(SimilarOptions, total=False):
    """The optional fields of a search."""

    cursor: str | None
    facets: Sequence[str]
    facet_limit: int
    facet_mode: Literal["filtered", "disjunctive"]
    facet_ranges: Mapping[str, Sequence[Mapping[str, Any]]]
    explain: bool
    highlight: Mapping[str, Any] | None
    prefix: Literal["last", "none"]
    match: Literal["all", "any", "auto"] | None
    min_score: float | None
    boost: Sequence[Mapping[str, Any]]
    sort: Sequence[Mapping[str, str]]
    group_by: Mapping[str, Any] | None
    diversity: float
    rules: bool
    partial: bool


class MatchOptions(_Options, total=False):
    """The optional fields of a matching call."""

    blocked_ids: Sequence[str]
    targeting: Mapping[str, Any] | None
    explain: bool
    bcat: Sequence[str] | None
    acat: Sequence[str] | None
    cattax: int
    badv: Sequence[str]
    wseat: Sequence[str] | None
    bseat: Sequence[str] | None
    battr: Sequence[int]
    user: Mapping[str, str] | None
    per_advertiser: int
    rank: Literal["relevance", "value"]
    cur: str | None


RuleFields = TypedDict(
    "RuleFields",
    {
        "query": Mapping[str, str] | None,
        "filter": Mapping[str, Any] | None,
        "pin": Sequence[Mapping[str, Any]],
        "hide": Sequence[str],
        "synonyms": Sequence[Sequence[str]],
        "from": str | None,
        "until": str | None,
    },
    total=False,
)
"""The fields of a rule, of which at least one of filter, pin, hide and synonyms is given."""


class Rule(RuleFields):
    """A stored rule, with all of its fields."""

    id: str
    collection: NotRequired[str]


class Hit(TypedDict):
    """One document of an answer."""

    id: str
    score: float
    fields: Fields
    explanation: dict[str, Any] | None
    rule: str | None
    highlight: dict[str, Any] | None


class PlacedHit(Hit):
    """One document of a placement."""

    value: NotRequired[dict[str, float] | None]


class _Ranking(TypedDict):
    """What every ranking has."""

    query_id: str
    model: str
    generation: int
    took_ms: float
    certified: bool
    reordered: int
    covered: float
    candidate: str | None


class SearchReply(_Ranking):
    """An answer of search and similar."""

    total: int | None
    total_at_least: int | None
    hits: list[Hit]
    facets: dict[str, Any]
    cursor: str | None
    facet_ranges: dict[str, list[dict[str, Any]]]
    rules: list[str]
    did_you_mean: str | None


class Placed(TypedDict):
    """A filled placement, and with explain the ads that it leaves out by reason."""

    id: str
    hits: list[PlacedHit]
    left_out: NotRequired[dict[str, int] | None]


class MatchReply(_Ranking):
    """An answer of match, and with explain the ads that the page leaves out by reason."""

    rank: Literal["relevance", "value"]
    placements: list[Placed]
    left_out: NotRequired[dict[str, int] | None]


class Completion(TypedDict):
    """What somebody may be typing."""

    text: str
    kind: Literal["query", "title", "word"]


class TogetherHit(TypedDict):
    """A document that the same people clicked."""

    id: str
    lift: float
    people: int
    fields: Fields


class Written(TypedDict):
    """A write; pass ``seq`` as ``min_seq`` to read what was written."""

    id: str
    collection: str
    seq: int
