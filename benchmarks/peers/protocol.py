"""What every peer shares: the texts and pairs that it may read, how its rankings are measured, and the command.

    python -m benchmarks.peers.<peer> [--collection tldr/en] [--systems NAME,...] [--set KEY=VALUE]

A peer trains, chooses its settings on valid and is measured; it prints one JSON line for each system and split.

system, collection, cold, split, queries, documents
mrr, map, ndcg@10 and their _error    mean over queries and its standard error
train_seconds       wall time from texts to a model that answers, of the chosen settings
train_cpu_seconds   processor time of the same, on all threads and in child processes
query_ms            median wall time of one query on one thread, from its text to ten documents
query_cpu_ms        median processor time of the same
peak_memory_mb      largest resident memory so far, of the process or of a child process
settings, trials    the chosen settings; validation MRR of all

A peer scores every document for a batch of queries; minus infinity means "not ranked". Ties fall in the order of rows,
as in Fullrank. With --cold, a tenth of the documents is judged by the test alone, and the test judges no others
(benchmarks.harness.derive.cold_splits). Each system runs in a process of its own, so that memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.derive import cold_splits, write_splits
from benchmarks.harness.lab import collection_folder
from fullrank.errors import CollectionError
from fullrank.measures import RANKING_MEASURES, Float64, Int64, estimate, ranking_measures
from fullrank.storage.documents import field_text
from fullrank_trainer.collection import Collection, read_collection, relevant
from fullrank_trainer.evaluation.evaluate import DEPTH, Judgement, evenly_spread, judge
from fullrank_trainer.evaluation.trec import RunWriter
from fullrank_trainer.features.corpus import text_fields

EXCLUDED = {"test": ("train", "valid"), "valid": ("train",)}
"""Measured split → the splits whose documents are no candidates for a query."""


@dataclass(frozen=True, eq=False)
class PeerData:
    """A collection as plain texts.

    Attributes:
        collection: where the texts come from.
        documents: the text of each document, its text fields joined by newlines, in row order.
        train: (text of the query, row of a relevant document), one for each judged pair of train.
    """

    collection: Collection
    documents: list[str]
    train: list[tuple[str, int]]

    @cached_property
    def clicked(self) -> list[str]:
        """The documents with the text of their training queries added, in row order.

        Raises CollectionError if the queries are documents: their text is no short description.
        """
        if self.collection.queries is None:
            raise CollectionError(f"{self.collection.path}: the queries are documents")
        parts = [[text] for text in self.documents]
        for query, row in self.train:
            parts[row].append(query)
        return ["\n".join(part) for part in parts]

    def asked(self, split: str) -> Asked:
        """Return the judged queries of a split with their texts."""
        judgements, _ = judge(self.collection, split, EXCLUDED[split])
        texts = _texts(self.collection, self.documents)
        return Asked(split, judgements, [texts[judgement.query] for judgement in judgements])


@dataclass(frozen=True, eq=False)
class Asked:
    """The queries of a split: what is judged, and their texts in the same order."""

    split: str
    judgements: Sequence[Judgement]
    texts: Sequence[str]


def read_peer_data(folder: Path) -> PeerData:
    """Read a collection folder. Raises CollectionError if it has no training pairs."""
    collection = read_collection(folder)
    fields = text_fields(collection)
    documents = [field_text(document.fields, fields) for document in collection.documents]
    rows = {document.id: row for row, document in enumerate(collection.documents)}
    texts = _texts(collection, documents)
    train = [
        (texts[query], rows[document])
        for query, grades in collection.qrels("train").items()
        for document in relevant(grades)
    ]
    if not train:
        raise CollectionError(f"{folder / 'qrels' / 'train.tsv'}: no judged pair to learn from")
    return PeerData(collection, documents, train)


def _texts(collection: Collection, documents: Sequence[str]) -> dict[str, str]:
    """Return the text of each query."""
    if collection.queries is not None:
        return {query.id: query.text for query in collection.queries}
    return {item.id: text for item, text in zip(collection.documents, documents, strict=True)}


Float32 = npt.NDArray[np.float32]
Scores = Callable[[Sequence[str]], Float32]
"""Texts of B queries → float32 (B, documents)."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained peer.

    Attributes:
        score: scores all documents for queries.
        facts: further fields of the printed line; they replace measured ones of the same name.
    """

    score: Scores
    facts: Mapping[str, Any] = field(default_factory=dict)


TOP = 10  # documents that a timed query returns
_BATCH_CELLS = 1 << 22  # scores in memory: 16 MiB
_WARM_UP = 20


def top_rows(scores: Float32, depth: int) -> Int64:
    """Return the rows of the ``depth`` best of the scores (documents,), best first, ties by row."""
    candidates = np.flatnonzero(scores > -np.inf)
    if len(candidates) > depth:
        last = np.partition(scores[candidates], len(candidates) - depth)[-depth]
        candidates = candidates[scores[candidates] >= last]
    order = np.argsort(-scores[candidates], kind="stable")[:depth]
    return candidates[order].astype(np.int64)


def measure(
    score: Scores, data: PeerData, asked: Asked, run: Path | None = None
) -> dict[str, Float64]:
    """Measure the rankings of a peer.

    Args:
        score: the trained peer.
        data: the collection.
        asked: the queries.
        run: file to write the rankings to as a TREC run.

    Returns:
        RANKING_MEASURES → float64 (queries,), in the order of the queries.
    """
    values = {name: np.zeros(len(asked.judgements)) for name in RANKING_MEASURES}
    ids = [document.id for document in data.collection.documents]
    step = max(1, min(256, _BATCH_CELLS // len(ids)))
    with RunWriter(run, "peer") if run is not None else nullcontext() as writer:
        for start in range(0, len(asked.judgements), step):
            scores = score(asked.texts[start : start + step])
            for offset, judgement in enumerate(asked.judgements[start : start + step]):
                found = np.array(scores[offset], np.float32)
                found[judgement.excluded] = -np.inf
                rows = top_rows(found, DEPTH)
                for name, value in ranking_measures(
                    _grades(rows, judgement), judgement.grades
                ).items():
                    values[name][start + offset] = value
                if writer is not None:
                    writer.write(judgement.query, [ids[row] for row in rows], found[rows])
    return values


def _grades(rows: Int64, judgement: Judgement) -> Int64:
    """Return the grade at every rank; zero if not relevant."""
    grade = dict(zip(judgement.relevant.tolist(), judgement.grades.tolist(), strict=True))
    return np.array([grade.get(row, 0) for row in rows.tolist()], np.int64)


def query_time(score: Scores, texts: Sequence[str], count: int) -> tuple[float, float]:
    """Time ``count`` queries, one after another; return the medians of wall and of processor time, ms."""
    chosen = evenly_spread(len(texts), count).tolist()
    for i in chosen[:_WARM_UP]:
        top_rows(score([texts[i]])[0], TOP)
    wall, cpu = [], []
    for i in chosen:
        began, used = time.perf_counter(), time.process_time()
        top_rows(score([texts[i]])[0], TOP)
        cpu.append(time.process_time() - used)
        wall.append(time.perf_counter() - began)
    return 1e3 * statistics.median(wall), 1e3 * statistics.median(cpu)


Encode = Callable[[Sequence[str]], Float32]
"""Texts → float32 (texts, N), rows of length one."""


def unit_rows(vectors: npt.NDArray[np.floating]) -> Float32:
    """Divide each row by its length; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def passage_scores(encode: Encode, vectors: Float32, rows: Int64) -> Scores:
    """Score a document by its best passage.

    Args:
        encode: encodes queries.
        vectors: (passages, N), of length one.
        rows: (passages,) ascending; every document has a passage.
    """
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    columns = np.ascontiguousarray(vectors.T)

    def score(texts: Sequence[str]) -> Float32:
        cosines = encode(texts) @ columns
        if len(starts) == len(rows):
            return cosines
        return np.maximum.reduceat(cosines, starts, axis=1)

    return score


