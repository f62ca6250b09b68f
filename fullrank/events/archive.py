"""The folder of segments: list, read and expire them."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank.events.segments import CHECKSUM, OPEN, SEALED, begun


class SegmentError(FullrankError):
    """A segment cannot be read."""


def list_segments(folder: Path, kind: str) -> list[Path]:
    """Return the segments of a kind, the oldest first; one that is being sealed is listed once."""
    sealed = {path.name.removesuffix(SEALED): path for path in folder.glob(f"{kind}-*{SEALED}")}
    others = {path.name.removesuffix(OPEN): path for path in folder.glob(f"{kind}-*{OPEN}")}
    found = others | sealed
    return [found[name] for name in sorted(found)]


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a segment, without their line ends.

    Raises:
        SegmentError: The checksum of a sealed segment is missing or differs, or the file cannot be read.
    """
    try:
        if path.name.endswith(SEALED):
            _check(path)
            with gzip.open(path) as lines:
                yield from (line[:-1] for line in lines)
            return
        with path.open("rb") as file:
            yield from (line[:-1] for line in file if line.endswith(b"\n"))
    except (OSError, EOFError, zlib.error) as error:
        raise SegmentError(f"{path}: cannot be read: {error}") from error


def _check(path: Path) -> None:
    stored = path.with_name(path.name.removesuffix(SEALED) + CHECKSUM)
    wanted = stored.read_text("utf-8").split(" ")[0]
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
            raise SegmentError(f"{path}: damaged: its checksum differs from {stored.name}")


def size_of(folder: Path) -> int:
    """Return the bytes of all segments."""
    return sum(path.stat().st_size for path in folder.glob("*.jsonl*"))


def expire(folder: Path, before: datetime) -> list[Path]:
    """Remove the sealed segments that were begun before a time; return their paths."""
    gone = [path for path in sorted(folder.glob(f"*{SEALED}")) if begun(path) < before]
    for path in gone:
        path.unlink(missing_ok=True)
        path.with_name(path.name.removesuffix(SEALED) + CHECKSUM).unlink(missing_ok=True)
    return gone
