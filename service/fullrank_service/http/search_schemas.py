"""Define the parts of a search request that say more than what to find, and their replies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from fullrank.errors import FilterError
from fullrank.highlight import Highlight, Tags
from fullrank.ordering.order import GroupBy, Ordering
from fullrank.ordering.sorting import MAX_BOOSTS, MAX_KEYS, Boost, Decay, SortKey
from fullrank_service.http.strict import (
    FieldName,
    Reply,
    Request,
    Text,
    TextOrNumber,
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
        """What to mark."""
        tags = None if self.pre is None or self.post is None else Tags(self.pre, self.post)
        return Highlight(self.fields, self.words, tags)


class DecayRequest(Request):
    origin: TextOrNumber = Field(
        description='a number; of a field of times "now", or a time with an offset from UTC',
        examples=["now", "2026-11-23T12:00:00+01:00", 100],
    )
    scale: TextOrNumber = Field(
        description="a number above 0; of a field of times a duration: 90s, 15m, 12h, 30d or 2w",
        examples=["30d", 20],
    )
    factor: float = Field(
        default=0.5, gt=0, lt=1, description="what is left of the boost one scale from the origin"
    )


class BoostRequest(Request):
    """weight · factor^(distance / scale) with `decay`, weight · ln(1 + value) with `log`."""

    field: FieldName = Field(description="numbers; for decay also times")
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
        """The boost."""
        decay = self.decay
        return Boost(
            self.field,
            self.weight,
            None if decay is None else Decay(decay.origin, decay.scale, decay.factor),
        )


class SortRequest(Request):
    field: FieldName = Field(description="numbers, true and false, or times")
    order: Literal["asc", "desc"] = "asc"


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
            [SortKey(key.field, key.order == "desc") for key in self.sort],
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


class RangeReply(Reply):
    start: Bound = Field(alias="from")
    stop: Bound = Field(alias="to")
    count: int = Field(description="documents that are found and have a value in the range")


class SnippetReply(Reply):
    snippet: str
    spans: list[tuple[int, int, Literal["word", "meaning"]]] = Field(
        description="[from, to, kind], in code points of the snippet: a word of the query, or one "
        "that the model finds near it"
    )
