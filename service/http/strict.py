"""Bases of requests and replies. Strict: no coercion, no unknown field, no NaN, no surrogates."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def encodable(text: str) -> str:
    # JSON can spell half of a surrogate pair, which UTF-8 cannot encode.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate") from None
    return text


Text = Annotated[str, AfterValidator(encodable)]
FieldName = Annotated[Text, Field(min_length=1, max_length=100)]


class Request(BaseModel):
    """Base of requests."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Reply(BaseModel):
    """Base of replies."""

    model_config = ConfigDict(extra="forbid")
