"""Writing a bundle so that a reader finds either all of it or none of it.

Everything goes into a temporary folder beside its final place, each file is synced, the manifest
comes last, the folder is renamed, and the parent is synced. Whatever fails on the way, the
temporary folder is removed; after a power cut it may remain, and no reader takes it for a bundle.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fullrank import golden
from fullrank.documents import Document, fields_line
from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.loading import open_bundle, replay
from fullrank.manifest import (
    ENCODED,
    FAISS_INDEX,
    FIELDS,
    GOLDEN,
    IDS,
    MANIFEST,
    FileEntry,
    Manifest,
    bundle_id,
    canonical_json,
    is_dtype,
    is_name,
    is_part,
    version_of,
)
from fullrank.model import Model, Parts
from fullrank.retrieval import Retriever
from fullrank.strings import StringTable
from fullrank.verify import check_finite, check_ids, check_shapes, check_values

TEMPORARY = ".tmp-"


def write_bundle(
    root: Path,
    name: str,
    *,
    model: Model,
    encoded: Encoded,
    documents: Sequence[Document],
    golden_queries: Sequence[str],
    card: Mapping[str, Any],
    faiss_index: bool = True,
    created: datetime | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write <root>/<name>/<version>/ and return that path.

    model           goes through model.parts(); what was written is loaded again and must answer
                    the golden queries with equal bits before the folder gets its name
    encoded         the documents as the model encodes them, row i being documents[i]
    documents       in ascending id order, distinct
    golden_queries  asked now, replayed at every load; a few dozen is plenty
    card            free JSON about the training; not part of the bundle id
    faiss_index     also write index.faiss, where the model has a dense part
    created         UTC time of creation, now by default
    progress        called with a short line as each part is begun

    Raises BundleError when the parts do not fit each other or cannot be written.
    """
    say = progress or (lambda message: None)
    if not is_name(name):
        raise BundleError(f"{name!r} cannot name a bundle: a-z, 0-9, '.', '_', '-', at most 100")
    created = (created or datetime.now(UTC)).astimezone(UTC)
    if not is_name(version_of(name, created, "0" * 8)):
        raise BundleError(f"{name!r} is too long to name a bundle: at most 74 characters")
    canonical_json(card)
    parts = model.parts()
    ids = _checked_ids(documents)
    check_shapes(encoded, len(documents), model.n_dense, model.n_sparse)
    check_values(encoded)

    parent = Path(root) / name
    temporary = parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    try:
        temporary.mkdir(parents=True)
        folder = _Folder(temporary)
        say("model")
        _write_model(folder, parts)
        say("documents")
        for array in ENCODED:
            folder.array(f"documents/{array}.npy", getattr(encoded, array))
        folder.strings(IDS, ".txt", ids)
        folder.strings(FIELDS, ".jsonl", StringTable.of(map(fields_line, documents)))
        if faiss_index and model.n_dense > 0 and len(documents) > 0:
            say("index")
            _write_faiss(folder, encoded)
        say("golden queries")
        answers = golden.answer(
            model, Retriever(encoded, model.scorer(encoded)), ids, golden_queries
        )
        folder.text(GOLDEN, golden.dump(answers))
        target = _finish(folder, parent, name, created, parts.config, card)
    except OSError as error:
        _discard(temporary)
        raise BundleError(
            f"cannot write {error.filename or temporary}: {error.strerror}"
        ) from error
    except BaseException:
        _discard(temporary)
        raise
    say(f"wrote {target.name}")
    return target


def _checked_ids(documents: Sequence[Document]) -> StringTable:
    try:
        ids = StringTable.of(document.id for document in documents)
    except UnicodeEncodeError as error:
        raise BundleError(f"document id {error.object!r} has no utf-8 form") from error
    check_ids("documents", ids)
    return ids


def _write_model(folder: _Folder, parts: Parts) -> None:
    for name, array in sorted(parts.arrays.items()):
        if not is_part(name):
            raise BundleError(f"model array {name!r} cannot name a file")
        check_finite(f"model/{name}", array)
        folder.array(f"model/{name}.npy", array)
    for name, strings in sorted(parts.strings.items()):
        if not is_part(name):
            raise BundleError(f"model strings {name!r} cannot name a file")
        table = strings if isinstance(strings, StringTable) else StringTable.of(strings)
        folder.strings(f"model/{name}", ".txt", table)


def _write_faiss(folder: _Folder, encoded: Encoded) -> None:
    # Imported here: a bundle without an index is written without faiss.
    from fullrank.faiss_index import build_index, index_bytes

    folder.bytes(FAISS_INDEX, index_bytes(build_index(encoded)).data)


def _finish(
    folder: _Folder,
    parent: Path,
    name: str,
    created: datetime,
    config: Mapping[str, Any],
    card: Mapping[str, Any],
) -> Path:
    """Manifest, check of what was written, rename."""
    identity = bundle_id(folder.files, config)
    while (parent / version_of(name, created, identity)).exists():
        # The same training published twice within a second: the later one waits its turn.
        created += timedelta(seconds=1)
    manifest = Manifest(
        name=name,
        version=version_of(name, created, identity),
        bundle_id=identity,
        created=created.isoformat(timespec="microseconds"),
        model=config,
        card=card,
        files=folder.files,
    )
    folder.text(MANIFEST, manifest.dump())
    folder.sync()
    # What a reader will compute, not what memory holds, has to answer as expected: bit for bit.
    replay(open_bundle(folder.path, verify=False), 0.0)
    target = parent / manifest.version
    folder.path.rename(target)
    _sync(parent)
    _sync(parent.parent)
    return target


def _discard(temporary: Path) -> None:
    shutil.rmtree(temporary, ignore_errors=True)
    with contextlib.suppress(OSError):  # other versions live there
        temporary.parent.rmdir()


class _Folder:
    """A folder being filled: every file is hashed as it is written and synced when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, FileEntry] = {}

    def array(self, name: str, array: npt.NDArray[Any]) -> None:
        array = np.ascontiguousarray(array)
        if not is_dtype(array.dtype.str):
            raise BundleError(f"{name}: dtype {array.dtype} cannot be stored")
        with _Writer(self._new(name)) as file:
            np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
        self.files[name] = FileEntry(file.sha256, file.size, array.dtype.str, array.shape)

    def bytes(self, name: str, content: memoryview) -> None:
        with _Writer(self._new(name)) as file:
            file.write(content)
        self.files[name] = FileEntry(file.sha256, file.size)

    def text(self, name: str, content: str) -> None:
        self.bytes(name, memoryview(content.encode()))

    def strings(self, stem: str, suffix: str, table: StringTable) -> None:
        self.bytes(stem + suffix, table.blob.data)
        self.array(stem + ".offsets.npy", table.offsets)

    def sync(self) -> None:
        for folder in {(self.path / name).parent for name in self.files} | {self.path}:
            _sync(folder)

    def _new(self, name: str) -> Path:
        if name.lower() in {known.lower() for known in self.files}:
            raise BundleError(f"{name}: two parts of the model want this file")
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        return path


class _Writer:
    """A new file that knows its own size and sha256."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("xb")
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, content: bytes | memoryview) -> int:
        self._file.write(content)
        self._digest.update(content)
        self.size += len(content)
        return len(content)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._file:
            if raised[0] is None:
                self._file.flush()
                os.fsync(self._file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
