"""Define what the requests of all capabilities share. Limits that are settings are in openapi.py."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field

from fullrank_service.http.strict import QueryString, Reply, Text

ID = "_id"
"""Name of the id of a document, among its fields."""
MAX_ID_CHARS = 512
MAX_FIELDS = 64


Id = Annotated[Text, Field(min_length=1, max_length=MAX_ID_CHARS)]
ModelName = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=100,
        description="an alias, a version, or a bundle name (what was activated in its collection, else its newest "
        "loaded version)",
        examples=["default"],
    ),
]
MinSeq = Annotated[
    int,
    Field(
        ge=0,
        le=(1 << 63) - 1,
        description="answer from all writes up to this `seq`; waits up to FULLRANK_MIN_SEQ_WAIT_MS for them",
    ),
]
# fullrank.filters.query checks the conditions, because only it knows the fields.
FilterJson = Annotated[
    dict[str, Any],
    Field(
        description="field: value, field: {in, gt, gte, lt, lte, exists}, and, or, not",
        examples=[{"section": {"in": ["net", "mail"]}, "year": {"gte": 1999}}],
    ),
]


# Not checked here: writes check the id, and reads answer 404 to one that cannot exist.
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
# Any JSON value. A recursive schema would say no more, and generators of clients cannot read it.
FIELD_VALUE: dict[str, Any] = {
    "description": "any JSON value, at most 16 levels deep, whole numbers of at most 64 bits"
}


class WriteQuery(QueryString):
    """The query string of writes. The model names the collection."""

    model: ModelName = "default"


class FieldError(Reply):
    field: str
    reason: str


class ProblemDocument(Reply):
    """A problem document (RFC 9457), sent as application/problem+json."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[FieldError] = Field(
        default_factory=list, description="fields at fault, for status 422"
    )
