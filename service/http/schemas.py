"""What is asked and what is answered. Strict: no coercion, no unknown field, no NaN, no surrogates.

Caps that are settings (longest query, most hits, …) are checked by limits.py and written into the
OpenAPI document by openapi.py; caps that are not settings stand here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_PLACEMENTS = 16
MAX_PER_PLACEMENT = 64
MAX_BLOCKED = 10_000
MAX_FIELDS = 64
MAX_FACETS = 16
MAX_FACET_VALUES = 100
MAX_FILTER_CHARS = 8192
MAX_ID_CHARS = 512


def _encodable(text: str) -> str:
    # JSON can spell half of a surrogate pair; no text is one, and UTF-8 cannot hold it.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
Id = Annotated[Text, Field(min_length=1, max_length=MAX_ID_CHARS)]
FieldName = Annotated[Text, Field(min_length=1, max_length=100)]
ModelName = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=100,
        description="an alias, a version, or a bundle name (its newest loaded version)",
        examples=["default"],
    ),
]
Mode = Annotated[
    Literal["auto", "exact", "fast"],
    Field(
        description="fast may miss a document that exact finds, and says so in certified; "
        "auto is exact while that keeps to the service's budget"
    ),
]
Count = Annotated[int, Field(ge=1)]
MinSeq = Annotated[
    int,
    Field(
        ge=0,
        le=(1 << 63) - 1,
        description="answer from all writes up to this `seq`; waits for them, for a moment",
    ),
]
# Its inside is read by fullrank.filters.query, which knows the fields.
FilterJson = Annotated[
    dict[str, Any],
    Field(
        description="field: value, field: {in, gt, gte, lt, lte, exists}, and, or, not; see docs/api.md",
        examples=[{"section": {"in": ["net", "mail"]}, "year": {"gte": 1999}}],
    ),
]


# In a path, and checked where documents are written: one that cannot be is not found.
DocumentId = Annotated[
    str,
    Path(
        json_schema_extra={
            "minLength": 1,
            "maxLength": MAX_ID_CHARS,
            "pattern": r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
        }
    ),
]
_WITHIN = {"$ref": "#/components/schemas/FieldValue"}
FIELD_VALUE: dict[str, Any] = {
    "description": "what a field of a document may hold: at most 16 deep, whole numbers of at most 64 bits",
    "anyOf": [
        {"type": ["null", "boolean", "string", "number"]},
        {"type": "array", "items": _WITHIN},
        {"type": "object", "additionalProperties": _WITHIN},
    ],
}


class Request(BaseModel):
    """Base of what is asked."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Reply(BaseModel):
    """Base of what is answered."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Request):
    query: Text = Field(min_length=1, examples=["copy a file to another host"])
    limit: Count = 10
    offset: int = Field(default=0, ge=0)
    fields: list[FieldName] | None = Field(
        default=None,
        max_length=MAX_FIELDS,
        description="stored fields to return; absent: all of them",
    )
    filter: FilterJson | None = Field(default=None, description="rank only what it lets through")
    facets: list[FieldName] = Field(
        default=[],
        max_length=MAX_FACETS,
        description="fields whose values are counted over all matching documents",
    )
    facet_limit: Annotated[int, Field(ge=1, le=MAX_FACET_VALUES)] = Field(
        default=10, description="most values of a facet"
    )
    explain: bool = Field(
        default=False, description="split each score and name the words behind it"
    )
    mode: Mode = "auto"
    model: ModelName = "default"
    min_seq: MinSeq = 0


class BatchRequest(Request):
    searches: list[SearchRequest] = Field(min_length=1)


class Page(Request):
    """The page that placements stand on; at least one of title, text and keywords should speak."""

    url: Text = Field(default="", max_length=4096)
    title: Text = Field(default="", max_length=4096)
    text: Text = ""
    keywords: list[Annotated[Text, Field(max_length=256)]] = Field([], max_length=256)


class Placement(Request):
    id: Id
    count: Annotated[int, Field(ge=1, le=MAX_PER_PLACEMENT)] = 1


class MatchRequest(Request):
    page: Page
    placements: list[Placement] = Field(min_length=1, max_length=MAX_PLACEMENTS)
    blocked_ids: list[Id] = Field(
        default=[], max_length=MAX_BLOCKED, description="documents that must not be placed"
    )
    targeting: FilterJson | None = Field(
        default=None, description="a filter: place only what it lets through"
    )
    fields: list[FieldName] | None = Field(
        default=None,
        max_length=MAX_FIELDS,
        description="stored fields to return; absent: all of them",
    )
    model: ModelName = "default"
    min_seq: MinSeq = 0


class SimilarQuery(BaseModel):
    """The query string of /similar, so numbers are read from text."""

    model_config = ConfigDict(extra="forbid")

    limit: Count = 10
    offset: int = Field(default=0, ge=0)
    fields: list[FieldName] | None = Field(default=None, max_length=MAX_FIELDS)
    filter: str | None = Field(
        default=None, max_length=MAX_FILTER_CHARS, description="a filter as JSON"
    )
    mode: Mode = "auto"
    model: ModelName = "default"
    min_seq: MinSeq = 0


class WriteQuery(BaseModel):
    """The query string of writes: which collection, by one of its models."""

    model_config = ConfigDict(extra="forbid")

    model: ModelName = "default"


class DocumentQuery(WriteQuery):
    """The query string of one document, so that its number is read from text."""

    min_seq: MinSeq = 0


class ActivateRequest(Request):
    version: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]


class WordScore(Reply):
    word: str
    learned: float
    exact: float


class Explanation(Reply):
    """score = learned + exact + bias"""

    learned: float
    exact: float
    bias: float
    words: list[WordScore] = Field(description="the words that moved the score most")


class Hit(Reply):
    id: str
    score: float
    fields: dict[str, Any]
    explanation: Explanation | None


class Answered(Reply):
    query_id: str
    model: str = Field(description="version that answered, also in X-Model-Version")
    generation: int
    took_ms: float
    certified: bool = Field(description="provably the top of the full ranking")


class FacetValue(Reply):
    value: bool | int | float | str
    count: int = Field(description="matching documents that hold it")


class FacetReply(Reply):
    values: list[FacetValue] = Field(description="the most frequent first, ties by value")
    distinct: int = Field(description="different values among the matching documents")
    missing: int = Field(description="matching documents without a value")
    min: float | None = Field(description="the least number among them")
    max: float | None = Field(description="the greatest number among them")


class SearchReply(Answered):
    total: int = Field(description="documents that match the filter; without one, all")
    hits: list[Hit]
    facets: dict[str, FacetReply] = Field(description="by field, those that were asked for")


class BatchReply(Reply):
    generation: int
    answers: list[SearchReply] = Field(description="in the order of the searches")


class FilledPlacement(Reply):
    id: str
    hits: list[Hit]


class MatchReply(Answered):
    placements: list[FilledPlacement]


class ModelEntry(Reply):
    name: str
    version: str
    created: str
    bytes: int
    loaded: bool
    active: bool
    documents: int | None = Field(description="documents in it; null while it is not loaded")
    card: dict[str, Any]
    failure: str | None = Field(description="why it was refused, if it was")


class WorkerEntry(Reply):
    id: str
    pid: int
    host: str
    generation: int = Field(description="what it serves; 0 before its first")
    version: str | None
    prepared: str | None = Field(description="what it has prepared for a swap under way")


class ModelsReply(Reply):
    generation: int
    aliases: dict[str, str]
    previous: str | None = Field(description="version that served before, kept loaded")
    failure: str | None = Field(description="why the noted version does not serve, if it does not")
    converged: bool = Field(description="every worker serves the same version and generation")
    workers: list[WorkerEntry] = Field(description="all that share the folder of the bundles")
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
    workers: int = Field(description="workers that took part")
    converged: bool = Field(
        description="all of them serve it; otherwise the slow ones follow within moments"
    )
    took_ms: float


class WriteReply(Reply):
    id: str
    collection: str = Field(description="the bundle name whose versions all have it")
    seq: int = Field(description="its place in the log, for `min_seq`")


class DocumentReply(Reply):
    id: str
    model: str
    generation: int
    fields: dict[str, Any]


class Alive(Reply):
    status: Literal["alive"]


class Ready(Reply):
    status: Literal["ready"]
    model: str
    generation: int


class FieldError(Reply):
    field: str
    reason: str


class ProblemDocument(Reply):
    """RFC 9457, as application/problem+json."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[FieldError] = Field(
        default_factory=list, description="which fields, when status is 422"
    )
