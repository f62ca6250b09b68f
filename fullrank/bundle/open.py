"""Opening a bundle: verify first, then map. Nothing is served from a folder that was refused."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from fullrank.bundle import golden
from fullrank.bundle.manifest import (
    CELLS,
    ENCODED,
    FAISS_INDEX,
    FIELDS,
    GOLDEN,
    IDS,
    MANIFEST,
    Manifest,
    parse_manifest,
)
from fullrank.columns import Columns, columns_of, open_columns
from fullrank.encoding import Encoded
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank.model import Model, Parts
from fullrank.models.registry import load_model
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import check_index, open_index
from fullrank.storage.documents import DocumentStore
from fullrank.storage.strings import StringTable
from fullrank.unseen import OpenModel, live_model
from fullrank.verify import (
    advise,
    check_finite,
    check_folder,
    check_hash,
    check_ids,
    check_shapes,
    check_strings,
    check_values,
    map_array,
    map_bytes,
)

_MODEL = "model/"


@dataclass(frozen=True, eq=False)
class Section:
    """What stands beside the documents in one folder: its facts, arrays and string tables by name."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]
    strings: Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class Bundle:
    """An opened bundle: the model, the encoded documents (mapped), their fields, and retrieval.

    sections  what the bundle holds beside the documents, "index" and "columns", where it does
    """

    path: Path
    manifest: Manifest
    model: Model
    encoded: Encoded
    documents: DocumentStore
    retriever: Retriever
    sections: Mapping[str, Section]

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def bundle_id(self) -> str:
        return self.manifest.bundle_id

    @property
    def card(self) -> Mapping[str, Any]:
        return self.manifest.card

    @cached_property
    def live_model(self) -> OpenModel | None:
        """The model with rows for words that it does not know; None where it takes no live documents."""
        return live_model(self.model)

    @cached_property
    def columns(self) -> Columns:
        """The stored fields as columns: mapped, or where the bundle has none built when first asked for."""
        stored = self.sections.get("columns")
        if stored is None:
            return columns_of(map(self.documents.fields, range(len(self.documents))))
        return _columns(stored, len(self.documents), verify=False)


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a bundle folder.

    Raises BundleNotFound where there is none, BundleError where it is not one of this format.
    """
    try:
        text = (path / MANIFEST).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BundleNotFound(f"{path}: no {MANIFEST}, so no bundle") from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{MANIFEST}: not utf-8") from error
    except OSError as error:
        raise BundleError(f"{MANIFEST}: {error.strerror}") from error
    return parse_manifest(text)


def open_bundle(path: Path, *, verify: bool = True) -> Bundle:
    """Open a bundle folder.

    The manifest, the list of files, their sizes and every array's dtype and shape are always held
    against each other. verify=True (the default) also reads everything: sha256 of each file,
    finite numbers, row pointers, ids, and the golden queries. Pass False only for a folder that
    was verified before, by this process or another.

    Raises BundleNotFound where there is no manifest; BundleError naming file and reason otherwise.
    """
    path = Path(path)
    with _named(path):
        return _open(path, golden.TOLERANCE if verify else None)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors say which bundle they are about."""
    try:
        yield
    except BundleNotFound:
        raise
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from error
    except OSError as error:
        raise BundleError(f"{error.filename or path}: {error.strerror}") from error
    except Exception as error:
        # Every file may be what the manifest says, and yet describe a model that fails in any way when it is asked.
        raise BundleError(f"{path}: {type(error).__name__}: {error}") from error


def open_model(path: Path) -> tuple[Manifest, Model]:
    """The manifest and the model of a bundle, the hashes and numbers of the model's files checked.

    The documents are not looked at, so this costs the same however many there are. Raises as
    ``open_bundle``.
    """
    path = Path(path)
    with _named(path):
        manifest = read_manifest(path)
        check_folder(path, manifest)
        for name, entry in sorted(manifest.files.items()):
            if name.startswith(_MODEL):
                check_hash(path, name, entry)
        return manifest, _load(manifest, *_Files(path, manifest, True).within(_MODEL))


def verify_bundle(path: Path) -> None:
    """Raise BundleError unless the bundle passes every check of open_bundle."""
    open_bundle(path)


def replay(bundle: Bundle, tolerance: float) -> None:
    """Ask the golden queries again. Raises BundleError at the first answer that differs."""
    try:
        text = (bundle.path / GOLDEN).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{GOLDEN}: not utf-8") from error
    expected = golden.parse(text)
    found = golden.answer(
        bundle.model, bundle.retriever, bundle.documents.ids, [a.query for a in expected]
    )
    golden.compare(expected, found, tolerance)


