"""Store API keys: a file with the id, scopes, token hash, expiry and bounds of each key.

A token is 256 random bits and cannot be guessed, so one SHA-256 protects it; slow password hashes are not needed.
Workers check the file for changes, so creating, revoking and rotating keys needs no restart.

Who holds a token can derive tokens of tenants from it without the service. They name their bounds, and are signed with
the hash of the token, which the file has:

    frt_ payload . HMAC-SHA256(key: SHA-256(token) in hex, message: payload)        both parts in base64url, unpadded
    payload = {"key": id, "collections": [name], "filter": {…}, "expires": seconds since 1970}
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from logging import getLogger
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fullrank.errors import FullrankError
from fullrank.filters.query import parse_filter
from fullrank.storage.files import replace_file
from fullrank.storage.strict_json import parse_time
from fullrank_service.base.settings import reasons

SCOPES = ("search", "ingest", "events", "admin")
FILE = "keys.json"
_ID = "^[a-z0-9][a-z0-9-]{0,39}$"
_PREFIX, _TENANT = "fr_", "frt_"
_MAX_TENANT_CHARS = 8_192
# Compared with the token of an unknown id, so that it takes as long as a wrong token.
_UNKNOWN_HASH = "0" * 64
_log = getLogger(__name__)


class KeysError(FullrankError):
    """The key file, or a request to change it, is not valid; the message says why."""


def _scope(name: str) -> str:
    if name not in SCOPES:
        raise ValueError(f"is not one of {', '.join(SCOPES)}")
    return name


@dataclass(frozen=True, slots=True)
class Key:
    """One key, without its token.

    Attributes:
        expires: Seconds since 1970; None: never.
        collections: The only collections that requests with the key see; None: all.
        filter: Only documents that match it are there for requests with the key; None: all.
    """

    id: Annotated[str, Field(pattern=_ID)]
    scopes: frozenset[Annotated[str, AfterValidator(_scope)]]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    created: str
    expires: Annotated[float, BeforeValidator(partial(parse_time, needs_offset=True))] | None = None
    collections: frozenset[str] | None = None
    filter: dict[str, Any] | None = None

    def permits(self, scope: str) -> bool:
        """Return whether the key has a scope; `admin` includes `search`, which the search page needs."""
        return scope in self.scopes or (scope == "search" and "admin" in self.scopes)

    @property
    def expires_at(self) -> str | None:
        """When the key expires, as ISO 8601."""
        if self.expires is None:
            return None
        return datetime.fromtimestamp(self.expires, UTC).isoformat()

    def is_expired(self) -> bool:
        return self.expires is not None and time.time() >= self.expires


def checked_scopes(names: Sequence[str]) -> frozenset[str]:
    """Give the scopes as a set. Raises KeysError that names the unknown ones."""
    unknown = sorted(set(names) - set(SCOPES))
    if unknown:
        raise KeysError(f"unknown scope: {', '.join(unknown)}; the scopes are {', '.join(SCOPES)}")
    return frozenset(names)


class _File(BaseModel):
    keys: list[Key]


class _Tenant(BaseModel):
    """What a derived token says."""

    model_config = ConfigDict(strict=True, extra="forbid")

    key: str
    collections: frozenset[str] | None = None
    filter: dict[str, Any] | None = None
    expires: Annotated[float, Field(allow_inf_nan=False)] | None = None

    @property
    def has_empty(self) -> bool:
        """Whether a bound is null or empty, as where a program lacks the tenant: it would show everything."""
        return not all(self.model_dump(exclude_unset=True).values())


def read_keys(path: Path) -> dict[str, Key] | None:
    """Read the keys by id; None if there is no file. Raises KeysError."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o002:
                raise KeysError(f"{path}: every user can write it; run `chmod o-w {path}`")
            keys = _File.model_validate_json(file.read(), strict=True).keys
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeysError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise KeysError(f"{path}: not a key file: {reasons(error)}") from None
    found = {key.id: key for key in keys}
    if len(found) < len(keys):
        raise KeysError(f"{path}: two keys have the same id")
    return found


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def bounds_of(key: Key) -> dict[str, Any]:
    """Return the collections and the filter of a key, ready for JSON, where it has them."""
    found: dict[str, Any] = {} if key.filter is None else {"filter": key.filter}
    return found if key.collections is None else {"collections": sorted(key.collections), **found}


