"""Write a bundle so that a reader finds all of it or nothing.

A staging folder is filled in this order: the model, the documents batch by batch, columns and index, the golden
answers, and last the manifest. Before it is published it is opened as a reader would open it and must give the golden
answers again, bit for bit.

Memory grows with the documents only by what retrieval needs for the golden queries and what columns are built from (at
most 12 bytes a short value, and each different text once). Documents are read back through memory maps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy.typing as npt

from fullrank.bundle import golden
from fullrank.bundle.documents import prefers_records, write_records
from fullrank.bundle.manifest import (
    FIELDS,
    GOLDEN,
    IDS,
    MANIFEST,
    LogPosition,
    Manifest,
    bundle_id,
    canonical_json,
    check_name,
    free_version,
    is_part,
)
from fullrank.bundle.open import open_bundle, replay
from fullrank.bundle.second_stage import SECTION as RERANK
from fullrank.bundle.second_stage import write_second_stage
from fullrank.bundle.staging import StagingFolder
from fullrank.errors import BundleError
from fullrank.filters.columns import ColumnsBuilder
from fullrank.models.contract import Model, Parts
from fullrank.progress import Progress, silent
from fullrank.retrieval import Floor, Retriever
from fullrank.retrieval.index import Index
from fullrank.retrieval.index.build import FAST_FROM, INDEXED_FROM, build_index
from fullrank.retrieval.tune import tune
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.stage import SecondStage
from fullrank.storage.checks import check_finite, check_ids, check_shapes, check_values
from fullrank.storage.documents import Document, fields_line
from fullrank.storage.encoding import Encoded
from fullrank.storage.strings import Lexicon, StringTable

Batch = tuple[Sequence[Document], Encoded]
"""Documents and their encoding."""

# Documents between two checkpoints of a bundle that can be resumed; some seconds of encoding.
CHECKPOINT_EACH = 1 << 17
# Reports of progress between two releases of mapped pages, so that memory does not grow with the documents. Mapping
# them again takes time.
_REPORTS_EACH = 16


def stream_bundle(
    root: Path,
    name: str,
    *,
    model: Model,
    batches: Iterable[Batch] | Callable[[int], Iterable[Batch]],
    golden_queries: Sequence[str],
    card: Mapping[str, Any],
    resume_key: str | None = None,
    sample_queries: Sequence[str] = (),
    created: datetime | None = None,
    log_position: LogPosition | None = None,
    second_stage: SecondStage | None = None,
    facts: Iterable[DocumentFacts] = (),
    floor: Floor | None = None,
    new_words: Sequence[str] = (),
    progress: Progress = silent,
) -> Path:
    """Write a bundle from batches of documents.

    Args:
        root: Folder of bundles.
        name: Name of the model.
        model: Stored by its ``parts()``. It is loaded again from the files and must give the golden answers bit for
            bit before the folder is published.
        batches: Distinct documents with their encodings, in ascending id order over all batches. The bundle does not
            depend on where the batches are cut. With ``resume_key`` a function that returns the batches from a
            document's row on.
        resume_key: Of the model and the documents, part of a file name: where a writer with this key was
            interrupted, go on from its last checkpoint. None: begin anew, and leave nothing when interrupted.
        golden_queries: Answered now and replayed at every load; a few dozen are enough.
        card: Any JSON about the training; not part of the bundle id.
        sample_queries: Queries that tune the fast mode; they should not have been trained on.
        created: UTC time of creation; default: now.
        log_position: The position in the log of live documents that the batches contain; None: no live documents.
        second_stage: Reorders the first documents of each ranking; None: the bundle has no second stage.
        facts: About the documents, for the second stage; batches in the order of the documents.
        floor: What a document must reach to be found; None: every document is found.
        new_words: Words of the documents that training did not see, ascending, for queries that begin them.
        progress: Called at the start of each part, and during long parts.

    Returns:
        <root>/<name>/<version>.

    Raises:
        BundleError: The parts do not fit each other, or the folder cannot be written.
    """
    check_name(name)
    created = (created or datetime.now(UTC)).astimezone(UTC)
    canonical_json(card)
    parts = model.parts()
    folder = StagingFolder(Path(root) / name, resume_key)
    try:
        with folder:
            _write_model(folder, parts, progress)
            progress("documents", 0, 0)
            encoded, ids, columns = _write_documents(folder, model, batches)
            progress("columns", 0, 0)
            sections = {"columns": _write_columns(folder, columns)}
            if second_stage is not None:
                sections[RERANK] = write_second_stage(folder, second_stage, facts, len(ids))
            if new_words:
                folder.write_strings("words/new", ".txt", new_words)
                sections["words"] = {}
            scorer = model.scorer(encoded)
            retriever = Retriever(encoded, scorer)
            if scorer is None and len(encoded) >= INDEXED_FROM:
                retriever = Retriever(encoded, None, _write_index(folder, encoded, progress))
                sections["index"] = {}
                if sample_queries and len(encoded) >= FAST_FROM:
                    queries = model.encode_queries(sample_queries)
                    sections["index"]["fast"] = _tuned_effort(retriever, queries, progress)
            folder.finish_arrays()
            progress("golden queries", 0, 0)
            answers = golden.answer(model, retriever, ids, golden_queries)
            folder.write_text(GOLDEN, golden.dump(answers))
            if "index" in sections and prefers_records(encoded):
                progress("records", 0, 0)
                write_records(folder, encoded)
            folder.forget()
            config = parts.config
            # The check maps all files again and loads a second model, so drop the arrays that made them.
            del parts, columns, encoded, ids, scorer, retriever
            progress("check", 0, 0)
            with folder.locked():
                target = _finish(folder, name, created, config, card, sections, log_position, floor)
    except OSError as error:
        refused = BundleError(f"cannot write {error.filename or folder.path}: {error.strerror}")
        for note in getattr(error, "__notes__", ()):
            refused.add_note(note)
        raise refused from error
    return target


def _write_model(folder: StagingFolder, parts: Parts, progress: Progress) -> None:
    for done, (name, array) in enumerate(sorted(parts.arrays.items()), start=1):
        progress("model", done, len(parts.arrays))
        if not is_part(name):
            raise BundleError(f"model array {name!r} cannot name a file")
        check_finite(f"model/{name}", array)
        folder.write_array(f"model/{name}.npy", array)
    for name, strings in sorted(parts.strings.items()):
        if not is_part(name):
            raise BundleError(f"model strings {name!r} cannot name a file")
        folder.write_strings(f"model/{name}", ".txt", strings)
        if isinstance(strings, Lexicon):
            folder.write_array(f"model/{name}.slots.npy", strings.slots)


def _write_documents(
    folder: StagingFolder,
    model: Model,
    batches: Iterable[Batch] | Callable[[int], Iterable[Batch]],
) -> tuple[Encoded, StringTable, ColumnsBuilder]:
    """Write the documents and map them again: their encoding and their ids; and collect their fields for filters."""
    columns = ColumnsBuilder()
    rows = folder.growing_arrays("documents/", Encoded.STORED, N=model.n_dense)
    ids, lines = folder.growing_strings(IDS, ".txt"), folder.growing_strings(FIELDS, ".jsonl")
    n_documents, last_id = folder.resumed.get("documents", 0), folder.resumed.get("last_id")
    if callable(batches):
        for line in folder.resumed_lines(f"{FIELDS}.jsonl"):
            columns.add(json.loads(line))
        batches = batches(n_documents)
    noted = n_documents
    for documents, encoded in batches:
        check_shapes(encoded, len(documents), model.n_dense, model.n_sparse)
        check_values(encoded)
        last_id = check_ids(
            "documents", (document.id for document in documents), n_documents, last_id
        )
        rows.append(encoded.arrays())
        try:
            ids.extend(document.id for document in documents)
        except UnicodeEncodeError as error:
            raise BundleError(f"document id {error.object!r} has no utf-8 form") from error
        lines.extend(fields_line(document.id, document.fields) for document in documents)
        for document in documents:
            columns.add(document.fields)
        n_documents += len(documents)
        if n_documents - noted >= CHECKPOINT_EACH:
            folder.checkpoint({"documents": n_documents, "last_id": last_id})
            noted = n_documents
    if n_documents >= CHECKPOINT_EACH:
        folder.checkpoint({"documents": n_documents, "last_id": last_id})
    rows.finish()
    ids.finish()
    lines.finish()
    arrays = {name: folder.map_array(f"documents/{name}.npy") for name in Encoded.STORED}
    return (
        Encoded.from_arrays(arrays, model.n_sparse),
        StringTable(folder.map_bytes(f"{IDS}.txt"), folder.map_array(f"{IDS}.offsets.npy")),
        columns,
    )


def _write_columns(folder: StagingFolder, columns: ColumnsBuilder) -> dict[str, Any]:
    return columns.finish(
        lambda name, shape, dtype: folder.create_array(f"columns/{name}.npy", shape, dtype),
        lambda name, texts: folder.write_strings(f"columns/{name}", ".txt", texts),
    )


def _write_index(folder: StagingFolder, documents: Encoded, progress: Progress) -> Index:
    def create(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return folder.create_array(f"index/{name}.npy", shape, dtype)

    n_reports = 0

    def reported(part: str, done: int, total: int) -> None:
        nonlocal n_reports
        n_reports += 1
        if n_reports % _REPORTS_EACH == 0:
            folder.release((documents.dense, documents.bias, *documents.sparse.arrays))
        progress(part, done, total)

    count = len(documents)
    cells = round(4 * count**0.5) if count >= FAST_FROM else 1
    return build_index(documents, create, reported, cells=cells)


def _tuned_effort(retriever: Retriever, queries: Encoded, progress: Progress) -> dict[str, Any]:
    """Return the manifest's facts about the fast mode; without "effort" the bundle has no fast mode."""
    effort, measured = tune(retriever, queries, progress)
    return measured if effort is None else {**measured, "effort": asdict(effort)}


def _finish(
    folder: StagingFolder,
    name: str,
    created: datetime,
    config: Mapping[str, Any],
    card: Mapping[str, Any],
    sections: Mapping[str, Mapping[str, Any]],
    log_position: LogPosition | None,
    floor: Floor | None,
) -> Path:
    """Write the manifest, check the folder as a reader would, and publish it. The caller holds the folder's lock."""
    parent = folder.path.parent
    identity = bundle_id(folder.files, config)
    version, created = free_version(parent, name, created, identity)
    manifest = Manifest(
        name=name,
        version=version,
        bundle_id=identity,
        created=created.isoformat(timespec="microseconds"),
        model=config,
        card=card,
        files=dict(folder.files),
        index=sections.get("index"),
        columns=sections.get("columns"),
        rerank=sections.get(RERANK),
        words=sections.get("words"),
        log_position=log_position,
        floor=floor,
    )
    folder.write_text(MANIFEST, manifest.dump())
    folder.sync()
    # Answer from the files, as a reader will, not from memory.
    replay(open_bundle(folder.path, verify=False), 0.0)
    target = parent / manifest.version
    folder.publish(target)
    return target
