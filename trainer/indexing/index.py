"""A corpus of any size through a trained model, into a new bundle of that model.

Every document is encoded anew by the model. What training learned about single documents (their
biases, the item vectors of half transductive models) and clicked text that was gathered from
queries do not pass on: the model's own encoding of their words takes their place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle.catalog import live_in, open_model, stream_bundle
from fullrank.bundle.manifest import Manifest, is_name
from fullrank.bundle.write import Batch
from fullrank.errors import BundleError
from fullrank.model import Model
from trainer.collection import read_queries
from trainer.collection.corpus import CorpusFile
from trainer.encoders import Documents, encode_batches
from trainer.progress import Reporter

BATCH = 4096
_GOLDEN = 20  # queries replayed at every load
_TUNING = 400  # queries that tune the fast mode and measure it, half each
_QUERY_WORDS = 10
_QUERY_CHARACTERS = 400
_SEED = 1


@dataclass(frozen=True)
class IndexResult:
    """A written bundle.

    seconds  from the beginning to the end, encoding only a part of it
    """

    path: Path
    parent: str
    documents: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
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
    reporter: Reporter | None = None,
) -> IndexResult:
    """Encode a corpus with the model of a bundle and write out/name/version.

    corpus     corpus.jsonl[.gz], or a folder that holds one
    name       by default the name of the bundle
    queries    queries.jsonl[.gz], or a folder that holds one: what people ask, to tune the fast mode with and
               to replay at every load; by default titles and other words of documents
    batch      documents encoded in one step; the result does not depend on it
    processes  that encode; default all cores
    exported_from  the bundle that the corpus was exported from, where it was

    Raises BundleError, CollectionError. Whatever ends it, nothing is left behind.
    """
    began = time.monotonic()
    if name is not None and not is_name(name):
        raise BundleError(f"{name!r} cannot name a bundle: a-z, 0-9, '.', '_', '-', at most 100")
    bundle, out = Path(bundle), Path(out)
    manifest, model = open_model(bundle)
    held = None if exported_from is None else live_in(exported_from, name or manifest.name)
    asked = [] if queries is None else [query.text for query in read_queries(queries)]
    with reporter or Reporter() as report, CorpusFile(corpus, scratch=_existing(out)) as source:
        counts = {k: v for k, v in vars(source.report).items() if isinstance(v, int) and v}
        report.say("read", corpus=str(source.path), **counts)
        encoding = _encoded(source, model, bundle, batch, processes or _cores(), report)
        with closing(encoding) as batches, report.parts() as progress:
            path = stream_bundle(
                out,
                name or manifest.name,
                model=model,
                batches=batches,
                golden_queries=_sample(asked, _GOLDEN, _SEED)
                or _made(source, model, _GOLDEN, _SEED),
                sample_queries=_sample(asked, _TUNING, _SEED + 1)
                or _made(source, model, _TUNING, _SEED + 1),
                card=_card(manifest, source, counts),
                log_position=held,
                progress=progress,
            )
        seconds = time.monotonic() - began
        report.say("written", version=path.name, seconds=seconds)
    return IndexResult(path, manifest.version, len(source), seconds)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there: on the disk that has to have the room."""
    folder = folder.resolve()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _encoded(
    source: CorpusFile, model: Model, bundle: Path, batch: int, processes: int, report: Reporter
) -> Generator[Batch, None, None]:
    batches = _batches(source.documents(), batch)
    processes = min(processes, -(-len(source) // batch))
    with (
        report.stage("encode", total=len(source)) as stage,
        closing(encode_batches(batches, model, bundle, processes)) as found,
    ):
        for documents, encoded in found:
            yield documents, encoded
            stage.advance(len(documents))


def _batches(documents: Iterable[Any], size: int) -> Iterator[Documents]:
    rest = iter(documents)
    while batch := list(islice(rest, size)):
        yield batch


def _sample(asked: Sequence[str], count: int, seed: int) -> list[str]:
    """Some of the queries that are asked, drawn by a seed; empty ones left out."""
    texts = [text for text in asked if text.strip()]
    places = np.random.default_rng(seed).permutation(len(texts))[:count]
    return [texts[i][:_QUERY_CHARACTERS] for i in np.sort(places).tolist()]


def _made(source: CorpusFile, model: Model, count: int, seed: int) -> list[str]:
    """Titles and, by turns or where there is none, words that follow one another in a document, drawn by a seed."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(source), min(count, len(source)), replace=False))
    queries = []
    for i, row in enumerate(rows.tolist()):
        fields = source.document(row).fields
        words = model.query_text(fields).split()
        first = int(rng.integers(max(1, len(words) - _QUERY_WORDS)))
        title = fields.get("title", "").strip() if i % 2 == 0 else ""
        text = title or " ".join(words[first : first + _QUERY_WORDS])
        if text:
            queries.append(text[:_QUERY_CHARACTERS])
    return queries


def _card(parent: Manifest, source: CorpusFile, counts: dict[str, int]) -> dict[str, Any]:
    """The card of the training goes along with its model, also when an indexed bundle is indexed again."""
    return {
        "parent": parent.version,
        "parent_bundle_id": parent.bundle_id,
        "collection": {"fingerprint": source.fingerprint, **counts},
        "trained": parent.card.get("trained", parent.card),
    }
