"""Check whether memory suffices for another bundle.

Files of a bundle are mapped: all workers share the pages, and the system takes them back when memory is short.
So only the private memory of each worker is counted.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fullrank.bundle.manifest import Manifest
from fullrank.errors import BundleError

MEMINFO = Path("/proc/meminfo")
OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
# Kept free for everything else on the machine.
_RESERVE = 64 << 20
# Bytes of: a worker's buffers; a word in a vocabulary without a stored hash table, which loading makes; a document with
# an index; a sparse entry without one, which loading turns into posting lists.
_BASE, _PER_WORD, _PER_DOCUMENT, _PER_ENTRY = 16 << 20, 160, 160, 28


def private_bytes(manifest: Manifest) -> int:
    """Return an upper estimate of the bytes that one worker allocates for a bundle."""
    rows = {name: entry.shape[0] for name, entry in manifest.files.items() if entry.shape}
    vocabularies = [n for n in rows if n.startswith("model/") and n.endswith(".offsets.npy")]
    made = [name for name in vocabularies if name.replace(".offsets.", ".slots.") not in rows]
    total = _BASE + _PER_WORD * sum(rows[name] for name in made)
    if "index/cells.rows.npy" not in rows:
        return total + _PER_ENTRY * rows.get("documents/indices.npy", 0)
    return total + _PER_DOCUMENT * rows.get("documents/bias.npy", 0)


def available_bytes() -> int | None:
    """Return what processes may still allocate on this machine and in this control group (version 2); None: unknown."""
    found = []
    with suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) << 10)
    with suppress(OSError):
        group = GROUPS / OWN_GROUP.read_text().rpartition("0::/")[2].strip()
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # not a group, or its limit is "max"
                left = int((folder / "memory.max").read_text())
                left -= int((folder / "memory.current").read_text())
                stat = dict(x.split() for x in (folder / "memory.stat").read_text().splitlines())
                # Pages of files count as used, but the system takes them back.
                files = sum(int(stat.get(f"{kind}_file", 0)) for kind in ("active", "inactive"))
                found.append(max(0, left + files))
    return min(found, default=None)


def check_memory(manifest: Manifest, workers: int) -> None:
    """Raise BundleError, with the numbers, if memory does not suffice for a bundle in this many workers."""
    available, each = available_bytes(), private_bytes(manifest)
    if available is not None and each * workers + _RESERVE > available:
        raise BundleError(
            f"{manifest.version}: not enough memory: it takes about {each / 1e6:,.1f} MB in each of {workers} "
            f"worker{'s' * (workers != 1)} and {_RESERVE / 1e6:,.1f} MB in reserve, "
            f"{available / 1e6:,.1f} MB are available"
        )
