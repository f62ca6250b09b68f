"""Merged segments: which others they hold, so that every reader counts each line once.

The checksum file of a merged segment names the segments whose lines it holds, in a line that `sha256sum --check` skips:

    # since 1795392000 holds events-20261122T000105Z-0123abcd events-20261122T003512Z-89abcdef

The merged segment appears by one rename. From then on those that it holds are no longer listed, whether they are still
there, or come back when the files of a machine are copied once more.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from fullrank.events.sealed import SEALED, TIME, begun, checksum_file, name_of

_MERGED = "m"
_REMARK = re.compile(r"^# since (\d+) holds (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Held:
    """What a merged segment holds.

    Attributes:
        since: When it was merged, in seconds since 1970.
        names: Of the segments.
    """

    since: float
    names: frozenset[str]

    def remark(self) -> str:
        """Return the line of the checksum file."""
        return f"# since {self.since:.0f} holds {' '.join(sorted(self.names))}\n"


def merged_name(names: Iterable[str], newest: Path) -> str:
    """Return the file name of a merged segment: the same parts give the same name.

    Args:
        names: Of the segments that it holds.
        newest: The one that was begun last. Retention goes by it, so that nothing is removed early.
    """
    kind = newest.name.split("-", 1)[0]
    digest = blake2b(" ".join(sorted(names)).encode(), digest_size=4).hexdigest()
    return f"{kind}-{begun(newest).strftime(TIME)}-{_MERGED}{digest}{SEALED}"


def read_held(path: Path) -> Held | None:
    """Return what a merged segment holds, None if it is no merged one."""
    if not path.name.rpartition("-")[2].startswith(_MERGED):
        return None
    try:
        remark = _REMARK.search(checksum_file(path).read_text("utf-8"))
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
