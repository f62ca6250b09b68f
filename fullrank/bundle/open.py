"""Open a bundle: verify its files, map them, replay its golden queries."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle import golden
from fullrank.bundle.bundle import Bundle, Section
from fullrank.bundle.catalog import resolve
from fullrank.bundle.documents import check_documents, open_documents, scorer_of, stored_arrays
from fullrank.bundle.manifest import FIELDS, GOLDEN, IDS, UNREAD, Manifest, read_manifest
from fullrank.bundle.second_stage import OF_DOCUMENTS, StageAlone, open_second_stage
from fullrank.bundle.second_stage import SECTION as RERANK
from fullrank.bundle.verify import advise, check_folder, check_hash, map_array, map_bytes
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank.models.contract import Model, Parts
from fullrank.models.registry import load_model
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import check_index, open_index
from fullrank.search.rerank.stage import SecondStage
from fullrank.storage.checks import check_finite, check_ids, check_strings
from fullrank.storage.encoding import Encoded
from fullrank.storage.strings import DocumentStore, Lexicon, StringTable

_MODEL = "model/"


def open_bundle(path: str | Path, *, verify: bool = True) -> Bundle:
    """Open a bundle for searching; its arrays are mapped.

    The manifest, the list of files, their sizes and every array's dtype and shape are always checked.

    Args:
        path: A version's folder, BUNDLES/NAME for the newest version of a name, or BUNDLES where it holds one name.
        verify: Also read every file: its sha256, finite numbers, row pointers, ids, and replay the golden queries.
            Pass False only for a folder that was verified before, by this process or another.

    Raises:
        BundleNotFound: There is no bundle.
        BundleError: A file is missing, damaged or of another format; the message names file and reason.

    Examples:
        >>> from fullrank import open_bundle
        >>> bundle = open_bundle(path)
        >>> [hit.id for hit in bundle.search("red apple", limit=2)]
        ['apple', 'ringo']
    """
    path = resolve(Path(path))
    with _errors_named(path):
        return _open(path, golden.TOLERANCE if verify else None)


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except BundleNotFound:
        raise
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from error
    except OSError as error:
        raise BundleError(f"{error.filename or path}: {error.strerror}") from error
    except Exception as error:
        # Files can agree with the manifest and still describe a model that fails in any way.
        raise BundleError(f"{path}: {type(error).__name__}: {error}") from error


def open_model(path: Path) -> tuple[Manifest, Model]:
    """Open the manifest and the model of a bundle, and verify the model's files. Raises as ``open_bundle``."""
    path = Path(path)
    with _errors_named(path):
        manifest = read_manifest(path)
        check_folder(path, manifest)
        for name, entry in sorted(manifest.files.items()):
            if name.startswith(_MODEL):
                check_hash(path, name, entry)
        return manifest, _load(manifest, *_Files(path, manifest, True).within(_MODEL))


def is_of_model(name: str) -> bool:
    """Return whether a file of a bundle depends on the training alone, not on the documents."""
    return name.startswith(_MODEL) or (
        name.startswith(f"{RERANK}/") and not name.startswith(f"{RERANK}/{OF_DOCUMENTS}")
    )


def open_trained(path: Path) -> tuple[Manifest, Model, SecondStage | None]:
    """Open model and second stage from a folder with their files alone, without a replay. Raises as ``open_bundle``."""
    with _errors_named(path):
        manifest = read_manifest(path)
        files = {name: entry for name, entry in manifest.files.items() if is_of_model(name)}
        trained = replace(manifest, files=files)
        check_folder(path, trained)
        for name, entry in sorted(files.items()):
            check_hash(path, name, entry)
        mapped = _Files(path, trained, True)
        model = _load(manifest, *mapped.within(_MODEL))
        if manifest.rerank is None:
            return manifest, model, None
        return (
            manifest,
            model,
            SecondStage.from_parts(manifest.rerank, mapped.within(f"{RERANK}/")[0]),
        )


def open_stage(path: Path) -> StageAlone | None:
    """Open only the second stage of a bundle, and verify its files; None without one. Raises as ``open_bundle``."""
    path = Path(path)
    with _errors_named(path):
        manifest = read_manifest(path)
        if manifest.rerank is None:
            return None
        check_folder(path, manifest)
        files = _Files(path, manifest, True)
        arrays, _ = files.within(f"{RERANK}/")
        ids = files.strings(IDS, ".txt")
        for name in sorted(files.used):
            check_hash(path, name, manifest.files[name])
        stage, known = open_second_stage(manifest.rerank, arrays, len(ids), verify=True)
        return StageAlone(stage, ids, known)


def verify_bundle(path: Path) -> None:
    open_bundle(path)


