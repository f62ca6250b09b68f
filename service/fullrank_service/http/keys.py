"""Store API keys: a file with the id, scopes, token hash and expiry of each key.

A token is 256 random bits and cannot be guessed, so one SHA-256 protects it; slow password hashes are not needed.
Workers check the file for changes, so creating, revoking and rotating keys needs no restart.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from logging import getLogger
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from fullrank.errors import FullrankError
from fullrank.storage.files import replace_file
from fullrank.storage.strict_json import parse_time
from fullrank_service.base.settings import reasons

SCOPES = ("search", "ingest", "events", "admin")
FILE = "keys.json"
_ID = "^[a-z0-9][a-z0-9-]{0,39}$"
_PREFIX = "fr_"
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
    """One key, without its token. `expires`: seconds since 1970; None: never."""

    id: Annotated[str, Field(pattern=_ID)]
    scopes: frozenset[Annotated[str, AfterValidator(_scope)]]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    created: str
    expires: Annotated[float, BeforeValidator(partial(parse_time, needs_offset=True))] | None = None

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


def _write(path: Path, keys: Sequence[Key]) -> None:
    entries = [
        {
            "id": key.id,
            "scopes": sorted(key.scopes, key=SCOPES.index),
            "sha256": key.sha256,
            "created": key.created,
            "expires": key.expires_at,
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
    path: Path, scopes: Sequence[str], id: str | None = None, days: float | None = None
) -> tuple[Key, str]:
    """Create a key and add it to the file; return it and its token, which is stored nowhere.

    Args:
        id: name of the key; None draws one.
        days: lifetime; None: until the key is revoked.

    Raises:
        KeysError: an unknown scope, an id that is not valid or already exists, or a damaged file.
    """
    if not scopes:
        raise KeysError(f"a key needs a scope: {', '.join(SCOPES)}")
    allowed = checked_scopes(scopes)
    id = secrets.token_hex(4) if id is None else id
    if not re.fullmatch(_ID, id):
        raise KeysError(
            f"{id!r} is not a key id; use up to 40 lower case letters, digits and hyphens"
        )
    now = datetime.now(UTC).replace(microsecond=0)
    expires = None if days is None else (now + timedelta(days=days)).timestamp()
    token = f"{_PREFIX}{id}_{secrets.token_urlsafe(32)}"
    key = Key(id, allowed, _digest(token), now.isoformat(), expires)
    with _locked_keys(path) as keys:
        if id in keys:
            raise KeysError(f"the key {id!r} already exists; revoke it, or choose another id")
        keys[id] = key
    return key, token


def revoke_key(path: Path, id: str) -> None:
    """Remove a key from the file. Raises KeysError if it is not there."""
    if read_keys(path) is None:
        raise KeysError(f"{path}: no such file")
    with _locked_keys(path) as keys:
        if keys.pop(id, None) is None:
            raise KeysError(f"{path}: no key {id!r}")


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
        prefixed = token.startswith(_PREFIX)
        key = self._keys.get(token[len(_PREFIX) :].partition("_")[0]) if prefixed else None
        same = hmac.compare_digest(_digest(token), key.sha256 if key is not None else _UNKNOWN_HASH)
        return key if key is not None and same and not key.is_expired() else None

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
