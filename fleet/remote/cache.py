"""Bundles of object storage on the disk of this machine: downloaded once, verified, then mapped."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fleet.remote.folder import Folder
from fullrank.bundle import is_of_model
from fullrank.bundle.manifest import MANIFEST, parse_manifest
from fullrank.bundle.staging import TEMPORARY
from fullrank.bundle.verify import check_folder, check_hash
from fullrank.errors import BundleError, BundleNotFound
from fullrank.storage.files import sync_folder, sync_tree


class BundleCache:
    """A folder of downloaded bundles, each under the sha256 of its manifest; processes of a machine may share it.

    Args:
        root: The folder; it is created.

    Example:
        >>> path = BundleCache(Path("/var/cache/fullrank")).fetch(Folder("s3://bundles/shop/shop-1/shard-00007"))
        >>> bundle = open_bundle(path)
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def fetch(self, source: Folder, sha256: str | None = None) -> Path:
        """Return the folder of a verified copy of a bundle, downloaded if there is none yet.

        Args:
            source: The folder of the bundle.
            sha256: Of its manifest; None: any.

        Returns:
            A folder as ``open_bundle`` takes it. Every file has had the hash of the manifest.

        Raises:
            BundleNotFound: There is no manifest.
            BundleError: The manifest is another one, or a file is missing or damaged.
            RemoteError: A file cannot be read.
        """
        return self._fetch(source, sha256, "", lambda name: True)

    def fetch_model(self, source: Folder, sha256: str | None) -> Path:
        """Return a folder with the manifest and what training wrote, as ``open_trained`` takes it; as ``fetch``."""
        return self._fetch(source, sha256, "-model", is_of_model)

    def _fetch(
        self, source: Folder, sha256: str | None, suffix: str, wants: Callable[[str], bool]
    ) -> Path:
        if sha256 is not None and (self._root / (sha256 + suffix)).is_dir():
            return self._root / (sha256 + suffix)
        content = source.read(MANIFEST)
        if content is None:
            raise BundleNotFound(f"{source}: no {MANIFEST}, so no bundle")
        found = hashlib.sha256(content).hexdigest()
        if sha256 is not None and found != sha256:
            raise BundleError(f"{source}/{MANIFEST}: is not the manifest that was asked for")
        target = self._root / (found + suffix)
        if not target.is_dir():
            self._download(source, content, target, wants)
        return target

    def discard(self, sha256: str) -> None:
        """Delete a copy. Processes that have mapped it go on: the kernel keeps the pages until they close them."""
        path = self._root / sha256
        hidden = self._root / f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            path.rename(hidden)
        except FileNotFoundError:
            return
        shutil.rmtree(hidden, ignore_errors=True)

    def _download(
        self, source: Folder, content: bytes, target: Path, wants: Callable[[str], bool]
    ) -> None:
        try:
            manifest = parse_manifest(content.decode())
        except UnicodeDecodeError as error:
            raise BundleError(f"{source}/{MANIFEST}: not utf-8") from error
        except BundleError as error:
            raise BundleError(f"{source}: {error}") from error
        files = {name: entry for name, entry in manifest.files.items() if wants(name)}
        folder = self._root / f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            for name in files:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                source.download(name, path)
            (folder / MANIFEST).write_bytes(content)
            try:
                check_folder(folder, replace(manifest, files=files))
                for name, entry in files.items():
                    check_hash(folder, name, entry)
            except BundleError as error:
                raise BundleError(f"{source}: {error}") from error
            # A copy is trusted by its name from now on, so it must be whole after a power cut, too.
            sync_tree(folder)
            try:
                folder.rename(target)
            except OSError:
                # Another process has finished the same download first.
                if not target.is_dir():
                    raise
            sync_folder(self._root)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def default_cache() -> Path:
    """Return the cache of this user on this machine, in the system's folder of temporary files."""
    return Path(tempfile.gettempdir(), f"fullrank-bundles-{os.getuid()}")
