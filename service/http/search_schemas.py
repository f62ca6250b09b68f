"""Define the parts of a search request that say more than what to find, and their replies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fullrank.highlight import Highlight, Tags
from service.http.strict import FieldName, Reply, Request, Text

MAX_HIGHLIGHTED = 8
MAX_SNIPPET_WORDS = 200
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
            raise ValueError("has one of pre and post; give both or none")
        return self

    @property
    def asked(self) -> Highlight:
        """What to mark."""
        tags = None if self.pre is None or self.post is None else Tags(self.pre, self.post)
        return Highlight(self.fields, self.words, tags)


class SnippetReply(Reply):
    snippet: str
    spans: list[tuple[int, int, Literal["word", "meaning"]]] = Field(
        description="[from, to, kind], in code points of the snippet: a word of the query, or one "
        "that the model finds near it"
    )
