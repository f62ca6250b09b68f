"""Who may do what: keys, what callers without one may do, and the refusal to stand open by mistake.

Asked before anything of a request's body is read (guard.py); a question costs a hash of the token.
"""

from __future__ import annotations

import ipaddress
from typing import cast

from starlette.types import Scope

from fullrank.errors import FullrankError
from service.auth.keys import FILE, KeyRing, KeysError, checked_scopes
from service.errors import Forbidden, Unauthorized
from service.settings import Settings

# Without a key these are open as long as no file of keys exists and only this machine can call.
OPEN = frozenset(("search", "ingest", "events"))
NONE = "none"


class Access:
    """The keys, and the scopes of callers without one.

    anonymous None: OPEN on loopback while there is no file of keys, nothing otherwise.
    """

    def __init__(self, keys: KeyRing, anonymous: frozenset[str] | None, *, loopback: bool) -> None:
        self._keys = keys
        self._anonymous = anonymous
        self._loopback = loopback

    @classmethod
    def of(cls, settings: Settings) -> Access:
        """Raises KeysError where the file of keys is none, or the setting names no scope."""
        keys = KeyRing(settings.keys or settings.bundles / FILE)
        return cls(keys, anonymous(settings), loopback=is_loopback(settings.host))

    def require(self, scope: Scope, needed: str) -> None:
        """Raises Unauthorized or Forbidden; else notes the key's id in the request's scope."""
        token = _bearer(scope)
        if token is None:
            if needed not in self._of_anyone():
                raise Unauthorized
            return
        key = self._keys.find(token)
        if key is None:
            raise Unauthorized("The key is not known here, or its time is over.")
        # The first that proved who it is: for the log, and for what is counted by client.
        scope["fullrank.client"] = key.id
        if needed not in key.scopes:
            raise Forbidden(f"The key {key.id!r} does not have the scope {needed!r}.")

    def refuse_to_stand_open(self) -> None:
        """Raises FullrankError where others could call and nobody said who may."""
        if not (self._loopback or self._anonymous is not None or self._keys.usable()):
            raise FullrankError(
                "refusing to listen beyond this machine without keys: make one with "
                "`fullrank keys create`, or say what anyone may do, such as FULLRANK_ANONYMOUS=search"
            )

    def _of_anyone(self) -> frozenset[str]:
        if self._anonymous is not None:
            return self._anonymous
        return OPEN if self._loopback and not self._keys.present else frozenset()


def anonymous(settings: Settings) -> frozenset[str] | None:
    """What FULLRANK_ANONYMOUS says; None: nothing. Raises KeysError."""
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
        raise KeysError("FULLRANK_ANONYMOUS: admin always needs a key")
    return scopes


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bearer(scope: Scope) -> str | None:
    """The token of `Authorization: Bearer`; other schemes are somebody else's business."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            if value[:7].lower() == b"bearer ":
                return cast("bytes", value)[7:].strip().decode("latin-1")
            return None
    return None
