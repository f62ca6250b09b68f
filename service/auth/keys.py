"""API keys: a file of hashes, and who may do what.

The file holds for each key its id, its scopes, the SHA-256 of the token and when it was made and ends. A token is
256 random bits, so its hash can be kept fast: there is nothing to guess. The token is shown once, when it is made.

    {"keys": [{"id": "shop", "scopes": ["search"], "sha256": "…", "created": "2026-11-21T10:00:00+00:00",
               "expires": null}]}

Workers follow the file by a stat: making, revoking and rotating keys needs no restart. Only the standard library is
imported here, so that the command line works without the web server.
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
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from logging import getLogger
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fullrank.errors import FullrankError
from fullrank.storage.files import replace_file

SCOPES = ("search", "ingest", "events", "admin")
FILE = "keys.json"
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PREFIX = "fr_"
# Compared with where no key has the id, so that an unknown id takes as long as a wrong secret.
_NOBODY = "0" * 64
_log = getLogger(__name__)


class KeysError(FullrankError):
    """The file of keys, or what was asked of it, is not as it should be; the message says how."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key; expires is seconds since 1970 or None. The token itself is nowhere."""

    id: str
    scopes: frozenset[str]
    sha256: str
    created: str
    expires: float | None = None

    def ended(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and time.time() >= self.expires


def checked_scopes(names: Sequence[str]) -> frozenset[str]:
    """Raises KeysError naming what is no scope."""
    unknown = sorted(set(names) - set(SCOPES))
    if unknown:
        raise KeysError(f"no such scope: {', '.join(unknown)}; there are {', '.join(SCOPES)}")
    return frozenset(names)


# -- the file ---------------------------------------------------------------------------------


def read_keys(path: Path) -> dict[str, Key] | None:
    """The keys by id; None where there is no file. Raises KeysError."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o002:
                raise KeysError(f"{path}: everyone on this machine can write it (chmod o-w)")
            entries = json.load(file)["keys"]
        if not isinstance(entries, list):
            raise TypeError("keys is no list")
        keys = [_key(entry) for entry in entries]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeysError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KeysError(f"{path}: not a file of keys ({type(error).__name__}: {error})") from error
    found = {key.id: key for key in keys}
    if len(found) < len(keys):
        raise KeysError(f"{path}: an id stands twice")
    return found


def _key(entry: Mapping[str, Any]) -> Key:
    """Raises ValueError, KeyError or TypeError for what is no entry."""
    id, scopes, sha256, created = (entry[k] for k in ("id", "scopes", "sha256", "created"))
    expires = entry.get("expires")
    if not _ID.fullmatch(id):
        raise ValueError("an id is not lower case letters, digits and hyphens")
    if not isinstance(scopes, list) or not set(scopes) <= set(SCOPES):
        raise ValueError(f"the scopes of {id} are not among {', '.join(SCOPES)}")
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"the sha256 of {id} is none")
    if not isinstance(created, str):
        raise TypeError(f"created of {id} is no text")
    ends = None if expires is None else datetime.fromisoformat(expires)
    if ends is not None and ends.tzinfo is None:
        raise ValueError(f"expires of {id} has no time zone")
    return Key(id, frozenset(scopes), sha256, created, None if ends is None else ends.timestamp())


def _write(path: Path, keys: Sequence[Key]) -> None:
    entries = [
        {
            "id": key.id,
            "scopes": sorted(key.scopes, key=SCOPES.index),
            "sha256": key.sha256,
            "created": key.created,
            "expires": None
            if key.expires is None
            else datetime.fromtimestamp(key.expires, UTC).isoformat(),
        }
        for key in keys
    ]
    replace_file(path, json.dumps({"keys": entries}, indent=1), mode=0o600)


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, Key]]:
    """What the file holds, to be changed; written when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(
        path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
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
    """Add a key to the file, which is made where absent; gives the key and, this once, its token.

    id None: one is drawn. days: how long it is good; None: until it is revoked. Raises KeysError.
    """
    if not scopes:
        raise KeysError(f"a key needs a scope: {', '.join(SCOPES)}")
    allowed = checked_scopes(scopes)
    id = secrets.token_hex(4) if id is None else id
    if not _ID.fullmatch(id):
        raise KeysError(f"{id!r} is no id: up to 40 lower case letters, digits and hyphens")
    now = datetime.now(UTC).replace(microsecond=0)
    expires = None if days is None else (now + timedelta(days=days)).timestamp()
    token = f"{_PREFIX}{id}_{secrets.token_urlsafe(32)}"
    key = Key(id, allowed, _digest(token), now.isoformat(), expires)
    with _changing(path) as keys:
        if id in keys:
            raise KeysError(f"there is a key {id!r} already; revoke it, or choose another id")
        keys[id] = key
    return key, token


def revoke_key(path: Path, id: str) -> None:
    """Take a key out of the file. Raises KeysError where there is none."""
    if read_keys(path) is None:
        raise KeysError(f"{path}: there is no such file")
    with _changing(path) as keys:
        if keys.pop(id, None) is None:
            raise KeysError(f"there is no key {id!r} in {path}")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


# -- following it -----------------------------------------------------------------------------


class KeyRing:
    """The keys as the file has them now, looked at again after check_s at the earliest.

    present  there is such a file: from then on nobody is let in who has no key, even when it holds none
    A file that cannot be read any more leaves the last good keys in force, and says so in the log.
    """

    def __init__(
        self, path: Path, check_s: float = 0.5, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises KeysError where there is a file that is none."""
        self._path = path
        self._check_s = check_s
        self._clock = clock
        self._seen = self._fingerprint()
        self._keys: Mapping[str, Key] = MappingProxyType({})
        self._take(read_keys(path))
        self._next = clock() + check_s

    @property
    def present(self) -> bool:
        self._follow()
        return self._present

    def usable(self) -> bool:
        """Whether any key would be let in now."""
        self._follow()
        return any(not key.ended() for key in self._keys.values())

    def find(self, token: str) -> Key | None:
        """The key that this token is, or None; the hashes are compared in constant time."""
        self._follow()
        prefixed = token.startswith(_PREFIX)
        key = self._keys.get(token[len(_PREFIX) :].partition("_")[0]) if prefixed else None
        same = hmac.compare_digest(_digest(token), key.sha256 if key is not None else _NOBODY)
        return key if key is not None and same and not key.ended() else None

    def _follow(self) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._check_s
        seen = self._fingerprint()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._take(read_keys(self._path))
        except KeysError as error:
            _log.error("the keys of before stay in force: %s", error)
        else:
            _log.info("%d keys read from %s", len(self._keys), self._path)

    def _take(self, keys: dict[str, Key] | None) -> None:
        self._present = keys is not None
        self._keys = MappingProxyType(keys or {})

    def _fingerprint(self) -> tuple[int, int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size, stat.st_mode