def _write(path: Path, keys: Sequence[Key]) -> None:
    entries = [
        {
            "id": key.id,
            "scopes": sorted(key.scopes, key=SCOPES.index),
            "sha256": key.sha256,
            "created": key.created,
            "expires": key.expires_at,
            **bounds_of(key),
        }
        for key in keys
    ]
    replace_file(path, json.dumps({"keys": entries}, indent=1), mode=0o600)


@contextmanager
def _locked_keys(path: Path) -> Iterator[dict[str, Key]]:
    """Lock the file and give its keys by id; write them back unless the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        keys = read_keys(path) or {}
        yield keys
        _write(path, list(keys.values()))
    finally:
        os.close(descriptor)


def create_key(
    path: Path,
    scopes: Sequence[str],
    id: str | None = None,
    days: float | None = None,
    *,
    collections: Sequence[str] = (),
    filter: dict[str, Any] | None = None,
) -> tuple[Key, str]:
    """Create a key and add it to the file; return it and its token, which is stored nowhere.

    Args:
        id: name of the key; None draws one.
        days: lifetime; None: until the key is revoked.
        collections: as of Key; empty: all.
        filter: as of Key.

    Raises:
        KeysError: an unknown scope, one that a key with such bounds may not have, an empty filter, an id that is not
            valid or already exists, or a damaged file.
        FilterError: the filter is not valid.
    """
    if not scopes:
        raise KeysError(f"a key needs a scope: {', '.join(SCOPES)}")
    allowed = checked_scopes(scopes)
    if filter is not None and allowed != {"search"}:
        raise KeysError("a key with a filter may have no scope but search")
    if collections and not allowed <= {"search", "ingest"}:
        raise KeysError("a key of some collections may have no scopes but search and ingest")
    _check_filter(filter)
    id = secrets.token_hex(4) if id is None else id
    if not re.fullmatch(_ID, id):
        raise KeysError(
            f"{id!r} is not a key id; use up to 40 lower case letters, digits and hyphens"
        )
    now = datetime.now(UTC).replace(microsecond=0)
    expires = None if days is None else (now + timedelta(days=days)).timestamp()
    token = f"{_PREFIX}{id}_{secrets.token_urlsafe(32)}"
    names = frozenset(collections) or None
    key = Key(id, allowed, _digest(token), now.isoformat(), expires, names, filter)
    with _locked_keys(path) as keys:
        if id in keys:
            raise KeysError(f"the key {id!r} already exists; revoke it, or choose another id")
        keys[id] = key
    return key, token


def _check_filter(filter: dict[str, Any] | None) -> None:
    if filter is not None:
        parse_filter(filter)
    if filter == {}:
        raise KeysError("an empty filter would bind the key to nothing; leave it out to permit all")


def revoke_key(path: Path, id: str) -> None:
    """Remove a key from the file. Raises KeysError if it is not there."""
    if read_keys(path) is None:
        raise KeysError(f"{path}: no such file")
    with _locked_keys(path) as keys:
        if keys.pop(id, None) is None:
            raise KeysError(f"{path}: no key {id!r}")


def derive_key(
    token: str,
    *,
    collections: Sequence[str] = (),
    filter: dict[str, Any] | None = None,
    expires: float | None = None,
) -> str:
    """Derive the token of a tenant from that of a key with the scope search. It may search within both their bounds.

    Args:
        expires: in seconds since 1970; None: with the key.

    Raises:
        KeysError: the token is not that of a key, or the filter is empty.
        FilterError: the filter is not valid.
    """
    id, _, secret = token.removeprefix(_PREFIX).partition("_")
    if not (token.startswith(_PREFIX) and re.fullmatch(_ID, id) and secret):
        raise KeysError("not the token of a key that `fullrank keys create` has made")
    _check_filter(filter)
    given = {"key": id, "collections": [*collections] or None, "filter": filter, "expires": expires}
    content = json.dumps({name: value for name, value in given.items() if value is not None})
    payload = _base64(content.encode())
    derived = f"{_TENANT}{payload}.{_signature(_digest(token), payload)}"
    if len(derived) > _MAX_TENANT_CHARS:
        raise KeysError(f"the token would have more than {_MAX_TENANT_CHARS} characters")
    return derived


def _signature(sha256: str, payload: str) -> str:
    return _base64(hmac.digest(sha256.encode(), payload.encode(), "sha256"))


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class KeyRing:
    """The current keys of the file, which is checked for changes every `check_s` seconds.

    If the file becomes unreadable, the last valid keys stay in force and the log reports it. If it is deleted, nobody
    has a key; the lock beside it tells later starts that there was one.
    """

    def __init__(
        self, path: Path, check_s: float = 0.5, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises KeysError if the file is damaged."""
        self._path = path
        self._check_s = check_s
        self._clock = clock
        self._read_fingerprint = self._fingerprint()
        self._keys: Mapping[str, Key] = MappingProxyType({})
        self._is_in_use = False
        self._set_keys(read_keys(path))
        self._next = clock() + check_s

    @property
    def is_in_use(self) -> bool:
        """Whether there is a key file, even without a key, or has been one."""
        self._refresh()
        return self._is_in_use

    def has_active_key(self) -> bool:
        self._refresh()
        return any(not key.is_expired() for key in self._keys.values())

    def find(self, token: str) -> Key | None:
        """Find the key of a token; None if it is unknown or expired. Compares hashes in constant time."""
        self._refresh()
        if token.startswith(_TENANT):
            return self._tenant(token)
        prefixed = token.startswith(_PREFIX)
        key = self._keys.get(token[len(_PREFIX) :].partition("_")[0]) if prefixed else None
        same = hmac.compare_digest(_digest(token), key.sha256 if key is not None else _UNKNOWN_HASH)
        return key if key is not None and same and not key.is_expired() else None

    def _tenant(self, token: str) -> Key | None:
        payload, _, signature = token[len(_TENANT) :].partition(".")
        try:
            padded = payload.encode("ascii") + b"=" * (-len(payload) % 4)
            given = _Tenant.model_validate_json(base64.b64decode(padded, b"-_", validate=True))
        except ValueError:
            return None
        key = self._keys.get(given.key)
        expected = _signature(_UNKNOWN_HASH if key is None else key.sha256, payload)
        same = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogatepass"))
        if key is None or not same or len(token) > _MAX_TENANT_CHARS or not key.permits("search"):
            return None
        if given.has_empty:
            return None
        ends = [end for end in (key.expires, given.expires) if end is not None]
        names = [set(one) for one in (key.collections, given.collections) if one is not None]
        filters = [one for one in (key.filter, given.filter) if one is not None]
        tenant = replace(
            key,
            # Its own, so that one tenant does not use up the requests of the others.
            id=f"{key.id}.{signature[:8]}",
            scopes=frozenset(("search",)),
            expires=min(ends, default=None),
            collections=frozenset(set.intersection(*names)) if names else None,
            filter={"and": filters} if len(filters) > 1 else next(iter(filters), None),
        )
        return None if key.is_expired() or tenant.is_expired() else tenant

    def _refresh(self) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._check_s
        fingerprint = self._fingerprint()
        if fingerprint == self._read_fingerprint:
            return
        self._read_fingerprint = fingerprint
        try:
            self._set_keys(read_keys(self._path))
        except KeysError as error:
            _log.error("the last valid keys stay in force: %s", error)
        else:
            _log.info("read %d keys from %s", len(self._keys), self._path)

    def _set_keys(self, keys: dict[str, Key] | None) -> None:
        if keys is not None:
            self._is_in_use = True
            with suppress(OSError):  # a read-only folder
                _lock_of(self._path).touch(0o600)
        elif _lock_of(self._path).exists():
            self._is_in_use = True
            _log.warning("%s is missing: callers without a key may do nothing", self._path)
        self._keys = MappingProxyType(keys or {})

    def _fingerprint(self) -> tuple[int, int, int, int] | None:
        for path in (self._path, _lock_of(self._path)):
            with suppress(OSError):
                stat = path.stat()
                return stat.st_ino, stat.st_mtime_ns, stat.st_size, stat.st_mode
        return None
