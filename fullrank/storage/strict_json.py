"""Parse JSON strictly: one meaning for every text, and only values that every reader can hold.

The one parser for JSON that comes from outside: manifests, filters, request bodies, documents. Python's own reader
accepts more than the standard allows and keeps the last of two equal keys; this one refuses

    bytes that are not UTF-8, a byte order mark, and halves of surrogate pairs, which UTF-8 cannot hold
    an object with the same key twice
    NaN, Infinity and numbers too large for a float
    integers beyond 64 bits (below -2^63, or 2^64 and more), which other readers round
    values that nest deeper than the caller allows

A caller turns JsonError into its own error. ``reason`` is a phrase that follows the name of what was read ("The body"
+ "is not JSON"); ``field`` is the key of the outer object whose value is refused, "" where no single field is at fault.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 64) - 1


class JsonError(ValueError):
    """A text is not strict JSON.

    Attributes:
        field: key of the outer object whose value is refused; "" for the text as a whole.
        reason: what is wrong, as a phrase: "holds the key 'a' twice".
    """

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.reason, self.field = reason, field


def parse(text: str | bytes | memoryview, *, max_depth: int | None = None) -> Any:
    """Parse one JSON value.

    Args:
        max_depth: most levels of objects and lists, the outermost included; None: what the interpreter can parse.

    Example:
        >>> parse('{"title": "ant"}', max_depth=2)
        {'title': 'ant'}
    """
    if not isinstance(text, str):
        try:
            text = str(text, "utf-8")
        except UnicodeDecodeError as error:
            raise JsonError(f"is not UTF-8 at byte {error.start + 1}") from None
    try:
        value = _STRICT.decode(text)
    except _NumberRefused as error:
        # Only now is the field's name needed, so only now is the value walked.
        _refuse_values(_decode(_ANY_NUMBER, text))
        raise JsonError(str(error)) from None
    except JsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise _syntax_error(error) from None
    # Both tests are cheap and never miss: few texts are walked.
    is_deep = max_depth is not None and text.count("[") + text.count("{") > max_depth
    if is_deep or "\\u" in text:
        _refuse_values(value, max_depth)
    return value


def parse_time(text: object, *, needs_offset: bool = False) -> float:
    """Read a time of ISO 8601, in seconds since 1970; in UTC where it has no offset.

    Raises:
        ValueError: It is none, or has no offset and needs one; the message is a phrase as in JsonError.
    """
    try:
        found = datetime.fromisoformat(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError("is not a date and time of ISO 8601") from None
    if found.tzinfo is None:
        if needs_offset:
            raise ValueError("has no offset, such as Z or +01:00")
        found = found.replace(tzinfo=UTC)
    return found.timestamp()


def parse_object(text: str | bytes | memoryview, *, max_depth: int | None = None) -> dict[str, Any]:
    """Parse one JSON object; see ``parse``."""
    value = parse(text, max_depth=max_depth)
    if not isinstance(value, dict):
        raise JsonError("is not a JSON object")
    return value


def parse_items(text: str, key: str) -> Any:
    """Parse JSON of which each item of a list is refused on its own.

    Returns:
        As ``parse``, but with a JsonError in the place of each item that would have the whole text refused.

    Raises:
        JsonError: What is wrong is no matter of an item: a syntax error, say.

    Example:
        >>> parse_items('[{"n": 1}, {"n": 1e999}]', "events")
        [{'n': 1}, JsonError('n: holds a number too large for a float')]
    """
    try:
        return parse(text)
    except JsonError:
        value = _decode(_MARKING, text)
        items = value.get(key) if isinstance(value, dict) else value
        if not isinstance(items, list):
            raise
    checked = [_checked(item) for item in items]
    if not isinstance(value, dict):
        return checked
    _refuse_values({name: other for name, other in value.items() if name != key})
    return {**value, key: checked}


def is_encodable(text: str) -> bool:
    """Check that a string holds no half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _NumberRefused(ValueError):
    """A number is valid JSON and beyond what is accepted."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands for a value that is refused once its place is known."""

    reason: str


