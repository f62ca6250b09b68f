"""The folder of segments: list, read and expire them."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from io import BufferedReader
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank.events.merged import held_elsewhere
from fullrank.events.sealed import SEALED, begun, checksum_file, name_of, remove_sealed
from fullrank.events.segments import OPEN


class SegmentError(FullrankError):
    """A segment cannot be read."""


def list_segments(folder: Path, kind: str) -> list[Path]:
    """Return the segments of a kind, the oldest first; no line is in two of them."""
    # The open ones first: one that is sealed in between is found again.
    found = {path.name.removesuffix(OPEN): path for path in folder.glob(f"{kind}-*{OPEN}")}
    found |= {path.name.removesuffix(SEALED): path for path in folder.glob(f"{kind}-*{SEALED}")}
    held = {name_of(path) for path in held_elsewhere(found.values())}
    return [found[name] for name in sorted(found.keys() - held)]


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a segment, without their line ends.

    A segment that was sealed since it was listed is read where it is now; one that was removed since has no lines.

    Raises:
        SegmentError: The checksum of a sealed segment is missing or differs, or the file cannot be read.
    """
    try:
        if path.name.endswith(OPEN):
            with suppress(FileNotFoundError):
                with path.open("rb") as file:
                    yield from (line[:-1] for line in file if line.endswith(b"\n"))
                return
            path = path.with_suffix(SEALED)
        while path.exists():
            with suppress(FileNotFoundError), path.open("rb") as file:
                if _is_whole(path, file):
                    with gzip.GzipFile(fileobj=file) as lines:
                        yield from (line[:-1] for line in lines)
                    return
    except (OSError, EOFError, zlib.error) as error:
        raise SegmentError(f"{path}: cannot be read: {error}") from error


def _is_whole(path: Path, file: BufferedReader) -> bool:
    """Check an open segment against its checksum; return False if compaction has replaced or removed it."""
    found = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    stored = checksum_file(path)
    wanted = _checksums(stored)
    if found in wanted:
        return True
    if path.stat().st_ino != os.fstat(file.fileno()).st_ino:
        return False
    how = "differs from" if wanted else "is missing:"
    raise SegmentError(f"{path}: damaged: its checksum {how} {stored.name}")


def _checksums(stored: Path) -> list[str]:
    try:
        return [line.split(" ")[0] for line in stored.read_text("utf-8").splitlines()]
    except FileNotFoundError:
        return []


def size_of(folder: Path) -> int:
    """Return the bytes of all segments."""
    return sum(path.stat().st_size for path in folder.glob("*.jsonl*"))


def expire(folder: Path, before: datetime) -> list[Path]:
    """Remove the sealed segments that were begun before a time; return their paths."""
    gone = [path for path in sorted(folder.glob(f"*{SEALED}")) if begun(path) < before]
    for path in gone:
        remove_sealed(path)
    return gone
