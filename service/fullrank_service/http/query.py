"""Check query strings as strictly as bodies: UTF-8, and no parameter twice."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeGuard
from urllib.parse import unquote_to_bytes

from fullrank_service.errors import Invalid
from fullrank_service.http.strict import QueryString


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
        text = _text(name, "query")
        _text(value, f"query.{text}")
        if text in seen and text not in repeatable:
            raise Invalid(errors=[{"field": f"query.{text}", "reason": "is given twice"}])
        if pair:
            seen.add(text)


def _text(raw: bytes, field: str) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise Invalid(errors=[{"field": field, "reason": "is not UTF-8"}]) from None
