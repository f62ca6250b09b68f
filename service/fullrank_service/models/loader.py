"""Find, verify, warm up and prepare the bundle of a version. Slow; the switch happens elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fullrank.bundle import Bundle, BundleInfo, list_bundles, open_bundle, read_manifest
from fullrank.bundle.manifest import MANIFEST, Manifest, is_name
from fullrank.errors import BundleError, BundleNotFound
from fullrank.models.contract import warm
from fullrank.storage.files import FileFingerprint, fingerprint
from fullrank_service.base.background import trim_heap

# Check whether memory suffices for another bundle.
#
# Files of a bundle are mapped: all workers share the pages, and the system takes them back when memory is short.
# So only the private memory of each worker is counted.

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


def available(root: Path) -> list[BundleInfo]:
    """Return every bundle on disk, newest first; an empty list if the folder does not exist."""
    try:
        return list_bundles(root)
    except BundleNotFound:
        return []


def find(root: Path, version: str) -> BundleInfo:
    """Find a version on disk. Raises BundleNotFound, or BundleError if it exists and cannot be read."""
    for info in available(root):
        if info.version == version:
            return info
    for folder in root.glob(f"*/{version}") if is_name(version) else ():
        if is_name(folder.parent.name):
            raise BundleError(f"{folder}: {_unreadable(folder)}")
    raise BundleNotFound(f"No bundle has the version {version!r}.")


def _unreadable(folder: Path) -> str:
    try:
        return f"its manifest is that of {read_manifest(folder).version}"
    except BundleNotFound:
        raise
    except BundleError as error:
        return str(error)


def manifest_sha256(path: Path) -> str:
    """Return the sha256 of a bundle's manifest, which identifies its content. Raises BundleError if it is missing."""
    try:
        return hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()
    except OSError as error:
        raise BundleError(f"{path / MANIFEST}: {error.strerror}") from error


class Loader:
    """Opens the bundles of one worker; ``prepare`` gets each before it may serve, and may raise BundleError."""

    def __init__(
        self,
        root: Path,
        opener: Callable[[Path], Bundle] = open_bundle,
        prepare: Callable[[Bundle], None] | None = None,
    ) -> None:
        self._root = root
        self.opener = opener
        self.prepare = prepare
        self._opened: dict[str, dict[str, FileFingerprint]] = {}

    def open(self, version: str, sha256: str | None = None) -> Bundle:
        """Open, verify and warm up a version, whose manifest has a hash; None: any. Raises BundleError."""
        path = find(self._root, version).path
        if sha256 is not None and manifest_sha256(path) != sha256:
            raise BundleError(f"{path / MANIFEST}: is not the manifest that was activated")
        before = _fingerprints(path)
        try:
            bundle = self.opener(path)
            # open_bundle has read the pages when it replayed the golden queries. This builds the tables in memory.
            bundle.retriever.warm()
            warm(bundle.model)
            bundle.known_words.warm()
            bundle.prefixes.of("warm")
            for mode in bundle.retriever.modes:
                bundle.search("warm", mode=mode)
            if self.prepare is not None:
                self.prepare(bundle)
        except BundleError:
            raise
        except OSError as error:
            raise BundleError(f"{path}: {error}") from error
        except MemoryError as error:
            raise BundleError(f"{path}: not enough memory to load it") from error
        self._opened[version] = before
        trim_heap()
        return bundle

    def is_unchanged(self, bundle: Bundle) -> bool:
        """Return whether no file of a bundle was written, replaced or removed since it was opened here."""
        return self._opened.get(bundle.version) == _fingerprints(bundle.path)


def _fingerprints(path: Path) -> dict[str, FileFingerprint]:
    return {
        os.path.join(folder, name): fingerprint(Path(folder, name))
        for folder, folders, names in os.walk(path)
        for name in (*folders, *names)
    }
