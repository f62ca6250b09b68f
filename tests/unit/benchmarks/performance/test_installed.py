"""Engines beside ours on one corpus, with the engines that are in every environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import faiss
import pytest

from benchmarks.performance.installed import open_engines
from benchmarks.performance.prepare import Kept
from benchmarks.performance.resample import TERMS
from fullrank import open_bundle
from fullrank.progress import Reporter
from fullrank_trainer.train import train
from tests.planted import write_planted


class PlantedCorpus(Kept):
    """Planted documents in place of a resampled corpus."""

    def bundle(self, name: str) -> Path:
        return self.out / name

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        with (self.out / "corpus.jsonl").open(encoding="utf-8") as file:
            yield from sorted(map(json.loads, file), key=lambda line: str(line["_id"]))

    def hnsw(self, name: str) -> faiss.Index:
        vectors = open_bundle(self.bundle(name)).encoded.whole().dense
        index = faiss.IndexHNSWFlat(vectors.shape[1], 8, faiss.METRIC_INNER_PRODUCT)
        index.add(vectors)
        return index


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> PlantedCorpus:
    folder = write_planted(tmp_path_factory.mktemp("planted"))
    report = Reporter(quiet=True)
    made = train(
        folder,
        folder / "bundles",
        "p",
        recipe="fielded",
        overrides=["train.epochs=1"],
        reporter=report,
    )
    (folder / "p").symlink_to(made.path)
    return PlantedCorpus(folder, 1, TERMS, 1, report)


def test_every_system_answers_with_rows_of_the_same_documents(kept: PlantedCorpus) -> None:
    others = ("tantivy", "PostgreSQL", "LanceDB", "bm25s")
    bundle = open_bundle(kept.bundle("p"))
    ids = list(bundle.documents.ids)
    with ExitStack() as stack:
        engines, built = open_engines(kept, "p", others, stack)
        found = {engine.name: engine for engine in engines}
        assert list(found) == list(built)
        assert {"Fullrank exact", "SQLite FTS5"} < set(found)
        assert sum(name.startswith("FAISS") for name in found) == 2
        assert {name for name, engine in found.items() if engine.ours} == {"Fullrank exact"}
        for line in list(kept.lines("p"))[::50]:
            own = [ids[row] for row in found["Fullrank exact"].search(line["title"], 5)]
            assert own == [hit.id for hit in bundle.search(line["title"], limit=5)]
            words = [ids[row] for row in found["SQLite FTS5"].search(line["text"], 5)]
            assert line["_id"] in words
            query = bundle.model.encode_queries([line["text"]]).dense[0]
            nearest = int((bundle.encoded.whole().dense @ query).argmax())
            assert found["FAISS flat, own vectors"].search(line["text"], 1) == [nearest]


def test_the_time_to_index_is_that_of_this_command(kept: PlantedCorpus) -> None:
    with ExitStack() as stack:
        _, built = open_engines(kept, "p", ("tantivy", "PostgreSQL", "LanceDB", "bm25s"), stack)
    assert built["Fullrank exact"] is None
    assert built["FAISS HNSW, own vectors"] is None
    assert isinstance(built["SQLite FTS5"], float)
