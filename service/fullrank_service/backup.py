"""Back up all that a service owns into one archive, while it serves and writes, and restore it.

The archive is a plain tar. Its files are named as in a folder of bundles where no setting moves anything. Last come
``backup.json``, with size and SHA-256 of every file, and the SHA-256 of ``backup.json``.

Left out is what another process makes again or could not use: locks, reports of workers, a proposed swap, digests of
the log of events, and what an unfinished command has written.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from fullrank.bundle.catalog import ACTIVE, list_bundles
from fullrank.bundle.manifest import MANIFEST, FileEntry, read_manifest
from fullrank.errors import FullrankError
from fullrank.events.compaction import uncompacted
from fullrank.events.decisions import DECISIONS
from fullrank.events.log import ERASED, FOLDER, KEY, places
from fullrank.events.segments import OPEN, SEALED, checksum_file, is_segment, name_of
from fullrank.progress import Progress, silent
from fullrank.storage.files import locked, replace_file, sync_folder, sync_tree
from fullrank_service.ads.pages import FILE as PAGES
from fullrank_service.base.settings import Settings
from fullrank_service.documents.log import sqlite_errors
from fullrank_service.documents.sqlitelog import FILE as DOCUMENTS
from fullrank_service.documents.sqlitelog import FORMER_RULES, log_file, place_of
from fullrank_service.http.keys import FILE as KEYS
from fullrank_service.models.state import parse_state

CONTENTS, CHECKSUM = "backup.json", "backup.json.sha256"
STAGE, COMPLETE = ".fullrank-restore", "complete"
_FORMAT = 1
_UNFINISHED = ".fullrank-backup-"
_KEYS_LOCK = f".{KEYS}.lock"
"""Tells a service that there were keys, should their file be missing."""
_PIECE, _PAGES = 1 << 20, 2048


class BackupError(FullrankError):
    """A backup cannot be made or restored; the message says why."""


@dataclass(frozen=True)
class Contents:
    """What an archive has.

    Attributes:
        database: The log of live documents and rules that it lacks, because a database has it.
    """

    created: str
    release: str
    database: str | None
    files: Mapping[str, FileEntry]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.files.values())

    @property
    def versions(self) -> list[str]:
        """The versions of bundles, each as NAME/VERSION."""
        return [name.removesuffix(f"/{MANIFEST}") for name in self.files if _is_manifest(name)]

    def as_dict(self) -> dict[str, Any]:
        files = {name: entry.json() for name, entry in self.files.items()}
        about = {"created": self.created, "release": self.release, "database": self.database}
        return {"format": _FORMAT, **about, "files": files}


def _is_manifest(name: str) -> bool:
    return name.count("/") == 2 and name.endswith(f"/{MANIFEST}")


def _target(settings: Settings, name: str) -> Path:
    """Return the path of a top-level entry of an archive, under these settings."""
    root, documents = settings.bundles, log_file(settings)
    events = places(root, settings.documents, settings.events_folder, settings.events_key)
    keys = settings.keys or root / KEYS
    moved = {
        DOCUMENTS: documents,
        PAGES: documents.with_name(PAGES),
        FORMER_RULES: documents.with_name(FORMER_RULES),
        FOLDER: events.folder,
        KEY: events.key,
        KEYS: keys,
        _KEYS_LOCK: keys.with_name(f".{keys.name}.lock"),
    }
    return moved.get(name, root / name)


# Back up.


def back_up(settings: Settings, archive: Path, progress: Progress = silent) -> Contents:
    """Write an archive of what a service with these settings owns; it is complete or not there.

    It has everything that the service acknowledged before the call.

    Raises:
        FullrankError: The archive exists, or something that belongs into it is damaged or kept elsewhere.
        OSError: The archive cannot be written.
    """
    if not settings.bundles.is_dir():
        raise BackupError(f"{settings.bundles}: no such folder of bundles")
    for sharded in settings.bundles.glob("*/*/set.json"):
        raise BackupError(
            f"{sharded.parent}: a sharded bundle; copy its storage with the storage's own tools"
        )
    if archive.exists():
        raise BackupError(f"{archive}: exists already; choose another name or delete it")
    parent = archive.absolute().parent
    if not parent.is_dir():
        raise BackupError(f"{parent}: no such folder")
    with _working_folder(parent) as folder:
        unfinished = folder / "archive"
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                contents = _Writer(settings, tar, folder, progress).write()
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(archive)
        sync_folder(parent)
    return contents


@contextmanager
def _working_folder(parent: Path) -> Iterator[Path]:
    """Make a folder that ends with the block, and remove those of processes that were killed."""
    for left in parent.glob(f"{_UNFINISHED}*"):
        with locked(left, 0) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(left, ignore_errors=True)
    folder = parent / f"{_UNFINISHED}{token_hex(8)}"
    folder.mkdir(0o700)
    try:
        with locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Writer:
    """Writes what a service owns into an archive; folder: for copies that are needed meanwhile."""

    def __init__(
        self, settings: Settings, tar: tarfile.TarFile, folder: Path, progress: Progress
    ) -> None:
        self._settings, self._root = settings, settings.bundles
        self._tar, self._folder, self._progress = tar, folder, progress
        self._files: dict[str, FileEntry] = {}
        self._now = time.time()

    def write(self) -> Contents:
        databases, elsewhere = [DOCUMENTS, PAGES, FORMER_RULES], None
        if self._settings.documents_url is not None:
            elsewhere = place_of(self._settings, self._root).name
            databases.remove(DOCUMENTS)
        # The log before the bundles: what a compaction removes from it meanwhile is in a bundle that is still to come.
        for name in databases:
            self._add_database(name)
        self._add_events()
        for name in (KEY, KEYS, _KEYS_LOCK, DECISIONS):
            self._add_path(name, _target(self._settings, name))
        for path in sorted(self._root.glob(".loop.*.training")):
            self._add_path(path.name, path)
        self._add_bundles()
        created = datetime.fromtimestamp(self._now, UTC).isoformat(timespec="seconds")
        contents = Contents(created, version("fullrank"), elsewhere, {**self._files})
        listed = json.dumps(contents.as_dict(), indent=1).encode()
        digest = self._add_bytes(CONTENTS, listed)
        self._add_bytes(CHECKSUM, f"{digest}  {CONTENTS}\n".encode())
        return contents

    def _add_database(self, name: str) -> None:
        """Add one state of a file of SQLite, while other processes go on writing."""
        path, copy = _target(self._settings, name), self._folder / name
        if not path.exists():
            return

        def report(_: int, left: int, total: int) -> None:
            self._progress(name, total - left, total)

        address = f"{path.absolute().as_uri()}?mode=rw"
        with (
            sqlite_errors(path),
            closing(sqlite3.connect(address, uri=True, isolation_level=None)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            # Outside of a transaction, a write of another process would make the copy begin anew.
            source.execute("BEGIN")
            source.execute("SELECT 1 FROM sqlite_master").fetchone()
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target, pages=_PAGES, progress=report)
            [verdict] = target.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise BackupError(f"{path}: damaged: {verdict}")
        copy.chmod(0o600)
        self._add_path(name, copy)
        copy.unlink()

    def _add_events(self) -> None:
        """Add the segments of the log of events, the open ones up to their last whole line."""
        folder = _target(self._settings, FOLDER)
        if not folder.is_dir():
            return
        with uncompacted(folder):
            # The open ones first: one that is sealed in between is found again.
            names = {path.name.removesuffix(OPEN) for path in folder.glob(f"*{OPEN}")}
            names |= {name_of(path) for path in folder.glob(f"*{SEALED}")}
            for number, name in enumerate(sorted(names)):
                sealed = folder / f"{name}{SEALED}"
                if is_segment(sealed):
                    self._add_segment(sealed, sealed.with_name(f"{name}{OPEN}"))
                self._progress("events", number + 1, len(names))
            self._add_path(f"{FOLDER}/{ERASED}", folder / ERASED)

    def _add_segment(self, sealed: Path, still_open: Path) -> None:
        if not sealed.exists():
            with suppress(FileNotFoundError), still_open.open("rb") as file:  # else sealed since
                whole = sum(len(line) for line in file if line.endswith(b"\n"))
                file.seek(0)
                self._add(f"{FOLDER}/{still_open.name}", file, whole, 0o600)
                return
        for path in (sealed, checksum_file(sealed)):
            self._add_path(f"{FOLDER}/{path.name}", path)

    def _add_bundles(self) -> None:
        """Add all versions, then what says which of them are active."""
        path = self._root / ACTIVE
        state = path.read_bytes() if path.exists() else None
        infos = list_bundles(self._root)
        done, total = 0, sum(info.bytes for info in infos)
        for info in infos:
            for size in self._add_bundle(info.path):
                done += size
                self._progress("bundles", done, total)
        if state is None:
            return
        committed = parse_state(state, str(path))
        for collection in (None, *committed.collections):
            active = committed.of(collection).version
            if active is not None and not any(
                _is_manifest(name) and name.split("/")[1] == active for name in self._files
            ):
                raise BackupError(
                    f"{active}: the active version is damaged, or was removed meanwhile; "
                    f"fullrank bundles verify {self._root} says which"
                )
        self._add_bytes(ACTIVE, state)

    def _add_bundle(self, path: Path) -> Iterator[int]:
        """Add a version, unless `fullrank bundles prune` removes it meanwhile; yield the bytes of each file."""
        with ExitStack() as opened:
            try:
                entries = read_manifest(path).files
                # All at once: what is removed from now on can still be read.
                files = {n: opened.enter_context((path / n).open("rb")) for n in entries}
                manifest = (path / MANIFEST).read_bytes()
            except (OSError, FullrankError):
                if path.exists():
                    raise
                return
            name = f"{path.parent.name}/{path.name}"
            for own, entry in entries.items():
                if self._add(f"{name}/{own}", files[own], entry.bytes) != entry.sha256:
                    raise BackupError(f"{path / own}: damaged: sha256 differs from the manifest")
                yield entry.bytes
            self._add_bytes(f"{name}/{MANIFEST}", manifest)

    def _add_path(self, name: str, path: Path) -> None:
        """Add a file if it is there."""
        with suppress(FileNotFoundError), path.open("rb") as file:
            status = os.fstat(file.fileno())
            self._add(name, file, status.st_size, status.st_mode & 0o777)

    def _add_bytes(self, name: str, content: bytes) -> str:
        return self._add(name, io.BytesIO(content), len(content))

    def _add(self, name: str, file: IO[bytes], size: int, mode: int = 0o644) -> str:
        """Add the first bytes of a file and return their SHA-256."""
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = size, mode, int(self._now)
        hashing = _Hashing(file)
        self._tar.addfile(member, hashing)
        digest = hashing.hash.hexdigest()
        self._files[name] = FileEntry(digest, size)
        return digest


class _Hashing(io.RawIOBase):
    """Hashes what is read of a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.hash = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.hash.update(piece)
        return piece


