"""The folder of segments: list and read them."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank.events.merged import held_elsewhere, overlapping
from fullrank.events.sealed import SEALED, checksum_file, is_segment, name_of
from fullrank.events.segments import OPEN


class SegmentError(FullrankError):
    """A segment cannot be read."""


def list_segments(folder: Path, kind: str) -> list[Path]:
    """Return the segments of a kind, the oldest first; ``read_all`` reads each of their lines once.

    Raises:
        SegmentError: A file has no time in its name.
    """
    # The open ones first: one that is sealed in between is found again.
    found = {path.name.removesuffix(OPEN): path for path in folder.glob(f"{kind}-*{OPEN}")}
    found |= {path.name.removesuffix(SEALED): path for path in folder.glob(f"{kind}-*{SEALED}")}
    for path in found.values():
        if not is_segment(path):
            raise SegmentError(f"{path}: is not the name of a segment; move the file away")
    held = {name_of(path) for path in held_elsewhere(found.values())}
    return [found[name] for name in sorted(found.keys() - held)]


def read_all(paths: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield the lines of segments, each with its segment. A line that several merged ones hold comes once.

    Args:
        paths: As ``list_segments`` returns them, or some of those.

    Raises:
        SegmentError: As ``read_lines``.
    """
    others = overlapping(paths)
    again = {path for found in others.values() for path in found}
    counts: dict[Path, Counter[bytes]] = {path: Counter() for path in again}
    for path in paths:
        seen: Counter[bytes] = Counter()
        for other in others.get(path, ()):
            seen |= counts[other]
        for line in read_lines(path):
            if path in again or seen:
                digest = blake2b(line, digest_size=16).digest()
                if path in again:
                    counts[path][digest] += 1
                if seen[digest]:
                    seen[digest] -= 1
                    continue
            yield path, line


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
    total = 0
    for path in folder.glob("*.jsonl*"):
        with suppress(FileNotFoundError):  # upkeep removes and merges segments meanwhile
            total += path.stat().st_size
    return total
