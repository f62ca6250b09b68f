"""Decide what a caller may do: by API key, or by the scopes of callers without one. Costs one hash of the token."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Literal

from starlette.types import Scope

from fullrank.errors import FullrankError
from fullrank_service.base.errors import Forbidden, Unauthorized
from fullrank_service.base.settings import Settings
from fullrank_service.http.keys import FILE, Key, KeyRing, KeysError, checked_scopes

CLIENT = "fullrank.client"
"""Key of the API key's id in the ASGI scope."""
BOUND = "fullrank.bound"
"""Key of an API key that is bound to collections or a filter, in the ASGI scope."""
Bounds = Literal["collections", "filter"]

LOOPBACK_SCOPES = frozenset(("search", "events"))
"""Scopes of callers without a key on loopback, until there is a key file.

A proxy on this machine lets others in, so they must not permit writes of documents.
"""

NONE = "none"


class Access:
    """Check callers. Those without a key have the scopes of FULLRANK_ANONYMOUS, else some on loopback."""

    def __init__(
        self, keys: KeyRing, anonymous: frozenset[str] | None, *, is_loopback: bool
    ) -> None:
        self._keys = keys
        self._anonymous = anonymous
        self._is_loopback = is_loopback

    @classmethod
    def from_settings(cls, settings: Settings) -> Access:
        """Raises KeysError if the key file is damaged or the setting names an unknown scope."""
        keys = KeyRing(settings.keys or settings.bundles / FILE)
        return cls(keys, anonymous_scopes(settings), is_loopback=is_loopback(settings.host))

    def authorize(self, scope: Scope, needed: str, kept: Bounds | None = None) -> None:
        """Check the scope of a caller, and note the id of its key in the ASGI scope. Raises Unauthorized, Forbidden.

        Args:
            kept: the bounds of keys that the route keeps to: their collections, or these and their filter.
        """
        key = self._authorize(scope, needed, _bearer_token(scope["headers"]))
        if key is None or (key.collections is None and key.filter is None):
            return
        if kept is None or (key.filter is not None and kept != "filter"):
            bound = "collections" if key.filter is None else "a filter"
            raise Forbidden(
                f"The API key {key.id!r} is bound to {bound}, so it is not for this path."
            )
        scope[BOUND] = key

    def authorize_public(self, scope: Scope, needed: str, token: str | None) -> None:
        """Check a key that everybody can read, in an address: it must have the needed scope alone. Raises as
        `authorize`.
        """
        key = self._authorize(scope, needed, token)
        if key is not None and (key.scopes != {needed} or key.collections is not None):
            raise Forbidden(
                f"The API key {key.id!r} is for more than {needed!r}, or bound, so it must not be in an address."
            )

    def _authorize(self, scope: Scope, needed: str, token: str | None) -> Key | None:
        if token is None:
            if needed not in self._anonymous_scopes():
                raise Unauthorized
            return None
        key = self._keys.find(token)
        if key is None:
            raise Unauthorized("Unknown or expired API key.")
        # Also for a forbidden request: the log and the rate limiter count it for this key.
        scope[CLIENT] = key.id
        if not key.permits(needed):
            raise Forbidden(f"The API key {key.id!r} does not have the scope {needed!r}.")
        return key

    def permits(self, headers: Iterable[tuple[bytes, bytes]], scope: str) -> bool:
        """Return whether the caller of an authorized request has another scope too."""
        token = _bearer_token(headers)
        if token is None:
            return scope in self._anonymous_scopes()
        key = self._keys.find(token)
        return key is not None and key.permits(scope)

    @property
    def trusts_this_machine(self) -> bool:
        """Whether callers without a key may do what they may only because no other machine can connect."""
        if self._anonymous is not None:
            return self._is_loopback and "ingest" in self._anonymous
        return self._is_loopback and not self._keys.is_in_use

    def require_protection(self) -> None:
        """Raise FullrankError if other machines can connect and neither a key nor a setting controls their access."""
        if not (self._is_loopback or self._anonymous is not None or self._keys.has_active_key()):
            raise FullrankError(
                "refusing to listen beyond this machine without API keys: create one with "
                "`fullrank keys create`, or set FULLRANK_ANONYMOUS, such as FULLRANK_ANONYMOUS=search"
            )

    def _anonymous_scopes(self) -> frozenset[str]:
        if self._anonymous is not None:
            return self._anonymous
        return LOOPBACK_SCOPES if self._is_loopback and not self._keys.is_in_use else frozenset()


def anonymous_scopes(settings: Settings) -> frozenset[str] | None:
    """Read FULLRANK_ANONYMOUS; None if it is not set. Raises KeysError."""
    if settings.anonymous is None:
        return None
    names = [name.strip() for name in settings.anonymous.split(",")]
    if names == [NONE]:
        return frozenset()
    try:
        scopes = checked_scopes(names)
    except KeysError as error:
        raise KeysError(f"FULLRANK_ANONYMOUS: {error}, or none") from None
    if "admin" in scopes:
        raise KeysError("FULLRANK_ANONYMOUS: the scope admin always needs an API key")
    return scopes


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    for name, value in headers:
        if name == b"authorization":
            if value[:7].lower() == b"bearer ":
                return value[7:].strip().decode("latin-1")
            return None
    return None
