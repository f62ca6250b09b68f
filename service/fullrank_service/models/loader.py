"""Find, verify, warm up and prepare the bundle of a version. Slow; the switch happens elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from fullrank.bundle import Bundle, BundleInfo, list_bundles, open_bundle, read_manifest
from fullrank.bundle.manifest import MANIFEST, is_name
from fullrank.errors import BundleError, BundleNotFound
from fullrank.models.contract import warm
from fullrank.storage.files import FileFingerprint, fingerprint
from fullrank_service.heap import trim_heap


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
    """Opens the bundles of one worker.

    Args:
        root: the folder of bundles.
        opener: verifies and opens a bundle.
        prepare: called with an open, warm bundle before it may serve; may raise BundleError.
    """

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
        """Open, verify and warm up a version.

        Args:
            version: the version to open.
            sha256: of its manifest; None: any.

        Raises:
            BundleNotFound: there is no such version.
            BundleError: it cannot serve; the message says why.
        """
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
