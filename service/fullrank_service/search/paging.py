"""Pages that begin after the last hit of the page before, not at an offset."""

from __future__ import annotations

import base64
import hmac
import math
from binascii import Error
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from fullrank.events.log import KeyDamaged, key_for, read_key
from fullrank.live.part import Hits
from fullrank_service.base.errors import Internal, Invalid

# Cursors: signed texts that say where the next page of a search begins.
#
# ``base64url(content).base64url(signature)``: the content is a JSON array, the signature the first 16 bytes of its
# HMAC-SHA256. The key is derived from that of the log of events, which all workers share.

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


@dataclass(frozen=True, slots=True)
class After:
    """Where a page begins: after a score and, among equal ones, after an id.

    place  number of hits on the pages before, so that the first search is deep enough
    """

    score: float = math.inf
    id: str = ""
    place: int = 0


def page_after(
    search: Callable[[int], Hits], after: After, limit: int
) -> tuple[Hits, After | None]:
    """Return a page of a ranking by score, and where the next one begins; None after the last one.

    Documents that were added or deleted meanwhile move no other one, because each is compared with the last hit alone.

    Args:
        search: Returns so many of the best documents, ties by id.
        after: Where the page begins.
        limit: Maximum number of hits.
    """
    depth = after.place + limit + 1
    while True:
        found = search(depth)
        rest = [hit for hit in found.hits if (-hit.score, hit.id) > (-after.score, after.id)]
        if len(rest) > limit or len(found.hits) < depth:
            break
        depth *= 2
    page = rest[:limit]
    following = None
    if len(rest) > limit:
        following = After(page[-1].score, page[-1].id, after.place + len(page))
    return replace(found, hits=page), following