def _open(path: Path, tolerance: float | None) -> Bundle:
    """tolerance: of the golden replay; None leaves out all checks that read the files in full."""
    verify = tolerance is not None
    manifest = read_manifest(path)
    check_folder(path, manifest)
    if verify:
        for name, entry in sorted(manifest.files.items()):
            check_hash(path, name, entry)

    files = _Files(path, manifest, verify)
    arrays, strings = files.within(_MODEL)
    encoded_arrays = {name: files.array(f"documents/{name}.npy") for name in ENCODED}
    ids, lines = files.strings(IDS, ".txt"), files.strings(FIELDS, ".jsonl")
    sections = {
        name: Section(facts, *files.within(f"{name}/"))
        for name, facts in manifest.sections().items()
        if facts is not None
    }
    if GOLDEN not in manifest.files:
        raise BundleError(f"{GOLDEN}: missing")
    known = files.used | {GOLDEN, CELLS, FAISS_INDEX}
    for name in sorted(manifest.files.keys() - known):
        raise BundleError(f"{name}: no part of this format")

    model = _load(manifest, arrays, strings)
    encoded = Encoded(**encoded_arrays, width=model.n_sparse)
    check_shapes(encoded, len(ids), model.n_dense, model.n_sparse)
    if len(lines) != len(ids):
        raise BundleError(f"{FIELDS}.jsonl: {len(lines)} lines for {len(ids)} ids")
    if verify:
        check_values(encoded)
        check_ids(f"{IDS}.txt", ids)
    if "columns" in sections:
        _columns(sections["columns"], len(ids), verify=verify)
    index = None
    if "index" in sections:
        cells = path / CELLS if CELLS in manifest.files else None
        index = open_index(sections["index"].arrays, sections["index"].facts, encoded, cells)
        if verify:
            check_index(index, encoded)
    retriever = Retriever(encoded, model.scorer(encoded), index)
    store = DocumentStore(ids, lines)
    bundle = Bundle(path, manifest, model, encoded, store, retriever, sections)
    # Here and there a row is read: reading ahead would fetch its neighbours, which nobody asks for.
    advise(lines.blob, mmap.MADV_RANDOM)
    if index is not None:
        for array in (encoded.dense, encoded.indices, encoded.weights):
            advise(array, mmap.MADV_RANDOM)
    if tolerance is not None:
        # What the checks have read need not stay; the golden queries bring back what a search reads.
        files.release()
        replay(bundle, tolerance)
    return bundle


def _load(
    manifest: Manifest,
    arrays: dict[str, npt.NDArray[Any]],
    strings: dict[str, Sequence[str]],
) -> Model:
    try:
        return load_model(Parts(dict(manifest.model), arrays, strings))
    except FullrankError:
        raise
    except Exception as error:  # a model kind may fail on damaged parts in any way
        raise BundleError(f"model: {type(error).__name__}: {error}") from error


def _columns(stored: Section, documents: int, *, verify: bool) -> Columns:
    return open_columns(documents, stored.facts, stored.arrays, stored.strings, verify=verify)


class _Files:
    """The files of one bundle, mapped on request; used is what was asked for."""

    def __init__(self, path: Path, manifest: Manifest, verify: bool) -> None:
        self._path = path
        self._files = manifest.files
        self._verify = verify
        self.used: set[str] = set()
        self._mapped: list[npt.NDArray[Any]] = []

    def array(self, name: str) -> npt.NDArray[Any]:
        if name not in self._files:
            raise BundleError(f"{name}: missing")
        self.used.add(name)
        array = map_array(self._path, name, self._files[name])
        self._mapped.append(array)
        if self._verify:
            check_finite(name, array)
        return array

    def strings(self, stem: str, suffix: str) -> StringTable:
        if stem + suffix not in self._files:
            raise BundleError(f"{stem}{suffix}: missing")
        self.used.add(stem + suffix)
        offsets = self.array(stem + ".offsets.npy")
        if offsets.dtype.str != "<i8" or offsets.ndim != 1:
            raise BundleError(f"{stem}.offsets.npy: not a row of int64")
        text = map_bytes(self._path, stem + suffix)
        self._mapped.append(text)
        table = StringTable(text, offsets)
        if self._verify:
            check_strings(stem + suffix, table)
        return table

    def release(self) -> None:
        """Unmap the pages read so far; they come back when they are read again."""
        for array in self._mapped:
            advise(array, mmap.MADV_DONTNEED)

    def within(self, folder: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Sequence[str]]]:
        """The arrays and string tables of a folder, "model/", each by its name."""
        own = [name for name in self._files if name.startswith(folder)]
        stems = [name.removesuffix(".txt") for name in own if name.endswith(".txt")]
        strings: dict[str, Sequence[str]] = {
            stem.removeprefix(folder): self.strings(stem, ".txt") for stem in stems
        }
        arrays = {
            name.removeprefix(folder).removesuffix(".npy"): self.array(name)
            for name in own
            if name.endswith(".npy") and name not in self.used
        }
        return arrays, strings
