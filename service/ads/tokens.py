"""Tokens of served ads: each says which ad was served to whom, signed, so that events can be tied to it.

``base64url(content).base64url(signature)``: the content is a JSON array, the signature the first 16 bytes of its
HMAC-SHA256. The key is derived from that of the log of events.
"""

from __future__ import annotations

import base64
import hmac
import os
from binascii import Error
from typing import NamedTuple

import orjson

LIFETIME_S = 4 * 3600
MAX_CHARS = 2_000
_SIGNATURE_BYTES = 16


class Served(NamedTuple):
    """One ad in one place of one answer.

    Attributes:
        id: Of the token, 32 hexadecimal digits.
        expires: Seconds since 1970.
        collection: Name of the bundle.
        ad: Id of the document.
        price: What a click costs.
        score: Of the document for the page.
        placement: Id of the placement.
        person: Who sees it, as a pseudonym; "": unknown.
    """

    id: str
    expires: float
    collection: str
    ad: str
    price: float
    score: float
    placement: str
    person: str


class InvalidToken(ValueError):
    """The text is no token that this service has signed."""


class Signer:
    """Signs and reads tokens.

    Args:
        key: Secret, shared by all workers and machines.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hmac.digest(key, b"tokens of ads", "sha256")

    def token(
        self,
        now: float,
        collection: str,
        ad: str,
        price: float,
        score: float,
        placement: str,
        person: str,
    ) -> str:
        """Return a new token; the arguments are those of ``Served``, now is in seconds since 1970."""
        served = Served(
            os.urandom(16).hex(), now + LIFETIME_S, collection, ad, price, score, placement, person
        )
        content = orjson.dumps([*served])
        return f"{_text(content)}.{_text(self._sign(content))}"

    def read(self, token: str) -> Served:
        """Return what a token says. It may have expired. Raises InvalidToken."""
        try:
            content, signature = (_bytes(part) for part in token.split("."))
        except (ValueError, Error):
            raise InvalidToken from None
        if not hmac.compare_digest(self._sign(content), signature):
            raise InvalidToken
        return Served(*orjson.loads(content))

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")[:_SIGNATURE_BYTES]


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
