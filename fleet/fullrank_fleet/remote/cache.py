"""Bundles of object storage on the disk of this machine: downloaded once, verified, then mapped.

The folder may be below one that all users write to, such as /tmp. So it must belong to this user, nobody else may write
to it, and each process verifies a copy before it first uses it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from logging import getLogger
from pathlib import Path

from fullrank.bundle import is_of_model
from fullrank.bundle.manifest import MANIFEST, Manifest, parse_manifest
from fullrank.bundle.staging import TEMPORARY
from fullrank.bundle.verify import check_folder, check_hash
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank.storage.files import sync_folder, sync_tree
from fullrank_fleet.remote.folder import Folder

_log = getLogger(__name__)


class BundleCache:
    """A folder of downloaded bundles, each under the sha256 of its manifest; processes of a user may share it.

    Example:
        >>> path = BundleCache(Path("/var/cache/fullrank")).fetch(Folder("s3://bundles/shop/shop-1/shard-00007"))
        >>> bundle = open_bundle(path)
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._verified: set[Path] = set()

    def fetch(
        self,
        source: Folder,
        sha256: str | None = None,
        *,
        is_whole: bool = True,
        model: Folder | None = None,
    ) -> Path:
        """Return the folder of a verified copy of a bundle, downloaded if there is none yet.

        Args:
            source: The folder of the bundle.
            sha256: Of its manifest; None: any.
            is_whole: Whether the documents are needed, not only what training wrote (``open_trained``).
            model: Has what training wrote, where the source has not.

        Raises:
            BundleNotFound: There is no manifest.
            FullrankError: The folder of the cache belongs to another user, or others may write to it.
            BundleError: The manifest is another one, or a file is missing or damaged.
            RemoteError: A file cannot be read.
        """
        self._make()
        if sha256 is not None and self._has(path := self._path(sha256, is_whole), is_whole):
            return path
        content = source.read(MANIFEST)
        if content is None:
            raise BundleNotFound(f"{source}: no {MANIFEST}, so no bundle")
        found = hashlib.sha256(content).hexdigest()
        if sha256 is not None and found != sha256:
            raise BundleError(f"{source}/{MANIFEST}: is not the manifest that was asked for")
        path = self._path(found, is_whole)
        if not self._has(path, is_whole):
            self._download(source, content, path, is_whole, model or source)
        return path

    def _path(self, sha256: str, is_whole: bool) -> Path:
        return self._root / (sha256 if is_whole else f"{sha256}-model")

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a new folder that is removed after the block; those of killed processes are removed before.

        A process keeps its folder locked, and the kernel releases the lock when the process ends.
        """
        self._make()
        folder = self._root / f"{TEMPORARY}{secrets.token_hex(8)}"
        with ExitStack() as stack:
            # Or another process takes the new folder for one that was left.
            with _locked(self._root):
                for left in self._root.glob(f"{TEMPORARY}*"):
                    with suppress(OSError), _locked(left, fcntl.LOCK_NB):
                        shutil.rmtree(left, ignore_errors=True)
                folder.mkdir(mode=0o700)
                stack.enter_context(_locked(folder))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder

    def discard(self, sha256: str) -> None:
        """Delete a copy. Processes that have mapped it go on: the kernel keeps the pages until they close them."""
        path = self._root / sha256
        hidden = self._root / f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            path.rename(hidden)
        except FileNotFoundError:
            return
        shutil.rmtree(hidden, ignore_errors=True)

    def _make(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._root.lstat()
        is_private = status.st_uid == os.getuid() and not status.st_mode & 0o022
        if not (is_private and stat.S_ISDIR(status.st_mode)):
            raise FullrankError(
                f"{self._root}: the cache of bundles must be a folder of this user that nobody else may write to; "
                "remove it, or name another one with --cache"
            )

    def _has(self, path: Path, is_whole: bool) -> bool:
        """Return whether there is a copy; one that this process has not used yet is verified, or deleted as damaged."""
        if not path.is_dir():
            return False
        if path not in self._verified:
            try:
                content = (path / MANIFEST).read_bytes()
                if self._path(hashlib.sha256(content).hexdigest(), is_whole) != path:
                    raise BundleError(f"{MANIFEST}: is that of another bundle")
                _check(path, _wanted(content, is_whole))
            except (BundleError, OSError, ValueError) as error:
                _log.warning("%s: %s; downloading it again", path, error)
                self.discard(path.name)
                return False
            self._verified.add(path)
        return True

    def _download(
        self, source: Folder, content: bytes, target: Path, is_whole: bool, model: Folder
    ) -> None:
        try:
            manifest = _wanted(content, is_whole)
        except UnicodeDecodeError as error:
            raise BundleError(f"{source}/{MANIFEST}: not utf-8") from error
        except BundleError as error:
            raise BundleError(f"{source}: {error}") from error
        with self.scratch() as folder:
            for name in manifest.files:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                origin = model if is_of_model(name) and model.has(name) else source
                origin.download(name, path)
            (folder / MANIFEST).write_bytes(content)
            try:
                _check(folder, manifest)
            except BundleError as error:
                raise BundleError(f"{source}: {error}") from error
            # So that a copy is whole after a power cut.
            sync_tree(folder)
            try:
                folder.rename(target)
                self._verified.add(target)
            except OSError:
                # Another process has finished the same download first.
                if not target.is_dir():
                    raise
            sync_folder(self._root)


def _wanted(content: bytes, is_whole: bool) -> Manifest:
    manifest = parse_manifest(content.decode())
    files = {name: file for name, file in manifest.files.items() if is_whole or is_of_model(name)}
    return replace(manifest, files=files)


def _check(folder: Path, manifest: Manifest) -> None:
    check_folder(folder, manifest)
    for name, entry in manifest.files.items():
        check_hash(folder, name, entry)


@contextmanager
def _locked(folder: Path, flags: int = 0) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(descriptor)


def default_cache() -> Path:
    """Return the cache of this user on this machine, in the system's folder of temporary files."""
    return Path(tempfile.gettempdir(), f"fullrank-bundles-{os.getuid()}")
