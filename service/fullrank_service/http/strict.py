"""Bases of requests and replies: no coercion, no unknown field, no NaN, no surrogates; errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, LiteralString, TypeGuard, get_args, get_origin
from urllib.parse import unquote_to_bytes

from fastapi import Request as HttpRequest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from fullrank import replies
from fullrank.storage import strict_json
from fullrank.text.words import normalised_length
from fullrank_service.base.errors import BadRequest, Invalid, UnsupportedMedia

MAX_ERRORS = 20
"""Most errors that one answer lists."""
# Parameters in an address. Pydantic also takes "1.0", "+1" and "1_0" as whole numbers, " 5" and "1_0" as others, and
# "on", "Y" and "1" as true.
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_FORMS: dict[Any, tuple[re.Pattern[str], str, str]] = {
    int: (_WHOLE, "int_parsing", "must be a whole number"),
    float: (_NUMBER, "float_parsing", "must be a number"),
    float | None: (_NUMBER, "float_parsing", "must be a number"),
    bool: (re.compile("true|false"), "bool_parsing", "must be true or false"),
}


def encodable(text: str) -> str:
    # JSON can spell half of a surrogate pair, which UTF-8 cannot encode.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate") from None
    return text


def too_long(text: str, most: int) -> str | None:
    """Return what is wrong with a text of more than so many characters, also after NFKC, of which words are made."""
    if len(text) > most:
        return f"must have at most {most} characters"
    if normalised_length(text, most) > most:
        return f"must have at most {most} characters in the Unicode form NFKC"
    return None


def longest(most: int) -> AfterValidator:
    """Return the check of a text that may have so many characters, as ``too_long`` counts them."""

    def check(text: str) -> str:
        reason = too_long(text, most)
        if reason is not None:
            raise ValueError(reason)
        return text

    return AfterValidator(check)


Text = Annotated[str, AfterValidator(encodable)]
FieldName = Annotated[Text, Field(min_length=1, max_length=100)]


def empty(kind: type[list[Any]] | type[dict[str, Any]], **options: Any) -> Any:
    """Return a field that is empty by default, a list or a dict.

    A default that is one would be deep-copied for each request, which takes longer than the validation.
    """
    return Field(default_factory=kind, json_schema_extra={"default": kind()}, **options)


def either(reason: LiteralString) -> WrapValidator:
    """Give a union one error; pydantic has one for each member, under a path that ends with the member's name."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("either", reason) from None

    return WrapValidator(validate)


TextOrNumber = Annotated[Text | float, either("must be text or a number")]


def refusal(reason: str, *path: str | int) -> ValidationError:
    """Return the error of a field, for validators of a whole request, which are not limited to their own path."""
    return ValidationError.from_exception_data("request", [_error("refused", reason, path, None)])


class Checked(BaseModel):
    """A model whose errors are plain; that of an unknown field lists the fields that there are."""

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, value: Any, handler: ModelWrapValidatorHandler[Checked]) -> Checked:
        try:
            return handler(value)
        except ValidationError as error:
            found = error.errors(include_url=False)[:MAX_ERRORS]
            raise ValidationError.from_exception_data(
                cls.__name__, [_explained(cls, item) for item in found]
            ) from None


class Request(Checked):
    """Base of requests."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class QueryString(Checked):
    """Base of query strings. Not strict, because their numbers are text."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_forms(cls, value: Any) -> Any:
        errors = []
        for name, given in value.items():
            field = cls.model_fields.get(name)
            form = None if field is None else _FORMS.get(field.annotation)
            if form is not None and isinstance(given, str) and not form[0].fullmatch(given):
                errors.append(_error(form[1], form[2], (name,), given))
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return value

    @classmethod
    def repeatable(cls) -> set[str]:
        """Return the names of the parameters that may be given several times."""
        kinds = {
            name: (field.annotation, *get_args(field.annotation))
            for name, field in cls.model_fields.items()
        }
        return {name for name, those in kinds.items() if any(get_origin(k) is list for k in those)}


class Reply(BaseModel):
    """Base of replies."""

    model_config = ConfigDict(extra="forbid")


