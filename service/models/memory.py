"""Whether another bundle fits: what it would take in each worker, held against what this machine has left.

Files of a bundle are mapped, so their pages are shared by all workers and given back when memory is short. What counts
is what each worker makes of them for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fullrank.bundle.manifest import CELLS, Manifest
from fullrank.errors import BundleError

_MEMINFO = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# Kept free: a machine that is full to the last page stands still.
_RESERVE = 64 << 20
# Of a worker by itself: buffers of a search, what is remembered of filters.
_BASE = 16 << 20
# A word of a vocabulary: text, number and place in a table.
_PER_STRING = 160
# A document where there is an index: scores and places, for each thread that ranks, and what verifying leaves.
_PER_DOCUMENT = 160
# An entry of the sparse part where there is none: word → documents, made when it is loaded.
_PER_ENTRY = 28
_UNITS = ("B", "KB", "MB", "GB", "TB")


def private_bytes(manifest: Manifest) -> int:
    """About what one worker takes for itself to serve a bundle; rather too much than too little."""
    files = manifest.files
    total = _BASE
    fast = (manifest.index or {}).get("fast")
    if CELLS in files and isinstance(fast, dict) and "effort" in fast:
        total += files[CELLS].bytes
    for name, entry in files.items():
        if name.startswith("model/") and name.endswith(".offsets.npy") and entry.shape:
            total += entry.shape[0] * _PER_STRING
    indexed = manifest.index is not None
    counted = files.get("documents/bias.npy" if indexed else "documents/indices.npy")
    if counted is not None and counted.shape:
        total += counted.shape[0] * (_PER_DOCUMENT if indexed else _PER_ENTRY)
    return total


def available_bytes() -> int | None:
    """What processes here may still take: of the machine, and of every control group that bounds this one.

    None where the system does not say.
    """
    left = [*_groups(), *_machine()]
    return max(0, min(left)) if left else None


def check_memory(manifest: Manifest, workers: int) -> None:
    """Raises BundleError, with the numbers, where so many workers cannot all load a bundle."""
    available = available_bytes()
    if available is None:
        return
    each = private_bytes(manifest)
    if each * workers + _RESERVE > available:
        raise BundleError(
            f"{manifest.version}: memory would not suffice: about {amount(each)} in each of {workers} "
            f"worker{'s' * (workers != 1)} and {amount(_RESERVE)} to spare, {amount(available)} are available"
        )


def amount(size: float) -> str:
    """ "1.5 GB" """
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _machine() -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) << 10


def _groups() -> Iterator[int]:
    """What each control group above this process has left; pages of files do not count as taken."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit, usage, parts = (
                _GROUPS,
                "memory.max",
                "memory.current",
                ("inactive_file", "active_file"),
            )
        elif "memory" in controllers.split(","):
            root = _GROUPS / "memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
            parts = ("total_inactive_file", "total_active_file")
        else:
            continue
        group = root / path.lstrip("/")
        # In a container the path may be that of the host, which is not there: its root is.
        for folder in (group, *group.parents):
            if folder == root.parent:
                break
            if (left := _left(folder, limit, usage, parts)) is not None:
                yield left


def _left(folder: Path, limit: str, usage: str, parts: tuple[str, ...]) -> int | None:
    try:
        most = int((folder / limit).read_text())
        taken = int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return most - taken + sum(int(stat.get(part, 0)) for part in parts)
    except (OSError, ValueError):
        return None  # "max": no bound