# Restore.


def restore(archive: Path, settings: Settings, progress: Progress = silent) -> Contents:
    """Restore an archive to where a service with these settings looks for it; all of it, or nothing.

    Everything is written under temporary names in the same folders and then renamed, the bundles last. If the process
    is killed meanwhile, another restore of the same archive goes on.

    Raises:
        FullrankError: The archive is damaged, or there is something already; nothing was changed.
        OSError: It cannot be written; nothing was changed, or another restore goes on.
    """
    contents, digest = read_archive(archive, progress)
    tops = {name.partition("/")[0] for name in contents.files}
    targets = {top: _target(settings, top) for top in tops}
    root = settings.bundles
    stages = [
        root / STAGE,
        *{target.parent / STAGE for target in targets.values()} - {root / STAGE},
    ]
    complete, is_new = stages[0] / COMPLETE, not root.exists()
    if not _is_complete(complete, digest):
        _check_free(root, targets)
    for stage in stages:
        stage.mkdir(0o700, parents=True, exist_ok=True)
    with locked(stages[0], 0) as is_ours:
        if not is_ours:
            raise BackupError(f"{root}: another process restores into this folder")
        if not _is_complete(complete, digest):
            try:
                for stage in stages:
                    _empty(stage)
                _unpack(archive, targets, contents.bytes, progress)
                for stage in stages:
                    sync_tree(stage)
                replace_file(complete, digest)
            except BaseException:
                _remove(stages)
                if is_new:
                    root.rmdir()
                raise
        bundles = {name.split("/")[0] for name in contents.versions}
        for top in sorted(tops, key=lambda top: (top in bundles, top)):
            with suppress(FileNotFoundError):  # a process that was killed has renamed it
                _staged(targets[top]).rename(targets[top])
        for stage in stages:
            sync_folder(stage.parent)
        _remove(stages)
    return contents