def _decode(decoder: json.JSONDecoder, text: str) -> Any:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(error) from None


def _syntax_error(error: Exception) -> JsonError:
    if isinstance(error, JsonError):
        return error
    if isinstance(error, RecursionError):
        return JsonError("nests too deep")
    where = f" (character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
    return JsonError(f"is not JSON{where}")


def _refuse_values(value: Any, max_depth: int | None = None) -> None:
    """Raise JsonError, naming the field, for a value that is nested too deep or cannot be stored."""
    outer = value.items() if isinstance(value, dict) else [("", value)]
    inner_depth = None if max_depth is None else max_depth - isinstance(value, dict)
    for name, inner in outer:
        field = name.encode("utf-8", "replace").decode()
        if field != name:
            raise JsonError("holds a lone surrogate", field)
        reason = _problem(inner, inner_depth)
        if reason is not None:
            raise JsonError(
                f"{reason} {inner_depth} levels" if reason == _TOO_DEEP else reason, field
            )


def _checked(item: Any) -> Any:
    try:
        _refuse_values(item)
    except JsonError as error:
        return error
    return item


def _problem(value: Any, depth: int | None) -> str | None:
    """Find what is wrong with a value, level by level, so that no depth exhausts the stack."""
    level = [value]
    levels = 0
    while level:
        below: list[Any] = []
        nested = False
        for item in level:
            if isinstance(item, str):
                if not is_encodable(item):
                    return "holds a lone surrogate"
            elif isinstance(item, dict):
                nested = True
                if not all(map(is_encodable, item)):
                    return "holds a lone surrogate"
                below.extend(item.values())
            elif isinstance(item, list):
                nested = True
                below.extend(item)
            elif isinstance(item, int):
                if not MIN_INTEGER <= item <= MAX_INTEGER:
                    return _BEYOND_64_BITS
            elif isinstance(item, float) and item in (float("inf"), -float("inf")):
                return _TOO_LARGE
            elif isinstance(item, _Refused):
                return item.reason
        levels += nested
        if depth is not None and levels > depth:
            return _TOO_DEEP
        level = below
    return None


def _distinct_or_refused(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    try:
        return _distinct(pairs)
    except JsonError as error:
        return _Refused(error.reason)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                shown = key[:100].encode("utf-8", "replace").decode()
                raise JsonError(f"holds the key {shown!r} twice in one object")
            seen.add(key)
    return found


def _constant(name: str) -> NoReturn:
    raise JsonError(_NO_NUMBER.format(name))


def _refused_constant(name: str) -> _Refused:
    return _Refused(_NO_NUMBER.format(name))


def _integer(digits: str) -> int:
    if len(digits) < 19:
        return int(digits)
    # Longer ones than 20 are not even converted: that takes time that grows with the square of the length.
    if len(digits) > 20 or not MIN_INTEGER <= (number := int(digits)) <= MAX_INTEGER:
        raise _NumberRefused(_BEYOND_64_BITS)
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if number - number == 0.0:  # NaN, thus unequal, where the number is infinite
        return number
    raise _NumberRefused(_TOO_LARGE)


def _lenient_integer(digits: str) -> int:
    return int(digits[:21])


_BEYOND_64_BITS = "holds an integer of more than 64 bits: store it as text"
_NO_NUMBER = "holds {}, which is not a JSON number"
_TOO_LARGE = "holds a number too large for a float"
_TOO_DEEP = "nests deeper than"

# Made once: json.loads with hooks makes a decoder for every call.
_STRICT = json.JSONDecoder(
    object_pairs_hook=_distinct,
    parse_constant=_constant,
    parse_int=_integer,
    parse_float=_float,
)
_ANY_NUMBER = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_constant=_constant, parse_int=_lenient_integer
)
_MARKING = json.JSONDecoder(
    object_pairs_hook=_distinct_or_refused,
    parse_constant=_refused_constant,
    parse_int=_lenient_integer,
)