for _kind in vars(replies).values():
    if hasattr(_kind, "__required_keys__"):
        _kind.__pydantic_config__ = Reply.model_config


def _explained(model: type[BaseModel], item: Any) -> InitErrorDetails:
    reason, kind, context = item["msg"], item["type"], item.get("ctx", {})
    if kind == "extra_forbidden" and len(item["loc"]) == 1:
        names = ", ".join(field.alias or name for name, field in model.model_fields.items())
        reason, kind = f"unknown field; there are {names}", "unknown_field"
    elif kind == "value_error" and context:
        reason = str(context["error"])  # without "Value error, "
    elif "max_length" in context and isinstance(item["input"], str):
        # Of text that has a check of its own, pydantic counts "items after validation".
        reason = f"must have at most {context['max_length']} characters"
    elif "min_length" in context and isinstance(item["input"], str):
        least = context["min_length"]
        reason = f"must have at least {least} character{'s' if least > 1 else ''}"
    return _error(kind, reason, item["loc"], item["input"])


def _error(kind: str, reason: str, path: tuple[str | int, ...], given: Any) -> InitErrorDetails:
    # Pydantic formats a reason only if it gets a context, so braces in it stay as they are.
    return InitErrorDetails(type=PydanticCustomError(kind, reason), loc=path, input=given)


_JSON, _TEXT = b"application/json", b"text/plain"


def require_json(headers: list[tuple[bytes, bytes]], *, or_text: bool = False) -> None:
    """Raise UnsupportedMedia unless the Content-Type is JSON in UTF-8, or plain text, as sendBeacon sends it."""
    for name, value in headers:
        if name == b"content-type":
            if value == _JSON:
                return
            kind, _, parameters = value.lower().partition(b";")
            charset = parameters.strip().replace(b'"', b"")
            is_known = kind.strip() == _JSON or (or_text and kind.strip() == _TEXT)
            if is_known and charset in (b"", b"charset=utf-8"):
                return
            break
    raise UnsupportedMedia


def parse(body: bytes) -> Any:
    """Parse a body. Raises BadRequest if it is not UTF-8, Invalid if it is not strict JSON."""
    return parse_text(_text(body), "body")


def parse_items(body: bytes, key: str) -> Any:
    """Parse a body whose items are refused one by one, as fullrank.storage.strict_json.parse_items. Raises as parse."""
    try:
        return strict_json.parse_items(_text(body), key)
    except strict_json.JsonError as error:
        raise _invalid(error, "body") from None


def parse_text(text: str, field: str) -> Any:
    """Parse the JSON text of a field. Raises Invalid, naming the field, if it is not strict JSON."""
    try:
        return strict_json.parse(text)
    except strict_json.JsonError as error:
        raise _invalid(error, field) from None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadRequest("The body is not UTF-8 text.") from None


def _invalid(error: strict_json.JsonError, field: str) -> Invalid:
    within = f"{field}.{error.field}" if error.field else field
    return Invalid(errors=[{"field": within, "reason": error.reason}])


async def read_body(receive: Receive) -> bytes:
    """Receive a whole body. Raises ClientDisconnect."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


class StrictRequest(HttpRequest):
    """A request whose JSON is parsed strictly."""

    async def json(self) -> Any:
        return parse(await self.body())


def is_query(kind: Any) -> TypeGuard[type[QueryString]]:
    """Check whether an annotation is a model of a whole query string."""
    return isinstance(kind, type) and issubclass(kind, QueryString)


def check_query(query: bytes, repeatable: Collection[str]) -> None:
    """Raise Invalid for a query string that is not UTF-8, or has a parameter twice that is not repeatable.

    The framework reads other bytes as U+FFFD, and the last of repeated parameters.
    """
    seen: set[str] = set()
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        text = _query_text(name, "query")
        _query_text(value, f"query.{text}")
        if text in seen and text not in repeatable:
            raise Invalid(errors=[{"field": f"query.{text}", "reason": "is given twice"}])
        if pair:
            seen.add(text)


def _query_text(raw: bytes, field: str) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise Invalid(errors=[{"field": field, "reason": "is not UTF-8"}]) from None
