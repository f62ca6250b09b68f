"""People in the log: pseudonyms, and who has been erased."""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import orjson

from fullrank.errors import FullrankError
from fullrank.events.lists import PEOPLE
from fullrank.storage.files import FileFingerprint, fingerprint, replace_file, sync_folder

ERASED = "erased.json"
_LOCK = ".erased.lock"
_KEY_BYTES = 32
Erasures = FileFingerprint
"""State of the list of erased people."""


class KeyDamaged(FullrankError):
    """The key of the pseudonyms cannot be read; the message says why."""


class Pseudonyms:
    """Replaces the ids of people by HMAC-SHA256 under a secret key, cut to 128 bits.

    Args:
        key: 32 bytes. Who has them can find a known id in the log, so they lie outside of it.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, id: str) -> str:
        """Return the pseudonym of an id, 32 hexadecimal digits."""
        # hmac.digest lets other threads run, and the event loop would wait for them.
        text = id.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, "sha256").hexdigest()[:32]

    def replace(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return texts with pseudonyms for ids of people."""
        return {name: self.of(text) if name in PEOPLE else text for name, text in texts.items()}


def read_key(path: Path) -> bytes:
    """Read the key; make one if the file does not exist. Processes that do so at once agree.

    Raises:
        KeyDamaged: The file is not a key, or cannot be read or written.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, secrets.token_bytes(_KEY_BYTES))
                os.fsync(file)
                with suppress(FileExistsError):  # another process was first
                    path.hardlink_to(temporary)
            finally:
                os.close(file)
                temporary.unlink()
            sync_folder(path.parent)
        key = path.read_bytes()
    except OSError as error:
        raise KeyDamaged(f"{path}: {error.strerror or error}") from error
    if len(key) != _KEY_BYTES:
        raise KeyDamaged(f"{path}: has {len(key)} bytes, not {_KEY_BYTES}")
    return key


def key_for(key: bytes, purpose: bytes) -> bytes:
    """Derive 32 bytes for another purpose: HKDF-SHA256 without a salt, RFC 5869.

    Pseudonyms are HMACs under the key itself, of ids that callers choose, so nothing else may be.
    """
    extracted = hmac.digest(b"", key, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def read_erased(folder: Path) -> dict[str, float]:
    """Return who was erased from a log, and when, in seconds since 1970.

    Raises:
        FullrankError: The file is damaged.
    """
    path = folder / ERASED
    try:
        found = orjson.loads(path.read_bytes())
        return {str(who): float(at) for who, at in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FullrankError(f"{path}: {type(error).__name__}: {error}") from error


def erase(folder: Path, who: Iterable[str], at: float) -> None:
    """Hide all that some people did up to now from every reader; `compact` removes it from the disk.

    Args:
        folder: Of the log.
        who: Pseudonyms.
        at: Now, in seconds since 1970.

    Raises:
        FullrankError: The list of the erased is damaged.
        OSError: It cannot be written.
    """
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = read_erased(folder) | dict.fromkeys(who, at)
        replace_file(folder / ERASED, orjson.dumps(known).decode() + "\n", 0o600)


def erasures(folder: Path) -> Erasures:
    """Return the state of the list of erased people of a log; one stat call.

    A reader that remembers what it read takes it before it reads. If it differs later, somebody was erased since, by
    any process, and what the reader remembers may hold what this person did.
    """
    return fingerprint(folder / ERASED)


def drop_erased(folder: Path, before: float) -> None:
    """Forget who was erased before a time, in seconds since 1970, when no record is so old any more.

    Raises:
        FullrankError: The list of the erased is damaged.
        OSError: It cannot be written.
    """
    if not any(at < before for at in read_erased(folder).values()):
        return
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = {who: at for who, at in read_erased(folder).items() if at >= before}
        replace_file(folder / ERASED, orjson.dumps(kept).decode() + "\n", 0o600)


def is_erased(erased: Mapping[str, float], texts: Mapping[str, str], at: float) -> bool:
    """Return whether a record names a person who was erased after it was made."""
    return any(at <= erased.get(texts.get(name, ""), -1.0) for name in PEOPLE)
