"""Define the requests and replies of /v1/rules."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import ConfigDict, Field

from fullrank.rules import rule as rules
from fullrank_service.http.schemas import FilterJson, Id, WriteQuery
from fullrank_service.http.strict import Reply, Request, Text

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
