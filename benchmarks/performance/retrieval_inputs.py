"""Inputs of the retrieval benchmark; each is made once and stored under --out by its settings.

    model-…/               a recipe trained on Debian: a bundle of Debian's own documents
    queries-…/             what the fast mode of the bundles is tuned with
    corpora-…/<n>/         of n resampled documents:
      corpus.jsonl
      bundles/<model>/     the bundle that ``fullrank index`` makes of them with that model and queries
      hnsw-<model>-…       FAISS HNSW over the bundle's dense part
      bm25s/               bm25s over their words, mapped when it is opened

The peers of Debian itself are next to the model. Everything is written under a temporary name and renamed, so a stopped
run continues where it stopped.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import orjson

from benchmarks.harness.processes import run_measured
from benchmarks.harness.report import data_folder
from benchmarks.performance.resample import Line, Source, read_source, short_queries, write_corpus
from fullrank.bundle import open_bundle
from fullrank.progress import Reporter
from fullrank.storage.documents import field_text
from fullrank.text.words import words

RECIPE = "fielded"
DIMENSION = 128
DEBIAN = "debian"
_LINKS = 32  # M, links of a node of the graph; twice as many on the lowest level
_BUILD_EFFORT = 200
_BATCH = 4096
_TUNING = 1000


@dataclass(frozen=True)
class Kept:
    """Paths of the inputs; ``seconds`` is the time to fit, ``terms`` the distinct words of a document."""

    out: Path
    seed: int
    terms: float
    seconds: float
    report: Reporter

    def source(self) -> Source:
        """Return Debian, split into sentences."""
        return read_source(data_folder() / DEBIAN)

    def model(self) -> Path:
        """Return the trained bundle."""
        from fullrank_trainer.train import train

        root = self.out / f"model-{RECIPE}-{DIMENSION}-s{self.seed}-{self.seconds:g}s"
        there = _bundle_in(root)
        if there is not None:
            return there
        overrides = [f"model.dimension={DIMENSION}", f"train.seconds={self.seconds:g}"]
        with self._lent() as report:
            return train(
                data_folder() / DEBIAN,
                root,
                DEBIAN,
                recipe=RECIPE,
                overrides=overrides,
                seed=self.seed,
                reporter=report,
            ).path

    def corpus(self, documents: int) -> Path:
        """Return a folder with corpus.jsonl."""
        folder = self.out / f"corpora-s{self.seed}-t{self.terms:g}" / str(documents)
        if not (folder / "corpus.jsonl").is_file():
            source = self.source()
            stretch = source.stretch(self.terms, self.seed)
            self.report.log("resampling", documents=documents, stretch=stretch)
            with self.report.stage("resampling", documents) as stage:
                for done in write_corpus(
                    source, folder, documents, seed=self.seed, stretch=stretch
                ):
                    stage.advance(done)
        return folder

    def bundle(self, name: str) -> Path:
        """Return the bundle of a corpus: ``debian``, or a number of resampled documents."""
        model = self.model()
        if name == DEBIAN:
            return model
        folder = self.corpus(int(name))
        root = folder / "bundles" / model.name
        there = _bundle_in(root)
        if there is not None:
            return there
        given = [str(model), str(folder), "--out", str(root), "--name", "resampled"]
        run = run_measured(["index", *given, "--queries", str(self._queries()), "--json"])
        made = json.loads(run.out)
        facts = {
            "documents": made["documents"],
            "seconds": round(made["seconds"], 1),
            "processor_s": round(run.processor_s, 1),
            "cores": len(os.sched_getaffinity(0)),
            "peak_resident_gb": round(run.peak_gib * 2**30 / 1e9, 3),
            "peak_anonymous_gb": round(run.peak_anonymous_gib * 2**30 / 1e9, 3),
        }
        (root / "built.json").write_text(json.dumps(facts), "utf-8")
        return Path(made["bundle"])

    def built(self, name: str) -> dict[str, Any] | None:
        """Return the time to encode and to index a corpus, and the memory of the processes that did."""
        if name == DEBIAN:
            return None
        facts: dict[str, Any] = orjson.loads(
            (self.bundle(name).parents[1] / "built.json").read_bytes()
        )
        return facts

    @contextmanager
    def _lent(self) -> Iterator[Reporter]:
        """Lend the reporter to a function that opens and closes one; reopen it afterwards."""
        try:
            yield self.report
        finally:
            self.report.__enter__()

    def _queries(self) -> Path:
        """Write the short queries that tune fast mode; none of them is measured."""
        folder = self.out / f"queries-s{self.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        texts = short_queries(self.source(), _TUNING, self.seed, tuning=True)
        lines = (orjson.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(texts))
        (folder / "queries.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        return folder

    def _folder(self, name: str) -> Path:
        return self.model().parents[1] if name == DEBIAN else self.corpus(int(name))

    def lines(self, name: str) -> Iterator[Line]:
        """Yield the documents of a corpus in ascending order of id."""
        if name == DEBIAN:
            from fullrank_trainer.collection import read_collection

            for document in read_collection(data_folder() / DEBIAN).documents:
                yield {"_id": document.id, **document.fields}
            return
        with (self.corpus(int(name)) / "corpus.jsonl").open("rb") as lines:
            yield from map(orjson.loads, lines)

    def hnsw(self, name: str) -> faiss.Index:
        """Return FAISS's graph over the dense part of a bundle, in memory."""
        path = self._folder(name) / f"hnsw-{self.model().name}-{_LINKS}-{_BUILD_EFFORT}"
        if not path.is_file():
            vectors = open_bundle(self.bundle(name), verify=False).encoded.whole().dense
            index = faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = _BUILD_EFFORT
            with self.report.stage("HNSW", len(vectors)) as stage:
                for start in range(0, len(vectors), _BATCH):
                    part = np.ascontiguousarray(vectors[start : start + _BATCH])
                    index.add(part)
                    stage.advance(len(part))
            _placed(path, lambda partial_path: faiss.write_index(index, str(partial_path)))
            return index
        return faiss.read_index(str(path))

    def bm25s(self, name: str, backend: str) -> Any:
        """Return the peer over the words of title and text, with mapped arrays."""
        import bm25s

        path = self._folder(name) / "bm25s"
        if not path.is_dir():
            self.report.log("bm25s", corpus=name)
            number: dict[str, int] = {}
            texts = (field_text(line, ("title", "text")) for line in self.lines(name))
            ids = [[number.setdefault(w, len(number)) for w in words(text)] for text in texts]
            peer = bm25s.BM25(backend="numba")
            peer.index(bm25s.tokenization.Tokenized(ids, number), show_progress=False)
            _placed(path, lambda partial_path: peer.save(partial_path, show_progress=False))
        return bm25s.BM25.load(
            path, mmap=True, override_params={"backend": backend}, show_progress=False
        )


def _bundle_in(root: Path) -> Path | None:
    """Return the newest bundle under a root, if there is one."""
    found = sorted(root.glob("*/*/manifest.json"))
    return found[-1].parent if found else None


def _placed(path: Path, write: Callable[[Path], object]) -> None:
    partial_path = path.with_name(path.name + ".part")
    shutil.rmtree(partial_path, ignore_errors=True)
    write(partial_path)
    partial_path.rename(path)