def read_archive(archive: Path, progress: Progress = silent) -> tuple[Contents, str]:
    """Read all of an archive; return what it has, and the SHA-256 of its list. Raises BackupError if it is damaged."""
    found: dict[str, FileEntry] = {}
    last: dict[str, bytes] = {}
    size = archive.stat().st_size
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isreg() else None
                is_plain = not {"", ".", "..", STAGE} & {*member.name.split("/")}
                if file is None or not is_plain or member.name in found:
                    raise BackupError(f"{archive}: {member.name}: does not belong into a backup")
                if member.name in (CONTENTS, CHECKSUM):
                    last[member.name] = file.read()
                else:
                    hashing = hashlib.sha256()
                    while piece := file.read(_PIECE):
                        hashing.update(piece)
                    found[member.name] = FileEntry(hashing.hexdigest(), member.size)
                progress("verify", member.offset_data + member.size, size)
    except tarfile.TarError as error:
        raise BackupError(f"{archive}: damaged, or no backup: {error}") from error
    if last.keys() != {CONTENTS, CHECKSUM}:
        raise BackupError(f"{archive}: damaged, or no backup: {CONTENTS} is missing")
    digest = hashlib.sha256(last[CONTENTS]).hexdigest()
    if last[CHECKSUM].decode(errors="replace").split(" ")[0] != digest:
        raise BackupError(f"{archive}: damaged: {CONTENTS} differs from its checksum")
    given = json.loads(last[CONTENTS])
    if given["format"] != _FORMAT:
        raise BackupError(
            f"{archive}: has format {given['format']}; this release reads format {_FORMAT}"
        )
    listed = {name: FileEntry(**entry) for name, entry in given["files"].items()}
    for name in sorted(listed.keys() | found.keys()):
        if listed.get(name) != found.get(name):
            raise BackupError(f"{archive}: damaged: {name} differs from {CONTENTS}")
    return Contents(given["created"], given["release"], given["database"], listed), digest


