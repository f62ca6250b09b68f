"""Documents of a corpus, and their stored form; `strings.DocumentStore` holds those of a bundle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from fullrank.errors import BundleError

# Levels of a document, its outer object included. orjson, which formats responses, refuses more than 254 levels, and
# the depth that json accepts differs between Python versions.
MAX_NESTING = 200
_AS_JSON = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its id, and every other field of its corpus line as a JSON value."""

    id: str
    fields: Mapping[str, Any]

    def texts(self, names: Iterable[str]) -> dict[str, str]:
        """Return the named text fields; a missing or null field is the empty string."""
        texts = {}
        for name in names:
            value = self.fields.get(name)
            text = "" if value is None else text_of(value)
            if text is None:
                kind = type(value).__name__
                raise TypeError(f"document {self.id!r}: field {name!r} is {kind}, not text")
            texts[name] = text
        return texts


def text_of(value: object) -> str | None:
    """Return text as it is and a list of texts joined by newlines; None for any other value."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    return None


def field_text(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    """Join the named text fields by newlines; skip fields that are absent or no text."""
    return "\n".join(text for name in names if (text := text_of(fields.get(name))) is not None)


def has_text(fields: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Check that a search can find a document: one of the named text fields is more than white space."""
    return any((text_of(fields.get(name)) or "").strip() for name in names)


def _depth(value: object) -> int:
    """Count the levels of lists and objects; stop above MAX_NESTING."""
    level: list[object] = [value]
    depth = 0
    while level and depth <= MAX_NESTING:
        inner = [item for item in level if isinstance(item, dict | list | tuple)]
        depth += bool(inner)
        level = []
        for item in inner:
            level.extend(item.values() if isinstance(item, dict) else item)
    return depth


def fields_line(id: str, fields: Mapping[str, Any]) -> str:
    """Format the stored fields of a document as one JSON line, in the order of the corpus.

    Raises:
        BundleError: A value has no JSON form (NaN, infinity) or nests deeper than MAX_NESTING; the message names the
            document.
    """
    try:
        line = orjson.dumps(fields, option=_AS_JSON).decode()
        if "null" not in line:  # which NaN becomes
            return _checked(id, fields, line)
    except (TypeError, ValueError):
        pass  # json has more forms, and says what is wrong
    try:
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        line.encode()
    except UnicodeEncodeError:
        # JSON can escape a lone surrogate, which UTF-8 cannot hold.
        line = json.dumps(fields, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise BundleError(f"document {id!r} cannot be stored: {error}") from error
    return _checked(id, fields, line)


def _checked(id: str, fields: Mapping[str, Any], line: str) -> str:
    """End a line. Raises BundleError if the document nests deeper than MAX_NESTING."""
    # Counting brackets is cheap and never too low, so few documents are walked.
    brackets = line.count("[") + line.count("{")
    if brackets > MAX_NESTING and _depth(fields) > MAX_NESTING:
        raise BundleError(
            f"document {id!r} cannot be stored: it nests deeper than {MAX_NESTING} levels"
        )
    return line + "\n"
