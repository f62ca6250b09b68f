"""The types of requests and replies, as docs/api.md describes them. Replies may have more keys in later releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Fields = dict[str, Any]
"""The stored fields of a document."""


class SearchOptions(TypedDict, total=False):
    """The optional fields of a search."""

    limit: int
    offset: int
    cursor: str | None
    fields: Sequence[str] | None
    filter: Mapping[str, Any] | None
    facets: Sequence[str]
    facet_limit: int
    facet_ranges: Mapping[str, Sequence[Mapping[str, Any]]]
    explain: bool
    highlight: Mapping[str, Any] | None
    prefix: Literal["last", "none"]
    min_score: float | None
    boost: Sequence[Mapping[str, Any]]
    sort: Sequence[Mapping[str, str]]
    group_by: Mapping[str, Any] | None
    diversity: float
    rules: bool
    partial: bool
    mode: Literal["auto", "exact", "fast"]
    model: str
    min_seq: int
    record: bool
    client_id: str | None
    session_id: str | None
    user_id: str | None
    application: str | None


class MatchOptions(TypedDict, total=False):
    """The optional fields of a matching call."""

    blocked_ids: Sequence[str]
    targeting: Mapping[str, Any] | None
    fields: Sequence[str] | None
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
    model: str
    min_seq: int
    record: bool
    client_id: str | None
    session_id: str | None
    user_id: str | None
    application: str | None


class Hit(TypedDict):
    """One document of an answer."""

    id: str
    score: float
    fields: Fields
    explanation: dict[str, Any] | None


class SearchReply(TypedDict):
    """An answer of search and similar."""

    query_id: str
    model: str
    generation: int
    took_ms: float
    certified: bool
    covered: float
    total: int | None
    total_at_least: int | None
    hits: list[Hit]
    facets: dict[str, Any]
    did_you_mean: str | None


class Placed(TypedDict):
    """A filled placement."""

    id: str
    hits: list[Hit]


class MatchReply(TypedDict):
    """An answer of match."""

    query_id: str
    model: str
    generation: int
    took_ms: float
    certified: bool
    covered: float
    rank: Literal["relevance", "value"]
    placements: list[Placed]


class Written(TypedDict):
    """A write; pass ``seq`` as ``min_seq`` to read what was written."""

    id: str
    collection: str
    seq: int