def _is_complete(complete: Path, digest: str) -> bool:
    return complete.exists() and complete.read_text() == digest


def _check_free(root: Path, targets: Mapping[str, Path]) -> None:
    """Raise BackupError if there is something that belongs to a service."""
    taken = [*root.iterdir()] if root.exists() else []
    for target in targets.values():
        if target.parent != root:
            taken += [
                p for p in (target, Path(f"{target}-wal"), Path(f"{target}-shm")) if p.exists()
            ]
    for path in taken:
        if path.name not in (STAGE, "lost+found"):
            raise BackupError(f"{path}: exists already; restore into a new or empty folder")


def _staged(target: Path) -> Path:
    return target.parent / STAGE / target.name


def _unpack(archive: Path, targets: Mapping[str, Path], total: int, progress: Progress) -> None:
    done = 0
    with tarfile.open(archive, "r:") as tar:
        for member in tar:
            top, _, rest = member.name.partition("/")
            file = tar.extractfile(member)
            if top not in targets or file is None:
                continue
            path = _staged(targets[top]) / rest
            path.parent.mkdir(0o700 if top == FOLDER else 0o777, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(path, flags, member.mode), "wb") as copy:
                shutil.copyfileobj(file, copy, _PIECE)
            done += member.size
            progress("restore", done, total)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _remove(stages: list[Path]) -> None:
    """Remove the temporary folders, last the one that says whether they are complete."""
    for stage in reversed(stages):
        shutil.rmtree(stage)
