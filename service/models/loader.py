"""From a version to a bundle that may serve: found, verified, warmed, prepared. Slow, and nothing here is a switch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from fullrank.bundle.catalog import Bundle, BundleInfo, list_bundles, open_bundle, read_manifest
from fullrank.bundle.manifest import MANIFEST, is_name
from fullrank.errors import BundleError, BundleNotFound
from service.models.state import Mark, mark


def available(root: Path) -> list[BundleInfo]:
    """Every bundle on disk, newest first; none where the folder does not exist."""
    try:
        return list_bundles(root)
    except BundleNotFound:
        return []


def find(root: Path, version: str) -> BundleInfo:
    """What is on disk of a version. Raises BundleNotFound, or BundleError where it is there but not to be read."""
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
    """What ties a note to the very bundle it means. Raises BundleError where there is no manifest."""
    try:
        return hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()
    except OSError as error:
        raise BundleError(f"{path / MANIFEST}: {error.strerror}") from error


class Loader:
    """Opens the bundles of one worker.

    opener    verifies and opens a folder
    prepare   called with a bundle that is open and warm, before it may serve; may raise BundleError
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
        self._opened: dict[str, dict[str, Mark]] = {}

    def open(self, version: str, sha256: str | None = None) -> Bundle:
        """Verify and warm a version.

        sha256  of the manifest that it must have; None: any
        Raises BundleNotFound, BundleError.
        """
        path = find(self._root, version).path
        if sha256 is not None and manifest_sha256(path) != sha256:
            raise BundleError(f"{path / MANIFEST}: not the manifest that was activated")
        before = _marks(path)
        try:
            bundle = self.opener(path)
            # The golden replay of open_bundle has read the pages; this builds what is built once.
            bundle.retriever.warm()
            bundle.model.encode_queries(["warm up"])
            if self.prepare is not None:
                self.prepare(bundle)
        except BundleError:
            raise
        except OSError as error:
            raise BundleError(f"{path}: {error}") from error
        except MemoryError as error:
            raise BundleError(f"{path}: memory did not suffice") from error
        self._opened[version] = before
        return bundle

    def untouched(self, bundle: Bundle) -> bool:
        """Whether no file of a bundle has been written, replaced or removed since it was opened here."""
        return self._opened.get(bundle.version) == _marks(bundle.path)


def _marks(path: Path) -> dict[str, Mark]:
    return {
        os.path.join(folder, name): mark(Path(folder, name))
        for folder, folders, names in os.walk(path)
        for name in (*folders, *names)
    }
