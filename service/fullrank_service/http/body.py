"""Read JSON bodies and query strings strictly: one meaning for every text, UTF-8, no parameter twice."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeGuard
from urllib.parse import unquote_to_bytes

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from fullrank.storage import strict_json
from fullrank_service.base.errors import BadRequest, Invalid, UnsupportedMedia
from fullrank_service.http.strict import QueryString

_JSON, _TEXT = b"application/json", b"text/plain"


def require_json(headers: list[tuple[bytes, bytes]], *, or_text: bool = False) -> None:
    """Raise UnsupportedMedia unless the Content-Type is JSON in UTF-8.

    Args:
        or_text: accept JSON as plain text too, as navigator.sendBeacon sends it.
    """
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


class StrictRequest(Request):
    """A request whose JSON is parsed strictly."""

    async def json(self) -> Any:
        return parse(await self.body())


def is_query(kind: Any) -> TypeGuard[type[QueryString]]:
    """Check whether an annotation is a model of a whole query string."""
    return isinstance(kind, type) and issubclass(kind, QueryString)


def check_query(query: bytes, repeatable: Collection[str]) -> None:
    """Check a query string. The framework reads other bytes as U+FFFD, and the last of repeated parameters.

    Args:
        query: As sent.
        repeatable: Parameters that are lists.

    Raises:
        Invalid: It is not UTF-8, or a parameter that is no list is repeated.
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
