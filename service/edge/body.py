"""The bytes of a JSON body, read strictly.

UTF-8 and nothing else (JSON's reader would take UTF-16 as well), no byte order mark, no NaN or Infinity, no name twice
in one object (which of two was meant?), no half of a surrogate pair anywhere.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request

from service.errors import BadRequest, Invalid, UnsupportedMedia

_JSON = b"application/json"


def must_be_json(headers: list[tuple[bytes, bytes]]) -> None:
    """Raises UnsupportedMedia unless the content type is JSON in UTF-8."""
    for name, value in headers:
        if name == b"content-type":
            if value == _JSON:
                return
            kind, _, parameters = value.lower().partition(b";")
            charset = parameters.strip().replace(b'"', b"")
            if kind.strip() == _JSON and charset in (b"", b"charset=utf-8"):
                return
            break
    raise UnsupportedMedia


def parse(body: bytes) -> Any:
    """Raises BadRequest for what is no UTF-8, Invalid for what is no strict JSON."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadRequest("The body is no UTF-8 text.") from None
    return parse_text(text, "body")


def parse_text(text: str, field: str) -> Any:
    """Raises Invalid, about this field, for what is no strict JSON."""
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            # The parts of a pair are joined by now; what is left alone cannot be written again.
            json.dumps(value, ensure_ascii=False).encode()
    except _Refused as error:
        raise _invalid(field, str(error)) from None
    except UnicodeEncodeError:
        raise _invalid(field, "holds a lone surrogate") from None
    except RecursionError:
        raise _invalid(field, "nests too deep") from None
    except ValueError as error:
        where = f" (character {error.pos})" if isinstance(error, json.JSONDecodeError) else ""
        raise _invalid(field, f"is not JSON{where}") from None
    return value


class StrictRequest(Request):
    """A request whose JSON is read by parse."""

    async def json(self) -> Any:
        return parse(await self.body())


class _Refused(ValueError):
    """JSON by the letter, and still not what is taken."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Refused("has a name twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise _Refused(f"holds {name}, which is no JSON")


def _invalid(field: str, reason: str) -> Invalid:
    return Invalid(errors=[{"field": field, "reason": reason}])


# Made once: json.loads would make one for every text.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
