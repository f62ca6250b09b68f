"""Read the documents of write requests, as strictly as the lines of a corpus.

A document is a strict JSON object (fullrank.storage.strict_json). In a bulk request each line is a document with its id
under ``_id``, or ``{"_id": …, "_delete": true}``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from fullrank.storage.strict_json import JsonError, is_encodable, parse_object
from fullrank_service.base.errors import Invalid
from fullrank_service.documents.ad import FIELD, AdError, has_ended, parse_ad
from fullrank_service.documents.log import Write
from fullrank_service.http.schemas import ID, MAX_ID_CHARS

DELETE = "_delete"
# The fields that every model may read as text.
TEXT_FIELDS = ("title", "text")
# Levels of lists and objects within one field.
MAX_DEPTH = 16
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class InvalidDocument(Invalid):
    """A document cannot be stored: a field ("" for the whole document), and the reason as a phrase: "is not text"."""

    slug = Invalid.slug

    def __init__(self, field: str, reason: str) -> None:
        path = f"body.{field}" if field not in ("", ID) else field or "body"
        super().__init__(errors=[{"field": path, "reason": reason}])
        self.field, self.reason = field, reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


class Line(NamedTuple):
    """One line of a bulk request, counted from 1; without an id if it could not be read."""

    number: int
    id: str | None
    write: Write | None
    error: InvalidDocument | None = None
    fields: dict[str, Any] | None = None


def read_document(id: str, body: bytes, max_bytes: int) -> tuple[Write, dict[str, Any]]:
    """Read the body of a PUT: what to write, and the parsed fields. Raises InvalidDocument."""
    check_id(id)
    fields = _object(body, max_bytes)
    if fields.pop(ID, id) != id:
        raise InvalidDocument(ID, "is not the id in the path")
    return _write(id, fields), fields


def read_patch(id: str, body: bytes, max_bytes: int) -> dict[str, Any]:
    """Read the body of a PATCH: the fields to set, None for those to remove. Raises InvalidDocument."""
    check_id(id)
    fields = _object(body, max_bytes)
    for name in fields:
        if name.startswith("_"):
            raise InvalidDocument(name, "names that begin with _ are reserved")
    return fields


def merged(
    id: str, fields: Mapping[str, Any], patch: Mapping[str, Any]
) -> tuple[Write, dict[str, Any]]:
    """Merge a patch into the fields of a document: what to write, and its fields. Raises InvalidDocument.

    Example:
        >>> merged("a", {"title": "tea", "price": 3}, {"price": None, "size": 2})[1]
        {'title': 'tea', 'size': 2}
    """
    removed = {name for name, value in patch.items() if value is None}
    both = {name: value for name, value in {**fields, **patch}.items() if name not in removed}
    return _write(id, both, is_ad_new=FIELD in patch), both


def read_lines(body: bytes, max_bytes: int) -> list[Line]:
    """Read the lines of a bulk request, in order; the last newline may be missing."""
    lines = body.split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    return [_line(number, line, max_bytes) for number, line in enumerate(lines, 1)]


def _line(number: int, line: bytes, max_bytes: int) -> Line:
    id = None
    try:
        fields = _object(line, max_bytes)
        if ID not in fields:
            raise InvalidDocument(ID, "is missing")
        given = fields.pop(ID)
        if not isinstance(given, str):
            raise InvalidDocument(ID, "is not text")
        check_id(given)
        id = given
        if DELETE not in fields:
            return Line(number, id, _write(id, fields), fields=fields)
        if fields.pop(DELETE) is not True:
            raise InvalidDocument(DELETE, "is not true")
        if fields:
            raise InvalidDocument(next(iter(fields)), "a deletion has no fields")
        return Line(number, id, Write(id, None))
    except InvalidDocument as error:
        return Line(number, id, None, error)


def check_id(id: str) -> None:
    """Raise InvalidDocument if the text cannot be the id of a document."""
    if not id.strip():
        raise InvalidDocument(ID, "is empty")
    if len(id) > MAX_ID_CHARS:
        raise InvalidDocument(ID, f"has more than {MAX_ID_CHARS} characters")
    if _CONTROL.search(id):
        raise InvalidDocument(ID, "holds a control character")
    if not is_encodable(id):
        raise InvalidDocument(ID, "holds a lone surrogate")


def _object(body: bytes, max_bytes: int) -> dict[str, Any]:
    if len(body) > max_bytes:
        raise InvalidDocument("", f"is larger than {max_bytes} bytes")
    if not body.strip():
        raise InvalidDocument("", "is empty")
    try:
        return parse_object(body, max_depth=MAX_DEPTH + 1)
    except JsonError as error:
        raise InvalidDocument(error.field, error.reason) from None


def _write(id: str, fields: dict[str, Any], *, is_ad_new: bool = True) -> Write:
    for name, value in fields.items():
        if name.startswith("_"):
            raise InvalidDocument(name, "names that begin with _ are reserved")
        if name in TEXT_FIELDS and not (value is None or isinstance(value, str)):
            raise InvalidDocument(name, "is not text")
    # A stored ad may have ended, or have fields of release 0.1.
    if is_ad_new and fields.get(FIELD) is not None:
        _check_ad(fields[FIELD])
    return Write(id, orjson.dumps(fields))


def _check_ad(value: Any) -> None:
    try:
        ad = parse_ad(value)
    except AdError as error:
        raise InvalidDocument(error.path, error.reason) from None
    if has_ended(ad, time.time()):
        raise InvalidDocument(f"{FIELD}.end", "has passed: the ad could never be shown")