def replay(bundle: Bundle, tolerance: float) -> None:
    """Answer the golden queries again. Raises BundleError at the first answer that differs."""
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
    """Open a bundle; tolerance is that of the golden replay, None skips all checks that read whole files."""
    verify = tolerance is not None
    manifest = read_manifest(path)
    check_folder(path, manifest)
    if verify:
        for name, entry in sorted(manifest.files.items()):
            check_hash(path, name, entry)

    files = _Files(path, manifest, verify)
    arrays, strings = files.within(_MODEL)
    stored = stored_arrays(manifest.files)
    encoded_arrays = {name: files.array(f"documents/{name}.npy") for name in stored}
    ids, lines = files.strings(IDS, ".txt"), files.strings(FIELDS, ".jsonl")
    sections = {
        name: Section(facts, *files.within(f"{name}/"))
        for name, facts in manifest.sections().items()
        if facts is not None
    }
    if GOLDEN not in manifest.files:
        raise BundleError(f"{GOLDEN}: missing")
    known = files.used | {GOLDEN, *UNREAD}
    for name in sorted(manifest.files.keys() - known):
        raise BundleError(f"{name}: not a file of this format")

    model = _load(manifest, arrays, strings)
    encoded = open_documents(path, manifest.files, encoded_arrays, len(ids), model)
    if len(lines) != len(ids):
        raise BundleError(f"{FIELDS}.jsonl: {len(lines)} lines for {len(ids)} ids")
    if verify:
        check_documents(encoded)
        check_ids(f"{IDS}.txt", ids)
    if "columns" in sections:
        sections["columns"].columns(len(ids), verify=verify)
    index = None
    if "index" in sections:
        index = open_index(sections["index"].arrays, sections["index"].facts, encoded)
        if verify and index is not None:
            check_index(index, encoded)
    stage, facts = None, None
    if RERANK in sections:
        section = sections[RERANK]
        stage, facts = open_second_stage(section.facts, section.arrays, len(ids), verify=verify)
    retriever = Retriever(encoded, scorer_of(model, encoded), index)
    store = DocumentStore(ids, lines)
    bundle = Bundle(path, manifest, model, encoded, store, retriever, sections, stage, facts)
    # Searches read single rows; reading ahead would load neighbours that no search needs.
    advise(lines.blob, mmap.MADV_RANDOM)
    if index is not None and isinstance(encoded, Encoded):
        for array in (encoded.dense, encoded.sparse.indices, encoded.sparse.values):
            advise(array, mmap.MADV_RANDOM)
    if tolerance is not None:
        # Unmap what the checks read; the golden queries load again what a search needs.
        files.release()
        replay(bundle, tolerance)
    return bundle


def _load(
    manifest: Manifest, arrays: dict[str, npt.NDArray[Any]], strings: dict[str, Sequence[str]]
) -> Model:
    try:
        return load_model(Parts(dict(manifest.model), arrays, strings))
    except FullrankError:
        raise
    except Exception as error:  # a model may fail in any way on damaged parts
        raise BundleError(f"model: {type(error).__name__}: {error}") from error


class _Files:
    """Maps the files of one bundle; ``used`` has the names of those that were mapped."""

    def __init__(self, path: Path, manifest: Manifest, verify: bool) -> None:
        self._path = path
        self._files = manifest.files
        self._verify = verify
        self.used: set[str] = set()
        self._mapped: list[npt.NDArray[Any]] = []
        self._tables: dict[tuple[str | None, ...], StringTable] = {}

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
            raise BundleError(f"{stem}.offsets.npy: not one row of int64")
        text = map_bytes(self._path, stem + suffix)
        self._mapped.append(text)
        table = StringTable(text, offsets)
        if self._verify:
            check_strings(stem + suffix, table)
        return table

    def release(self) -> None:
        """Drop the mapped pages from memory; they load again when they are read."""
        for array in self._mapped:
            advise(array, mmap.MADV_DONTNEED)

    def within(self, folder: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Sequence[str]]]:
        """Map the arrays and string tables of a folder such as "model/", by name."""
        own = [name for name in self._files if name.startswith(folder)]
        stems = [name.removesuffix(".txt") for name in own if name.endswith(".txt")]
        strings: dict[str, Sequence[str]] = {
            stem.removeprefix(folder): self._words(stem) for stem in stems
        }
        arrays = {
            name.removeprefix(folder).removesuffix(".npy"): self.array(name)
            for name in own
            if name.endswith(".npy") and name not in self.used
        }
        return arrays, strings

    def _words(self, stem: str) -> StringTable:
        """Map a string table, with its hash table if it has one; equal tables are one object."""
        names = [f"{stem}.txt", f"{stem}.offsets.npy", f"{stem}.slots.npy"]
        entries = [self._files.get(name) for name in names]
        key = tuple(None if entry is None else entry.sha256 for entry in entries)
        if None not in key[:2] and key in self._tables:
            self.used.update(name for name in names if name in self._files)
            return self._tables[key]
        table = self.strings(stem, ".txt")
        if names[2] in self._files:
            try:
                table = Lexicon(table.blob, table.offsets, self.array(names[2]))
            except ValueError as error:
                raise BundleError(f"{names[2]}: {error}") from error
            made = Lexicon(table.blob, table.offsets)
            if self._verify and not np.array_equal(table.slots, made.slots):
                raise BundleError(f"{names[2]}: not the hash table of {names[0]}")
        self._tables[key] = table
        return table