Settings = Mapping[str, Any]
Fit = Callable[[PeerData, Settings], Trained]

MEASURES = ("mrr", "map", "ndcg@10")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class PeerSystem:
    """One line of the table.

    Attributes:
        name: of the system.
        fit: trains it.
        trials: settings to try; the first are the library's own.
        needs_queries: skipped where documents are the queries.
    """

    name: str
    fit: Fit
    trials: Sequence[Settings] = ({},)
    needs_queries: bool = False


def parser(doc: str) -> argparse.ArgumentParser:
    """Return the shared options. ``doc`` is the module's; its first line is shown."""
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    found.add_argument(
        "--collection", default="tldr/en", help="name under FULLRANK_DATA, or folder"
    )
    found.add_argument(
        "--cold", action="store_true", help="train without the documents of the test"
    )
    found.add_argument("--systems", help="comma-separated; default all")
    found.add_argument("--splits", default="valid,test", help="comma-separated; default valid,test")
    found.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="setting of every trial"
    )
    found.add_argument("--timed", type=int, default=200, help="queries that are timed; default 200")
    found.add_argument(
        "--in-process", action="store_true", help="do not start a process per system"
    )
    return found


def overrides(words: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE; the value is JSON or else a string. Exits if there is no equals sign."""
    found: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            sys.exit(f"--set {word!r}: write KEY=VALUE")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def run(
    module: str,
    systems: Sequence[PeerSystem],
    given: argparse.Namespace,
    packages: Sequence[str],
    arguments: Sequence[str] | None = None,
) -> None:
    """Run the chosen systems.

    Args:
        module: name of the peer's module.
        systems: that it has.
        given: the parsed options.
        packages: whose versions are reported.
        arguments: that ``given`` was parsed from; default those of the command line.
    """
    known = {system.name: system for system in systems}
    names = given.systems.split(",") if given.systems else list(known)
    for name in names:
        if name not in known:
            sys.exit(f"no system {name!r}; there are: {', '.join(known)}")
    if not given.in_process:
        words = sys.argv[1:] if arguments is None else list(arguments)
        # BLAS reads its number of threads when it is loaded, so a new process has to set it.
        environment = os.environ | dict.fromkeys(_ONE_THREAD, "1")
        for name in names:
            command = [sys.executable, "-m", module, *words, "--systems", name, "--in-process"]
            code = subprocess.run(command, env=environment, check=False).returncode
            if code:
                sys.exit(code)
        return
    with tempfile.TemporaryDirectory(prefix="fullrank-peer-") as scratch:
        data = read_peer_data(measured_folder(given.collection, given.cold, Path(scratch)))
    changed = overrides(given.set)
    for name in names:
        if known[name].needs_queries and data.collection.queries is None:
            print(
                f"{name}: skipped, the queries of {given.collection} are documents", file=sys.stderr
            )
            continue
        for line in measure_system(known[name], data, given, changed):
            versions = {package: version(package) for package in packages}
            print(json.dumps(line | {"versions": versions}, ensure_ascii=False), flush=True)


def measured_folder(name: str, cold: bool, scratch: Path) -> Path:
    """Return the folder of a collection, or of its cold splits, which are written to ``scratch``."""
    named = Path(name)
    folder = named if named.is_dir() else collection_folder(name)
    return write_splits(folder, scratch, cold_splits(read_collection(folder))) if cold else folder


def measure_system(
    system: PeerSystem, data: PeerData, given: argparse.Namespace, changed: Settings
) -> list[dict[str, Any]]:
    """Train a system, choose its settings on valid, and return one line for each measured split."""
    trials = _distinct([{**trial, **changed} for trial in system.trials])
    valid = data.asked("valid") if len(trials) > 1 else None
    tried: list[dict[str, Any]] = []
    best: tuple[float, Settings, Trained, float, float] | None = None
    for settings in trials:
        started, used = time.perf_counter(), _cpu_seconds()
        trained = system.fit(data, settings)
        seconds, cpu = time.perf_counter() - started, _cpu_seconds() - used
        mrr = 0.0 if valid is None else float(measure(trained.score, data, valid)["mrr"].mean())
        tried.append(
            {"settings": dict(settings), "mrr": round(mrr, 4), "seconds": round(seconds, 1)}
        )
        print(f"{system.name} {tried[-1]}", file=sys.stderr, flush=True)
        if best is None or mrr > best[0]:
            best = (mrr, settings, trained, seconds, cpu)
    if best is None:
        raise ValueError(f"{system.name}: no settings to try")
    _, chosen, trained, seconds, cpu = best
    lines = []
    for split in given.splits.split(","):
        asked = data.asked(split)
        found = measure(trained.score, data, asked)
        wall_ms, cpu_ms = query_time(trained.score, asked.texts, given.timed)
        line: dict[str, Any] = {
            "system": system.name,
            "collection": given.collection,
            "cold": given.cold,
            "split": split,
            "queries": len(asked.judgements),
            "documents": len(data.documents),
        }
        for name in MEASURES:
            value = estimate(found[name])
            line |= {name: round(value.mean, 4), f"{name}_error": round(value.standard_error, 4)}
        line |= {
            "train_seconds": round(seconds, 3),
            "train_cpu_seconds": round(cpu, 3),
            "query_ms": round(wall_ms, 3),
            "query_cpu_ms": round(cpu_ms, 3),
            "peak_memory_mb": round(peak_memory_mb()),
            "load": round(os.getloadavg()[0], 1),
            "settings": dict(chosen),
            "trials": tried,
        }
        lines.append({**line, **trained.facts})
    return lines


def _distinct(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop trials that an override made equal."""
    return [trial for i, trial in enumerate(trials) if trial not in trials[:i]]


def _cpu_seconds() -> float:
    """Return the processor time of this process and its ended child processes."""
    return sum(os.times()[:4])


def peak_memory_mb() -> float:
    """Return the largest resident memory of this process or of an ended child process."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(own, child) / 1024
