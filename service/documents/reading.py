"""What a request wants written, checked as strictly as a corpus line.

A document is a JSON object in UTF-8; every key is there once, every value is one that answers can hold. In a bulk
request each line is a document with its id under ``_id``, or ``{"_id": …, "_delete": true}``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from service.documents.log import Write
from service.http.schemas import MAX_ID_CHARS

ID, DELETE = "_id", "_delete"
# What every model may read as text.
TEXTS = ("title", "text")
MAX_DEPTH = 16
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# What JSON answers can hold of whole numbers.
_LEAST, _GREATEST = -(1 << 63), (1 << 64) - 1


class Unfit(ValueError):
    """Why a document is not taken: the field, and the reason."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field, self.reason = field, reason


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bulk request: what to write, or why not. number counts from 1; id where it could be read."""

    number: int
    id: str | None
    write: Write | None
    error: Unfit | None = None


def read_document(id: str, body: bytes, max_bytes: int) -> Write:
    """The document of a PUT. Raises Unfit."""
    check_id(id)
    fields = _object(body, max_bytes)
    if fields.pop(ID, id) != id:
        raise Unfit(ID, "is not the id in the path")
    return _write(id, fields)


def read_lines(body: bytes, max_bytes: int) -> list[Line]:
    """The lines of a bulk request, in order; an empty one after the last newline is none."""
    lines = body.split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    return [_line(number, line, max_bytes) for number, line in enumerate(lines, 1)]


def _line(number: int, line: bytes, max_bytes: int) -> Line:
    id = None
    try:
        fields = _object(line, max_bytes)
        if ID not in fields:
            raise Unfit(ID, "is missing")
        given = fields.pop(ID)
        if not isinstance(given, str):
            raise Unfit(ID, "is not text")
        check_id(given)
        id = given
        if DELETE not in fields:
            return Line(number, id, _write(id, fields))
        if fields.pop(DELETE) is not True:
            raise Unfit(DELETE, "is not true")
        if fields:
            raise Unfit(next(iter(fields)), "a deletion has no fields")
        return Line(number, id, Write(id, None))
    except Unfit as error:
        return Line(number, id, None, error)


def check_id(id: str) -> None:
    """Raises Unfit unless the text can be a document's id."""
    if not id.strip():
        raise Unfit(ID, "is empty")
    if len(id) > MAX_ID_CHARS:
        raise Unfit(ID, f"has more than {MAX_ID_CHARS} characters")
    if _CONTROL.search(id):
        raise Unfit(ID, "holds a control character")
    _encodable(id, ID)


def _object(body: bytes, max_bytes: int) -> dict[str, Any]:
    if len(body) > max_bytes:
        raise Unfit("", f"is larger than {max_bytes} bytes")
    if not body.strip():
        raise Unfit("", "is empty")
    try:
        # Decoded here: json would take other encodings by their look.
        value = _DECODER.decode(body.decode())
    except UnicodeDecodeError:
        raise Unfit("", "is not UTF-8") from None
    except RecursionError:
        raise Unfit("", "nests too deep") from None
    except Unfit:
        raise
    except ValueError as error:
        raise Unfit("", f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unfit("", "is not a JSON object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unfit("", "holds a key twice")
    return found


def _constant(name: str) -> NoReturn:
    raise Unfit("", f"holds {name}, which is not a JSON number")


# json.loads with hooks would make one for each line.
_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_constant)


def _write(id: str, fields: dict[str, Any]) -> Write:
    for name, value in fields.items():
        _encodable(name, name)
        if name.startswith("_"):
            raise Unfit(name, "names that begin with _ are reserved")
        if name in TEXTS and not (value is None or isinstance(value, str)):
            raise Unfit(name, "is not text")
        _check(value, name, MAX_DEPTH)
    return Write(id, orjson.dumps(fields))


def _check(value: Any, path: str, depth: int) -> None:
    if isinstance(value, str):
        _encodable(value, path)
    elif isinstance(value, dict | list):
        if depth == 0:
            raise Unfit(path, f"nests deeper than {MAX_DEPTH}")
        if isinstance(value, dict):
            for key, inner in value.items():
                _encodable(key, path)
                _check(inner, path, depth - 1)
        else:
            for inner in value:
                _check(inner, path, depth - 1)
    elif isinstance(value, int):
        if not _LEAST <= value <= _GREATEST:
            raise Unfit(path, "is a whole number of more than 64 bits: store it as text")
    elif isinstance(value, float) and not -float("inf") < value < float("inf"):
        raise Unfit(path, "is too large for a number")


def _encodable(text: str, path: str) -> None:
    # JSON can spell half of a surrogate pair; no text is one, and UTF-8 cannot hold it.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unfit(path.encode("utf-8", "replace").decode(), "holds a lone surrogate") from None
