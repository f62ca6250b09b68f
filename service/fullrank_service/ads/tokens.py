"""Tokens of served ads: each says which ad was served to whom, signed, so that events can be tied to it.

``base64url(signature + content)``: the content is a JSON array, the signature its keyed BLAKE2b hash, 16 bytes. The key
is derived from that of the log of events.
"""

from __future__ import annotations

import base64
import hmac
import os
from binascii import Error
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import orjson

from fullrank.events.people import key_for

LIFETIME_S = 4 * 3600
MAX_CHARS = 2_000
_SIGNATURE_BYTES = _ID_BYTES = 16


class Placed(NamedTuple):
    """An ad in one place of a page.

    Attributes:
        ad: Id of the document.
        price: What a click costs.
        score: Of the document for the page.
        placement: Id of the placement.
    """

    ad: str
    price: float
    score: float
    placement: str


class Served(NamedTuple):
    """One ad in one place of one answer.

    Attributes:
        id: Of the token, 32 hexadecimal digits.
        expires: Seconds since 1970.
        collection: Name of the bundle.
        model: Id of the model that scored it.
        person: Who sees it, as a pseudonym that the log of events does not have; "": unknown.
        ad, price, score, placement: As in ``Placed``.
    """

    id: str
    expires: float
    collection: str
    model: str
    person: str
    ad: str
    price: float
    score: float
    placement: str


class InvalidToken(ValueError):
    """The text is no token that this service has signed."""


def served(
    now: float, collection: str, model: str, person: str, placed: Iterable[Placed]
) -> list[Served]:
    """Return the ads of a page as served at a moment, in seconds since 1970, each with a new id."""
    expires, placed = now + LIFETIME_S, list(placed)
    ids = os.urandom(_ID_BYTES * len(placed)).hex()
    size = 2 * _ID_BYTES
    return [
        Served(ids[size * i : size * (i + 1)], expires, collection, model, person, *one)
        for i, one in enumerate(placed)
    ]


class Signer:
    """Signs and reads tokens.

    Args:
        key: Secret, shared by all workers and machines.
    """

    def __init__(self, key: bytes) -> None:
        own = key_for(key, b"tokens of ads")
        self._empty = blake2b(digest_size=_SIGNATURE_BYTES, key=own)

    def token(self, served: Served) -> str:
        """Return the token of a served ad."""
        content = orjson.dumps([*served])
        return base64.urlsafe_b64encode(self._sign(content) + content).rstrip(b"=").decode()

    def read(self, token: str) -> Served:
        """Return what a token says. It may have expired. Raises InvalidToken."""
        try:
            found = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
        except (ValueError, Error):
            raise InvalidToken from None
        signature, content = found[:_SIGNATURE_BYTES], found[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(self._sign(content), signature):
            raise InvalidToken
        return Served(*orjson.loads(content))

    def _sign(self, content: bytes) -> bytes:
        signature = self._empty.copy()
        signature.update(content)
        return signature.digest()
