"""Define the requests and replies of /v1/complete and /v1/documents/{id}/together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fullrank.together import MAX_KEPT
from fullrank_service.http.schemas import MAX_FIELDS, MinSeq, ModelName
from fullrank_service.http.strict import FieldName, QueryString, Reply, longest

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
