"""The types of requests and replies, as docs/reference/http.md has them, for the client and the OpenAPI document.

Replies may have more keys in later releases.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

if sys.version_info >= (3, 12):
    from typing import NotRequired, TypedDict
else:  # pydantic reads no other one there
    from typing import NotRequired

    from typing_extensions import TypedDict


@dataclass(frozen=True)
class Doc:
    """The description of a key in the OpenAPI document."""

    text: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(schema), "description": self.text}


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
    typing: bool
    facet_ranges: Mapping[str, Sequence[Mapping[str, Any]]]
    facet_under: Mapping[str, str]
    explain: bool
    highlight: Mapping[str, Any] | None
    prefix: Literal["last", "none"]
    match: Literal["all", "any", "auto"] | None
    min_score: float | None
    boost: Sequence[Mapping[str, Any]]
    sort: Sequence[Mapping[str, Any]]
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


class SnippetReply(TypedDict):
    snippet: str
    spans: Annotated[
        list[tuple[int, int, Literal["word", "meaning"]]],
        Doc(
            "[from, to, kind], in code points of the snippet: a word of the query, or one that the model finds near it"
        ),
    ]


class WordScore(TypedDict):
    word: str
    dense: float
    lexical: float


class FeatureScore(TypedDict):
    feature: str
    value: float
    contribution: float


class SecondScore(TypedDict):
    """score = base + the contributions of all features"""

    score: Annotated[float, Doc("the first hits are in the order of this score")]
    base: float
    features: Annotated[list[FeatureScore], Doc("the largest contribution first")]


class ClickShare(TypedDict):
    """What people chose before"""

    after_query: Annotated[float, Doc("clicks after this query")]
    lexical: Annotated[float, Doc("what these add to `lexical`")]
    in_all: Annotated[float, Doc("clicks after any query")]
    bias: Annotated[float, Doc("what these add to `bias`")]


class Explanation(TypedDict):
    """score = dense + lexical + bias + boost"""

    dense: float
    lexical: float
    bias: float
    boost: Annotated[float, Doc("what the request adds")]
    words: Annotated[list[WordScore], Doc("the words that moved the score most")]
    clicks: Annotated[
        ClickShare | None,
        Doc("clicks that were learned or are new; null if the model counts none"),
    ]
    second_stage: Annotated[
        SecondScore | None, Doc("what a second stage ordered the hit by; null if it did not")
    ]


class Hit(TypedDict):
    id: str
    score: float
    fields: Fields
    explanation: Explanation | None
    rule: Annotated[str | None, Doc("rule that put the document at its place")]
    highlight: Annotated[
        dict[str, SnippetReply] | None,
        Doc("by field, as requested; without the fields that are no text"),
    ]


class RankingReply(TypedDict):
    query_id: str
    model: Annotated[str, Doc("version that answered, also in X-Model-Version")]
    generation: int
    took_ms: float
    certified: Annotated[
        bool,
        Doc(
            "whether the hits are provably the top of the full ranking, before a second stage reordered it"
        ),
    ]
    reordered: Annotated[
        int,
        Doc(
            "how many of the first documents a second stage reordered, so that their scores need not descend; "
            "0 if the model has none, or the page begins below them"
        ),
    ]
    covered: Annotated[
        float, Doc("share of the documents that were searched: 1, or less with `partial`")
    ]
    candidate: Annotated[
        str | None,
        Doc("version whose hits are interleaved with those of `model`, in an experiment"),
    ]


class FacetValue(TypedDict):
    value: bool | int | float | str
    count: Annotated[int, Doc("matching documents with this value")]


class FacetReply(TypedDict):
    values: Annotated[list[FacetValue], Doc("most frequent first, ties by value")]
    distinct: Annotated[int, Doc("distinct values in the matching documents")]
    missing: Annotated[int, Doc("matching documents without a value")]
    min: Annotated[float | None, Doc("smallest number")]
    max: Annotated[float | None, Doc("largest number")]


_Bound = Annotated[
    str | float | None,
    Doc("a number; of a field of times ISO 8601 with an offset from UTC"),
]
RangeReply = TypedDict(
    "RangeReply",
    {
        "from": _Bound,
        "to": _Bound,
        "count": Annotated[int, Doc("documents that are found and have a value in the range")],
    },
)


class SearchReply(RankingReply):
    total: Annotated[
        int | None,
        Doc(
            "documents that pass the filter and have evidence, or reach `min_score`; null where only "
            "`total_at_least` is known"
        ),
    ]
    total_at_least: Annotated[
        int | None,
        Doc("in place of `total`: above 10,000, and in mode fast how many were looked at"),
    ]
    hits: list[Hit]
    facets: Annotated[dict[str, FacetReply], Doc("by field, as requested")]
    cursor: Annotated[
        str | None,
        Doc("of the next page; null after the last one and without a cursor in the request"),
    ]
    facet_ranges: Annotated[dict[str, list[RangeReply]], Doc("by field, as requested")]
    rules: Annotated[list[str], Doc("rules that apply to the query, by id")]
    did_you_mean: Annotated[
        str | None,
        Doc(
            "the query with known words in place of unknown ones that are one edit away; nothing is replaced"
        ),
    ]


class BatchReply(TypedDict):
    generation: int
    answers: Annotated[list[SearchReply], Doc("in the order of the searches")]


class ValueReply(TypedDict):
    price: float
    probability: Annotated[float, Doc("of a click, from the score and the placement")]
    value: Annotated[float, Doc("price × probability")]


class PlacedHit(Hit):
    value: NotRequired[
        Annotated[ValueReply | None, Doc("for an ad, with explain, if ads are ranked by value")]
    ]


LeftOut = Annotated[
    dict[str, int] | None,
    Doc(
        "with explain: ads left out, by reason: malformed, status, start, end, cur, cattax, bcat, acat, "
        "badv, wseat, bseat, battr, bidfloorcur, bidfloor, per_advertiser"
    ),
]


class FilledPlacement(TypedDict):
    id: str
    hits: list[PlacedHit]
    left_out: NotRequired[LeftOut]


class MatchReply(RankingReply):
    rank: Literal["relevance", "value"]
    placements: list[FilledPlacement]
    left_out: NotRequired[LeftOut]


class CompletionReply(TypedDict):
    text: str
    kind: Annotated[
        Literal["query", "title", "word"],
        Doc("a query of several people, the title of a document, or a word of the model"),
    ]


class TogetherHit(TypedDict):
    id: str
    lift: Annotated[float, Doc("above 1: clicked together more often than by chance")]
    people: Annotated[int, Doc("how many clicked both documents in one session")]
    fields: Fields


class WriteReply(TypedDict):
    id: str
    collection: Annotated[str, Doc("bundle name; all its versions have the document")]
    seq: Annotated[int, Doc("position of the write in the log, for `min_seq`")]
