"""Writing a bundle so that a reader finds either all of it or none of it.

The folder of folder.py is filled in this order: the model, the documents batch by batch as they
come, what is built beside them, the golden answers, and last the manifest. The result is opened as
a reader would and has to answer as it was written before it gets its name.

Nothing is held that grows with the documents but what retrieval itself holds to answer the golden
queries, and what columns are made of (at most 12 bytes a short value, each different text once): the
documents are read back through memory maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle import golden
from fullrank.bundle.manifest import (
    CELLS,
    ENCODED,
    FIELDS,
    GOLDEN,
    IDS,
    MANIFEST,
    LogPosition,
    Manifest,
    bundle_id,
    canonical_json,
    is_name,
    is_part,
    version_of,
)
from fullrank.bundle.open import open_bundle, replay
from fullrank.bundle.staging import Folder
from fullrank.columns import build_columns
from fullrank.encoding import Encoded
from fullrank.errors import BundleError
from fullrank.index import Index
from fullrank.model import Model, Parts
from fullrank.progress import Progress, silent
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import CELL_OF, INDEXED_FROM, build_index
from fullrank.retrieval.tune import tune
from fullrank.storage.documents import Document, fields_line
from fullrank.storage.strings import StringTable
from fullrank.verify import check_finite, check_ids, check_shapes, check_values

Batch = tuple[Sequence[Document], Encoded]
"""Some documents, and as the model encodes them."""


def write_bundle(
    root: Path,
    name: str,
    *,
    model: Model,
    encoded: Encoded,
    documents: Sequence[Document],
    golden_queries: Sequence[str],
    card: Mapping[str, Any],
    sample_queries: Sequence[str] = (),
    created: datetime | None = None,
    log_position: LogPosition | None = None,
    progress: Progress = silent,
) -> Path:
    """Write <root>/<name>/<version>/ and return that path; ``stream_bundle`` with one batch.

    encoded    the documents as the model encodes them, row i being documents[i]
    documents  in ascending id order, distinct
    """
    return stream_bundle(
        root,
        name,
        model=model,
        batches=[(documents, encoded)],
        golden_queries=golden_queries,
        card=card,
        sample_queries=sample_queries,
        created=created,
        log_position=log_position,
        progress=progress,
    )


def stream_bundle(
    root: Path,
    name: str,
    *,
    model: Model,
    batches: Iterable[Batch],
    golden_queries: Sequence[str],
    card: Mapping[str, Any],
    sample_queries: Sequence[str] = (),
    created: datetime | None = None,
    log_position: LogPosition | None = None,
    progress: Progress = silent,
) -> Path:
    """Write <root>/<name>/<version>/ and return that path.

    model           goes through model.parts(); what was written is loaded again and must answer
                    the golden queries with equal bits before the folder gets its name
    batches         documents in ascending id order over all batches, distinct, each batch with its
                    encoding; taken one at a time, so the bundle does not depend on where they are cut
    golden_queries  asked now, replayed at every load; a few dozen is plenty
    card            free JSON about the training; not part of the bundle id
    sample_queries  what the fast mode is tuned with; should not have been trained on
    created         UTC time of creation, now by default
    log_position    which live documents the batches contain; None: none
    progress        told of each part as it begins, and of the long ones how far they are

    Raises BundleError when the parts do not fit each other or cannot be written.
    """
    if not is_name(name):
        raise BundleError(f"{name!r} cannot name a bundle: a-z, 0-9, '.', '_', '-', at most 100")
    created = (created or datetime.now(UTC)).astimezone(UTC)
    if not is_name(version_of(name, created, "0" * 8)):
        raise BundleError(f"{name!r} is too long to name a bundle: at most 74 characters")
    canonical_json(card)
    parts = model.parts()
    folder = Folder(Path(root) / name)
    try:
        with folder:
            progress("model", 0, 0)
            _write_model(folder, parts)
            progress("documents", 0, 0)
            encoded, ids, lines = _write_documents(folder, model, batches)
            progress("columns", 0, 0)
            beside = {"columns": _write_columns(folder, lines)}
            retriever = Retriever(encoded, model.scorer(encoded))
            if retriever.scorer is None and len(encoded) >= INDEXED_FROM:
                retriever = Retriever(encoded, None, _write_index(folder, encoded, progress))
                beside["index"] = {}
                if sample_queries:
                    queries = model.encode_queries(sample_queries)
                    beside["index"]["fast"] = _tuned(retriever, queries, progress)
            folder.finish()
            progress("golden queries", 0, 0)
            answers = golden.answer(model, retriever, ids, golden_queries)
            folder.text(GOLDEN, golden.dump(answers))
            with folder.turn():
                target = _finish(folder, name, created, parts.config, card, beside, log_position)
    except OSError as error:
        raise BundleError(
            f"cannot write {error.filename or folder.path}: {error.strerror}"
        ) from error
    return target


def _write_model(folder: Folder, parts: Parts) -> None:
    for name, array in sorted(parts.arrays.items()):
        if not is_part(name):
            raise BundleError(f"model array {name!r} cannot name a file")
        check_finite(f"model/{name}", array)
        folder.array(f"model/{name}.npy", array)
    for name, strings in sorted(parts.strings.items()):
        if not is_part(name):
            raise BundleError(f"model strings {name!r} cannot name a file")
        folder.strings(f"model/{name}", ".txt", strings)


def _write_documents(
    folder: Folder, model: Model, batches: Iterable[Batch]
) -> tuple[Encoded, StringTable, StringTable]:
    """The documents as they lie on disk, mapped: encoded, their ids, the lines of their fields."""
    tails = {"dense": (model.n_dense,)}
    rows = {
        name: folder.rows(f"documents/{name}.npy", dtype, tails.get(name, ()))
        for name, dtype in ENCODED.items()
    }
    ids, lines = folder.table(IDS, ".txt"), folder.table(FIELDS, ".jsonl")
    rows["indptr"].append(np.zeros(1, np.int64))
    entries, done, last = 0, 0, None
    for documents, encoded in batches:
        check_shapes(encoded, len(documents), model.n_dense, model.n_sparse)
        check_values(encoded)
        last = check_ids("documents", (document.id for document in documents), done, last)
        for name in ("dense", "indices", "weights", "bias"):
            rows[name].append(getattr(encoded, name))
        rows["indptr"].append(entries + encoded.indptr[1:])
        try:
            ids.extend(document.id for document in documents)
        except UnicodeEncodeError as error:
            raise BundleError(f"document id {error.object!r} has no utf-8 form") from error
        lines.extend(map(fields_line, documents))
        entries, done = entries + int(encoded.indptr[-1]), done + len(documents)
    for array in rows.values():
        array.end()
    ids.end()
    lines.end()
    arrays = {name: folder.map_array(f"documents/{name}.npy") for name in ENCODED}
    return (
        Encoded(**arrays, width=model.n_sparse),
        _mapped(folder, IDS, ".txt"),
        _mapped(folder, FIELDS, ".jsonl"),
    )


def _mapped(folder: Folder, stem: str, suffix: str) -> StringTable:
    return StringTable(folder.map_bytes(stem + suffix), folder.map_array(f"{stem}.offsets.npy"))


def _write_columns(folder: Folder, lines: StringTable) -> dict[str, Any]:
    """columns/: the stored fields as columns."""
    return build_columns(
        lines,
        lambda name, shape, dtype: folder.create(f"columns/{name}.npy", shape, dtype),
        lambda name, texts: folder.strings(f"columns/{name}", ".txt", texts),
    )


def _write_index(folder: Folder, documents: Encoded, progress: Progress) -> Index:
    """index/: what is scanned in place of the documents."""
    # Imported here: a bundle without an index is written without faiss.
    from fullrank.retrieval.index.cells import LONGEST, build_cells, open_cells

    def create(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return folder.create(f"index/{name}.npy", shape, dtype)

    index = build_index(documents, create, progress)
    if documents.dense.shape[1] and index.codes.length < LONGEST:
        of = create(CELL_OF, (len(documents),), np.uint16)
        folder.written(CELLS, lambda path: build_cells(documents.dense, path, of, progress))
        index = replace(index, cells=open_cells(folder.path / CELLS, of))
    return index


def _tuned(retriever: Retriever, queries: Encoded, progress: Progress) -> dict[str, Any]:
    """What the manifest says of the fast mode; without an effort there is none."""
    effort, measured = tune(retriever, queries, progress)
    return measured if effort is None else {**measured, "effort": asdict(effort)}


def _finish(
    folder: Folder,
    name: str,
    created: datetime,
    config: Mapping[str, Any],
    card: Mapping[str, Any],
    beside: Mapping[str, Mapping[str, Any]],
    log_position: LogPosition | None,
) -> Path:
    """Manifest, check of what was written, rename; in the folder's turn, so that nobody else takes the version."""
    parent = folder.path.parent
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
        files=dict(folder.files),
        index=beside.get("index"),
        columns=beside.get("columns"),
        log_position=log_position,
    )
    folder.text(MANIFEST, manifest.dump())
    folder.sync()
    # What a reader will compute, not what memory holds, has to answer as expected: bit for bit.
    replay(open_bundle(folder.path, verify=False), 0.0)
    target = parent / manifest.version
    folder.publish(target)
    return target
