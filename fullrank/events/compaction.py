"""Compact the log: remove what is too old, what erased people did, and the oldest beyond a size.

A segment is rewritten under its own name; small ones are merged. Readers go on, and a crash at any moment loses no
record and doubles none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby, islice
from logging import getLogger
from math import inf
from pathlib import Path
from typing import Any

import orjson

from fullrank.events.days import prune
from fullrank.events.log import drop_erased, is_erased, read_erased
from fullrank.events.segments import (
    CHECKSUM,
    OPEN,
    SEALED,
    Held,
    SegmentError,
    begun,
    checksum_file,
    held_elsewhere,
    is_imported,
    is_segment,
    kept_since,
    merged_name,
    name_of,
    read_all,
    read_held,
    read_lines,
    recover,
    remove_sealed,
    size_of,
    write_sealed,
)
from fullrank.progress import Progress, silent
from fullrank.storage.files import locked, replace_file, sync_folder

WITHHELD = ".withheld"
"""File of a log; its time of modification is when a removal of too much at once was first withheld."""
_LOCK, _STATE = ".compact.lock", ".compacted.json"
_HOUR_S, _DAY_S = 3600, 86_400
_log = getLogger(__name__)


@dataclass(frozen=True)
class Compaction:
    """What was done.

    Attributes:
        sealed: segments of writers that had ended.
        expired: segments older than the retention that were removed.
        withheld: those that were not, because the clock may be wrong.
        rewritten: segments that held records of erased people.
        erased: records that were removed from them.
        dropped: the oldest segments, beyond the size.
        merged: small segments whose lines are now in larger ones.
        bytes: size of the log now.
    """

    sealed: int
    expired: int
    withheld: int
    rewritten: int
    erased: int
    dropped: int
    merged: int
    bytes: int


def compact(
    folder: Path,
    days: float,
    max_bytes: int,
    now: float,
    progress: Progress = silent,
    *,
    wait_s: float = 0.0,
) -> Compaction:
    """Compact a log. Processes that do so at once take turns; writers and readers go on.

    Args:
        days: retention.
        max_bytes: the oldest segments are removed while the log is larger.
        wait_s: segments that are overdue by more than a day are removed so long after they were first noticed,
            because the clock may be wrong.

    Raises:
        SegmentError: a segment is damaged; those before it are done.
    """
    with uncompacted(folder), _pruning(folder):
        _remove_leftovers(folder, now - _HOUR_S)
        sealed = recover(folder)
        expired, withheld = _expire(folder, days, now, wait_s)
        for path, since in held_elsewhere(folder.glob(f"*{SEALED}")).items():
            if since < now - _HOUR_S:  # by then, no reader expects it
                remove_sealed(path)
        rewritten, erased = _erase(folder, progress)
        if not withheld:
            # What they hide has expired or was just erased, but for what was begun a little before.
            drop_erased(folder, now - (days + 1) * _DAY_S)
        dropped = _shrink(folder, max_bytes)
        merged = merge_small(folder, now, progress)
        return Compaction(
            len(sealed), expired, withheld, rewritten, erased, dropped, merged, size_of(folder)
        )


@contextmanager
def uncompacted(folder: Path) -> Iterator[None]:
    """Let no other process compact a log inside this context; writers add and seal segments, and readers read."""
    with locked(folder / _LOCK):
        yield


@contextmanager
def _pruning(folder: Path) -> Iterator[None]:
    """Remove digests after the block, also if it fails: they may have what erased people did."""
    try:
        yield
    finally:
        with suppress(SegmentError):  # a stray file, of which readers tell
            prune(folder)


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


def _expire(folder: Path, days: float, now: float, wait_s: float) -> tuple[int, int]:
    """Remove what is older than the retention; return how many segments were removed, and how many withheld."""
    before = now - days * _DAY_S
    kept = {path: kept_since(path) for path in filter(is_segment, folder.glob(f"*{SEALED}"))}
    due = [path for path, since in kept.items() if since < before]
    note = folder / WITHHELD
    if wait_s and any(kept[path] < before - _DAY_S for path in due):
        since = note.stat().st_mtime if note.exists() else inf
        if since > now:  # nothing was noticed yet, or the clock was set back
            note.touch(0o600)
            os.utime(note, (now, now))
        if not wait_s <= now - since:
            _log.error(
                "%s: the clock says that %d segments have been older than %g days for more than a day; they are "
                "removed in a day. Is the clock right? To keep them, raise FULLRANK_EVENTS_DAYS; to remove them "
                "now, run fullrank events compact",
                folder, len(due), days,
            )  # fmt: skip
            return 0, len(due)
    _remove(due, f"older than {days:g} days")
    note.unlink(missing_ok=True)
    return len(due), 0


def _remove(paths: Sequence[Path], why: str) -> None:
    if not paths:
        return
    days, records = {begun(path).date() for path in paths}, 0
    for path in paths:
        with suppress(SegmentError):
            records += sum(1 for _ in read_lines(path))
    _log.warning(
        "%s: removing %d segments with %d lists and events of %d days, %s to %s: %s",
        paths[0].parent, len(paths), records, len(days), min(days), max(days), why,
    )  # fmt: skip
    for path in paths:
        remove_sealed(path)


def _erase(folder: Path, progress: Progress) -> tuple[int, int]:
    """Rewrite the sealed segments that hold erased people; return how many, and how many records were removed."""
    erased = read_erased(folder)
    if not erased:
        return 0, 0
    # A checksum → the digest of a list of erased people of whom its segment is free.
    state = _read_state(folder / _STATE)
    newest = blake2b(orjson.dumps(sorted(erased.items())), digest_size=16).hexdigest()
    segments = sorted(folder.glob(f"*{SEALED}"))
    held = held_elsewhere(segments)
    done: dict[str, str] = {}
    rewritten = removed = 0
    try:
        for i, path in enumerate(segments):
            checksum = _checksum(path)
            if state.get(checksum) != newest:
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


def _read_state(path: Path) -> dict[str, str]:
    """Return what was compacted before; nothing if the file is missing or damaged: then all is looked through."""
    try:
        return {str(name): str(of) for name, of in orjson.loads(path.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _checksum(path: Path) -> str:
    stored = checksum_file(path)
    try:
        return stored.read_text("utf-8").split(" ")[0]
    except FileNotFoundError:
        raise SegmentError(f"{path}: its checksum {stored.name} is missing") from None


def _without(path: Path, erased: Mapping[str, float]) -> tuple[list[bytes], int]:
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
    size, dropped = size_of(folder), list[Path]()
    for path in sorted(filter(is_segment, folder.glob(f"*{SEALED}")), key=begun):
        if size <= max_bytes:
            break
        size -= path.stat().st_size + checksum_file(path).stat().st_size
        dropped.append(path)
    _remove(dropped, f"the log is larger than {max_bytes >> 20} MB")
    return len(dropped)


# Merge small segments: a worker that restarts often leaves many.

SMALL_BYTES = 8 << 20
MAX_BYTES = 64 << 20
_LINES_AT_ONCE = 1_000


def merge_small(folder: Path, now: float, progress: Progress = silent) -> int:
    """Merge the small sealed segments of each day that has ended. For one process at a time.

    Those that were merged stay for readers that have listed them; see ``held_elsewhere``. A crash at any moment leaves
    them or the merged one to be read, never both.
    """
    groups = list(_groups(folder, datetime.fromtimestamp(now, UTC)))
    for i, paths in enumerate(groups):
        names = {name_of(path) for path in paths}
        for path in paths:
            held = read_held(path)
            names |= held.names if held else set()
        target = folder / merged_name(names, max(paths, key=begun))
        write_sealed(target, _pieces(paths), Held(now, frozenset(names)).remark())
        progress("merge", i + 1, len(groups))
    return sum(map(len, groups))


def _groups(folder: Path, now: datetime) -> Iterator[list[Path]]:
    """Yield the segments to merge: of one kind and day, together at most MAX_BYTES."""
    sealed = set(filter(is_segment, folder.glob(f"*{SEALED}")))
    small = [
        path
        for path in sorted(sealed - held_elsewhere(sealed).keys())
        if begun(path).date() < now.date()
        and not is_imported(path)
        and _lines_bytes(path) < SMALL_BYTES
    ]
    for _, paths in groupby(small, lambda path: (path.name.split("-")[0], begun(path).date())):
        group: list[Path] = []
        size = 0
        for path in paths:
            more = _lines_bytes(path)
            if size + more > MAX_BYTES:
                yield group
                group, size = [], 0
            group.append(path)
            size += more
        if len(group) > 1:
            yield group


def _lines_bytes(path: Path) -> int:
    """Return the uncompressed size of a segment, from gzip's last four bytes."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4))
        return int.from_bytes(file.read(), "little")


def _pieces(paths: Sequence[Path]) -> Iterator[bytes]:
    lines = (line for _, line in read_all(paths))
    while batch := list(islice(lines, _LINES_AT_ONCE)):
        yield b"\n".join(batch) + b"\n"
