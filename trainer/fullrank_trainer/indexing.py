"""Encode a corpus of any size with a trained model and write a new bundle of that model.

The model encodes every document again. The new bundle lacks what training learned about single documents (their
biases, the document vectors of half transductive models) and clicked text that was collected from queries. If the
model counts clicks, documents whose ids are in the corpus keep theirs, and their biases. A second stage stays; of
single documents it knows how many training queries led to those whose ids are in the corpus.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import fullrank
from fullrank.bundle import log_position_of, open_bundle, open_model, open_stage, stream_bundle
from fullrank.bundle.manifest import Manifest, check_name
from fullrank.bundle.write import Batch
from fullrank.live.segments import with_clicks
from fullrank.models.contract import Model
from fullrank.progress import Reporter
from fullrank.storage.documents import Document, text_of
from fullrank.storage.encoding import Encoded
from fullrank_trainer.card import GOLDEN, MAX_CHARACTERS, TUNING
from fullrank_trainer.collection import read_queries
from fullrank_trainer.collection.corpus import CorpusFile
from fullrank_trainer.workers import Worker

BATCH = 4096
# Of batches for each worker; this process has encoded fewer before a worker has opened the model.
_LEAST_BATCHES = 4
_QUERY_WORDS = 10
_SEED = 1


@dataclass(frozen=True)
class IndexResult:
    """A written bundle."""

    path: Path
    parent: str
    documents: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "bundle": str(self.path),
            "version": self.path.name,
            "parent": self.parent,
            "documents": self.documents,
            "seconds": self.seconds,
        }


def index(
    bundle: str | Path,
    corpus: str | Path,
    out: str | Path,
    name: str | None = None,
    *,
    queries: str | Path | None = None,
    batch: int = BATCH,
    processes: int | None = None,
    exported_from: Path | None = None,
    created: datetime | None = None,
    reporter: Reporter | None = None,
) -> IndexResult:
    """Encode a corpus with the model of a bundle and write the bundle out/name/version.

    Args:
        corpus: corpus.jsonl[.gz], or a folder with one.
        name: of the new bundle; by default that of ``bundle``.
        queries: queries.jsonl[.gz], or a folder with one: typical queries, to tune the fast mode and to check the
            bundle whenever it is opened. By default titles and other words of documents.
        batch: documents encoded in one step; the result does not depend on it.
        processes: to use, this one among them; by default as many as cores.
        exported_from: the bundle that the corpus was exported from, if it was.

    Raises:
        BundleError: the bundle cannot be read or written.
        CollectionError: the corpus or the queries cannot be read.
        FullrankError: a worker process died.

    Whatever stops the run, no part of the bundle is visible. A run that was interrupted after its first hundred
    thousand documents keeps those that it has encoded: the same call goes on behind them. A run that is refused because
    of its input leaves nothing.

    Example:
        >>> index("bundles/shop/shop-20260102t030405z-1a2b3c4d", "corpus.jsonl.gz", "bundles").documents
        1000000
    """
    began = time.monotonic()
    if name is not None:
        check_name(name)
    bundle, out = Path(bundle), Path(out)
    manifest, model = open_model(bundle)
    kept = open_stage(bundle)
    log_position = (
        None if exported_from is None else log_position_of(exported_from, name or manifest.name)
    )
    given = [] if queries is None else [query.text for query in read_queries(queries)]
    with reporter or Reporter() as reporter, CorpusFile(corpus, scratch=_existing(out)) as source:
        counts = source.report.counts()
        reporter.log("read", corpus=str(source.path), **counts)

        def encoded(start: int) -> Iterator[Batch]:
            return stack.enter_context(
                closing(
                    _encoded(source, model, bundle, batch, processes or _cores(), reporter, start)
                )
            )

        with ExitStack() as stack, reporter.callback() as progress:
            path = stream_bundle(
                out,
                name or manifest.name,
                model=model,
                batches=encoded,
                resume_key=_key(manifest, source),
                golden_queries=_sample(given, GOLDEN, _SEED)
                or _make_queries(source, model, GOLDEN, _SEED),
                sample_queries=_sample(given, TUNING, _SEED + 1)
                or _make_queries(source, model, TUNING, _SEED + 1),
                card=_card(manifest, source, counts),
                log_position=log_position,
                second_stage=None if kept is None else kept.stage,
                facts=() if kept is None else map(kept.facts, _batches(source.documents(), batch)),
                floor=manifest.floor,
                created=created,
                progress=progress,
            )
        seconds = time.monotonic() - began
        reporter.log("written", version=path.name, seconds=seconds)
    return IndexResult(path, manifest.version, len(source), seconds)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _existing(folder: Path) -> Path:
    folder = folder.resolve()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _key(manifest: Manifest, source: CorpusFile) -> str:
    """Return the same for all runs whose encoded documents are the same."""
    parts = (fullrank.__version__, manifest.bundle_id, source.fingerprint)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _encoded(
    source: CorpusFile,
    model: Model,
    bundle: Path,
    batch: int,
    processes: int,
    reporter: Reporter,
    start: int,
) -> Generator[Batch, None, None]:
    """Encode the documents from a row on."""
    if start:
        reporter.log("resumed", documents=start)
    batches = _batches(source.documents(start), batch)
    processes = min(processes, 1 + (len(source) - start) // (_LEAST_BATCHES * batch))
    with (
        reporter.stage("encode", total=len(source) - start) as stage,
        closing(encode_batches(batches, model, bundle, processes)) as found,
    ):
        parent = open_bundle(bundle, verify=False)
        for documents, encoded in found:
            ids = [document.id for document in documents]
            yield documents, with_clicks(model, encoded, ids, parent.documents, parent.encoded)
            stage.advance(len(documents))


def _batches(documents: Iterable[Any], size: int) -> Iterator[Documents]:
    rest = iter(documents)
    while batch := list(islice(rest, size)):
        yield batch


def _sample(given: Sequence[str], count: int, seed: int) -> list[str]:
    texts = [text for text in given if text.strip()]
    places = np.random.default_rng(seed).permutation(len(texts))[:count]
    return [texts[i][:MAX_CHARACTERS] for i in np.sort(places).tolist()]


def _make_queries(source: CorpusFile, model: Model, count: int, seed: int) -> list[str]:
    """Make queries of random documents: titles in turn with consecutive words of the text."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(source), min(count, len(source)), replace=False))
    queries = []
    for i, row in enumerate(rows.tolist()):
        fields = source.document(row).fields
        words = model.query_text(fields).split()
        first = int(rng.integers(max(1, len(words) - _QUERY_WORDS)))
        # The model may not read titles.
        title = model.query_text({"title": fields.get("title")}).strip() if i % 2 == 0 else ""
        text = title or " ".join(words[first : first + _QUERY_WORDS])
        if text:
            queries.append(text[:MAX_CHARACTERS])
    return queries


