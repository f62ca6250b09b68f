"""Merge small segments: a worker that restarts often leaves many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path

from fullrank.events.archive import read_all
from fullrank.events.merged import Held, held_elsewhere, merged_name, read_held
from fullrank.events.sealed import SEALED, begun, is_imported, is_segment, name_of, write_sealed
from fullrank.progress import Progress, silent

SMALL_BYTES = 8 << 20
MAX_BYTES = 64 << 20
_LINES_AT_ONCE = 1_000


def merge_small(folder: Path, now: float, progress: Progress = silent) -> int:
    """Merge the small sealed segments of each day that has ended. For one process at a time.

    Those that were merged stay for readers that have listed them; see ``held_elsewhere``. A crash at any moment leaves
    them or the merged one to be read, never both.

    Args:
        folder: of the segments.
        now: in seconds since 1970.
        progress: called for each merged segment.

    Returns:
        The number of segments that were merged into others.

    Raises:
        SegmentError: a segment is damaged.
        OSError: a file cannot be written.
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
    """Yield the lines of segments, many at once."""
    lines = (line for _, line in read_all(paths))
    while batch := list(islice(lines, _LINES_AT_ONCE)):
        yield b"\n".join(batch) + b"\n"
