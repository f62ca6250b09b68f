"""Segments: files of JSON lines that one writer appends to and compresses when they are full.

    <kind>-<start>-<writer>.jsonl             open: its writer holds a lock on it
    <kind>-<start>-<writer>.jsonl.gz          sealed: complete, never written again
    <kind>-<start>-<writer>.jsonl.gz.sha256   its checksum, as `sha256sum --check` reads it

`start` is the second in UTC when the segment was begun, `writer` is random, so the segments of several processes and
machines lie in one folder without a clash. A crash may tear the last line of an open segment; `recover` cuts it.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import os
import re
import secrets
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from io import BufferedReader
from logging import getLogger
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank.storage.files import replace_file, sync_folder

OPEN = ".jsonl"
_PIECE = 1 << 20
_log = getLogger(__name__)


class SegmentWriter:
    """Appends lines to a segment of its own. For one thread.

    Example:
        >>> writer = SegmentWriter(folder, "events")
        >>> writer.append([b'{"action_name":"click"}'])
        >>> writer.sync()  # now it survives a power cut
        >>> writer.close()
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        *,
        max_bytes: int = 64 << 20,
        max_age_s: float = 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._kind, self._clock = folder, kind, clock
        self._max_bytes, self._max_age_s = max_bytes, max_age_s
        self._path: Path | None = None
        self._file = -1
        self._began = 0.0
        self._size = 0

    def append(self, lines: Iterable[bytes]) -> None:
        """Append lines, each without its line end, in one piece; begin another segment if this one's file is gone.

        Raises:
            OSError: Nothing was appended.
        """
        content = b"".join([line + b"\n" for line in lines])
        if not content:
            return
        if self._is_lost():
            self._abandon()
        if self._path is None:
            self._begin()
        try:
            written = 0
            while written < len(content):
                written += os.write(self._file, content[written:])
        except OSError:
            # A line that a full disk cut short must not be followed by another.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(content)

    def sync(self) -> None:
        """Return when everything appended so far survives a power cut.

        Raises:
            OSError: It may not, for example because somebody removed the file meanwhile.
        """
        if self._path is not None:
            os.fsync(self._file)
            if self._is_lost():
                raise FileNotFoundError(
                    errno.ENOENT, "removed while it was written", str(self._path)
                )

    def is_due(self) -> bool:
        """Whether the segment is large or old enough to be sealed."""
        if self._path is None:
            return False
        age_s = self._clock() - self._began
        # A clock that was set back makes it due, too.
        return self._size >= self._max_bytes or not 0 <= age_s < self._max_age_s

    def seal(self) -> Path | None:
        """Compress the segment; the next line begins another one. Return its new path, None if there is none.

        Raises:
            OSError: The segment stays open.
        """
        if self._is_lost():
            self._abandon()
        if self._path is None:
            return None
        sealed = _seal(self._path)
        os.close(self._file)
        self._path, self._file = None, -1
        return sealed

    close = seal

    def _is_lost(self) -> bool:
        if self._path is None:
            return False
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return True
        ours = os.fstat(self._file)
        return (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino)

    def _abandon(self) -> None:
        _log.error("%s: was removed or replaced with %d bytes in it", self._path, self._size)
        os.close(self._file)
        self._path, self._file = None, -1

    def _begin(self) -> None:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        self._began = self._clock()
        start = datetime.fromtimestamp(self._began, UTC).strftime(TIME)
        path = self._folder / f"{self._kind}-{start}-{secrets.token_hex(4)}{OPEN}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        # Under another name until it is locked, so that no other process takes it for the segment of a dead writer.
        unlocked = path.with_suffix(".new")
        self._file = os.open(unlocked, flags, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        unlocked.rename(path)
        sync_folder(self._folder)
        self._path, self._size = path, 0


def recover(folder: Path) -> list[Path]:
    """Seal the open segments whose writers have ended, without a last line that was torn; return their paths."""
    found = []
    for path in sorted(folder.glob(f"*{OPEN}")):
        with suppress(FileNotFoundError, BlockingIOError):  # another process was first
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(file, _end_of_lines(file))
                found.append(_seal(path))
            finally:
                os.close(file)
    return found


def _end_of_lines(file: int) -> int:
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _PIECE)
        last = os.pread(file, end - start, start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def _seal(path: Path) -> Path:
    """Compress an open segment, or remove an empty one. A crash on the way leaves the open one, to be sealed again."""
    sealed = path.with_suffix(SEALED)
    if path.stat().st_size:
        with path.open("rb") as lines:
            write_sealed(sealed, iter(partial(lines.read, _PIECE), b""))
    path.unlink()
    return sealed


# Sealed segments: compressed, and only ever replaced or removed as a whole, each with its checksum.

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
        remarks: Lines for its checksum file, each after "#"; a segment that is replaced keeps those it has.

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
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        # Without a time, so that the same content gives the same bytes.
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            packed.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Merged segments: which others they hold, so that every reader counts each line once.
#
# The checksum file of a merged segment names the segments whose lines it holds, in a line that `sha256sum --check`
# skips:
#
#     # since 1795392000 holds events-20261122T000105Z-0123abcd events-20261122T003512Z-89abcdef
#
# The merged segment appears by one rename. From then on those that it holds are no longer listed, whether they are
# still there, or come back when the files of a machine are copied once more.

_MERGED = "m"
_MERGED_REMARK = re.compile(r"^# since (\d+) holds (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Held:
    """What a merged segment holds."""

    since: float
    names: frozenset[str]

    def remark(self) -> str:
        """Return the line of the checksum file."""
        return f"# since {self.since:.0f} holds {' '.join(sorted(self.names))}\n"


def merged_name(names: Iterable[str], newest: Path) -> str:
    """Return the file name of a merged segment: the same parts give the same name.

    Args:
        newest: The one that was begun last. Retention goes by it, so that nothing is removed early.
    """
    kind, start, _ = newest.name.split("-")
    digest = blake2b(" ".join(sorted(names)).encode(), digest_size=4).hexdigest()
    return f"{kind}-{start}-{_MERGED}{digest}{SEALED}"


def read_held(path: Path) -> Held | None:
    """Return what a merged segment holds, None if it is no merged one."""
    if not path.name.rpartition("-")[2].startswith(_MERGED):
        return None
    try:
        remark = _MERGED_REMARK.search(checksum_file(path).read_text("utf-8"))
    except FileNotFoundError:  # removed meanwhile, or damaged, as its reader will notice
        return None
    return remark and Held(float(remark[1]), frozenset(remark[2].split()))


def overlapping(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return which merged segments hold lines of others: two machines may merge what both have with what only one has.

    Returns:
        Those segments, each with the others that stand before it in `paths`.
    """
    merged = [(path, held.names) for path in paths if (held := read_held(path))]
    found = {
        path: [other for other, theirs in merged[:i] if names & theirs]
        for i, (path, names) in enumerate(merged)
    }
    return {path: others for path, others in found.items() if others}


def held_elsewhere(paths: Iterable[Path]) -> dict[Path, float]:
    """Return which of the segments need no reading because others of them hold their lines.

    Returns:
        Those segments, and since when that is so, in seconds since 1970.
    """
    paths = list(paths)
    merged = {path: held for path in paths if (held := read_held(path))}
    holders: defaultdict[str, list[Held]] = defaultdict(list)
    for held in merged.values():
        for name in held.names:
            holders[name].append(held)
    found = {}
    for path in paths:
        around = holders.get(name_of(path), [])
        if path in merged:
            # Two machines may merge what was copied from one to the other; the larger one holds all of the smaller.
            names = merged[path].names
            around = around + [one for one in holders[min(names)] if names < one.names]
        if around:
            found[path] = min(held.since for held in around)
    return found


# The folder of segments: list and read them.


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
    """Yield the lines of segments, each with its segment. A line that several merged ones hold comes once."""
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
    wanted: list[str] = []
    with suppress(FileNotFoundError):
        wanted = [line.split(" ")[0] for line in stored.read_text("utf-8").splitlines()]
    if found in wanted:
        return True
    if path.stat().st_ino != os.fstat(file.fileno()).st_ino:
        return False
    how = "differs from" if wanted else "is missing:"
    raise SegmentError(f"{path}: damaged: its checksum {how} {stored.name}")


def size_of(folder: Path) -> int:
    """Return the bytes of all segments."""
    total = 0
    for path in folder.glob("*.jsonl*"):
        with suppress(FileNotFoundError):  # upkeep removes and merges segments meanwhile
            total += path.stat().st_size
    return total
