"""Cursors: signed texts that say where the next page of a search begins.

``base64url(content).base64url(signature)``: the content is a JSON array, the signature the first 16 bytes of its
HMAC-SHA256. The key is derived from that of the log of events, which all workers share. A cursor fixes the version of
the model and the place after the last hit, by score and id; documents that are replaced meanwhile may move.
"""

from __future__ import annotations

import base64
import hmac
from binascii import Error
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from fullrank.events.log import KeyDamaged, key_for, read_key
from fullrank.live import View
from fullrank_service.base.errors import CursorExpired, Internal, Invalid
from fullrank_service.http.serving import Serving
from fullrank_service.search.request import After
from fullrank_service.search.schemas import Asked, SearchRequest

FIRST = "*"
"""Asks for the first page."""
_SIGNATURE_BYTES = 16


class Cursor(NamedTuple):
    """The beginning of a page.

    Attributes:
        version: Of the model; its documents alone have these scores.
        search: What is searched for, as ``fingerprint`` returned it.
        now: The origin "now" of boosts, in seconds since 1970.
        score, id, place: As of ``After``.
    """

    version: str
    search: str
    now: float
    score: float
    id: str
    place: int

    @property
    def after(self) -> After:
        """Where the page begins."""
        return After(self.score, self.id, self.place)


def fingerprint(search: Any) -> str:
    """Hash the fields of a search that decide its order, given as JSON."""
    return blake2b(orjson.dumps(search, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()


class Cursors:
    """Writes and reads cursors.

    Args:
        path: File of the key; it is created if missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _key(self) -> bytes:
        try:
            return key_for(read_key(self._path), b"cursors of searches")
        except KeyDamaged as error:
            raise Internal(f"{error}.") from None

    def text(self, cursor: Cursor) -> str:
        """Write a cursor."""
        content = orjson.dumps([*cursor])
        return f"{_text(content)}.{_text(self._sign(content))}"

    def read(self, text: str) -> Cursor:
        """Read a cursor. Raises Invalid if this service has not written it."""
        try:
            content, signature = (_bytes(part) for part in text.split("."))
        except (ValueError, Error):
            content, signature = b"", b""
        if not hmac.compare_digest(self._sign(content), signature):
            reason = 'is no cursor of this service; "*" asks for the first page'
            raise Invalid(errors=[{"field": "cursor", "reason": reason}])
        return Cursor(*orjson.loads(content))

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")[:_SIGNATURE_BYTES]


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)


# The fields that may differ between the pages of a list, because they change neither its documents nor their order.
# Those that page_of_cursor refuses are among them.
_FREE = {
    *Asked.model_fields,
    *("cursor", "limit", "offset", "min_seq", "mode", "sort", "group_by", "diversity"),
    *("fields", "facets", "facet_limit", "facet_ranges", "highlight", "explain"),
}


class CursorPage(NamedTuple):
    """The page that a cursor asks for.

    Attributes:
        model: Version of the cursor; of the first page the model of the request.
        after: Where the page begins.
        now: The origin "now" of boosts, the same for all pages, in seconds since 1970.
    """

    model: str
    after: After
    now: float


def page_of_cursor(
    asked: SearchRequest, cursors: Cursors, serving: Serving, now: float
) -> CursorPage:
    """Read the cursor of a request.

    Raises:
        Invalid: the text is no cursor of this service or belongs to another search, or the request asks for another
            order than that of the score.
        CursorExpired: its version is not loaded any more.
    """
    others = {
        "offset": asked.offset > 0,
        "sort": bool(asked.sort),
        "group_by": asked.group_by is not None,
        "diversity": asked.diversity > 0,
        "mode": asked.mode == "fast",
    }
    errors = [
        {"field": name, "reason": "cannot be given with a cursor"}
        for name, is_given in others.items()
        if is_given
    ]
    if errors:
        raise Invalid(errors=errors)
    assert asked.cursor is not None
    if asked.cursor == FIRST:
        return CursorPage(asked.model, After(), now)
    cursor = cursors.read(asked.cursor)
    if cursor.search != _search(asked):
        same = ", ".join(sorted(SearchRequest.model_fields.keys() - _FREE))
        reason = f"belongs to another search; these must be the same on all pages: {same}"
        raise Invalid(errors=[{"field": "cursor", "reason": reason}])
    if cursor.version not in serving.models:
        raise CursorExpired
    return CursorPage(cursor.version, cursor.after, cursor.now)


def cursor_of(
    asked: SearchRequest, cursors: Cursors, view: View, page: CursorPage, after: After
) -> str:
    """Write the cursor of the next page; the view is that of the page before."""
    cursor = Cursor(view.bundle.version, _search(asked), page.now, *after)
    return cursors.text(cursor)


def _search(asked: SearchRequest) -> str:
    return fingerprint(asked.model_dump(exclude=_FREE))
