"""Cursors: signed texts that say where the next page of a search begins.

``base64url(content).base64url(signature)``: the content is a JSON array, the signature the first 16 bytes of its
HMAC-SHA256. The key is derived from that of the log of events, which all workers share.
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
from fullrank_service.errors import Internal, Invalid
from fullrank_service.search.paging import After

FIRST = "*"
"""Asks for the first page."""
MAX_CHARS = 4_000
_SIGNATURE_BYTES = 16


class Cursor(NamedTuple):
    """The beginning of a page.

    Attributes:
        version: Of the model; its documents alone have these scores.
        search: What is searched for, as ``fingerprint`` returned it.
        now: The origin "now" of boosts, in seconds since 1970.
        seq: The last operation of the log that the first page contains.
        score, id, place: As of ``After``.
    """

    version: str
    search: str
    now: float
    seq: int
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
