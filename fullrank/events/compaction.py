"""Compact the log: remove what is too old, what erased people did, and the oldest beyond a size.

A segment is rewritten under its own name; small ones are merged. Readers go on, and a crash at any moment loses no
record and doubles none.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from fullrank.events.archive import SegmentError, expire, read_lines, size_of
from fullrank.events.merged import held_elsewhere
from fullrank.events.merging import merge_small
from fullrank.events.people import drop_erased, is_erased, read_erased
from fullrank.events.sealed import (
    CHECKSUM,
    SEALED,
    begun,
    checksum_file,
    is_segment,
    remove_sealed,
    write_sealed,
)
from fullrank.events.segments import OPEN, recover
from fullrank.progress import Progress, silent
from fullrank.storage.files import replace_file, sync_folder

_LOCK, _STATE = ".compact.lock", ".compacted.json"
_HOUR_S, _DAY_S = 3600, 86_400


@dataclass(frozen=True)
class Compaction:
    """What was done.

    Attributes:
        sealed: segments of writers that had ended.
        expired: segments older than the retention.
        rewritten: segments that held records of erased people.
        erased: records that were removed from them.
        dropped: the oldest segments, beyond the size.
        merged: small segments whose lines are now in larger ones.
        bytes: size of the log now.
    """

    sealed: int
    expired: int
    rewritten: int
    erased: int
    dropped: int
    merged: int
    bytes: int

    def as_dict(self) -> dict[str, int]:
        """Return the counts under their names."""
        return asdict(self)


def compact(
    folder: Path, days: float, max_bytes: int, now: float, progress: Progress = silent
) -> Compaction:
    """Compact a log. Processes that do so at once take turns; writers and readers go on.

    Args:
        folder: of the segments; it must exist.
        days: retention.
        max_bytes: the oldest segments are removed while the log is larger.
        now: in seconds since 1970.
        progress: called for each segment that is looked through.

    Raises:
        SegmentError: a segment is damaged; those before it are done.
        OSError: a file cannot be written.
    """
    with _alone(folder):
        _remove_leftovers(folder, now - _HOUR_S)
        sealed = recover(folder)
        start = datetime.fromtimestamp(now, UTC) - timedelta(days=days)
        expired = expire(folder, start)
        # All records that they hide were in segments that have expired, but for those begun a little before.
        drop_erased(folder, now - (days + 1) * _DAY_S)
        _remove_held(folder, now - _HOUR_S)
        rewritten, erased = _erase(folder, progress)
        dropped = _shrink(folder, max_bytes)
        merged = merge_small(folder, now, progress)
        return Compaction(
            len(sealed), len(expired), rewritten, erased, dropped, merged, size_of(folder)
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_leftovers(folder: Path, before: float) -> None:
    """Remove files that a process left that was killed: temporary ones from before a time, and checksums of nothing."""
    for pattern in (".*.tmp", "*.new"):
        for path in folder.glob(pattern):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
    for path in folder.glob(f"*{CHECKSUM}"):
        name = path.name.removesuffix(CHECKSUM)
        # An open segment is removed last when it is sealed: without either, the checksum is of a removed one.
        if not (folder / f"{name}{OPEN}").exists() and not (folder / f"{name}{SEALED}").exists():
            path.unlink(missing_ok=True)


def _remove_held(folder: Path, before: float) -> None:
    """Remove segments whose lines are in a merged one since before a time: by then, no reader expects them."""
    for path, since in held_elsewhere(folder.glob(f"*{SEALED}")).items():
        if since < before:
            remove_sealed(path)


def _erase(folder: Path, progress: Progress) -> tuple[int, int]:
    """Rewrite the sealed segments that hold erased people; return how many, and how many records were removed."""
    erased = read_erased(folder)
    if not erased:
        return 0, 0
    # A checksum → the time of the newest erasure that its segment is free of.
    state = _read_state(folder / _STATE)
    newest = max(erased.values())
    segments = sorted(folder.glob(f"*{SEALED}"))
    held = held_elsewhere(segments)
    done: dict[str, float] = {}
    rewritten = removed = 0
    try:
        for i, path in enumerate(segments):
            checksum = _checksum(path)
            if state.get(checksum, -1.0) < newest:
                kept, count = _without(path, erased)
                if count:
                    checksum = _rewrite(path, kept)
                    rewritten += 1
                    removed += 0 if path in held else count
            if checksum:
                done[checksum] = newest
            progress("erase", i + 1, len(segments))
    finally:
        replace_file(folder / _STATE, orjson.dumps(state | done).decode() + "\n", 0o600)
    replace_file(folder / _STATE, orjson.dumps(done).decode() + "\n", 0o600)
    return rewritten, removed


def _read_state(path: Path) -> dict[str, float]:
    """Return what was compacted before; nothing if the file is missing or damaged: then all is looked through."""
    try:
        return {str(name): float(at) for name, at in orjson.loads(path.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _checksum(path: Path) -> str:
    stored = checksum_file(path)
    try:
        return stored.read_text("utf-8").split(" ")[0]
    except FileNotFoundError:
        raise SegmentError(f"{path}: its checksum {stored.name} is missing") from None


def _without(path: Path, erased: Mapping[str, float]) -> tuple[list[bytes], int]:
    """Return the lines of a segment that no erased person made, and the number of the others."""
    kept, removed = [], 0
    for line in read_lines(path):
        try:
            record: dict[str, Any] = orjson.loads(line)
            is_gone = is_erased(erased, record, record["timestamp"] / 1000)
        except (ValueError, KeyError, TypeError) as error:
            raise SegmentError(f"{path}: no record: {line[:80]!r}") from error
        if is_gone:
            removed += 1
        else:
            kept.append(line)
    return kept, removed


def _rewrite(path: Path, lines: list[bytes]) -> str:
    """Replace the lines of a sealed segment; return its checksum, "" if no line is left and it was removed."""
    if lines:
        return write_sealed(path, (line + b"\n" for line in lines))
    remove_sealed(path)
    sync_folder(path.parent)
    return ""


def _shrink(folder: Path, max_bytes: int) -> int:
    """Remove the oldest sealed segments while the log is too large; return how many."""
    size, dropped = size_of(folder), 0
    for path in sorted(filter(is_segment, folder.glob(f"*{SEALED}")), key=begun):
        if size <= max_bytes:
            break
        size -= path.stat().st_size + checksum_file(path).stat().st_size
        remove_sealed(path)
        dropped += 1
    return dropped