def _card(parent: Manifest, source: CorpusFile, counts: dict[str, int]) -> dict[str, Any]:
    """Return the model card, with that of the training, also if an indexed bundle is indexed again."""
    return {
        "parent": parent.version,
        "parent_bundle_id": parent.bundle_id,
        "collection": {"fingerprint": source.fingerprint, **counts},
        "trained": parent.card.get("trained", parent.card),
        "trained_at": parent.card.get("trained_at", parent.created),
    }


Documents = Sequence[Document]

# Batches for each process that are encoded but not written yet, or being encoded.
_AHEAD = 2


@dataclass
class _Taken:
    """A batch, and its encoding or the worker that has it."""

    documents: Documents
    encoded: Encoded | Worker


def encode_batches(
    batches: Iterable[Documents], model: Model, bundle: Path, processes: int
) -> Generator[Batch, None, None]:
    """Yield (batch, its encoding) in order, encoded by workers, and by this process while the next one is not there.

    Workers find the same model in ``bundle``. Raises FullrankError if a worker died, and any error of the model.
    """
    rest, taken = iter(batches), deque[_Taken]()
    with ExitStack() as stack:
        starting = [
            stack.enter_context(Worker("fullrank_trainer.indexing:work", "encodes documents"))
            for _ in range(processes - 1)
        ]
        for worker in starting:
            worker.send(bundle)
        idle: list[Worker] = []
        while True:
            for worker in [worker for worker in starting if worker.has_message()]:
                worker.receive()
                starting.remove(worker)
                idle.append(worker)
            for one in taken:
                # Received even if it is not the next result, because a worker waits until its result is taken.
                if isinstance(one.encoded, Worker) and one.encoded.has_message():
                    _receive(one, idle)
            while idle and (documents := next(rest, None)) is not None:
                worker = idle.pop()
                worker.send(_texts(documents))
                taken.append(_Taken(documents, worker))
            if taken and isinstance(encoded := taken[0].encoded, Encoded):
                yield taken.popleft().documents, encoded
            elif len(taken) < _AHEAD * processes and (documents := next(rest, None)) is not None:
                taken.append(_Taken(documents, model.encode_documents(_texts(documents))))
            elif taken:
                _receive(taken[0], idle)
            else:
                return


def _receive(one: _Taken, idle: list[Worker]) -> None:
    worker = one.encoded
    if isinstance(worker, Worker):
        one.encoded = worker.receive()
        idle.append(worker)


def _texts(batch: Documents) -> list[dict[str, str]]:
    return [
        {k: text for k, v in d.fields.items() if (text := text_of(v)) is not None} for d in batch
    ]


def work(connection: Connection) -> None:
    """Open the model of a bundle, say so, then encode the texts that arrive; runs in a worker process."""
    try:
        _, model = open_model(connection.recv())
    except Exception as error:
        connection.send(error)
        raise
    connection.send(None)
    while True:
        texts = connection.recv()
        try:
            answer: Encoded | Exception = model.encode_documents(texts)
        except Exception as error:
            answer = error
        connection.send(answer)
