"""Sealed segments: compressed, and only ever replaced or removed as a whole, each with its checksum."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fullrank.storage.files import replace_file, sync_folder

SEALED, CHECKSUM = ".jsonl.gz", ".jsonl.gz.sha256"
_IMPORTED, _REMARK = "i", re.compile(r"^# imported (\d+)$", re.MULTILINE)
TIME = "%Y%m%dT%H%M%SZ"


def begun(path: Path) -> datetime:
    """Return when a segment was begun. Raises ValueError if the name is not that of a segment."""
    _, start, _ = path.name.split(".")[0].split("-")
    return datetime.strptime(start, TIME).replace(tzinfo=UTC)


def imported_name(kind: str, at: float) -> str:
    """Return a file name for imported records that were made from a time on, in seconds since 1970."""
    start = datetime.fromtimestamp(at, UTC).strftime(TIME)
    return f"{kind}-{start}-{_IMPORTED}{secrets.token_hex(4)}{SEALED}"


def imported_remark(now: float) -> str:
    """Return the remark of the checksum file that says when records were imported."""
    return f"# imported {now:.0f}\n"


def is_imported(path: Path) -> bool:
    """Return whether a segment was imported."""
    return path.name.rpartition("-")[2].startswith(_IMPORTED)


def kept_since(path: Path) -> float:
    """Return when the retention of a sealed segment began, in seconds since 1970: when it was begun or imported."""
    if is_imported(path):
        with suppress(FileNotFoundError):
            if remark := _REMARK.search(checksum_file(path).read_text("utf-8")):
                return float(remark[1])
    return begun(path).timestamp()


def is_segment(path: Path) -> bool:
    """Return whether a file has the name of a segment."""
    try:
        begun(path)
    except ValueError:
        return False
    return True


def name_of(path: Path) -> str:
    """Return the name of a sealed segment without its suffixes."""
    return path.name.removesuffix(SEALED)


def checksum_file(path: Path) -> Path:
    """Return where the checksum of a sealed segment stands."""
    return path.with_name(name_of(path) + CHECKSUM)


def write_sealed(path: Path, pieces: Iterable[bytes], remarks: str = "") -> str:
    """Write a sealed segment, or replace one.

    Its checksum file first names the new checksum beside the old one, so that a reader finds a segment that fits its
    checksum at every moment, and a crash at any moment leaves the old segment or the new one.

    Args:
        path: Of the segment.
        pieces: Its content, uncompressed.
        remarks: Lines for its checksum file, each after "#"; a segment that is replaced keeps those it has.

    Returns:
        The checksum.

    Raises:
        OSError: The old segment is as before.
    """
    temporary, stored = path.with_name(f".{path.name}.tmp"), checksum_file(path)
    old = stored.read_text("utf-8") if path.exists() and stored.exists() else ""
    try:
        checksum = _pack(temporary, pieces)
        kept = [line for line in old.splitlines(keepends=True) if line.startswith("#")]
        entry = "".join([f"{checksum}  {path.name}\n", remarks, *kept])
        replace_file(stored, entry + old, 0o600)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    if old:
        replace_file(stored, entry, 0o600)
    return checksum


def remove_sealed(path: Path) -> None:
    """Remove a sealed segment with its checksum. A crash in between leaves a checksum of nothing."""
    path.unlink(missing_ok=True)
    checksum_file(path).unlink(missing_ok=True)


def _pack(path: Path, pieces: Iterable[bytes]) -> str:
    """Write a compressed file and sync it; return its SHA-256."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        # Without a time, so that the same content gives the same bytes.
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            packed.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
